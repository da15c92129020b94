"""Where else: the tokens of an index that are most like some tokens of a text, exactly, every row compared.

Rows and questions are whole numbers of int8, whose products float32 adds up without any rounding (up to 1,040 of them):
what is found does not depend on the order, the blocks or the threads in which rows are compared.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.engines import check_engine, run_on_ray
from bert_core.studies.index import TREE_COLUMNS, pack_sentences, quantise_rows
from bert_core.studies.index_reader import BrokenShard, Index, IndexedShard
from bert_core.tokenizer import Encoding

HEAD_SIMILARITIES = ("brings", "looks")  # what of a head is compared
PHRASE_MODES = ("mean", "each")
FILTER_COLUMNS = ("document", "piece", "word", *TREE_COLUMNS, "offset")
CLS_OFFSET, SEP_OFFSET = "first", "end"  # [CLS] and [SEP], where an offset stands for a key
_FIRST, _END = 2**20, 2**20 + 1  # the same among offsets
_AT_ONCE = 2**18  # numbers of a block, that both fit a processor's own cache
# Numbers in a matrix that BLAS multiplies by a vector: with more it would wake its threads, which wait for each other
# where other work has the cores.
_TOGETHER = 8192


@dataclass(frozen=True)
class Match:
    """A token like the one asked for, in its sentence.

    score: 1 is the same, as `search` says. line: of the document, from 1; sentence: of that line, from 0.
    text: the sentence; start, end: of the token in it. position, piece, word: of the token.
    labels: of a treebank, by the names of `TREE_COLUMNS`. offset: of a head that was asked for, how far on the key is
    that it looks at most, or "first" or "end" for [CLS] and [SEP]. also: where each token of a phrase has its like.
    """

    score: float
    document: str
    line: int
    sentence: int
    text: str
    start: int
    end: int
    position: int
    piece: str
    word: str | None
    labels: Mapping[str, Any] = field(default_factory=dict)
    offset: int | str | None = None
    also: tuple[int, ...] = ()


@dataclass(frozen=True)
class Matches:
    """The best matches, falling; how many tokens were compared; and what is said of shards that were left out."""

    matches: tuple[Match, ...]
    compared: int
    broken: tuple[str, ...] = ()


@validate_arguments
def search(
    index: Index,
    loaded: LoadedModel,
    encoding: Encoding,
    tokens: Sequence[int],
    *,
    depth: int | None = None,
    heads: Sequence[tuple[int, int]] = (),
    head_similarity: str = "brings",
    phrase: str = "mean",
    where: Mapping[str, Sequence[Any]] | None = None,
    top: int = 20,
    engine: str = "local",
    report: Progress = ignore_progress,
) -> Matches:
    """Where else in an index a token is in a state like this one, or heads do the like.

    tokens: positions in the text; several are a phrase. depth: of the states, 0 for the embeddings; None with heads.
    heads: (layer, head) each, in place of a depth: their scores' mean counts.
    alike: of heads, "brings", the cosine of what each brings to the token; or "looks", how much of its attention to
    its 4 strongest keys goes to the same offsets, or to [CLS] or [SEP]. Of states it is the cosine.
    phrase: "mean", tokens like the mean of these; "each", sentences in which each of these has its like: the sum of
    the best scores (Khattab 2020, section 3.2, arXiv:2004.12832). Of "looks" it is always the second.
    where: columns, of `FILTERS`, and the values of which each must have one; filtered before rows are compared.
    Added tokens, [CLS] and [SEP], are found only where one of them is asked for.
    Of equal scores what stands first in the index comes first. engine: "local", or "ray", where the workers of a Ray
    cluster that see the same folder look up a shard each, and the best of each are merged: the same matches.
    report: told how many shards are done.
    Raises Refused for a model of other weights, what is not in the text, the model or the index, an unknown engine, or
    Ray missing.
    """
    check_engine(engine)
    index.check_model(loaded)
    asked = _Asked.of(index, loaded, encoding, tokens, depth, heads, head_similarity, phrase)
    conditions = _conditions(where, asked)
    top = require_int("top", top, 1)
    nothing = (np.zeros(0, np.float32), np.zeros(0, np.int64), 0)
    best: list[_Best] = []
    broken: dict[int, str] = {}
    for number, found in enumerate(_looked_up(index, engine, asked, conditions, top)):
        if isinstance(found, str):
            broken[number], found = found, nothing
        best.append(found)
        report_count(report, number + 1, len(index.shards), "shards")
    while True:
        scores, rows = (np.concatenate([nothing[part], *(own[part] for own in best)]) for part in (0, 1))
        shards = np.repeat(np.arange(len(best)), [len(own[1]) for own in best])
        matches = []
        for at in np.lexsort((rows, shards, -scores))[:top].tolist():
            number = int(shards[at])
            try:
                matches.append(_match(index.shards[number], int(rows[at]), float(scores[at]), asked, conditions))
            except BrokenShard as error:  # what is written of its tokens
                broken[number], best[number] = str(error), nothing
                break
        else:
            said = tuple(broken[number] for number in sorted(broken))
            return Matches(tuple(matches), sum(own[2] for own in best), said)


@dataclass(frozen=True)
class ValueShare:
    """How often a value of a column stands among matches, and among all tokens that were typed; shares of 1."""

    value: str
    share_of_matches: float
    share_of_corpus: float


@validate_arguments
def value_shares(index: Index, found: Matches, column: str, *, head: tuple[int, int] | None = None) -> list[ValueShare]:
    """The values of a column among matches, the most frequent first, beside their share of the whole index.

    column: "word", "piece", or one of `TREE_COLUMNS` but "distance", whatever their case; or "offset", how far on the
    strongest key of a head is, such as "+1", or "first" or "end" for [CLS] and [SEP].
    head: (layer, head), the first that was searched by, for offsets; None otherwise.
    Raises Refused for another column, or a head without offsets or offsets without a head.
    """
    if column not in FILTER_COLUMNS or column == "distance":
        raise Refused(f"there is no column {short_repr(column)} of words: one of word, piece, upos, relation, offset")
    if (column == "offset") != (head is not None):
        raise Refused("an offset is that of a head's strongest key: give a head with it, and with it alone")
    place = None
    if head is not None:
        layer, number = index.validate_heads([head])[0]
        place = index.layers.index(layer), number
    here: Counter[str] = Counter()
    for one in found.matches:
        value = one.labels.get(column, getattr(one, column, None))
        if value is not None:
            here[_written(value)] += 1
    of_all: Counter[str] = Counter()
    typed = 0
    for shard in index.shards:
        try:
            counts, tokens = _counts(shard, column, place)
        except BrokenShard:
            continue
        typed += tokens
        for value, count in counts.items():
            if value in here:
                of_all[value] += count
    return [
        ValueShare(value, count / max(1, len(found.matches)), of_all[value] / max(1, typed))
        for value, count in sorted(here.items(), key=lambda one: (-one[1], one[0]))
    ]


def _said(offset: int) -> int | str:
    """An offset of `_offsets` as it is told: a number, or which of `FIRST` and `END` it stands for."""
    return {_FIRST: CLS_OFFSET, _END: SEP_OFFSET}.get(offset, offset)


def _written(value: object) -> str:
    """A value as it is counted: words in one case, an offset with its sign."""
    return f"{value:+d}" if isinstance(value, int) and value else str(value).casefold()


def _counts(shard: IndexedShard, column: str, place: tuple[int, int] | None) -> tuple[Counter[str], int]:
    """How often each value of a column stands among the typed tokens of a shard, and how many those are.

    place: of the head whose offsets they are, by its layer's place in the index.
    """
    typed = ~shard.special
    found: Counter[str] = Counter()
    if place is not None:
        values, counts = np.unique(_strongest(shard, *place)[typed], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            found[_written(_said(value))] += count
    elif (own := shard.column(column)) is not None:
        codes = own.indices.fill_null(len(own.dictionary)).to_numpy(zero_copy_only=False)[typed]
        for name, count in zip(own.dictionary.to_pylist(), np.bincount(codes, minlength=1).tolist(), strict=False):
            found[name.casefold()] += count
    return found, int(typed.sum())


# ---------------------------------------------------------------------------- what is asked


@compared_by_value
@dataclass(frozen=True)
class _Row:
    """What a token is compared by in one place: int8 (size,) and its length, or the places of keys and weights."""

    values: np.ndarray
    length: float


@dataclass(frozen=True)
class _Asked:
    """What is looked for: the places of arrays that are compared, and of each the tokens of the text in it.

    places: (number, head), a depth or a layer by its place in the index; head None of states.
    rows: place after place, of every token of the phrase, or of their mean. added: whether added tokens are found.
    each: whether sentences are found, in which every token has its like.
    """

    places: tuple[tuple[int, int | None], ...]
    rows: tuple[tuple[_Row, ...], ...]
    looks: bool
    added: bool
    each: bool

    @classmethod
    def of(
        cls, index: Index, loaded: LoadedModel, encoding: Encoding, tokens: Sequence[int], depth: int | None,
        heads: Sequence[tuple[int, int]], alike: str, phrase: str,
    ) -> _Asked:  # fmt: skip
        positions = [
            require_int("a token", one, 0, len(encoding) - 1) for one in require_sequence("tokens", tokens, "positions")
        ]
        pairs = index.validate_heads(heads)
        if not positions:
            raise Refused("no token is asked for: name at least one of the text")
        if (depth is None) == (not pairs):
            raise Refused("either a depth or heads are asked for: give one of them")
        for name, given, known in (("alike", alike, HEAD_SIMILARITIES), ("phrase", phrase, PHRASE_MODES)):
            if given not in known:
                raise Refused(f"{name} {short_repr(given)} is unknown: one of {', '.join(known)}")
        if encoding.pair is not None:
            raise Refused("an index holds single sentences: ask about one text, not a pair")
        if len(encoding) > index.settings.max_length:
            raise Refused(f"the text has {len(encoding)} tokens, and {index.folder} was made from up to "
                          f"{index.settings.max_length} of a sentence: shorten it")  # fmt: skip
        looks = bool(pairs) and alike == "looks"
        each = phrase == "each" or (looks and len(positions) > 1)
        arrays, places = pack_sentences(loaded, [encoding], index.settings), cls._places(index, depth, pairs)
        rows: list[tuple[_Row, ...]] = []
        for number, head in places:
            if looks:
                keys, weights = arrays["keys"][number, head], arrays["weights"][number, head].astype(np.float32)
                at = _offsets(keys, np.arange(len(encoding)), np.array(encoding.special))
                own = [_Row(np.stack([at[position], weights[position]]), float(weights[position].sum()))
                       for position in positions]  # fmt: skip
            else:
                name = "states" if head is None else "heads"
                place = (number,) if head is None else (number, head)
                values, (scale, length) = arrays[name][place], arrays[f"{name[:-1]}_scales"][place]
                if phrase == "mean" and len(positions) > 1:
                    mean = (values[positions] * scale[positions, None]).mean(0)
                    values, (_, length) = quantise_rows(mean[None])
                    own = [_Row(values[0].astype(np.float32), float(length[0]))]
                else:
                    own = [_Row(values[one].astype(np.float32), float(length[one])) for one in positions]
            if not all(row.length > 0 for row in own):
                where = f"depth {index.depths[number]}" if head is None else f"L{index.layers[number]} H{head}"
                raise Refused(f"{loaded.name} has nothing at {where} for that token: nothing is like it")
            rows.append(tuple(own))
        return cls(places, tuple(rows), looks, all(encoding.special[one] for one in positions), each)

    @staticmethod
    def _places(
        index: Index, depth: int | None, pairs: Sequence[tuple[int, int]]
    ) -> tuple[tuple[int, int | None], ...]:  # fmt: skip
        if depth is not None:
            depth = require_int("depth", depth, 0)
            if depth not in index.depths:
                raise Refused(f"{index.folder} has no states of depth {depth}: it has {_listed(index.depths)}")
            return ((index.depths.index(depth), None),)
        return tuple((index.layers.index(layer), head) for layer, head in pairs)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _offsets(keys: np.ndarray, positions: np.ndarray, added: np.ndarray) -> np.ndarray:
    """How far on each key is, or which of `_FIRST` and `_END` it is; int64 (token, key).

    keys: (token, key), positions in their sentences. positions, added: (token,).
    """
    keys = keys.astype(np.int64)
    rows = np.arange(len(positions))[:, None] - positions[:, None] + keys
    return np.where(added[rows], np.where(keys == 0, _FIRST, _END), keys - positions[:, None])


# ---------------------------------------------------------------------------- filters


def _conditions(where: Mapping[str, Sequence[Any]] | None, asked: _Asked) -> dict[str, frozenset[Any]]:
    found: dict[str, frozenset[Any]] = {}
    if where is not None and not isinstance(where, Mapping):
        raise Refused(f"where is {short_repr(where)}: it must be columns and their values")
    for name, given in (where or {}).items():
        if name not in FILTER_COLUMNS:
            raise Refused(f"there is no column {short_repr(name)} to filter by: one of {', '.join(FILTER_COLUMNS)}")
        if name == "offset" and asked.places[0][1] is None:
            raise Refused("an offset is that of a head's strongest key: ask for a head")
        values = require_sequence(f"the values of {name}", given, "values")
        if name in ("distance", "offset"):
            names = {CLS_OFFSET: _FIRST, SEP_OFFSET: _END} if name == "offset" else {}
            values = tuple(names[one] if isinstance(one, str) and one in names else require_int(name, one, None)
                           for one in values)  # fmt: skip
        elif not all(isinstance(one, str) for one in values):
            raise Refused(f"the values of {name} are {short_repr(values)}: they must be texts")
        found[name] = frozenset(one.casefold() if isinstance(one, str) else one for one in values)
    return found


def _passes(shard: IndexedShard, asked: _Asked, conditions: Mapping[str, frozenset[Any]]) -> np.ndarray:
    """Which tokens of a shard are compared at all."""
    passes: np.ndarray = np.ones(shard.tokens, bool) if asked.added else ~shard.special
    for name, allowed in conditions.items():
        if name == "offset":
            number, head = asked.places[0]
            passes = passes & np.isin(_strongest(shard, number, head), list(allowed))
            continue
        column = shard.column(name)
        if column is None:
            return np.zeros(shard.tokens, bool)
        if name == "distance":
            values = column.to_numpy(zero_copy_only=False)  # NaN where there is none
            passes = passes & np.isin(values, list(allowed))
        else:
            known = np.array([str(one).casefold() in allowed for one in column.dictionary.to_pylist()] + [False])
            passes = passes & known[column.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
    return passes


def _strongest(shard: IndexedShard, number: int, head: int | None) -> np.ndarray:
    """The offset of the strongest key of a head, of every token, as `_offsets`."""
    keys = shard.part("keys", number)[head][:, :1]
    found: np.ndarray = _offsets(keys, shard.integer_column("position"), shard.special)[:, 0]
    return found


# ---------------------------------------------------------------------------- shard by shard

_Best = tuple[np.ndarray, np.ndarray, int]


def _looked_up(
    index: Index, engine: str, asked: _Asked, conditions: Mapping[str, frozenset[Any]], top: int
) -> Iterator[_Best | str]:  # fmt: skip
    """What is found in each shard, in their order."""
    if engine == "local":
        with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
            yield from pool.map(partial(_tried, asked, conditions, top), index.shards)
    else:  # a worker opens its shard anew: what was read here stays here
        unread = (IndexedShard(shard.folder.resolve(), shard.document) for shard in index.shards)
        yield from (found for _, found in run_on_ray(_tried, (asked, conditions, top), unread, None))


def _tried(
    asked: _Asked, conditions: Mapping[str, frozenset[Any]], top: int, shard: IndexedShard
) -> _Best | str:  # fmt: skip
    """The best of a shard, or what is said of one that is broken."""
    try:
        return _best_of(shard, asked, conditions, top)
    except BrokenShard as error:
        return str(error)


def _best_of(shard: IndexedShard, asked: _Asked, conditions: Mapping[str, frozenset[Any]], top: int) -> _Best:
    """The best scores of a shard, falling, their rows, and how many rows were compared."""
    passes = _passes(shard, asked, conditions)
    some = np.flatnonzero(passes)
    if not len(some):
        return np.zeros(0, np.float32), some, 0
    rows = some if len(some) < shard.tokens / 2 else None  # few are taken out first; of most, all are compared
    scores = _looks_alike(shard, asked, rows) if asked.looks else _cosines(shard, asked, rows)
    if rows is None:
        rows, scores = some, scores[:, some]
    if not asked.each:
        alone = scores[0]
        best = _largest(alone, top)
        return alone[best], rows[best], len(rows)
    firsts = shard.integer_column("first", table="texts")
    texts = np.searchsorted(firsts, rows, side="right") - 1
    own, begins = np.unique(texts, return_index=True)
    sums = np.maximum.reduceat(scores, begins, axis=1).sum(0)
    best = _largest(sums, top)
    # Of a sentence the row that is most like the first token of the phrase stands for it.
    ends = np.append(begins, len(rows))
    of_first = [begins[one] + int(np.argmax(scores[0, begins[one] : ends[one + 1]])) for one in best.tolist()]
    return sums[best], rows[np.array(of_first, np.int64)] if len(own) else some, len(rows)


def _largest(scores: np.ndarray, top: int) -> np.ndarray:
    """Where the largest stand, falling; of equal ones the first."""
    if len(scores) > top:
        bar = scores[np.argpartition(-scores, top - 1)[top - 1]]
        places = np.flatnonzero(scores >= bar)
    else:
        places = np.arange(len(scores))
    order: np.ndarray = places[np.argsort(-scores[places], kind="stable")][:top]
    return order


def _cosines(shard: IndexedShard, asked: _Asked, rows: np.ndarray | None) -> np.ndarray:
    """(query, row): the mean over the places of the cosine."""
    found: np.ndarray | None = None
    for (number, head), questions in zip(asked.places, asked.rows, strict=True):
        name = "states" if head is None else "heads"
        values, scales = shard.part(name, number), shard.part(f"{name[:-1]}_scales", number)
        if head is not None:
            values, scales = values[head], scales[head]
        lengths = scales[1]
        if rows is not None:
            values, lengths = values[rows], lengths[rows]
        products = _products(values, [row.values for row in questions])
        products /= np.maximum(lengths, np.float32(1e-9))
        products /= np.array([row.length for row in questions], np.float32)[:, None]
        found = products if found is None else found + products
    assert found is not None  # there is a place
    return found / np.float32(len(asked.places))


def _products(values: np.ndarray, questions: Sequence[np.ndarray]) -> np.ndarray:
    """The products of rows with each question, (query, row) float32.

    values: (row, size) int8, on disk; turned into numbers that can be multiplied a block at a time.
    """
    count, size = values.shape
    few = max(1, _TOGETHER // size)
    block = max(1, _AT_ONCE // (few * size)) * few
    numbers = np.zeros((min(block, -(-count // few) * few), size), np.float32)
    found = np.empty((len(questions), -(-count // len(numbers)) * len(numbers)), np.float32)
    for first in range(0, count, len(numbers)):
        some = values[first : first + len(numbers)]
        np.copyto(numbers[: len(some)], some)
        for number, question in enumerate(questions):
            into = found[number, first : first + len(numbers)].reshape(-1, few)
            np.matmul(numbers.reshape(-1, few, size), question, out=into)
    return found[:, :count]


def _looks_alike(shard: IndexedShard, asked: _Asked, rows: np.ndarray | None) -> np.ndarray:
    """(query, row): the mean over the heads of the share of attention that goes to the same places."""
    positions, added = shard.integer_column("position"), shard.special
    found: np.ndarray | None = None
    for (number, head), questions in zip(asked.places, asked.rows, strict=True):
        places = _offsets(shard.part("keys", number)[head], positions, added)
        weights = shard.part("weights", number)[head].astype(np.float32)
        if rows is not None:
            places, weights = places[rows], weights[rows]
        totals = weights.sum(1)
        shares = np.empty((len(questions), len(places)), np.float32)
        for query, question in enumerate(questions):
            same = np.zeros(len(places), np.float32)
            for place, weight in question.values.T:
                of_place = (weights * (places == place)).sum(1)
                same += np.minimum(of_place, np.float32(weight))
            shares[query] = same / np.maximum(totals, np.float32(question.length))
        found = shares if found is None else found + shares
    assert found is not None  # there is a head
    return found / np.float32(len(asked.places))


def _match(
    shard: IndexedShard, row: int, score: float, asked: _Asked, conditions: Mapping[str, frozenset[Any]]
) -> Match:  # fmt: skip
    own = shard.row(row)
    number, head = asked.places[0]
    offset: int | str | None = None
    if head is not None:
        offset = _said(int(_strongest(shard, number, head)[row]))
    also: tuple[int, ...] = ()
    if asked.each:
        first = row - own["position"]
        firsts = shard.integer_column("first", table="texts")
        after = np.append(firsts, shard.tokens)[np.searchsorted(firsts, first, side="right")]
        inside = np.arange(first, after)
        inside = inside[_passes(shard, asked, conditions)[inside]]
        alike: Callable[..., np.ndarray] = _looks_alike if asked.looks else _cosines
        also = tuple(int(inside[best] - first) for best in alike(shard, asked, inside).argmax(1))
    return Match(
        score, own["document"], own["line"], own["sentence"], own["sentence_text"], own["start"], own["end"],
        own["position"], own["piece"], own["word"],
        {name: own[name] for name in TREE_COLUMNS if name in own}, offset, also,
    )  # fmt: skip

"""Search in a corpus index for the tokens most similar to tokens of a text, and counts of pairs of tokens.

The search is exact: it compares every row. Indexed rows and queries are int8. Float32 adds up to 1,040 products of them
without rounding. The result therefore does not depend on the order, the blocks or the threads in which rows are
compared.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bert_core.deprecation import renamed_parameters
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.engines import check_engine, run_on_ray
from bert_core.studies.index import TREE_COLUMNS, pack_sentences, quantise_rows
from bert_core.studies.index_reader import BrokenShard, Index, IndexedShard
from bert_core.tokenizer import Encoding

HEAD_SIMILARITIES = ("brings", "looks")  # cosine of head outputs, or overlap of attention to the strongest keys
PHRASE_MODES = ("mean", "each")
FILTER_COLUMNS = ("document", "piece", "word", *TREE_COLUMNS, "offset")
CLS_OFFSET, SEP_OFFSET = "first", "end"  # written instead of a number if the key is [CLS] or [SEP]
_CLS_CODE, _SEP_CODE = 2**20, 2**20 + 1  # the same in arrays of offsets
_OFFSET_CODES = {CLS_OFFSET: _CLS_CODE, SEP_OFFSET: _SEP_CODE}
_BLOCK_SIZE = 2**18  # values in a block of rows: int8 rows and float32 copy fit the cache of a processor
# Values in a matrix that BLAS multiplies by a vector. For more it would use threads, which wait for each other if other
# work occupies the cores.
_PRODUCT_SIZE = 8192


@dataclass(frozen=True)
class Match:
    """A token of the index that is similar to the query, in its sentence.

    score: similarity, where 1 is identical, see `search`.
    document: name of the document.
    line: number of the line in the document, counted from 1.
    sentence: number of the sentence in that line, counted from 0.
    text: the sentence.
    start, end: span of the token in `text`, in characters.
    position: position of the token in the sentence.
    piece: the token.
    word: the word that contains it, None for [CLS] and [SEP].
    labels: for a treebank, the values of the `TREE_COLUMNS`.
    offset: distance in tokens from the token to the key that the searched head attends to most, or "first" for [CLS]
        and "end" for [SEP]. None if the search is not by head.
    also: for phrases in the mode "each", the position of the best match of each token of the phrase in the sentence.
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
    """The result of a search.

    matches: the best matches, highest score first.
    compared: number of tokens that were compared.
    broken: an error message for each shard that was skipped because it is damaged.
    """

    matches: tuple[Match, ...]
    compared: int
    broken: tuple[str, ...] = ()


@renamed_parameters(alike="head_similarity")
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
    r"""Find the tokens of an index whose hidden states, head outputs or attention are most similar to those of a token.

    The similarity of hidden states is their cosine. [CLS] and [SEP] are compared only if all queried tokens are [CLS]
    or [SEP]. Matches of equal score keep the order of the index.
    index: the index.
    loaded: the model that made the index.
    encoding: the text of the query.
    tokens: positions of the queried tokens in the text. Several positions are a phrase.
    depth: layer output whose hidden states are compared: 0 for the embeddings, n + 1 for the output of layer n. None if
        `heads` are given.
    heads: (layer, head) pairs to compare instead of hidden states. The score is the mean over the heads.
    head_similarity: "brings", the cosine of the head outputs. Or "looks", the attention to the 4 strongest keys that
        two tokens share: the share that goes to equal offsets, to [CLS] or to [SEP].
    phrase: "mean", find tokens similar to the mean of the queried tokens. Or "each", find sentences by the sum over the
        queried tokens of the best score in the sentence, which is always used for "looks".
    where: allowed values of columns, by the names of `FILTER_COLUMNS`. Tokens are filtered before the comparison.
    top: number of matches.
    engine: "local" or "ray". On a Ray cluster each worker searches one shard, with an identical result. All workers
        must be able to read the folder of the index.
    report: called with the number of shards done, see `Progress`.

    Returns the matches.
    Raises Refused if the weights of the model are not those of the index, and for a token, depth, head or column that
    does not exist. Raises Refused also for an unknown engine, and if Ray is not installed.
    Source: the mode "each" is late interaction, Khattab 2020, section 3.2 (arXiv:2004.12832).

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("corpus.txt").write_text("She opened the door.\nThe sun rises in the east.\n")
    >>> loaded = bert_core.load("headlight-mini")
    >>> counts = bert_core.index_file(Path("corpus.txt"), Path("index"), loaded)
    >>> encoding = loaded.tokenizer.encode("He closed the window.")
    >>> result = bert_core.search(bert_core.open_index(Path("index")), loaded, encoding, [4], depth=6, top=1)
    >>> [(match.word, match.text) for match in result.matches]
    [('door', 'She opened the door.')]
    """
    check_engine(engine)
    index.check_model(loaded)
    query = _Query.from_arguments(index, loaded, encoding, tokens, depth, heads, head_similarity, phrase)
    conditions = _parse_conditions(where, query)
    top = require_int("top", top, 1)
    empty = (np.zeros(0, np.float32), np.zeros(0, np.int64), 0)
    best: list[_ShardResult] = []
    broken: dict[int, str] = {}
    for number, result in enumerate(_search_shards(index, engine, query, conditions, top)):
        if isinstance(result, str):
            broken[number], result = result, empty
        best.append(result)
        report_count(report, number + 1, len(index.shards), "shards")
    while True:
        scores, rows = (np.concatenate([empty[part], *(result[part] for result in best)]) for part in (0, 1))
        shards = np.repeat(np.arange(len(best)), [len(result[1]) for result in best])
        matches = []
        for candidate in np.lexsort((rows, shards, -scores))[:top].tolist():
            number = int(shards[candidate])
            row, score = int(rows[candidate]), float(scores[candidate])
            try:
                matches.append(_match(index.shards[number], row, score, query, conditions))
            except BrokenShard as error:  # its columns of tokens are damaged: rank the other shards again
                broken[number], best[number] = str(error), empty
                break
        else:
            messages = tuple(broken[number] for number in sorted(broken))
            return Matches(tuple(matches), sum(result[2] for result in best), messages)


@dataclass(frozen=True)
class ValueShare:
    """How often a value of a column occurs among matches and in the whole index.

    value: the value as text.
    share_of_matches: share of the matches that have it, from 0 to 1.
    share_of_corpus: share of all typed tokens (without [CLS] and [SEP]) that have it, from 0 to 1.
    """

    value: str
    share_of_matches: float
    share_of_corpus: float


@validate_arguments
def value_shares(
    index: Index, matches: Matches, column: str, *, head: tuple[int, int] | None = None
) -> list[ValueShare]:
    """Return the values of a column among matches, most frequent first, with their shares of matches and corpus.

    Damaged shards are skipped.
    index: the index that was searched.
    matches: the result of `search`.
    column: "word", "piece" or one of `TREE_COLUMNS` except "distance", compared without case. Or "offset", the distance
        to the strongest key of a head, such as "+1", or "first" and "end" for [CLS] and [SEP].
    head: the first (layer, head) pair of the search, for the column "offset". None for the other columns.

    Raises Refused for another column, for "offset" without a head, and for another column with a head.
    """
    if column not in FILTER_COLUMNS or column == "distance":
        raise Refused(f"column {short_repr(column)} is unknown: one of word, piece, upos, relation, offset")
    if (column == "offset") != (head is not None):
        raise Refused("the column offset needs a head, and no other column may have one")
    head_index = None
    if head is not None:
        layer, number = index.validate_heads([head])[0]
        head_index = index.layers.index(layer), number
    match_counts: Counter[str] = Counter()
    for match in matches.matches:
        value = match.labels.get(column, getattr(match, column, None))
        if value is not None:
            match_counts[_value_text(value)] += 1
    corpus_counts: Counter[str] = Counter()
    token_count = 0
    for shard in index.shards:
        try:
            counts, tokens = _count_values(shard, column, head_index)
        except BrokenShard:
            continue
        token_count += tokens
        for value, count in counts.items():
            if value in match_counts:
                corpus_counts[value] += count
    return [
        ValueShare(value, count / max(1, len(matches.matches)), corpus_counts[value] / max(1, token_count))
        for value, count in sorted(match_counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _offset_value(code: int) -> int | str:
    """Return an offset of `_offset_codes` as a number, or as `CLS_OFFSET` or `SEP_OFFSET`."""
    return {_CLS_CODE: CLS_OFFSET, _SEP_CODE: SEP_OFFSET}.get(code, code)


def _value_text(value: object) -> str:
    """Return a value as it is counted: text without case, and numbers with their sign."""
    return f"{value:+d}" if isinstance(value, int) and value else str(value).casefold()


def _count_values(shard: IndexedShard, column: str, head_index: tuple[int, int] | None) -> tuple[Counter[str], int]:
    """Count the values of a column over the typed tokens of a shard. Returns the counts and the number of tokens.

    head_index: (index of the layer among the indexed layers, head) whose offsets are counted; None for other columns.
    """
    is_typed = ~shard.special
    value_counts: Counter[str] = Counter()
    if head_index is not None:
        values, counts = np.unique(_strongest_offsets(shard, *head_index)[is_typed], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            value_counts[_value_text(_offset_value(value))] += count
    elif (column_values := shard.column(column)) is not None:
        dictionary = column_values.dictionary
        codes = column_values.indices.fill_null(len(dictionary)).to_numpy(zero_copy_only=False)[is_typed]
        for name, count in zip(dictionary.to_pylist(), np.bincount(codes, minlength=1).tolist(), strict=False):
            value_counts[name.casefold()] += count
    return value_counts, int(is_typed.sum())


# ---------------------------------------------------------------------------- pairs of tokens


class PairCounts(NamedTuple):
    """How often a head attends most from one token to another over an index, and how often any token to their offset.

    pairs: number of occurrences of the query token in sentences that also contain the key token.
    strongest: number of these occurrences whose strongest key is an occurrence of the key token.
    tokens: number of typed tokens (without [CLS] and [SEP]).
    same_offset: number of typed tokens whose strongest key is at the offset of the pair.
    """

    pairs: int
    strongest: int
    tokens: int
    same_offset: int


@validate_arguments
def count_pairs(
    index: Index, heads: Sequence[tuple[int, int]], query_piece: str, key_piece: str, offset: int | str
) -> list[PairCounts | None]:
    """Count over an index how often each of some heads attends most from one token to another.

    heads: (layer, head) pairs.
    query_piece, key_piece: the two tokens, as in `Match.piece`.
    offset: distance in tokens from the query to the key, or "first" if the key is [CLS] and "end" if it is [SEP]. With
        0 the key is the query token itself, otherwise another occurrence.

    Returns the counts of each head. None for a head of a layer that is not stored, and for a pruned head.
    Raises Refused for a head that a stored layer does not have, for another text as offset, and for a damaged shard.
    """
    if isinstance(offset, str) and offset not in _OFFSET_CODES:
        raise Refused(f"offset {short_repr(offset)} is unknown: a whole number, or one of {', '.join(_OFFSET_CODES)}")
    code = _OFFSET_CODES[offset] if isinstance(offset, str) else offset
    pairs = [tuple(pair) for pair in require_sequence("heads", heads, "pairs (layer, head)")]
    stored = index.validate_heads([pair for pair in pairs if pair[0] in index.layers])
    sources = [(index.layers.index(layer), head) for layer, head in stored]
    counts = np.zeros((len(stored), len(PairCounts._fields)), np.int64)
    exists = np.ones(len(stored), bool)
    for shard in index.shards:
        shard_counts, in_shard = _count_pairs_of_shard(shard, sources, query_piece, key_piece, code)
        counts, exists = counts + shard_counts, exists & in_shard
    counts_by_head = {
        head: PairCounts(*head_counts)
        for head, head_counts, is_existing in zip(stored, counts.tolist(), exists, strict=True)
        if is_existing
    }
    return [counts_by_head.get(pair) for pair in pairs]


def pair_offset(encoding: Encoding, query: int, key: int) -> int | str:
    """Return the offset of `count_pairs` for two positions of a text."""
    if encoding.special[key]:
        return SEP_OFFSET if key else CLS_OFFSET
    return key - query


def _count_pairs_of_shard(
    shard: IndexedShard, sources: Sequence[tuple[int, int]], query_piece: str, key_piece: str, offset_code: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `PairCounts` of heads in a shard (head, 4), and whether each head exists (head,).

    sources: (number, head) pairs, where number is the index of the layer among the indexed layers.
    offset_code: an offset as in `_offset_codes`.
    """
    positions, special, texts = shard.integer_column("position"), shard.special, shard.integer_column("text")
    tokens = shard.column("piece")
    is_query, is_key = (
        np.array([token == piece for token in tokens.dictionary.to_pylist()])[tokens.indices.to_numpy()]
        for piece in (query_piece, key_piece)
    )
    is_same_token = offset_code == 0
    other_keys = np.bincount(texts, is_key)[texts] - is_key
    queries = np.flatnonzero(is_query & (is_key if is_same_token else other_keys > 0))
    counts = np.zeros((len(sources), len(PairCounts._fields)), np.int64)
    exists = np.ones(len(sources), bool)
    for place, (number, head) in enumerate(sources):
        keys = shard.part("keys", number)[head][:, :1]
        strongest = queries - positions[queries] + keys[queries, 0]
        has_pair = is_key[strongest] & ((strongest == queries) == is_same_token)
        has_offset = _offset_codes(keys, positions, special)[:, 0] == offset_code
        counts[place] = len(queries), has_pair.sum(), (~special).sum(), has_offset[~special].sum()
        exists[place] = bool(shard.part("weights", number)[head, 0, 0] > 0)  # all weights of a pruned head are 0
    return counts, exists


# ---------------------------------------------------------------------------- queries


@compared_by_value
@dataclass(frozen=True)
class _QueryVector:
    """What one queried token is compared by at one depth or head.

    values: a vector (size,) of int8 values as float32. For attention (2, key): offsets and weights of the strongest
        keys.
    length: the norm of the vector, or the sum of the weights.
    """

    values: np.ndarray
    length: float


@dataclass(frozen=True)
class _Query:
    """The arrays of an index that are compared, and the query vectors for each.

    sources: (number, head) pairs, where number is the index of the depth or layer in the arrays. head is None for
        hidden states.
    vectors: for each source, the vectors of the tokens of the phrase, or of their mean.
    by_attention: whether attention is compared instead of vectors.
    special: whether [CLS] and [SEP] are compared.
    by_sentence: whether the best matches of all tokens of a phrase in a sentence are summed.
    """

    sources: tuple[tuple[int, int | None], ...]
    vectors: tuple[tuple[_QueryVector, ...], ...]
    by_attention: bool
    special: bool
    by_sentence: bool

    @classmethod
    def from_arguments(
        cls,
        index: Index,
        loaded: LoadedModel,
        encoding: Encoding,
        tokens: Sequence[int],
        depth: int | None,
        heads: Sequence[tuple[int, int]],
        head_similarity: str,
        phrase: str,
    ) -> _Query:
        """Return the query for the arguments of `search`. Raises Refused for invalid ones."""
        positions = [
            require_int("a token", position, 0, len(encoding) - 1)
            for position in require_sequence("tokens", tokens, "positions")
        ]
        pairs = index.validate_heads(heads)
        if not positions:
            raise Refused("tokens is empty: name at least one token of the text")
        if (depth is None) == (not pairs):
            raise Refused("give either a depth or heads, and not both")
        for name, value, allowed in (
            ("head similarity", head_similarity, HEAD_SIMILARITIES),
            ("phrase", phrase, PHRASE_MODES),
        ):
            if value not in allowed:
                raise Refused(f"{name} {short_repr(value)} is unknown: one of {', '.join(allowed)}")
        if encoding.pair is not None:
            raise Refused("the query is a pair of texts, and an index holds single sentences: give one text")
        if len(encoding) > index.settings.max_length:
            raise Refused(
                f"the text has {len(encoding)} tokens, and {index.folder} was made from up to "
                f"{index.settings.max_length} of a sentence: shorten it"
            )
        by_attention = bool(pairs) and head_similarity == "looks"
        by_sentence = phrase == "each" or (by_attention and len(positions) > 1)
        arrays, sources = pack_sentences(loaded, [encoding], index.settings), cls._sources(index, depth, pairs)
        vectors: list[tuple[_QueryVector, ...]] = []
        for number, head in sources:
            if by_attention:
                keys, weights = arrays["keys"][number, head], arrays["weights"][number, head].astype(np.float32)
                codes = _offset_codes(keys, np.arange(len(encoding)), np.array(encoding.special))
                source_vectors = [
                    _QueryVector(np.stack([codes[position], weights[position]]), float(weights[position].sum()))
                    for position in positions
                ]
            else:
                name = "states" if head is None else "heads"
                key = (number,) if head is None else (number, head)
                values, (scale, length) = arrays[name][key], arrays[f"{name[:-1]}_scales"][key]
                if phrase == "mean" and len(positions) > 1:
                    mean = (values[positions] * scale[positions, None]).mean(0)
                    values, (_, length) = quantise_rows(mean[None])
                    source_vectors = [_QueryVector(values[0].astype(np.float32), float(length[0]))]
                else:
                    source_vectors = [
                        _QueryVector(values[position].astype(np.float32), float(length[position]))
                        for position in positions
                    ]
            if not all(vector.length > 0 for vector in source_vectors):
                name = f"depth {index.depths[number]}" if head is None else f"L{index.layers[number]} H{head}"
                raise Refused(f"{loaded.name} computes a zero vector or none at {name}: no token is similar to it")
            vectors.append(tuple(source_vectors))
        special = all(encoding.special[position] for position in positions)
        return cls(sources, tuple(vectors), by_attention, special, by_sentence)

    @staticmethod
    def _sources(
        index: Index, depth: int | None, pairs: Sequence[tuple[int, int]]
    ) -> tuple[tuple[int, int | None], ...]:
        """Return the sources for a depth or for heads. Raises Refused for a depth that is not in the index."""
        if depth is not None:
            depth = require_int("depth", depth, 0)
            if depth not in index.depths:
                depths = ", ".join(map(str, index.depths))
                raise Refused(f"{index.folder} has no states of depth {depth}: it has {depths}")
            return ((index.depths.index(depth), None),)
        return tuple((index.layers.index(layer), head) for layer, head in pairs)


def _offset_codes(keys: np.ndarray, positions: np.ndarray, special: np.ndarray) -> np.ndarray:
    """Return the distance from each token to its keys, or `_CLS_CODE` or `_SEP_CODE`, as int64 (token, key).

    keys: (token, key), positions of the keys in their sentences.
    positions: (token,), position of each token in its sentence.
    special: (token,), whether the token is [CLS] or [SEP].
    """
    keys = keys.astype(np.int64)
    rows = np.arange(len(positions))[:, None] - positions[:, None] + keys
    return np.where(special[rows], np.where(keys == 0, _CLS_CODE, _SEP_CODE), keys - positions[:, None])


# ---------------------------------------------------------------------------- filters


def _parse_conditions(filters: Mapping[str, Sequence[Any]] | None, query: _Query) -> dict[str, frozenset[Any]]:
    """Return the allowed values by column, texts in lower case. Raises Refused for an invalid column or value."""
    conditions: dict[str, frozenset[Any]] = {}
    if filters is not None and not isinstance(filters, Mapping):
        raise Refused(f"where is {short_repr(filters)}: it must map columns to values")
    for name, allowed in (filters or {}).items():
        if name not in FILTER_COLUMNS:
            raise Refused(f"there is no column {short_repr(name)} to filter by: one of {', '.join(FILTER_COLUMNS)}")
        if name == "offset" and query.sources[0][1] is None:
            raise Refused("where has the column offset, which is that of a head's strongest key: search by a head")
        values = require_sequence(f"the values of {name}", allowed, "values")
        if name in ("distance", "offset"):
            codes = _OFFSET_CODES if name == "offset" else {}
            values = tuple(
                codes[value] if isinstance(value, str) and value in codes else require_int(name, value, None)
                for value in values
            )
        elif not all(isinstance(value, str) for value in values):
            raise Refused(f"the values of {name} are {short_repr(values)}: they must be texts")
        conditions[name] = frozenset(value.casefold() if isinstance(value, str) else value for value in values)
    return conditions


def _passes(shard: IndexedShard, query: _Query, conditions: Mapping[str, frozenset[Any]]) -> np.ndarray:
    """Return which tokens of a shard meet the conditions, bool (token,)."""
    passes: np.ndarray = np.ones(shard.tokens, bool) if query.special else ~shard.special
    for name, allowed in conditions.items():
        if name == "offset":
            number, head = query.sources[0]
            passes = passes & np.isin(_strongest_offsets(shard, number, head), list(allowed))
            continue
        column = shard.column(name)
        if column is None:
            return np.zeros(shard.tokens, bool)
        if name == "distance":
            values = column.to_numpy(zero_copy_only=False)  # NaN for a token without a governor
            passes = passes & np.isin(values, list(allowed))
        else:
            is_allowed = np.array(
                [str(value).casefold() in allowed for value in column.dictionary.to_pylist()] + [False]
            )
            passes = passes & is_allowed[column.indices.fill_null(len(is_allowed) - 1).to_numpy(zero_copy_only=False)]
    return passes


def _strongest_offsets(shard: IndexedShard, number: int, head: int | None) -> np.ndarray:
    """Return the offset code of the key that a head attends to most, for each token (token,)."""
    keys = shard.part("keys", number)[head][:, :1]
    codes: np.ndarray = _offset_codes(keys, shard.integer_column("position"), shard.special)[:, 0]
    return codes


# ---------------------------------------------------------------------------- search in shards

_ShardResult = tuple[np.ndarray, np.ndarray, int]  # best scores, their rows, number of rows compared


def _search_shards(
    index: Index, engine: str, query: _Query, conditions: Mapping[str, frozenset[Any]], top: int
) -> Iterator[_ShardResult | str]:
    """Yield the result of each shard in order, or an error message for a damaged shard."""
    if engine == "local":
        with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
            yield from pool.map(partial(_search_shard, query, conditions, top), index.shards)
    else:  # workers get shards without the arrays that this process has read
        unread = (IndexedShard(shard.folder.resolve(), shard.document) for shard in index.shards)
        yield from (result for _, result in run_on_ray(_search_shard, (query, conditions, top), unread, None))


def _search_shard(
    query: _Query, conditions: Mapping[str, frozenset[Any]], top: int, shard: IndexedShard
) -> _ShardResult | str:
    """Return the best of a shard, or an error message if the shard is damaged."""
    try:
        return _best_of(shard, query, conditions, top)
    except BrokenShard as error:
        return str(error)


def _best_of(shard: IndexedShard, query: _Query, conditions: Mapping[str, frozenset[Any]], top: int) -> _ShardResult:
    """Return the best scores of a shard, highest first, their rows, and the number of rows compared."""
    passing = np.flatnonzero(_passes(shard, query, conditions))
    if not len(passing):
        return np.zeros(0, np.float32), passing, 0
    # A few rows are selected before the comparison. If most rows pass, comparing all of them is faster.
    rows = passing if len(passing) < shard.tokens / 2 else None
    scores = _attention_overlaps(shard, query, rows) if query.by_attention else _cosines(shard, query, rows)
    if rows is None:
        rows, scores = passing, scores[:, passing]
    if not query.by_sentence:
        token_scores = scores[0]
        best = _largest(token_scores, top)
        return token_scores[best], rows[best], len(rows)
    firsts = shard.integer_column("first", table="texts")
    texts = np.searchsorted(firsts, rows, side="right") - 1
    sentences, starts = np.unique(texts, return_index=True)
    sums = np.maximum.reduceat(scores, starts, axis=1).sum(0)
    best = _largest(sums, top)
    # The row most similar to the first token of the phrase represents its sentence.
    ends = np.append(starts, len(rows))
    first_matches = [
        starts[sentence] + int(np.argmax(scores[0, starts[sentence] : ends[sentence + 1]]))
        for sentence in best.tolist()
    ]
    return sums[best], rows[np.array(first_matches, np.int64)] if len(sentences) else passing, len(rows)


def _largest(scores: np.ndarray, top: int) -> np.ndarray:
    """Return the indices of the largest scores, highest first, and the first of equal ones."""
    if len(scores) > top:
        threshold = scores[np.argpartition(-scores, top - 1)[top - 1]]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    order: np.ndarray = candidates[np.argsort(-scores[candidates], kind="stable")][:top]
    return order


def _cosines(shard: IndexedShard, query: _Query, rows: np.ndarray | None) -> np.ndarray:
    """Return the mean cosine over the sources, (query, row). rows: the rows to compare, None for all."""
    total: np.ndarray | None = None
    for (number, head), vectors in zip(query.sources, query.vectors, strict=True):
        name = "states" if head is None else "heads"
        values, scales = shard.part(name, number), shard.part(f"{name[:-1]}_scales", number)
        if head is not None:
            values, scales = values[head], scales[head]
        lengths = scales[1]
        if rows is not None:
            values, lengths = values[rows], lengths[rows]
        products = _products(values, [vector.values for vector in vectors])
        products /= np.maximum(lengths, np.float32(1e-9))
        products /= np.array([vector.length for vector in vectors], np.float32)[:, None]
        total = products if total is None else total + products
    assert total is not None  # a query has at least one source
    return total / np.float32(len(query.sources))


def _products(values: np.ndarray, vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the dot products of rows with query vectors, float32 (query, row).

    values: int8 (row, size), possibly memory-mapped. It is converted to float32 block by block.
    """
    count, size = values.shape
    rows_per_product = max(1, _PRODUCT_SIZE // size)
    block_rows = max(1, _BLOCK_SIZE // (rows_per_product * size)) * rows_per_product
    block = np.zeros((min(block_rows, -(-count // rows_per_product) * rows_per_product), size), np.float32)
    products = np.empty((len(vectors), -(-count // len(block)) * len(block)), np.float32)
    for first in range(0, count, len(block)):
        rows = values[first : first + len(block)]
        np.copyto(block[: len(rows)], rows)
        for number, vector in enumerate(vectors):
            target = products[number, first : first + len(block)].reshape(-1, rows_per_product)
            np.matmul(block.reshape(-1, rows_per_product, size), vector, out=target)
    return products[:, :count]


def _attention_overlaps(shard: IndexedShard, query: _Query, rows: np.ndarray | None) -> np.ndarray:
    """Return the mean share of attention to the same offsets over the heads, (query, row). rows: None for all."""
    positions, special = shard.integer_column("position"), shard.special
    total: np.ndarray | None = None
    for (number, head), vectors in zip(query.sources, query.vectors, strict=True):
        codes = _offset_codes(shard.part("keys", number)[head], positions, special)
        weights = shard.part("weights", number)[head].astype(np.float32)
        if rows is not None:
            codes, weights = codes[rows], weights[rows]
        sums = weights.sum(1)
        shares = np.empty((len(vectors), len(codes)), np.float32)
        for query_number, vector in enumerate(vectors):
            overlap = np.zeros(len(codes), np.float32)
            for code, weight in vector.values.T:
                row_weights = (weights * (codes == code)).sum(1)
                overlap += np.minimum(row_weights, np.float32(weight))
            shares[query_number] = overlap / np.maximum(sums, np.float32(vector.length))
        total = shares if total is None else total + shares
    assert total is not None  # a query by attention has at least one head
    return total / np.float32(len(query.sources))


def _match(
    shard: IndexedShard, row: int, score: float, query: _Query, conditions: Mapping[str, frozenset[Any]]
) -> Match:
    """Return a row of a shard as a match. Raises BrokenShard."""
    token = shard.row(row)
    number, head = query.sources[0]
    offset: int | str | None = None
    if head is not None:
        offset = _offset_value(int(_strongest_offsets(shard, number, head)[row]))
    phrase_positions: tuple[int, ...] = ()
    if query.by_sentence:
        first = row - token["position"]
        firsts = shard.integer_column("first", table="texts")
        end = np.append(firsts, shard.tokens)[np.searchsorted(firsts, first, side="right")]
        sentence_rows = np.arange(first, end)
        sentence_rows = sentence_rows[_passes(shard, query, conditions)[sentence_rows]]
        similarity: Callable[..., np.ndarray] = _attention_overlaps if query.by_attention else _cosines
        best_rows = similarity(shard, query, sentence_rows).argmax(1)
        phrase_positions = tuple(int(sentence_rows[best] - first) for best in best_rows)
    return Match(
        score, token["document"], token["line"], token["sentence"], token["sentence_text"], token["start"],
        token["end"], token["position"], token["piece"], token["word"],
        {name: token[name] for name in TREE_COLUMNS if name in token}, offset, phrase_positions,
    )  # fmt: skip

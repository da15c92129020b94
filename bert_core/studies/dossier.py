"""What every head does over a whole corpus: its dossier, made from an index, each figure beside what chance would give.

A head is known by the strongest key of every typed token. Chance is a key drawn from the token's own sentence: heads
look at what is frequent, near or at the end of a sentence because most of a sentence is.
"""

from __future__ import annotations

import dataclasses
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from bert_core import checkpoint
from bert_core.progress import Progress, counted, silent
from bert_core.records import HeadTable
from bert_core.refused import Refused, checked, whole
from bert_core.studies.indexed import Index
from bert_core.studies.resume import read_kept

FORMAT = 1
FARTHEST = 8  # tokens: what is farther off is one bar to each side
TENTHS = 10
SHOWN = 12  # words, and pairs of words
CANDIDATES = 200  # pairs of words of a head whose chance is counted
LEAST = 5  # times that a word, or a pair, must be looked at
AT_ONCE = 2**21  # pairs of tokens that are counted at once
LARGEST = 2**28  # strongest keys, of all heads together: 12 bytes each
ALIKE = 5  # heads
LEAST_CLEAR = 0.05  # of all looks: what is not so far above chance does not stand out
LARGEST_FILE = 64_000_000  # bytes
FIGURES = ("entropy", "cls", "sep", "importance", "loss_change", "loss_change_error")  # of a table of heads
KINDS = ("first", "end", "itself", "its word", "the same word", "punctuation", "number", "another word")
RELATED = ("its governor", "its dependent", "its own word", "first", "end", "not tied to it")


@dataclass(frozen=True)
class Bar:
    """One kind of key: the share of all looks that go to it, and the share that would by chance."""

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class Joined:
    """A word that is looked at, or with a query two words that are joined, how often, and how often by chance."""

    key: str
    times: int
    expected: float
    query: str | None = None


@dataclass(frozen=True)
class Look:
    """One token and the key that the head looks at most from it.

    document, line: where its sentence stands, from 1. text: the sentence. query, key: characters of it, from and to;
    the key None for an added token. piece: the key. share: of the attention. activity: how long the vector is that the
    head brings, divided by its mean over the corpus.
    """

    document: str
    line: int
    text: str
    query: tuple[int, int]
    key: tuple[int, int] | None
    piece: str
    share: float
    activity: float


@dataclass(frozen=True)
class Dossier:
    """What one head does over a corpus.

    tokens: that were typed, from each of which it looks. share: the mean attention that the strongest key has.
    bars: by what is asked of the strongest key, "offset", "kind", and of a treebank "relation" and "upos". active: the
        same of the tenth of the tokens with most activity: many heads look at [CLS] or [SEP] wherever they do nothing.
    words, pairs: what it looks at, and joins, more often than chance; the most telling first (Dunning 1993).
    deciles: (11,), the activity that 0, 10, ... 100 % of the tokens do not pass.
    tenths: looks drawn from every tenth of the tokens by activity, the weakest tenth first; strongest: those with most.
    alike: other heads as (layer, head, share of tokens with the same strongest key), the most alike first.
    figures: of a table of heads, by name, of `FIGURES`: the mean entropy of its attention, in nats; the shares of it
        that go to [CLS] and [SEP]; how sensitive the loss is to the head; by how much the loss rises without it, in
        nats, with the standard error of that. Empty without such a table.
    """

    layer: int
    head: int
    tokens: int
    share: float
    bars: Mapping[str, tuple[Bar, ...]]
    active: Mapping[str, tuple[Bar, ...]]
    words: tuple[Joined, ...]
    pairs: tuple[Joined, ...]
    deciles: tuple[float, ...]
    tenths: tuple[tuple[Look, ...], ...]
    strongest: tuple[Look, ...]
    alike: tuple[tuple[int, int, float], ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def sinks(self) -> float:
        """The share of tokens from which it looks most at an added token, as [CLS] or [SEP]."""
        return sum(bar.share for bar in self.bars["kind"] if bar.name in ("first", "end"))

    @property
    def standing_out(self) -> list[tuple[str, Bar]]:
        """What is clearly above chance where it is most active, with what was asked, the farthest above it first."""
        every = [(asked, bar) for asked, bars in self.active.items() for bar in bars]
        clear = [(asked, bar) for asked, bar in every if bar.share - bar.chance > LEAST_CLEAR]
        return sorted(clear, key=lambda one: one[1].chance - one[1].share)


@dataclass(frozen=True)
class Dossiers:
    """The dossiers of a model's heads over a corpus.

    weights: the fingerprint of the model. documents: their names. source: whose text it is, and under what licence.
    measured: over which texts the figures are means, what the loss is of, and how a head is taken out; empty without.
    """

    model: str
    weights: str
    documents: tuple[str, ...]
    heads: tuple[Dossier, ...]
    source: str = ""
    measured: str = ""

    def of(self, layer: int, head: int) -> Dossier:
        """Raises Refused for a head that has none."""
        found = next((one for one in self.heads if (one.layer, one.head) == (layer, head)), None)
        if found is None:
            raise Refused(f"there is no dossier of L{layer} H{head}: there are {len(self.heads)} of other heads")
        return found


# ---------------------------------------------------------------------------- the corpus


@dataclass(frozen=True)
class _Corpus:
    """All tokens of an index, a row each; the rows of a sentence stand together.

    first, length: of the sentence of each, its first row and how many. added, typed: whether it was added; the rows of
    those that were not. number: counts the words, so that pieces of one word have one. written: the word as a number,
    of `words`. sign, digits: whether it is punctuation, or a number. labels: of a treebank, by name, as numbers of
    their `names`. distance: to the governor, in words; 0 for none.
    """

    first: np.ndarray
    length: np.ndarray
    added: np.ndarray
    typed: np.ndarray
    number: np.ndarray
    written: np.ndarray
    words: tuple[str, ...]
    sign: np.ndarray
    digits: np.ndarray
    distance: np.ndarray
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def kinds(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Of pairs of rows the number in `KINDS`."""
        begins = keys == self.first[keys]
        return np.select(
            [
                self.added[keys] & begins, self.added[keys], keys == queries, self.number[keys] == self.number[queries],
                self.written[keys] == self.written[queries], self.sign[keys], self.digits[keys],
            ],
            range(len(KINDS) - 1), len(KINDS) - 1,
        )  # fmt: skip

    def offsets(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """From 0, for farther than `FARTHEST` before, on; behind them the first and the end token."""
        near = np.clip(keys - queries, -FARTHEST - 1, FARTHEST + 1) + FARTHEST + 1
        added = np.where(keys == self.first[keys], 2 * FARTHEST + 3, 2 * FARTHEST + 4)
        found: np.ndarray = np.where(self.added[keys], added, near)
        return found

    def relations(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Of pairs of rows the number in `RELATED`."""
        above = self.number[queries] + self.distance[queries] == self.number[keys]
        below = self.number[keys] + self.distance[keys] == self.number[queries]
        begins = keys == self.first[keys]
        return np.select(
            [
                self.added[keys] & begins, self.added[keys], self.number[keys] == self.number[queries],
                above & (self.distance[queries] != 0), below & (self.distance[keys] != 0),
            ],
            [3, 4, 2, 0, 1], len(RELATED) - 1,
        )  # fmt: skip

    def tags(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The part of speech of the key."""
        found: np.ndarray = self.labels["upos"][keys]
        return found

    @property
    def questions(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """What is asked of a strongest key: the function that answers, and the names of its answers."""
        near = [f"{by:+d}" if by else "0" for by in range(-FARTHEST, FARTHEST + 1)]
        asked = {
            "offset": (self.offsets, (f"<{near[0]}", *near, f">{near[-1]}", "first", "end")),
            "kind": (self.kinds, KINDS),
        }
        if self.labels:
            asked |= {"relation": (self.relations, RELATED), "upos": (self.tags, self.names["upos"])}
        return asked

    def pairs(self, tokens: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """These tokens, each with every token of its sentence, and one over how many these are; some at a time."""
        ends, start = np.cumsum(self.length[tokens]), 0
        while start < len(ends):
            done = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, done + AT_ONCE, side="right")), start + 1)
            some = tokens[start:stop]
            counts = self.length[some]
            queries = np.repeat(some, counts)
            within = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
            yield queries, self.first[queries] + within, 1 / self.length[queries]
            start = stop


def _read(index: Index) -> _Corpus:
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("first", "length", "added", "word", "piece", "start", "end", "upos", "relation", "distance")
    }
    rows = 0
    for shard in index.shards:
        firsts = shard.whole_numbers("first", of="texts")
        lengths = np.diff(np.append(firsts, shard.tokens))
        columns["first"].append(np.repeat(rows + firsts, lengths))
        columns["length"].append(np.repeat(lengths, lengths))
        columns["added"].append(shard.added)
        for name in ("start", "end"):
            columns[name].append(shard.whole_numbers(name))
        for name in ("word", "piece", "upos", "relation"):
            column = shard.column(name)
            columns[name] += [None] * shard.tokens if column is None else column.to_pylist()
        distance = shard.column("distance")
        columns["distance"] += [0] * shard.tokens if distance is None else [one or 0 for one in distance.to_pylist()]
        rows += shard.tokens
    arrays = {
        name: np.concatenate([np.zeros(0, np.int64), *columns[name]]) for name in ("first", "length", "start", "end")
    }
    added = np.concatenate([np.zeros(0, bool), *columns["added"]])
    words = [
        piece if word is None else word.casefold()
        for word, piece in zip(columns["word"], columns["piece"], strict=True)
    ]
    written, names = _numbered(words)
    tree = any(label is not None for label in columns["relation"])
    labels = {name: _numbered(["" if one is None else one for one in columns[name]]) for name in ("upos", "relation")}
    distance = np.array(columns["distance"], np.int64)
    # A word ends where anything that is said of it changes, or where something stands between.
    differs = (np.diff(written) != 0) | (np.diff(arrays["first"]) != 0) | (arrays["start"][1:] > arrays["end"][:-1])
    for _, numbers in (("upos", labels["upos"][0]), ("relation", labels["relation"][0]), ("distance", distance)):
        differs |= np.diff(numbers) != 0
    signs = np.array([all(unicodedata.category(sign).startswith("P") for sign in word) for word in names], bool)
    digits = np.array([any(sign.isdigit() for sign in word) for word in names], bool)
    return _Corpus(
        arrays["first"], arrays["length"], added, np.flatnonzero(~added),
        np.concatenate([[0], np.cumsum(differs | added[1:] | added[:-1])])[: len(added)], written, names,
        signs[written], digits[written], distance,
        {name: numbers for name, (numbers, _) in labels.items()} if tree else {},
        {name: known for name, (_, known) in labels.items()} if tree else {},
    )  # fmt: skip


def _numbered(values: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    names = {name: number for number, name in enumerate(dict.fromkeys(values))}
    return np.array([names[value] for value in values], np.int64), tuple(names)


# ---------------------------------------------------------------------------- the heads


@checked
def head_dossiers(
    index: Index,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    examples: int = 3,
    seed: int = 0,
    source: str = "",
    table: HeadTable | None = None,
    table_source: str = "",
    report: Progress = silent,
) -> Dossiers:
    """The dossiers of some heads over all that an index holds.

    heads: (layer, head) each; None: all whose layers are kept. examples: looks from every tenth of the activity.
    seed: of what is drawn. source: whose text it is, and under what licence, to be shown beside it.
    table: what `heads_over` measured of every head, also over another file. table_source: whose text that was.
    report: told how many heads are done. A head that was pruned has no dossier.
    Raises Refused for a head that is not kept, an index without a typed token, a broken shard, more than fits, or a
    table of another model.
    """
    examples, seed = whole("examples", examples, 1, 100), whole("seed", seed, 0, 2**63 - 1)
    asked = index.every_head if heads is None else list(dict.fromkeys(index.known_heads(heads)))
    model = Path(index.model).name
    if table is not None and (table.model, table.shape[1]) != (model, index.heads):
        raise Refused(
            f"the table is of {table.model}, of {table.shape[1]} heads in a layer, and the index of {model}, of "
            f"{index.heads}: both are of one model"
        )
    corpus = _read(index)
    if not len(corpus.typed):
        raise Refused(f"{index.folder} holds no typed token, so there is nothing to say of a head")
    if len(asked) * len(corpus.typed) > LARGEST:
        raise Refused(
            f"{len(asked)} heads from {len(corpus.typed):,} tokens do not fit in memory: ask for "
            f"{max(LARGEST // len(corpus.typed), 1)} heads at a time"
        )
    chance, of_words = _by_chance(corpus, corpus.typed), _words_by_chance(corpus)
    looks = {pair: found for pair in asked if (found := _looks(index, corpus, *pair)) is not None}
    expected = _expected(corpus, {pair: _most_joined(corpus, keys) for pair, (keys, _, _) in looks.items()})
    dossiers = []
    before = list(accumulate((shard.tokens for shard in index.shards), initial=0))  # each shard
    for number, (pair, (keys, shares, activity)) in enumerate(looks.items()):
        deciles = np.quantile(activity, np.linspace(0, 1, TENTHS + 1))
        draw = np.random.default_rng([seed, *pair])
        drawn = _drawn(activity, deciles, examples, draw)
        strongest = np.argsort(-activity, kind="stable")[: 2 * examples]
        top = np.flatnonzero(activity >= deciles[-2])
        active = corpus.typed[top]
        dossiers.append(Dossier(
            *pair, len(keys), float(shares.mean()), _bars(corpus, corpus.typed, keys, chance),
            _bars(corpus, active, keys[top], _by_chance(corpus, active)), _words(corpus, keys, of_words),
            expected[pair], tuple(deciles.tolist()),
            tuple(tuple(_look(index, before, corpus, row, keys, shares, activity) for row in rows) for rows in drawn),
            tuple(_look(index, before, corpus, row, keys, shares, activity) for row in strongest.tolist()),
            _alike(pair, looks), {} if table is None else _figures(table, *pair),
        ))  # fmt: skip
        counted(report, number + 1, len(looks), "heads")
    measured = "" if table is None else _measured(table, table_source)
    return Dossiers(model, index.weights, tuple(index.documents), tuple(dossiers), source, measured)


def _measured(table: HeadTable, source: str) -> str:
    parts = [f"{table.texts:,} texts{f' of {source}' if source else ''}"]
    if table.loss is not None:
        parts.append(f"where the loss with all heads is {table.loss_in_words}")
    if "loss_change" in table.figures:
        parts.append(f"a head's output replaced by {table.method}")
    return ", ".join(parts)


def _figures(table: HeadTable, layer: int, head: int) -> dict[str, float]:
    """What a table says of a head; nothing of one that it does not have."""
    if layer >= table.shape[0]:
        return {}
    found = {name: float(table.figures[name][layer, head]) for name in FIGURES if name in table.figures}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _looks(
    index: Index, corpus: _Corpus, layer: int, head: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:  # fmt: skip
    """Of each typed token the row of the strongest key, its share, and the activity; None for a pruned head."""
    place, keys, shares, lengths = index.layers.index(layer), [], [], []
    for shard in index.shards:
        keys.append(shard.part("keys", place)[head, :, 0].astype(np.int64))
        shares.append(shard.part("weights", place)[head, :, 0].astype(np.float32))
        scale, length = shard.part("head_scales", place)[head]
        lengths.append(scale * length)
    typed = corpus.typed
    activity = np.concatenate(lengths)[typed]
    if not np.isfinite(activity).all():
        return None
    mean = float(activity.mean())
    return (
        corpus.first[typed] + np.concatenate(keys)[typed], np.concatenate(shares)[typed], activity / (mean or 1.0),
    )  # fmt: skip


def _by_chance(corpus: _Corpus, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Of each question the shares (answer,) that a key drawn from the sentence of each of these tokens would have."""
    shares = {name: np.zeros(len(names)) for name, (_, names) in corpus.questions.items()}
    for queries, keys, weights in corpus.pairs(tokens):
        for name, (answer, names) in corpus.questions.items():
            shares[name] += np.bincount(answer(queries, keys), weights, len(names))
    return {name: found / len(tokens) for name, found in shares.items()}


def _words_by_chance(corpus: _Corpus) -> np.ndarray:
    """How often each word would be looked at, (word,)."""
    words = np.zeros(len(corpus.words))
    for _, keys, weights in corpus.pairs(corpus.typed):
        words += np.bincount(corpus.written[keys], weights, len(words))
    return words


def _bars(
    corpus: _Corpus, tokens: np.ndarray, keys: np.ndarray, chance: Mapping[str, np.ndarray]
) -> dict[str, tuple[Bar, ...]]:  # fmt: skip
    bars = {}
    for name, (answer, names) in corpus.questions.items():
        found = np.bincount(answer(tokens, keys), minlength=len(names)) / len(keys)
        bars[name] = tuple(
            Bar(of or "added", share, by_chance)
            for of, share, by_chance in zip(names, found.tolist(), chance[name].tolist(), strict=True)
            if share or by_chance
        )
    return bars


def telling(times: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How telling a count is beside what is expected, 2 n ln(n / expected); negative where it is smaller.

    Source: Dunning 1993, section 5, the term of the count itself.
    """
    found: np.ndarray = 2 * times * np.log(np.maximum(times, 1e-9) / np.maximum(expected, 1e-9))
    return found


def _words(corpus: _Corpus, keys: np.ndarray, expected: np.ndarray) -> tuple[Joined, ...]:
    times = np.bincount(corpus.written[keys[~corpus.added[keys]]], minlength=len(corpus.words))
    scores = np.where(times >= LEAST, telling(times, expected), -np.inf)
    best = [row for row in np.argsort(-scores, kind="stable")[:SHOWN].tolist() if scores[row] > 0]
    return tuple(Joined(corpus.words[row], int(times[row]), float(expected[row])) for row in best)


def _most_joined(corpus: _Corpus, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the pairs of typed words that are joined most often, query and key, and how often."""
    other = ~corpus.added[keys] & (corpus.number[keys] != corpus.number[corpus.typed])
    codes = _codes(corpus, corpus.typed[other], keys[other])
    known, times = np.unique(codes, return_counts=True)
    often = np.flatnonzero(times >= LEAST)
    often = often[np.argsort(-times[often], kind="stable")[:CANDIDATES]]
    return known[often], times[often]


def _codes(corpus: _Corpus, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    found: np.ndarray = corpus.written[queries] * len(corpus.words) + corpus.written[keys]
    return found


def _expected(
    corpus: _Corpus, joined: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray]]
) -> dict[tuple[int, int], tuple[Joined, ...]]:
    """Of every head the pairs of words that it joins more often than chance, the most telling first."""
    known = np.unique(np.concatenate([np.zeros(0, np.int64), *(codes for codes, _ in joined.values())]))
    by_chance = np.zeros(len(known))
    for queries, keys, weights in corpus.pairs(corpus.typed) if len(known) else ():
        codes = _codes(corpus, queries, keys)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        same = (known[at] == codes) & (corpus.number[keys] != corpus.number[queries])
        by_chance += np.bincount(at[same], weights[same], len(known))
    found = {}
    for pair, (codes, times) in joined.items():
        expected = by_chance[np.searchsorted(known, codes)]
        scores = telling(times, expected)
        best = [row for row in np.argsort(-scores, kind="stable")[:SHOWN].tolist() if scores[row] > 0]
        found[pair] = tuple(
            Joined(
                corpus.words[codes[row] % len(corpus.words)], int(times[row]), float(expected[row]),
                corpus.words[codes[row] // len(corpus.words)],
            )
            for row in best
        )  # fmt: skip
    return found


def _drawn(activity: np.ndarray, deciles: np.ndarray, count: int, draw: np.random.Generator) -> list[list[int]]:
    """Some tokens of each tenth by activity; of tokens that are equal none is preferred."""
    tenths = np.clip(np.searchsorted(deciles, activity, side="right") - 1, 0, TENTHS - 1)
    found = []
    for tenth in range(TENTHS):
        there = np.flatnonzero(tenths == tenth)
        some = draw.choice(there, min(count, len(there)), replace=False) if len(there) else there
        found.append(sorted(some.tolist(), key=lambda row: -activity[row]))
    return found


def _look(
    index: Index, before: Sequence[int], corpus: _Corpus, number: int,
    keys: np.ndarray, shares: np.ndarray, activity: np.ndarray,
) -> Look:  # fmt: skip
    """before: how many tokens stand before each shard."""
    row, key = int(corpus.typed[number]), int(keys[number])
    shard = int(np.searchsorted(before, row, side="right")) - 1
    own, other = (index.shards[shard].row(one - before[shard]) for one in (row, key))
    return Look(
        own["document"], own["line"], own["sentence_text"], (own["start"], own["end"]),
        None if other["word"] is None else (other["start"], other["end"]), other["piece"],
        float(shares[number]), float(activity[number]),
    )  # fmt: skip


def _alike(
    pair: tuple[int, int], looks: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[tuple[int, int, float], ...]:
    own = looks[pair][0]
    same = [(*other, float((keys == own).mean())) for other, (keys, _, _) in looks.items() if other != pair]
    return tuple(sorted(same, key=lambda one: -one[2])[:ALIKE])


# ---------------------------------------------------------------------------- files


def dossier_columns(heads: Iterable[Dossier]) -> dict[str, list[Any]]:
    """All figures as a table: layer, head, asked, tokens, name, query, share, chance, times, expected, value.

    asked: one of the questions, "word", "pair", or "figure". tokens: "all", or "active", the tenth with most activity.
    share and chance are of the bars, query, times and expected of words, value of figures; empty in the other rows.
    """
    rows: list[tuple[Any, ...]] = []
    for one in heads:
        for tokens, bars in (("all", one.bars), ("active", one.active)):
            rows += [
                (one.layer, one.head, asked, tokens, bar.name, None, bar.share, bar.chance, None, None, None)
                for asked, of in bars.items()
                for bar in of
            ]
        for asked, joined in (("word", one.words), ("pair", one.pairs)):
            rows += [
                (one.layer, one.head, asked, "all", word.key, word.query, None, None, word.times, word.expected, None)
                for word in joined
            ]
        rows += [
            (one.layer, one.head, "figure", "all", name, None, None, None, None, None, value)
            for name, value in one.figures.items()
        ]
    names = ("layer", "head", "asked", "tokens", "name", "query", "share", "chance", "times", "expected", "value")
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}


@checked
def write_dossiers(found: Dossiers, path: Path) -> None:
    """As JSON, whole or not at all; `read_dossiers` reads it. Raises Refused for a name that does not end in .json."""
    if path.suffix != ".json":
        raise Refused(f"{path.name or path} does not end in .json, as dossiers do")
    checkpoint.write_whole(path, json.dumps({"format": FORMAT, **dataclasses.asdict(found)}) + "\n")


@checked
def read_dossiers(path: Path) -> Dossiers:
    """Raises Refused for a file that `write_dossiers` did not write."""
    if not path.is_file():
        raise Refused(f"there is no file {path.name}: `headlight dossier` writes one")
    if path.stat().st_size > LARGEST_FILE:
        raise Refused(f"the file {path.name} has {path.stat().st_size:,} bytes: dossiers have {LARGEST_FILE:,} at most")
    kept = read_kept(path)
    try:
        if kept["format"] != FORMAT:
            raise ValueError
        return Dossiers(
            str(kept["model"]), str(kept["weights"]), tuple(map(str, kept["documents"])),
            tuple(_dossier(one) for one in kept["heads"]), str(kept["source"]), str(kept.get("measured", "")),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(f"the file {path.name} holds no dossiers: `headlight dossier` writes them") from error


def _dossier(kept: Mapping[str, Any]) -> Dossier:
    deciles = tuple(map(float, kept["deciles"]))
    if len(deciles) != TENTHS + 1 or len(kept["tenths"]) != TENTHS or not all(map(math.isfinite, deciles)):
        raise ValueError
    return Dossier(
        int(kept["layer"]), int(kept["head"]), int(kept["tokens"]), float(kept["share"]),
        _read_bars(kept["bars"]), _read_bars(kept["active"]),
        _joined(kept["words"]), _joined(kept["pairs"]), deciles, tuple(_read_looks(one) for one in kept["tenths"]),
        _read_looks(kept["strongest"]),
        tuple((int(layer), int(head), float(share)) for layer, head, share in kept["alike"]),
        {name: float(kept["figures"][name]) for name in FIGURES if name in kept.get("figures", {})},
    )  # fmt: skip


def _read_bars(kept: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, tuple[Bar, ...]]:
    return {
        str(name): tuple(Bar(str(one["name"]), float(one["share"]), float(one["chance"])) for one in bars)
        for name, bars in kept.items()
    }


def _joined(kept: Iterable[Mapping[str, Any]]) -> tuple[Joined, ...]:
    return tuple(
        Joined(
            str(one["key"]), int(one["times"]), float(one["expected"]),
            None if one["query"] is None else str(one["query"]),
        )
        for one in kept
    )  # fmt: skip


def _read_looks(kept: Iterable[Mapping[str, Any]]) -> tuple[Look, ...]:
    def span(of: Any) -> tuple[int, int]:
        start, end = map(int, of)
        return start, end

    return tuple(
        Look(
            str(one["document"]), int(one["line"]), str(one["text"]), span(one["query"]),
            None if one["key"] is None else span(one["key"]), str(one["piece"]), float(one["share"]),
            float(one["activity"]),
        )
        for one in kept
    )  # fmt: skip

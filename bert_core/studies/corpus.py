"""Every token of an index as a row, for what is counted over a whole corpus, and pairs of tokens of one sentence."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from bert_core.records.base import compared_by_value
from bert_core.studies.index_reader import Index, IndexedShard
from bert_core.studies.profiles import TENTHS, GroupShare, TokenExample, WordCount

MAX_OFFSET = 8  # tokens: what is farther off is one bar to each side
PAIRS_AT_ONCE = 2**21  # pairs of tokens that are counted at once
MIN_COUNT = 5  # times that a word, or a pair, must be seen
KEY_KINDS = ("first", "end", "itself", "its word", "the same word", "punctuation", "number", "another word")
KEY_RELATIONS = ("its governor", "its dependent", "its own word", "first", "end", "not tied to it")
TOKEN_TYPES = ("punctuation", "number", "a later piece", "a word")
UNLABELLED = "no label"  # of a treebank: pieces of no word of its own
POSITION_GROUPS = (1, 2, 3, 4, 5, 9, 17, 33)  # the first position of each group, [CLS] being 0


@compared_by_value
@dataclass(frozen=True)
class Corpus:
    """All tokens of an index, a row each; the rows of a sentence stand together.

    shards: of the index, whose tokens stand here one shard after the other. first, length: of the sentence of each, its
    first row and how many. added, typed: whether it was added; the rows of those that were not. number: counts the
    words, so that pieces of one word have one. written: the word as a number, of `words`. piece: the same, of `pieces`.
    sign, digits: whether it is punctuation, or a number. labels: of a treebank, by name, as numbers of their `names`.
    distance: to the governor, in words; 0 for none.
    """

    shards: tuple[IndexedShard, ...]
    sentence_start: np.ndarray
    sentence_length: np.ndarray
    special: np.ndarray
    typed_rows: np.ndarray
    word_number: np.ndarray
    word_id: np.ndarray
    words: tuple[str, ...]
    piece_id: np.ndarray
    pieces: tuple[str, ...]
    is_punctuation: np.ndarray
    is_number: np.ndarray
    distance: np.ndarray
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    label_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def key_kinds(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Of pairs of rows the number in `KINDS`."""
        begins = keys == self.sentence_start[keys]
        return np.select(
            [
                self.special[keys] & begins, self.special[keys], keys == queries, self.word_number[keys] == self.word_number[queries],
                self.word_id[keys] == self.word_id[queries], self.is_punctuation[keys], self.is_number[keys],
            ],
            range(len(KEY_KINDS) - 1), len(KEY_KINDS) - 1,
        )  # fmt: skip

    def key_offsets(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """From 0, for farther than `FARTHEST` before, on; behind them the first and the end token."""
        near = np.clip(keys - queries, -MAX_OFFSET - 1, MAX_OFFSET + 1) + MAX_OFFSET + 1
        added = np.where(keys == self.sentence_start[keys], 2 * MAX_OFFSET + 3, 2 * MAX_OFFSET + 4)
        found: np.ndarray = np.where(self.special[keys], added, near)
        return found

    def key_relations(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Of pairs of rows the number in `RELATED`."""
        above = self.word_number[queries] + self.distance[queries] == self.word_number[keys]
        below = self.word_number[keys] + self.distance[keys] == self.word_number[queries]
        begins = keys == self.sentence_start[keys]
        return np.select(
            [
                self.special[keys] & begins, self.special[keys], self.word_number[keys] == self.word_number[queries],
                above & (self.distance[queries] != 0), below & (self.distance[keys] != 0),
            ],
            [3, 4, 2, 0, 1], len(KEY_RELATIONS) - 1,
        )  # fmt: skip

    def key_tags(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The part of speech of the key."""
        found: np.ndarray = self.labels["upos"][keys]
        return found

    @property
    def key_properties(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """What is asked of a strongest key: the function that answers, and the names of its answers."""
        near = [f"{by:+d}" if by else "0" for by in range(-MAX_OFFSET, MAX_OFFSET + 1)]
        asked = {
            "offset": (self.key_offsets, (f"<{near[0]}", *near, f">{near[-1]}", "first", "end")),
            "kind": (self.key_kinds, KEY_KINDS),
        }
        if self.labels:
            asked |= {
                "relation": (self.key_relations, KEY_RELATIONS),
                "upos": (self.key_tags, self.label_names["upos"]),
            }
        return asked

    def token_types(self, tokens: np.ndarray) -> np.ndarray:
        """Of rows the number in `SORTS`."""
        later = (self.word_number[tokens] == self.word_number[tokens - 1]) & (tokens > self.sentence_start[tokens])
        found: np.ndarray = np.select(
            [self.is_punctuation[tokens], self.is_number[tokens], later], [0, 1, 2], len(TOKEN_TYPES) - 1
        )
        return found

    def position_groups(self, tokens: np.ndarray) -> np.ndarray:
        """Of rows the number of the group of `PLACES` in which they stand in their sentence."""
        found: np.ndarray = np.searchsorted(POSITION_GROUPS, tokens - self.sentence_start[tokens], side="right") - 1
        return found

    @property
    def token_properties(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """What is asked of a typed token itself: the function that answers for rows, and the names of its answers."""
        ends = [*(start - 1 for start in POSITION_GROUPS[1:]), None]
        groups = tuple(
            f"{start} on" if end is None else str(start) if start == end else f"{start} to {end}"
            for start, end in zip(POSITION_GROUPS, ends, strict=True)
        )
        asked: dict[str, tuple[Any, tuple[str, ...]]] = {
            "sort": (self.token_types, TOKEN_TYPES),
            "place": (self.position_groups, groups),
        }
        for name, labels in self.labels.items():
            asked[name] = (labels.__getitem__, self.label_names[name])
        return asked

    @cached_property
    def typed_shares(self) -> dict[str, np.ndarray]:
        """Of all typed tokens the shares (answer,) of what `columns` asks."""
        return self.property_shares(self.typed_rows)

    def property_shares(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """Of some rows the shares (answer,) of what `columns` asks."""
        return {
            name: np.bincount(answer(tokens), minlength=len(names)) / len(tokens)
            for name, (answer, names) in self.token_properties.items()
        }

    def property_bars(self, tokens: np.ndarray) -> dict[str, tuple[GroupShare, ...]]:
        """What these tokens are, beside what all typed ones are."""
        own = self.property_shares(tokens)
        return {
            name: tuple(
                GroupShare(answer or UNLABELLED, share, chance)
                for answer, share, chance in zip(
                    names, own[name].tolist(), self.typed_shares[name].tolist(), strict=True
                )
                if share or chance
            )
            for name, (_, names) in self.token_properties.items()
        }

    def word_counts(self, tokens: np.ndarray, step: int = 0) -> np.ndarray:
        """How many words of each kind (word,) stand so many tokens behind some rows, being other words than theirs.

        A word of several pieces counts once.
        """
        rows = tokens + step  # the rows before and behind a typed one are of its sentence: [CLS], [SEP] or typed
        there = rows[~self.special[rows] & ((self.word_number[rows] != self.word_number[tokens]) | (step == 0))]
        _, once = np.unique(self.word_number[there], return_index=True)
        return np.bincount(self.word_id[there[once]], minlength=len(self.words))

    def overrepresented_words(
        self, tokens: np.ndarray, of_all: np.ndarray, count: int, step: int = 0
    ) -> tuple[WordCount, ...]:  # fmt: skip
        """The words of `word_counts` that are most telling beside those of all typed tokens, `of_all`."""
        times = self.word_counts(tokens, step)
        expected = of_all * (times.sum() / max(of_all.sum(), 1))
        best = most_overrepresented(times, expected, count)
        return tuple(WordCount(self.words[word], int(times[word]), float(expected[word])) for word in best)

    def examples(self, tokens: np.ndarray, values: np.ndarray, places: Iterable[int]) -> tuple[TokenExample, ...]:
        """Some of these rows in their sentences, each with its value."""
        rows = ((self.row(int(tokens[place])), float(values[place])) for place in places)
        return tuple(
            TokenExample(own["document"], own["line"], own["sentence_text"], (own["start"], own["end"]), value)
            for own, value in rows
        )

    @cached_property
    def _before(self) -> list[int]:
        return list(accumulate((shard.tokens for shard in self.shards), initial=0))

    def row(self, number: int) -> dict[str, Any]:
        """All that is written of a token, and its sentence as "sentence_text"."""
        shard = int(np.searchsorted(self._before, number, side="right")) - 1
        return self.shards[shard].row(number - self._before[shard])

    def pairs(self, tokens: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """These tokens, each with every token of its sentence, and one over how many these are; some at a time."""
        ends, start = np.cumsum(self.sentence_length[tokens]), 0
        while start < len(ends):
            done = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")), start + 1)
            some = tokens[start:stop]
            counts = self.sentence_length[some]
            queries = np.repeat(some, counts)
            within = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
            yield queries, self.sentence_start[queries] + within, 1 / self.sentence_length[queries]
            start = stop


def read_corpus(index: Index) -> Corpus:
    """Every token that an index holds. Raises BrokenShard."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("first", "length", "added", "word", "piece", "start", "end", "upos", "relation", "distance")
    }
    rows = 0
    for shard in index.shards:
        firsts = shard.integer_column("first", table="texts")
        lengths = np.diff(np.append(firsts, shard.tokens))
        columns["first"].append(np.repeat(rows + firsts, lengths))
        columns["length"].append(np.repeat(lengths, lengths))
        columns["added"].append(shard.special)
        for name in ("start", "end"):
            columns[name].append(shard.integer_column(name))
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
    piece, pieces = _numbered(columns["piece"])
    return Corpus(
        index.shards, arrays["first"], arrays["length"], added, np.flatnonzero(~added),
        np.concatenate([[0], np.cumsum(differs | added[1:] | added[:-1])])[: len(added)], written, names, piece, pieces,
        signs[written], digits[written], distance,
        {name: numbers for name, (numbers, _) in labels.items()} if tree else {},
        {name: known for name, (_, known) in labels.items()} if tree else {},
    )  # fmt: skip


def _numbered(values: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    names = {name: number for number, name in enumerate(dict.fromkeys(values))}
    return np.array([names[value] for value in values], np.int64), tuple(names)


def log_likelihood_term(times: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How telling a count is beside what is expected, 2 n ln(n / expected); negative where it is smaller.

    Source: Dunning 1993, section 5, the term of the count itself.
    """
    found: np.ndarray = 2 * times * np.log(np.maximum(times, 1e-9) / np.maximum(expected, 1e-9))
    return found


def most_overrepresented(times: np.ndarray, expected: np.ndarray, count: int) -> list[int]:
    """The places of the counts that are most telling, of those of `LEAST` and above what is expected."""
    scores = np.where(times >= MIN_COUNT, log_likelihood_term(times, expected), -np.inf)
    return [place for place in np.argsort(-scores, kind="stable")[:count].tolist() if scores[place] > 0]


def sample_by_decile(
    values: np.ndarray, count: int, draw: np.random.Generator
) -> tuple[np.ndarray, list[list[int]]]:  # fmt: skip
    """What 0, 10, ... 100 % of some values do not pass, and the places of some of each tenth, falling.

    Of values that are equal none is preferred.
    """
    deciles = np.quantile(values, np.linspace(0, 1, TENTHS + 1))
    tenths = np.clip(np.searchsorted(deciles, values, side="right") - 1, 0, TENTHS - 1)
    found = []
    for tenth in range(TENTHS):
        there = np.flatnonzero(tenths == tenth)
        some = draw.choice(there, min(count, len(there)), replace=False) if len(there) else there
        found.append(sorted(some.tolist(), key=lambda place: -values[place]))
    return deciles, found

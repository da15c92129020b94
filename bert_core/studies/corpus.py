"""All tokens of a corpus index as rows of arrays, for counts over the corpus and over pairs of tokens of a sentence."""

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

MAX_OFFSET = 8  # tokens; larger offsets share one category on each side
PAIRS_AT_ONCE = 2**21  # pairs of tokens in memory at a time
MIN_COUNT = 5  # occurrences that a word, or a pair of words, needs to be listed
KEY_KINDS = ("first", "end", "itself", "its word", "the same word", "punctuation", "number", "another word")
KEY_RELATIONS = ("its governor", "its dependent", "its own word", "first", "end", "not tied to it")
TOKEN_TYPES = ("punctuation", "number", "a later piece", "a word")
UNLABELLED = "no label"  # name of the category of the tokens that have no word of the treebank
POSITION_GROUPS = (1, 2, 3, 4, 5, 9, 17, 33)  # first position of each group; [CLS] is at position 0


@compared_by_value
@dataclass(frozen=True)
class Corpus:
    """All tokens of a corpus index, one row per token; the rows of a sentence are contiguous.

    A typed token comes from the text; a special token ([CLS], [SEP]) was added to it. Arrays have the shape (row,)
    unless stated.

    shards: shards of the index, in the order of the rows.
    sentence_start, sentence_length: first row of the sentence of each token, and number of tokens of the sentence.
    special: whether the token is special.
    typed_rows: rows of the typed tokens, (typed token,).
    word_number: running number of the word; the tokens of one word share it.
    word_id, words: index of the word in `words`, which are case-folded; the word of a special token is the token.
    piece_id, pieces: index of the token in `pieces`.
    is_punctuation, is_number: whether the word consists of punctuation, and whether it contains a digit.
    distance: signed distance to the governor, in words; 0 for none.
    labels, label_names: indices of the treebank labels "upos" and "relation" of each token, and the names of these
        labels; both empty for a corpus that is not a treebank.
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
        """Classify the keys of pairs of rows (pair,) of one sentence; return indices in `KEY_KINDS`, (pair,)."""
        is_start = keys == self.sentence_start[keys]
        conditions = [
            self.special[keys] & is_start,
            self.special[keys],
            keys == queries,
            self.word_number[keys] == self.word_number[queries],
            self.word_id[keys] == self.word_id[queries],
            self.is_punctuation[keys],
            self.is_number[keys],
        ]
        return np.select(conditions, range(len(KEY_KINDS) - 1), len(KEY_KINDS) - 1)

    def key_offsets(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return the category of the offset from query to key, (pair,).

        0 is more than `MAX_OFFSET` tokens before the query, followed by each offset from -`MAX_OFFSET` to `MAX_OFFSET`
        and by more than `MAX_OFFSET` tokens after it. The last two categories are the first and the last special token.
        """
        offsets = np.clip(keys - queries, -MAX_OFFSET - 1, MAX_OFFSET + 1) + MAX_OFFSET + 1
        special = np.where(keys == self.sentence_start[keys], 2 * MAX_OFFSET + 3, 2 * MAX_OFFSET + 4)
        categories: np.ndarray = np.where(self.special[keys], special, offsets)
        return categories

    def key_relations(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Classify pairs of rows (pair,) by their dependency relation; return indices in `KEY_RELATIONS`, (pair,)."""
        governor = self.word_number[queries] + self.distance[queries] == self.word_number[keys]
        dependent = self.word_number[keys] + self.distance[keys] == self.word_number[queries]
        is_start = keys == self.sentence_start[keys]
        conditions = [
            self.special[keys] & is_start,
            self.special[keys],
            self.word_number[keys] == self.word_number[queries],
            governor & (self.distance[queries] != 0),
            dependent & (self.distance[keys] != 0),
        ]
        return np.select(conditions, [3, 4, 2, 0, 1], len(KEY_RELATIONS) - 1)

    def key_tags(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return the part of speech of the keys, as indices in `label_names["upos"]`, (pair,)."""
        tags: np.ndarray = self.labels["upos"][keys]
        return tags

    @property
    def key_properties(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """Properties of pairs (query, key) by name: the function that computes the category, and category names."""
        offsets = [f"{offset:+d}" if offset else "0" for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)]
        properties = {
            "offset": (self.key_offsets, (f"<{offsets[0]}", *offsets, f">{offsets[-1]}", "first", "end")),
            "kind": (self.key_kinds, KEY_KINDS),
        }
        if self.labels:
            properties |= {
                "relation": (self.key_relations, KEY_RELATIONS),
                "upos": (self.key_tags, self.label_names["upos"]),
            }
        return properties

    def token_types(self, tokens: np.ndarray) -> np.ndarray:
        """Classify rows (token,); return indices in `TOKEN_TYPES`, (token,)."""
        continues_word = (self.word_number[tokens] == self.word_number[tokens - 1]) & (
            tokens > self.sentence_start[tokens]
        )
        types: np.ndarray = np.select(
            [self.is_punctuation[tokens], self.is_number[tokens], continues_word], [0, 1, 2], len(TOKEN_TYPES) - 1
        )
        return types

    def position_groups(self, tokens: np.ndarray) -> np.ndarray:
        """Return the group of the position in the sentence, as indices in `POSITION_GROUPS`, for rows (token,)."""
        groups: np.ndarray = np.searchsorted(POSITION_GROUPS, tokens - self.sentence_start[tokens], side="right") - 1
        return groups

    @property
    def token_properties(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """Properties of typed tokens by name: the function that computes the category of rows, and category names."""
        ends = [*(start - 1 for start in POSITION_GROUPS[1:]), None]
        groups = tuple(
            f"{start} on" if end is None else str(start) if start == end else f"{start} to {end}"
            for start, end in zip(POSITION_GROUPS, ends, strict=True)
        )
        properties: dict[str, tuple[Any, tuple[str, ...]]] = {
            "sort": (self.token_types, TOKEN_TYPES),
            "place": (self.position_groups, groups),
        }
        for name, labels in self.labels.items():
            properties[name] = (labels.__getitem__, self.label_names[name])
        return properties

    @cached_property
    def typed_shares(self) -> dict[str, np.ndarray]:
        """Share (category,) of each category of `token_properties` among all typed tokens, 0 to 1."""
        return self.property_shares(self.typed_rows)

    def property_shares(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the share (category,) of each category of `token_properties` among rows (token,), 0 to 1."""
        return {
            name: np.bincount(categories(tokens), minlength=len(names)) / len(tokens)
            for name, (categories, names) in self.token_properties.items()
        }

    def property_bars(self, tokens: np.ndarray) -> dict[str, tuple[GroupShare, ...]]:
        """Compare the shares of rows (token,) with those of all typed tokens, leaving out categories that both lack."""
        shares = self.property_shares(tokens)
        return {
            name: tuple(
                GroupShare(category or UNLABELLED, share, chance)
                for category, share, chance in zip(
                    names, shares[name].tolist(), self.typed_shares[name].tolist(), strict=True
                )
                if share or chance
            )
            for name, (_, names) in self.token_properties.items()
        }

    def word_counts(self, tokens: np.ndarray, step: int = 0) -> np.ndarray:
        """Count the words (word,) of the typed tokens `step` tokens after rows (token,).

        A word of several tokens counts once. With a step other than 0, a token of the same word as the row does not
        count.
        """
        rows = tokens + step  # [CLS] and [SEP] around a sentence keep these rows inside it
        neighbours = rows[~self.special[rows] & ((self.word_number[rows] != self.word_number[tokens]) | (step == 0))]
        _, first_of_word = np.unique(self.word_number[neighbours], return_index=True)
        return np.bincount(self.word_id[neighbours[first_of_word]], minlength=len(self.words))

    def overrepresented_words(
        self, tokens: np.ndarray, typed_counts: np.ndarray, count: int, step: int = 0
    ) -> tuple[WordCount, ...]:  # fmt: skip
        """Return the words of `word_counts` that are most overrepresented compared with all typed tokens.

        tokens, step: as for `word_counts`. typed_counts: `word_counts` of all typed tokens, (word,).
        count: maximum number of words.
        """
        times = self.word_counts(tokens, step)
        expected = typed_counts * (times.sum() / max(typed_counts.sum(), 1))
        words = most_overrepresented(times, expected, count)
        return tuple(WordCount(self.words[word], int(times[word]), float(expected[word])) for word in words)

    def examples(self, tokens: np.ndarray, values: np.ndarray, places: Iterable[int]) -> tuple[TokenExample, ...]:
        """Return tokens in their sentences, each with its value.

        tokens, values: rows and their values, (token,) each. places: indices in both.
        """
        rows = ((self.row(int(tokens[place])), float(values[place])) for place in places)
        return tuple(
            TokenExample(row["document"], row["line"], row["sentence_text"], (row["start"], row["end"]), value)
            for row, value in rows
        )

    @cached_property
    def _shard_starts(self) -> list[int]:
        return list(accumulate((shard.tokens for shard in self.shards), initial=0))

    def row(self, number: int) -> dict[str, Any]:
        """Return the columns of a token by name, and its sentence as "sentence_text". Raises BrokenShard."""
        shard = int(np.searchsorted(self._shard_starts, number, side="right")) - 1
        return self.shards[shard].row(number - self._shard_starts[shard])

    def pairs(
        self, tokens: np.ndarray, window: int | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pair each row (token,) with every token of its sentence; yield batches of queries, keys and weights (pair,).

        The weight is the probability of the key among the tokens of the sentence: 1 over their number.
        window: the largest distance between query and key, within which keys are counted; None for any distance.
        """
        ends, start = np.cumsum(self.sentence_length[tokens]), 0
        while start < len(ends):
            pairs_done = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, pairs_done + PAIRS_AT_ONCE, side="right")), start + 1)
            batch = tokens[start:stop]
            counts = self.sentence_length[batch]
            queries = np.repeat(batch, counts)
            positions = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
            keys = self.sentence_start[queries] + positions
            if window is None:
                yield queries, keys, 1 / self.sentence_length[queries]
            else:
                is_near = abs(keys - queries) <= window
                before = np.minimum(queries - self.sentence_start[queries], window)
                after = np.minimum(self.sentence_start[queries] + self.sentence_length[queries] - 1 - queries, window)
                yield queries[is_near], keys[is_near], 1 / (before + 1 + after)[is_near]
            start = stop


def read_corpus(index: Index) -> Corpus:
    """Read all tokens of an index. Raises BrokenShard for a shard whose files are damaged."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("first", "length", "special", "word", "piece", "start", "end", "upos", "relation", "distance")
    }
    rows = 0
    for shard in index.shards:
        firsts = shard.integer_column("first", table="texts")
        lengths = np.diff(np.append(firsts, shard.tokens))
        columns["first"].append(np.repeat(rows + firsts, lengths))
        columns["length"].append(np.repeat(lengths, lengths))
        columns["special"].append(shard.special)
        for name in ("start", "end"):
            columns[name].append(shard.integer_column(name))
        for name in ("word", "piece", "upos", "relation"):
            column = shard.column(name)
            columns[name] += [None] * shard.tokens if column is None else column.to_pylist()
        distance = shard.column("distance")
        columns["distance"] += (
            [0] * shard.tokens if distance is None else [value or 0 for value in distance.to_pylist()]
        )
        rows += shard.tokens
    arrays = {
        name: np.concatenate([np.zeros(0, np.int64), *columns[name]]) for name in ("first", "length", "start", "end")
    }
    special = np.concatenate([np.zeros(0, bool), *columns["special"]])
    words = [
        piece if word is None else word.casefold()
        for word, piece in zip(columns["word"], columns["piece"], strict=True)
    ]
    word_id, names = _as_indices(words)
    is_treebank = any(label is not None for label in columns["relation"])
    labels = {
        name: _as_indices(["" if label is None else label for label in columns[name]]) for name in ("upos", "relation")
    }
    distance = np.array(columns["distance"], np.int64)
    # A new word begins where the word, the sentence or a label changes, or where characters lie between two tokens.
    is_new = (np.diff(word_id) != 0) | (np.diff(arrays["first"]) != 0) | (arrays["start"][1:] > arrays["end"][:-1])
    for _, values in (("upos", labels["upos"][0]), ("relation", labels["relation"][0]), ("distance", distance)):
        is_new |= np.diff(values) != 0
    punctuation = np.array(
        [all(unicodedata.category(character).startswith("P") for character in word) for word in names], bool
    )
    digits = np.array([any(character.isdigit() for character in word) for word in names], bool)
    piece_id, pieces = _as_indices(columns["piece"])
    return Corpus(
        index.shards,
        arrays["first"],
        arrays["length"],
        special,
        np.flatnonzero(~special),
        np.concatenate([[0], np.cumsum(is_new | special[1:] | special[:-1])])[: len(special)],
        word_id,
        names,
        piece_id,
        pieces,
        punctuation[word_id],
        digits[word_id],
        distance,
        {name: indices for name, (indices, _) in labels.items()} if is_treebank else {},
        {name: label_names for name, (_, label_names) in labels.items()} if is_treebank else {},
    )


def _as_indices(values: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return each value as an index (value,) in the different values, and these in the order of their appearance."""
    names = {name: number for number, name in enumerate(dict.fromkeys(values))}
    return np.array([names[value] for value in values], np.int64), tuple(names)


def log_likelihood_term(times: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Compute the term of a count in the log-likelihood ratio, 2 n ln(n / expected); negative below `expected`.

    times, expected: observed and expected counts, of any shape. Returns an array of this shape.
    Source: Dunning 1993, section 5, the term of the count itself.
    """
    terms: np.ndarray = 2 * times * np.log(np.maximum(times, 1e-9) / np.maximum(expected, 1e-9))
    return terms


def most_overrepresented(times: np.ndarray, expected: np.ndarray, count: int) -> list[int]:
    """Return at most `count` indices of the counts (item,) with the largest `log_likelihood_term`, largest first.

    Only counts of at least `MIN_COUNT` that exceed the expected count are returned.
    """
    scores = np.where(times >= MIN_COUNT, log_likelihood_term(times, expected), -np.inf)
    return [place for place in np.argsort(-scores, kind="stable")[:count].tolist() if scores[place] > 0]


def sample_by_decile(
    values: np.ndarray, count: int, draw: np.random.Generator
) -> tuple[np.ndarray, list[list[int]]]:  # fmt: skip
    """Draw values at random from each tenth of an array (value,).

    count: maximum number of values from each tenth. draw: random generator.
    Returns the quantiles at 0, 10, ..., 100%, (11,), and the indices drawn from each tenth, largest value first.
    Equal values have equal chances.
    """
    deciles = np.quantile(values, np.linspace(0, 1, TENTHS + 1))
    tenths = np.clip(np.searchsorted(deciles, values, side="right") - 1, 0, TENTHS - 1)
    samples = []
    for tenth in range(TENTHS):
        members = np.flatnonzero(tenths == tenth)
        sample = draw.choice(members, min(count, len(members)), replace=False) if len(members) else members
        samples.append(sorted(sample.tolist(), key=lambda place: -values[place]))
    return deciles, samples

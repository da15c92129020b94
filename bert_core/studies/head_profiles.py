"""The profiles of heads: every strongest key of an index is counted, beside a key drawn from the same sentence.

A head is known by the strongest key of every typed token. Chance is a key drawn from the token's own sentence: heads
look at what is frequent, near or at the end of a sentence because most of a sentence is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import HeadTable
from bert_core.refused import MAX_SEED, Refused, require_int, validate_arguments
from bert_core.studies.corpus import MIN_COUNT, Corpus, most_overrepresented, read_corpus, sample_by_decile
from bert_core.studies.head_tables import check_weights
from bert_core.studies.index_reader import Index
from bert_core.studies.profiles import FIGURES, Bar, HeadProfile, Joined, Look, Profiles

SHOWN = 12  # words, and pairs of words
CANDIDATES = 200  # pairs of words of a head whose chance is counted
LARGEST = 2**28  # strongest keys, of all heads together: 12 bytes each
ALIKE = 5  # heads


@validate_arguments
def head_profiles(
    index: Index,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    examples: int = 3,
    seed: int = 0,
    source: str = "",
    table: HeadTable | None = None,
    table_source: str = "",
    report: Progress = ignore_progress,
) -> Profiles:
    """The profiles of some heads over all that an index holds.

    heads: (layer, head) each; None: all whose layers are kept. examples: looks from every tenth of the activity.
    seed: of what is drawn. source: whose text it is, and under what licence, to be shown beside it.
    table: what `heads_over` measured of every head, also over another file. One of version 0.2 has no fingerprint, and
        is taken by its name and the number of its heads. table_source: whose text that was.
    report: told how many heads are done. A head that was pruned has no profile.
    Raises Refused for a head that is not kept, an index without a typed token, a broken shard, more than fits, or a
    table of another model, or of other weights.
    """
    examples, seed = require_int("examples", examples, 1, 100), require_int("seed", seed, 0, MAX_SEED)
    asked = index.all_heads if heads is None else list(dict.fromkeys(index.validate_heads(heads)))
    model = Path(index.model).name
    if table is not None and (table.model, table.shape[1]) != (model, index.heads):
        raise Refused(
            f"the table is of {table.model}, of {table.shape[1]} heads in a layer, and the index of {model}, of "
            f"{index.heads}: both are of one model"
        )
    if table is not None:
        check_weights(table, index.weights, f"the index {index.folder.name}")
    corpus = read_corpus(index)
    if not len(corpus.typed_rows):
        raise Refused(f"{index.folder} holds no typed token, so there is nothing to say of a head")
    if len(asked) * len(corpus.typed_rows) > LARGEST:
        raise Refused(
            f"{len(asked)} heads from {len(corpus.typed_rows):,} tokens do not fit in memory: ask for "
            f"{max(LARGEST // len(corpus.typed_rows), 1)} heads at a time"
        )
    chance, of_words = _by_chance(corpus, corpus.typed_rows), _words_by_chance(corpus)
    looks = {pair: found for pair in asked if (found := _looks(index, corpus, *pair)) is not None}
    expected = _expected(corpus, {pair: _most_joined(corpus, keys) for pair, (keys, _, _) in looks.items()})
    profiles = []
    for number, (pair, (keys, shares, activity)) in enumerate(looks.items()):
        deciles, drawn = sample_by_decile(activity, examples, np.random.default_rng([seed, *pair]))
        strongest = np.argsort(-activity, kind="stable")[: 2 * examples]
        top = np.flatnonzero(activity >= deciles[-2])
        active = corpus.typed_rows[top]
        profiles.append(HeadProfile(
            *pair, len(keys), float(shares.mean()), _bars(corpus, corpus.typed_rows, keys, chance),
            _bars(corpus, active, keys[top], _by_chance(corpus, active)), _words(corpus, keys, of_words),
            expected[pair], tuple(deciles.tolist()),
            tuple(tuple(_look(corpus, row, keys, shares, activity) for row in rows) for rows in drawn),
            tuple(_look(corpus, row, keys, shares, activity) for row in strongest.tolist()),
            _alike(pair, looks, top), {} if table is None else _figures(table, *pair),
        ))  # fmt: skip
        report_count(report, number + 1, len(looks), "heads")
    measured = "" if table is None else _measured(table, table_source)
    return Profiles(model, index.weights, tuple(index.documents), tuple(profiles), source, measured)


def _measured(table: HeadTable, source: str) -> str:
    parts = [f"{table.texts:,} texts{f' of {source}' if source else ''}"]
    if table.loss is not None:
        parts.append(f"where the loss with all heads is {table.loss_text}")
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
    index: Index, corpus: Corpus, layer: int, head: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:  # fmt: skip
    """Of each typed token the row of the strongest key, its share, and the activity; None for a pruned head."""
    place, keys, shares, lengths = index.layers.index(layer), [], [], []
    for shard in index.shards:
        keys.append(shard.part("keys", place)[head, :, 0].astype(np.int64))
        shares.append(shard.part("weights", place)[head, :, 0].astype(np.float32))
        scale, length = shard.part("head_scales", place)[head]
        lengths.append(scale * length)
    typed = corpus.typed_rows
    activity = np.concatenate(lengths)[typed]
    if not np.isfinite(activity).all():
        return None
    mean = float(activity.mean())
    return (
        corpus.sentence_start[typed] + np.concatenate(keys)[typed], np.concatenate(shares)[typed], activity / (mean or 1.0),
    )  # fmt: skip


def _by_chance(corpus: Corpus, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Of each question the shares (answer,) that a key drawn from the sentence of each of these tokens would have."""
    shares = {name: np.zeros(len(names)) for name, (_, names) in corpus.key_properties.items()}
    for queries, keys, weights in corpus.pairs(tokens):
        for name, (answer, names) in corpus.key_properties.items():
            shares[name] += np.bincount(answer(queries, keys), weights, len(names))
    return {name: found / len(tokens) for name, found in shares.items()}


def _words_by_chance(corpus: Corpus) -> np.ndarray:
    """How often each word would be looked at, (word,)."""
    words = np.zeros(len(corpus.words))
    for _, keys, weights in corpus.pairs(corpus.typed_rows):
        words += np.bincount(corpus.word_id[keys], weights, len(words))
    return words


def _bars(
    corpus: Corpus, tokens: np.ndarray, keys: np.ndarray, chance: Mapping[str, np.ndarray]
) -> dict[str, tuple[Bar, ...]]:  # fmt: skip
    bars = {}
    for name, (answer, names) in corpus.key_properties.items():
        found = np.bincount(answer(tokens, keys), minlength=len(names)) / len(keys)
        bars[name] = tuple(
            Bar(of or "added", share, by_chance)
            for of, share, by_chance in zip(names, found.tolist(), chance[name].tolist(), strict=True)
            if share or by_chance
        )
    return bars


def _words(corpus: Corpus, keys: np.ndarray, expected: np.ndarray) -> tuple[Joined, ...]:
    times = np.bincount(corpus.word_id[keys[~corpus.special[keys]]], minlength=len(corpus.words))
    best = most_overrepresented(times, expected, SHOWN)
    return tuple(Joined(corpus.words[row], int(times[row]), float(expected[row])) for row in best)


def _most_joined(corpus: Corpus, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the pairs of typed words that are joined most often, query and key, and how often."""
    other = ~corpus.special[keys] & (corpus.word_number[keys] != corpus.word_number[corpus.typed_rows])
    codes = _codes(corpus, corpus.typed_rows[other], keys[other])
    known, times = np.unique(codes, return_counts=True)
    often = np.flatnonzero(times >= MIN_COUNT)
    often = often[np.argsort(-times[often], kind="stable")[:CANDIDATES]]
    return known[often], times[often]


def _codes(corpus: Corpus, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    found: np.ndarray = corpus.word_id[queries] * len(corpus.words) + corpus.word_id[keys]
    return found


def _expected(
    corpus: Corpus, joined: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray]]
) -> dict[tuple[int, int], tuple[Joined, ...]]:
    """Of every head the pairs of words that it joins more often than chance, the most telling first."""
    known = np.unique(np.concatenate([np.zeros(0, np.int64), *(codes for codes, _ in joined.values())]))
    by_chance = np.zeros(len(known))
    for queries, keys, weights in corpus.pairs(corpus.typed_rows) if len(known) else ():
        codes = _codes(corpus, queries, keys)
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        same = (known[at] == codes) & (corpus.word_number[keys] != corpus.word_number[queries])
        by_chance += np.bincount(at[same], weights[same], len(known))
    found = {}
    for pair, (codes, times) in joined.items():
        expected = by_chance[np.searchsorted(known, codes)]
        found[pair] = tuple(
            Joined(
                corpus.words[codes[row] % len(corpus.words)], int(times[row]), float(expected[row]),
                corpus.words[codes[row] // len(corpus.words)],
            )
            for row in most_overrepresented(times, expected, SHOWN)
        )  # fmt: skip
    return found


def _look(corpus: Corpus, number: int, keys: np.ndarray, shares: np.ndarray, activity: np.ndarray) -> Look:
    own, other = corpus.row(int(corpus.typed_rows[number])), corpus.row(int(keys[number]))
    return Look(
        own["document"], own["line"], own["sentence_text"], (own["start"], own["end"]),
        None if other["word"] is None else (other["start"], other["end"]), other["piece"],
        float(shares[number]), float(activity[number]),
    )  # fmt: skip


def _alike(
    pair: tuple[int, int], looks: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]], top: np.ndarray
) -> tuple[tuple[int, int, float], ...]:
    """The heads that look at the same where this one is most active: elsewhere most of them look at [CLS] or [SEP]."""
    own = looks[pair][0][top]
    same = [(*other, float((keys[top] == own).mean())) for other, (keys, _, _) in looks.items() if other != pair]
    return tuple(sorted(same, key=lambda one: -one[2])[:ALIKE])

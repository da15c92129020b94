"""Profiles of heads: counts of the strongest keys over a corpus, compared with random keys of the same sentences.

The strongest key of a token is the key that a head attends to most from it. The baseline is a random key of the same
sentence, because frequent, near and final tokens would otherwise appear to be preferred. For a head of a local layer it
is a random key within the window.
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
from bert_core.studies.profiles import FIGURES, GroupShare, HeadExample, HeadProfile, Profiles, WordCount

MAX_WORDS = 12  # words, and pairs of words, in a profile
MAX_CANDIDATES = 200  # most frequent pairs of words of a head for which the baseline is computed
MAX_STRONGEST_KEYS = 2**28  # of all heads together, 12 bytes each
MAX_SIMILAR_HEADS = 5


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
    r"""Compute the profiles of attention heads over the corpus of an index. Pruned heads have no profile.

    index: the index.
    heads: (layer, head) pairs, or None for all heads of the indexed layers.
    examples: number of random examples from each tenth of the activity.
    seed: random seed of the examples.
    source: author and licence of the corpus, stored in the profiles.
    table: statistics of all heads from `measure_heads`, over any file. A table of version 0.2 has no fingerprint, so
        only the name of the model and the number of heads are checked.
    table_source: author of the texts of the table.
    report: called with the number of heads done, see `Progress`.

    Returns the profiles.
    Raises Refused for a head that is not in the index, an index without a typed token, a damaged shard, and more heads
    and tokens than fit in memory. Raises Refused also for a table of another model or other weights.

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("corpus.txt").write_text("She opened the door.\nThe sun rises in the east.\n")
    >>> counts = bert_core.index_file(Path("corpus.txt"), Path("index"))
    >>> profiles = bert_core.head_profiles(bert_core.open_index(Path("index")), [(0, 2)])
    >>> [(profile.layer, profile.head, profile.tokens) for profile in profiles.heads]
    [(0, 2, 12)]
    """
    examples, seed = require_int("examples", examples, 1, 100), require_int("seed", seed, 0, MAX_SEED)
    pairs = index.all_heads if heads is None else list(dict.fromkeys(index.validate_heads(heads)))
    model = Path(index.model).name
    if table is not None and (table.model, table.shape[1]) != (model, index.heads):
        raise Refused(
            f"the table is of {table.model} with {table.shape[1]} heads per layer, and the index of {model} with "
            f"{index.heads}: both must be of the same model"
        )
    if table is not None:
        check_weights(table, index.weights, f"the index {index.folder.name}")
    corpus = read_corpus(index)
    if not len(corpus.typed_rows):
        raise Refused(f"{index.folder} contains no typed token, so heads have no profile")
    if len(pairs) * len(corpus.typed_rows) > MAX_STRONGEST_KEYS:
        raise Refused(
            f"{len(pairs)} heads at {len(corpus.typed_rows):,} tokens do not fit in memory: choose at most "
            f"{max(MAX_STRONGEST_KEYS // len(corpus.typed_rows), 1)} heads at a time"
        )
    windows = {pair: index.windows[pair[0]] if index.windows else None for pair in pairs}
    baselines = {window: _baseline_shares(corpus, corpus.typed_rows, window) for window in {*windows.values()}}
    expected_words = {window: _expected_words(corpus, window) for window in baselines}
    strongest_keys = {pair: arrays for pair in pairs if (arrays := _strongest_keys(index, corpus, *pair)) is not None}
    frequent_pairs = {pair: _frequent_pairs(corpus, keys) for pair, (keys, _, _) in strongest_keys.items()}
    word_pairs: dict[tuple[int, int], tuple[WordCount, ...]] = {}
    for window in baselines:
        of_window = {pair: counts for pair, counts in frequent_pairs.items() if windows[pair] == window}
        word_pairs |= _overrepresented_pairs(corpus, of_window, window)
    profiles = []
    for number, (pair, (keys, shares, activity)) in enumerate(strongest_keys.items()):
        deciles, tenths = sample_by_decile(activity, examples, np.random.default_rng([seed, *pair]))
        most_active = np.argsort(-activity, kind="stable")[: 2 * examples]
        top = np.flatnonzero(activity >= deciles[-2])
        top_rows, window = corpus.typed_rows[top], windows[pair]
        profiles.append(HeadProfile(
            *pair, len(keys), float(shares.mean()), _group_shares(corpus, corpus.typed_rows, keys, baselines[window]),
            _group_shares(corpus, top_rows, keys[top], _baseline_shares(corpus, top_rows, window)),
            _overrepresented_words(corpus, keys, expected_words[window]), word_pairs[pair], tuple(deciles.tolist()),
            tuple(tuple(_example(corpus, token, keys, shares, activity) for token in tokens) for tokens in tenths),
            tuple(_example(corpus, token, keys, shares, activity) for token in most_active.tolist()),
            _similar_heads(pair, strongest_keys, top), {} if table is None else _figures(table, *pair),
        ))  # fmt: skip
        report_count(report, number + 1, len(strongest_keys), "heads")
    measured = "" if table is None else _describe_table(table, table_source)
    return Profiles(model, index.weights, tuple(index.documents), tuple(profiles), source, measured)


def _describe_table(table: HeadTable, source: str) -> str:
    """Return a text that says over which texts, with which loss and ablation a table was measured."""
    parts = [f"{table.texts:,} texts{f' of {source}' if source else ''}"]
    if table.loss is not None:
        parts.append(f"where the loss with all heads is {table.loss_text}")
    if "loss_change" in table.figures:
        parts.append(f"a head's output replaced by {table.method}")
    return ", ".join(parts)


def _figures(table: HeadTable, layer: int, head: int) -> dict[str, float]:
    """Return the finite figures of a head, or an empty dictionary for a head that is not in the table."""
    if layer >= table.shape[0]:
        return {}
    values = {name: float(table.figures[name][layer, head]) for name in FIGURES if name in table.figures}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _strongest_keys(
    index: Index, corpus: Corpus, layer: int, head: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return row and attention weight of the strongest key, and the activity, each (typed token,).

    None for a pruned head.
    """
    number, keys, shares, lengths = index.layers.index(layer), [], [], []
    for shard in index.shards:
        keys.append(shard.part("keys", number)[head, :, 0].astype(np.int64))
        shares.append(shard.part("weights", number)[head, :, 0].astype(np.float32))
        scale, length = shard.part("head_scales", number)[head]
        lengths.append(scale * length)
    rows = corpus.typed_rows
    activity = np.concatenate(lengths)[rows]
    if not np.isfinite(activity).all():
        return None
    mean = float(activity.mean())
    return (
        corpus.sentence_start[rows] + np.concatenate(keys)[rows], np.concatenate(shares)[rows],
        activity / (mean or 1.0),
    )  # fmt: skip


def _baseline_shares(corpus: Corpus, tokens: np.ndarray, window: int | None) -> dict[str, np.ndarray]:
    """Return, by property, the shares (group,) of random keys from the sentences of these tokens (row,).

    window: of a local layer, to which the keys are limited.
    """
    shares = {name: np.zeros(len(groups)) for name, (_, groups) in corpus.key_properties.items()}
    for queries, keys, weights in corpus.pairs(tokens, window):
        for name, (group_of, groups) in corpus.key_properties.items():
            shares[name] += np.bincount(group_of(queries, keys), weights, len(groups))
    return {name: counts / len(tokens) for name, counts in shares.items()}


def _expected_words(corpus: Corpus, window: int | None) -> np.ndarray:
    """Return how often each word would be the strongest key if keys were random within a window, (word,)."""
    counts = np.zeros(len(corpus.words))
    for _, keys, weights in corpus.pairs(corpus.typed_rows, window):
        counts += np.bincount(corpus.word_id[keys], weights, len(counts))
    return counts


def _group_shares(
    corpus: Corpus, tokens: np.ndarray, keys: np.ndarray, baseline: Mapping[str, np.ndarray]
) -> dict[str, tuple[GroupShare, ...]]:
    """Return, by property, the shares of the groups of the keys, without groups that neither side has.

    tokens, keys: (token,), rows. baseline: by property, (group,).
    """
    group_shares = {}
    for name, (group_of, groups) in corpus.key_properties.items():
        shares = np.bincount(group_of(tokens, keys), minlength=len(groups)) / len(keys)
        group_shares[name] = tuple(
            GroupShare(group or "added", share, chance)
            for group, share, chance in zip(groups, shares.tolist(), baseline[name].tolist(), strict=True)
            if share or chance
        )
    return group_shares


def _overrepresented_words(corpus: Corpus, keys: np.ndarray, expected: np.ndarray) -> tuple[WordCount, ...]:
    """Return the words that are strongest keys most clearly more often than expected. expected: (word,)."""
    times = np.bincount(corpus.word_id[keys[~corpus.special[keys]]], minlength=len(corpus.words))
    best = most_overrepresented(times, expected, MAX_WORDS)
    return tuple(WordCount(corpus.words[word], int(times[word]), float(expected[word])) for word in best)


def _frequent_pairs(corpus: Corpus, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and counts of the most frequent pairs of a typed token and its strongest key, both (pair,).

    A key that is [CLS], [SEP] or a piece of the token's own word does not count.
    """
    is_word = ~corpus.special[keys] & (corpus.word_number[keys] != corpus.word_number[corpus.typed_rows])
    codes, times = np.unique(_pair_codes(corpus, corpus.typed_rows[is_word], keys[is_word]), return_counts=True)
    frequent = np.flatnonzero(times >= MIN_COUNT)
    frequent = frequent[np.argsort(-times[frequent], kind="stable")[:MAX_CANDIDATES]]
    return codes[frequent], times[frequent]


def _pair_codes(corpus: Corpus, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return a number for each pair of words. queries, keys: (pair,), rows."""
    codes: np.ndarray = corpus.word_id[queries] * len(corpus.words) + corpus.word_id[keys]
    return codes


def _overrepresented_pairs(
    corpus: Corpus, frequent_pairs: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray]], window: int | None
) -> dict[tuple[int, int], tuple[WordCount, ...]]:
    """Return the pairs of words of each head that are most clearly more frequent than expected.

    frequent_pairs: codes and counts of `_frequent_pairs`, by head. window: of the layers of these heads.
    """
    all_codes = np.unique(np.concatenate([np.zeros(0, np.int64), *(codes for codes, _ in frequent_pairs.values())]))
    expected_counts = np.zeros(len(all_codes))
    for queries, keys, weights in corpus.pairs(corpus.typed_rows, window) if len(all_codes) else ():
        codes = _pair_codes(corpus, queries, keys)
        indices = np.minimum(np.searchsorted(all_codes, codes), len(all_codes) - 1)
        is_counted = (all_codes[indices] == codes) & (corpus.word_number[keys] != corpus.word_number[queries])
        expected_counts += np.bincount(indices[is_counted], weights[is_counted], len(all_codes))
    word_pairs = {}
    for pair, (codes, times) in frequent_pairs.items():
        expected = expected_counts[np.searchsorted(all_codes, codes)]
        word_pairs[pair] = tuple(
            WordCount(
                corpus.words[codes[row] % len(corpus.words)], int(times[row]), float(expected[row]),
                corpus.words[codes[row] // len(corpus.words)],
            )
            for row in most_overrepresented(times, expected, MAX_WORDS)
        )  # fmt: skip
    return word_pairs


def _example(corpus: Corpus, number: int, keys: np.ndarray, shares: np.ndarray, activity: np.ndarray) -> HeadExample:
    """Return a typed token with its strongest key. number: its index among the typed tokens."""
    query, key = corpus.row(int(corpus.typed_rows[number])), corpus.row(int(keys[number]))
    return HeadExample(
        query["document"], query["line"], query["sentence_text"], (query["start"], query["end"]),
        None if key["word"] is None else (key["start"], key["end"]), key["piece"],
        float(shares[number]), float(activity[number]),
    )  # fmt: skip


def _similar_heads(
    pair: tuple[int, int],
    strongest_keys: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]],
    top: np.ndarray,
) -> tuple[tuple[int, int, float], ...]:
    """Return the heads with the largest share of equal strongest keys where a head is most active.

    Elsewhere most heads attend to [CLS] or [SEP], so that unrelated heads would appear similar.
    top: (token,), indices of the most active tenth among the typed tokens.
    """
    top_keys = strongest_keys[pair][0][top]
    similarities = [
        (*second, float((keys[top] == top_keys).mean()))
        for second, (keys, _, _) in strongest_keys.items()
        if second != pair
    ]
    return tuple(sorted(similarities, key=lambda item: -item[2])[:MAX_SIMILAR_HEADS])

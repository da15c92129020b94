"""Profiles of neurons: the tokens of a corpus at which a neuron is most active, compared with all typed tokens.

An index stores no activations, so its sentences are run again through the model that made the index.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.config import check_part_number, head_pairs
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.refused import MAX_SEED, Refused, require_int, validate_arguments
from bert_core.run.states import iter_activations
from bert_core.studies.corpus import read_corpus, sample_by_decile
from bert_core.studies.index_reader import Index
from bert_core.studies.profiles import NeuronProfile

MAX_WORDS = 12  # words in a profile
MAX_SIMILAR_NEURONS = 5
MAX_ACTIVATIONS = 2**27  # of all neurons together, 4 bytes each


@validate_arguments
def neuron_profiles(
    index: Index,
    loaded: LoadedModel,
    neurons: Sequence[tuple[int, int]],
    *,
    examples: int = 3,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> tuple[NeuronProfile, ...]:
    """Compute the profiles of neurons over the corpus of an index. Pruned neurons have no profile.

    index: the index.
    loaded: the model that made the index.
    neurons: (layer, neuron) pairs.
    examples: number of random example tokens from each tenth of the activations. There are twice as many of the
        strongest.
    seed: random seed of the examples.
    report: called with the number of tokens done, see `Progress`.

    Returns the profiles by layer and neuron.
    Raises Refused for a neuron that does not exist, another model, an index without a typed token, a damaged shard, and
    more neurons and tokens than fit in memory.
    """
    examples, seed = require_int("examples", examples, 1, 100), require_int("seed", seed, 0, MAX_SEED)
    pairs = _existing_neurons(loaded, neurons)
    index.check_model(loaded)
    corpus = read_corpus(index)
    if not len(corpus.typed_rows):
        raise Refused(f"{index.folder} contains no typed token, so neurons have no profile")
    if len(pairs) * len(corpus.special) > MAX_ACTIVATIONS:
        raise Refused(
            f"{len(pairs)} neurons at {len(corpus.special):,} tokens do not fit in memory: choose at most "
            f"{max(MAX_ACTIVATIONS // len(corpus.special), 1)} neurons at a time"
        )
    if not pairs:
        return ()
    activations = _compute_activations(index, loaded, pairs, report)
    typed_activations = activations[:, corpus.typed_rows]
    spread = typed_activations.std(1, dtype=np.float64)
    # Centred rows of norm 1, whose dot products are correlations.
    norms = np.maximum(spread * len(corpus.typed_rows) ** 0.5, 1e-9)
    standardised = (typed_activations - typed_activations.mean(1, keepdims=True)) / norms[:, None]
    correlations = standardised @ standardised.T
    word_counts, previous_counts = corpus.word_counts(corpus.typed_rows), corpus.word_counts(corpus.typed_rows, -1)
    profiles = []
    for number, (pair, values) in enumerate(zip(pairs, typed_activations, strict=True)):
        deciles, tenths = sample_by_decile(values, examples, np.random.default_rng([seed, *pair]))
        top = corpus.typed_rows[values >= deciles[-2]]
        strongest = np.argsort(-values, kind="stable")[: 2 * examples].tolist()
        profiles.append(NeuronProfile(
            *pair, len(values), float(values.mean(dtype=np.float64)), float(spread[number]), float((values > 0).mean()),
            float(activations[number, corpus.special].mean()) if corpus.special.any() else 0.0,
            corpus.property_bars(top), corpus.overrepresented_words(top, word_counts, MAX_WORDS),
            corpus.overrepresented_words(top, previous_counts, MAX_WORDS, -1), tuple(deciles.tolist()),
            tuple(corpus.examples(corpus.typed_rows, values, tenth) for tenth in tenths),
            corpus.examples(corpus.typed_rows, values, strongest),
            _similar_neurons(pairs, correlations[number], number),
        ))  # fmt: skip
    return tuple(profiles)


def _existing_neurons(loaded: LoadedModel, neurons: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the neurons that are not pruned, each once, in order. Raises Refused for one that does not exist."""
    config, existing = loaded.config, set()
    for layer, neuron in head_pairs(neurons, "neuron"):
        check_part_number("neuron", layer, neuron, config.num_hidden_layers, config.intermediate_size)
        if neuron in config.neurons_of(layer):
            existing.add((layer, neuron))
    return sorted(existing)


def _compute_activations(
    index: Index, loaded: LoadedModel, pairs: Sequence[tuple[int, int]], report: Progress
) -> np.ndarray:
    """Return the activations at every token of the index including [CLS] and [SEP], float32 (neuron, token)."""
    layers = sorted({layer for layer, _ in pairs})
    rows = {layer: np.flatnonzero([layer == neuron_layer for neuron_layer, _ in pairs]) for layer in layers}
    columns = {
        layer: np.searchsorted(loaded.config.neurons_of(layer), [pairs[row][1] for row in rows[layer].tolist()])
        for layer in layers
    }
    activations = np.empty((len(pairs), sum(shard.tokens for shard in index.shards)), np.float32)
    start = 0
    for shard in index.shards:
        encodings = [loaded.tokenizer.encode(text, max_length=index.settings.max_length) for text in shard.texts]
        firsts = np.cumsum([0, *map(len, encodings)])
        if firsts[-1] != shard.tokens:
            raise Refused(
                f"{loaded.name} now reads {firsts[-1]:,} tokens where {index.folder} has {shard.tokens:,}: make the "
                "index again"
            )
        for numbers, layer, values in iter_activations(loaded, encodings, layers):
            tokens = start + np.concatenate([np.arange(firsts[number], firsts[number + 1]) for number in numbers])
            activations[np.ix_(rows[layer], tokens)] = values[:, columns[layer]].T
        start += shard.tokens
        report_count(report, start, activations.shape[1], "tokens")
    return activations


def _similar_neurons(
    pairs: Sequence[tuple[int, int]], correlations: np.ndarray, number: int
) -> tuple[tuple[int, int, float], ...]:
    """Return the neurons with the highest correlations (neuron,) with the neuron of this number."""
    order = [second for second in np.argsort(-correlations, kind="stable").tolist() if second != number]
    return tuple((*pairs[second], float(correlations[second])) for second in order[:MAX_SIMILAR_NEURONS])

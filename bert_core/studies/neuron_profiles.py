"""The profiles of neurons: at which tokens of a corpus some of them fire, beside what any typed token is.

An index keeps no activations: its sentences are read again by the model that it was made with.
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

SHOWN = 12  # words
ALIKE = 5  # neurons
LARGEST = 2**27  # activations, of all neurons together: 4 bytes each


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
    """The profiles of some neurons over all that an index holds.

    loaded: the model that the index was made with. neurons: (layer, neuron) each. examples: tokens from every tenth of
    the activations, and twice as many of the strongest. seed: of what is drawn. report: told how far the reading is.
    A neuron that was pruned has no profile.
    Raises Refused for a neuron that the model does not have, another model, an index without a typed token, more than
    fits, or a broken shard.
    """
    examples, seed = require_int("examples", examples, 1, 100), require_int("seed", seed, 0, MAX_SEED)
    asked = _asked(loaded, neurons)
    index.check_model(loaded)
    corpus = read_corpus(index)
    if not len(corpus.typed_rows):
        raise Refused(f"{index.folder} holds no typed token, so there is nothing to say of a neuron")
    if len(asked) * len(corpus.special) > LARGEST:
        raise Refused(
            f"{len(asked)} neurons at {len(corpus.special):,} tokens do not fit in memory: ask for "
            f"{max(LARGEST // len(corpus.special), 1)} neurons at a time"
        )
    if not asked:
        return ()
    fired = _fired(index, loaded, asked, report)
    typed = fired[:, corpus.typed_rows]
    spread = typed.std(1, dtype=np.float64)
    # Rows of length 1 around their mean, so that their products are correlations.
    around = (typed - typed.mean(1, keepdims=True)) / np.maximum(spread * len(corpus.typed_rows) ** 0.5, 1e-9)[:, None]
    alike = around @ around.T
    of_words, before = corpus.word_counts(corpus.typed_rows), corpus.word_counts(corpus.typed_rows, -1)
    found = []
    for number, (pair, values) in enumerate(zip(asked, typed, strict=True)):
        deciles, tenths = sample_by_decile(values, examples, np.random.default_rng([seed, *pair]))
        top = corpus.typed_rows[values >= deciles[-2]]
        strongest = np.argsort(-values, kind="stable")[: 2 * examples].tolist()
        found.append(NeuronProfile(
            *pair, len(values), float(values.mean(dtype=np.float64)), float(spread[number]), float((values > 0).mean()),
            float(fired[number, corpus.special].mean()) if corpus.special.any() else 0.0,
            corpus.property_bars(top), corpus.overrepresented_words(top, of_words, SHOWN),
            corpus.overrepresented_words(top, before, SHOWN, -1), tuple(deciles.tolist()),
            tuple(corpus.examples(corpus.typed_rows, values, tenth) for tenth in tenths),
            corpus.examples(corpus.typed_rows, values, strongest), _most_alike(asked, alike[number], number),
        ))  # fmt: skip
    return tuple(found)


def _asked(loaded: LoadedModel, neurons: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that the model has, each once, in order."""
    config, found = loaded.config, set()
    for layer, neuron in head_pairs(neurons, "neuron"):
        check_part_number("neuron", layer, neuron, config.num_hidden_layers, config.intermediate_size)
        if neuron in config.neurons_of(layer):
            found.add((layer, neuron))
    return sorted(found)


def _fired(
    index: Index, loaded: LoadedModel, asked: Sequence[tuple[int, int]], report: Progress
) -> np.ndarray:  # fmt: skip
    """The activations (neuron, token) at every token of the index, the added ones too."""
    layers = sorted({layer for layer, _ in asked})
    rows = {layer: np.flatnonzero([of == layer for of, _ in asked]) for layer in layers}
    places = {
        layer: np.searchsorted(loaded.config.neurons_of(layer), [asked[row][1] for row in rows[layer].tolist()])
        for layer in layers
    }
    fired, done = np.empty((len(asked), sum(shard.tokens for shard in index.shards)), np.float32), 0
    for shard in index.shards:
        encodings = [loaded.tokenizer.encode(text, max_length=index.settings.max_length) for text in shard.texts]
        firsts = np.cumsum([0, *map(len, encodings)])
        if firsts[-1] != shard.tokens:
            raise Refused(
                f"{loaded.name} now reads {firsts[-1]:,} tokens where {index.folder} has {shard.tokens:,}: make it "
                "again"
            )
        for some, layer, values in iter_activations(loaded, encodings, layers):
            at = done + np.concatenate([np.arange(firsts[text], firsts[text + 1]) for text in some])
            fired[np.ix_(rows[layer], at)] = values[:, places[layer]].T
        done += shard.tokens
        report_count(report, done, fired.shape[1], "tokens")
    return fired


def _most_alike(
    asked: Sequence[tuple[int, int]], correlations: np.ndarray, number: int
) -> tuple[tuple[int, int, float], ...]:  # fmt: skip
    order = [other for other in np.argsort(-correlations, kind="stable").tolist() if other != number]
    return tuple((*asked[other], float(correlations[other])) for other in order[:ALIKE])

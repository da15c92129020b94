"""Slow work of the page MLP neurons: activations, promoted words, attribution, and suppression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_core.analysis.neurons import StrongestNeurons, strongest_neurons
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import NeuronAttribution, NeuronRun, NeuronWords, Suppression, Target
from bert_core.run.memory import forward_bytes, gradient_bytes
from bert_core.run.neurons import neuron_activations, neuron_gradients, neuron_words, promoted_words, suppress_neurons
from bert_core.tokenizer import Encoding
from viz_app.shell.lenses import translators_of
from viz_app.shell.selection import Selection
from viz_app.shell.work import cached, estimate_seconds, wait_for, work

NEURONS_PER_TOKEN = 10  # strongest neurons of a layer that are listed for a token
WORDS = 8  # most promoted, and most suppressed, words of a neuron
STEPS = 20  # of the integration from no active neuron
DRAWS = 10  # of random neurons


def inputs(selection: Selection) -> tuple[LoadedModel, Encoding, np.ndarray]:
    """Return the first arguments of all functions of this module: model, encoding and head mask."""
    return selection.loaded, selection.encoding, selection.head_mask


def _activation_bytes(model: LoadedModel, encoding: Encoding, _: object) -> int:
    arrays = 3 if model.config.layer_design.gated else 1
    return 8 * arrays * model.config.num_hidden_layers * len(encoding) * model.config.intermediate_size


@work("{model} reads {encoding} tokens", memory=_activation_bytes)
def read_activations(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray) -> NeuronRun:
    """Return the activation of every neuron at every token."""
    return neuron_activations(model, encoding, head_mask=head_mask)


@cached
def strongest(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray, ranked: str) -> StrongestNeurons:
    """Return the strongest neurons of each layer at each token. ranked: by what is "added", or how each "fires"."""
    run = wait_for(read_activations(model, encoding, head_mask))
    return strongest_neurons(run.contributions if ranked == "added" else run.activations, NEURONS_PER_TOKEN)


@work("{model}: promoted words")
def strongest_words(
    model: LoadedModel, encoding: Encoding, head_mask: np.ndarray, ranked: str, tuned: bool
) -> np.ndarray:
    """Return the word (layer, token) that the strongest neuron of each layer promotes at each token; -1 for none.

    tuned: whether the tuned lens reads them, else the logit lens.
    """
    neurons = strongest(model, encoding, head_mask, ranked).neurons[..., 0]
    translators = translators_of(model) if tuned else None
    return promoted_words(model, encoding, neurons, translators=translators, head_mask=head_mask)


@work("{model}: words promoted by {neurons} neurons")
def promote_words(
    model: LoadedModel, encoding: Encoding, head_mask: np.ndarray,
    layer: int, neurons: Sequence[int], positions: Sequence[int] | None, tuned: bool,
) -> NeuronWords:  # fmt: skip
    """Return the words that neurons of a layer promote at some positions, or on average over the text if None.

    tuned: whether the tuned lens reads them, else the logit lens.
    """
    options: dict[str, Any] = {"translators": translators_of(model) if tuned else None, "head_mask": head_mask}
    return neuron_words(model, encoding, layer, neurons, positions, top_k=WORDS, **options)


@work(
    "{model}: integrated gradients over the neurons of each layer",
    # Forward and back is three passes, through the layers above: half of them on average.
    seconds=lambda model, encoding, *_: estimate_seconds(
        model, len(encoding), STEPS * 3 * model.config.num_hidden_layers / 2
    ),
    memory=lambda model, encoding, *_: gradient_bytes(model, len(encoding), 8),
)
def attribute_answer(
    model: LoadedModel, encoding: Encoding, head_mask: np.ndarray, target: Target, report: Progress = ignore_progress
) -> NeuronAttribution:
    """Attribute the answer to the neurons of each layer (integrated gradients)."""
    return neuron_gradients(model, encoding, target, steps=STEPS, head_mask=head_mask, report=report)


@work(
    "{model} without {neurons} neurons, and without random ones",
    seconds=lambda model, encoding, *_: estimate_seconds(model, len(encoding), DRAWS + 3),
    memory=lambda model, encoding, *_: forward_bytes(model, len(encoding), 1),
)
def suppress(
    model: LoadedModel, encoding: Encoding, head_mask: np.ndarray,
    target: Target, neurons: Sequence[tuple[int, int]], random_pool: str,
) -> Suppression:  # fmt: skip
    """Read the text without some neurons, (layer, neuron), and without as many random ones.

    random_pool: from which the random ones are drawn, "all" or "active".
    """
    options: dict[str, Any] = {"draws": DRAWS, "random_pool": random_pool, "head_mask": head_mask}
    return suppress_neurons(model, encoding, target, neurons, **options)

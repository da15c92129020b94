"""The strongest neurons of a text as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.analysis.neurons import StrongestNeurons
from bert_core.records import NeuronAttribution, NeuronRun


def neuron_columns(
    run: NeuronRun, strongest: StrongestNeurons, scores: NeuronAttribution | None = None
) -> dict[str, Sequence[object]]:
    """Return the columns of a table with a line for each of the strongest neurons of each layer at each token.

    The neurons of a gated network also have the columns "activated input" and "gate", whose product is the activation.
    strongest: those of the run. scores: the attribution of an answer to the neurons of all layers, as another column.
    """
    layer, position, place = np.nonzero(strongest.neurons >= 0)
    neuron = strongest.neurons[layer, position, place]
    tokens = [run.encoding.tokens[index] for index in position.tolist()]
    columns: dict[str, Sequence[object]] = {"layer": layer.tolist(), "position": position.tolist(), "token": tokens}
    columns |= {"place": (place + 1).tolist(), "neuron": neuron.tolist()}
    values = {**run.inputs, "activation": run.activations, "contribution": run.contributions}
    values |= {} if scores is None else {"score": scores.scores}
    return columns | {name: array[layer, position, neuron].tolist() for name, array in values.items()}

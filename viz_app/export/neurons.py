"""The strongest neurons of a text as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.analysis.neurons import StrongestNeurons
from bert_core.records import NeuronAttribution, NeuronRun


def neuron_columns(
    run: NeuronRun, strongest: StrongestNeurons, scores: NeuronAttribution | None = None
) -> dict[str, Sequence[object]]:
    """The columns of a table with a line for each of the strongest neurons of each layer at each token.

    found: those of the run. scores: what an answer rests on, of all layers; a column more.
    """
    layers, tokens, count = strongest.neurons.shape
    layer, position, place = (axis.ravel() for axis in np.indices((layers, tokens, count)))
    neuron = strongest.neurons.ravel()
    exists = neuron >= 0
    layer, position, place, neuron = (axis[exists] for axis in (layer, position, place, neuron))
    columns: dict[str, Sequence[object]] = {
        "layer": layer.tolist(), "position": position.tolist(),
        "token": [run.encoding.tokens[index] for index in position.tolist()], "place": (place + 1).tolist(),
        "neuron": neuron.tolist(), "fires": run.activations[layer, position, neuron].tolist(),
        "adds": run.contributions[layer, position, neuron].tolist(),
    }  # fmt: skip
    return columns | ({} if scores is None else {"score": scores.scores[layer, position, neuron].tolist()})

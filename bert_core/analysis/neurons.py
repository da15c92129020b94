"""The strongest feed-forward neurons of a text, and their share of the total."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_int, validate_arrays


@compared_by_value
class StrongestNeurons(NamedTuple):
    """The strongest neurons of each layer at each token, the strongest first.

    neurons: (layer, seq, rank) integers, -1 if a layer has fewer neurons.
    values: (layer, seq, rank), signed values of these neurons, NaN if a layer has fewer neurons.
    share: (layer, seq), their share of the sum of the absolute values of all neurons of the layer at the token, 0 to 1.
        NaN if all values are 0 or all neurons are pruned.
    """

    neurons: np.ndarray
    values: np.ndarray
    share: np.ndarray


@validate_arrays(values="layer seq neuron")
def strongest_neurons(values: np.ndarray, count: int = 10) -> StrongestNeurons:
    """Return the neurons with the largest absolute values of each layer at each token.

    values: (layer, seq, neuron), such as `NeuronRun.contributions` or `NeuronRun.activations`. A pruned neuron is NaN.
        Contributions rank a neuron with a short output vector low even if its activation is large.
    count: number of neurons. All neurons if the model has fewer.
    Raises Refused if a value is infinite.
    """
    count = min(require_int("count", count, 1), values.shape[-1])
    sizes = np.abs(values).astype(np.float64)
    if np.isinf(sizes).any():
        raise Refused("a value of a neuron is infinite: every value must be finite, or NaN for a pruned neuron")
    sort_keys = np.where(np.isnan(sizes), -1.0, sizes)
    first = np.argpartition(-sort_keys, count - 1, axis=-1)[..., :count]
    order = np.argsort(-np.take_along_axis(sort_keys, first, -1), axis=-1, kind="stable")
    neurons = np.take_along_axis(first, order, -1)
    strongest, total = np.take_along_axis(values, neurons, -1), np.nansum(sizes, -1)
    share = np.where(total > 0, np.nansum(np.abs(strongest), -1) / np.where(total > 0, total, 1), np.nan)
    return StrongestNeurons(np.where(np.isnan(strongest), -1, neurons), strongest, share)

"""Which neurons of a text stand out, and how much of all that is added is theirs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_int, validate_arrays


@compared_by_value
class StrongestNeurons(NamedTuple):
    """The strongest neurons of every layer at every token, the strongest first.

    neurons: (layer, seq, some) integers, -1 where a layer has fewer. values: the same shape, theirs, signed; NaN there.
    share: (layer, seq), their part of the sum of the sizes of all neurons there, 0 to 1; NaN where all are 0 or gone.
    """

    neurons: np.ndarray
    values: np.ndarray
    share: np.ndarray


@validate_arrays(values="layer seq neuron")
def strongest_neurons(values: np.ndarray, count: int = 10) -> StrongestNeurons:
    """The neurons with the largest values of either sign, of each layer at each token.

    values: (layer, seq, neuron), such as `NeuronRun.added` or its activations; NaN for a neuron that was pruned.
    count: how many; all where a model has fewer.
    Ranked by what they add, a neuron with a short vector stands far behind however strongly it fires.
    Raises Refused for a number that is infinite.
    """
    count = min(require_int("count", count, 1), values.shape[-1])
    sizes = np.abs(values).astype(np.float64)
    if np.isinf(sizes).any():
        raise Refused("a value is infinite: the strongest of such have no order")
    ordered = np.where(np.isnan(sizes), -1.0, sizes)
    first = np.argpartition(-ordered, count - 1, axis=-1)[..., :count]
    order = np.argsort(-np.take_along_axis(ordered, first, -1), axis=-1, kind="stable")
    neurons = np.take_along_axis(first, order, -1)
    own, total = np.take_along_axis(values, neurons, -1), np.nansum(sizes, -1)
    share = np.where(total > 0, np.nansum(np.abs(own), -1) / np.where(total > 0, total, 1), np.nan)
    return StrongestNeurons(np.where(np.isnan(own), -1, neurons), own, share)

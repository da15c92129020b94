"""Which neurons of a text stand out, and how much of all that is added is theirs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.refused import Refused, shaped, whole


class Strongest(NamedTuple):
    """The strongest neurons of every layer at every token, the strongest first.

    neurons: (layer, seq, some) integers. values: the same shape, theirs, signed. share: (layer, seq), their part of the
    sum of the sizes of all neurons there, 0 to 1; NaN where all are 0.
    """

    neurons: np.ndarray
    values: np.ndarray
    share: np.ndarray


@shaped(values="layer seq neuron")
def strongest_neurons(values: np.ndarray, count: int = 10) -> Strongest:
    """The neurons with the largest values of either sign, of each layer at each token.

    values: (layer, seq, neuron), such as `NeuronRun.added` or its activations; NaN for a neuron that was pruned, which
    comes last. count: how many; all where there are fewer.
    Ranked by what they add, a neuron with a short vector stands far behind however strongly it fires.
    Raises Refused for a layer without any neuron, or a number that is infinite.
    """
    count = min(whole("count", count, 1), values.shape[-1])
    sizes = np.abs(values).astype(np.float64)
    there = ~np.isnan(sizes)
    if not there.any(-1).all():
        layer, token = np.argwhere(~there.any(-1))[0]
        raise Refused(f"layer {layer} has no neuron at token {token}: there is no strongest")
    if np.isinf(sizes).any():
        raise Refused("a value is infinite: the strongest of such has no order")
    ordered = np.where(there, sizes, -1.0)
    first = np.argpartition(-ordered, count - 1, axis=-1)[..., :count]
    order = np.argsort(-np.take_along_axis(ordered, first, -1), axis=-1, kind="stable")
    neurons = np.take_along_axis(first, order, -1)
    total = np.nansum(sizes, -1)
    own = np.nansum(np.take_along_axis(sizes, neurons, -1), -1)
    share = np.where(total > 0, own / np.where(total > 0, total, 1), np.nan)
    return Strongest(neurons, np.take_along_axis(values, neurons, -1), share)

"""Attention through all layers at once: how much of each input position reaches each position at the top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Capacities are whole numbers for the solver. One unit is 2e-9 of a row, and no sum leaves 32 bits.
_UNITS = 2**29


def mean_of_heads(maps: np.ndarray) -> np.ndarray:
    """The mean map of the heads that there are; zeros where a layer has none.

    maps: (..., head, query, key), NaN throughout for a head that was pruned. Returns (..., query, key) float64.
    """
    there = ~np.isnan(maps).any((-2, -1), keepdims=True)
    if there.all():
        return np.asarray(maps.mean(-3, dtype=np.float64))
    total = np.where(there, maps, 0).sum(-3, dtype=np.float64)
    mean: np.ndarray = total / np.maximum(there.sum(-3), 1)
    return mean


def layer_mixing(attention: np.ndarray) -> np.ndarray:
    """Half the mean map of a layer's heads, and half the identity for the residual connection.

    attention: (layer, head, query, key), probabilities. Returns (layer, query, key); every row sums to 1. Of a layer
    whose heads were all pruned only the residual connection is left: the identity.
    Raises ValueError if a row does not sum to 1, say that of a head that is switched off.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    if attention.ndim != 4 or attention.shape[-1] != attention.shape[-2]:
        raise ValueError(f"attention is {attention.shape}: (layer, head, query, key), with as many queries as keys")
    sums = attention.sum(-1)
    sums = sums[~np.isnan(sums)]
    if not np.allclose(sums, 1, atol=1e-3):
        raise ValueError(f"a row of attention sums to {sums[np.abs(sums - 1).argmax()]:.3g}: every row sums to 1")
    mixing = mean_of_heads(attention) + np.eye(attention.shape[-1])
    normalised: np.ndarray = mixing / mixing.sum(-1, keepdims=True)
    return normalised


def product_of_layers(maps: np.ndarray) -> np.ndarray:
    """Each layer's map times those of all layers below it: from every layer's output back to the input.

    maps: (layer, query, key). Returns the same shape; where every row of the maps sums to 1, so does every row here.
    """
    through = np.empty(maps.shape, np.float64)
    for layer, one in enumerate(maps):
        through[layer] = one if layer == 0 else one @ through[layer - 1]
    return through


def attention_rollout(attention: np.ndarray) -> np.ndarray:
    """How much of each input position reaches each position after every layer, residuals included.

    attention: (layer, head, query, key), probabilities, each row sums to 1.
    Returns (layer, query, key): every row sums to 1. It knows nothing of any target.
    Raises ValueError if a row does not sum to 1 (say, a head that is off): renormalise first.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    return product_of_layers(layer_mixing(attention))


def attention_flow(
    attention: np.ndarray, queries: Sequence[int] | None = None, *, normalise: bool = True
) -> np.ndarray:
    """The largest flow from positions at the top to each input position, attention and residuals being the pipes.

    attention: (layer, head, query, key), probabilities, each row sums to 1.
    queries: positions at the top; None means all. One row costs as many flows as there are tokens.
    normalise: make every row sum to 1, as the authors do; else each number is a flow, at most 1.
    Returns (query, key). Two cuts bound every flow: what leaves the position at the top, which is 1, and what enters
    the input position in the first layer. Through many layers the smaller of the two is often the flow, whatever lies
    between, and the rows are then much alike.
    Raises ValueError if a row does not sum to 1, or a position does not exist.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    mixing = layer_mixing(attention)
    layers, length, _ = mixing.shape
    wanted = range(length) if queries is None else queries
    for query in wanted:
        if not 0 <= query < length:
            raise ValueError(f"position {query} does not exist: this map has positions 0 to {length - 1}")
    if layers == 1:
        flow: np.ndarray = mixing[0][list(wanted)]
    else:
        flow = np.empty((len(wanted), length))
        pipes = _Pipes(mixing)
        for row, query in enumerate(wanted):
            for key in range(length):
                flow[row, key] = pipes.flow(query, key)
    if normalise:
        flow /= flow.sum(-1, keepdims=True)
    return flow


class _Pipes:
    """The layered graph from one position at the top to one at the bottom, made once for all pairs of them.

    Nodes: the source, the positions between the layers from the top down, the sink. Only the first and the last row
    of pipes depend on the pair, so only their capacities are written anew.
    """

    def __init__(self, mixing: np.ndarray) -> None:
        """mixing: (layer, query, key), two layers or more."""
        # Imported here: it takes longer than everything else in this file, and most analyses do without.
        from scipy.sparse import csr_array

        layers, length, _ = mixing.shape
        self._capacities = np.rint(mixing * _UNITS).astype(np.int32)
        between = (layers - 1) * length
        below = np.arange(1, between - length + 1).reshape(layers - 2, length) + length
        columns = np.concatenate(
            [
                np.arange(1, length + 1),
                np.repeat(below[:, None, :], length, axis=1).ravel(),
                np.full(length, between + 1),
            ]
        )
        degrees = [length] + [length] * (between - length) + [1] * length + [0]
        data = np.empty(len(columns), np.int32)
        data[length:-length] = self._capacities[1:-1][::-1].ravel()
        starts = np.concatenate([[0], np.cumsum(degrees)])
        self._sink, self._length = between + 1, length
        self._graph = csr_array((data, columns.astype(np.int32), starts.astype(np.int32)), shape=(between + 2,) * 2)

    def flow(self, query: int, key: int) -> float:
        """The largest flow from a position at the top to one at the bottom, in units of a row."""
        from scipy.sparse.csgraph import maximum_flow

        self._graph.data[: self._length] = self._capacities[-1, query]
        self._graph.data[-self._length :] = self._capacities[0, :, key]
        return float(maximum_flow(self._graph, 0, self._sink).flow_value) / _UNITS

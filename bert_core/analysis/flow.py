"""Attention through all layers at once: how much of each input position reaches each position at the top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.refused import Refused, require_int, require_sequence, validate_arguments, validate_arrays

# Capacities are whole numbers for the solver. One unit is 2e-9 of a row, and no sum leaves 32 bits.
_UNITS = 2**29
_PIPES_AT_ONCE = 50_000  # of one call of the solver: a call has its price, whatever it solves
_WIDEST = 6  # pipes in and out of a position that are tried before all are, or one in eight of a long text's


@validate_arrays(maps="... head query key")
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


@validate_arrays(attention="layer head seq seq")
def layer_mixing(attention: np.ndarray) -> np.ndarray:
    """Half the mean map of a layer's heads, and half the identity for the residual connection.

    attention: (layer, head, query, key), probabilities. Returns (layer, query, key); every row sums to 1. Of a layer
    whose heads were all pruned only the residual connection is left: the identity.
    Raises Refused if a row does not sum to 1, say that of a head that is switched off.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    check_rows(attention)
    mixing = mean_of_heads(attention) + np.eye(attention.shape[-1])
    normalised: np.ndarray = mixing / mixing.sum(-1, keepdims=True)
    return normalised


def check_rows(attention: np.ndarray, tolerance: float = 1e-3) -> None:
    """Raise Refused unless every row of some maps (..., query, key) sums to 1 and has no negative number.

    tolerance: how far from 1 a sum may be. Rows that hold NaN, as of a head that was pruned, are let through.
    """
    sums = attention.sum(-1)
    sums = sums[~np.isnan(sums)]
    if not np.allclose(sums, 1, atol=tolerance):
        raise Refused(f"a row of attention sums to {sums[np.abs(sums - 1).argmax()]:.3g}: every row sums to 1")
    if (attention < 0).any():
        raise Refused(f"a probability is {np.nanmin(attention):.3g}: it is from 0 to 1")


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
    Raises Refused if a row does not sum to 1 (say, a head that is off): renormalise first.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    return product_of_layers(layer_mixing(attention))


@validate_arguments
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
    Raises Refused if a row does not sum to 1, or a position does not exist.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    mixing = layer_mixing(attention)
    layers, length, _ = mixing.shape
    given = range(length) if queries is None else require_sequence("queries", queries, "positions")
    wanted = [require_int("a position", query, None) for query in given]
    for query in wanted:
        if not 0 <= query < length:
            raise Refused(f"position {query} does not exist: this map has positions 0 to {length - 1}")
    if layers == 1:
        flow: np.ndarray = mixing[0][wanted]
    else:
        capacities = np.rint(mixing * _UNITS).astype(np.int32)
        flow = _all_flows(capacities, wanted) / _UNITS
    if normalise:
        flow /= flow.sum(-1, keepdims=True)
    return flow


def _all_flows(capacities: np.ndarray, queries: Sequence[int]) -> np.ndarray:
    """The largest flows from some positions at the top to all at the bottom, (query, key) int64.

    capacities: (layer, query, key) int32, two layers or more.
    """
    every = np.arange(capacities.shape[-1])
    into = capacities[0].sum(0, dtype=np.int64)
    narrow, whole = _Pipes(capacities, max(_WIDEST, len(every) // 8)), _Pipes(capacities, len(every))
    flows = np.empty((len(queries), len(every)), np.int64)
    for row, query in zip(flows, queries, strict=True):
        # What fills a cut even through the widest pipes alone is the largest flow there is.
        row[:] = narrow.flows(query, every)
        short = np.nonzero(row < np.minimum(into, capacities[-1, query].sum(dtype=np.int64)))[0]
        row[short] = whole.flows(query, short)
    return flows


class _Pipes:
    """The layered graph from a position at the top to one at the bottom, as many times side by side as one call holds.

    Nodes: the source, of each copy the positions between the layers from the top down, the sink. Copies meet nowhere
    else, so each has its own largest flow. Only the first and the last row of pipes depend on the ends, and only their
    capacities are written anew.
    """

    def __init__(self, capacities: np.ndarray, widest: int) -> None:
        """capacities: (layer, query, key) int32, two layers or more.

        widest: how many pipes stay in and out of a position, all being there at both ends.
        """
        # Imported here: it takes longer than everything else in this file, and most analyses do without.
        from scipy.sparse import csr_array

        self._capacities = capacities
        layers, length, _ = capacities.shape
        between = capacities[-2:0:-1]  # from the top down
        kept = _is_widest(between, widest) | _is_widest(between.swapaxes(1, 2), widest).swapaxes(1, 2)
        layer, _, key = np.nonzero(kept)
        nodes, inner = (layers - 1) * length, (layer + 1) * length + key
        copies = min(length, max(1, _PIPES_AT_ONCE // (len(inner) + 2 * length)))
        first_node, sink = 1 + nodes * np.arange(copies)[:, None], 1 + nodes * copies
        lower = np.hstack([first_node + inner, np.full((copies, length), sink)])
        columns = np.concatenate([(first_node + np.arange(length)).ravel(), lower.ravel()])
        degrees = np.concatenate([[copies * length], np.tile([*kept.sum(-1).ravel(), *[1] * length], copies), [0]])
        starts = np.concatenate([[0], np.cumsum(degrees)])
        data = np.empty(len(columns), np.int32)
        self._graph = csr_array((data, columns.astype(np.int32), starts.astype(np.int32)), shape=(sink + 1, sink + 1))
        self._first = data[: copies * length].reshape(copies, length)
        rest = data[copies * length :].reshape(copies, -1)
        rest[:, :-length], self._last = between[kept], rest[:, -length:]

    def flows(self, query: int, keys: np.ndarray) -> np.ndarray:
        """The largest flows from a position at the top to some at the bottom, (key,) int64."""
        from scipy.sparse.csgraph import maximum_flow

        copies, length = self._first.shape
        totals = [np.empty(0, np.int64)]
        self._first[:] = self._capacities[-1, query]
        for some in np.split(keys, range(copies, len(keys), copies)):
            self._last[: len(some)], self._last[len(some) :] = self._capacities[0].T[some], 0
            flow = maximum_flow(self._graph, 0, self._graph.shape[0] - 1).flow
            leaving = flow.data[: copies * length].reshape(copies, length)  # the source is the first row
            totals.append(leaving.sum(1, dtype=np.int64)[: len(some)])
        return np.concatenate(totals)


def _is_widest(capacities: np.ndarray, widest: int) -> np.ndarray:
    """Whether a capacity is among the largest of its row, boolean, of the shape of the capacities.

    widest: how many of each row are; equal ones may be more.
    """
    length = capacities.shape[-1]
    if widest >= length:
        return np.ones(capacities.shape, bool)
    rank = np.partition(capacities, length - widest, -1)[..., length - widest, None]
    largest: np.ndarray = capacities >= rank
    return largest

"""Attention through all layers: attention rollout and attention flow from input positions to output positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.refused import (
    Refused,
    require_int,
    require_sequence,
    validate_arguments,
    validate_arrays,
)

# The solver needs integer capacities. One unit is 2e-9 of a row, and sums fit into 32 bits.
_UNITS = 2**29
_EDGES_PER_CALL = 50_000  # several flows share one call of the solver, because each call has a fixed cost
_MIN_EDGES = 6  # edges in and out of a position in the first attempt, or one eighth of the positions if that is more


@validate_arrays(maps="... head query key")
def mean_of_heads(maps: np.ndarray) -> np.ndarray:
    """Compute the mean map over the existing heads. A layer without heads has zeros.

    maps: (..., head, query, key). A pruned head is NaN.
    Returns (..., query, key) float64.
    """
    exists = ~np.isnan(maps).any((-2, -1), keepdims=True)
    if exists.all():
        return np.asarray(maps.mean(-3, dtype=np.float64))
    total = np.where(exists, maps, 0).sum(-3, dtype=np.float64)
    mean: np.ndarray = total / np.maximum(exists.sum(-3), 1)
    return mean


@validate_arrays(attention="layer head seq seq")
def layer_mixing(attention: np.ndarray) -> np.ndarray:
    """Compute the mixing matrix of each layer: the mean of its heads and the identity (residual) in equal parts.

    attention: (layer, head, query, key), attention probabilities.
    Returns (layer, query, key). Every row sums to 1. A layer without heads is the identity.
    Raises Refused if a row does not sum to 1, for example that of an ablated head.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    check_rows(attention)
    mixing = mean_of_heads(attention) + np.eye(attention.shape[-1])
    normalised: np.ndarray = mixing / mixing.sum(-1, keepdims=True)
    return normalised


def check_rows(attention: np.ndarray, tolerance: float = 1e-3) -> None:
    """Check that every row of attention maps (..., query, key) sums to 1 and has no negative number.

    tolerance: allowed distance of a sum from 1. Rows that contain NaN (pruned heads) are not checked.
    Raises Refused otherwise.
    """
    sums = attention.sum(-1)
    sums = sums[~np.isnan(sums)]
    if not np.allclose(sums, 1, atol=tolerance):
        raise Refused(f"a row of attention sums to {sums[np.abs(sums - 1).argmax()]:.3g}: every row must sum to 1")
    if (attention < 0).any():
        raise Refused(f"an attention weight is {np.nanmin(attention):.3g}: every weight must be between 0 and 1")


def product_of_layers(maps: np.ndarray) -> np.ndarray:
    """Multiply the map of each layer with those of all layers below it.

    maps: (layer, query, key).
    Returns (layer, query, key), from the output of each layer to the input. Rows sum to 1 if those of the maps do.
    """
    products = np.empty(maps.shape, np.float64)
    for layer, layer_map in enumerate(maps):
        products[layer] = layer_map if layer == 0 else layer_map @ products[layer - 1]
    return products


@validate_arrays(shares="layer seq seq")
def paths_to(shares: np.ndarray, positions: Sequence[int], threshold: float) -> np.ndarray:
    """Return the edges of a contribution graph that reach some positions of the last depth, from the top down.

    An edge belongs to the result if its share is at least the threshold, and a path of such edges leads from its query
    to one of the positions.
    shares: (layer, query, key), as of `contribution_graph`. threshold: smallest share, above 0 and at most 1.
    Returns (edge, 3) integers: layer, query and key, the last layer first.
    Raises Refused for a threshold outside its range, and for a position that does not exist.
    Source: Ferrando & Voita 2024, section 2 (arXiv:2403.00824).

    >>> import numpy as np
    >>> import bert_core
    >>> shares = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [1.0, 0.0]]])
    >>> bert_core.paths_to(shares, [0], 0.3).tolist()  # layer, query, key
    [[1, 0, 1], [0, 1, 0], [0, 1, 1]]
    """
    layers, length, _ = shares.shape
    if not 0 < threshold <= 1:
        raise Refused(f"the threshold of a share is {threshold:g}: it must be above 0 and at most 1")
    reached = np.zeros(length, bool)
    for position in require_sequence("positions", positions, "whole numbers"):
        reached[require_int("a position", position, 0, length - 1)] = True
    edges = []
    for layer in reversed(range(layers)):
        selected = reached[:, None] & (shares[layer] >= threshold)
        queries, keys = np.nonzero(selected)
        edges.append(np.stack([np.full(len(queries), layer), queries, keys], 1))
        reached = selected.any(0)
    return np.concatenate(edges)


def attention_rollout(attention: np.ndarray) -> np.ndarray:
    """Compute attention rollout: the share of each input position in each position after every layer.

    Residual connections are included. The result does not depend on any target.

    attention: (layer, head, query, key), attention probabilities. Each row sums to 1.
    Returns (layer, query, key). Every row sums to 1.
    Raises Refused if a row does not sum to 1, for example that of an ablated head. Renormalise such rows first.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> run = bert_core.capture(loaded, loaded.tokenizer.encode("She opened the [MASK] and walked in."))
    >>> rollout = bert_core.attention_rollout(run.attention)
    >>> rollout.shape  # (layer, query, key)
    (6, 10, 10)
    >>> bool((abs(rollout.sum(2) - 1) < 1e-6).all())
    True
    """
    return product_of_layers(layer_mixing(attention))


@validate_arguments
def attention_flow(
    attention: np.ndarray, queries: Sequence[int] | None = None, *, normalise: bool = True
) -> np.ndarray:
    """Compute attention flow: the maximum flow from output positions to each input position.

    The capacities are the attention weights and residual connections of `layer_mixing`.

    attention: (layer, head, query, key), attention probabilities. Each row sums to 1.
    queries: output positions, None for all. Each takes as many maximum flows as there are tokens.
    normalise: make every row sum to 1, as the authors do. Otherwise each number is a flow, at most 1.
    Returns (query, key). Every flow is bounded by the capacity out of the output position, which is 1, and by the
    capacity into the input position in the first layer. In models with many layers the flow often equals the smaller
    bound, so the rows are then similar.
    Raises Refused if a row does not sum to 1, or a position does not exist.
    Source: Abnar & Zuidema 2020, section 3 (arXiv:2005.00928).
    """
    mixing = layer_mixing(attention)
    layers, length, _ = mixing.shape
    positions = [
        require_int("a position", query, None)
        for query in (range(length) if queries is None else require_sequence("queries", queries, "positions"))
    ]
    for query in positions:
        if not 0 <= query < length:
            raise Refused(f"position {query} does not exist: the positions are 0 to {length - 1}")
    if layers == 1:
        flow: np.ndarray = mixing[0][positions]
    else:
        capacities = np.rint(mixing * _UNITS).astype(np.int32)
        flow = _all_flows(capacities, positions) / _UNITS
    if normalise:
        flow /= flow.sum(-1, keepdims=True)
    return flow


def _all_flows(capacities: np.ndarray, queries: Sequence[int]) -> np.ndarray:
    """Return the maximum flows from some output positions to all input positions, (query, key) int64.

    capacities: (layer, query, key) int32, at least two layers.
    """
    keys = np.arange(capacities.shape[-1])
    input_capacity = capacities[0].sum(0, dtype=np.int64)
    sparse, full = _FlowGraph(capacities, max(_MIN_EDGES, len(keys) // 8)), _FlowGraph(capacities, len(keys))
    flows = np.empty((len(queries), len(keys)), np.int64)
    for row, query in zip(flows, queries, strict=True):
        # A flow that reaches its upper bound through the largest edges alone is the maximum.
        row[:] = sparse.flows(query, keys)
        below_bound = np.nonzero(row < np.minimum(input_capacity, capacities[-1, query].sum(dtype=np.int64)))[0]
        row[below_bound] = full.flows(query, below_bound)
    return flows


class _FlowGraph:
    """Graph of the layers from one output position to one input position, in as many copies as fit into one call.

    Nodes: the source, the positions between the layers from the top down for each copy, and the sink. The copies share
    only the source and the sink, so each has its own maximum flow. Only the first and the last layer of edges depend on
    the two positions, so only their capacities are set for each call.
    """

    def __init__(self, capacities: np.ndarray, edge_count: int) -> None:
        """Build the graph.

        capacities: (layer, query, key) int32, at least two layers.
        edge_count: number of largest edges to keep at each position, in the layers between the first and the last.
        """
        # Imported here because it takes longer than the rest of the module, and most analyses do not need it.
        from scipy.sparse import csr_array

        self._capacities = capacities
        layers, length, _ = capacities.shape
        inner_capacities = capacities[-2:0:-1]  # from the top down
        selected = _is_largest(inner_capacities, edge_count) | _is_largest(
            inner_capacities.swapaxes(1, 2), edge_count
        ).swapaxes(1, 2)
        layer, _, key = np.nonzero(selected)
        nodes, inner = (layers - 1) * length, (layer + 1) * length + key
        copies = min(length, max(1, _EDGES_PER_CALL // (len(inner) + 2 * length)))
        first_node, sink = 1 + nodes * np.arange(copies)[:, None], 1 + nodes * copies
        lower = np.hstack([first_node + inner, np.full((copies, length), sink)])
        columns = np.concatenate([(first_node + np.arange(length)).ravel(), lower.ravel()])
        degrees = np.concatenate([[copies * length], np.tile([*selected.sum(-1).ravel(), *[1] * length], copies), [0]])
        starts = np.concatenate([[0], np.cumsum(degrees)])
        data = np.empty(len(columns), np.int32)
        self._graph = csr_array((data, columns.astype(np.int32), starts.astype(np.int32)), shape=(sink + 1, sink + 1))
        self._first = data[: copies * length].reshape(copies, length)
        lower_data = data[copies * length :].reshape(copies, -1)
        lower_data[:, :-length], self._last = inner_capacities[selected], lower_data[:, -length:]

    def flows(self, query: int, keys: np.ndarray) -> np.ndarray:
        """Return the maximum flows from one output position to some input positions, (key,) int64."""
        from scipy.sparse.csgraph import maximum_flow

        copies, length = self._first.shape
        totals = [np.empty(0, np.int64)]
        self._first[:] = self._capacities[-1, query]
        for chunk in np.split(keys, range(copies, len(keys), copies)):
            self._last[: len(chunk)], self._last[len(chunk) :] = self._capacities[0].T[chunk], 0
            flow = maximum_flow(self._graph, 0, self._graph.shape[0] - 1).flow
            source_flow = flow.data[: copies * length].reshape(copies, length)  # the source is the first row
            totals.append(source_flow.sum(1, dtype=np.int64)[: len(chunk)])
        return np.concatenate(totals)


def _is_largest(capacities: np.ndarray, count: int) -> np.ndarray:
    """Return whether each capacity is among the `count` largest of its row, or equal to one of these."""
    length = capacities.shape[-1]
    if count >= length:
        return np.ones(capacities.shape, bool)
    threshold = np.partition(capacities, length - count, -1)[..., length - count, None]
    largest: np.ndarray = capacities >= threshold
    return largest

"""Contribution graphs of a text, and the effect of blocking an edge of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.refused import require_int
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class ContributionGraph(Tabular):
    """The share of each position in each position of the next depth, for every layer of a text.

    A node is a position at a depth; an edge of layer n connects a key at depth n with a query at depth n + 1.
    method: name of the method.
    shares: (layer, query, key), 0 to 1. Each row sums to 1. The diagonal includes the residual connection.
    residual: (layer, query), the part of the diagonal that the residual connection carries.
    head_shares: (layer, head, query, key) float32, the part of each share that a head carries; 0 for a pruned head.
        The sum over heads, with the residual on the diagonal, equals the shares.
    """

    TABLES: ClassVar[Tables] = (
        ("layer query key", {"share": "shares"}),
        ("layer query", {"residual": "residual"}),
        ("layer head query key", {"head_share": "head_shares"}),
    )

    encoding: Encoding
    method: str
    shares: np.ndarray = field(repr=False)
    residual: np.ndarray = field(repr=False)
    head_shares: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        return int(self.shares.nbytes + self.residual.nbytes + self.head_shares.nbytes)

    def inputs_of(self, layer: int, query: int) -> np.ndarray:
        """Return the shares of a node in the output of a layer, (2, key): by attention, and by the residual connection.

        Both rows together sum to 1.
        Raises Refused if the layer or the position does not exist.
        """
        self.check_edge(layer, query, query)
        residual = np.zeros(self.shares.shape[-1])
        residual[query] = self.residual[layer, query]
        return np.stack([self.shares[layer, query] - residual, residual])

    def check_edge(self, layer: int, query: int, key: int) -> None:
        """Raise Refused unless the layer, the query and the key exist."""
        require_int("the layer of an edge", layer, 0, len(self.shares) - 1)
        require_int("the query of an edge", query, 0, self.shares.shape[-1] - 1)
        require_int("the key of an edge", key, 0, self.shares.shape[-1] - 1)


@compared_by_value
@dataclass(frozen=True)
class EdgeKnockout(Tabular):
    """The target of a text without the attention of an edge, and without random edges of equal size.

    layer, query, key: the blocked edge. heads: the blocked heads of its layer; None for all heads.
    size: share of the query that the blocked heads carry, 0 to 1.
    base_value, value: target with and without the edge.
    random_edges: (edge, 3) layer, query and key of each random edge. random_values: (edge,), target without it.
    """

    TABLES: ClassVar[Tables] = (("random_edge", {"value": "random_values", "effect": "random_effects"}),)

    encoding: Encoding
    target: Target
    layer: int
    query: int
    key: int
    heads: tuple[int, ...] | None
    size: float
    base_value: float
    value: float
    random_edges: np.ndarray = field(repr=False)
    random_values: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        layers, queries, keys = self.random_edges.T
        tokens = np.array(self.encoding.tokens, object)
        return {
            **super()._axis_columns(axis, size, axes), "layer": layers, "query_position": queries,
            "query": tokens[queries], "key_position": keys, "key": tokens[keys],
        }  # fmt: skip

    @property
    def effect(self) -> float:
        """The change of the target that blocking the edge causes, in its unit."""
        return self.value - self.base_value

    @property
    def random_effects(self) -> np.ndarray:
        """The change of the target that blocking each random edge causes, (edge,)."""
        effects: np.ndarray = self.random_values - self.base_value
        return effects

    @property
    def rank(self) -> int:
        """Rank of the edge by the size of its effect among itself and the random edges, 1 for the largest."""
        return 1 + int((np.abs(self.random_effects) > abs(self.effect)).sum())

    @property
    def percentile(self) -> float:
        """Percentage of random edges with a smaller absolute effect; half of the equal ones count. NaN without any."""
        if not len(self.random_values):
            return float("nan")
        sizes = np.abs(self.random_effects)
        return 100 * float((sizes < abs(self.effect)).mean() + (sizes == abs(self.effect)).mean() / 2)

    @property
    def band(self) -> tuple[float, float]:
        """The range that contains 95% of the random effects, lowest and highest. NaN without random edges."""
        if not len(self.random_values):
            return float("nan"), float("nan")
        low, high = np.quantile(self.random_effects, (0.025, 0.975)).tolist()
        return low, high

    @property
    def same_layer(self) -> int:
        """Number of random edges in the layer of the edge."""
        return int((self.random_edges[:, 0] == self.layer).sum())

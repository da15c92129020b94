"""Direct contributions of the components of a pre-norm model to a logit or to an attention score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.tokenizer import Encoding

COMPONENTS = ("embedding", "head", "feed_forward", "bias")


class Contribution(NamedTuple):
    """The direct contribution of one component.

    component: one of `COMPONENTS`. layer, head: numbers of a head or a feed-forward network, otherwise None.
    name: such as "L3 H1", "L3 MLP", "embedding" or "bias of the final norm".
    """

    component: str
    layer: int | None
    head: int | None
    name: str
    contribution: float


@compared_by_value
@dataclass(frozen=True, kw_only=True)
class DirectContributions(Tabular):
    """The direct contributions of all components to one number that the model computes.

    embedding: contribution of the embedding, after its layer norm.
    heads: (layer, head), NaN for a pruned head. feed_forward: (layer,), the feed-forward networks with their biases.
    biases: contribution of each kind of bias outside these components, by name.
    value: the number as the model computes it.
    """

    encoding: Encoding
    embedding: float
    heads: np.ndarray = field(repr=False)
    feed_forward: np.ndarray = field(repr=False)
    biases: Mapping[str, float]
    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "biases", MappingProxyType(dict(self.biases)))
        make_read_only(self)

    @property
    def total(self) -> float:
        """The sum of all contributions."""
        parts = (self.embedding, np.nansum(self.heads), self.feed_forward.sum(), *self.biases.values())
        return float(sum(map(float, parts)))

    @property
    def gap(self) -> float:
        """The value minus the sum of all contributions: the rounding error."""
        return self.value - self.total

    def rows(self) -> list[Contribution]:
        """Return all contributions: the embedding, each layer's heads and feed-forward network, and the biases."""
        return [row for row in self._all_rows() if not (row.component == "head" and np.isnan(row.contribution))]

    def _all_rows(self) -> list[Contribution]:
        """Return the rows with those of pruned heads, which are NaN."""
        rows = [Contribution("embedding", None, None, "embedding", self.embedding)]
        for layer, (heads, network) in enumerate(zip(self.heads.tolist(), self.feed_forward.tolist(), strict=True)):
            rows += [Contribution("head", layer, head, f"L{layer} H{head}", value) for head, value in enumerate(heads)]
            rows.append(Contribution("feed_forward", layer, None, f"L{layer} MLP", network))
        return rows + [
            Contribution("bias", None, None, f"bias of {name}", value) for name, value in self.biases.items()
        ]

    def _tables(self) -> Tables:
        return (("component", {"contribution": np.array([row.contribution for row in self._all_rows()])}),)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        rows = self._all_rows()
        numbers = {
            name: [np.nan if (n := getattr(row, name)) is None else n for row in rows] for name in ("layer", "head")
        }
        component, name = ([getattr(row, column) for row in rows] for column in ("component", "name"))
        return {
            "component": component,
            **{column: np.array(cells, float) for column, cells in numbers.items()},
            "name": name,
        }


@compared_by_value
@dataclass(frozen=True, kw_only=True)
class DirectLogit(DirectContributions):
    """The direct contributions of all components to the logit of a target, or to the difference of two logits.

    The biases are those of "attention" (output projections of the heads), "the final norm" and "the output head".
    """

    target: Target


@compared_by_value
@dataclass(frozen=True, kw_only=True)
class DirectScore(DirectContributions):
    """The direct contributions of the components in earlier layers to one attention score of a head.

    receiver: (layer, head). query, key: positions of the score.
    side: "query" or "key", through which the contributions pass. The arrays have only the layers before the receiver.
    The biases are those of "attention" (output projections of the heads), "the norm" and "the projection".
    """

    receiver: tuple[int, int]
    query: int
    key: int
    side: str

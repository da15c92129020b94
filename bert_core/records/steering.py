"""Result of steering: the target of a text, and its other words, with a vector added to the hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.tokenizer import Encoding

BAND = (0.025, 0.975)  # quantiles of the random vectors: their middle 95%


@compared_by_value
@dataclass(frozen=True)
class Steering(Tabular):
    """The target of a text with a vector, times several factors, added to the hidden states at one depth.

    depth: 0 for the embeddings, n + 1 for the output of layer n. positions: the tokens to which the vector is added.
    norm: norm of the vector, and of each random vector.
    factors: (factor,), in ascending order. base_value: target without a vector.
    values: (factor,), target with the vector. random_values: (draw, factor), target with each random vector.
    other_positions: the tokens besides [MASK] and the target at which the MLM head predicts; none without an MLM head.
    divergences: (factor, position), Kullback-Leibler divergence in nats from the original prediction at each other
        position to the prediction with the vector. random_divergences: (draw, factor, position), of the random vectors.
    base_tokens: (position,), the most likely token at each other position. tokens: (factor, position), with the vector.
    Tables have the axis "dose", which numbers the factors, besides the factor itself.
    """

    TABLES: ClassVar[Tables] = (
        (
            "dose",
            {
                "value": "values", "effect": "effects", "random_low": "random_low", "random_high": "random_high",
                "random_share": "random_share", "divergence": "mean_divergences",
                "random_divergence": "random_mean_divergences",
            },
        ),
        ("draw dose", {"random_value": "random_values", "random_effect": "random_effects"}),
        ("dose position", {"position_divergence": "divergences", "most_likely": "tokens"}),
        ("draw dose position", {"random_position_divergence": "random_divergences"}),
        ("position", {"base_most_likely": "base_tokens"}),
    )  # fmt: skip

    encoding: Encoding
    target: Target
    depth: int
    positions: tuple[int, ...]
    norm: float
    factors: np.ndarray = field(repr=False)
    base_value: float
    values: np.ndarray = field(repr=False)
    random_values: np.ndarray = field(repr=False)
    other_positions: tuple[int, ...]
    divergences: np.ndarray = field(repr=False)
    random_divergences: np.ndarray = field(repr=False)
    base_tokens: np.ndarray = field(repr=False)
    tokens: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        return (
            {"dose": range(size), "factor": self.factors} if axis == "dose" else super()._axis_columns(axis, size, axes)
        )

    def _numbers(self, axis: str, size: int, axes: Sequence[str]) -> Sequence[int]:
        return self.other_positions if axis == "position" else super()._numbers(axis, size, axes)

    @property
    def effects(self) -> np.ndarray:
        """The change of the target by the vector at each factor, (factor,), in the unit of the target."""
        effects: np.ndarray = self.values - self.base_value
        return effects

    @property
    def random_effects(self) -> np.ndarray:
        """The change of the target by each random vector, (draw, factor)."""
        effects: np.ndarray = self.random_values - self.base_value
        return effects

    @property
    def random_low(self) -> np.ndarray:
        """The lower end of the middle 95% of the target with random vectors, (factor,)."""
        low: np.ndarray = np.quantile(self.random_values, BAND[0], axis=0)
        return low

    @property
    def random_high(self) -> np.ndarray:
        """The upper end of the middle 95% of the target with random vectors, (factor,)."""
        high: np.ndarray = np.quantile(self.random_values, BAND[1], axis=0)
        return high

    @property
    def random_share(self) -> np.ndarray:
        """The share of random vectors whose effect is at least as large in absolute value, (factor,), 0 to 1."""
        share: np.ndarray = (np.abs(self.random_effects) >= np.abs(self.effects)).mean(0)
        return share

    @property
    def mean_divergences(self) -> np.ndarray:
        """The mean of the divergences over the other positions, (factor,), in nats; NaN without any."""
        return _mean_over_positions(self.divergences)

    @property
    def random_mean_divergences(self) -> np.ndarray:
        """The mean of the divergences over the other positions and the random vectors, (factor,), in nats."""
        return _mean_over_positions(self.random_divergences.mean(0))


def _mean_over_positions(divergences: np.ndarray) -> np.ndarray:
    """Return the mean (factor,) of divergences (factor, position); NaN without positions."""
    if not divergences.shape[1]:
        return np.full(len(divergences), np.nan)
    mean: np.ndarray = divergences.mean(1)
    return mean

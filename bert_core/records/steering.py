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
                "value": "values", "effect": "effects", "random_low": "random_low", "random_mean": "random_mean",
                "random_high": "random_high", "p_value": "p_values", "divergence": "mean_divergences",
                "random_divergence_low": "random_divergence_low",
                "random_divergence_mean": "random_divergence_mean",
                "random_divergence_high": "random_divergence_high",
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
        """The lowest target with a random vector, (factor,).

        A vector that has no more effect than random ones gives a target below the lowest or above the highest of n
        random vectors with a probability of at most 2 / (n + 1). `p_values` is the test.
        """
        low: np.ndarray = self.random_values.min(0)
        return low

    @property
    def random_mean(self) -> np.ndarray:
        """The mean of the target with random vectors, (factor,)."""
        mean: np.ndarray = self.random_values.mean(0)
        return mean

    @property
    def random_high(self) -> np.ndarray:
        """The highest target with a random vector, (factor,)."""
        high: np.ndarray = self.random_values.max(0)
        return high

    @property
    def random_counts(self) -> np.ndarray:
        """The number of random vectors whose effect is at least as large in absolute value, (factor,)."""
        counts: np.ndarray = (np.abs(self.random_effects) >= np.abs(self.effects)).sum(0)
        return counts

    @property
    def p_values(self) -> np.ndarray:
        """The probability of at least as large an absolute effect by a random direction, (factor,), 0 to 1.

        With k of n random vectors that have such an effect, (k + 1) / (n + 1): a random vector has a value of at most
        p with a probability of at most p. Each value tests one factor.
        Source: Phipson & Smyth 2010 (doi:10.2202/1544-6115.1585), section 4.
        """
        values: np.ndarray = (self.random_counts + 1) / (len(self.random_values) + 1)
        return values

    @property
    def mean_divergences(self) -> np.ndarray:
        """The mean of the divergences over the other positions, (factor,), in nats; NaN without any."""
        return _mean_over_positions(self.divergences)

    @property
    def random_divergence_low(self) -> np.ndarray:
        """The lowest mean of the divergences over the other positions by a random vector, (factor,), in nats."""
        low: np.ndarray = _mean_over_positions(self.random_divergences).min(0)
        return low

    @property
    def random_divergence_mean(self) -> np.ndarray:
        """The mean of the divergences over the other positions and the random vectors, (factor,), in nats."""
        mean: np.ndarray = _mean_over_positions(self.random_divergences).mean(0)
        return mean

    @property
    def random_divergence_high(self) -> np.ndarray:
        """The highest mean of the divergences over the other positions by a random vector, (factor,), in nats."""
        high: np.ndarray = _mean_over_positions(self.random_divergences).max(0)
        return high


def _mean_over_positions(divergences: np.ndarray) -> np.ndarray:
    """Return the mean of divergences over their last axis, the positions; NaN without positions."""
    if not divergences.shape[-1]:
        return np.full(divergences.shape[:-1], np.nan)
    mean: np.ndarray = divergences.mean(-1)
    return mean

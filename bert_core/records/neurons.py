"""Results about feed-forward neurons: activations, words that they raise or lower, attributions and suppression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bert_core.deprecation import RenamedAttribute, renamed_fields
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class NeuronRun(Tabular):
    """Activations of the feed-forward neurons of every layer at every token of a text.

    activations: (layer, seq, neuron) float32, signed, after the activation function. In a gated network they are the
        product of the two inputs, so that a negative gate changes the sign, times the factor of a scaled neuron.
    lengths: (layer, neuron) float32, norm of the output vector of each neuron (its row of the second matrix).
    activated, gates: (layer, seq, neuron) float32, the two inputs of the neurons of a gated network: the first after
        the activation function, and the gate that multiplies it. None in all other networks.
    A pruned neuron is NaN.
    """

    TABLES: ClassVar[Tables] = (
        (
            "layer position neuron",
            {
                "activation": "activations", "contribution": ("activations", "_spread_lengths"),
                "activated": "activated", "gate": "gates",
            },
        ),
        ("layer neuron", {"length": "lengths"}),
    )  # fmt: skip

    encoding: Encoding
    activations: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)
    activated: np.ndarray | None = field(default=None, repr=False)
    gates: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def contributions(self) -> np.ndarray:
        """Norm of the vector that each neuron adds to its token, with the sign of the activation, (layer, seq, neuron).

        The unit is that of the hidden states, before the layer norm after the feed-forward network.
        """
        contributions: np.ndarray = self.activations * self._spread_lengths
        return contributions

    @property
    def _spread_lengths(self) -> np.ndarray:
        """The lengths with an axis for the positions, (layer, 1, neuron)."""
        return self.lengths[:, None]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The two inputs of the neurons of a gated network by name, in the order of their product; empty for others."""
        if self.activated is None or self.gates is None:
            return {}
        return {"activated input": self.activated, "gate": self.gates}

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        arrays = (self.activations, self.lengths, self.activated, self.gates)
        return sum(array.nbytes for array in arrays if array is not None)

    added = RenamedAttribute("contributions")


@compared_by_value
@dataclass(frozen=True)
class NeuronWords(Tabular):
    """Tokens whose log-probability some neurons of a layer raise or lower, read from the layer output by a lens.

    lens: "logit" or "tuned".
    positions: positions over which the gradients are averaged.
    neurons: (neuron,), numbers of the neurons.
    activations: (neuron,), mean activations at these positions.
    raised, lowered: (neuron, rank) int32, ids of the tokens whose log-probability rises or falls fastest, the fastest
        first.
    raised_slopes, lowered_slopes: (neuron, rank), gradients in nats per unit of activation. A gradient times the
        activation is the first-order effect of the neuron.
    """

    TABLES: ClassVar[Tables] = (
        (
            "neuron rank",
            {
                "raised": "raised", "raised_slope": "raised_slopes", "lowered": "lowered",
                "lowered_slope": "lowered_slopes",
            },
        ),
        ("neuron", {"activation": "activations"}),
    )  # fmt: skip

    encoding: Encoding
    lens: str
    layer: int
    positions: tuple[int, ...]
    neurons: tuple[int, ...]
    activations: np.ndarray = field(repr=False)
    raised: np.ndarray = field(repr=False)
    raised_slopes: np.ndarray = field(repr=False)
    lowered: np.ndarray = field(repr=False)
    lowered_slopes: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    def _numbers(self, axis: str, size: int, axes: Sequence[str]) -> Sequence[int]:
        return self.neurons if axis == "neuron" else super()._numbers(axis, size, axes)


@compared_by_value
@dataclass(frozen=True)
class NeuronAttribution(Tabular):
    """Attribution of a target to the neurons of some layers, one layer at a time (integrated gradients from 0).

    layers: numbers of the layers.
    positions: tokens whose neurons were scaled from 0 to their activations.
    scores: (layer, seq, neuron) float32, 0 at all other tokens, NaN for a pruned neuron.
    target_value: target of the unmodified text.
    off_values: (layer,), target with all activations of this layer at these positions set to 0.
    """

    TABLES: ClassVar[Tables] = (
        ("layer position neuron", {"score": "scores"}),
        ("layer", {"off_value": "off_values", "gap": "gap"}),
        ("layer neuron", {"neuron_score": "neuron_scores"}),
    )

    encoding: Encoding
    target: Target
    layers: tuple[int, ...]
    positions: tuple[int, ...]
    scores: np.ndarray = field(repr=False)
    target_value: float
    off_values: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    def _numbers(self, axis: str, size: int, axes: Sequence[str]) -> Sequence[int]:
        return self.layers if axis == "layer" else super()._numbers(axis, size, axes)

    @property
    def neuron_scores(self) -> np.ndarray:
        """Sum of the scores of each neuron over all tokens, (layer, neuron)."""
        totals: np.ndarray = self.scores.sum(1, dtype=np.float64)
        return totals

    @property
    def gap(self) -> np.ndarray:
        """Completeness error of each layer, (layer,): sum of the scores minus the change of the target."""
        errors: np.ndarray = np.nansum(self.scores, (1, 2), dtype=np.float64) - (self.target_value - self.off_values)
        return errors

    of_neurons = RenamedAttribute("neuron_scores")


@renamed_fields(among="random_pool")
@compared_by_value
@dataclass(frozen=True)
class Suppression(Tabular):
    """Target with some neurons set to zero or scaled, compared with random neurons of the same layers.

    neurons: pairs (layer, neuron).
    factor: factor of their activations at every token.
    random_pool: neurons from which the random ones were drawn, "all" of the layer or only the "active" ones.
    base_value: target of the unmodified text. value: target with the scaled neurons.
    random: (draw,) float64, target with random neurons scaled.
    """

    TABLES: ClassVar[Tables] = (("draw", {"random": "random"}),)

    encoding: Encoding
    target: Target
    neurons: tuple[tuple[int, int], ...]
    factor: float
    random_pool: str
    base_value: float
    value: float
    random: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def beyond_chance(self) -> bool:
        """Whether these neurons change the target more than any of the random draws."""
        return bool(abs(self.value - self.base_value) > np.abs(self.random - self.base_value).max())

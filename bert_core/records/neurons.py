"""Results about feed-forward neurons: activations, words that they raise or lower, attributions and suppression."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bert_core.deprecation import RenamedAttribute, renamed_fields
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.targets import Target
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class NeuronRun:
    """Activations of the feed-forward neurons of every layer at every token of a text.

    activations: (layer, seq, neuron) float32, signed, after the activation function.
    lengths: (layer, neuron) float32, norm of the output vector of each neuron (its row of the second matrix).
    A pruned neuron is NaN.
    """

    encoding: Encoding
    activations: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def contributions(self) -> np.ndarray:
        """Norm of the vector that each neuron adds to its token, with the sign of the activation, (layer, seq, neuron).

        The unit is that of the hidden states, before the layer norm after the feed-forward network.
        """
        contributions: np.ndarray = self.activations * self.lengths[:, None]
        return contributions

    @property
    def nbytes(self) -> int:
        """Memory of the arrays in bytes."""
        return self.activations.nbytes + self.lengths.nbytes

    added = RenamedAttribute("contributions")


@compared_by_value
@dataclass(frozen=True)
class NeuronWords:
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


@compared_by_value
@dataclass(frozen=True)
class NeuronAttribution:
    """Attribution of a target to the neurons of some layers, one layer at a time (integrated gradients from 0).

    layers: numbers of the layers.
    positions: tokens whose neurons were scaled from 0 to their activations.
    scores: (layer, seq, neuron) float32, 0 at all other tokens, NaN for a pruned neuron.
    target_value: target of the unmodified text.
    off_values: (layer,), target with all activations of this layer at these positions set to 0.
    """

    encoding: Encoding
    target: Target
    layers: tuple[int, ...]
    positions: tuple[int, ...]
    scores: np.ndarray = field(repr=False)
    target_value: float
    off_values: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

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
class Suppression:
    """Target with some neurons set to zero or scaled, compared with random neurons of the same layers.

    neurons: pairs (layer, neuron).
    factor: factor of their activations at every token.
    random_pool: neurons from which the random ones were drawn, "all" of the layer or only the "active" ones.
    base_value: target of the unmodified text. value: target with the scaled neurons.
    random: (draw,) float64, target with random neurons scaled.
    """

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

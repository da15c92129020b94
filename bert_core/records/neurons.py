"""What the feed-forward neurons of a text do: how they fire, what they say to the word head, what rests on them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.targets import Target
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class NeuronRun:
    """The feed-forward neurons of every layer at every token of a text.

    activations: (layer, seq, neuron) float32, what each passes on after its activation function, signed.
    lengths: (layer, neuron) float32, of the vector that each adds for every unit of it, its row of the second matrix.
    A neuron that was pruned is NaN.
    """

    encoding: Encoding
    activations: np.ndarray = field(repr=False)
    lengths: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def contributions(self) -> np.ndarray:
        """The length of what each adds to its token, with the sign of its activation: (layer, seq, neuron).

        In the unit of the states, before the layer norm behind the feed-forward network.
        """
        added: np.ndarray = self.activations * self.lengths[:, None]
        return added

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self.activations.nbytes + self.lengths.nbytes


@compared_by_value
@dataclass(frozen=True)
class NeuronWords:
    """Which words some neurons of a layer make likelier and unlikelier, as a lens reads what leaves the layer.

    lens: "logit" or "tuned". positions: the tokens at which it was read; slopes are their mean.
    neurons: (some,) their numbers. activations: (some,), their mean at these positions.
    raised, lowered: (some, words) int32, the pieces whose log-probability rises, or falls, fastest; the fastest first.
    raised_slopes, lowered_slopes: the same shape, nats for each unit of activation; the same times the activation is
        what the neuron does there to first order.
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
    """What a target rests on in the neurons of each layer, one layer at a time.

    layers: those that were asked. positions: the tokens whose neurons were turned up from 0.
    scores: (some layers, seq, neuron) float32, 0 at other tokens, NaN for a neuron that was pruned.
    target_value: of the text. off_values: (some layers,) of the text with all activations of that layer at these
        positions 0.
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
        """The score of each neuron at all tokens together, (some layers, neuron)."""
        summed: np.ndarray = self.scores.sum(1, dtype=np.float64)
        return summed

    @property
    def gap(self) -> np.ndarray:
        """By how much the scores of each layer miss the target's way from its neurons at 0, (some layers,)."""
        missed: np.ndarray = np.nansum(self.scores, (1, 2), dtype=np.float64) - (self.target_value - self.off_values)
        return missed


@compared_by_value
@dataclass(frozen=True)
class Suppression:
    """A target with some neurons switched off or scaled, beside as many random ones of the same layers.

    neurons: pairs (layer, neuron). factor: what their activations were multiplied by, at every token.
    among: where the random ones were drawn from, "all" neurons of the layer, or the "active" ones.
    base_value, value: the target of the text, and with these neurons so. random: (draws,) float64, with random ones so.
    """

    encoding: Encoding
    target: Target
    neurons: tuple[tuple[int, int], ...]
    factor: float
    among: str
    base_value: float
    value: float
    random: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def beyond_chance(self) -> bool:
        """Whether these neurons move the target further from its value than any of the random draws."""
        return bool(abs(self.value - self.base_value) > np.abs(self.random - self.base_value).max())

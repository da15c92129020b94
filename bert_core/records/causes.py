"""Results of activation patching and path patching: the target of a text with activations from a source text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_core.deprecation import RenamedAttribute, renamed_fields
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.refused import MAX_SEED, Refused, require_float, require_int, require_sequence, short_repr
from bert_core.tokenizer import Encoding

EQUAL_TOLERANCE = 1e-6  # relative difference of two target values below which they are equal up to rounding


@dataclass(frozen=True)
class Noised:
    """A text with Gaussian noise on its word embeddings, a corrupted text for patching without a second text.

    size: standard deviation of the noise in standard deviations of the word embedding matrix of the model.
    positions: positions with noise. None means all except [CLS] and [SEP].
    seed: random seed.
    Raises Refused if the size is not a positive number, or a position does not exist.
    Source: Meng 2022, section 2.1 (arXiv:2202.05262), with 3 standard deviations.
    """

    encoding: Encoding
    size: float = 3.0
    positions: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.encoding, Encoding):
            raise Refused(f"the text with noise is {short_repr(self.encoding)}: it must be an Encoding")
        size = require_float("the size of noise", self.size)
        if not 0 < size < np.inf:
            raise Refused(f"the size of noise is {size:g}: it must be a positive finite number")
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "seed", require_int("the seed of noise", self.seed, 0, MAX_SEED))
        if self.positions is not None:
            items = require_sequence("the positions of noise", self.positions, "whole numbers")
            positions = tuple(sorted({require_int("a position of noise", position, None) for position in items}))
            if not positions or positions[0] < 0 or positions[-1] >= len(self.encoding):
                raise Refused(
                    f"the positions of noise are {list(positions)}: "
                    f"there must be at least one, from 0 to {len(self.encoding) - 1}"
                )
            object.__setattr__(self, "positions", positions)

    def __len__(self) -> int:
        return len(self.encoding)


def without_noise(text: Encoding | Noised) -> Encoding:
    """Return the text without its noise, if it has any."""
    return text.encoding if isinstance(text, Noised) else text


@dataclass(frozen=True)
class MeanOf:
    """The mean activation over all tokens of some texts, a source of patches without information about any of them.

    encodings: the texts, of any lengths.
    Raises Refused if there are no texts.
    """

    encodings: tuple[Encoding, ...]

    def __post_init__(self) -> None:
        encodings = tuple(require_sequence("the texts of a mean", self.encodings, "Encodings"))
        if not encodings or not all(isinstance(encoding, Encoding) for encoding in encodings):
            raise Refused(f"the texts of a mean are {short_repr(self.encodings)}: there must be at least one Encoding")
        object.__setattr__(self, "encodings", encodings)


@renamed_fields(what="kind")
@compared_by_value
@dataclass(frozen=True)
class Patches(Tabular):
    """The target of a text with one activation at a time replaced by that of a source.

    encoding: the text. source: the source of the activations.
    partners: for each position of the text, the corresponding position of the source, or None.
    kind: kind of the patched activations, one of `PATCHABLE_PARTS`.
    axes: names of the axes of the values, from "depth", "layer", "head", "position" and "neuron".
    values: target with each activation patched, in the unit of the target. NaN at places that were not patched.
    base_value, source_value: target of the text and of the source without patches. That of a mean is NaN.
    head_mask: (layer, head), 1 for active heads and 0 for ablated ones.
    exact: whether each patch was run. Otherwise the values are first-order estimates.
    """

    encoding: Encoding | Noised
    source: Encoding | Noised | MeanOf
    partners: tuple[int | None, ...]
    target: Target
    kind: str
    axes: tuple[str, ...]
    values: np.ndarray
    base_value: float
    source_value: float
    head_mask: np.ndarray
    exact: bool = True

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def text(self) -> Encoding:
        """The text without noise."""
        return without_noise(self.encoding)

    @property
    def effects(self) -> np.ndarray:
        """Normalised effects: 0 if the target stays that of the text, 1 if it becomes that of the source.

        Raises Refused if both texts have the same target value, or the source is a mean.
        Source: Zhang & Nanda 2023, section 2 (arXiv:2309.16042).
        """
        return _normalised_effects(self.values, self.base_value, self.source_value)

    def _tables(self) -> Tables:
        return ((" ".join(self.axes), {"value": "values", **_effect_column(self)}),)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        if axis != "position":
            return super()._axis_columns(axis, size, axes)
        source_tokens = source_labels(self.source, self.text, self.partners)
        return {"position": range(size), "token": self.text.tokens, "source_token": source_tokens}

    read = RenamedAttribute("text")


@renamed_fields(through="receiver_input")
@compared_by_value
@dataclass(frozen=True)
class Paths(Tabular):
    """The target of a text with the path from one sender head at a time to some receivers patched from a source.

    encoding, source, partners, target, base_value, source_value, head_mask: as in `Patches`.
    receivers: receiving heads as (layer, head). None means the output of the model.
    receiver_input: input of the receiving heads that is patched, "query", "key" or "value". None means all three.
    values: (layer, head), target with the path from each sender patched, in the unit of the target. NaN for senders
        that were not patched.
    """

    encoding: Encoding | Noised
    source: Encoding | Noised | MeanOf
    partners: tuple[int | None, ...]
    target: Target
    receivers: tuple[tuple[int, int], ...] | None
    receiver_input: str | None
    values: np.ndarray
    base_value: float
    source_value: float
    head_mask: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def effects(self) -> np.ndarray:
        """Normalised effects (layer, head): 0 if the target stays that of the text, 1 if it becomes that of the source.

        Raises Refused if both texts have the same target value, or the source is a mean.
        """
        return _normalised_effects(self.values, self.base_value, self.source_value)

    def _tables(self) -> Tables:
        return (("layer head", {"value": "values", **_effect_column(self)}),)


def source_labels(source: Encoding | Noised | MeanOf, encoding: Encoding, partners: Sequence[int | None]) -> list[str]:
    """Return the token of the source that is patched into each token of a text; "" where there is none."""
    labels = source.labels if isinstance(source, Encoding) else encoding.labels
    return ["" if position is None else labels[position] for position in partners]


def _effect_column(record: Patches | Paths) -> dict[str, np.ndarray]:
    """Return the normalised effects as a column of a table, or none if they are not defined."""
    try:
        return {"effect": record.effects}
    except Refused:
        return {}


def _normalised_effects(values: np.ndarray, base: float, source: float) -> np.ndarray:
    """Return (values - base) / (source - base). Raises Refused if source is NaN or equals base."""
    if np.isnan(source):
        raise Refused("the source is a mean, which has no target value: use `values` instead of normalised effects")
    difference = source - base
    if abs(difference) <= EQUAL_TOLERANCE * max(abs(source), abs(base)):
        raise Refused(
            f"the target is {base:.4g} for both texts: choose another target or another source, "
            "for which the two values differ"
        )
    effects: np.ndarray = (values - base) / difference
    return effects


@compared_by_value
@dataclass(frozen=True)
class PatchBand(Tabular):
    """Range of the target with patches from random texts, a baseline for `Patches`.

    low, high: minimum and maximum at each place, in the shape of `Patches.values`.
    texts: number of random texts.
    axes: names of the axes, as in `Patches`. Empty in records without them, whose tables have numbered axes.
    """

    low: np.ndarray
    high: np.ndarray
    texts: int
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_read_only(self)

    def contains(self, patches: Patches) -> np.ndarray:
        """Return whether each patch lies within the range of the random texts, boolean in the shape of the values.

        Raises Refused if the shapes differ.
        """
        if patches.values.shape != self.low.shape:
            raise Refused(
                f"the shape of the patches is {patches.values.shape} and that of the band is {self.low.shape}: "
                "both must be of the same places"
            )
        in_band: np.ndarray = (patches.values >= self.low) & (patches.values <= self.high)
        return in_band

    def _tables(self) -> Tables:
        axes = self.axes or tuple(f"axis_{number}" for number in range(self.low.ndim))
        return ((" ".join(axes), {"low": "low", "high": "high"}),)

    holds = RenamedAttribute("contains")

"""What a model says of one text with parts of its reading of another text put in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.targets import Target
from bert_core.refused import MAX_SEED, Refused, require_float, require_int, require_sequence, short_repr
from bert_core.tokenizer import Encoding

EQUAL_TOLERANCE = 1e-6  # of the larger answer: two answers that differ by no more are one, up to rounding


@dataclass(frozen=True)
class Noised:
    """A text whose words carry noise, which corrupts it without another text.

    size: the standard deviation of the normal noise that is added to each word embedding, in those of the model's table
        of them. positions: where; None is everywhere but at [CLS] and [SEP]. seed: which noise.
    Raises Refused for a size that is no number above 0, or a position that the text has not.
    Source: Meng 2022, section 2.1 (arXiv:2202.05262), with 3 standard deviations.
    """

    encoding: Encoding
    size: float = 3.0
    positions: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.encoding, Encoding):
            raise Refused(f"the text of noise is {short_repr(self.encoding)}: it must be an Encoding")
        size = require_float("the size of noise", self.size)
        if not 0 < size < np.inf:
            raise Refused(f"the size of noise is {size:g}: it must be a number above 0")
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "seed", require_int("the seed of noise", self.seed, 0, MAX_SEED))
        if self.positions is not None:
            given = require_sequence("the positions of noise", self.positions, "whole numbers")
            places = tuple(sorted({require_int("a position of noise", one, None) for one in given}))
            if not places or places[0] < 0 or places[-1] >= len(self.encoding):
                raise Refused(f"noise at {list(places)}: at least one of 0 to {len(self.encoding) - 1}")
            object.__setattr__(self, "positions", places)

    def __len__(self) -> int:
        return len(self.encoding)


def without_noise(text: Encoding | Noised) -> Encoding:
    """The text itself, without the noise that it may carry."""
    return text.encoding if isinstance(text, Noised) else text


@dataclass(frozen=True)
class MeanOf:
    """What the model has on average over all tokens of some texts: what is put in tells nothing of any of them.

    encodings: the texts, of any lengths. Raises Refused for none.
    """

    encodings: tuple[Encoding, ...]

    def __post_init__(self) -> None:
        given = tuple(require_sequence("the texts of a mean", self.encodings, "Encodings"))
        if not given or not all(isinstance(one, Encoding) for one in given):
            raise Refused(f"the texts of a mean are {short_repr(self.encodings)}: they must be Encodings, at least one")
        object.__setattr__(self, "encodings", given)


@compared_by_value
@dataclass(frozen=True)
class Patches:
    """The target of a text with each of many places patched in turn, from the model's reading of a source.

    encoding: the text that is read. source: what the patches come from.
    partners: for each position of the text, the one of the source that it is patched from; None where there is none.
    what: what is carried over, one of `PATCHES`. axes: the names of the axes of values, from "depth", "layer", "head",
        "position" and "neuron".
    values: the target with each place patched, in its own unit; NaN where nothing was patched.
    base_value, source_value: the target of the text as it is, and of the source; NaN for a mean, which has none.
    exact: whether each patch was run; else values are first-order estimates.
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
        """The text that is read, without noise."""
        return without_noise(self.encoding)

    @property
    def effects(self) -> np.ndarray:
        """The share of the way from the text's answer to the source's: 0 changes nothing, 1 gives the source's answer.

        Raises Refused where both texts have the same answer, and there is nothing to explain, and for a mean.
        Source: Zhang & Nanda 2023, section 2 (arXiv:2309.16042).
        """
        return _shares(self.values, self.base_value, self.source_value)


@compared_by_value
@dataclass(frozen=True)
class Paths:
    """The target of a text with each of many senders heard by some receivers as it is in a source.

    encoding, source, partners, target, base_value, source_value, head_mask: as in `Patches`.
    receivers: heads, (layer, head); None is the answer itself. through: what of them hears the sender, "query", "key"
        or "value"; None is all three.
    values: (layer, head), the target with the way from this sender, in its own unit; NaN where none was asked for.
    """

    encoding: Encoding | Noised
    source: Encoding | Noised | MeanOf
    partners: tuple[int | None, ...]
    target: Target
    receivers: tuple[tuple[int, int], ...] | None
    through: str | None
    values: np.ndarray
    base_value: float
    source_value: float
    head_mask: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def effects(self) -> np.ndarray:
        """The share of the way from the text's answer to the source's, (layer, head), and refused, as in `Patches`."""
        return _shares(self.values, self.base_value, self.source_value)


def _shares(values: np.ndarray, base: float, source: float) -> np.ndarray:
    """Raises Refused for a source without an answer, or with the same."""
    if np.isnan(source):
        raise Refused("a mean has no answer of its own, so there are no shares of the way to it: look at `values`")
    gap = source - base
    if abs(gap) <= EQUAL_TOLERANCE * max(abs(source), abs(base)):
        raise Refused(
            f"both texts give {base:.4g}: there is no difference to explain, so choose another question "
            "or another source"
        )
    shares: np.ndarray = (values - base) / gap
    return shares


@compared_by_value
@dataclass(frozen=True)
class PatchBand:
    """What patches from random texts do at each place: the lowest and the highest answer that any of them gave.

    low, high: as `Patches.values`. texts: how many there were.
    """

    low: np.ndarray
    high: np.ndarray
    texts: int

    def __post_init__(self) -> None:
        make_read_only(self)

    def contains(self, found: Patches) -> np.ndarray:
        """Whether each patch is no more than what a random text did, boolean, of the shape of the values."""
        if found.values.shape != self.low.shape:
            raise Refused(f"patches of shape {found.values.shape} and a band of {self.low.shape}: of the same places")
        inside: np.ndarray = (found.values >= self.low) & (found.values <= self.high)
        return inside

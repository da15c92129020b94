"""What a model says of one text with parts of its reading of another text put in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.records.base import read_only
from bert_core.records.targets import Target
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding

SAME = 1e-6  # of the larger answer: two answers that differ by no more are one, up to rounding


@dataclass(frozen=True)
class Patches:
    """The target of a text with each of many places patched in turn, from the model's reading of a source.

    encoding: the text that is read. source: what the patches come from, of as many tokens.
    what: what is carried over, one of `PATCHES`. axes: the names of the axes of values, from "depth", "layer", "head",
        "position" and "neuron".
    values: the target with each place patched, in its own unit; NaN where nothing was patched.
    base_value, source_value: the target of the text as it is, and of the source.
    exact: whether each patch was run; else values are first-order estimates.
    """

    encoding: Encoding
    source: Encoding
    target: Target
    what: str
    axes: tuple[str, ...]
    values: np.ndarray
    base_value: float
    source_value: float
    head_mask: np.ndarray
    exact: bool = True

    def __post_init__(self) -> None:
        read_only(self)

    @property
    def effects(self) -> np.ndarray:
        """The share of the way from the text's answer to the source's: 0 changes nothing, 1 gives the source's answer.

        Raises Refused where both texts have the same answer, and there is nothing to explain.
        Source: Zhang & Nanda 2023, section 2 (arXiv:2309.16042).
        """
        gap = self.source_value - self.base_value
        if abs(gap) <= SAME * max(abs(self.source_value), abs(self.base_value)):
            raise Refused(
                f"both texts give {self.base_value:.4g}: there is no difference to explain, so choose another question "
                "or another source"
            )
        shares: np.ndarray = (self.values - self.base_value) / gap
        return shares

"""What two models have in common that read the same texts, and what changed from one to the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.heads import HeadTable
from bert_core.refused import Refused, short_repr


@compared_by_value
@dataclass(frozen=True)
class ModelComparison:
    """Two models on the same texts.

    before, after: what is known of the heads of each (`HeadTable`): confidence, entropy, distance and the scores of
    the roles, and importance where both could be asked for the same.
    cka: (depth, depth), linear CKA of each depth of the first with each of the second, over all tokens, 0 to 1;
    cka_unbiased: the same without what few tokens add to it, maybe a little below 0. Depth 0 is the embeddings,
    depth n + 1 what leaves layer n.
    divergence: (layer, head), Jensen-Shannon divergence of the attention of each head before and after, nats, 0 to
    ln 2, mean over queries and then over texts; NaN for a head that either has not; None where the two have not as
    many layers and heads.
    lens_before, lens_after: (depth,), loss of hidden pieces when the word head reads each depth, nats; None unless
    both models have a word head.
    """

    before: HeadTable
    after: HeadTable
    cka: np.ndarray = field(repr=False)
    cka_unbiased: np.ndarray = field(repr=False)
    divergence: np.ndarray | None = field(default=None, repr=False)
    lens_before: np.ndarray | None = field(default=None, repr=False)
    lens_after: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def texts(self) -> int:
        """How many were read."""
        return self.before.texts

    @property
    def tokens(self) -> int:
        """How many there were in all texts, the added [CLS] and [SEP] too."""
        return self.before.tokens

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        arrays = (self.cka, self.cka_unbiased, self.divergence, self.lens_before, self.lens_after)
        own = sum(array.nbytes for array in arrays if array is not None)
        return own + self.before.nbytes + self.after.nbytes

    def change(self, figure: str) -> np.ndarray:
        """How much a figure of every head grew, (layer, head).

        Raises Refused for a figure that is not there, or where the two have not as many layers and heads.
        """
        if figure not in self.before.figures or figure not in self.after.figures:
            there = [name for name in self.before.figures if name in self.after.figures]
            raise Refused(f"there is no figure {short_repr(figure)} of both models: one of {', '.join(there)}")
        if self.divergence is None:
            (layers, heads), (others, of_others) = self.before.shape, self.after.shape
            raise Refused(
                f"{layers} layers of {heads} heads and {others} of {of_others} cannot be compared head by head"
            )
        grown: np.ndarray = self.after.figures[figure] - self.before.figures[figure]
        return grown

"""Comparison of two models on the same texts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.heads import HeadTable
from bert_core.records.tables import Tables, Tabular
from bert_core.refused import Refused, short_repr


@compared_by_value
@dataclass(frozen=True)
class ModelComparison(Tabular):
    """Comparison of two models on the same texts.

    before, after: tables of the heads of each model (`HeadTable`), with confidence, entropy, distance and the scores of
        the roles, and importance if both models can compute the same loss.
    cka: (depth, depth), linear CKA of each depth of the first model with each of the second over all tokens, 0 to 1.
        Depth 0 is the embeddings, depth n + 1 the output of layer n.
    cka_unbiased: (depth, depth), the same without the bias of few tokens. It may be slightly negative.
    divergence: (layer, head), Jensen-Shannon divergence of the attention of each head in nats, 0 to ln 2, mean over
        queries and then over texts. NaN for a head that is pruned in either model. None if the numbers of layers or
        heads differ.
    lens_before, lens_after: (depth,), loss in nats of masked tokens predicted by the MLM head from each depth. None
        unless both models have an MLM head.
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
        """Number of texts."""
        return self.before.texts

    @property
    def tokens(self) -> int:
        """Number of tokens of all texts, including [CLS] and [SEP]."""
        return self.before.tokens

    @property
    def nbytes(self) -> int:
        """Memory of all arrays in bytes."""
        arrays = (self.cka, self.cka_unbiased, self.divergence, self.lens_before, self.lens_after)
        array_bytes = sum(array.nbytes for array in arrays if array is not None)
        return array_bytes + self.before.nbytes + self.after.nbytes

    def _tables(self) -> Tables:
        figures: dict[str, np.ndarray] = {}
        if self.divergence is not None:
            for name in (name for name in self.before.figures if name in self.after.figures):
                figures |= {f"{name}_before": self.before.figures[name], f"{name}_after": self.after.figures[name]}
        depths = {"cka": "cka", "cka_unbiased": "cka_unbiased"}
        return (
            ("layer head", {"divergence": "divergence", **figures}),
            ("depth_before depth_after", depths),
            ("depth", {"lens_before": "lens_before"}),
            ("depth", {"lens_after": "lens_after"}),
        )

    def change(self, figure: str) -> np.ndarray:
        """Return the change of a number of every head from the first to the second model, (layer, head).

        Raises Refused if the figure is not in both tables, or the numbers of layers or heads differ.
        """
        if figure not in self.before.figures or figure not in self.after.figures:
            names = [name for name in self.before.figures if name in self.after.figures]
            raise Refused(f"{short_repr(figure)} is not a figure of both models: it must be one of {', '.join(names)}")
        if self.divergence is None:
            (layers, heads), (after_layers, after_heads) = self.before.shape, self.after.shape
            raise Refused(
                f"the models have {layers} layers of {heads} heads and {after_layers} of {after_heads}: "
                "only models with the same layers and heads can be compared head by head"
            )
        difference: np.ndarray = self.after.figures[figure] - self.before.figures[figure]
        return difference

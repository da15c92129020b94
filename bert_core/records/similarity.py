"""Result of a comparison of two texts by the cosine similarity of their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class Similarity(Tabular):
    """Cosine similarity of the vectors of two texts, and the contribution of each pair of their tokens.

    cosine: -1 (opposite) to 1 (same direction).
    parts: (token of the first text, token of the second text) float64. They sum to the cosine. A token that is not
        pooled is 0.
    vectors: (text, hidden) float32, before normalisation.
    mode: how hidden states are pooled to a vector, as in `Pooling`.
    trained: whether the files of the model define the pooling.
    """

    TABLES: ClassVar[Tables] = (("a b", {"part": "parts"}), ("text dimension", {"vector": "vectors"}))

    first: Encoding
    second: Encoding
    cosine: float
    parts: np.ndarray = field(repr=False)
    vectors: np.ndarray = field(repr=False)
    mode: str
    trained: bool

    def __post_init__(self) -> None:
        make_read_only(self)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        if axis not in ("a", "b"):
            return super()._axis_columns(axis, size, axes)
        encoding = self.first if axis == "a" else self.second
        return {f"{axis}_position": range(size), f"{axis}_token": encoding.labels}

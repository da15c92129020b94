"""Result of a comparison of two texts by the cosine similarity of their vectors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class Similarity:
    """Cosine similarity of the vectors of two texts, and the contribution of each pair of their tokens.

    cosine: -1 (opposite) to 1 (same direction).
    parts: (token of the first text, token of the second text) float64. They sum to the cosine. A token that is not
        pooled is 0.
    vectors: (text, hidden) float32, before normalisation.
    mode: how hidden states are pooled to a vector, as in `Pooling`.
    trained: whether the files of the model define the pooling.
    """

    first: Encoding
    second: Encoding
    cosine: float
    parts: np.ndarray = field(repr=False)
    vectors: np.ndarray = field(repr=False)
    mode: str
    trained: bool

    def __post_init__(self) -> None:
        make_read_only(self)

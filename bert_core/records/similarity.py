"""How alike a model finds two texts that it reads apart."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class Similarity:
    """The cosine of two texts' vectors, and what each pair of their tokens adds to it.

    cosine: 1 where both vectors point the same way, 0 where they have nothing in common, -1 where they are opposed.
    parts: (first's token, second's token) float64; they sum to the cosine. A token that does not count is 0.
    vectors: (text, hidden) float32, before they are normalised.
    mode: how the vectors are made of the states, as `Pooling` names it. trained: whether the model's file says so.
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

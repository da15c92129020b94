"""Contributions of pairs of tokens to the cosine similarity of two texts."""

from __future__ import annotations

import numpy as np

from bert_core.refused import Refused, validate_arrays


@validate_arrays(first="first_token hidden", second="second_token hidden")
def cosine_parts(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute the contribution of each pair of tokens to the cosine of the sums of two sets of vectors.

    The contributions sum to the cosine, because the product of two sums is the sum of all products.

    first, second: (token, hidden), the contribution of each token to the vector of its text.
    Returns (token of the first text, token of the second text) float64.
    Raises Refused if the hidden sizes differ, or the vector of a text is zero.
    """
    first, second = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(first.sum(0)) * np.linalg.norm(second.sum(0))
    if not lengths > 0:
        raise Refused("the vector of a text is zero: a cosine needs two vectors that are not zero")
    parts: np.ndarray = first @ second.T / lengths
    return parts

"""What two texts have in common, pair by pair of their tokens."""

from __future__ import annotations

import numpy as np

from bert_core.refused import Refused, validate_arrays


@validate_arrays(first="token hidden", second="other hidden")
def cosine_parts(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What each pair of tokens adds to the cosine of two sums of vectors, (first's token, second's token) float64.

    first, second: (token, hidden), what each token adds to the vector of its text. The parts sum to the cosine: a
    product of two sums is the sum of all products.
    Raises Refused for other shapes, or a text whose vector has no length.
    """
    one, other = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(one.sum(0)) * np.linalg.norm(other.sum(0))
    if not lengths > 0:
        raise Refused("the vector of a text has no length, so it points nowhere: there is no cosine")
    parts: np.ndarray = one @ other.T / lengths
    return parts

"""Steering vectors: directions between two labels in the hidden states, and random directions of the same norm."""

from __future__ import annotations

import numpy as np

from bert_core.analysis.erasure import leace
from bert_core.analysis.probes import PENALTY, check_labels, fit_probe
from bert_core.refused import Refused, check_finite, require_int, short_repr, validate_arrays

DIRECTIONS = ("means", "probe", "discriminant")
MAX_DRAWS = 1000
MIN_NORM = 1e-9  # of a vector relative to the largest state: less is rounding error


@validate_arrays(states="word hidden", labels="word")
def steering_vector(
    states: np.ndarray, labels: np.ndarray, direction: str = "means", *, penalty: float = PENALTY
) -> np.ndarray:
    """Compute the vector that moves hidden states from the mean of label 0 to the mean of label 1 along a direction.

    With d the difference of the two means and u the direction of norm 1, the vector is u (u * d). Added once, it makes
    the mean of label 0 equal to that of label 1 along u, so the factors of different directions can be compared.

    states: (word, hidden).
    labels: (word,), 0 or 1; both must occur.
    direction: "means" is d itself, the only direction that the eraser of two labels subtracts. "probe" is the
        difference of the two weight vectors of `fit_probe`, for states that are not standardised. "discriminant" is
        the direction that the eraser reads, that of Fisher's linear discriminant.
    penalty: of the probe, see `fit_probe`.
    Returns float64 (hidden,).
    Raises Refused for another direction, other labels, states that are not finite, and labels with equal means.
    Source: difference of means, Marks & Tegmark 2023 (arXiv:2310.06824) and, for pairs of texts, Rimsky 2023
    (arXiv:2312.06681); eraser, Belrose 2023, theorem 4.3 (arXiv:2306.03819).

    >>> import numpy as np
    >>> import bert_core
    >>> states = np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 1.0], [4.0, 3.0]])
    >>> bert_core.steering_vector(states, np.array([0, 0, 1, 1]))
    array([4., 1.])
    """
    if direction not in DIRECTIONS:
        raise Refused(f"the direction is {short_repr(direction)}: it must be one of {', '.join(DIRECTIONS)}")
    numbers = check_labels(labels, 2)
    if set(numbers.tolist()) != {0, 1}:
        raise Refused(f"every label is {numbers[0]}: a steering vector needs words of both labels, 0 and 1")
    check_finite("states", states)
    states = states.astype(np.float64)
    difference: np.ndarray = states[numbers == 1].mean(0) - states[numbers == 0].mean(0)
    if np.linalg.norm(difference) <= MIN_NORM * np.abs(states).max():
        raise Refused("both labels have the same mean state: there is no direction between them")
    if direction == "means":
        return difference
    if direction == "probe":
        weights = fit_probe(states, numbers, 2, penalty=penalty).weights
        axis = weights[:, 1] - weights[:, 0]
    else:
        axis = leace(states, numbers).readout.sum(1)  # of rank 1; of rank 0 where the means are equal up to rounding
    if not axis.any():
        raise Refused("both labels have the same mean state: there is no direction between them")
    axis = axis / np.linalg.norm(axis)
    vector: np.ndarray = axis * (axis @ difference)
    return vector


@validate_arrays(vector="hidden")
def random_vectors(vector: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Draw vectors with random directions and the norm of a given vector, as a baseline of steering.

    All directions are equally probable.
    vector: (hidden,). count: number of vectors, up to 1,000. seed: random seed.
    Returns float64 (draw, hidden). Raises Refused if the vector is not finite, or a number is out of range.

    >>> import numpy as np
    >>> import bert_core
    >>> draws = bert_core.random_vectors(np.array([3.0, 4.0]), 2)
    >>> np.linalg.norm(draws, axis=1)
    array([5., 5.])
    """
    check_finite("vector", vector)
    count = require_int("count", count, 1, MAX_DRAWS)
    draws = np.random.default_rng(require_int("seed", seed)).standard_normal((count, len(vector)))
    norm = np.linalg.norm(vector.astype(np.float64))
    vectors: np.ndarray = draws * (norm / np.linalg.norm(draws, axis=1, keepdims=True))
    return vectors

"""Taking a label out of states: the smallest change after which no linear probe finds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.analysis.probes import check_labels
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.refused import check_finite, require_int, validate_arrays

MIN_VARIANCE = 1e-10  # of the largest: a direction with less is one in which the states do not differ
MIN_CORRELATION = 1e-6  # between a direction of the states and of the labels: less is rounding


@compared_by_value
@dataclass(frozen=True)
class Eraser:
    """An affine map that takes some directions out of states: x - (x - mean) taken put.

    mean: (hidden,). taken: (hidden, rank), what is read of a state. put: (rank, hidden), what is taken away for it.
    """

    mean: np.ndarray
    readout: np.ndarray
    directions: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def rank(self) -> int:
        """How many directions go."""
        return int(self.readout.shape[1])

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """The states (..., hidden) without these directions, as float64."""
        left: np.ndarray = states - (states - self.mean) @ self.readout @ self.directions
        return left


@validate_arrays(states="word hidden", labels="word")
def leace(states: np.ndarray, labels: np.ndarray) -> Eraser:
    """The eraser that makes the mean state of every label the same, and changes the states least of all that do.

    states: (word, hidden). labels: (word,), whole numbers from zero.
    After it no linear probe on these words does better than one that sees nothing; on others nearly so. Its rank is the
    number of labels less one, or fewer. A label that is not a line or a plane, such as "either, but not both", stays.
    Raises Refused for labels that are not whole numbers, or states that are not finite.
    Source: LEACE, Belrose 2023, theorem 4.3 (arXiv:2306.03819).
    """
    numbers = np.unique(check_labels(labels), return_inverse=True)[1]
    mean, white, coloured = _whitening(states)
    told = np.eye(numbers.max() + 1)[numbers]
    crossed = (states - mean).T @ (told - told.mean(0)) / len(states)
    deviations = np.sqrt(told.mean(0) * (1 - told.mean(0)))
    directions, correlations, _ = np.linalg.svd(
        white @ crossed / np.where(deviations > 0, deviations, 1), full_matrices=False
    )
    return _without(mean, white, coloured, directions[:, correlations > MIN_CORRELATION])


@validate_arrays(states="word hidden")
def random_eraser(states: np.ndarray, rank: int, seed: int = 0) -> Eraser:
    """An eraser of so many directions drawn at random among all in which the states differ, to stand beside `leace`.

    states: (word, hidden). Raises Refused for more directions than there are, or states that are not finite.
    """
    mean, white, coloured = _whitening(states)
    there = np.linalg.matrix_rank(white, hermitian=True)
    rank = require_int("rank", rank, 0, int(there))
    drawn = white @ coloured @ np.random.default_rng(require_int("seed", seed)).standard_normal((states.shape[1], rank))
    return _without(mean, white, coloured, np.linalg.qr(drawn)[0])


def _whitening(states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean (hidden,), the symmetric map that makes the covariance 1 where there is any, and the way back."""
    check_finite("states", states)
    states = states.astype(np.float64)
    mean = states.mean(0)
    sizes, axes = np.linalg.eigh((states - mean).T @ (states - mean) / len(states))
    there = sizes > MIN_VARIANCE * max(sizes[-1], np.finfo(float).tiny)
    roots = np.sqrt(np.where(there, sizes, 1))
    return mean, (axes * (there / roots)) @ axes.T, (axes * (there * roots)) @ axes.T


def _without(mean: np.ndarray, white: np.ndarray, coloured: np.ndarray, directions: np.ndarray) -> Eraser:
    """The eraser of some orthonormal directions (hidden, rank) of whitened states."""
    return Eraser(mean, white @ directions, directions.T @ coloured)

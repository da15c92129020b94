"""Concept erasure: the smallest change of hidden states after which no linear probe can predict a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bert_core.analysis.probes import check_labels
from bert_core.deprecation import renamed_fields
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.refused import check_finite, require_int, validate_arrays

MIN_VARIANCE = 1e-10  # share of the largest variance: in a direction with less the states count as constant
MIN_CORRELATION = 1e-6  # between a direction of the states and the labels: less is rounding error


@renamed_fields(taken="readout", put="directions")
@compared_by_value
@dataclass(frozen=True)
class Eraser:
    """Affine map that removes some directions from hidden states: x - (x - mean) readout directions.

    mean: (hidden,), mean of the states.
    readout: (hidden, rank), computes the coefficients of a centred state.
    directions: (rank, hidden), subtracted with these coefficients.
    """

    mean: np.ndarray
    readout: np.ndarray
    directions: np.ndarray

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def rank(self) -> int:
        """Number of directions removed."""
        return int(self.readout.shape[1])

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """Return the states (..., hidden) without these directions, as float64."""
        erased: np.ndarray = states - (states - self.mean) @ self.readout @ self.directions
        return erased


@validate_arrays(states="word hidden", labels="word")
def leace(states: np.ndarray, labels: np.ndarray) -> Eraser:
    """Compute the eraser that makes the mean states of all labels equal with the smallest change of the states.

    No linear probe trained on the erased words does better than one that sees nothing, and on other words hardly
    better. A label that depends on the states non-linearly, such as an exclusive or, is not erased.

    states: (word, hidden).
    labels: (word,), integers from zero.
    Returns an eraser whose rank is at most the number of labels minus one.
    Raises Refused if a label is not an integer from zero, or a state is not finite.
    Source: LEACE, Belrose 2023, theorem 4.3 (arXiv:2306.03819).
    """
    numbers = np.unique(check_labels(labels), return_inverse=True)[1]
    mean, whitening, colouring = _whitening(states)
    one_hot = np.eye(numbers.max() + 1)[numbers]
    cross_covariance = (states - mean).T @ (one_hot - one_hot.mean(0)) / len(states)
    deviations = np.sqrt(one_hot.mean(0) * (1 - one_hot.mean(0)))
    directions, correlations, _ = np.linalg.svd(
        whitening @ cross_covariance / np.where(deviations > 0, deviations, 1), full_matrices=False
    )
    return _eraser(mean, whitening, colouring, directions[:, correlations > MIN_CORRELATION])


@validate_arrays(states="word hidden")
def random_eraser(states: np.ndarray, rank: int, seed: int = 0) -> Eraser:
    """Draw an eraser of random directions in which the states vary, as a baseline for `leace`.

    states: (word, hidden).
    rank: number of directions.
    seed: random seed.
    Raises Refused if the rank is larger than that of the states, or a state is not finite.
    """
    mean, whitening, colouring = _whitening(states)
    state_rank = np.linalg.matrix_rank(whitening, hermitian=True)
    rank = require_int("rank", rank, 0, int(state_rank))
    draws = (
        whitening
        @ colouring
        @ np.random.default_rng(require_int("seed", seed)).standard_normal((states.shape[1], rank))
    )
    return _eraser(mean, whitening, colouring, np.linalg.qr(draws)[0])


def _whitening(states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean (hidden,), the symmetric whitening matrix and its pseudo-inverse, each (hidden, hidden)."""
    check_finite("states", states)
    states = states.astype(np.float64)
    mean = states.mean(0)
    sizes, axes = np.linalg.eigh((states - mean).T @ (states - mean) / len(states))
    varies = sizes > MIN_VARIANCE * max(sizes[-1], np.finfo(float).tiny)
    roots = np.sqrt(np.where(varies, sizes, 1))
    return mean, (axes * (varies / roots)) @ axes.T, (axes * (varies * roots)) @ axes.T


def _eraser(mean: np.ndarray, whitening: np.ndarray, colouring: np.ndarray, directions: np.ndarray) -> Eraser:
    """Return the eraser of orthonormal directions (hidden, rank) of the whitened states."""
    return Eraser(mean, whitening @ directions, directions.T @ colouring)

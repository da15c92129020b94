"""What is known of heads as numbers: estimates of their worth, and how well they hold."""

from __future__ import annotations

import numpy as np

from bert_core.analysis.attribution import rank_agreement


def removal_estimate(gate_gradient: np.ndarray) -> np.ndarray:
    """Change of the target without a head, to first order: its gate goes from 1 to 0, so minus its slope.

    gate_gradient: (layer, head), of the target, with all gates at 1. The same shape.
    Its size is the head importance of Michel 2019, equation 2 (arXiv:1905.10650).
    """
    return -gate_gradient


def heads_agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation of two figures for every head, from -1 to 1.

    one, other: (layer, head); heads that are NaN in either, as pruned ones are, do not count.
    Returns NaN if fewer than two are left, or one figure is the same for all of them.
    Raises ValueError if the shapes differ.
    """
    if one.shape != other.shape:
        raise ValueError(f"{one.shape} and {other.shape}: one figure of each for every head")
    there = np.isfinite(one) & np.isfinite(other)
    if there.sum() < 2:
        return float("nan")
    return float(rank_agreement(np.stack([one[there], other[there]]))[0, 1])

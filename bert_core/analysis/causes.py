"""What is made of patches: whether a cheap estimate of them tells the truth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.analysis.attribution import rank_agreement
from bert_core.records import Patches
from bert_core.refused import Refused, checked, whole


class Missed(NamedTuple):
    """How an estimate of patches stands beside the exact ones.

    agreement: rank correlation (Spearman) of the two, -1 to 1; NaN where one of them is the same everywhere.
    missed: the share of the places that move the answer most, exactly, which are not among as many of the estimate.
    top: how many places these are.
    """

    agreement: float
    missed: float
    top: int


@checked
def patches_missed(exact: Patches, estimate: Patches, top: int = 10) -> Missed:
    """Hold an estimate against the exact patches of the same question.

    top: how many of the places with the largest change, either way, are looked for; all where there are fewer.
    Raises Refused for patches of different kinds or shapes, or fewer than two places.
    """
    top = whole("top", top, 1)
    if (exact.what, exact.axes, exact.values.shape) != (estimate.what, estimate.axes, estimate.values.shape):
        raise Refused(
            f"patches of {exact.what} {exact.values.shape} and of {estimate.what} {estimate.values.shape}: give the "
            "same places twice"
        )
    both = np.isfinite(exact.values) & np.isfinite(estimate.values)
    changes = np.stack([exact.values[both] - exact.base_value, estimate.values[both] - estimate.base_value])
    if changes.shape[1] < 2:
        raise Refused(f"{changes.shape[1]} places have no order: it takes two")
    top = min(top, changes.shape[1])
    first, second = (set(np.argsort(-np.abs(row), kind="stable")[:top].tolist()) for row in changes)
    return Missed(float(rank_agreement(changes)[0, 1]), 1 - len(first & second) / top, top)

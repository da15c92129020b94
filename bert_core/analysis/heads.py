"""What is known of heads as numbers: estimates of their worth, and how well they hold."""

from __future__ import annotations

import numpy as np

from bert_core.analysis.attribution import rank_agreement
from bert_core.refused import require_int, validate_arrays


@validate_arrays(gate_gradient="layer head")
def removal_estimate(gate_gradient: np.ndarray) -> np.ndarray:
    """Change of the target without a head, to first order: its gate goes from 1 to 0, so minus its slope.

    gate_gradient: (layer, head), of the target, with all gates at 1. The same shape.
    Its size is the head importance of Michel 2019, equation 2 (arXiv:1905.10650).
    """
    return -gate_gradient


@validate_arrays(one="layer head", other="layer head")
def heads_agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation of two figures for every head, from -1 to 1.

    one, other: (layer, head); heads that are NaN in either, as pruned ones are, do not count.
    Returns NaN if fewer than two are left, or one figure is the same for all of them.
    Raises Refused if the shapes differ.
    """
    there = np.isfinite(one) & np.isfinite(other)
    if there.sum() < 2:
        return float("nan")
    return float(rank_agreement(np.stack([one[there], other[there]]))[0, 1])


@validate_arrays(importance="layer head")
def layer_normalised(importance: np.ndarray) -> np.ndarray:
    """Importances over their length within each layer, so that layers of different slope can be compared.

    importance: (layer, head); NaN, as for pruned heads, stays and does not count. A layer of zeros stays one.
    Source: Michel 2019, section 4.1, after Molchanov 2017 (arXiv:1611.06440).
    """
    lengths = np.sqrt(np.nansum(importance**2, axis=1, keepdims=True))
    normalised: np.ndarray = importance / np.where(lengths > 0, lengths, 1)
    return normalised


@validate_arrays(figures="layer head")
def leading_heads(figures: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The heads (layer, head) with the largest figures, the largest first; NaN, as of pruned heads, is left out.

    figures: (layer, head). count: how many at most.
    """
    count = require_int("count", count)
    order = np.argsort(-figures, axis=None, kind="stable")
    heads = [divmod(int(place), figures.shape[1]) for place in order if np.isfinite(figures.flat[place])]
    return heads[:count]

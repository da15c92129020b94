"""Accuracy of token scores where the tokens that determine the prediction are known.

Sources: Arras 2022 (CLEVR-XAI, arXiv:2003.07258) for mass accuracy and rank accuracy, Zhang 2016 (arXiv:1608.00507) for
the pointing game, and Arras 2025 (arXiv:2502.15886) for their use with subject-verb agreement in language models.
"""

from __future__ import annotations

from math import comb

import numpy as np

from bert_core.refused import Refused, check_finite, validate_arrays

VARIANTS = ("signed", "absolute", "clipped")
"""The scores themselves, their absolute values, or their positive part."""

ACCURACIES = ("mass", "rank", "pointing", "reciprocal_rank")


@validate_arrays(scores="method token", relevant="token")
def truth_accuracy(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Compute how well the scores of each method locate the relevant tokens.

    scores: (method, token). relevant: (token,), nonzero for the tokens that determine the prediction.
    Returns (method, variant, accuracy) in the order of `VARIANTS` and `ACCURACIES`, each from 0 to 1, except that the
    mass of signed scores is from -1 to 1:
        "mass": sum of the scores of the relevant tokens, divided by the sum of all absolute scores; 0 if all are 0.
        "rank": share of the relevant tokens among the K tokens with the largest scores, for K relevant tokens.
        "pointing": 1 if the largest score belongs to a relevant token, else 0.
        "reciprocal_rank": 1 divided by the rank of the first relevant token.
    Tokens with equal scores count with the mean over all their orders, so equal scores of all tokens give the expected
    accuracy of a random ranking.
    Raises Refused if a score is not finite, or no token is relevant.

    >>> import numpy as np
    >>> from bert_core.analysis.ground_truth import truth_accuracy
    >>> scores = np.array([[3.0, -6.0, 1.0]])
    >>> truth_accuracy(scores, np.array([1, 0, 0]))[0].round(2)  # (variant, accuracy)
    array([[0.3 , 1.  , 1.  , 1.  ],
           [0.3 , 0.  , 0.  , 0.5 ],
           [0.75, 1.  , 1.  , 1.  ]])
    """
    check_finite("scores", scores)
    is_relevant = relevant != 0
    if not is_relevant.any():
        raise Refused("no token is relevant: mark at least one token")
    numbers = scores.astype(np.float64)
    result = np.empty((len(numbers), len(VARIANTS), len(ACCURACIES)))
    for method, row in enumerate(numbers):
        for variant, values in enumerate((row, np.abs(row), row.clip(min=0))):
            total = float(np.abs(values).sum())
            mass = float(values[is_relevant].sum()) / total if total else 0.0
            result[method, variant] = mass, *_ranking_accuracies(values, is_relevant)
    return result


def _ranking_accuracies(values: np.ndarray, is_relevant: np.ndarray) -> tuple[float, float, float]:
    """Return rank accuracy, pointing accuracy and reciprocal rank, as means over all orders of equal values."""
    count = int(is_relevant.sum())
    limit = np.partition(values, -count)[-count]  # the K-th largest value
    larger, tied = values > limit, values == limit
    share_of_tied = (count - int(larger.sum())) / int(tied.sum())
    rank = (int((larger & is_relevant).sum()) + int((tied & is_relevant).sum()) * share_of_tied) / count
    pointing = float(is_relevant[values == values.max()].mean())
    best = values[is_relevant].max()
    before, ties = int((values > best).sum()), int((values == best).sum())
    relevant_ties = int(((values == best) & is_relevant).sum())
    # The probability that the first relevant of the equal values has this place among them.
    orders = comb(ties, relevant_ties)
    reciprocal = sum(
        comb(ties - place, relevant_ties - 1) / orders / (before + place)
        for place in range(1, ties - relevant_ties + 2)
    )
    return rank, pointing, reciprocal

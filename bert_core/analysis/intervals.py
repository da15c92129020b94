"""95% confidence intervals of shares and of means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bert_core.refused import Refused, require_int, require_sequence, validate_arguments, validate_arrays

BOOTSTRAP_SAMPLES = 2000


@validate_arguments
def wilson_interval(successes: float, trials: int) -> tuple[float, float]:
    """Return the bounds of the 95% confidence interval of a share, 0 to 1, for independent trials; NaN without trials.

    successes: may be a fraction, such as 3.5 if a tie counts as half. Half a success varies less than the interval
        assumes, so that it is then too wide rather than too narrow.
    Raises Refused for more successes than trials, and for a negative number.
    Source: Wilson 1927 (J. Am. Stat. Assoc. 22).
    """
    from scipy.special import ndtri

    if not 0 <= successes <= trials:
        raise Refused(f"{successes} of {trials} trials succeeded: successes must be from 0 to the number of trials")
    if not trials:
        return math.nan, math.nan
    quantile = float(ndtri(0.975))
    share, spread = successes / trials, quantile**2 / trials
    centre = (share + spread / 2) / (1 + spread)
    half_length = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    # Rounding must not exclude a share of 0 or 1.
    return (0.0 if successes == 0 else centre - half_length), (1.0 if successes == trials else centre + half_length)


@validate_arrays(values="item value")
def bootstrap_interval(
    values: np.ndarray, groups: Sequence[object], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = 0
) -> np.ndarray:
    """Compute the 95% bootstrap interval of the mean over items, where whole groups of items are drawn.

    values: (item, value), whose means over the items are estimated.
    groups: group of each item. Items of one group are not independent, such as sentences with the same words.
    samples: number of bootstrap samples. seed: random seed.
    Returns (2, value), the 2.5% and 97.5% percentiles of the means.
    Raises Refused if there is not one group for each item.
    Source: Efron and Tibshirani 1993, sections 8.4 and 13.3.
    """
    names = require_sequence("groups", groups, "one group for each item")
    if len(names) != len(values):
        raise Refused(f"there are {len(names)} groups and {len(values)} items: give one group for each of the items")
    require_int("samples", samples, 1)
    generator = np.random.default_rng(require_int("seed", seed))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    membership = np.array([numbers[name] for name in names])
    sums = np.zeros((len(numbers), values.shape[1]))
    np.add.at(sums, membership, values)
    sizes = np.bincount(membership)
    weights = generator.multinomial(
        len(numbers), np.full(len(numbers), 1 / len(numbers)), size=samples
    )  # (sample, group)
    means = (weights @ sums) / (weights @ sizes)[:, None]  # (sample, value)
    return np.quantile(means, [0.025, 0.975], axis=0)

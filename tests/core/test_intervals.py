"""analysis/intervals.py: Wilson's interval of a share against its formula and scipy, and the bootstrap of a mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from bert_core.analysis.intervals import bootstrap_interval, wilson_interval
from bert_core.refused import Refused
from tests.near import assert_near


def test_the_interval_of_a_share_is_wilsons() -> None:
    """Against the formula: the shares p for which |p - 1/2| is z standard errors of p, at 5 of 10."""
    z = 1.959964
    low, high = wilson_interval(5, 10)
    for bound in (low, high):
        assert abs(bound - 0.5) == pytest.approx(z * (bound * (1 - bound) / 10) ** 0.5, rel=1e-5)
    assert low == pytest.approx(1 - high)
    assert wilson_interval(0, 10)[0] == 0 and wilson_interval(10, 10)[1] == 1
    assert all(map(math.isnan, wilson_interval(0, 0)))


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (3, 12), (12, 12), (800, 1508)])
def test_the_interval_of_whole_numbers_is_that_of_scipy(successes: int, trials: int) -> None:
    """Wilson's interval against scipy; a half lies between the intervals of both neighbours."""
    expected = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert wilson_interval(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-12)
    if successes < trials:
        low, high = wilson_interval(successes + 0.5, trials)
        next_low, next_high = wilson_interval(successes + 1, trials)
        assert expected.low < low < next_low and expected.high < high < next_high
    with pytest.raises(Refused, match=r"12\.5 of 12 trials"):
        wilson_interval(12.5, 12)


def test_the_interval_of_independent_items_is_that_of_the_normal_distribution() -> None:
    """Groups of one item give 1.96 standard errors; items that are copied in groups do not narrow the interval."""
    values = np.random.default_rng(3).normal(size=(400, 1))
    low, high = bootstrap_interval(values, range(400))
    error = values.std() / 20
    assert_near(np.array([low[0], high[0]]), values.mean() + np.array([-1.96, 1.96]) * error, 0.15, of=error)
    copied = bootstrap_interval(np.repeat(values, 5, axis=0), np.repeat(np.arange(400), 5).tolist())
    assert_near(copied, np.array([low, high]), of=error)
    with pytest.raises(Refused, match="3 groups and 400 items"):
        bootstrap_interval(values, range(3))

"""CKA: 1 with itself, blind to turning and scaling, equal to HSIC written out, exact however the tokens come."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bert_core import Refused, linear_cka
from bert_core.analysis.cka import CkaSums
from tests.near import assert_near


def states(seed: int, tokens: int = 60, width: int = 7) -> np.ndarray:
    """Random ones, far from 0 on some axes as BERT's are."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(tokens, width)) @ draw.normal(size=(width, width)) + 30 * draw.normal(size=width)


def hsic(one: np.ndarray, other: np.ndarray) -> float:
    """The biased estimate from Gram matrices, tr(KHLH): Kornblith 2019, section 3."""
    count = len(one)
    centre = np.eye(count) - 1 / count
    return float(np.trace(one @ one.T @ centre @ other @ other.T @ centre))


def unbiased_hsic(one: np.ndarray, other: np.ndarray) -> float:
    """The unbiased estimate from Gram matrices without their diagonals: Song 2012, equation 5."""
    count = len(one)
    k, m = one @ one.T, other @ other.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    terms = np.trace(k @ m), k.sum() * m.sum() / ((count - 1) * (count - 2)), 2 / (count - 2) * (k @ m).sum()
    return float((terms[0] + terms[1] - terms[2]) / (count * (count - 3)))


def test_a_set_of_states_is_all_alike_itself() -> None:
    """CKA of states with themselves is 1, by either estimate."""
    assert_near(linear_cka(states(0), states(0)), 1)
    assert_near(linear_cka(states(0), states(0), unbiased=True), 1)


@pytest.mark.parametrize("unbiased", [False, True])
def test_turning_scaling_and_moving_change_nothing(unbiased: bool) -> None:
    """An orthogonal map, a factor and a shift of either side leave CKA as it is; a map that stretches does not."""
    one, other = states(1), states(2, width=5)
    turned = np.linalg.qr(np.random.default_rng(3).normal(size=(7, 7)))[0]
    plain = linear_cka(one, other, unbiased=unbiased)
    assert_near(linear_cka(-3.5 * one @ turned + 11, other / 8, unbiased=unbiased), plain, of=1)
    assert_near(linear_cka(other, one, unbiased=unbiased), plain, of=1)
    stretched = linear_cka(one * np.arange(1, 8) ** 2, other, unbiased=unbiased)
    assert abs(stretched - plain) > 0.01


def test_two_by_two_by_hand() -> None:
    """Two tokens draw one distance whatever the widths: 1. Four at a square's corners beside one side of it: 1 / √2."""
    assert_near(linear_cka([[0.0, 0.0], [1.0, 2.0]], [[5.0], [7.0]]), 1)
    square = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    # Centred, the products of its columns are the identity, of size √2; with one column beside both: 1.
    assert_near(linear_cka(square, [[0.0], [0.0], [1.0], [1.0]]), 1 / math.sqrt(2))
    assert_near(linear_cka([[0.0], [0.0], [1.0], [1.0]], [[0.0], [1.0], [0.0], [1.0]]), 0, of=1)


def test_it_is_hsic_written_out() -> None:
    """From covariances comes what Gram matrices give, for the biased and for the unbiased estimate."""
    one, other = states(4), states(5, width=9)
    direct = hsic(one, other) / math.sqrt(hsic(one, one) * hsic(other, other))
    assert_near(linear_cka(one, other), direct)
    ours = unbiased_hsic(one, other) / math.sqrt(unbiased_hsic(one, one) * unbiased_hsic(other, other))
    assert_near(linear_cka(one, other, unbiased=True), ours, of=1)


def test_states_with_nothing_in_common_seem_alike_only_to_the_biased_estimate() -> None:
    """Of as many random tokens as axes the biased CKA is far from 0; the unbiased one is 0 on the mean."""
    draw = np.random.default_rng(6)
    pairs = [draw.normal(size=(2, 40, 40)) for _ in range(30)]
    assert np.mean([linear_cka(one, other) for one, other in pairs]) > 0.4
    assert abs(np.mean([linear_cka(one, other, unbiased=True) for one, other in pairs])) < 0.02


def test_tokens_may_come_in_any_parts() -> None:
    """Sums over parts of any size are those over all tokens at once, for every pair of depths, and for some rows."""
    one, other = [states(7), states(8), states(9)], [states(10, width=5), states(11, width=5)]
    whole = CkaSums()
    whole.add(one, other)
    for rows in (None, (1, 2)):
        parts = CkaSums(rows)
        for part in (slice(0, 1), slice(1, 30), slice(30, None)):
            parts.add([depth[part] for depth in one], [depth[part] for depth in other])
        taken = slice(None) if rows is None else list(rows)
        assert_near(parts.cka(), whole.cka()[taken])
        assert_near(parts.unbiased(), whole.unbiased()[taken])
    assert whole.cka().shape == (3, 2)
    assert_near(whole.cka()[2, 1], linear_cka(one[2], other[1]))


def test_what_says_nothing_is_like_nothing() -> None:
    """States that are the same at every token have no CKA; numbers that are not finite, or too few, are refused."""
    assert math.isnan(linear_cka(np.ones((5, 3)), states(0, tokens=5)))
    with pytest.raises(Refused, match="every number must be finite"):
        linear_cka([[np.nan], [1.0]], [[1.0], [2.0]])
    with pytest.raises(Refused, match="the number of tokens is 3: the unbiased estimate needs at least 4"):
        linear_cka(np.eye(3), np.eye(3), unbiased=True)
    with pytest.raises(Refused, match="second is"):
        linear_cka(np.eye(3), np.eye(4))

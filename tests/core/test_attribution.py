"""bert_core/analysis/attribution.py: from maps to tokens and words, in numbers that can be worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bert_core import LoadedModel, Target, capture
from bert_core.analysis.attribution import (
    effective_attention,
    gradient_attention,
    gradient_relevance,
    norm_rollout,
    normalise_rows,
    rank_agreement,
    scaled_rows,
    side_totals,
)
from bert_core.analysis.flow import attention_rollout
from bert_core.analysis.units import map_of_units, scores_of_units, word_units
from tests.near import assert_near


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def some_attention(*shape: int, seed: int = 0) -> np.ndarray:
    weights = np.exp(2 * some(*shape, seed=seed))
    return weights / weights.sum(-1, keepdims=True)


def test_the_sum_of_gradient_x_attention_is_the_gates_gradient(tiny_loaded: LoadedModel) -> None:
    """For every head; clipping keeps what is positive, and the two signs together are the whole."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the [MASK] .")
    target = Target("mlm", encoding.mask_positions[0], tiny_loaded.tokenizer.id_of("mat"))
    run = capture(tiny_loaded, encoding, target=target)
    assert run.gradient is not None and run.gate_gradient is not None
    signed = gradient_attention(run.attention, run.gradient)
    assert_near(signed.sum((2, 3)), run.gate_gradient)
    clipped = gradient_attention(run.attention, run.gradient, clip=True)
    np.testing.assert_allclose(clipped - gradient_attention(run.attention, -run.gradient, clip=True), signed)
    assert (clipped >= 0).all() and (signed < 0).any()


def test_relevance_is_a_product_over_layers() -> None:
    """The rule of the paper, step by step, is the product of (I + mean clipped map) from the top, less I."""
    attention, gradient = some_attention(3, 2, 4, 4), some(3, 2, 4, 4, seed=1)
    layers = np.eye(4) + np.maximum(attention * gradient, 0).mean(1)
    relevance = gradient_relevance(attention, gradient)
    np.testing.assert_allclose(relevance, layers[2] @ layers[1] @ layers[0] - np.eye(4))
    assert (relevance >= 0).all()
    np.testing.assert_array_equal(gradient_relevance(attention, -np.abs(gradient)), np.zeros((4, 4)))


def test_relevance_of_one_layer_worked_by_hand() -> None:
    """One head, one layer: the positive products themselves."""
    attention = np.array([[[[0.5, 0.5], [0.25, 0.75]]]])
    gradient = np.array([[[[2.0, -2.0], [4.0, 0.0]]]])
    np.testing.assert_allclose(gradient_relevance(attention, gradient), [[1, 0], [1, 0]])


def test_effective_attention_gives_what_attention_gives() -> None:
    """Times the values it is the same; it is the shortest such row; and doing it twice changes nothing."""
    attention, values = some_attention(2, 3, 9, 9), some(2, 3, 9, 4, seed=1)
    effective = effective_attention(attention, values)
    assert_near(effective @ values, attention @ values, 1e-12)
    assert_near(effective_attention(effective, values), effective, 1e-12)
    expected = attention @ values @ np.linalg.pinv(values)
    assert_near(effective, expected, 1e-10)
    assert np.abs(effective - attention).max() > 0.01
    assert (np.linalg.norm(effective, axis=-1) <= np.linalg.norm(attention, axis=-1) + 1e-12).all()


@pytest.mark.parametrize("keys", [5, 8])
def test_short_texts_have_no_other_effective_attention(keys: int) -> None:
    """With no more keys than the head size the null space is empty, and both maps are one."""
    attention, values = some_attention(2, keys, keys), some(2, keys, 8, seed=1)
    assert_near(effective_attention(attention, values), attention, 1e-10)


def test_values_that_lie_in_a_plane_are_seen_as_such() -> None:
    """Two equal values share what goes to either, also in float32."""
    values = np.array([[1, 2, 3], [1, 2, 3], [0, 1, 0]], np.float32)
    attention = np.array([[0.9, 0.1, 0.0]], np.float32)
    assert_near(effective_attention(attention, values), [[0.5, 0.5, 0]])
    with pytest.raises(ValueError, match=r"^values is .*: it must be \(..., key, size\), and key is 2 in attention$"):
        effective_attention(attention[:, :2], values)


def test_norms_roll_out_like_attention() -> None:
    """Without a residual of their own, shares of one head are treated as rollout treats attention."""
    attention = some_attention(4, 1, 5, 5)
    np.testing.assert_allclose(norm_rollout(3 * attention[:, 0], residual=True), attention_rollout(attention))
    held = norm_rollout(attention[:, 0], residual=False)
    np.testing.assert_allclose(held.sum(-1), 1)
    np.testing.assert_allclose(held[-1], np.linalg.multi_dot(attention[::-1, 0]))


@pytest.mark.parametrize("residual", [False, True])
def test_a_layer_that_brings_nothing_moves_nothing(residual: bool) -> None:
    """Rows of zeros, as where all heads are gone, leave what the other layers say; rows still sum to 1."""
    norms = some_attention(3, 1, 5, 5)[:, 0]
    norms[1] = 0
    found = norm_rollout(norms, residual=residual)
    np.testing.assert_allclose(found.sum(-1), 1)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_allclose(found[2], norm_rollout(norms[[0, 2]], residual=residual)[1])


def test_rows_become_shares() -> None:
    """Rows sum to 1, a row of zeros stays, and a negative number has no share."""
    np.testing.assert_allclose(normalise_rows(np.array([[1.0, 3.0], [0.0, 0.0]])), [[0.25, 0.75], [0, 0]])
    with pytest.raises(ValueError, match=r"^a contribution is -1: contributions to normalise must not be negative$"):
        normalise_rows(np.array([[1.0, -1.0]]))


def test_pieces_become_words(tiny_loaded: LoadedModel) -> None:
    """Every position is in one unit; totals and row sums stay; to a word the sum, from it the mean."""
    encoding = tiny_loaded.tokenizer.encode("the xyz sat", "cats")
    assert [encoding.tokens[p] for p in (1, 2, 3, 4, 5)] == ["the", "x", "##y", "##z", "sat"]
    units = word_units(encoding)
    assert units == ((0,), (1,), (2, 3, 4), (5,), (6,), (7, 8), (9,))
    attention = some_attention(2, 3, 10, 10)
    words = map_of_units(attention, units)
    np.testing.assert_allclose(words.sum(-1), 1)
    np.testing.assert_allclose(words[0, 0, 2, 5], attention[0, 0, 2:5, 7:9].sum(-1).mean())
    scores = some(2, 10)
    np.testing.assert_allclose(scores_of_units(scores, units).sum(-1), scores.sum(-1))


def test_a_mask_is_a_word_of_its_own(tiny_loaded: LoadedModel) -> None:
    """Neighbouring masks that were typed are two units; a word masked whole is one."""
    tokenizer = tiny_loaded.tokenizer
    assert word_units(tokenizer.encode("the [MASK] [MASK] sat")) == ((0,), (1,), (2,), (3,), (4,), (5,))
    masked = tokenizer.mask_words(tokenizer.encode("the xyz sat"), [1])
    assert word_units(masked) == ((0,), (1,), (2, 3, 4), (5,), (6,))


def test_agreement_is_that_of_scipy() -> None:
    """Spearman and Kendall's tau-b, with many ties, between every two methods."""
    scores = np.random.default_rng(0).integers(0, 5, size=(4, 12)).astype(float)
    for kind, peer in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau)):
        expected = [[peer(one, other).statistic for other in scores] for one in scores]
        assert_near(rank_agreement(scores, kind), expected, 1e-12)


def test_agreement_at_its_ends() -> None:
    """The same order 1, the reverse -1, and all tokens alike no number at all."""
    scores = np.array([[1.0, 2, 3], [10, 20, 900], [3, 2, 1], [5, 5, 5]])
    for kind in ("spearman", "kendall"):
        agreement = rank_agreement(scores, kind)
        np.testing.assert_allclose(agreement[0, :3], [1, 1, -1])
        assert np.isnan(agreement[3]).all()
    with pytest.raises(ValueError, match=r"^the kind of agreement is 'pearson': it must be 'spearman' or 'kendall'$"):
        rank_agreement(scores, "pearson")
    with pytest.raises(ValueError, match=r"^the number of tokens is 1: a rank correlation needs at least two$"):
        rank_agreement(scores[:, :1])


def test_scaled_rows_reach_one() -> None:
    """The largest size of every row becomes 1, signs and order stay, zeros stay zeros."""
    scores = np.array([[1.0, -4.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.5, 0.0]])
    np.testing.assert_array_equal(scaled_rows(scores), [[0.25, -1, 0.5], [0, 0, 0], [1, 0.5, 0]])


def test_sides_hold_all_there_is(tiny_loaded: LoadedModel) -> None:
    """A, B and the added [CLS] and [SEP], by hand; together they are the whole."""
    encoding = tiny_loaded.tokenizer.encode("the cat", "it ran")
    found = side_totals(np.array([1.0, 2, 3, 4, 5, 6, 7]), encoding)
    assert found == {"A": 5, "B": 11, "special": 12}
    assert side_totals(np.ones(4), tiny_loaded.tokenizer.encode("the cat"))["B"] == 0

"""bert_core/analysis/lens.py and kinds.py, on arrays that can be reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bert_core import LoadedModel
from bert_core.analysis.kinds import TOKEN_KINDS, kind_figures, token_kinds
from bert_core.analysis.lens import (
    cosine_similarities,
    mean_similarity,
    neighbours_in_plane,
    settled_depth,
    states_in_plane,
)
from tests.near import assert_near


def test_a_word_is_settled_where_it_stays_first() -> None:
    """First once and then lost again does not count; first from the start is depth 0."""
    ranks = np.array([[1, 9, 1, 5], [1, 1, 4, 3], [1, 7, 1, 2], [1, 1, 1, 1]])
    assert settled_depth(ranks).tolist() == [0, 3, 2, 3]
    with pytest.raises(ValueError, match="these must be ranks of the token that is first there"):
        settled_depth(ranks + 1)


def test_a_plane_in_a_larger_space_keeps_its_distances() -> None:
    """States that lie in one plane are shown as they are, up to the common size; shift and stretch do not show."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(12, 2)))[0]
    flat = rng.normal(size=(7, 2)) * [3.0, 1.0]
    states = np.stack([flat @ basis.T, 5 * flat @ basis.T + rng.normal(size=12)]).astype(np.float32)
    found = states_in_plane(states)
    np.testing.assert_allclose(found.explained_variance, 1, rtol=1e-5)
    centred = flat - flat.mean(0)
    size = np.sqrt((centred**2).sum(1).mean())
    for points in found.points:
        between = [np.linalg.norm(places[:, None] - places[None], axis=-1) for places in (points, flat)]
        assert_near(between[0], between[1] / size)


def test_the_two_axes_are_those_of_the_largest_variance() -> None:
    """At each depth no other two axes show more than the two largest eigenvalues of the covariance."""
    states = np.random.default_rng(1).normal(size=(3, 20, 6)) * np.arange(1, 7)
    found = states_in_plane(states)
    for depth, one in enumerate(states):
        values = np.linalg.eigvalsh(np.cov(one.T))
        assert_near(found.explained_variance[depth], values[-2:].sum() / values.sum())


def test_a_turned_or_mirrored_state_space_gives_the_same_picture() -> None:
    """A depth that is the one before, turned, mirrored, stretched and moved, lies where the one before lay."""
    rng = np.random.default_rng(4)
    first = rng.normal(size=(9, 5)) * [4, 3, 0.1, 0.1, 0.1]
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    found = states_in_plane(np.stack([first, 7 * first @ turn + 2, -first]))
    assert_near(found.points[1], found.points[0])
    assert_near(found.points[2], found.points[0])


def test_states_that_are_all_alike_lie_in_the_middle() -> None:
    """No division by nothing; one position has no plane."""
    found = states_in_plane(np.ones((2, 4, 5), np.float32))
    assert (found.points == 0).all() and (found.explained_variance == 0).all()
    with pytest.raises(ValueError, match="the number of positions is 1: a projection needs at least two"):
        states_in_plane(np.ones((2, 1, 5)))


@pytest.mark.slow
def test_neighbours_stay_neighbours() -> None:
    """Of three bundles of directions every state lies nearest to one of its own, at both depths; twice is the same."""
    rng = np.random.default_rng(3)
    bundles = np.repeat(np.eye(20)[:3], 8, axis=0)
    near = bundles + 0.05 * rng.normal(size=(2, 24, 20))
    states = (near * rng.uniform(1, 9, (2, 24, 1))).astype(np.float32)  # only the angle counts
    done: list[float | None] = []
    found = neighbours_in_plane(states, report=lambda share, what="": done.append(share))
    assert found.shape == (2, 24, 2) and done == [0.5, 1]
    assert_near(found.mean(1), 0, of=1)
    np.testing.assert_allclose((found**2).sum(-1).mean(-1), 1, rtol=1e-5)
    away = np.linalg.norm(found[:, :, None] - found[:, None], axis=-1) + 9 * np.eye(24)
    assert (away.argmin(-1) // 8 == np.arange(24) // 8).all()
    np.testing.assert_array_equal(found, neighbours_in_plane(states))
    assert np.isfinite(neighbours_in_plane(np.ones((2, 5, 4), np.float32))).all()
    with pytest.raises(ValueError, match="the text has 3 tokens: a layout by neighbours needs at least four"):
        neighbours_in_plane(states[:, :3])


def test_cosines_pair_by_pair() -> None:
    """1 with itself, symmetric, as by hand; their mean over pairs of different vectors is the mean similarity."""
    vectors = np.random.default_rng(2).normal(size=(2, 5, 8)) + 0.5
    found = cosine_similarities(vectors)
    for depth in range(2):
        pairs = []
        for i, j in np.ndindex(5, 5):
            one, other = vectors[depth, i], vectors[depth, j]
            expected = one @ other / np.sqrt((one @ one) * (other @ other))
            assert_near(found[depth, i, j], expected, 1e-12)
            pairs += [expected] * (i != j)
        assert_near(mean_similarity(vectors)[depth], np.mean(pairs), 1e-12)
    assert (cosine_similarities(np.zeros((1, 2, 3))) == 0).all()


def test_attention_and_gradient_by_kind(tiny_loaded: LoadedModel) -> None:
    """Shares add up to 1 and are sums over keys; a gradient is a mean over them; a kind that is not there is NaN."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat .", "a dog ran")
    names = [TOKEN_KINDS[kind] for kind in token_kinds(encoding)]
    assert names == ["[CLS]", *["other"] * 3, "punctuation", "[SEP]", *["other"] * 3, "[SEP]"]
    rng = np.random.default_rng(3)
    attention = rng.dirichlet(np.ones(10), size=(2, 4, 10))
    gradient = rng.normal(size=attention.shape)
    found = kind_figures(attention, gradient, encoding)
    np.testing.assert_allclose(found.share.sum(1), 1)
    sep = [5, 9]
    np.testing.assert_allclose(found.share[:, 1], attention[..., sep].sum(-1).mean((1, 2)))
    assert found.gradient is not None
    np.testing.assert_allclose(found.gradient[:, 1], np.abs(gradient[..., sep]).mean((1, 2, 3)))
    np.testing.assert_allclose(found.tokens, [0.1, 0.2, 0.1, 0.6])
    bare = kind_figures(attention[..., :3, :3], gradient[..., :3, :3], tiny_loaded.tokenizer.encode("cat"))
    assert bare.gradient is not None and np.isnan(bare.gradient[:, 2]).all() and (bare.share[:, 2] == 0).all()
    assert kind_figures(attention, None, encoding).gradient is None

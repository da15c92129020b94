"""What a head does, worked by hand on heads that do one thing, and by other programs on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon, pdist, squareform

from bert_core import LoadedModel
from bert_core.analysis.roles import (
    NO_ROLE,
    THRESHOLDS,
    Role,
    classical_scaling,
    confidence,
    describe_roles,
    head_distances,
    head_figures,
    heads_by_role,
    nearest_heads,
    role_of,
    role_ranks,
    role_scores,
    roles_of_heads,
    strongest_examples,
)
from bert_core.tokenizer import CLS, SEP, Encoding
from tests.near import assert_near


def encoding_of(loaded: LoadedModel) -> Encoding:
    return loaded.tokenizer.encode("the cat sat, the dog ran.", "it was old.")


def only(keys: list[int], length: int) -> np.ndarray:
    """A map whose every row looks at one key."""
    return np.eye(length)[keys]


def heads_with_one_role(encoding: Encoding) -> dict[str, np.ndarray]:
    """Role -> a map (query, key) that does nothing else."""
    length = len(encoding)
    places = np.arange(length)
    last = max(n for n, token in enumerate(encoding.tokens) if token == SEP)
    comma = encoding.tokens.index(",")
    return {
        "previous": only([max(n - 1, 0) for n in places], length),
        "next": only([min(n + 1, length - 1) for n in places], length),
        "self": only(list(places), length),
        "cls": only([0] * length, length),
        "sep": only([last] * length, length),
        "punctuation": only([comma] * length, length),
        "broad": np.full((length, length), 1 / length),
    }


def test_a_head_that_does_one_thing_has_that_role(tiny_loaded: LoadedModel) -> None:
    """Each pure head has the score 1 in its own role, and that role; half of it beside noise is no role."""
    encoding = encoding_of(tiny_loaded)
    pure = heads_with_one_role(encoding)
    scores = role_scores(np.stack([[one] for one in pure.values()]), encoding)
    roles = roles_of_heads(scores)
    assert list(scores) == list(THRESHOLDS)
    for layer, name in enumerate(pure):
        assert scores[name][layer, 0] == pytest.approx(1)
        assert roles[layer][0] is not None and roles[layer][0].name == name
    rng = np.random.default_rng(0)
    noise = rng.dirichlet(np.full(len(encoding), 0.3), len(encoding))
    mixed = 0.4 * pure["previous"] + 0.6 * noise
    found = roles_of_heads(role_scores(mixed[None, None], encoding))[0][0]
    assert found is not None and found.name == NO_ROLE


def test_scores_are_shares_seen_from_what_was_typed(tiny_loaded: LoadedModel) -> None:
    """Each score is a plain mean over the typed tokens, worked in loops."""
    encoding = encoding_of(tiny_loaded)
    rows = np.random.default_rng(1).dirichlet(np.ones(len(encoding)), (2, 3, len(encoding)))
    scores = role_scores(rows, encoding)
    typed = [n for n, special in enumerate(encoding.special) if not special]
    for layer, head in np.ndindex(2, 3):
        one = rows[layer, head]
        signs = [n for n in typed if encoding.tokens[n] in ",."]
        expected = {
            "previous": np.mean([one[n, n - 1] for n in typed]),
            "next": np.mean([one[n, n + 1] for n in typed]),
            "self": np.mean([one[n, n] for n in typed]),
            "cls": np.mean([one[n, 0] for n in typed]),
            "sep": np.mean([one[n, [k for k, t in enumerate(encoding.tokens) if t == SEP]].sum() for n in typed]),
            "punctuation": np.mean([one[n, signs].sum() for n in typed]),
            "broad": np.mean([-(one[n] * np.log(one[n])).sum() for n in typed]) / np.log(len(encoding)),
        }
        for name, value in expected.items():
            assert scores[name][layer, head] == pytest.approx(value), name
        sure = np.mean([max(one[n, k] for k in typed) for n in typed])
        assert confidence(rows, encoding)[layer, head] == pytest.approx(sure)
    assert encoding.tokens[0] == CLS and set(head_figures(rows, encoding)) == {
        *THRESHOLDS, "confidence", "entropy", "distance",
    }  # fmt: skip


def test_the_role_is_the_score_farthest_over_its_threshold() -> None:
    """Of two that are over, the one that is so by more of its threshold; on the threshold is not over it."""
    nothing = dict.fromkeys(THRESHOLDS, 0.0)
    assert role_of({**nothing, "previous": 0.7, "broad": 0.8}) == ("previous", 0.7)
    assert role_of({**nothing, "sep": 0.6}) == (NO_ROLE, 0.6)
    assert role_of({**nothing, "sep": 0.61}) == ("sep", 0.61)


def test_heads_by_role_hold_every_head_once() -> None:
    """The surest first; a head that is not there is nowhere."""
    scores = {name: np.zeros((2, 2)) for name in THRESHOLDS}
    scores["next"] = np.array([[0.6, 0.9], [np.nan, 0.1]])
    for values in scores.values():
        values[1, 0] = np.nan
    found = heads_by_role(roles_of_heads(scores))
    assert found["next"] == [(0, 1), (0, 0)] and found[NO_ROLE] == [(1, 1)]
    assert sum(map(len, found.values())) == 3


def test_ranks_put_heads_of_one_role_together() -> None:
    """In the order of the thresholds, the highest score of a role first, no role behind; each is named in words."""
    found = [
        [Role("sep", 0.9), Role("previous", 0.6), None, Role(NO_ROLE, 0.7), Role("previous", 1.0), Role("next", 0.5)]
    ]
    order = np.argsort(-role_ranks(found)[0], kind="stable")
    assert order.tolist() == [4, 1, 5, 0, 3, 2]
    assert describe_roles(found)[0][:3] == ["attends to [SEP] (0.90)", "attends to the previous token (0.60)", ""]


def test_distances_are_those_of_scipy() -> None:
    """The Jensen-Shannon distance of every two heads, row by row, and its mean; 0 to itself, 1 to a stranger.

    In the single precision of a run nearly so, also for heads that are nearly or quite the same.
    """
    rows = np.random.default_rng(2).dirichlet(np.full(6, 0.4), (2, 3, 6))
    found = head_distances(rows)
    flat = rows.reshape(6, 6, 6)
    for one, other in np.ndindex(6, 6):
        expected = np.mean([jensenshannon(p, q, base=2) for p, q in zip(flat[one], flat[other], strict=True)])
        assert_near(found[one, other], 0 if one == other else expected, 1e-7, of=1)
    strangers = np.stack([only([0, 0], 2), only([1, 1], 2)])[None]
    assert head_distances(strangers).tolist() == [[0, 1], [1, 0]]
    long = np.random.default_rng(5).dirichlet(np.full(300, 0.1), (1, 5, 20))
    long[0, 3], long[0, 4] = long[0, 2], 0.99 * long[0, 2] + 0.01 * long[0, 1]
    single = head_distances(long.astype(np.float32))
    assert_near(single, head_distances(long), 1e-3, of=1)
    assert single[2, 3] == 0 and (single == single.T).all()


def test_a_head_that_is_not_there_is_near_to_none() -> None:
    """It has no distance, no place on the map, and is nobody's neighbour."""
    rows = np.random.default_rng(3).dirichlet(np.ones(5), (2, 2, 5))
    rows[0, 1] = np.nan
    distances = head_distances(rows)
    assert np.isnan(distances[1]).all() and np.isnan(distances[:, 1]).all()
    nearest = nearest_heads(distances, 0)
    assert sorted(nearest) == [2, 3] and distances[0, nearest[0]] <= distances[0, nearest[1]]
    points = classical_scaling(distances)
    assert np.isnan(points[1]).all() and np.isfinite(points[[0, 2, 3]]).all()


def test_scaling_gives_back_points_of_a_plane() -> None:
    """Distances between points of a plane are kept exactly; more dimensions than there are add zeros."""
    points = np.random.default_rng(4).normal(size=(7, 2))
    distances = squareform(pdist(points))
    found = classical_scaling(distances)
    assert squareform(pdist(found)) == pytest.approx(distances)
    assert found[:, 0].std() >= found[:, 1].std()
    assert_near(found.mean(0), 0, 1e-9, of=1)
    line = classical_scaling(np.abs(np.subtract.outer([0.0, 1, 3], [0.0, 1, 3])))
    assert_near(line[:, 1], 0, 1e-6, of=3)
    assert classical_scaling(np.zeros((1, 1))).tolist() == [[0, 0]]
    assert np.isnan(classical_scaling(np.full((2, 2), np.nan))).all()


def test_distances_tell_how_far_they_are_and_can_be_stopped() -> None:
    """Progress counts the queries, and what the report raises ends it."""
    rows = np.full((1, 4, 3, 2), 0.5)
    told: list[str] = []
    head_distances(rows, report=lambda done, what="": told.append(what))
    assert told == ["1 of 3 queries", "2 of 3 queries", "3 of 3 queries"]

    def stop(done: float | None, what: str = "") -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        head_distances(rows, report=stop)


def test_examples_are_the_strongest_looks_between_words(tiny_loaded: LoadedModel) -> None:
    """Whole words, the strongest first, [CLS] and [SEP] never; no more than there are."""
    encoding = tiny_loaded.tokenizer.encode("cats sat", "dogs")
    length = len(encoding)  # [CLS] cat ##s sat [SEP] dog ##s [SEP]
    attention = np.full((length, length), 0.0)
    attention[:, 0] = 1
    attention[3, [0, 5, 6]] = 0.1, 0.5, 0.4  # sat -> dogs
    attention[1, [0, 3]] = 0.5, 0.5  # the first piece of cats -> sat
    best = strongest_examples(attention, encoding, 2)
    assert [(look.query, look.key) for look in best] == [("sat", "dogs"), ("cats", "sat")]
    assert [(look.query_position, look.key_position) for look in best] == [(3, 5), (1, 3)]
    assert [look.share for look in best] == pytest.approx([0.9, 0.25])
    assert len(strongest_examples(attention, encoding, 99)) == 9

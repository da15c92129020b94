"""bert_core/analysis/faithfulness.py: on a plain sum, of which the best ranking is known, and on a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from bert_core import LoadedModel, Target
from bert_core.analysis.faithfulness import (
    MEASURES,
    REMOVED_SHARES,
    TOP_SHARES,
    Faithfulness,
    evaluate_removals,
    plan_removals,
    removable_units,
)
from bert_core.run.perturbation import occlusion, values_without
from bert_core.tokenizer import MASK
from tests.near import assert_near

WEIGHTS = np.array([0.05, -0.1, 0.4, 0.2, 0.0, 0.12])
SINGLES = tuple((position,) for position in range(6))


def of_a_sum(removed: np.ndarray, weights: np.ndarray = WEIGHTS) -> np.ndarray:
    """A prediction to which every token that is there adds its weight."""
    kept: np.ndarray = (~removed) @ weights
    return kept


def test_the_true_order_is_the_best_of_all() -> None:
    """Of all 720 orders none has more comprehensiveness or AOPC, or less sufficiency, than that of the true weights."""
    every = np.array([np.argsort(order) for order in itertools.permutations(range(6))], float)
    plan = plan_removals(np.vstack([WEIGHTS, every]), SINGLES, 6, random_rankings=2)
    found = evaluate_removals(plan, of_a_sum(plan.removed))
    for name, best in (("comprehensiveness", np.max), ("sufficiency", np.min), ("aopc", np.max)):
        assert found[name].scores[0] == pytest.approx(best(found[name].scores))
        assert np.ptp(found[name].scores) > 0.1


def test_measures_worked_by_hand() -> None:
    """Two tokens, one of which is all: rounding takes one token up to 70%, and both after that."""
    weights = np.array([1.0, 0.0])
    plan = plan_removals(np.array([[1.0, 0.0], [0.0, 1.0]]), SINGLES[:2], 2, random_rankings=1)
    found = evaluate_removals(plan, of_a_sum(plan.removed, weights))
    counts = [max(1, int(share * 2 + 0.5)) for share in REMOVED_SHARES]
    assert counts == [1] * 7 + [2] * 2
    np.testing.assert_allclose(found["comprehensiveness"].scores, [1, 0])
    np.testing.assert_allclose(found["sufficiency"].scores, [0, 1])
    np.testing.assert_allclose(found["aopc"].scores, [1, 2 / 9])
    assert found["aopc"].more_is_better and not found["sufficiency"].more_is_better


def test_removal_and_keeping_are_each_others_rest() -> None:
    """The first copy is whole; the top that is removed at a share is what stands alone at that share."""
    plan = plan_removals(WEIGHTS[None], SINGLES, 8, random_rankings=3)
    assert plan.methods == 1 and plan.rankings.shape == (4, 6)
    assert plan.rankings[0, :4].tolist() == [2, 3, 5, 0]
    copies = plan.removed[1:].reshape(4, len(REMOVED_SHARES) + len(TOP_SHARES), 8)
    assert not plan.removed[0].any() and not plan.removed[:, 6:].any(), "what is in no unit stays"
    without, alone = copies[:, : len(TOP_SHARES)], copies[:, len(REMOVED_SHARES) :]
    np.testing.assert_array_equal(without[..., :6], ~alone[..., :6])
    assert (np.diff(copies[:, : len(REMOVED_SHARES)].sum(-1)) >= 0).all()


def test_ties_and_random_rankings_come_from_the_seed() -> None:
    """Equal scores are ordered by chance, the same chance for the same seed; every second ranking turns one around."""
    flat = np.zeros((1, 6))
    one, same, other = (plan_removals(flat, SINGLES, 6, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.removed, same.removed)
    assert (one.rankings != other.rankings).any()
    assert (np.sort(one.rankings) == np.arange(6)).all() and len(one.rankings) == 101
    np.testing.assert_array_equal(one.rankings[2::2], one.rankings[1::2, ::-1])
    firsts = {int(plan_removals(flat, SINGLES, 6, random_rankings=1, seed=seed).rankings[0, 0]) for seed in range(60)}
    assert firsts == set(range(6))


def test_chance_is_no_better_than_chance() -> None:
    """Of random scores about 95% lie in the band; true weights lie above, turned around below."""
    weights = np.random.default_rng(5).normal(size=30) ** 3
    units = tuple((position,) for position in range(30))
    random = np.random.default_rng(1).normal(size=(200, 30))
    plan = plan_removals(np.vstack([weights, -weights, random]), units, 30, random_rankings=1000)
    for found in evaluate_removals(plan, of_a_sum(plan.removed, weights)).values():
        assert found.verdicts[:2] == ("better", "worse")
        assert 0.9 < found.verdicts[2:].count("chance") / 200 <= 1


def test_the_edge_of_the_band_is_chance() -> None:
    """A method on the edge is not better; for sufficiency less is better."""
    scores, random = np.array([0.0, 0.5, 1.0, 1.1, -0.1]), np.zeros(2)
    for measure, ends in (("aopc", ("better", "worse")), ("sufficiency", ("worse", "better"))):
        found = Faithfulness(measure, scores, random, (0.0, 1.0))
        assert found.verdicts == ("chance", "chance", "chance", *ends)


def test_what_may_go(tiny_loaded: LoadedModel) -> None:
    """Neither specials nor the target's own; words go whole, and not at all where the target is one of their pieces."""
    tokenizer = tiny_loaded.tokenizer
    masked = tokenizer.mask_words(tokenizer.encode("the xyz sat", "cats ran"), [1])
    target = Target("mlm", 3, 40)
    assert removable_units(masked, target) == ((1,), (2,), (4,), (5,), (7,), (8,), (9,))
    assert removable_units(masked, target, words=True) == ((1,), (5,), (7, 8), (9,))
    assert removable_units(masked, Target("nsp"), words=True) == ((1,), (2, 3, 4), (5,), (7, 8), (9,))


@pytest.mark.parametrize("words", [False, True])
def test_the_model_is_asked_as_planned(tiny_loaded: LoadedModel, words: bool) -> None:
    """Occlusion's ranking, step by step with masks in place of its top tokens, gives the same three measures."""
    tokenizer = tiny_loaded.tokenizer
    encoding = tokenizer.encode("the cats sat on the [MASK] .", "it was xyz")
    target = Target("mlm", encoding.mask_positions[0], tokenizer.id_of("mat"))
    units = removable_units(encoding, target, words=words)
    scores = occlusion(tiny_loaded, encoding, target).scores[None]
    plan = plan_removals(scores, units, len(encoding), random_rankings=20)
    values = values_without(tiny_loaded, encoding, target, plan.removed, probability=True)
    found = evaluate_removals(plan, values)
    assert tuple(found) == MEASURES

    totals = [scores[0, list(unit)].sum() for unit in units]
    order = sorted(range(len(units)), key=lambda number: -totals[number])
    steps = [max(1, int(share * len(units) + 0.5)) for share in REMOVED_SHARES]

    def probability(gone: list[int]) -> float:
        hidden = {position for number in gone for position in units[number]}
        ids = [tokenizer.id_of(MASK) if i in hidden else token for i, token in enumerate(encoding.input_ids)]
        return by_hand(tiny_loaded, ids, encoding.token_type_ids, target)

    whole = probability([])
    without = [whole - probability(order[:step]) for step in steps]
    alone = [whole - probability(order[step:]) for step in steps[: len(TOP_SHARES)]]
    assert_near(found["aopc"].scores[0], np.mean(without))
    assert_near(found["comprehensiveness"].scores[0], np.mean(without[: len(TOP_SHARES)]))
    assert_near(found["sufficiency"].scores[0], np.mean(alone))


def by_hand(loaded: LoadedModel, ids: list[int], segments: tuple[int, ...], target: Target) -> float:
    """Probability of the target's word by an ordinary forward pass."""
    scores = loaded.model(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).prediction_logits
    return float(scores[0, target.rows[0]].softmax(-1)[target.token_id])


def test_bad_plans_are_one_sentence() -> None:
    """Nothing to take away, a score that is none, values of another plan, and no chance to stand beside."""
    with pytest.raises(ValueError, match=r"^the text has no removable word"):
        plan_removals(WEIGHTS[None], (), 6)
    with pytest.raises(ValueError, match=r"^the scores of method 1 contain NaN: every token needs a number$"):
        plan_removals(np.array([WEIGHTS, WEIGHTS * np.nan]), SINGLES, 6)
    plan = plan_removals(WEIGHTS[None], SINGLES, 6, random_rankings=0)
    with pytest.raises(ValueError, match=r"^the shape of the values is \(3,\): the plan has 15 copies$"):
        evaluate_removals(plan, np.zeros(3))
    with pytest.raises(ValueError, match=r"^the plan has no random rankings: a measure needs them as a baseline$"):
        evaluate_removals(plan, of_a_sum(plan.removed))

"""Figures of heads: estimates against what really happens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bert_core import LoadedModel, Refused, Target, ablate_heads, capture, find_heads, pruned
from bert_core.analysis.heads import heads_agreement, most_relevant_head, removal_estimate


def test_the_estimate_is_right_for_a_small_change(tiny_loaded: LoadedModel) -> None:
    """Turning a head down by a thousandth changes the target by a thousandth of the estimate."""
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    target = Target("mlm", 3, 70)
    whole = capture(tiny_loaded, encoding, target=target)
    assert whole.gate_gradient is not None and whole.target_value is not None
    estimate = removal_estimate(whole.gate_gradient)
    for layer, head in np.ndindex(estimate.shape):
        gates = np.ones(estimate.shape)
        gates[layer, head] = 0.99
        change = capture(tiny_loaded, encoding, target=target, head_mask=gates).target_value - whole.target_value
        assert change == pytest.approx(0.01 * estimate[layer, head], rel=0.1, abs=2e-5)


def test_agreement_worked_by_hand() -> None:
    """The same order is 1, the reverse -1, whatever the numbers; NaN heads and constant figures do not count."""
    one = np.array([[1.0, 2.0], [3.0, np.nan]])
    assert heads_agreement(one, np.array([[0.1, 5.0], [6.0, 9.0]])) == pytest.approx(1)
    assert heads_agreement(one, np.array([[8.0, 5.0], [-6.0, 9.0]])) == pytest.approx(-1)
    assert np.isnan(heads_agreement(one, np.full((2, 2), 4.0)))
    assert np.isnan(heads_agreement(one, np.array([[1.0, np.nan], [np.nan, 2.0]])))
    with pytest.raises(ValueError, match=r"^second is \(1, 2\): it must be \(layer, head\), and layer is 2 in first$"):
        heads_agreement(one, one[:1])


def test_agreement_of_a_real_sweep_is_not_perfect(tiny_loaded: LoadedModel) -> None:
    """On a model the slope and the removal agree to a degree, which is a number between -1 and 1."""
    encoding = tiny_loaded.tokenizer.encode("the cat [MASK] on the mat")
    target = Target("mlm", 3, 70)
    slopes = capture(tiny_loaded, encoding, target=target).gate_gradient
    effect = ablate_heads(tiny_loaded, encoding, target=target).effect
    assert slopes is not None and effect is not None
    assert -1 <= heads_agreement(removal_estimate(slopes), effect) < 1


def test_the_most_relevant_head_attends_to_a_word_and_affects_the_target() -> None:
    """Worked by hand: keys that are no words, and the query itself, do not count; the product with the effect does."""
    attention = np.zeros((2, 2, 3, 3))
    attention[0, 0, 1] = 0.9, 0.1, 0.0  # attends to [CLS]
    attention[0, 1, 1] = 0.1, 0.9, 0.0  # attends to itself
    attention[1, 0, 1] = 0.4, 0.0, 0.6
    attention[1, 1, 1] = np.nan  # pruned
    is_word = np.array([False, True, True])
    assert most_relevant_head(attention, [1], is_word) == (1, 0)
    attention[0, 1, 1] = 0.1, 0.7, 0.2
    assert most_relevant_head(attention, [1], is_word, np.array([[0.0, -4.0], [1.0, np.nan]])) == (0, 1)
    assert most_relevant_head(attention, [1], np.array([True, True, False]), np.zeros((2, 2))) is None


def test_heads_of_a_pair_are_those_of_a_plain_loop(tiny_loaded: LoadedModel) -> None:
    """Every head with its weight and percentile, the largest weight first; pruned heads are left out."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the mat")
    for loaded, missing in ((tiny_loaded, set()), (pruned(tiny_loaded, [(0, 2), (1, 0)]), {(0, 2), (1, 0)})):
        run = capture(loaded, encoding)
        expected = []
        for layer, head in np.ndindex(run.attention.shape[:2]):
            if (layer, head) not in missing:
                weight = float(run.attention[layer, head, 2, 5])
                smaller = sum(bool(other < weight) for other in run.attention[layer, head].ravel())
                expected.append((layer, head, weight, pytest.approx(100 * smaller / len(encoding) ** 2)))
        heads = find_heads(run, 2, 5)
        assert heads == sorted(expected, key=lambda entry: -entry[2]) and len(heads) == 8 - len(missing)
        assert {type(value) for head in heads for value in head} == {int, float}


def test_heads_with_equal_weights_keep_the_order_of_layer_and_head(tiny_loaded: LoadedModel) -> None:
    """Layer by layer; of a map whose weights are all equal, none is smaller."""
    run = capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"))
    even = replace(run, attention=np.full(run.attention.shape, 0.2, np.float32))
    assert [(entry.layer, entry.head) for entry in find_heads(even, 1, 3)] == list(np.ndindex(2, 4))
    assert {entry.percentile for entry in find_heads(even, 1, 3)} == {0}


@pytest.mark.parametrize(("query", "key", "name"), [(5, 0, "query"), (-1, 0, "query"), (0, 5, "key")])
def test_heads_of_a_position_that_does_not_exist_are_refused(
    tiny_loaded: LoadedModel, query: int, key: int, name: str
) -> None:
    """One sentence with the given position and the allowed ones."""
    run = capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat"))
    with pytest.raises(Refused, match=rf"^{name} is (5|-1): it must be a whole number from 0 to 4$"):
        find_heads(run, query, key)


def test_heads_are_found_in_a_part_of_the_maps(tiny_loaded: LoadedModel) -> None:
    """Layers and positions have the numbers of the whole text; a position without a map is refused."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the mat")
    whole = find_heads(capture(tiny_loaded, encoding), 3, 2)
    part = capture(tiny_loaded, encoding, layers=[1], token_range=(2, 5))
    listed = [(head.layer, head.head, pytest.approx(head.weight, abs=1e-6)) for head in whole if head.layer == 1]
    assert [(head.layer, head.head, head.weight) for head in find_heads(part, 3, 2)] == listed
    with pytest.raises(Refused, match="query is 5: it must be a whole number from 2 to 4"):
        find_heads(part, 5, 2)

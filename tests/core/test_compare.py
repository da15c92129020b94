"""Two runs side by side: which tokens belong together, and what changed."""

from __future__ import annotations

import numpy as np
import pytest

from bert_core.analysis.compare import Change, align_tokens, aligned_maps, largest_changes


def test_as_many_tokens_are_compared_place_by_place() -> None:
    """Also where they differ: a hidden word stands where it stood."""
    pairs = align_tokens(["the", "cat", "sat"], ["the", "[MASK]", "sat"])
    assert pairs.before.tolist() == pairs.after.tolist() == [0, 1, 2]
    assert pairs.left_out_before == pairs.left_out_after == ()


def test_other_texts_are_aligned_by_equal_tokens() -> None:
    """In order, each token once; what has no partner is named on both sides."""
    before, after = ["the", "old", "cat", "sat", "."], ["the", "cat", "sat", "down", "here", "."]
    pairs = align_tokens(before, after)
    assert pairs.before.tolist() == [0, 2, 3, 4] and pairs.after.tolist() == [0, 1, 2, 5]
    assert pairs.left_out_before == (1,) and pairs.left_out_after == (3, 4)
    # 512 equal words are no reason to give up on them.
    assert len(align_tokens(["buffalo"] * 512, ["buffalo"] * 300).before) == 300
    assert len(align_tokens(["a"], ["b", "c"]).before) == 0


def test_the_change_of_shared_tokens() -> None:
    """Rows and columns are those of the pairs, values are as they were, and of one text nothing is copied."""
    before, after = np.arange(9.0).reshape(1, 1, 3, 3), np.arange(16.0).reshape(1, 1, 4, 4)
    ours, theirs = aligned_maps(before, after, align_tokens(["a", "x", "b"], ["a", "y", "z", "b"]))
    assert ours[0, 0].tolist() == [[0, 2], [6, 8]] and theirs[0, 0].tolist() == [[0, 3], [12, 15]]
    assert np.shares_memory(aligned_maps(before, before, align_tokens(list("abc"), list("abd")))[1], before)
    with pytest.raises(ValueError, match="the maps have 1 layers of 1 heads before and 2 of 1 after"):
        aligned_maps(before, np.zeros((2, 1, 3, 3)), align_tokens(list("abc"), list("abc")))


def test_the_largest_changes_are_those_of_a_full_sort() -> None:
    """With their heads, places and both values; ties by place; holes and what stayed the same are left out."""
    rng = np.random.default_rng(4)
    before, after = rng.random((2, 2, 2, 3, 3))
    after[0, 1] = before[0, 1]
    after[1, 1, 2, 2] = np.nan
    found = largest_changes(before, after, 12)
    every = [
        Change(*map(int, place), float(before[tuple(place)]), float(after[tuple(place)]))
        for place in np.argwhere(np.nan_to_num(after - before) != 0)
    ]
    assert found == sorted(every, key=lambda one: -abs(one.after - one.before))[:12]
    assert len(largest_changes(before, after, 1000)) == 26
    assert largest_changes(before, before, 5) == []
    flat = largest_changes(np.zeros((1, 1, 2, 2)), np.ones((1, 1, 2, 2)), 3)
    assert [(one.query, one.key) for one in flat] == [(0, 0), (0, 1), (1, 0)]

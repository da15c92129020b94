"""Where a word points, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bert_core.analysis.pointing import chance_level, heat, patches_in, points_into, shape_of_word, share_in

LOWER_RIGHT = (0.5, 0.5, 1.0, 1.0)


def one_patch(row: int, column: int) -> np.ndarray:
    """(4, 4), 1 in one place."""
    map_ = np.zeros((4, 4))
    map_[row, column] = 1
    return map_


def test_a_box_holds_the_patches_whose_middle_it_holds() -> None:
    """A quarter of the picture is a quarter of the patches; half a patch too little loses none, more loses a row."""
    assert patches_in(LOWER_RIGHT, (4, 4)).nonzero()[0].tolist() == [2, 2, 3, 3]
    assert chance_level(LOWER_RIGHT, (4, 4)) == 0.25
    assert chance_level((0.6, 0.6, 0.9, 0.9), (4, 4)) == 0.25
    assert chance_level((0.65, 0.6, 0.9, 0.9), (4, 4)) == 0.125


def test_the_highest_patch_decides() -> None:
    """A peak in the box counts, one outside does not, and a map that is flat points nowhere."""
    assert points_into(one_patch(3, 2), LOWER_RIGHT)
    assert not points_into(one_patch(3, 1), LOWER_RIGHT)
    assert not points_into(np.full((4, 4), 0.3), LOWER_RIGHT)


def test_a_share_is_of_what_is_above_zero() -> None:
    """Half in, half out; what is below zero does not count; nothing at all is 0."""
    assert share_in(one_patch(3, 3) + one_patch(0, 0) - 5 * one_patch(1, 1), LOWER_RIGHT) == 0.5
    assert share_in(-one_patch(3, 3), LOWER_RIGHT) == 0


def test_heat_averages_heads_and_clips_before_that() -> None:
    """+1 and -3 in two heads average to -1, and to 1/2 when clipped; one head is that head."""
    values = np.zeros((2, 1, 2, 4))
    values[0, 0, 0, 3], values[0, 0, 1, 3] = 1, -3
    assert heat(values, (2, 2)).shape == (2, 2, 2)
    assert heat(values, (2, 2))[0].tolist() == [[0, 0], [0, -1]]
    assert heat(values, (2, 2), clip=True)[0].tolist() == [[0, 0], [0, 0.5]]
    assert heat(values, (2, 2), head=(0, 1))[0].tolist() == [[0, 0], [0, -3]]
    with pytest.raises(ValueError, match="L1 H0 does not exist: there are layers 0 to 0 and heads 0 to 1"):
        heat(values, (2, 2), head=(1, 0))
    with pytest.raises(ValueError, match="the grid has 3 rows of 3 patches, but there are 4 patches"):
        heat(values, (3, 3))


def test_three_words_belong_to_each_shape() -> None:
    """Size, colour and kind, and neither the article nor the relation."""
    words = ["a", "small", "red", "star", "left", "of", "a", "large", "blue", "cross", "[SEP]"]
    assert [shape_of_word(words, n) for n in range(len(words))] == [None, 0, 0, 0, None, None, None, 1, 1, 1, None]

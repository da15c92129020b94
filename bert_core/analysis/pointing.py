"""Localisation of words in images: heat maps over the patches, and whether they match the bounding box of an object."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.refused import (
    Refused,
    check_finite,
    require_float,
    require_int,
    require_sequence,
    short_repr,
    validate_arrays,
)

Box = tuple[float, float, float, float]
MAX_PATCHES = 4096  # in a row or a column


@validate_arrays(values="... layer head patch")
def heat(
    values: np.ndarray, grid: tuple[int, int], *, head: tuple[int, int] | None = None, clip: bool = False
) -> np.ndarray:
    """Reshape values of patches to heat maps of one head, or averaged over all layers and heads.

    values: (..., layer, head, patch).
    grid: number of rows and columns of patches.
    head: (layer, head). None averages over all layers and heads.
    clip: set negative values to 0 before averaging.
    Returns (..., row, column).
    Raises Refused if the head does not exist, or the grid does not match the number of patches.
    """
    layers, heads, patches = values.shape[-3:]
    grid = _check_grid(grid)
    if grid[0] * grid[1] != patches:
        raise Refused(f"the grid has {grid[0]} rows of {grid[1]} patches, but there are {patches} patches")
    if clip:
        values = values.clip(min=0)
    if head is None:
        selected = values.mean((-3, -2))
    else:
        layer, head_number = _int_pair("head", head, "(layer, head)")
        if not (0 <= layer < layers and 0 <= head_number < heads):
            raise Refused(
                f"L{short_repr(layer)} H{short_repr(head_number)} does not exist: "
                f"there are layers 0 to {layers - 1} and heads 0 to {heads - 1}"
            )
        selected = values[..., layer, head_number, :]
    map_: np.ndarray = selected.reshape(*selected.shape[:-1], *grid)
    return map_


def _check_grid(grid: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of a grid. Raises Refused unless they are two integers from 1 to `MAX_PATCHES`."""
    sides = _int_pair("grid", grid, "(rows, columns)")
    rows, columns = (require_int("a side of the grid", side, 1, MAX_PATCHES) for side in sides)
    return rows, columns


def _int_pair(name: str, values: tuple[int, int], meaning: str) -> tuple[int, int]:
    """Return two integers. Raises Refused for anything else."""
    pair = require_sequence(name, values, f"two whole numbers, {meaning}")
    if len(pair) != 2:
        raise Refused(f"{name} is {short_repr(values)}: it must be two whole numbers, {meaning}")
    first, second = (require_int(f"a number of the {name}", number, None) for number in pair)
    return first, second


def patches_in(box: Box, grid: tuple[int, int]) -> np.ndarray:
    """Return whether the centre of each patch is inside a box.

    box: left, top, right and bottom edge as shares of the image, 0 to 1.
    grid: number of rows and columns of patches.
    Returns (row, column) boolean.
    Raises Refused unless the box has four numbers and the grid two integers from 1 to 4,096.
    """
    edges = require_sequence("box", box, "four numbers, (left, top, right, bottom)")
    if len(edges) != 4:
        raise Refused(f"box is {short_repr(box)}: it must be four numbers, (left, top, right, bottom)")
    left, top, right, bottom = (require_float("an edge of the box", edge) for edge in edges)
    rows, columns = ((np.arange(count) + 0.5) / count for count in _check_grid(grid))
    in_rows, in_columns = (rows >= top) & (rows <= bottom), (columns >= left) & (columns <= right)
    in_box: np.ndarray = in_rows[:, None] & in_columns[None]
    return in_box


@validate_arrays(map_="row column")
def points_into(map_: np.ndarray, box: Box) -> bool:
    """Return whether the centre of the patch with the largest value is inside a box (the pointing game for one word).

    map_: (row, column). A constant map points nowhere.
    box: left, top, right and bottom edge as shares of the image, 0 to 1.
    Raises Refused if a number of the map is not finite.
    Source: Zhang et al. 2016, section 4.2 (arXiv:1608.00507).
    """
    in_box = patches_in(box, map_.shape)
    check_finite("map_", map_)
    if map_.max() <= map_.min():
        return False
    return bool(in_box[np.unravel_index(map_.argmax(), map_.shape)])


def chance_level(box: Box, grid: tuple[int, int]) -> float:
    """Return the share of patches inside a box, the accuracy of random guesses in the pointing game."""
    return float(patches_in(box, grid).mean())


@validate_arrays(map_="row column")
def share_in(map_: np.ndarray, box: Box) -> float:
    """Compute the share of the positive part of a map that lies inside a box.

    map_: (row, column).
    box: left, top, right and bottom edge as shares of the image, 0 to 1.
    Returns 0 to 1. It is 0 if no value is positive.
    Raises Refused if a number of the map is not finite.
    """
    in_box = patches_in(box, map_.shape)
    check_finite("map_", map_)
    positive = map_.clip(min=0)
    total = float(positive.sum())
    return float(positive[in_box].sum()) / total if total else 0.0


def shape_of_word(words: Sequence[str], position: int) -> int | None:
    """Return the number of the shape in a caption that a word describes, or None for all other words.

    Only size, colour and kind, the three words after each "a", describe a shape. The first shape has the number 0.
    """
    starts = [number for number, word in enumerate(words) if word == "a"]
    for number, start in enumerate(starts):
        if start < position <= start + 3:
            return number
    return None

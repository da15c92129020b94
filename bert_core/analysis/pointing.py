"""Where on a picture a word points, and whether that is where the thing is."""

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
MAX_PATCHES = 4096  # in a row, or a column


@validate_arrays(values="... layer head patch")
def heat(
    values: np.ndarray, grid: tuple[int, int], *, head: tuple[int, int] | None = None, clip: bool = False
) -> np.ndarray:
    """Maps over the picture, (..., row, column), of one head or averaged over all layers and heads.

    values: (..., layer, head, patch). clip: leave out what is below zero, in each head before they are averaged.
    Raises Refused for a head that is not there, or a grid that does not fit.
    """
    layers, heads, patches = values.shape[-3:]
    grid = _grid(grid)
    if grid[0] * grid[1] != patches:
        raise Refused(f"{patches} patches do not make {grid[0]} rows of {grid[1]}")
    if clip:
        values = values.clip(min=0)
    if head is None:
        chosen = values.mean((-3, -2))
    else:
        layer, place = _two("head", head, "(layer, head)")
        if not (0 <= layer < layers and 0 <= place < heads):
            raise Refused(
                f"L{short_repr(layer)} H{short_repr(place)} does not exist: "
                f"there are layers 0 to {layers - 1} and heads 0 to {heads - 1}"
            )
        chosen = values[..., layer, place, :]
    map_: np.ndarray = chosen.reshape(*chosen.shape[:-1], *grid)
    return map_


def _grid(grid: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns that were given. Raises Refused unless they are two whole numbers, from 1."""
    sides = _two("grid", grid, "(rows, columns)")
    rows, columns = (require_int("a side of the grid", side, 1, MAX_PATCHES) for side in sides)
    return rows, columns


def _two(name: str, given: tuple[int, int], of: str) -> tuple[int, int]:
    """Two whole numbers that were given. Raises Refused for anything else."""
    both = require_sequence(name, given, f"two whole numbers, {of}")
    if len(both) != 2:
        raise Refused(f"{name} is {short_repr(given)}: it must be two whole numbers, {of}")
    one, other = (require_int(f"a number of the {name}", each, None) for each in both)
    return one, other


def patches_in(box: Box, grid: tuple[int, int]) -> np.ndarray:
    """Which patches have their middle in a box (left, top, right, bottom; shares of the picture): (row, column).

    Raises Refused for a box that is not four numbers, or a grid that is not two, from 1 to 4,096.
    """
    edges = require_sequence("box", box, "four numbers, (left, top, right, bottom)")
    if len(edges) != 4:
        raise Refused(f"box is {short_repr(box)}: it must be four numbers, (left, top, right, bottom)")
    left, top, right, bottom = (require_float("an edge of the box", edge) for edge in edges)
    rows, columns = ((np.arange(count) + 0.5) / count for count in _grid(grid))
    inside: np.ndarray = ((rows >= top) & (rows <= bottom))[:, None] & ((columns >= left) & (columns <= right))[None]
    return inside


@validate_arrays(map_="row column")
def points_into(map_: np.ndarray, box: Box) -> bool:
    """The pointing game for one word: whether the highest patch of a map (row, column) has its middle in the box.

    A map that is the same everywhere points nowhere. Raises Refused for a map with a number that is not finite.
    Source: Zhang et al. 2016, section 4.2 (arXiv:1608.00507).
    """
    inside = patches_in(box, map_.shape)
    check_finite("map_", map_)
    if map_.max() <= map_.min():
        return False
    return bool(inside[np.unravel_index(map_.argmax(), map_.shape)])


def chance_level(box: Box, grid: tuple[int, int]) -> float:
    """The pointing game played blindfold: the share of patches that would count."""
    return float(patches_in(box, grid).mean())


@validate_arrays(map_="row column")
def share_in(map_: np.ndarray, box: Box) -> float:
    """How much of a map, its negative part left out, lies in the box; 0 for a map that is nowhere above zero.

    map_: (row, column). Raises Refused for one with a number that is not finite.
    """
    inside = patches_in(box, map_.shape)
    check_finite("map_", map_)
    above = map_.clip(min=0)
    total = float(above.sum())
    return float(above[inside].sum()) / total if total else 0.0


def shape_of_word(words: Sequence[str], position: int) -> int | None:
    """Which of the shapes a caption names a word belongs to: 0 for the first "a ... ..."; None for all other words.

    Only size, colour and kind belong to a shape: the three words after each "a".
    """
    starts = [number for number, word in enumerate(words) if word == "a"]
    for number, start in enumerate(starts):
        if start < position <= start + 3:
            return number
    return None

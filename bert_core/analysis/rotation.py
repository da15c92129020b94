"""The rotation of queries and keys by their positions, and the score of a query and a key by their distance."""

from __future__ import annotations

import numpy as np

from bert_core.refused import Refused, require_int, validate_arguments, validate_arrays

MAX_HEAD_SIZE = 2**20


@validate_arguments
def rotary_frequencies(head_size: int, base: float) -> np.ndarray:
    """Return the angle between neighbouring positions for each pair of dimensions, (head size / 2,), in radians.

    Dimensions i and i + head size / 2 are a pair. base: that of the layer.
    Raises Refused unless the head size is even and the base is positive.
    Source: Su 2021, section 3.2.2 (arXiv:2104.09864).
    """
    head_size = require_int("head_size", head_size, 2, MAX_HEAD_SIZE)
    if head_size % 2 or not base > 0:
        raise Refused(f"head size {head_size} and base {base}: rotation needs an even size and a positive base")
    frequencies: np.ndarray = float(base) ** (-np.arange(0, head_size, 2) / head_size)
    return frequencies


@validate_arrays(vectors="... token size", positions="token")
def rotate_by_position(vectors: np.ndarray, positions: np.ndarray, base: float) -> np.ndarray:
    """Rotate each pair of dimensions of vectors by position times frequency, as queries and keys are rotated.

    vectors: (..., token, head size). positions: (token,); negative ones rotate back.
    Returns (..., token, head size) float64. Raises Refused as `rotary_frequencies` does.
    Source: Su 2021, equation 34 (arXiv:2104.09864), with other pairs of dimensions.
    """
    angles = positions.astype(np.float64)[:, None] * rotary_frequencies(vectors.shape[-1], base)
    first, second = np.split(vectors.astype(np.float64), 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@validate_arrays(query="size", key="size", distances="distance")
def scores_by_distance(query: np.ndarray, key: np.ndarray, base: float, distances: np.ndarray) -> np.ndarray:
    """Compute the attention score of a query and a key at other distances: q · R(d) k / sqrt(head size).

    query, key: (head size,), before the rotation. base: that of the layer. distances: (distance,), the position of the
    key minus that of the query. Vectors at two positions have the same product as at any other two with this distance.
    Returns (distance,) float64. Raises Refused as `rotary_frequencies` does.
    Source: Su 2021, equations 16 and 34 (arXiv:2104.09864).

    >>> import bert_core
    >>> import numpy as np
    >>> query, key = np.array([1.0, 0.0]), np.array([1.0, 0.0])  # one pair, rotated by 1 radian a position
    >>> bert_core.scores_by_distance(query, key, 10_000, np.array([-1, 0, 1])).round(3).tolist()  # cos(d) / sqrt(2)
    [0.382, 0.707, 0.382]
    """
    rotated_keys = rotate_by_position(np.tile(key, (len(distances), 1)), distances, base)
    scores: np.ndarray = rotated_keys @ query.astype(np.float64) / np.sqrt(len(query))
    return scores

"""Packing of maps into an exported page.

Maps of a short text keep their float32 values. Those of a long text are quantised to one byte per value, except
gradients: the gradient of the target with respect to the attention of a query to a key is the dot product of the
gradient of that query's output and the key's value. The rank of such a map is at most the size of a head, so it is
stored as the product of two thin matrices.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple
from zlib import Z_HUFFMAN_ONLY

import numpy as np

from viz_app.components.attention_view.packing import deflated, padded, quantise

MAX_EXACT_VALUES = 600_000  # values of a page that keeps float32: 64 tokens of 12 x 12 heads
MAX_RANK = 96
EXTRA_DIRECTIONS = 8  # random directions in addition to the largest rank
FACTORS_ERROR = 1 / 500  # of the largest magnitude in a row
STEPS = tuple(2.0 ** (-n / 2) for n in range(6, 29))


class Factors(NamedTuple):
    """A map as a product: `(step * left).T @ (step * right)`, each row multiplied by its value of `maxima`.

    left: int16 (rank, query). right: int16 (rank, key). maxima: (query,) float32, the largest magnitude of each row.
    """

    left: np.ndarray
    right: np.ndarray
    step: float
    maxima: np.ndarray

    def restored(self) -> np.ndarray:
        """Return the map (query, key), float32."""
        product: np.ndarray = (self.step * self.left.T).astype(np.float32) @ (self.step * self.right).astype(np.float32)
        product *= self.maxima[:, None]
        return product


def factored(values: np.ndarray) -> Factors | None:
    """Factor a map (query, key) into two thin matrices, with errors of at most 1/500 of the largest value in a row.

    Return None if they would hold as many numbers as the map, or if a value is not finite.
    """
    rows, columns = values.shape
    max_rank = min(MAX_RANK, rows * columns // (2 * (rows + columns)))
    if max_rank < 1 or not np.isfinite(values).all():
        return None
    maxima = np.abs(values).max(1).astype(np.float32)
    shares = np.divide(values, maxima[:, None], out=np.zeros_like(values), where=maxima[:, None] > 0)
    # The image of random directions spans the range of the map (Halko et al. 2011, arXiv:0909.4061); in it, the SVD.
    directions = np.random.default_rng(0).standard_normal(
        (columns, min(max_rank + EXTRA_DIRECTIONS, columns)), np.float32
    )
    basis = np.linalg.qr(shares @ directions)[0]
    turn, sizes, right = np.linalg.svd(basis.T @ shares, full_matrices=False)
    root = np.sqrt(sizes)
    left, right = (basis @ turn * root).T, right * root[:, None]

    def error(left: np.ndarray, right: np.ndarray) -> float:
        return float(np.abs(left.T @ right - shares).max())

    rank = bisect_left(range(max_rank + 1), True, key=lambda n: error(left[:n], right[:n]) <= FACTORS_ERROR / 2)
    if rank > max_rank:
        return None
    left, right = left[:rank], right[:rank]
    coarse = bisect_left(STEPS, True, key=lambda step: error(*_stepped(left, right, step)) <= FACTORS_ERROR)
    if coarse == len(STEPS):
        return None
    step = STEPS[coarse]
    thin, wide = (np.rint(part / step) for part in (left, right))
    if max(np.abs(part).max(initial=0) for part in (thin, wide)) >= 1 << 15:
        return None
    return Factors(thin.astype("<i2"), wide.astype("<i2"), step, maxima)


def _stepped(left: np.ndarray, right: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    return step * np.rint(left / step), step * np.rint(right / step)


def planes(values: np.ndarray) -> bytes:
    """Return the first bytes of all numbers, then the second bytes, and so on, which compresses better."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize).T.tobytes()


def packed_layer(
    maps: np.ndarray, *, signed: bool, exact: bool, thin: bool, report: Callable[[], None] = lambda: None
) -> tuple[bytes, list[int]]:
    """Return the maps of a layer (head, query, key), deflated, and the rank of the factors of each, 0 for none.

    exact: store float32 values in byte planes. Otherwise a map is the float32 maxima of its rows and its codes; or, if
    `thin` and smaller, these maxima, the float32 step, and the left and right factors in byte planes.
    Each map starts at a multiple of four bytes. report: called after each map; may raise to stop.
    """
    if exact:
        for _ in maps:
            report()
        return deflated(b"".join(planes(values.astype("<f4")) for values in maps)), [0] * len(maps)
    parts, ranks = [], []
    for values in maps:
        codes, maxima = quantise(values, signed=signed)
        part, rank = maxima.astype("<f4").tobytes() + codes.tobytes(), 0
        factors = factored(values) if thin else None
        if factors is not None:
            head = np.append(factors.maxima, np.float32(factors.step)).astype("<f4").tobytes()
            factor_bytes = head + planes(factors.left) + planes(factors.right)
            if len(deflated(factor_bytes)) < len(deflated(part)):
                part, rank = factor_bytes, len(factors.left)
        parts.append(padded(part))
        ranks.append(rank)
        report()
    whole = b"".join(parts)
    # Numbers of factors seldom repeat: Huffman coding alone may compress them better.
    return min(deflated(whole), deflated(whole, Z_HUFFMAN_ONLY), key=len) if any(ranks) else deflated(whole), ranks

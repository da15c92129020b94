"""Maps as bytes in a page of its own, where nobody can be asked for the exact numbers afterwards.

Maps of a short text travel as they are. Of a long one they are a byte a value, but for gradients: how the target would
change with a query's look at a key is the product of what it wants of that query's output and of the key's value, so
such a map has no more rank than a head has numbers, and two thin matrices hold it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple
from zlib import Z_HUFFMAN_ONLY

import numpy as np

from viz_app.components.attention_view.packing import deflated, padded, quantise

MAX_EXACT_VALUES = 600_000  # values of a page that are kept in float32: 64 tokens of 12 x 12 heads
MAX_RANK = 96
EXTRA_DIRECTIONS = 8  # directions more than the rank that is looked for
FACTORS_ERROR = 1 / 500  # of the largest magnitude in a row
STEPS = tuple(2.0 ** (-n / 2) for n in range(6, 29))


class Factors(NamedTuple):
    """A map as a product: row by row `maxima`, times `(step * left).T @ (step * right)`.

    left: int16 (rank, query). right: int16 (rank, key). maxima: (query,) float32, the largest magnitude of each row.
    """

    left: np.ndarray
    right: np.ndarray
    step: float
    maxima: np.ndarray

    def restored(self) -> np.ndarray:
        """The map (query, key), float32."""
        product: np.ndarray = (self.step * self.left.T).astype(np.float32) @ (self.step * self.right).astype(np.float32)
        product *= self.maxima[:, None]
        return product


def factored(values: np.ndarray) -> Factors | None:
    """A map (query, key) as two thin matrices that give every value to a 500th of the largest in its row.

    None where they would hold as many numbers as the map, or where something is no number.
    """
    rows, columns = values.shape
    max_rank = min(MAX_RANK, rows * columns // (2 * (rows + columns)))
    if max_rank < 1 or not np.isfinite(values).all():
        return None
    maxima = np.abs(values).max(1).astype(np.float32)
    shares = np.divide(values, maxima[:, None], out=np.zeros_like(values), where=maxima[:, None] > 0)
    # What the map reaches from random directions is its range (Halko et al. 2011, arXiv:0909.4061); in it, the SVD.
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
    """The first byte of every number, then the second, and so on: alike stands beside alike, and packs better."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize).T.tobytes()


def packed_layer(
    maps: np.ndarray, *, signed: bool, exact: bool, thin: bool, report: Callable[[], None] = lambda: None
) -> tuple[bytes, list[int]]:
    """The maps of a layer (head, query, key), deflated, and for each the rank of its two matrices, 0 for none.

    exact: every number as it is, in planes. Else a map is the maxima of its rows in float32 and its codes; or, if thin
    is asked for and smaller, these maxima, the step in float32, and in planes the left matrix and the right one.
    Each map begins at a multiple of four. report: called after each map; may raise to stop.
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
    # Numbers of thin matrices seldom repeat: to weigh their bytes is all that packs them.
    return min(deflated(whole), deflated(whole, Z_HUFFMAN_ONLY), key=len) if any(ranks) else deflated(whole), ranks

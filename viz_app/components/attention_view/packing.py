"""Attention maps as bytes on their way to the browser, and what of them is sent exactly."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

HIGHEST = 128  # the code of a row's maximum: the fewest steps that err by less than a 255th, as fewer pack better
ZERO = 127  # the code of 0 among signed values
NO_NUMBER = 255  # the code of NaN and infinity
CODES = {"highest": HIGHEST, "zero": ZERO, "none": NO_NUMBER}  # as the browser is told


class Quantised(NamedTuple):
    """A map in one byte a value.

    codes: uint8, the shape of the map; a code stands for its share of 0 to the row's maximum, and where values are
        signed, of minus to plus that maximum; 255 is no number.
    maxima: float32, that shape without the keys: the largest magnitude of each row.
    """

    codes: np.ndarray
    maxima: np.ndarray


def quantise(values: np.ndarray, *, signed: bool = False) -> Quantised:
    """One byte a value: off by at most 1/256 of the largest in the row, and 1/254 where values are signed.

    values: (..., query, key). NaN and infinity become a code of their own, never zero.
    Raises ValueError for an axis too few, or a negative value that was not announced.
    """
    if values.ndim < 2:
        raise ValueError(f"values of shape {values.shape}: expected (..., query, key)")
    values = np.asarray(values, np.float32)
    number = np.isfinite(values)
    finite_values = np.where(number, values, 0)
    if not signed and (finite_values < 0).any():
        raise ValueError(f"the value {finite_values.min():.3g} is negative: say signed=True")
    maxima = np.abs(finite_values).max(-1, initial=0)
    # A maximum that can hardly be told from 0 would make 1 / maximum infinite.
    shares = np.divide(finite_values, maxima[..., None], out=np.zeros_like(finite_values), where=maxima[..., None] > 0)
    codes = np.rint(ZERO + ZERO * shares) if signed else np.rint(HIGHEST * shares)
    return Quantised(np.where(number, codes, NO_NUMBER).astype(np.uint8), maxima)


def restored(quantised: Quantised, *, signed: bool = False) -> np.ndarray:
    """The values as the browser draws them (..., query, key), float32; NaN where there is no number."""
    codes = quantised.codes.astype(np.float32)
    shares = (codes - ZERO) / ZERO if signed else codes / HIGHEST
    values: np.ndarray = np.where(quantised.codes == NO_NUMBER, np.nan, shares * quantised.maxima[..., None])
    return values.astype(np.float32)


def coded(values: np.ndarray, *, signed: bool = False) -> bytes:
    """A map (query, key) as it travels: the maxima of its rows, then its codes, filled up to a multiple of four."""
    codes, maxima = quantise(values, signed=signed)
    return maxima.astype("<f4").tobytes() + padded(codes.tobytes())


def padded(part: bytes, sign: bytes = b"\0") -> bytes:
    """Filled up to a multiple of four."""
    return part + sign * (-len(part) % 4)


def deflated(part: bytes, strategy: int = zlib.Z_RLE) -> bytes:
    """Packed, without a header (`deflate-raw`); equal bytes give equal bytes.

    Maps are mostly zeros in a row, which this way of packing is quickest to find, and larger ones hardly pack better.
    """
    packer = zlib.compressobj(1, zlib.DEFLATED, -15, 9, strategy)
    return packer.compress(part) + packer.flush()


def name_of(values: np.ndarray, *, signed: bool) -> str:
    """A name for the content of a map, so that the browser keeps what it has; equal maps have one name."""
    return name_of_bytes(np.ascontiguousarray(values, np.float32).tobytes(), repr((values.shape, signed)))


def name_of_bytes(content: bytes, form: str) -> str:
    """A name for some bytes. form: what makes them differ from equal bytes, such as a shape."""
    name = hashlib.blake2b(content, digest_size=9)
    name.update(form.encode())
    return name.hexdigest()


def strongest_edges(
    maps: np.ndarray | Mapping[int, np.ndarray], heads: Sequence[int], count: int
) -> list[tuple[int, int, int, float]]:
    """The values of largest magnitude in some heads, largest first: (head, query, key, value).

    maps: by head, (query, key) each. What is no number is left out.
    """
    if not heads:
        return []
    stacked = np.stack([np.asarray(maps[head], np.float32) for head in heads])
    strength = np.where(np.isfinite(stacked), np.abs(stacked), -1).ravel()
    count = min(count, strength.size)
    largest = np.argpartition(-strength, count - 1)[:count] if count else np.empty(0, int)
    largest = largest[np.lexsort((largest, -strength[largest]))]
    places = zip(*np.unravel_index(largest[strength[largest] > 0], stacked.shape), strict=True)
    return [(heads[h], int(q), int(k), float(stacked[h, q, k])) for h, q, k in places]

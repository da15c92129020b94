"""Maps as bytes in a page: exact, a byte a value, or two thin matrices."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import bert_core
from bert_core import LoadedModel, Target
from viz_app.components.attention_view.packing import Quantised, restored
from viz_app.export import packing
from viz_app.export.packing import FACTORS_ERROR, factored, packed_layer, planes


def woven(content: bytes, dtype: str, *shape: int) -> np.ndarray:
    """Numbers from their planes."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(np.frombuffer(content, np.uint8).reshape(width, -1).T.tobytes(), dtype).reshape(shape)


@pytest.fixture(scope="module")
def gradient(tiny_loaded: LoadedModel) -> np.ndarray:
    """Of layer 0 on a text that is much longer than a head is wide (8), (head, query, key)."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the mat and the dog saw it " * 8, "it was red")
    found = bert_core.capture(tiny_loaded, encoding, target=Target("nsp")).gradient
    assert found is not None
    return found[0]


def test_a_gradient_has_the_rank_of_its_head_and_keeps_its_values(gradient: np.ndarray) -> None:
    """No more than 8 pairs of numbers for each place, and every value to a 500th of the largest in its row."""
    for one in gradient:
        found = factored(one)
        assert found is not None and len(found.left) == len(found.right) <= 8
        assert np.array_equal(found.maxima, np.abs(one).max(1))
        assert (np.abs(found.restored() - one) <= FACTORS_ERROR * 1.001 * np.abs(one).max(1, keepdims=True)).all()


def test_what_no_thin_matrices_hold_is_left_as_it_is() -> None:
    """A map of full rank, one with a hole, and one too small to gain anything."""
    full = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    holed = np.outer(full[0], full[1])
    assert factored(holed) is not None and factored(full) is None
    holed[3, 4] = np.nan
    assert factored(holed) is None and factored(full[:2, :2]) is None
    assert factored(np.zeros((64, 64), np.float32)).restored().max() == 0  # type: ignore[union-attr]


def test_exact_maps_come_back_to_the_last_bit() -> None:
    """Holes and signs too."""
    maps = np.random.default_rng(1).standard_normal((3, 5, 7)).astype(np.float32)
    maps[1, 2, 3] = np.nan
    content, ranks = packed_layer(maps, signed=True, exact=True, thin=True)
    unpacked = zlib.decompress(content, -15)
    back = [woven(unpacked[at : at + 140], "<f4", 5, 7) for at in (0, 140, 280)]
    assert np.array_equal(np.stack(back), maps, equal_nan=True) and ranks == [0, 0, 0]


def test_each_map_of_a_layer_can_be_read_alone(gradient: np.ndarray) -> None:
    """One in thin matrices, a hole among the codes of the next: each at a multiple of four, each within its bound."""
    holed = gradient[1].copy()
    holed[2, 5] = np.nan
    content, ranks = packed_layer(np.stack([gradient[0], holed]), signed=True, exact=False, thin=True)
    assert 0 < ranks[0] <= 8 and ranks[1] == 0
    unpacked, n = zlib.decompress(content, -15), len(holed)
    head = np.frombuffer(unpacked, "<f4", n + 1)
    at, length = 4 * n + 4, 2 * ranks[0] * n
    left, right = (woven(unpacked[i : i + length], "<i2", ranks[0], n) for i in (at, at + length))
    found = packing.Factors(left, right, float(head[n]), head[:n])
    bound = np.abs(gradient[0]).max(1, keepdims=True)
    assert (np.abs(found.restored() - gradient[0]) <= FACTORS_ERROR * 1.001 * bound).all()
    at += 2 * length + (-2 * length % 4)
    maxima, codes = np.frombuffer(unpacked, "<f4", n, at), np.frombuffer(unpacked, np.uint8, n * n, at + 4 * n)
    second = restored(Quantised(codes.reshape(n, n), maxima), signed=True)
    assert np.isnan(second[2, 5]) and np.isnan(second).sum() == 1
    worst = np.nanmax(np.abs(second - holed) / np.nanmax(np.abs(holed), 1, keepdims=True))
    assert worst <= 1 / 254 + 1e-6
    assert len(unpacked) == at + 4 * n + n * n + (-n * n % 4)


def test_planes_put_like_bytes_together() -> None:
    """All first bytes, then all second ones."""
    assert planes(np.array([0x0201, 0x0403], "<i2")) == bytes([1, 3, 2, 4])

"""Maps on their way to the browser: the bytes, what they lose, and what is refused."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from streamlit.testing.v1 import AppTest

from viz_app.components.attention_view import STRONGEST, ViewChoice, packing
from viz_app.components.attention_view.everywhere import MOST_VALUES, pack_all_maps
from viz_app.components.attention_view.view import attention_view
from viz_app.pages import PAGES
from viz_app.shell.frame import params_of_pages
from viz_app.tokens import Token

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6))
NUMBERS = st.floats(0, 2.0**100, width=32)


@given(arrays(np.float32, SHAPES, elements=NUMBERS))
def test_a_byte_is_off_by_at_most_a_255th_of_its_row(values: np.ndarray) -> None:
    """The promised bound holds for every value, from 1e-45 to 1e30, and zero stays zero."""
    again = packing.restored(packing.quantise(values)).astype(np.float64)
    assert (np.abs(again - values) <= values.max(-1, keepdims=True).astype(np.float64) / 255 + 1e-44).all()
    assert (again[values == 0] == 0).all()


@given(arrays(np.float32, SHAPES, elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_signed_values_keep_their_sign(values: np.ndarray) -> None:
    """With a sign the bound is a 254th of the largest magnitude; nothing changes its sign, and zero stays zero."""
    again = packing.restored(packing.quantise(values, signed=True), signed=True).astype(np.float64)
    assert (np.abs(again - values) <= np.abs(values).max(-1, keepdims=True).astype(np.float64) / 253.9 + 1e-44).all()
    assert (again * values >= 0).all() and (again[values == 0] == 0).all()


def test_the_maximum_of_a_row_is_exact() -> None:
    """The largest of each row comes back as it was."""
    values = np.random.default_rng(0).random((4, 9, 9), np.float32)
    again = packing.restored(packing.quantise(values))
    assert np.array_equal(again.max(-1), values.max(-1))


def test_no_number_is_not_zero() -> None:
    """NaN and infinity come back as NaN, beside numbers that keep their precision."""
    values = np.array([[0.5, np.nan, 0.25], [np.inf, 0, 0]], np.float32)
    again = packing.restored(packing.quantise(values))
    assert np.isnan(again).tolist() == [[False, True, False], [True, False, False]]
    assert again[0, 0] == 0.5 and abs(again[0, 2] - 0.25) <= 0.5 / 255


def test_maps_are_packed_without_loss() -> None:
    """What is deflated comes back byte by byte, and a map with one key for each query takes less than a tenth."""
    sparse = np.zeros((128, 128), np.uint8)
    sparse[np.arange(127), np.arange(1, 128)] = 128
    packed = packing.deflated(sparse.tobytes())
    assert zlib.decompress(packed, -15) == sparse.tobytes()
    assert len(packed) < sparse.nbytes / 10


def test_what_cannot_be_packed_is_refused() -> None:
    """A negative probability and a bare row are named."""
    with pytest.raises(ValueError, match="negative: say signed=True"):
        packing.quantise(np.array([[-0.1, 1]]))
    with pytest.raises(ValueError, match="expected"):
        packing.quantise(np.ones(3))


@pytest.mark.parametrize("signed", [False, True])
def test_all_heads_travel_as_each_would_alone(signed: bool) -> None:
    """For every head that exists: its name, its bytes, its strongest edges; what is off, gone or no number is said."""
    maps = np.random.default_rng(4).normal(size=(2, 3, 5, 7)).astype(np.float32)
    maps = maps if signed else np.abs(maps)
    maps[0, 2] = np.nan
    maps[1, 1, 0, 0] = np.nan
    there = np.ones((2, 3), bool)
    there[0, 2] = False
    off = ~there
    off[1, 0] = True
    sent = pack_all_maps(maps, existing=there, off=off, signed=signed)
    assert sent is not None
    heads = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert [(layer, head) for layer in range(2) for head in sent.layers[layer]["names"]] == heads
    alone = [packing.coded(maps[place], signed=signed) for place in heads]
    assert zlib.decompress(sent.packed, -15) == b"".join(alone)
    for layer, head in heads:
        said = sent.layers[layer]
        assert said["names"][head] == packing.name_of(maps[layer, head], signed=signed)
        edges = packing.strongest_edges({head: maps[layer, head]}, [head], STRONGEST)
        assert said["strongest"][head] == [edge[1:] for edge in edges]
    assert [said["pruned"] for said in sent.layers] == [[2], []]
    assert [said["off"] for said in sent.layers] == [[2], [0]]
    assert sent.layers[1]["holes"] == [0, 1, 0]


def test_all_heads_have_a_bound_and_a_name() -> None:
    """More bytes than the bound are not sent at all; another map, or another head that is off, has another name."""
    there, off = np.ones((2, 2), bool), np.zeros((2, 2), bool)
    side = int((MOST_VALUES / 4) ** 0.5)
    assert pack_all_maps(np.zeros((2, 2, side, side + 1), np.float32), existing=there, off=off, signed=False) is None
    maps = np.random.default_rng(5).random((2, 2, 4, 4), np.float32)
    names = {
        sent.name
        for content, some in ((maps, off), (maps, ~off), (maps[::-1], off), (maps.copy(), off))
        if (sent := pack_all_maps(content, existing=there, off=some, signed=False)) is not None
    }
    assert len(names) == 3


def test_a_name_tells_maps_apart() -> None:
    """Equal content has one name; another value, shape or sign has another."""
    values = np.arange(12, dtype=np.float32)
    names = {
        packing.name_of(values.reshape(3, 4), signed=False),
        packing.name_of(values.reshape(4, 3), signed=False),
        packing.name_of(values.reshape(3, 4), signed=True),
        packing.name_of(values.reshape(3, 4) + 1, signed=False),
    }
    assert len(names) == 4
    assert packing.name_of(values.reshape(4, 3).T.copy().T, signed=False) in names


def test_the_strongest_edges_are_those_of_a_full_sort() -> None:
    """Against sorting everything: the same edges in the same order; holes and zeros are left out."""
    maps = np.random.default_rng(1).normal(size=(3, 7, 5)).astype(np.float32)
    maps[1, 2, 3] = np.nan
    found = packing.strongest_edges(maps, [2, 1], 9)
    every = [(h, q, k, float(maps[h, q, k])) for h in (2, 1) for q in range(7) for k in range(5)]
    every = sorted((edge for edge in every if not np.isnan(edge[3])), key=lambda edge: -abs(edge[3]))
    assert found == every[:9]
    assert packing.strongest_edges(np.zeros((1, 2, 2)), [0], 3) == []
    assert packing.strongest_edges(maps, [], 3) == []


@pytest.mark.parametrize(
    ("maps", "heads", "sentence"),
    [
        (np.ones((2, 3, 3)), (0,), "with 2 queries and 2 keys"),
        (np.ones((2, 2, 2)), (2,), "at least one of 0 to 1"),
        (np.ones((2, 2, 2)), (), "at least one of 0 to 1"),
    ],
)
def test_maps_that_do_not_fit_are_refused(maps: np.ndarray, heads: tuple[int, ...], sentence: str) -> None:
    """The sentence says what was given and what is expected."""
    tokens = [Token("a", 0), Token("b", 1)]
    with pytest.raises(ValueError, match=sentence):
        attention_view(maps, tokens, tokens, choice=ViewChoice(0, heads), layers=1, key="x")


def test_the_view_mounts_without_a_browser() -> None:
    """One call draws it, and nothing was chosen yet."""

    def script() -> None:
        import numpy as np

        from viz_app.components.attention_view import ViewChoice
        from viz_app.components.attention_view.view import attention_view
        from viz_app.tokens import Token

        tokens = [Token("a", 0), Token("b", 1, "A")]
        attention_view(np.full((1, 2, 2), 0.5), tokens, tokens, choice=ViewChoice(0, (0,)), layers=1, key="v")

    assert not AppTest.from_function(script, default_timeout=60).run().exception


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("also", "4,9", (4, 9)),
        ("tokens", "q3,5", ("query", (3, 5))),
        ("tokens", "k7", ("key", (7,))),
        ("kept", "35", 0.35),
        ("view", "matrix", "matrix"),
        ("view", "heads", "heads"),
        ("compare_view", "heads", "heads"),
        ("words", "1", True),
    ],
)
def test_a_view_goes_through_the_address_and_back(name: str, written: str, value: object) -> None:
    """What is read from a link is written into it the same."""
    choice = params_of_pages(PAGES)[name]
    assert choice.parse(written) == value and choice.write(value) == written


@pytest.mark.parametrize(("name", "written"), [("also", "-1"), ("tokens", "x3"), ("kept", "0"), ("kept", "nan")])
def test_an_impossible_view_is_refused(name: str, written: str) -> None:
    """A number that cannot be is not taken from an address."""
    with pytest.raises(ValueError):
        params_of_pages(PAGES)[name].parse(written)

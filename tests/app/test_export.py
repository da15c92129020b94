"""What a page shows as a file: numbers, pictures, the Python of a picture; and the command that writes them."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

import bert_core
from bert_core import LoadedModel, ModelRun, Target
from bert_core.analysis.units import word_units
from bert_core.records import HeadVectors
from bert_core.refused import Refused
from tests.hostile import HOSTILE, run_of
from tests.near import assert_near
from viz_app import cli
from viz_app.comparison import Comparison
from viz_app.export import PICTURES, drawing, pictures, tables
from viz_app.export.bertviz import bertviz_page
from viz_app.export.drawing import picture_bytes
from viz_app.export.page import attention_page, maps_page, neuron_page
from viz_app.export.pictures import picture_of
from viz_app.export.snippet import neuron_snippet, snippet
from viz_app.figures.style import Look, use_look
from viz_app.maps import Combination, MapView
from viz_app.tokens import Token

SVG = "{http://www.w3.org/2000/svg}"
TEXT, PAIR = "The cats sat on the [MASK].", "It was old."


@pytest.fixture(scope="module")
def run(tiny_loaded: LoadedModel) -> ModelRun:
    """A pair with a gradient, and a head that is off."""
    encoding = tiny_loaded.tokenizer.encode(TEXT, PAIR)
    gates = np.ones((2, 4), np.float32)
    gates[1, 2] = 0
    return bert_core.capture(tiny_loaded, encoding, target=Target("nsp"), head_mask=gates, norms=True)


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may lean on a browser: there is no program on the path at all."""
    monkeypatch.setenv("PATH", "")


# ---------------------------------------------------------------------------- what is shown


def test_the_whole_map_is_the_captured_one(run: ModelRun) -> None:
    """Nothing is chosen away: the very numbers, every token in its place, and the heads that are off."""
    shown = MapView().maps(run)
    assert np.shares_memory(shown.values, run.attention) and not shown.values.flags.writeable
    assert [token.text for token in shown.queries] == list(run.encoding.tokens)
    assert [token.position for token in shown.keys] == list(range(len(run.encoding)))
    assert (shown.off, shown.signed) == (((1, 2),), False)


def test_a_part_between_words_is_worked_by_hand(run: ModelRun) -> None:
    """From A to B between words, each sum and mean taken one by one."""
    shown = MapView(part="A to B", words=True).maps(run)
    units = word_units(run.encoding)
    rows = [unit for unit in units if run.encoding.sides[unit[0]] == "A"]
    columns = [unit for unit in units if run.encoding.sides[unit[0]] == "B"]
    for q, unit in enumerate(rows):
        for k, other in enumerate(columns):
            by_hand = sum(run.attention[1, 3, i, j] for i in unit for j in other) / len(unit)
            assert_near(shown.values[1, 3, q, k], by_hand, 1e-6)
    assert "cats" in [token.text for token in shown.queries]


@pytest.mark.parametrize("what", ["attention", "gradient", "product", "brought"])
def test_a_layer_is_seen_as_it_is_among_all_layers(run: ModelRun, what: str) -> None:
    """What a page takes for one layer is what a file holds of it, and so is what is said of the rows."""
    view = MapView(what, "A to B", hide_special=True, words=True, renormalise=True)
    whole, encoding = view.maps(run), run.encoding
    assert np.array_equal(view.transform(run.select_map(what)[1], encoding), whole.values[1])
    assert view.tokens(encoding) == (whole.queries, whole.keys)
    assert whole.notes == (("rows rescaled to 1",) if what == "attention" else ())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"quantity": "gradient"}, "needs a capture with a target"),
        ({"part": "A to B"}, "there is no second sentence"),
        ({"part": "C"}, "unknown"),
        ({"layer": 2}, "layer 2 does not exist: this model has layers 0 to 1"),
        ({"heads": (3,)}, "head 3 does not exist in layer 0: this model has heads 0 to 2"),
        ({"layer": 1, "heads": (1,)}, r"head 1 does not exist in layer 1: .* \(1 pruned\)"),
    ],
)
def test_what_is_not_there_is_named(options: dict, sentence: str) -> None:
    """One sentence that says what was asked and what there is; a pruned head does not exist."""
    run = run_of(["a", "b"])
    attention = run.attention.copy()
    attention[1, 1] = np.nan
    with pytest.raises(ValueError, match=sentence):
        MapView(**options).maps(dataclasses.replace(run, attention=attention))


def test_a_view_that_cannot_be_is_refused() -> None:
    """A mode that is none, a share of nothing, and one head by itself where several are meant."""
    for heads in (5, "1, 5"):
        with pytest.raises(ValueError, match=r"heads is .*: give their numbers as a tuple, as in \(5,\) or \(1, 5\)"):
            MapView(heads=heads)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'curves' or 'matrix'"):
        MapView(mode="cube")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 0, to 1"):
        MapView(kept_share=0)


# ---------------------------------------------------------------------------- several heads as one map

BY_HAND = {
    "average": (Combination("average"), lambda maps, run: maps[1, [0, 3]].mean(0)),
    "maximum": (Combination("maximum", "layer"), lambda maps, run: maps[1].max(0)),
    "weights": (Combination("weighted", "chosen", (3.0, 1.0)), lambda maps, run: (3 * maps[1, 0] + maps[1, 3]) / 4),
    "importance": (
        Combination("weighted", "all"),
        lambda maps, run: np.average(
            maps.reshape(8, *maps.shape[2:]), axis=0, weights=np.abs(run.gate_gradient).ravel()
        ),
    ),
}


@pytest.mark.parametrize("how", BY_HAND)
def test_files_hold_the_one_map_of_several_heads(run: ModelRun, how: str) -> None:
    """NPZ and CSV of the average, maximum and weighted map, against NumPy, and the picture is called what it is."""
    together, by_hand = BY_HAND[how]
    view = MapView(layer=1, heads=(0, 3), combination=together)
    expected, name = by_hand(run.attention, run), together.name(1, (0, 3))
    with np.load(io.BytesIO(tables.maps_npz(view.maps(run))), allow_pickle=False) as file:
        assert file["heads"].tolist() == [name]
        assert_near(file["attention"], expected, 1e-6)
        exact = file["attention"]
    rows = list(csv.DictReader(io.StringIO(tables.maps_csv(view.maps(run), [(0, 0)]).decode())))
    assert np.array_equal(np.array([row["attention"] for row in rows], np.float32), exact.ravel())
    assert {row["heads"] for row in rows} == {name} and "layer" not in rows[0]
    for mode in ("curves", "matrix"):
        assert name in " ".join(texts_of(picture_of(run, dataclasses.replace(view, mode=mode), "svg")))


def test_a_part_of_the_one_map_is_taken_after_the_heads_are_one(run: ModelRun) -> None:
    """The maximum over heads first, then words and rows that sum to 1: the order in which the page shows it."""
    view = MapView(part="A to B", words=True, renormalise=True, combination=Combination("maximum", "all"))
    one = run.attention.max((0, 1))[None, None]
    alone = dataclasses.replace(run, attention=one, head_mask=np.ones((1, 1), np.float32), gradient=None,
                                gate_gradient=None, target=None)  # fmt: skip
    expected = MapView(part="A to B", words=True, renormalise=True).maps(alone).values
    assert np.array_equal(view.maps(run).values, expected)


@pytest.mark.parametrize(
    ("together", "sentence"),
    [
        (Combination("weighted", "chosen", (1.0,)), "1 weights for 2 heads"),
        (Combination("weighted", "chosen", (0.0, 0.0)), "not all zero"),
        (Combination("weighted"), "importance need something to explain"),
    ],
)
def test_weights_that_do_not_fit_are_named(together: Combination, sentence: str) -> None:
    """One sentence, and no map of something else."""
    with pytest.raises(ValueError, match=sentence):
        MapView(heads=(0, 1), combination=together).maps(run_of(["a"]))
    with pytest.raises(ValueError, match="one of average, maximum, weighted"):
        Combination("median")


# ---------------------------------------------------------------------------- a head down to its vectors


def test_the_numbers_of_the_neuron_view_give_the_captured_attention(tiny_loaded: LoadedModel, run: ModelRun) -> None:
    """From the files alone: products sum to the score times the root of the size, and the softmax is the map."""
    vectors = bert_core.head_vectors(tiny_loaded, run.encoding, 1, 3, head_mask=run.head_mask)
    rows = list(csv.DictReader(io.StringIO(tables.neuron_csv(vectors, 4).decode())))
    n, size = vectors.keys.shape
    table = {
        name: np.array([row[name] for row in rows], np.float32).reshape(n, size)
        for name in ("q", "k", "product", "score", "softmax")
    }
    assert np.array_equal(table["q"] * table["k"], table["product"])
    assert_near(table["product"].sum(1) / size**0.5, table["score"][:, 0])
    assert_near(table["softmax"][:, 0], run.attention[1, 3, 4])
    assert [row["key"] for row in rows[::size]] == list(run.encoding.tokens)
    with np.load(io.BytesIO(tables.neuron_npz(vectors)), allow_pickle=False) as file:
        assert np.array_equal(file["q"][4], table["q"][0]) and np.array_equal(file["k"], table["k"])
        assert_near(file["softmax"], run.attention[1, 3])
    with pytest.raises(ValueError, match="query 99 does not exist: the queries of this text are 0 to"):
        tables.neuron_csv(vectors, 99)


def test_a_picture_of_the_neuron_view(tiny_loaded: LoadedModel, run: ModelRun) -> None:
    """Its SVG has every key with its softmax as text, PNG and PDF open, and equal numbers give equal bytes."""
    vectors = bert_core.head_vectors(tiny_loaded, run.encoding, 0, 1)
    drawn = pictures.neuron_picture(vectors, 2)
    svg = picture_bytes(drawn, "svg")
    found = texts_of(svg)
    assert {*run.encoding.tokens, *(f"{share:.3f}" for share in vectors.attention[2])} <= set(found)
    assert svg == picture_bytes(pictures.neuron_picture(vectors, 2), "svg")
    assert picture_bytes(drawn, "pdf").startswith(b"%PDF-")
    with use_look(Look(dark=True)):
        dark = pictures.neuron_picture(vectors, 2)
    png = Image.open(io.BytesIO(picture_bytes(dark, "png"))).convert("RGB")
    assert png.getpixel((0, 0)) == (20, 22, 26)


def test_of_a_long_text_the_neuron_view_draws_the_keys_with_the_most_attention() -> None:
    """Forty of them, with their places, as the picture says; hostile tokens stay text, and nothing is left out of
    the softmax; what relative positions add stands beside.
    """
    texts = [*HOSTILE, *(["buffalo"] * 60)]
    rng = np.random.default_rng(5)
    n = len(texts) + 2
    vectors = HeadVectors(run_of(texts).encoding, 0, 0, *rng.normal(size=(2, n, 4)), rng.normal(size=(n, n)))
    svg = picture_bytes(pictures.neuron_picture(vectors, 7), "svg")
    found = texts_of(svg)
    best = np.argsort(-vectors.attention[7])[:40]
    for place in range(n):
        assert any(text.endswith(f" ({place})") and not text.startswith("query") for text in found) == (place in best)
    assert "distance" in found and any(f"over all {n} keys" in text for text in found)
    assert not {node.tag.removeprefix(SVG) for node in ET.fromstring(svg).iter()} & {"script", "foreignObject", "img"}


# ---------------------------------------------------------------------------- numbers


def test_a_csv_reads_back_as_the_same_floats(run: ModelRun) -> None:
    """Every number of the chosen heads, with its layer, head, tokens and their positions, to the last bit."""
    shown = MapView("product", hide_special=True).maps(run)
    rows = list(csv.DictReader(io.StringIO(tables.maps_csv(shown, [(1, 3), (0, 0)]).decode())))
    assert len(rows) == 2 * len(shown.queries) * len(shown.keys)
    again = np.array([row["product"] for row in rows], np.float32).reshape(2, len(shown.queries), len(shown.keys))
    assert np.array_equal(again, shown.values[[1, 0], [3, 0]])
    assert rows[0] | {"product": ""} == {
        "layer": "1", "head": "3", "query_position": "1", "query": "the", "key_position": "1", "key": "the",
        "product": "",
    }  # fmt: skip


def test_an_npz_holds_all_maps_and_their_tokens(run: ModelRun) -> None:
    """Read without pickle: the same arrays, tokens, positions, and the heads that are off."""
    with np.load(io.BytesIO(tables.maps_npz(MapView("gradient").maps(run))), allow_pickle=False) as file:
        assert np.array_equal(file["gradient"], run.gradient)
        assert file["queries"].tolist() == list(run.encoding.tokens)
        assert file["key_positions"].tolist() == list(range(len(run.encoding)))
        assert file["off"].tolist() == [[1, 2]]


def test_no_cell_of_a_csv_is_a_formula() -> None:
    """Hostile tokens come back as they were, but those that a spreadsheet would run, with an apostrophe in front."""
    texts = [*HOSTILE, "+1", "-1", "@SUM(A1)", "\t=1", "＝1+1", "\ud800"]
    rows = list(csv.reader(io.StringIO(tables.maps_csv(MapView().maps(run_of(texts)), [(0, 0)]).decode(), newline="")))
    keys = [row[5] for row in rows[2 : len(texts) + 2]]
    formulas = {"=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "＝1+1"}
    expected = [f"'{text}" if text in formulas else text for text in texts[:-1]]
    assert keys == [*expected, "?"]
    columns = tables.labelled_csv({"token": ["=1", "a"], "value": [np.float64(0.1), np.float32(0.1)]})
    assert columns == b"token,value\r\n'=1,0.1\r\na,0.1\r\n"


def test_a_csv_that_nothing_opens_is_refused() -> None:
    """More lines than can be used: the sentence names how many, and the way out."""
    shown = dataclasses.replace(MapView().maps(run_of(["a"] * 30)), values=np.zeros((200, 30, 32, 32), np.float32))
    with pytest.raises(ValueError, match=r"6,144,000 lines.*choose fewer heads, or NPZ"):
        tables.maps_csv(shown)


# ---------------------------------------------------------------------------- pictures

VIEWS = {
    "curves": MapView(layer=1, heads=(0, 2)),
    "one head": MapView(heads=(3,), words=True),
    "signed": MapView("gradient", layer=1, heads=(1,)),
    "matrix": MapView(mode="matrix", part="A to B", hide_special=True),
    "signed matrix": MapView("product", mode="matrix", heads=(2,)),
    "brought": MapView("brought", layer=1, heads=(1, 3), words=True),
    "all heads": MapView(heads=()),
    "all gradients": MapView("gradient", heads=()),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_picture_in_every_kind(run: ModelRun, view: MapView) -> None:
    """PNG, SVG and PDF open as what they are, on a light and on a dark page, and twice give the same bytes."""
    with use_look(Look(dark=True)):
        png = Image.open(io.BytesIO(picture_of(run, view, "png"))).convert("RGB")
    assert png.getpixel((0, 0)) == (20, 22, 26) and len(png.getcolors(1 << 24)) > 20
    svg = picture_of(run, view, "svg")
    assert ET.fromstring(svg).tag == f"{SVG}svg" and svg == picture_of(run, view, "svg")
    assert picture_of(run, view, "pdf").startswith(b"%PDF-")


def texts_of(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def test_texts_of_an_svg_stay_text(run: ModelRun) -> None:
    """Every token, the name of the head and the axes can be searched and edited."""
    for view in (MapView(layer=1, heads=(2,)), MapView(layer=1, heads=(2,), mode="matrix")):
        texts = texts_of(picture_of(run, view, "svg"))
        for token in set(run.encoding.tokens):
            assert texts.count(token) == 2 * run.encoding.tokens.count(token)
        assert "query (from)" in texts and "key (to)" in texts
        assert any("L1 H2" in text and "off" in text for text in texts)


def test_pictures_of_some_layers_have_their_numbers(tiny_loaded: LoadedModel, run: ModelRun) -> None:
    """The title, the heads that are off, the rows of all heads and the script; their index is that in the values."""
    part = bert_core.capture(tiny_loaded, run.encoding, head_mask=run.head_mask, layers=[1])
    maps = MapView().maps(part)
    assert maps.title(0, 1) == "L1 H1" and [maps.is_off(0, head) for head in range(4)] == [False, False, True, False]
    for mode in ("curves", "matrix"):
        view = MapView(layer=0, heads=(2,), mode=mode)  # type: ignore[arg-type]
        assert any("L1 H2" in text and "off" in text for text in texts_of(picture_of(part, view, "svg")))
    texts = texts_of(picture_of(part, MapView(heads=()), "svg"))
    assert "L1" in texts and "L0" not in texts
    assert "layers=(1,)" in snippet(part, MapView(), "tiny")


def test_pages_and_comparisons_of_some_layers_are_refused(tiny_loaded: LoadedModel, run: ModelRun) -> None:
    """In one sentence, as are a combination of heads, and a comparison of a range of tokens."""
    part = bert_core.capture(tiny_loaded, run.encoding, layers=[1])
    vectors = bert_core.head_vectors(tiny_loaded, run.encoding, 1, 0)
    views: tuple[Callable[[], object], ...] = (
        lambda: attention_page(part),
        lambda: neuron_page(part, vectors),
        lambda: maps_page(MapView().maps(part)),
        lambda: bertviz_page(MapView().maps(part)),
        lambda: MapView(combination=Combination("average", "all")).maps(part),
        lambda: Comparison(part, part),
    )
    for view in views:
        with pytest.raises(Refused, match="needs the maps of all layers, and these are of L1: capture without layers"):
            view()
    of_range = bert_core.capture(tiny_loaded, run.encoding, token_range=(0, 3))
    with pytest.raises(Refused, match="a comparison needs the maps of all tokens"):
        Comparison(run, of_range)


def test_the_width_of_a_curve_is_the_same_for_every_head(run: ModelRun) -> None:
    """Attention is drawn from 0 to 1: each curve is as wide as its value, whatever else its head has."""
    maps = MapView(layer=1, heads=(3,), kept_share=1.0).maps(run)
    axes = pictures.curves_picture(maps, 1, (3,), kept_share=1.0).axes[0]
    widths = np.sort([width for collection in axes.collections for width in collection.get_linewidths()])
    assert_near(widths, np.sort(0.4 + 1.9 * maps.values[1, 3][maps.values[1, 3] > 0]), 1e-5)


def test_a_picture_has_the_curves_of_the_selected_tokens(run: ModelRun) -> None:
    """Those of a query or to a key above 1/200 of the strongest, and no other one; the caption says so."""
    for side in ("query", "key"):
        view = MapView(layer=1, heads=(3,), side=side, positions=(2,))  # type: ignore[arg-type]
        figure = pictures.maps_picture(view.maps(run), view)
        values = view.maps(run).values[1, 3]
        edges = values[2] if side == "query" else values[:, 2]
        drawn = sum(len(collection.get_paths()) for collection in figure.axes[0].collections)
        assert drawn == (edges > edges.max() / 200).sum()
        assert any(
            "edges of the selected tokens above 1/200 of the strongest" in text
            for text in texts_of(picture_bytes(figure, "svg"))
        )


def test_the_curves_are_of_each_row_the_strongest_that_hold_the_share() -> None:
    """Against taking the edges of a row one by one until their sum is reached; values with a sign by magnitude."""
    draw = np.random.default_rng(3)
    for values in (draw.dirichlet(np.full(9, 0.4), 9), draw.normal(size=(5, 9)) * 1e-9):
        for kept in (0.05, 0.3, 0.7, 0.95, 1.0):
            found = pictures._strongest_edges(values.astype(np.float32), kept)
            sizes = np.abs(values.astype(np.float32)).astype(np.float64)
            expected = set()
            for q, row in enumerate(sizes):
                total = 0.0
                for k in np.argsort(-row):
                    if total >= kept * row.sum() * (1 - 1e-9):
                        break
                    expected.add((q, int(k)))
                    total += row[k]
            assert {(q, k) for q, k, _ in found} == expected
            assert [abs(value) for *_, value in found] == sorted((abs(value) for *_, value in found), reverse=True)
    assert pictures._strongest_edges(np.zeros((3, 3)), 0.7) == []


def test_every_row_has_a_line_beside_rows_of_larger_values() -> None:
    """A head that looks at the token before looks from every token, however surely; equal values go together."""
    before = np.eye(20, k=-1) * np.linspace(0.15, 0.99, 20)[:, None]
    before[0, 0] = 0.9
    before += (1 - before.sum(1, keepdims=True)) / 20 * 0.02
    found = pictures._strongest_edges(before.astype(np.float32), 0.7)
    assert {(q, k) for q, k, _ in found} == {(q, max(q - 1, 0)) for q in range(20)}
    assert len(pictures._strongest_edges(np.full((4, 6), 1 / 6, np.float32), 0.05)) == 24
    holed = np.array([[np.nan, 0.2], [0, 0]], np.float32)
    assert pictures._strongest_edges(holed, 0.7) == [(0, 1, pytest.approx(0.2))]


def test_of_too_many_curves_the_weakest_go_and_every_row_stays() -> None:
    """A row of small values keeps its largest, where a row of large ones loses what it also looks at."""
    values = np.array([[0.5, 0.3, 0.2], [0.05, 0.04, 0.03], [0.001, 0.0005, 0.0001]])
    edges = pictures._strongest_edges(values, 1.0)
    assert pictures._limit_edges(edges, 9) == edges
    assert [(q, k) for q, k, _ in pictures._limit_edges(edges, 4)] == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert [(q, k) for q, k, _ in pictures._limit_edges(edges, 2)] == [(0, 0), (1, 0)]


def test_a_matrix_has_the_colours_of_its_values() -> None:
    """The pixel in the middle of each cell is the colour of the app's scale for that share of the largest value."""
    run = run_of(["a", "b", "c"])
    picture = Image.open(io.BytesIO(picture_of(run, MapView(mode="matrix"), "png"))).convert("RGB")
    values = run.attention[0, 0]
    pixels = np.asarray(picture).astype(int)
    scale = drawing.colour_map(pictures.SEQUENTIAL)
    expected = {tuple(round(255 * part) for part in scale(value / values.max())[:3]) for value in values.ravel()}
    seen = {tuple(colour) for colour in np.unique(pixels.reshape(-1, 3), axis=0)}
    assert expected <= seen


def test_what_is_no_number_is_crossed_out_and_pruned_heads_are_gaps() -> None:
    """A hole is no zero: it gets a cross; a head that does not exist leaves its frame empty."""
    run = run_of(["a", "b"])
    attention = run.attention.copy()
    attention[0, 0, 1, 2] = np.nan
    attention[1, 1] = np.nan
    holed = dataclasses.replace(run, attention=attention)
    picture = Image.open(io.BytesIO(picture_of(holed, MapView(mode="matrix"), "png"))).convert("RGB")
    assert (192, 57, 43) in {colour for _, colour in picture.getcolors(1 << 24)}
    whole, gap = (picture_of(r, MapView(heads=()), "svg").count(b"<image") for r in (run, holed))
    assert (whole, gap) == (6, 5)
    assert "1 values are not numbers" in " ".join(texts_of(picture_of(holed, MapView(), "svg")))


@pytest.mark.parametrize("kind", PICTURES)
def test_hostile_and_foreign_texts_are_drawn_as_they_are(kind: str) -> None:
    """No formula, no tag, no crash; signs that no font has are named in one warning, and not in an SVG."""
    texts = [*HOSTILE, "漢字", "שלום", "🏳️‍🌈", "\u200b", "", "\x00\x0b", "\ud800", "\uffff", "ひら"]
    run = run_of(texts, second=4)
    for view in (MapView(heads=(0, 1)), MapView(mode="matrix")):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            made = picture_of(run, view, kind)
        assert len(heard) <= (0 if kind == "svg" else 1)
        assert all("are in no font of this machine" in str(warning.message) for warning in heard)
        if kind == "svg":
            names = {node.tag.removeprefix(SVG) for node in ET.fromstring(made).iter()}
            assert not names & {"script", "foreignObject", "a", "b", "img", "i"}
            found = texts_of(made)
            for text in HOSTILE[:-1]:
                assert any(piece.startswith(text[:3]) for piece in found) or not text.isascii()
            assert max(map(len, found)) < 120


def test_bars_and_scored_tokens(run: ModelRun) -> None:
    """Predictions and scores are drawn too, with their labels as text; lengths that do not fit are refused."""
    bars = texts_of(picture_bytes(pictures.bars_picture(["door", "$a$"], [0.7, 0.1], unit="probability"), "svg"))
    assert {"door", "$a$", " 0.70", "probability"} <= set(bars)
    tokens = [
        Token(token, i, side)
        for i, (token, side) in enumerate(zip(run.encoding.tokens, run.encoding.sides, strict=True))
    ]
    scores = np.linspace(-1, 1, len(tokens))
    drawn = texts_of(picture_bytes(pictures.scores_picture(tokens, scores, unit="saliency"), "svg"))
    assert set(run.encoding.tokens) <= set(drawn) and "saliency" in drawn
    with pytest.raises(ValueError, match="2 labels and 1 shares"):
        pictures.bars_picture(["a", "b"], [1], unit="x")
    with pytest.raises(ValueError, match="tokens and 1 scores"):
        pictures.scores_picture(tokens, [1], unit="x")
    with pytest.raises(ValueError, match="png, svg, pdf"):
        picture_bytes(pictures.bars_picture(["a"], [1], unit="x"), "gif")


@pytest.mark.slow
def test_pictures_of_512_tokens() -> None:
    """The longest text, one repeated word: curves within their limit, a matrix of one image, all heads."""
    run = run_of(["buffalo"] * 510, layers=1, heads=2)
    curves = picture_of(run, MapView(heads=(0, 1), kept_share=1.0), "svg")
    assert curves.count(b"<use") + curves.count(b"<path") < 2 * pictures.MAX_CURVES + 100
    assert b"not drawn" in curves
    assert picture_of(run, MapView(mode="matrix"), "svg").count(b"<image") == 2, "the map, and the scale of its colours"
    width, height = Image.open(io.BytesIO(picture_of(run, MapView(mode="matrix"), "png"))).size
    assert min(width, height) > 1024


# ---------------------------------------------------------------------------- the Python of a picture


@pytest.mark.parametrize(
    "view",
    [
        MapView("gradient", "A to B", layer=1, heads=(3,)),
        MapView(words=True, mode="matrix"),
        MapView(heads=(0, 1), combination=Combination("weighted")),
    ],
)
def test_the_snippet_makes_the_same_picture(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: MapView
) -> None:
    """Run from its text alone, with a hidden word, a head off and a target: equal arrays, and the same bytes."""
    encoding = tiny_loaded.tokenizer.encode("The cat's \"mat\"\n{x} \\ \u2028 ''' sat.", "It was # old.")
    encoding = tiny_loaded.tokenizer.mask_words(encoding, (1,))
    gates = np.ones((2, 4), np.float32)
    gates[0, 3] = 0
    run = bert_core.capture(tiny_loaded, encoding, target=Target("nsp"), head_mask=gates)
    code = snippet(run, view, str(tiny_model_folder))
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(compile(code, "snippet", "exec"), scope)
    assert np.array_equal(scope["maps"], view.maps(run).values)
    assert scope["run"].encoding == encoding
    assert (tmp_path / "attention.svg").read_bytes() == picture_of(run, view, "svg")


def test_the_snippet_of_the_neuron_view_makes_the_same_picture(
    tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: ModelRun
) -> None:
    """Run from its text alone, with a head off in the layer below: the same bytes, and its numbers by name."""
    gates = np.ones((2, 4), np.float32)
    gates[0, 2] = 0
    seen = bert_core.capture(tiny_loaded, run.encoding, head_mask=gates)
    vectors = bert_core.head_vectors(tiny_loaded, run.encoding, 1, 3, head_mask=gates)
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(compile(neuron_snippet(seen, vectors, 5, str(tiny_model_folder)), "snippet", "exec"), scope)
    assert (tmp_path / "neuron.svg").read_bytes() == picture_bytes(pictures.neuron_picture(vectors, 5), "svg")
    assert_near(scope["softmax"], seen.attention[1, 3])


def test_nothing_that_was_typed_runs_in_a_snippet() -> None:
    """Hostile texts, quotes of every kind among them, stand in it as one quoted string each."""
    import ast

    run = run_of(HOSTILE, second=9)
    tree = ast.parse(snippet(run, MapView(), "headlight-mini"))
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert run.encoding.text in constants and run.encoding.pair in constants
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert calls == {
        "bert_core.load", "loaded.tokenizer.encode", "loaded.tokenizer.mask_words", "np.ones", "bert_core.capture",
        "MapView", "view.maps", "Path", "Path('attention.svg').write_bytes", "picture_of",
    }  # fmt: skip


# ---------------------------------------------------------------------------- headlight attention


def headlight(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["attention", *map(str, arguments)])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_the_command_draws_without_streamlit(tiny_model_folder: Path, tmp_path: Path) -> None:
    """A picture on the command line waits for no web server to be imported."""
    code = """
import sys
from viz_app.cli import main
try:
    main(sys.argv[1:])
finally:
    print("streamlit" in sys.modules, "matplotlib" in sys.modules)
"""
    given = ["attention", "the cat sat", "--model", str(tiny_model_folder), "--out", str(tmp_path / "a.png")]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False True" and (tmp_path / "a.png").is_file()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "html", "npz", "csv", "py"])
def test_the_command_writes_what_the_ending_says(
    capsys: pytest.CaptureFixture[str], tiny_model_folder: Path, tmp_path: Path, ending: str
) -> None:
    """One file that begins as its kind does, nothing printed, nothing left beside it."""
    out = tmp_path / f"a.{ending}"
    asked = (TEXT, "--pair", PAIR, "--model", tiny_model_folder, "--layer", 1, "--head", 3, "--device", "cpu")
    assert headlight(capsys, *asked, "--out", out) == (0, "", "")
    start = {
        "svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!doctype html>", "npz": b"PK", "csv": b"layer,",
        "py": b"from pathlib",
    }  # fmt: skip
    assert out.read_bytes().startswith(start[ending])
    assert os.listdir(tmp_path) == [out.name]


def test_the_command_draws_the_librarys_numbers(
    capsys: pytest.CaptureFixture[str], tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Gradients for the best guess of the first [MASK], or for a target by name, equal to `capture`."""
    out, common = tmp_path / "a.npz", (TEXT, "--pair", PAIR, "--model", tiny_model_folder, "--device", "cpu")
    encoding = tiny_loaded.tokenizer.encode(TEXT, PAIR)
    mask = encoding.mask_positions[0]
    best = bert_core.capture(tiny_loaded, encoding, top_k=1).predictions[0].top[0][0]
    cat = tiny_loaded.tokenizer.id_of("cat")
    targets = {
        (): Target("mlm", mask, best),
        ("--target", f"{mask}:cat"): Target("mlm", mask, cat),
        ("--target", "nsp"): Target("nsp"),
    }
    for options, target in targets.items():
        assert headlight(capsys, *common, "--show", "gradient", *options, "--out", out) == (0, "", "")
        expected = bert_core.capture(tiny_loaded, encoding, target=target).gradient
        with np.load(out, allow_pickle=False) as file:
            assert np.array_equal(file["gradient"], expected)


def test_the_command_writes_the_norm_under_its_old_name_too(
    capsys: pytest.CaptureFixture[str], tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Value-weighted attention is the array `norm`, whether it was called norm or brought."""
    out, common = tmp_path / "a.npz", (TEXT, "--model", tiny_model_folder, "--device", "cpu")
    run = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT), norms=True)
    for name in ("norm", "brought"):
        assert headlight(capsys, *common, "--show", name, "--out", out) == (0, "", "")
        with np.load(out, allow_pickle=False) as file:
            assert np.array_equal(file["norm"], run.select_map("brought"))


def test_the_command_writes_one_map_of_several_heads(
    capsys: pytest.CaptureFixture[str], tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Of the heads that were named, of the layer, or without one of all."""
    out, common = tmp_path / "a.npz", (TEXT, "--model", tiny_model_folder, "--device", "cpu", "--combine")
    maps = bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT)).attention
    expected = {
        ("weighted", "--weights", "3,1", "--layer", 1, "--head", 0, "--head", 3): (3 * maps[1, 0] + maps[1, 3]) / 4,
        ("maximum", "--layer", 1): maps[1].max(0),
        ("average",): maps.mean((0, 1)),
    }
    for options, by_hand in expected.items():
        assert headlight(capsys, *common, *options, "--out", out) == (0, "", "")
        with np.load(out, allow_pickle=False) as file:
            assert_near(file["attention"], by_hand, 1e-6)


def test_the_command_writes_a_head_down_to_its_vectors(
    capsys: pytest.CaptureFixture[str], tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """The vectors of the library, and the query that was asked for in a page and in a script."""
    asked = (TEXT, "--model", tiny_model_folder, "--device", "cpu", "--layer", 1, "--head", 3, "--neuron", 4, "--out")
    for ending in ("npz", "html", "py"):
        assert headlight(capsys, *asked, tmp_path / f"a.{ending}") == (0, "", "")
    vectors = bert_core.head_vectors(tiny_loaded, tiny_loaded.tokenizer.encode(TEXT), 1, 3)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert np.array_equal(file["q"], vectors.queries) and np.array_equal(file["k"], vectors.keys)
    assert 'id="vectors-0"' in (tmp_path / "a.html").read_text("utf-8")
    assert "neuron_picture(vectors, 4)" in (tmp_path / "a.py").read_text("utf-8")


def test_the_command_compares(
    capsys: pytest.CaptureFixture[str],
    tiny_loaded: LoadedModel,
    tiny_model_folder: Path,
    tiny_classifier_folder: Path,
    tmp_path: Path,
) -> None:
    """With another text, another model, or heads off: what that gives, minus what the text gives."""
    out, common = tmp_path / "a.npz", (TEXT, "--pair", PAIR, "--model", tiny_model_folder, "--device", "cpu")
    encode = tiny_loaded.tokenizer.encode
    gates = np.ones((2, 4), np.float32)
    gates[0, [1, 2]] = 0
    before = bert_core.capture(tiny_loaded, encode(TEXT, PAIR)).attention
    same_length = "The dogs sat on the [MASK]."
    expected = {
        ("--against", same_length, "--against-pair", PAIR): bert_core.capture(tiny_loaded, encode(same_length, PAIR)),
        ("--without-heads", "0.1,0.2"): bert_core.capture(tiny_loaded, encode(TEXT, PAIR), head_mask=gates),
        ("--against-model", tiny_classifier_folder): bert_core.capture(tiny_loaded, encode(TEXT, PAIR)),
    }
    for options, after in expected.items():
        assert headlight(capsys, *common, *options, "--out", out) == (0, "", "")
        with np.load(out, allow_pickle=False) as file:
            assert_near(file["change"], after.attention - before, 1e-6, of=before.max())
    page = tmp_path / "a.html"
    assert headlight(capsys, *common, "--without-heads", "1.*", "--out", page) == (0, "", "")
    assert "all heads on" in page.read_text("utf-8")
    assert headlight(capsys, *common, "--against", "A dog.", "--layer", 1, "--head", 0, "--out", page) == (0, "", "")
    assert "the other text" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--out", "a.svg", "--weights", "1,2"], "--weights needs --combine weighted"),
        (["--out", "a.svg", "--combine", "weighted", "--weights", "x"], "numbers between commas"),
        (["--out", "a.svg", "--combine", "weighted", "--layer", "0", "--weights", "1"], "1 weights for 4 heads"),
        (["--out", "a.html", "--neuron", "1"], "give --layer and one --head, and nothing to compare with"),
        (["--out", "a.html", "--neuron", "1", "--layer", "0", "--head", "0", "--against", "a"], "nothing to compare"),
        (["--out", "a.png", "--neuron", "9", "--layer", "0", "--head", "0"], "query 9 does not exist: the queries of"),
        (["--out", "a.py", "--neuron", "9", "--layer", "0", "--head", "0"], "query 9 does not exist: the queries of"),
        (["--out", "a.svg", "--neuron", "1", "--layer", "0", "--head", "0", "--words"], "leave out words"),
        (["--out", "a.npz", "--against", "A dog.", "--combine", "average"], "a comparison is of attention"),
        (["--out", "a.npz", "--against", "A dog.", "--layer", "4"], "layer 4 does not exist"),
        (["--out", "a.py", "--against", "A dog.", "--layer", "0", "--head", "7"], "head 7 does not exist"),
        (["--out", "a.npz", "--without-heads", "x"], "--without-heads is 'x': write layer.head"),
        (["--out", "a.npz", "--without-heads", "0.9"], "head 9 does not exist in layer 0"),
        (["--out", "a.gif"], "its ending must be one of png, svg, pdf, html, npz, csv, py"),
        (["--out", "a"], "its ending must be one of"),
        (["--out", "nowhere/a.svg"], "there is no folder"),
        (["--out", "a.svg", "--layer", "2", "--head", "0"], "layer 2 does not exist: this model has layers 0 to 1"),
        (["--out", "a.svg", "--layer", "0", "--head", "4"], "head 4 does not exist in layer 0"),
        (["--out", "a.svg", "--head", "1"], "--head needs --layer"),
        (["--out", "a.svg", "--layer", "1", "--mode", "matrix"], "a matrix shows one head"),
        (["--out", "a.svg", "--layer", "1", "--head", "0", "--head", "1", "--mode", "matrix"], "one --head, or"),
        (["--out", "a.svg", "--against", " "], "--against is empty: give the text to compare with"),
        (["--out", "a.svg", "--part", "A to B"], "there is no second sentence"),
        (
            ["--out", "a.svg", "--show", "gradient"],
            "explain: put a [MASK] into the text or add --pair or give",
        ),
        (
            ["--out", "a.svg", "--show", "gradient", "--target", "x:"],
            "--target is 'x:': write POSITION:WORD, nsp, like:",
        ),
        (["--out", "a.svg", "--show", "gradient", "--target", "x"], "--target is 'x': no word is masked"),
        (["--out", "a.svg", "--show", "gradient", "--target", "1:zebra"], "has no token 'zebra'"),
        (["--out", "a.svg", "--show", "gradient", "--target", "99:cat"], "position 99 does not exist"),
        (["--out", "a.svg", "--bertviz", "head"], "BertViz writes .html"),
        (
            ["--out", "a.csv", "--terms"],
            "--terms shows one head of one run: give --layer and one --head, and nothing to compare with",
        ),
        (["--out", "a.csv", "--terms", "--layer", "1"], "--terms shows one head of one run"),
        (
            ["--out", "a.csv", "--terms", "--layer", "1", "--head", "0", "--head", "1"],
            "--terms shows one head of one run",
        ),
        (
            ["--out", "a.csv", "--terms", "--layer", "1", "--head", "0", "--against", "A dog."],
            "nothing to compare with",
        ),
        (["--out", "a.csv", "--terms", "--layer", "1", "--head", "0", "--words"], "leave out words"),
        (["--out", "a.csv", "--terms", "--layer", "1", "--head", "0", "--combine", "average"], "leave out combination"),
        (["--out", "a.csv", "--terms", "--layer", "9", "--head", "0"], "layer 9 does not exist"),
        (["--out", "a.csv", "--terms", "--layer", "1", "--head", "9"], "head 9 does not exist"),
        (
            ["--out", "a.csv", "--terms", "--layer", "1", "--head", "0", "--neuron", "1"],
            "--neuron and --terms are two views",
        ),
        (["--out", "a.csv", "--query", "1"], "--query needs --terms"),
        (
            ["--out", "a.csv", "--terms", "--layer", "1", "--head", "0"],
            "this model adds no position terms to its scores",
        ),
    ],
)
def test_a_file_that_cannot_be_is_one_sentence_and_no_file(
    capsys: pytest.CaptureFixture[str],
    tiny_model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    reason: str,
) -> None:
    """Code 2, one line that names the cause, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    code, out, err = headlight(capsys, "The cat sat.", "--model", tiny_model_folder, "--device", "cpu", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert os.listdir(tmp_path) == []


def test_what_a_model_lacks_is_no_way_to_a_picture(
    capsys: pytest.CaptureFixture[str], tiny_loaded: LoadedModel, tmp_path: Path
) -> None:
    """A gradient names only what this model can be asked; a layer without a head is not drawn as all layers."""
    bare = tmp_path / "bare"
    bert_core.save(bert_core.pruned(tiny_loaded, [(1, head) for head in range(4)]), bare)
    weights = load_file(bare / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "cls." not in name}, bare / "model.safetensors")
    options = ("--model", bare, "--device", "cpu", "--out", tmp_path / "a.svg")
    code, _, err = headlight(capsys, "The [MASK] sat.", "--show", "gradient", *options)
    assert code == 2 and err.endswith("something to explain: give --target like:TEXT\n") and "[MASK]" not in err
    code, _, err = headlight(capsys, "The [MASK] sat.", "--layer", "1", *options)
    assert (code, err) == (2, "layer 1 has no head to draw: all of them are pruned\n")


def test_a_folder_is_no_place_for_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A folder whose name ends like a file's is named before any model is loaded."""
    (tmp_path / "folder.svg").mkdir()
    code, _, err = headlight(capsys, "The cat sat.", "--model", "./nowhere", "--out", tmp_path / "folder.svg")
    assert (code, err) == (2, f"--out is {str(tmp_path / 'folder.svg')!r}: that is a folder, and a file is needed\n")


def test_a_file_that_was_there_stays_when_writing_fails(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new file takes the old one's place whole or not at all, leaves nothing behind, and the cause is said."""
    out = tmp_path / "a.csv"
    out.write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(out))

    monkeypatch.setattr("bert_core.checkpoint.os.replace", full)
    asked = ("The cat sat.", "--model", tiny_model_folder, "--device", "cpu", "--out", out)
    code, _, err = headlight(capsys, *asked)
    assert code == 2 and "No space left on device: make room" in err and err.count("\n") == 1
    assert out.read_bytes() == b"before" and os.listdir(tmp_path) == ["a.csv"]


def test_pictures_are_drawn_where_there_is_neither_browser_nor_display(tmp_path: Path) -> None:
    """In a process of its own with an empty PATH and no display, a PNG, an SVG and a PDF come out."""
    code = """
import sys
from tests.hostile import run_of
from viz_app.maps import MapView
from viz_app.export.pictures import picture_of
print([len(picture_of(run_of(["a", "b"]), MapView(), kind)) > 1000 for kind in ("png", "svg", "pdf")])
print("kaleido" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""
    root = str(Path(cli.__file__).parents[2])
    clean = {"PATH": "", "PYTHONPATH": root, "HOME": os.environ.get("HOME", str(tmp_path))}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["[True, True, True]", "False False"], done.stderr[-2000:]


def test_the_command_says_which_signs_no_font_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_folder: Path
) -> None:
    """The sentence of the picture stands on stderr, once, and the file is written."""

    def warned(*_: object, **__: object) -> bytes:
        warnings.warn("2 characters are in no font", stacklevel=1)
        return b"x"

    monkeypatch.setattr(drawing, "picture_bytes", warned)
    out = tmp_path / "a.png"
    code, _, err = headlight(capsys, "The cat.", "--model", tiny_model_folder, "--out", out, "--device", "cpu")
    assert (code, err, out.read_bytes()) == (0, "2 characters are in no font\n", b"x")

"""The messages to the views that a page makes from its own numbers, beside those of Python from the same numbers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_javascript import fields, node, said
from viz_app.components.attention_view import CONSTANTS, STRONGEST, fixed_header
from viz_app.components.attention_view.everywhere import pack_all_maps
from viz_app.components.attention_view.packing import CODES, coded
from viz_app.components.head_grid import grid_message
from viz_app.components.look import views_look
from viz_app.components.token_strip import Chip, strip_message
from viz_app.figures.style import cell_number, two_digits
from viz_app.figures.thumbnails import SMALL, pale_thumbnails
from viz_app.maps import curve_limit
from viz_app.tokens import Token

LAYERS, HEADS, ROWS, COLUMNS = 2, 3, 9, 11
LOOK: dict[str, Any] = json.loads(json.dumps(views_look()))
READ = """
import { readFileSync } from "node:fs";
import * as arrays from "./viz_app/components/array_maps.js";
import * as numbers from "./viz_app/components/numbers.js";
import * as views from "./viz_app/components/run_views.js";

const input = JSON.parse(readFileSync(process.argv[1], "utf8"));
const { look, form } = input;
const floats = (text) => new Float32Array(Uint8Array.from(Buffer.from(text, "base64")).buffer);
const text = (bytes) => Buffer.from(bytes).toString("base64");
"""


def javascript(code: str, folder: Path, **inputs: Any) -> Any:
    """The value of an expression of the page, with the inputs as `input` and the constants of the views as `look`."""
    (folder / "input.json").write_text(json.dumps({"look": LOOK} | inputs), encoding="utf-8")
    program = f"{READ}console.log(JSON.stringify({code}));"
    return json.loads(node("--input-type=module", "-e", program, folder / "input.json"))


def text_of(values: np.ndarray) -> str:
    """An array of float32 as text, with what is no number."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def form_of(values: np.ndarray, *, signed: bool) -> dict[str, Any]:
    layers, heads, rows, columns = values.shape
    return {"layers": layers, "heads": heads, "rows": rows, "columns": columns, "signed": signed, "codes": CODES}


def maps_of(*, signed: bool) -> np.ndarray:
    """Maps with a head that does not exist, a few values that are no number, a row of zeros, and ties."""
    draw = np.random.default_rng(4)
    values = draw.normal(size=(LAYERS, HEADS, ROWS, COLUMNS)).astype(np.float32)
    values = values if signed else np.abs(values)
    values[1, 0] = np.nan
    values[0, 1, 2, :3] = np.nan, np.inf, 3
    values[0, 2, 4] = 0
    # Shares of the maximum that are halves of a step, where rounding has to be the same.
    values[1, 1] = np.linspace(0, 1, 257, dtype=np.float32)[np.arange(ROWS * COLUMNS) * 2 + 1].reshape(ROWS, COLUMNS)
    values[1, 1, :, :2] = 1, 0.5
    return values


@pytest.mark.parametrize("signed", [False, True])
def test_maps_from_an_array_are_packed_as_in_the_app(signed: bool, tmp_path: Path) -> None:
    """Every byte of each map and each field of its layer is what Python sends, and rows and columns are exact."""
    values = maps_of(signed=signed)
    code = """Array.from({ length: form.layers }, (_, layer) => {
      const options = { listed: look.listed, off: [[1, 2]] };
      const { maps, ...fields } = arrays.layerReader(floats(input.values), form, options)(layer);
      return { ...fields, maps: maps.map((map) => [text(map.coded()), text(map.lines())]) };
    })"""
    layers = javascript(code, tmp_path, values=text_of(values), form=form_of(values, signed=signed))
    off = np.zeros((LAYERS, HEADS), bool)
    off[1, 2] = True
    existing = ~np.isnan(values).all((-1, -2))
    all_maps = pack_all_maps(values, existing=existing, off=off, signed=signed)
    assert all_maps is not None
    for layer, expected, maps in zip(layers, json.loads(json.dumps(all_maps.layers)), values, strict=True):
        assert {name: layer[name] for name in expected if name != "names"} == {
            name: field for name, field in expected.items() if name != "names"
        }
        for (packed, lines), head in zip(layer["maps"], maps, strict=True):
            assert base64.b64decode(packed) == coded(head, signed=signed)
            assert base64.b64decode(lines) == head.tobytes() + np.ascontiguousarray(head.T).tobytes()


@pytest.mark.parametrize("quantity", ["attention", "gradient"])
def test_the_limit_of_curves_is_that_of_the_app(quantity: str, tmp_path: Path) -> None:
    """1 for attention, and otherwise the largest magnitude of all heads."""
    values = maps_of(signed=True)
    code = "arrays.curveLimit(floats(input.values), input.quantity === 'attention')"
    assert javascript(code, tmp_path, values=text_of(values), quantity=quantity) == curve_limit(values, quantity)


@pytest.mark.parametrize("sides", [[], [None, *"AAAA", None, *"BBBB", None], [None] * COLUMNS])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("size", [4, SMALL])
def test_thumbnails_are_those_of_the_app(signed: bool, sides: list[str | None], size: int, tmp_path: Path) -> None:
    """The same bytes in the same scale, with and without pale columns, also where several values are one pixel."""
    values = maps_of(signed=signed)
    code = """(({ pixels, size, limit }) => ({ pixels: [...pixels], size, limit }))(
      arrays.thumbnails(floats(input.values), form, input.sides, input.size, look.thumbnails))"""
    form = form_of(values, signed=signed)
    small = javascript(code, tmp_path, values=text_of(values), form=form, sides=sides, size=size)
    expected = pale_thumbnails(values, sides, size, signed=signed)
    assert small["size"] == list(expected.images.shape[2:])
    assert small["limit"] == pytest.approx(expected.limit, rel=1e-6)
    difference = np.array(small["pixels"]) - expected.images.ravel().astype(int)
    assert np.abs(difference).max() <= 1 and (difference != 0).mean() < 0.01


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("scale", [1, 0.05, 1e-4])
def test_a_grid_of_numbers_has_the_message_of_the_app(scale: float, signed: bool, tmp_path: Path) -> None:
    """Colours, numbers, digits and legend of each head are those that Python writes, as is every other field."""
    draw = np.random.default_rng(5)
    values = np.concatenate([draw.normal(size=7), [0, 0.125, 0.375, np.nan]]).astype(np.float32)[None] * scale
    values = values if signed else np.abs(values)
    heads = values.shape[1]
    options: dict[str, Any] = {
        "layers": 1, "heads": heads, "signed": signed, "unit": "attention", "mode": "switch", "off": [(0, 2)],
        "titles": [["title"] * heads],
    }  # fmt: skip
    code = "views.gridHeader({ ...input.options, look, values: floats(input.values) })"
    header = javascript(code, tmp_path, options=options, values=text_of(values))
    expected = said(grid_message(**options, values=values.astype(float)))
    shares, expected_shares = header.pop("shares"), expected.pop("shares")
    assert np.allclose(np.array(shares, float), np.array(expected_shares, float), atol=1.01e-4, equal_nan=True)
    assert header == expected


def test_a_grid_of_small_maps_has_the_message_of_the_app(tmp_path: Path) -> None:
    """Every field is that of the app: size, zero and legend come from the small maps."""
    values = maps_of(signed=True)
    small = pale_thumbnails(values, [], signed=True)
    order = [[2, 0, 1], [0, 1, 2]]
    options: dict[str, Any] = {
        "layers": LAYERS, "heads": HEADS, "signed": True, "selected": (1, 2), "rows": [1, 0], "unit": "gradient",
    }  # fmt: skip
    code = """views.gridHeader({ ...input.options, look, thumbnails:
      arrays.thumbnails(floats(input.values), form, [], look.thumbnails.small, look.thumbnails) })"""
    header = javascript(
        code,
        tmp_path,
        options=options | {"order": order, "pruned": [[1, 0]]},
        values=text_of(values),
        form=form_of(values, signed=True),
    )
    existing = np.ones((LAYERS, HEADS), bool)
    existing[1, 0] = False
    message = grid_message(
        **options, order=np.array(order), existing=existing, thumbnails=small.images, limit=small.limit
    )
    assert header == said(message)


def test_numbers_are_written_as_in_figures(tmp_path: Path) -> None:
    """Two digits and numbers of cells are the same text, also at halves, powers of ten and below zero."""
    draw = np.random.default_rng(6)
    drawn = draw.normal(size=200) * 10.0 ** draw.integers(-8, 5, 200)
    numbers = [
        *drawn.tolist(),
        0.0,
        1.0,
        0.5,
        0.125,
        -0.375,
        2.5,
        12.5,
        99.5,
        9.995,
        99.95,
        0.00001,
        0.0001,
        100,
        -0.001,
    ]
    code = "input.numbers.map((x) => [numbers.twoDigits(x), numbers.cellNumber(x)])"
    expected = [[two_digits(number), cell_number(number)] for number in numbers]
    assert javascript(code, tmp_path, numbers=numbers) == expected


def test_the_fixed_header_and_the_strip_are_those_of_the_app(tmp_path: Path) -> None:
    """What does not depend on the choice, and the message to the strip, have the same fields and values."""
    tokens = [Token("the", 1, "A"), Token("[SEP]", 2, None)]
    placed = [[token.text, token.position, token.side] for token in tokens]
    options = {"layers": 2, "heads": 3, "signed": True, "unit": "gradient"}
    code = "views.fixedHeader(look, { ...input.options, queries: input.tokens, keys: input.tokens })"
    header = javascript(code, tmp_path, options=options, tokens=placed)
    assert header == json.loads(json.dumps(fixed_header(tokens, tokens, **options)))  # type: ignore[arg-type]
    shades = (("#ffffff", "#000000"), ("#000000", "#ffffff"))
    chips = [
        Chip("[CLS]", special=True),
        Chip("the", "position 1", 0, "A", target=True, number="0.12", shades=shades),
        Chip("[MASK]", "hidden", 1, "B", masked=True),
    ]
    code = "views.stripMessage({ look, chips: input.chips, label: 'tokens', start: 2 })"
    message = javascript(code, tmp_path, chips=[vars(chip) for chip in chips])
    expected = strip_message(chips, disabled=False, label="tokens", appear="", start=2)
    assert message == json.loads(json.dumps(expected))


def test_the_look_has_the_fields_that_javascript_is_checked_against() -> None:
    """JSON holds it, its types are those of messages.d.ts, and the app sends the same constants in every message."""
    assert set(LOOK) == set(fields("Look"))
    assert set(LOOK["constants"]) == set(fields("ViewConstants"))
    assert set(LOOK["thumbnails"]) == set(fields("ThumbnailConstants"))
    assert all(set(view) == set(fields("ViewMarkup")) for view in LOOK["views"].values())
    assert LOOK["listed"] == STRONGEST
    header = fixed_header([], [], layers=1, heads=1, signed=False, unit="")
    assert {name: header[name] for name in CONSTANTS} == views_look()["constants"]

"""How arrays look: the colour rule, the labels, the numbers, and the small pictures of all heads."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import plotly.io
import pytest
from streamlit.testing.v1 import AppTest

from viz_app.components import attention_view
from viz_app.components.clicks import latest
from viz_app.components.head_grid import _in_cell, grid_message
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.heads import role_bars, role_map, sweep_scatter
from viz_app.figures.predictions import answer_bars, nsp_bar, nsp_verdict, prediction_bars
from viz_app.figures.style import (
    DARK_PAGE,
    DIVERGING,
    HEAD_COLOURS,
    HEAD_DASHES,
    LIGHT_PAGE,
    SENTENCE_TINTS,
    SEQUENTIAL,
    Look,
    plain,
    rgb,
    shade,
    two_digits,
    use_look,
)
from viz_app.figures.thumbnails import common_limit, pale_thumbnails, thumbnails

PAGES = (LIGHT_PAGE, DARK_PAGE)
CELL_LETTERS = 6  # that fit into a cell of a grid
THEME = Path(__file__).parents[2] / "viz_app" / "theme.toml"
# What linear light becomes for an eye without green cones, without red cones (Machado, Oliveira & Fernandes 2009).
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]


def light(colours: Sequence[str]) -> np.ndarray:
    """(colour, 3) linear light, 0 to 1."""
    srgb = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def oklab(linear: np.ndarray) -> np.ndarray:
    """(colour, 3): lightness and two axes of colour, in which equal distances look equal (Ottosson 2020)."""
    cones = np.cbrt(
        linear
        @ np.array(
            [
                [0.4122214708, 0.2119034982, 0.0883024619],
                [0.5363325363, 0.6806995451, 0.2817188376],
                [0.0514459929, 0.1073969566, 0.6299787005],
            ]
        )
    )
    return cones @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )


def steps(colours: Sequence[str]) -> np.ndarray:
    return np.linalg.norm(np.diff(oklab(light(colours)), axis=0), axis=1)


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio, 1 to 21."""
    high, low = sorted(light([one, other]) @ [0.2126, 0.7152, 0.0722], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_what_is_written_on_a_shade_can_be_read(signed: bool, dark: bool) -> None:
    """Along the whole of each scale the contrast is at least 4.5, as WCAG asks of small writing."""
    shares = np.linspace(-1 if signed else 0, 1, 401)
    with use_look(Look(dark)):
        assert min(contrast(*shade(share, signed=signed)) for share in shares.tolist()) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_sequential_colours_take_equal_steps_away_from_the_page(dark: bool) -> None:
    """Zero is nearly the page, every step looks about as large as the next, and lightness alone tells the order."""
    colours = SEQUENTIAL[dark]
    assert steps(colours).max() / steps(colours).min() < 1.3
    lightness = oklab(light(colours))[:, 0]
    assert (np.diff(lightness) * (1 if dark else -1) > 0.02).all()
    background = PAGES[dark].background
    assert contrast(colours[0], background) < 1.25
    assert contrast(colours[-1], background) > 12


@pytest.mark.parametrize("dark", [False, True])
def test_diverging_colours_are_symmetric_about_a_neutral_middle(dark: bool) -> None:
    """The middle has no hue, both sides are equally light and leave it in equal steps, also without green or red."""
    colours = DIVERGING[dark]
    lab = oklab(light(colours))
    middle = len(colours) // 2
    assert len(colours) % 2 == 1
    assert np.hypot(*lab[middle, 1:]) < 0.01
    assert np.abs(lab[:, 0] - lab[::-1, 0]).max() < 0.06
    assert steps(colours).max() / steps(colours).min() < 1.5
    for eye in (DEUTERANOPIA, PROTANOPIA):
        seen = oklab(np.clip(light(colours) @ np.array(eye).T, 0, 1))
        apart = np.linalg.norm(seen - seen[::-1], axis=1)
        assert (np.delete(apart, middle) > 0.08).all()


def test_head_colours_are_apart_for_every_eye() -> None:
    """No two of the 12 head colours come near each other with full colour vision, deuteranopia or protanopia.

    And each stands out from the light page and from the dark one, as WCAG 2.2 asks of graphics (1.4.11).
    """
    assert len(set(HEAD_COLOURS)) == len(HEAD_DASHES) == 12
    for colour, page in itertools.product(HEAD_COLOURS, PAGES):
        assert contrast(colour, page.background) >= 3
    for eye, least in ((np.eye(3), 0.115), (DEUTERANOPIA, 0.08), (PROTANOPIA, 0.08)):
        seen = oklab(np.clip(light(HEAD_COLOURS) @ np.array(eye).T, 0, 1))
        nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
        assert nearest > least


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable_on_everything_it_stands_on(dark: bool) -> None:
    """Text has at least the contrast 7 on page and tints, faint text and accent at least 4.5 on the page."""
    colours = PAGES[dark]
    for ground in (colours.background, colours.raised, *(tint[dark][0] for tint in SENTENCE_TINTS.values())):
        assert contrast(colours.text, ground) > 7
    assert contrast(colours.faint, colours.background) > 4.5
    assert contrast(colours.accent, colours.background) > 4.5


@pytest.mark.parametrize("name", ["light", "dark"])
def test_every_colour_of_text_has_the_contrast_that_reading_needs(name: str) -> None:
    """At least 4.5 on every ground of the theme: what explanations and all components are written in."""
    theme = tomllib.loads(THEME.read_text("utf-8"))["theme"][name]
    named = {
        "currentcolor": "textColor", "var(--st-text-color)": "textColor", "var(--st-primary-color)": "primaryColor",
        "var(--st-gray-text-color, var(--st-text-color))": "grayTextColor",
    }  # fmt: skip
    styles = [file for folder in ("components", "shell") for file in (THEME.parent / folder).rglob("*.css")]
    declared = re.compile(r"(?<![\w-])color: ([^;]*(?:text-color|primary-color|currentcolor)[^;]*?)(?: !important)?;")
    written = {colour for file in styles for colour in declared.findall(file.read_text("utf-8"))}
    assert any("currentcolor" in colour for colour in written)  # that of explanations
    for colour, ground in itertools.product(written, ("backgroundColor", "secondaryBackgroundColor")):
        mix = re.fullmatch(r"color-mix\(in srgb, (.+) (\d+)%, transparent\)", colour)
        pure, share = (mix[1], int(mix[2]) / 100) if mix else (colour, 1.0)
        front, back = theme[named[pure]], theme[ground]
        mixed = (share * int(front[i : i + 2], 16) + (1 - share) * int(back[i : i + 2], 16) for i in (1, 3, 5))
        assert contrast("#" + "".join(f"{round(part):02x}" for part in mixed), back) >= 4.5, (colour, ground)


def test_figures_and_theme_have_the_same_colours() -> None:
    """The theme file gives both pages the colours the figures are drawn for, and names no font from outside."""
    theme = tomllib.loads(THEME.read_text("utf-8"))["theme"]
    for name, colours in (("light", LIGHT_PAGE), ("dark", DARK_PAGE)):
        assert theme[name]["backgroundColor"] == colours.background
        assert theme[name]["secondaryBackgroundColor"] == colours.raised
        assert theme[name]["textColor"] == colours.text
        assert theme[name]["grayTextColor"] == colours.faint
        assert theme[name]["borderColor"] == colours.line
        assert theme[name]["primaryColor"] == colours.accent
    assert "http" not in THEME.read_text("utf-8")
    assert "fontFaces" not in theme


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9712, "0.97"), (0.5, "0.50"), (0.03149, "0.031"), (1, "1.0"), (12.3, "12"), (-0.2, "−0.20"), (1e-5, "1.0e−5")],
)
def test_two_digits(value: float, text: str) -> None:
    """Two significant digits, in the shortest form that still shows both."""
    assert two_digits(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cat", "cat"),
        ("##ing", "##ing"),
        ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
        ("&lt;", "&amp;lt;"),
        ("a\nb\u2028c", "a b c"),
        ("\u202eabc\u2066", "abc"),
        ("\u05e9\u05dc", "\u2068\u05e9\u05dc\u2069"),
        ("abcdefgh", "abcde…"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    """No tag, entity, line break or writing direction of a reader's text has any effect in a figure."""
    assert plain(text, longest=None if "<" in text or "&" in text else 6) == shown


def test_a_heatmap_shows_every_token_also_repeated_ones() -> None:
    """Rows are queries from the top, columns keys; equal tokens keep places of their own; the values are unchanged."""
    rng = np.random.default_rng(0)
    values = rng.random((3, 4), dtype=np.float32)
    figure = attention_heatmap(values, ["the", "the", "x" * 300], ["a", "b", "a", "<i>"], signed=False, title="L0 H1")
    heat, layout = figure.data[0], figure.layout
    assert np.array_equal(np.asarray(heat.z), values)
    assert (heat.zmin, heat.zmax) == (0, values.max())
    assert layout.yaxis2.ticktext == ("the", "the", "x" * 13 + "…")
    assert layout.yaxis2.tickvals == (0, 1, 2)
    assert layout.xaxis2.ticktext == ("a", "b", "a", "&lt;i&gt;")
    assert layout.yaxis.autorange == "reversed"
    assert "query" in layout.yaxis2.title.text and "key" in layout.xaxis2.title.text
    # On hover: the token, longer than its label, its place, and digits enough to tell two float32 apart.
    assert layout.yaxis.ticktext[:2] == ("the (0)", "the (1)")
    assert len(layout.yaxis.ticktext[2]) > 100
    assert "%{z:.9g}" in heat.hovertemplate


@pytest.mark.parametrize("dark", [False, True])
def test_signed_values_have_zero_in_the_middle_of_the_colours(dark: bool) -> None:
    """The range is symmetric whatever the values, and the diverging scale of the page is used."""
    with use_look(Look(dark)):
        figure = attention_heatmap(np.array([[0.5, -2.0]]), ["q"], ["a", "b"], signed=True, title="", unit="gradient")
    heat = figure.data[0]
    assert (heat.zmin, heat.zmax) == (-2, 2)
    assert heat.colorscale[len(heat.colorscale) // 2] == (0.5, DIVERGING[dark][6])
    assert "gradient" in heat.hovertemplate


def test_a_map_of_512_tokens_stays_light() -> None:
    """The values travel as bytes, labels are thinned, and every token is still there for the hover."""
    values = np.random.default_rng(0).random((512, 512))
    labels = [f"token{i}" for i in range(512)]
    figure = attention_heatmap(values, labels, labels, signed=False, title="L0 H0")
    assert np.asarray(figure.data[0].z).dtype == np.float32
    assert len(plotly.io.to_json(figure)) < 2 * values.astype(np.float32).nbytes
    assert len(figure.layout.xaxis2.ticktext) <= 36
    assert len(figure.layout.xaxis.ticktext) == 512


def test_an_empty_or_constant_map() -> None:
    """A map of zeros still has a range; labels that do not fit the values are an error that says both sizes."""
    figure = attention_heatmap(np.zeros((2, 2)), ["a", "b"], ["a", "b"], signed=True, title="")
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-1, 1)
    with pytest.raises(ValueError, match=r"shape \(2, 2\) with 1 query labels and 2 key labels"):
        attention_heatmap(np.zeros((2, 2)), ["a"], ["a", "b"], signed=False, title="")


def test_prediction_bars() -> None:
    """One bar a word in the order given, the first on top; before and now stand side by side, one of them hatched."""
    figure = prediction_bars(["mat", "<b>"], [0.412, 0.05])
    (bars,) = figure.data
    assert list(bars.x) == [0.412, 0.05]
    assert list(bars.text) == ["0.41", "0.050"]
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]
    assert "&lt;b&gt;" in figure.layout.yaxis.ticktext[1]

    before, now = prediction_bars(["mat", "bed"], [0.4, 0.1], before=[0.2, 0.3]).data
    assert (list(before.x), list(now.x)) == ([0.2, 0.3], [0.4, 0.1])
    assert (before.name, now.name) == ("before", "now")
    assert before.marker.pattern.shape and not now.marker.pattern.shape


def test_answer_bars_go_up_for_the_first_token_and_down_for_the_last() -> None:
    """Every number is said as it is, the answer is framed, and of many tokens the notable ones are named."""
    labels = ["no answer", "<b>a", "cat"]
    figure = answer_bars(labels, [0.1, 0.7, 0.2], [0.0, 0.3, 0.7], answer=(1, 2))
    first, last = figure.data
    assert (list(first.y), list(last.y)) == ([0.1, 0.7, 0.2], [0.0, -0.3, -0.7])
    assert [float(text.split()[-1]) for text in last.hovertext] == [0.0, 0.3, 0.7]
    assert first.hovertext[1].startswith("&lt;b&gt;a<br>")
    assert last.marker.pattern.shape == "/" and not first.marker.pattern.shape  # apart without their colours
    (frame,) = figure.layout.shapes
    assert (frame.x0, frame.x1) == (0.5, 2.5) and len(figure.layout.xaxis.tickvals) == 3
    many = np.zeros(200)
    many[[7, 9]] = 0.5
    named = answer_bars(["x"] * 200, many.tolist(), many.tolist(), answer=(7, 9)).layout.xaxis.tickvals
    assert list(named) == [7, 9]
    with pytest.raises(ValueError, match="one of each"):
        answer_bars(labels, [0.1], [0.1, 0.2, 0.3], answer=(0, 0))
    with pytest.raises(ValueError, match=r"probability 1\.5"):
        answer_bars(labels, [1.5, 0, 0], [0, 0, 1], answer=(0, 0))


def test_nsp_bar_leans_to_the_side_believed() -> None:
    """The bar starts at one half and ends at the probability, before above now."""
    before, now = nsp_bar(0.12, before=0.97).data
    assert [bar.base + bar.x[0] for bar in (before, now)] == pytest.approx([0.97, 0.12])
    assert before.x[0] > 0 > now.x[0]
    assert (before.text[0], now.text[0]) == ("0.97", "0.12")


@pytest.mark.parametrize("probability", [0.071, 0.5, 0.93])
def test_the_verdict_and_its_bar_have_one_number(probability: float) -> None:
    """Both say how probable it is that B follows, whichever way the verdict goes."""
    verdict, (bar,) = nsp_verdict(probability), nsp_bar(probability).data
    assert verdict.endswith(f" {bar.text[0]}") and float(bar.text[0]) == probability
    assert verdict.startswith("Yes" if probability >= 0.5 else "No")


def test_gaps_on_one_scale_have_bars_of_one_measure() -> None:
    """Where figures share the end of their scale, a bar twice as long is twice as probable."""
    sure, unsure = (prediction_bars(["a", "b"], [p, p / 2], largest=0.47) for p in (0.47, 0.21))
    assert sure.layout.xaxis.range == unsure.layout.xaxis.range
    assert prediction_bars(["a"], [0.21]).layout.xaxis.range != sure.layout.xaxis.range


def test_impossible_probabilities_are_refused() -> None:
    """A probability outside 0 to 1, NaN, or a missing one is an error that names it."""
    with pytest.raises(ValueError, match=r"1\.5: from 0 to 1"):
        nsp_bar(1.5)
    with pytest.raises(ValueError, match="nan: from 0 to 1"):
        prediction_bars(["a"], [float("nan")])
    with pytest.raises(ValueError, match="2 labels and 1 values"):
        prediction_bars(["a", "b"], [0.5])


def blocks(values: np.ndarray, size: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """(row, column, block) of one map cut into size x size blocks, the slow and plain way."""
    edges = [[i * length // size for i in range(size + 1)] for length in values.shape]
    for r, c in itertools.product(range(size), repeat=2):
        yield r, c, values[edges[0][r] : edges[0][r + 1], edges[1][c] : edges[1][c + 1]]


@pytest.mark.parametrize("length", [28, 29, 61, 128])
def test_thumbnails_keep_the_largest_of_each_block(length: int) -> None:
    """Every byte is the largest value of its block, as a share of the largest of the head: no bright cell is lost."""
    values = np.random.default_rng(length).random((2, 3, length, length), dtype=np.float32) ** 8
    small = thumbnails(values)
    assert small.dtype == np.uint8 and small.shape == (2, 3, 28, 28)
    for layer, head in itertools.product(range(2), range(3)):
        top = values[layer, head].max()
        for r, c, block in blocks(values[layer, head], 28):
            assert small[layer, head, r, c] == round(float(block.max() / top * 255))


def test_signed_thumbnails_keep_the_sign_of_the_largest_magnitude() -> None:
    """Zero is 128, the extremes of a head are 1 and 255, and a block shows whichever sign is stronger in it."""
    values = np.zeros((1, 1, 4, 4), np.float32)
    values[0, 0, 0, 0], values[0, 0, 1, 1], values[0, 0, 3, 3] = 1.0, -2.0, 1.0
    assert thumbnails(values, size=2, signed=True)[0, 0].tolist() == [[1, 128], [128, 192]]
    assert thumbnails(-values, size=2, signed=True)[0, 0].tolist() == [[255, 128], [128, 64]]


def test_thumbnails_of_short_maps_and_of_one_scale() -> None:
    """A short map is not enlarged; a head fills its own range, or all share one whose end caps what is more."""
    values = np.zeros((1, 3, 2, 2), np.float32)
    values[0, 0, 0, 1], values[0, 1, 0, 1] = 1.0, 0.5
    assert thumbnails(values)[0, :, 0, 1].tolist() == [255, 255, 0]
    assert thumbnails(values, limit=1.0)[0, :, 0, 1].tolist() == [255, 128, 0]
    assert thumbnails(-values, signed=True, limit=0.25)[0, :, 0, 1].tolist() == [1, 1, 128]
    assert not thumbnails(values, limit=0.0).any()
    assert thumbnails(values).shape == (1, 3, 2, 2)
    assert (thumbnails(np.zeros((1, 1, 3, 3)), signed=True) == 128).all()
    with pytest.raises(ValueError, match=r"shape \(2, 2\): expected \(layer, head, query, key\)"):
        thumbnails(np.zeros((2, 2)))


def test_a_common_scale_ends_where_one_value_in_two_hundred_is_larger() -> None:
    """What is no number does not count; where hardly anything changes the scale ends at the largest change."""
    values = np.append(np.linspace(-1, 1, 2001), np.nan)
    assert common_limit(values) == pytest.approx(0.995, abs=1e-3)
    assert common_limit(np.array([0.0] * 500 + [-0.3])) == pytest.approx(0.3)
    assert common_limit(np.full(3, np.nan)) == common_limit(np.zeros(3)) == 0


def test_special_columns_are_pale_on_one_scale() -> None:
    """The scale ends at the values of words, and [CLS] has a fifth of its colour; without words nothing is pale."""
    values = np.full((1, 2, 3, 3), 0.1, np.float32)
    values[..., 0], values[0, 1, :, 1] = 0.9, 0.2
    images, limit, _ = pale_thumbnails(values, [None, "A", "A"])
    assert limit == pytest.approx(0.2) and images[0, 0, 0].tolist() == [51, 128, 128]
    assert images[0, 1, 0].tolist() == [51, 255, 128]
    assert pale_thumbnails(values, [None] * 3).limit == pytest.approx(0.9)


def test_a_token_can_be_read_on_the_stripe_of_every_head() -> None:
    """Text on the strongest stripe has a contrast of 4.5 in both themes."""
    source = (Path(attention_view.__file__).parent / "columns.js").read_text("utf-8")
    opacity = float(re.search(r"STRONGEST_STRIPE = ([\d.]+)", source)[1])  # type: ignore[index]
    for theme, colour in itertools.product(PAGES, HEAD_COLOURS):
        mixed = zip(rgb(colour), rgb(theme.background), strict=True)
        ground = "#" + "".join(f"{round(opacity * front + (1 - opacity) * back):02x}" for front, back in mixed)
        assert contrast(theme.text, ground) >= 4.5


def test_numbers_of_a_grid_fit_into_their_cells() -> None:
    """Two decimals, three in a grid of small values, none in one of very small values, and never a power of ten."""
    values = np.array([[-0.0094, -0.0009, 0.00044], [-1.2e-10, -0.13, np.nan]])
    message = grid_message(layers=2, heads=3, values=values, signed=True)
    digits = json.dumps([["−0.01", "0.00", "0.00"], ["0.00", "−0.13", "–"]]).encode()
    assert b'"digits": ' + digits in message
    numbers = json.dumps([["−0.0094", "−0.00090", "0.00044"], ["−1.2e−10", "−0.13", ""]]).encode()
    assert b'"numbers": ' + numbers in message, "a screen reader gets two significant digits"
    many = 10.0 ** np.linspace(-12, 3, 200)[None] * np.array([[-1.0], [1.0]])
    assert max(len(_in_cell(value, abs(value))) for value in many.flat) <= CELL_LETTERS
    assert (_in_cell(-0.0421, 0.05), _in_cell(0.0002, 0.05), _in_cell(0.004, 0.004)) == ("−0.042", "0.000", "")


def test_the_grid_refuses_arrays_that_do_not_fit() -> None:
    """Pictures, values and titles of another shape than layers and heads are errors that say what was expected."""
    with pytest.raises(ValueError, match=r"expected uint8 \(2, 3, rows, columns\)"):
        head_grid(layers=2, heads=3, thumbnails=np.zeros((2, 3, 4, 4)), key="grid")
    with pytest.raises(ValueError, match=r"shape \(3, 2\): expected \(2, 3\)"):
        head_grid(layers=2, heads=3, values=np.zeros((3, 2)), key="grid")
    with pytest.raises(ValueError, match=r"there of shape \(3, 2\): expected \(2, 3\)"):
        head_grid(layers=2, heads=3, existing=np.ones((3, 2), bool), key="grid")
    with pytest.raises(ValueError, match="expected 2 layers of 3 heads"):
        head_grid(layers=2, heads=3, values=np.zeros((2, 3)), titles=[["a"]], key="grid")
    with pytest.raises(ValueError, match="expected heads 0 to 2"):
        head_grid(layers=1, heads=3, values=np.zeros((1, 3)), order=np.array([[0, 1, 1]]), key="grid")


@pytest.mark.parametrize("log", [None, "x", 3, {}, [], [[1]], [["a", 2]], [7]])
def test_a_log_that_no_view_wrote_is_no_click(log: object) -> None:
    """Whatever a browser sends instead of a log of clicks is read as no click."""
    assert latest(log) is None


def test_components_mount_without_a_browser() -> None:
    """Both views run inside Streamlit's own test harness, twice on one page, and report no click."""

    def script() -> None:
        import numpy as np
        import streamlit as st

        from viz_app.components.head_grid.view import head_grid
        from viz_app.components.token_strip import Chip
        from viz_app.components.token_strip.view import token_strip

        clicks = [
            token_strip([Chip("cat", word=0)], key="one"),
            token_strip([Chip("\ud800", word=0)], key="two"),
            head_grid(layers=1, heads=2, values=np.array([[np.nan, np.inf]]), key="three"),
            head_grid(layers=1, heads=2, thumbnails=np.zeros((1, 2, 3, 3), np.uint8), key="four"),
        ]
        st.text(str(clicks))

    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception
    assert app.text[0].value == "[None, None, None, None]"


def test_a_sweep_shows_every_head_once() -> None:
    """One named point for each head that is there, estimate across and finding upwards; a gap is no point."""
    estimated, found = np.array([[0.5, -1.0], [np.nan, 2.0]]), np.array([[0.25, -3.0], [1.0, 0.0]])
    line, points = sweep_scatter(estimated, found).data
    assert [tuple(head) for head in points.customdata] == [(0, 0), (0, 1), (1, 1)]
    assert list(points.text) == ["L0 H0", "L0 H1", "L1 H1"]
    assert list(points.x) == [0.5, -1.0, 2.0] and list(points.y) == [0.25, -3.0, 0.0]
    assert list(line.x) == list(line.y) == [-1.0, 2.0], "over all estimates"
    with pytest.raises(ValueError, match=r"\(2, 2\) estimates and \(1, 2\) findings"):
        sweep_scatter(estimated, found[:1])


def test_every_head_has_one_place_on_the_map() -> None:
    """A point for each head, under the mark of its role; the chosen one is ringed; a head that is gone is nowhere."""
    points = np.random.default_rng(0).normal(size=(2, 2, 2))
    points[1, 1] = np.nan
    roles = {"next": [(0, 1)], "sep": [], "none": [(0, 0), (1, 0)]}
    names = {"next": "looks at the next token", "sep": "looks at [SEP]", "none": "none of these"}
    *marks, ring = role_map(points, roles, (1, 0), names=names).data
    assert [mark.name for mark in marks] == ["looks at the next token", "none of these"]
    seen = {tuple(head): (x, y) for mark in marks for head, x, y in zip(mark.customdata, mark.x, mark.y, strict=True)}
    assert seen == {head: tuple(points[head]) for head in [(0, 1), (0, 0), (1, 0)]}
    assert (ring.x[0], ring.y[0]) == tuple(points[1, 0]) and len({mark.marker.symbol for mark in marks}) == 2
    assert len(role_map(points, roles, (1, 1), names=names).data) == 2


def test_bars_of_roles_show_where_each_begins() -> None:
    """One bar and one mark a role, the first on top; only those over their threshold are filled."""
    bars, marks, texts = (figure := role_bars([0.2, 0.9], ["next", "[SEP]"], [0.5, 0.6])).data
    assert list(bars.x) == [0.2, 0.9] and list(marks.x) == [0.5, 0.6]
    assert bars.marker.color[0] != bars.marker.color[1]
    assert list(figure.layout.yaxis.ticktext) == ["next  ", "[SEP]  "] and list(texts.text) == ["  0.20", "  0.90"]
    with pytest.raises(ValueError, match="2 scores, 1 labels and 2 thresholds: one of each"):
        role_bars([0.2, 0.9], ["next"], [0.5, 0.6])

"""The look of every figure and component: light or dark page, lecture mode, colour scales and the plotly template.

The rule: zero is the colour of the page, and the stronger a value, the further it stands from the page. So the
scales end lighter on a dark page and darker on a light one, while the hue of a value stays the same.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

import plotly.graph_objects as go


@dataclass(frozen=True)
class Look:
    """How figures and components are drawn: for a light or a dark page, and, in lecture mode, enlarged."""

    dark: bool = False
    lecture: bool = False


Number = TypeVar("Number", int, float)

LIGHT_LOOK = Look()
_look: ContextVar[Look] = ContextVar("look", default=LIGHT_LOOK)


def current_look() -> Look:
    """Return the look of the current context; that of a light page unless `use_look` set another one.

    A new thread begins with the default look.
    """
    return _look.get()


@contextmanager
def use_look(look: Look) -> Iterator[None]:
    """Draw every figure and component inside with a look. Also a decorator."""
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


def sized(normal: Number, lecture: Number) -> Number:
    """Return the first of two sizes, or in lecture mode the second."""
    return lecture if current_look().lecture else normal


class Scale(NamedTuple):
    """Colours at equal steps from the lowest value to the highest, for a light and for a dark page."""

    light: tuple[str, ...]
    dark: tuple[str, ...]

    def colours(self) -> tuple[str, ...]:
        """Return the colours for the page of the current look."""
        return self.dark if current_look().dark else self.light

    def colorscale(self) -> list[tuple[float, str]]:
        """Return the colours for the page of the current look as plotly takes them: (share of the range, colour)."""
        colours = self.colours()
        return [(i / (len(colours) - 1), colour) for i, colour in enumerate(colours)]


class Page(NamedTuple):
    """Colours of a page, as in viz_app/theme.toml."""

    background: str
    raised: str
    text: str
    faint: str
    line: str
    accent: str


LIGHT_PAGE = Page("#ffffff", "#f4f5f7", "#1c2026", "#5c6570", "#d9dde3", "#0b6e83")
DARK_PAGE = Page("#14161a", "#1e2127", "#e9ebee", "#a3abb6", "#3a404a", "#52bcd3")

# Each scale takes equal steps in OKLab, where equal distances look equal. Sequential: teal to violet, its lightness
# always moving away from the page, so that it also reads in grey. Diverging: blue below zero, orange above, a pair
# that every common colour blindness keeps apart.
SEQUENTIAL = Scale(
    light=(
        *("#f7fbfb", "#d4ecf1", "#aeddec", "#89cee9", "#65bce6", "#46a9e2", "#3093db"),
        *("#2a7dcf", "#2e67bd", "#3353a5", "#344189", "#31336b", "#2a274c"),
    ),
    dark=(
        *("#0d2224", "#01323a", "#024250", "#01546c", "#04668a", "#0675a8", "#0281c8"),
        *("#4492e1", "#6fa3f3", "#95b5fe", "#b5c6ff", "#d2d8ff", "#ecedff"),
    ),
)
DIVERGING = Scale(
    light=(
        *("#013191", "#0257b6", "#0477d9", "#3d9cee", "#79bff8", "#b7dffb"),
        "#f9fafb",
        *("#f1d0ac", "#e6a462", "#d47502", "#b25b03", "#8d4002", "#662701"),
    ),
    dark=(
        *("#cddfff", "#97c0fe", "#5aa5ff", "#1a86e0", "#03629c", "#18405a"),
        "#1d1e1f",
        *("#55311c", "#8b4703", "#b46605", "#e38c08", "#ffb34b", "#ffd7a1"),
    ),
)

# Chosen by search for the largest smallest distance, seen with full colour vision, deuteranopia and protanopia, among
# colours whose contrast is at least 3 on the light page and on the dark one.
HEAD_COLOURS = (
    *("#2f5ec6", "#e36800", "#00a155", "#8e00ff", "#ff5584", "#55714c"),
    *("#42a1aa", "#d00013", "#717bbd", "#f642ec", "#0097ff", "#8e4c8e"),
)
HEAD_DASHES = ("solid", "dash", "dot", "dashdot") * 3

# Used for the two sentences and for nothing else.
SENTENCE_TINTS: dict[Literal["A", "B"], Scale] = {
    "A": Scale(light=("#ddf0df",), dark=("#21402c",)),
    "B": Scale(light=("#f2e1f5",), dark=("#43294a",)),
}

# Whether plotly checks every value of a figure, which takes ten times as long as making it. The tests have it checked.
CHECKED = False

BODY_FONT = '"Source Sans", "Source Sans Pro", "Helvetica Neue", Arial, sans-serif'
TOKEN_FONT = '"Source Code", "Source Code Pro", "DejaVu Sans Mono", Menlo, Consolas, monospace'

_DIRECTIONAL = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Breaks and control signs become a space; half of a surrogate pair, which no file can hold, the sign for a lost one.
_ONE_LINE = {"Cc": " ", "Zl": " ", "Zp": " ", "Cs": "\ufffd"}


def page() -> Page:
    """Return the colours of the page of the current look."""
    return DARK_PAGE if current_look().dark else LIGHT_PAGE


def two_digits(value: float) -> str:
    """Return a number with two significant digits, for figures: 0.97, 0.031, −12, 1.0e−5."""
    digits, *exponent = f"{value:#.2g}".removesuffix(".").split("e")
    return "e".join([digits, *(str(int(power)) for power in exponent)]).replace("-", "−")


def cell_number(value: float) -> str:
    """Return a number as short as a cell has room for: 0.07, −1.20, 12.3, 0.00 for what rounds to 0, "" for NaN."""
    if value != value:
        return ""
    decimals = next((places for places, limit in ((2, 9.995), (1, 99.95)) if abs(value) < limit), 0)
    return f"{value:z.{decimals}f}".replace("-", "−")


def ordinal(number: int) -> str:
    """Return a rank, from 1, as an ordinal: 1st, 2nd, 11th, 1,203rd."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def shade(share: float, *, signed: bool) -> tuple[str, str]:
    """Return the colour of a value in the current look, and black or white for text on it, with a contrast >= 4.5.

    share: of the largest value, 0 to 1, or -1 to 1 on the diverging scale; values outside are clipped.
    At a relative luminance of 0.179 black and white have the same contrast (WCAG 2.2).
    """
    colours = (DIVERGING if signed else SEQUENTIAL).colours()
    place = (min(max(share, -1.0), 1.0) + 1) / 2 if signed else min(max(share, 0.0), 1.0)
    lower = min(int(place * (len(colours) - 1)), len(colours) - 2)
    fraction = place * (len(colours) - 1) - lower
    mixed = [round(a + (b - a) * fraction) for a, b in zip(rgb(colours[lower]), rgb(colours[lower + 1]), strict=True)]
    return f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}", "#000000" if _luminance(mixed) > 0.179 else "#ffffff"


def both_shades(share: float, *, signed: bool) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return `shade` of a value on a light page and on a dark one."""
    with use_look(Look(dark=False)):
        light = shade(share, signed=signed)
    with use_look(Look(dark=True)):
        return light, shade(share, signed=signed)


def kind_shades(number: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return background and text colour of one of several categories, for a light and for a dark page.

    number: of the category, from 0. Colours repeat after 12, so the category must also be written in words.
    """
    colour, shades = rgb(HEAD_COLOURS[number % len(HEAD_COLOURS)]), []
    for page_colours in (LIGHT_PAGE, DARK_PAGE):
        mixed = [round(0.36 * a + 0.64 * b) for a, b in zip(colour, rgb(page_colours.background), strict=True)]
        shades.append((f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}", page_colours.text))
    return shades[0], shades[1]


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of #rrggbb, 0 to 255 each."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: Sequence[int]) -> float:
    """Return the relative luminance of red, green and blue, 0 to 1 (WCAG 2.2)."""
    shares = [part / 255 for part in colour]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def plain(text: str, longest: int | None = None) -> str:
    """Return a text as plotly shows it literally: no tag, no line break, at most `longest` characters."""
    text = one_line(text, longest)
    if not text.isascii() and any(unicodedata.bidirectional(sign) in ("R", "AL", "AN") for sign in text):
        text = f"\u2068{text}\u2069"
    return html.escape(text, quote=False)


def one_line(text: str, longest: int | None = None) -> str:
    """Return a text as one line that every file format can hold, at most `longest` characters."""
    if not (text.isascii() and text.isprintable()):  # as most are, and a map has thousands of them
        # Marks that turn the writing direction would turn the rest of the line too; letters of right-to-left scripts
        # keep their own direction inside an isolate.
        text = _DIRECTIONAL.sub("", text).translate({0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD})  # these two are no signs in XML
        text = "".join(_ONE_LINE.get(unicodedata.category(sign), sign) for sign in text)
    return text[: longest - 1] + "…" if longest is not None and len(text) > longest else text


def figure_of(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> go.Figure:
    """Return a figure with the app's fonts and colours in the current look.

    traces, layout: as plotly.js reads them, each trace with its type.
    """
    return go.Figure(traces, {**layout, "template": _template(current_look())}, _validate=CHECKED)


def token_font(size: int, colour: str | None = None) -> dict[str, Any]:
    """Return the font of tokens. size: in pixels. colour: that of the page's text if None."""
    font = {"family": TOKEN_FONT, "size": size}
    return font if colour is None else {**font, "color": colour}


@cache
def _template(look: Look) -> dict[str, Any]:
    """Return the plotly template of a look, which is the current one."""
    colours = page()
    size = sized(14, 20)
    axis = {
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zerolinecolor": colours.faint,
        "tickcolor": colours.line,
        "tickfont": {"color": colours.text},
        "title": {"font": {"color": colours.faint, "size": size}, "standoff": 12},
        "automargin": True,
    }
    return {
        "layout": {
            "font": {"family": BODY_FONT, "size": size, "color": colours.text},
            "title": {
                "font": {"size": round(size * 1.25), "color": colours.text},
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
            },
            "paper_bgcolor": colours.background,
            "plot_bgcolor": colours.background,
            "colorway": list(HEAD_COLOURS),
            "colorscale": {
                "sequential": SEQUENTIAL.colorscale(),
                "sequentialminus": SEQUENTIAL.colorscale()[::-1],
                "diverging": DIVERGING.colorscale(),
            },
            "coloraxis": {"colorbar": {"outlinewidth": 0, "tickcolor": colours.line}},
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": colours.raised,
                "bordercolor": colours.line,
                "font": {"family": TOKEN_FONT, "size": size, "color": colours.text},
                "align": "left",
            },
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": colours.faint, "activecolor": colours.accent},
        }
    }

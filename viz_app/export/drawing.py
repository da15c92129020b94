"""Shared parts of the figures for papers: fonts, colours, empty figures, matrices, and the file formats."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from bert_core.refused import Refused
from viz_app.export import PICTURES
from viz_app.figures.style import DIVERGING, SEQUENTIAL, Page, Scale, one_line, page, shade, two_digits
from viz_app.tokens import Token

DOTS = 200  # per inch of a PNG
LONGEST_LABEL, LONGEST_TITLE = 18, 60  # characters
MATRIX_MARGIN = 1.3  # inches for the labels of a matrix
# Fonts in order of preference: those of letters, then those of other scripts. Missing ones are skipped.
BODY = ("Source Sans 3", "Source Sans Pro", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans")
MONOSPACED = ("Source Code Pro", "DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono")
OTHER_SCRIPTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Hebrew", "Noto Sans Arabic"),
    *("Noto Sans Devanagari", "Noto Emoji", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei"),
    *("Yu Gothic", "Malgun Gothic", "Segoe UI", "Segoe UI Symbol", "Segoe UI Emoji", "Apple Symbols"),
)
# Settings of matplotlib and Python's warnings are global: one file is written at a time.
_WRITING = threading.Lock()


def picture_bytes(figure: Figure, kind: str) -> bytes:
    """Return a figure as a file: "png" (200 dots per inch), "svg" (text stays text) or "pdf" (fonts embedded).

    Equal figures give equal bytes. Warns once if characters are in no installed font and are drawn as boxes.
    Raises Refused for another kind.
    """
    if kind not in PICTURES:
        raise Refused(f"a picture as {kind!r} is unknown: one of {', '.join(PICTURES)}")
    out = io.BytesIO()
    settings: Any = {"svg.fonttype": "none", "pdf.fonttype": 42}
    settings |= {"svg.hashsalt": "headlight", "image.composite_image": False}
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with _WRITING, warnings.catch_warnings(record=True) as caught, mpl.rc_context(settings):
        warnings.simplefilter("always")
        figure.savefig(out, format=kind, dpi=DOTS, bbox_inches="tight", pad_inches=0.06, metadata=undated)
    missing = {str(warning.message) for warning in caught if "missing from font" in str(warning.message)}
    for warning in caught:
        if str(warning.message) not in missing:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if missing and kind != "svg":
        warnings.warn(
            f"{len(missing)} characters are in no font of this machine and are drawn as boxes: "
            "install a font that has them, or take SVG, where they stay text",
            stacklevel=2,
        )
    return out.getvalue()


def empty_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of a size in inches with axes that fill it, in the colours of a page, without pyplot."""
    background = page().background
    figure = Figure(figsize=(max(width, 0.5), max(height, 0.3)), facecolor=background)
    axes = figure.add_axes((0, 0, 1, 1), facecolor=background)
    return figure, axes


def inches(
    figure: Figure, left: float, bottom: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Return a position in inches as fractions of a figure."""
    whole_width, whole_height = figure.get_figwidth(), figure.get_figheight()
    return left / whole_width, bottom / whole_height, width / whole_width, height / whole_height


class Matrix(NamedTuple):
    """A drawn matrix. cell: size of a cell in inches. limit: value of the last colour."""

    figure: Figure
    axes: Axes
    mesh: QuadMesh
    cell: float
    limit: float


def draw_matrix(
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    signed: bool,
    bottom: float = 0,
    top: float = 0,
    min_cell: float = 0.011,
    limit: float | None = None,
) -> Matrix:
    """Draw values (row, column) as coloured cells with labels on the left and below; as many labels as fit.

    bottom, top: space below and above the cells, in inches. min_cell: smallest size of a cell, in inches.
    limit: value of the last colour; None for the largest magnitude of the values.
    """
    rows, columns = values.shape
    cell = min(0.34, max(5.2 / max(rows, columns), min_cell))
    width, height = columns * cell, rows * cell
    figure, axes = empty_figure(width + MATRIX_MARGIN, height + bottom + top)
    axes.set_position(inches(figure, MATRIX_MARGIN, bottom, width, height))
    limit = largest_of(values) if limit is None else limit
    mesh = draw_cells(axes, values, row_labels, column_labels, signed=signed, cell=cell, limit=limit)
    return Matrix(figure, axes, mesh, cell, limit)


def draw_cells(
    axes: Axes,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    signed: bool,
    cell: float,
    limit: float,
) -> QuadMesh:
    """Draw values (row, column) as coloured cells into axes, with as many labels as fit on the left and below.

    row_labels: none if empty. cell: size of a cell in inches. limit: value of the last colour.
    """
    colours = page()
    rows, columns = values.shape
    style: dict[str, Any] = {"edgecolors": colours.background, "linewidth": 0.5} if cell > 0.12 else {}
    style |= {"cmap": colour_map(DIVERGING if signed else SEQUENTIAL), "vmin": -limit if signed else 0}
    cells = np.arange(columns + 1), np.arange(rows + 1), np.ma.masked_invalid(values)
    mesh = axes.pcolormesh(*cells, vmax=limit, **style)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    size = min(9.0, max(cell * 72 * 0.62, 5.0))
    for axis, labels, turn in ((axes.xaxis, column_labels, 90), (axes.yaxis, row_labels, 0)):
        stride = max(1, int(np.ceil(size * 1.15 / (cell * 72))))
        places = np.arange(0, len(labels), stride)
        texts = [one_line(labels[place], LONGEST_LABEL) for place in places.tolist()]
        axis.set_ticks(places + 0.5, labels=texts, parse_math=False)
        for text in axis.get_ticklabels():
            text.set(rotation=turn, fontsize=size, fontfamily=token_fonts(), color=colours.text)
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_color(colours.line)
    return mesh


def write_in_cells(
    axes: Axes, values: np.ndarray, texts: Sequence[Sequence[str]], *, signed: bool, limit: float, size: float
) -> None:
    """Write a text into each cell of `draw_cells`, in black or white, whichever can be read. size: in points."""
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "parse_math": False, "fontsize": size}
    for (row, column), value in np.ndenumerate(values):
        ink = shade(float(value) / limit, signed=signed)[1] if np.isfinite(value) else page().text
        axes.text(column + 0.5, row + 0.5, texts[row][column], color=ink, fontfamily=token_fonts(), **style)


def draw_colour_bar(
    figure: Figure, mesh: QuadMesh, left: float, bottom: float, width: float, limit: float, *, signed: bool
) -> None:
    """Draw the colour scale of cells as a bar with the values of its ends above it.

    left, bottom, width: of the bar, in inches. limit: value of the last colour. signed: whether the first is -limit.
    """
    axes = figure.add_axes(inches(figure, left, bottom, width, 0.1))
    bar = figure.colorbar(mesh, cax=axes, orientation="horizontal", ticks=[-limit, 0, limit][not signed :])
    axes.set_xticklabels([f"−{two_digits(limit)}"] * signed + ["0", two_digits(limit)])
    axes.tick_params(
        length=0, labelsize=8, colors=page().faint, bottom=False, labelbottom=False, labeltop=True
    )  # fmt: skip
    bar.outline.set_visible(False)


def plain_axes(axes: Axes, colours: Page, unit: str) -> None:
    """Leave only the bottom line of the frame, with the unit below it."""
    axes.tick_params(axis="y", length=0, colors=colours.text)
    axes.tick_params(axis="x", labelsize=8, colors=colours.faint, length=2)
    axes.set_xlabel(unit, fontsize=9, color=colours.faint, fontfamily=_installed(*BODY))
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(colours.line)


def write_below(axes: Axes, text: str, colours: Page, points: float, *, x: float = 0, ha: str = "left") -> None:
    """Write a small caption this many points below the axes; `x` is a fraction of their width."""
    style: dict[str, Any] = {"fontsize": 7.5, "color": colours.faint, "ha": ha, "va": "top"}
    axes.annotate(text, (x, 0), (0, -points), xycoords="axes fraction", textcoords="offset points", **style)


def colour_map(scale: Scale) -> LinearSegmentedColormap:
    """Return a colour scale of the app for matplotlib."""
    return LinearSegmentedColormap.from_list("headlight", scale.colours(), N=256)


def token_label(token: Token) -> str:
    """Return the text of a token on one line, shortened to the length of a label."""
    return one_line(token.text, LONGEST_LABEL)


def token_fonts() -> list[str]:
    """Return the installed monospaced fonts, then those of other scripts."""
    return _installed(*MONOSPACED, *OTHER_SCRIPTS)


def _installed(*families: str) -> list[str]:
    """Return those of the fonts that are installed; matplotlib warns about each of the others."""
    installed = {font.name for font in fontManager.ttflist}
    return [family for family in dict.fromkeys(families) if family in installed] or ["sans-serif"]


def largest_of(*arrays: np.ndarray) -> float:
    """Return the largest finite magnitude, which gets the strongest colour; 1 if all values are zero."""
    return max(float(np.abs(values[np.isfinite(values)]).max(initial=0)) for values in arrays) or 1.0

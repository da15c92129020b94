"""What every picture for a paper shares: its fonts and colours, an empty figure, and how it becomes a file."""

from __future__ import annotations

import io
import threading
import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from bert_core.refused import Refused
from viz_app.export import PICTURES
from viz_app.figures.style import Page, Scale, one_line, page
from viz_app.tokens import Token

DOTS = 200  # per inch, of a PNG
LONGEST_LABEL, LONGEST_TITLE = 18, 60
# The first for a sign that is there is taken: letters, then the signs of other scripts, as far as they are installed.
BODY = ("Source Sans 3", "Source Sans Pro", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans")
MONOSPACED = ("Source Code Pro", "DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono")
OTHER_SCRIPTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Hebrew", "Noto Sans Arabic"),
    *("Noto Sans Devanagari", "Noto Emoji", "Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei"),
    *("Yu Gothic", "Malgun Gothic", "Segoe UI", "Segoe UI Symbol", "Segoe UI Emoji", "Apple Symbols"),
)
# Settings of matplotlib are global, and so are Python's warnings: one picture at a time is written.
_WRITING = threading.Lock()


def picture_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as a file of this kind: "png" (200 dots an inch), "svg" (texts stay texts) or "pdf" (fonts inside).

    Warns once, in one sentence, where no font of this machine has a sign and it is drawn as a box.
    Raises Refused for another kind.
    """
    if kind not in PICTURES:
        raise Refused(f"a picture as {kind!r} is unknown: one of {', '.join(PICTURES)}")
    out = io.BytesIO()
    # The same figure gives the same bytes: no date, and no random names inside an SVG.
    settings: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "headlight",
                "image.composite_image": False}  # fmt: skip
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
            f"{len(missing)} signs are in no font of this machine and are drawn as boxes: "
            "install a font that has them, or take SVG, where they stay text",
            stacklevel=2,
        )
    return out.getvalue()


def empty_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure in inches, in the colours of a page; no window, no state of pyplot."""
    background = page().background
    figure = Figure(figsize=(max(width, 0.5), max(height, 0.3)), facecolor=background)
    axes = figure.add_subplot(facecolor=background)
    return figure, axes


def plain_axes(axes: Axes, colours: Page, unit: str) -> None:
    """Of the frame only the line at the bottom, with the unit under it."""
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
    """A scale of the app as matplotlib takes it."""
    return LinearSegmentedColormap.from_list("headlight", scale.colours(), N=256)


def token_label(token: Token) -> str:
    """A token on one line, no longer than there is room."""
    return one_line(token.text, LONGEST_LABEL)


def token_fonts() -> list[str]:
    """Fonts of one width, then those of other scripts, as far as they are there."""
    return _installed(*MONOSPACED, *OTHER_SCRIPTS)


def _installed(*families: str) -> list[str]:
    """Those of these fonts that are there; matplotlib would complain of each of the others."""
    installed = {font.name for font in fontManager.ttflist}
    return [family for family in dict.fromkeys(families) if family in installed] or ["sans-serif"]


def largest_of(*arrays: np.ndarray) -> float:
    """The largest magnitude, which is the strongest colour; 1 where all is zero."""
    return max(float(np.abs(values[np.isfinite(values)]).max(initial=0)) for values in arrays) or 1.0

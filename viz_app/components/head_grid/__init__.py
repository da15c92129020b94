"""All heads at once: a grid of layers by heads, to choose one or to switch them off.

Here is what a browser gets and is told, in the app as in a page of its own; `view` shows it in the app.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from viz_app.components import HATCHING_STYLE, TIP, TIP_STYLE
from viz_app.figures.style import DIVERGING, SEQUENTIAL, cell_number, current_look, two_digits
from viz_app.figures.thumbnails import MIDDLE
from viz_app.windows import OUTSIDE_TEXT, legend, ranges_of


@dataclass(frozen=True)
class HeadClick:
    """A head was clicked; head None is the whole layer, layer None is that head in all layers."""

    layer: int | None
    head: int | None


MIN_DIGITS = 0.005  # largest value of a grid whose cells have numbers
_FOLDER = Path(__file__).parent
# What the browser gets; the same stands in a page of its own (`viz_app.export.page`).
MARKUP = (
    '<div class="frame"><div class="grid" role="grid"></div>'
    '<div class="legend"><span></span><span class="bar"></span><span></span><span class="unit"></span>'
    '<span class="hatched"></span></div></div>' + TIP
)
STYLE = TIP_STYLE + HATCHING_STYLE + (_FOLDER / "head_grid.css").read_text("utf-8")


def grid_message(
    *,
    layers: int,
    heads: int,
    thumbnails: np.ndarray | None = None,
    values: np.ndarray | None = None,
    signed: bool = False,
    limit: float | None = None,
    unit: str = "",
    mode: Literal["select", "switch"] = "select",
    selected: tuple[int, int] | None = None,
    off: Collection[tuple[int, int]] = (),
    titles: Sequence[Sequence[str]] = (),
    order: np.ndarray | None = None,
    rows: Sequence[int] | None = None,
    existing: np.ndarray | None = None,
    possible: np.ndarray | None = None,
    fills: bool = False,
) -> bytes:
    """What the browser is told; the arguments are those of `head_grid`, checked there.

    fills: be as high as its place.
    """
    header = {
        "layers": layers,
        "heads": heads,
        "size": None if thumbnails is None else thumbnails.shape[2:],
        "signed": signed,
        "zero": MIDDLE if signed else 0,
        "unit": unit,
        "mode": mode,
        "selected": selected,
        "off": sorted(off),
        "gone": [] if existing is None else np.argwhere(~existing).tolist(),
        "titles": titles,
        "order": None if order is None else order.tolist(),
        "rows": None if rows is None else [int(layer) for layer in rows],
        "lecture": current_look().lecture,
        "fills": fills,
        "hatching": None if possible is None else _hatching(possible),
        "colours": DIVERGING if signed else SEQUENTIAL,
    } | _coded(values, signed, limit)
    return _packed(header, b"" if thumbnails is None else thumbnails.tobytes())


def _hatching(possible: np.ndarray) -> dict[str, Any]:
    """Return what is hatched: of a picture the columns that are not, for each row; of a number, whether its cell is."""
    layers = [None if layer.all() else ranges_of(layer) if layer.ndim else [] for layer in possible]
    return {"layers": layers, "label": legend(None), "outside": OUTSIDE_TEXT}


def _coded(values: np.ndarray | None, signed: bool, limit: float | None) -> dict[str, Any]:
    """Each value as a share of the colours and as a number to read; None where the head does not exist."""
    if values is None:
        legend = None if limit is None else _legend(limit, signed, cut=True)
        return {"shares": None, "numbers": None, "digits": None, "legend": legend}
    exists = np.isfinite(values)
    limit = limit or float(np.abs(values[exists]).max(initial=0)) or 1.0
    shares = (values / limit + 1) / 2 if signed else (values / limit).clip(0, 1)
    return {
        "shares": _cells(shares, exists, lambda share: round(float(share), 4), None),
        "numbers": _cells(values, exists, two_digits, ""),
        "digits": _cells(values, exists, lambda value: _in_cell(value, limit), "–"),
        "legend": _legend(limit, signed),
    }


def _cells(values: np.ndarray, exists: np.ndarray, write: Callable[[float], Any], missing: Any) -> list[list[Any]]:
    """Return what is written for each value, (layer, head), and `missing` for a head that does not exist."""
    return [
        [write(value) if is_head else missing for value, is_head in zip(*row, strict=True)]
        for row in zip(values, exists, strict=True)
    ]


def _in_cell(value: float, limit: float) -> str:
    """Return a number with two decimals, or with three where the largest of all, the limit, is below 0.1.

    Empty where the largest number needs more decimals than a cell has room for.
    """
    if limit < MIN_DIGITS:
        return ""
    return cell_number(value) if limit >= 0.1 else f"{value:z.3f}".replace("-", "−")


def _legend(limit: float, signed: bool, *, cut: bool = False) -> list[str]:
    """What stands at both ends of the colours; cut: whether there may be more beyond them."""
    low_sign, high_sign = ("≤ ", "≥ ") if cut else ("", "")
    return [f"{low_sign}−{two_digits(limit)}" if signed else "0", high_sign + two_digits(limit)]


def _packed(header: dict[str, Any], pixels: bytes) -> bytes:
    """Pixels travel as they are, behind a header that says how long it is: JSON would make them four times larger."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "little") + text + pixels

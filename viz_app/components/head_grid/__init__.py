"""All heads at once: a grid of layers by heads, to choose one or to switch them off."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from streamlit.components.v2 import component

from viz_app.components import TIP, TIP_STYLE
from viz_app.components.clicks import deliver, latest
from viz_app.figures.style import DIVERGING, SEQUENTIAL, two_digits


@dataclass(frozen=True)
class HeadClick:
    """A head was clicked; head None is the whole layer, layer None is that head in all layers."""

    layer: int | None
    head: int | None


CELL_LETTERS = 6  # that fit into a cell
_FOLDER = Path(__file__).parent
# What the browser gets; the same stands in a page of its own (`viz_app.export.page`).
MARKUP = (
    '<div class="frame"><div class="grid" role="grid"></div>'
    '<div class="legend"><span></span><span class="bar"></span><span></span><span class="unit"></span></div></div>'
    + TIP
)
STYLE = TIP_STYLE + (_FOLDER / "head_grid.css").read_text("utf-8")
SCRIPT = (_FOLDER / "head_grid.js").read_text("utf-8")
_view = component("headlight.head_grid", html=MARKUP, css=STYLE, js=SCRIPT)


def head_grid(
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
    there: np.ndarray | None = None,
    titles: Sequence[Sequence[str]] = (),
    order: np.ndarray | None = None,
    rows: Sequence[int] | None = None,
    key: str,
    lecture: bool = False,
    on_click: Callable[[HeadClick], None] | None = None,
) -> HeadClick | None:
    """A cell for each head; returns what was clicked, in the one run that the click started.

    thumbnails: uint8 (layer, head, rows, columns), as `figures.thumbnails` makes them; painted into the cells.
    values: (layer, head); without thumbnails they colour the cells. NaN is a head that does not exist (pruned).
    signed: the bytes or values have their zero in the middle. limit: the value where the colours of all thumbnails
        end, for a legend; None where each has its own. unit: what a value is and in what, written beside the legend.
    mode: "select", a click chooses a head; "switch", a click turns it off or on, also for a layer or a column.
    selected: the chosen head. off: the heads that are switched off.
    there: (layer, head), False for a head that does not exist (pruned), where no values say so.
    titles: (layer, head) texts for hover.
    order: (layer, head) integers, the heads of each layer from left to right; only to select. None: by their numbers.
    rows: the layers from top to bottom, only to select a head; None: layer 0 on top.
    on_click: called with each click before that run, so that what it changes is already seen by the whole page.
    Raises ValueError for shapes that do not fit layers and heads.
    """
    if thumbnails is not None and (
        thumbnails.dtype != np.uint8 or thumbnails.ndim != 4 or thumbnails.shape[:2] != (layers, heads)
    ):
        raise ValueError(
            f"thumbnails of type {thumbnails.dtype} and shape {thumbnails.shape}: "
            f"expected uint8 ({layers}, {heads}, rows, columns)"
        )
    if values is not None and values.shape != (layers, heads):
        raise ValueError(f"values of shape {values.shape}: expected ({layers}, {heads})")
    if there is not None and there.shape != (layers, heads):
        raise ValueError(f"there of shape {there.shape}: expected ({layers}, {heads})")
    if titles and (len(titles) != layers or any(len(row) != heads for row in titles)):
        raise ValueError(f"titles of {len(titles)} layers: expected {layers} layers of {heads} heads")
    if mode not in ("select", "switch"):
        raise ValueError(f"mode {mode!r}: 'select' or 'switch'")
    if order is not None and (
        mode != "select" or order.shape != (layers, heads) or (np.sort(order) != np.arange(heads)).any()
    ):
        raise ValueError(f"order of shape {order.shape}: expected heads 0 to {heads - 1} for each layer, to select one")
    if rows is not None and (mode != "select" or sorted(rows) != list(range(layers))):
        raise ValueError(f"rows {list(rows)}: expected each of the layers 0 to {layers - 1} once, to select a head")

    def read(what: object) -> HeadClick | None:
        if not isinstance(what, list) or len(what) != 2:
            return None
        layer, head = what
        inside = (layer is None or layer in range(layers)) and (head is None or head in range(heads))
        whole_rows = layer is None or head is None
        if not inside or (layer is None and head is None) or (whole_rows and mode == "select"):
            return None
        return HeadClick(layer, head)

    def receive(what: object) -> None:
        if on_click is not None and (click := read(what)) is not None:
            on_click(click)

    message = grid_message(
        layers=layers, heads=heads, thumbnails=thumbnails, values=values, signed=signed, limit=limit, unit=unit,
        mode=mode, selected=selected, off=off, titles=titles, order=order, rows=rows, there=there, lecture=lecture,
        fills=lecture,
    )  # fmt: skip
    result = _view(
        key=key,
        data=message,
        height="stretch" if lecture else "content",
        on_click_change=lambda: deliver(key, receive),
    )
    return read(latest(result.click))


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
    there: np.ndarray | None = None,
    lecture: bool = False,
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
        "unit": unit,
        "mode": mode,
        "selected": selected,
        "off": sorted(off),
        "gone": [] if there is None else np.argwhere(~there).tolist(),
        "titles": titles,
        "order": None if order is None else order.tolist(),
        "rows": None if rows is None else [int(layer) for layer in rows],
        "lecture": lecture,
        "fills": fills,
        "colours": DIVERGING if signed else SEQUENTIAL,
    } | _coded(values, signed, limit)
    return _packed(header, b"" if thumbnails is None else thumbnails.tobytes())


def _coded(values: np.ndarray | None, signed: bool, limit: float | None) -> dict:
    """Each value as a share of the colours and as a number to read; None where the head does not exist."""
    if values is None:
        return {"shares": None, "numbers": None, "legend": None if limit is None else _legend(limit, signed, cut=True)}
    exists = np.isfinite(values)
    limit = float(np.abs(values[exists]).max(initial=0)) or 1.0
    shares = (values / limit + 1) / 2 if signed else (values / limit).clip(0, 1)
    return {
        "shares": [
            [round(float(s), 4) if e else None for s, e in zip(*row, strict=True)] for row in _rows(shares, exists)
        ],
        "numbers": [[_in_cell(v) if e else "–" for v, e in zip(*row, strict=True)] for row in _rows(values, exists)],
        "legend": _legend(limit, signed),
    }


def _in_cell(value: float) -> str:
    """A number with as many digits as a cell takes: 0.0094, −0.009, −9e−4."""
    mantissa, power = f"{value:.0e}".split("e")
    short = (two_digits(value), f"{value:.1g}".replace("-", "−"), f"{mantissa}e{int(power)}".replace("-", "−"))
    return next((text for text in short if len(text) <= CELL_LETTERS), short[-1])


def _legend(limit: float, signed: bool, *, cut: bool = False) -> list[str]:
    """What stands at both ends of the colours; cut: whether there may be more beyond them."""
    least, most = ("≤ ", "≥ ") if cut else ("", "")
    return [f"{least}−{two_digits(limit)}" if signed else "0", most + two_digits(limit)]


def _rows(*arrays: np.ndarray):
    return zip(*arrays, strict=True)


def _packed(header: dict, pixels: bytes) -> bytes:
    """Pixels travel as they are, behind a header that says how long it is: JSON would make them four times larger."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "little") + text + pixels

"""All heads at once, shown in the app."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from streamlit.components.v2 import component

from viz_app.components.clicks import deliver, latest
from viz_app.components.head_grid import MARKUP, STYLE, HeadClick, grid_message
from viz_app.components.joining import joined
from viz_app.figures.style import current_look

_view = component("headlight.head_grid", html=MARKUP, css=STYLE, js=joined(Path(__file__).parent / "head_grid.js"))


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
    existing: np.ndarray | None = None,
    possible: np.ndarray | None = None,
    titles: Sequence[Sequence[str]] = (),
    order: np.ndarray | None = None,
    rows: Sequence[int] | None = None,
    key: str,
    on_click: Callable[[HeadClick], None] | None = None,
) -> HeadClick | None:
    """A cell for each head; returns what was clicked, in the one run that the click started.

    thumbnails: uint8 (layer, head, rows, columns), as `figures.thumbnails` makes them; painted into the cells.
    values: (layer, head); without thumbnails they colour the cells. NaN is a head that does not exist (pruned).
    signed: the bytes or values have their zero in the middle. limit: the value where the colours end; None
        where each thumbnail has its own, and for values the largest. unit: what a value is and in what, written beside
        the legend.
    mode: "select", a click chooses a head; "switch", a click turns it off or on, also for a layer or a column.
    selected: the chosen head. off: the heads that are switched off.
    existing: (layer, head), False for a head that does not exist (pruned), where no values say so.
    possible: (layer, row, column) bool, where a thumbnail is not hatched; or (layer,), which layers have values that
        are possible: cells of the others are hatched. None: nothing is hatched.
    titles: (layer, head) texts for hover.
    order: (layer, head) integers, the heads of each layer from left to right; only to select. None: by their numbers.
    rows: the layers from top to bottom, only to select a head; None: layer 0 on top.
    on_click: called with each click before that run, so that what it changes is already seen by the whole page.
    Raises ValueError for shapes that do not fit layers and heads.
    """
    look = current_look()
    if thumbnails is not None and (
        thumbnails.dtype != np.uint8 or thumbnails.ndim != 4 or thumbnails.shape[:2] != (layers, heads)
    ):
        raise ValueError(
            f"thumbnails of type {thumbnails.dtype} and shape {thumbnails.shape}: "
            f"expected uint8 ({layers}, {heads}, rows, columns)"
        )
    if values is not None and values.shape != (layers, heads):
        raise ValueError(f"values of shape {values.shape}: expected ({layers}, {heads})")
    if existing is not None and existing.shape != (layers, heads):
        raise ValueError(f"there of shape {existing.shape}: expected ({layers}, {heads})")
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

    def read(target: object) -> HeadClick | None:
        if not isinstance(target, list) or len(target) != 2:
            return None
        layer, head = target
        is_in_grid = (layer is None or layer in range(layers)) and (head is None or head in range(heads))
        whole_rows = layer is None or head is None
        if not is_in_grid or (layer is None and head is None) or (whole_rows and mode == "select"):
            return None
        return HeadClick(layer, head)

    def receive(target: object) -> None:
        if on_click is not None and (click := read(target)) is not None:
            on_click(click)

    message = grid_message(
        layers=layers, heads=heads, thumbnails=thumbnails, values=values, signed=signed, limit=limit, unit=unit,
        mode=mode, selected=selected, off=off, titles=titles, order=order, rows=rows, existing=existing,
        possible=possible, fills=look.lecture,
    )  # fmt: skip
    result = _view(
        key=key,
        data=message,
        height="stretch" if look.lecture else "content",
        on_click_change=lambda: deliver(key, receive),
    )
    return read(latest(result.click))

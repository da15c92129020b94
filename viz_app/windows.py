"""Windows of local layers: what is drawn and written where a query cannot attend to a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from viz_app.texts import page_texts

TEXTS = page_texts("frame")
# Texts of the views of maps, which are in English.
OUTSIDE_TEXT = "outside the window"
LEGEND = "hatched: outside the window of this local layer ({window} tokens to each side)"
LEGEND_OF_SEVERAL = "hatched: outside the windows of the local layers"
MAX_LINES = 64  # of a hatching, from one corner of a map to the opposite one

Segment = tuple[tuple[float, float], tuple[float, float]]


class Hatching(TypedDict):
    """The hatched area of a map, for a browser.

    ranges: for each row the first column that is not hatched, and the column behind the last. label: of the legend.
    outside: what is said of a value there, in place of a number.
    """

    ranges: list[list[int]]
    label: str
    outside: str


def common_window(windows: Sequence[int | None]) -> int | None:
    """Return the window in which at least one of some layers has each pair; None for any distance."""
    return None if None in windows else max((window for window in windows if window is not None), default=None)


def hatching(possible: np.ndarray | None, window: int | None) -> Hatching | None:
    """Return the hatched area of the map of a layer; None for a layer in which every key is possible.

    possible: (query, key) boolean, or None. window: of the layer.
    """
    if possible is None or window is None or possible.all():
        return None
    return {"ranges": ranges_of(possible), "label": legend(window), "outside": OUTSIDE_TEXT}


def ranges_of(possible: np.ndarray) -> list[list[int]]:
    """Return for each row (row, column) the first column that is possible, and the one behind the last."""
    first = possible.argmax(-1)
    end = np.where(possible.any(-1), possible.shape[-1] - possible[:, ::-1].argmax(-1), first)
    ranges: list[list[int]] = np.stack([first, end], axis=1).tolist()
    return ranges


def legend(window: int | None) -> str:
    """Return the text of the legend of a hatched area. window: of the layer; None for those of several layers."""
    if window is None:
        return LEGEND_OF_SEVERAL
    return LEGEND.format(window=window)


def note_of_layer(layer: int, window: int | None) -> str:
    """Return a sentence that says that a layer is local, after a space; an empty text for a global layer."""
    return "" if window is None else " " + TEXTS["windows.layer"].format(layer=layer, window=window)


def note_of_shares(window: int | None) -> str:
    """Return a sentence on the shares of a head of a local layer, after a space; an empty text for a global layer."""
    return "" if window is None else f" {TEXTS['windows.shares']}"


def no_pair(query: str, key: str) -> str:
    """Return a sentence, in Markdown, that says that a query cannot attend to a key. query, key: in Markdown."""
    return TEXTS["windows.no_pair"].format(query=query, key=key)


def hatch_segments(possible: np.ndarray, lines: int = MAX_LINES) -> list[Segment]:
    """Return rising lines over the cells that are not possible, each as two points (x, y) in cells.

    possible: (row, column) boolean. lines: largest number of lines from one corner to the opposite one.
    The first cell is from 0 to 1 in both directions, and y grows downwards.
    """
    rows, columns = possible.shape
    step = -(-(rows + columns) // lines)
    segments: list[Segment] = []
    for diagonal in range(step // 2, rows + columns - 1, step):
        row = np.arange(min(diagonal, rows - 1), max(diagonal - columns, -1), -1)
        is_outside = np.concatenate([[False], ~possible[row, diagonal - row], [False]])
        edges = np.flatnonzero(np.diff(is_outside.astype(np.int8)))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            y = int(row[start]) + 1
            segments.append(((diagonal + 1 - y, y), (diagonal + 1 - y + end - start, y - (end - start))))
    return segments

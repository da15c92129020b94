"""Queries and keys of an attention head as points of one plane."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import LONGEST_HOVER, PointGroup, points, require_equal_lengths
from viz_app.figures.style import HEAD_COLOURS, SEQUENTIAL, page, plain, sized, token_font

MAX_LABELLED_TOKENS = 40  # of the selected text
LONGEST_LINE = 34  # characters of a line of a hover text
CONTEXT_TOKENS = 4  # on each side of a token, in its hover text
LONGEST_LABEL = 12
NAMES, SYMBOLS = ("query", "key"), ("circle", "diamond")
PLURALS = {"query": "queries", "key": "keys"}
KIND_COLOURS = dict(zip(NAMES, HEAD_COLOURS, strict=False))
PALE_COLOURS = 3  # at the start of the sequential scale, which are hard to see as points


def query_key_map(
    queries: np.ndarray,
    keys: np.ndarray,
    labels: Sequence[str],
    texts: np.ndarray,
    positions: np.ndarray,
    *,
    selected_text: int | None = None,
    by_position: bool = False,
) -> go.Figure:
    """Draw the queries and the keys of tokens in one plane, as circles and diamonds; a click returns the text.

    queries, keys: (token, 2). labels: (token,). texts, positions: (token,), the line of the text of each token, from 0,
        and its place there.
    selected_text: its points are larger than the others, and have labels if it is short. None for no such text.
    by_position: whether the colour is the position in the text instead of the kind of point.
    Raises ValueError if the lengths differ.
    """
    require_equal_lengths(labels=labels, queries=queries, keys=keys, texts=texts, positions=positions)
    is_selected = np.zeros(len(texts), bool) if selected_text is None else texts == selected_text
    has_selection = bool(is_selected.any())
    has_labels = has_selection and is_selected.sum() <= MAX_LABELLED_TOKENS
    contexts = _contexts(labels, texts)
    groups = []
    for name, symbol, coordinates in zip(NAMES, SYMBOLS, (queries, keys), strict=True):
        for is_large in (False, True):
            rows = np.flatnonzero(is_selected == is_large).tolist()
            if not rows:
                continue
            is_first = is_large or not has_selection  # has an entry in the legend
            marker = _marker(name, symbol, is_large=is_large, is_faded=has_selection and not is_large)
            if by_position:
                has_bar = is_first and name == NAMES[0]
                marker |= _position_colours(positions[rows], int(positions.max()), has_bar=has_bar)
            x, y = coordinates[rows].T.tolist()
            hovers = [
                f"{name} of {plain(labels[row], LONGEST_HOVER)}<br>"
                f"position {positions[row]}, text of line {texts[row] + 1}<br>{contexts[row]}"
                for row in rows
            ]
            groups.append(
                PointGroup(
                    x,
                    y,
                    hovers,
                    marker=marker,
                    name=PLURALS[name] if is_first else "",
                    labels=[plain(labels[row], LONGEST_LABEL) for row in rows] if is_large and has_labels else (),
                    clicks=texts[rows].tolist(),
                    sides="top center" if name == NAMES[0] else "bottom center",
                    font=token_font(sized(12, 16)),
                )
            )
    axis: dict[str, Any] = {"showticklabels": False, "zeroline": False}
    return points(
        groups,
        x_axis={**axis, "title": {"text": "first component"}},
        y_axis={**axis, "title": {"text": "second component"}, "scaleanchor": "x"},
        height=sized(560, 680),
    )


def _marker(name: str, symbol: str, *, is_large: bool, is_faded: bool) -> dict[str, Any]:
    """Return the marker of the points of the queries or of the keys, coloured by the kind of point."""
    size = sized(12, 16) if is_large else sized(7, 10)
    opacity = 0.95 if is_large else 0.2 if is_faded else 0.7
    border = {"width": 1 if is_large else 0, "color": page().background}
    return {"symbol": symbol, "size": size, "opacity": opacity, "line": border, "color": KIND_COLOURS[name]}


def _position_colours(positions: np.ndarray, largest: int, *, has_bar: bool) -> dict[str, Any]:
    """Return the attributes of a marker that is coloured by the position. has_bar: whether the colour bar is drawn."""
    scale = SEQUENTIAL.colours()[PALE_COLOURS:]
    colours = [(number / (len(scale) - 1), colour) for number, colour in enumerate(scale)]
    bar = {"title": {"text": "position"}, "thickness": 12, "len": 0.6, "outlinewidth": 0}
    colour = {"color": positions.tolist(), "colorscale": colours, "cmin": 0, "cmax": largest}
    return {**colour, "showscale": has_bar, "colorbar": bar}


def _contexts(labels: Sequence[str], texts: np.ndarray) -> list[str]:
    """Return each token with its neighbours in the text, in lines that fit on a phone."""
    contexts = []
    for row, text in enumerate(texts.tolist()):
        start, stop = max(row - CONTEXT_TOKENS, 0), row + CONTEXT_TOKENS + 1
        words = [
            f"[{label}]" if number == row else label
            for number, label in enumerate(labels[start:stop], start)
            if texts[number] == text
        ]
        lines = wrap(" ".join(words), LONGEST_LINE)
        contexts.append("<br>".join(plain(line, LONGEST_HOVER) for line in lines))
    return contexts

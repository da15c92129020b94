"""Figures of rotary positions: pairs of dimensions before and after the rotation, and the score by distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import TOP_LEFT, annotation, escaped, lines, scatter
from viz_app.figures.style import HEAD_COLOURS, figure_of, page, plain, sized, two_digits

PAIR_GAP = 0.06  # between two planes, as a share of the width
PANEL_HEIGHT = (120, 150)  # of a plane in pixels, and in lecture mode
DASHES = {"before the rotation": "dot", "after": "solid"}
ARC_RADIUS = 0.35  # of an arc, as a share of the length of its vector; it leaves out whole turns


@dataclass(frozen=True)
class RotatedVector:
    """A query or a key before and after the rotation.

    name: of the vector, such as "query". token: label of its token. before, after: (head size,).
    """

    name: str
    token: str
    position: int
    before: np.ndarray
    after: np.ndarray


def shown_pairs(head_size: int) -> list[int]:
    """Return up to three pairs of dimensions: the fastest, one with about a third of its angle, and a slow one."""
    count = head_size // 2
    return sorted({0, max(count // 8, min(1, count - 1)), count // 2})


def rotated_pairs(vectors: Sequence[RotatedVector], frequencies: np.ndarray, pairs: Sequence[int]) -> go.Figure:
    """Draw pairs of dimensions of vectors as arrows in a plane, dotted before the rotation and solid after it.

    Each vector is a row and each pair a column, with its own scale. Below each plane is the angle in radians, which is
    position × frequency.
    frequencies: (pair,), angle from one position to the next in radians. pairs: those that are drawn.
    """
    colours, size, half = page(), sized(12, 16), len(frequencies)
    line_height, panel = round(1.5 * size), sized(*PANEL_HEIGHT)
    row_height = panel + 2 * line_height  # with the name of the vector above and the angles below
    height, width = row_height * len(vectors), (1 - PAIR_GAP * (len(pairs) - 1)) / len(pairs)
    traces: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for row, vector in enumerate(vectors):
        top = 1 - (row * row_height + line_height) / height
        text = f"<b>{_name(vector)}</b>"
        notes.append(annotation(text, 0, top, font={"size": size}, **TOP_LEFT))
        for column, pair in enumerate(pairs):
            number, left, bottom = row * len(pairs) + column, column * (width + PAIR_GAP), top - panel / height
            suffix = str(number + 1) if number else ""
            limit = 1.15 * float(np.hypot(*vector.before[[pair, pair + half]])) or 1.0
            style: dict[str, Any] = {"range": [-limit, limit], "zerolinecolor": colours.line, "showgrid": False}
            style |= {"zerolinewidth": 1, "showticklabels": False, "fixedrange": True}
            axes[f"xaxis{suffix}"] = {"domain": [left, left + width], "anchor": f"y{suffix}", **style}
            equal = {"scaleanchor": f"x{suffix}", "constrain": "domain"}
            axes[f"yaxis{suffix}"] = {"domain": [bottom, top], "anchor": f"x{suffix}", **equal, **style}
            place, angle = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}, vector.position * float(frequencies[pair])
            traces += [trace | place for trace in _arrows(vector, pair, half, angle, HEAD_COLOURS[row])]
            text = f"{vector.position} × {two_digits(float(frequencies[pair]))} = {two_digits(angle)} rad"
            middle: dict[str, Any] = {"xref": "paper", "yref": "paper", "xanchor": "center", "yanchor": "top"}
            notes.append(annotation(text, left + width / 2, bottom, font={"size": size}, **middle))
            if row == 0:
                text = f"<b>numbers {pair} and {pair + half}</b>"
                middle |= {"yanchor": "bottom", "yshift": line_height}
                notes.append(annotation(text, left + width / 2, top, font={"size": size}, **middle))
    traces[0]["meta"] = {"columns": _columns(vectors, frequencies, pairs)}
    for name, dash in DASHES.items():  # of the legend alone
        line = {"color": colours.text, "width": sized(2, 3), "dash": dash}
        traces.append(scatter([None], [None], mode="lines", line=line, name=name, showlegend=True))
    layout = {
        "height": height + line_height + sized(60, 76),
        "margin": {"t": line_height + 12, "b": sized(48, 64), "l": 8, "r": 8},
        "annotations": notes,
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        **axes,
    }
    return figure_of(traces, layout)


def _name(vector: RotatedVector) -> str:
    """Return the name of a vector with its token and position."""
    return f"{vector.name} of “{plain(vector.token)}” ({vector.position})"


def _arrows(vector: RotatedVector, pair: int, half: int, angle: float, colour: str) -> list[dict[str, Any]]:
    """Return the traces of one pair of a vector: before the rotation, after it, and the arc between them."""
    before, after = vector.before[[pair, pair + half]], vector.after[[pair, pair + half]]
    start, radius = float(np.arctan2(before[1], before[0])), ARC_RADIUS * float(np.hypot(*before))
    path = start + np.linspace(0, np.fmod(angle, 2 * np.pi), 40)
    arrow = {"symbol": "arrow", "angleref": "previous", "size": [0, sized(9, 11)], "color": colour}
    traces = []
    for numbers, (state, dash) in zip((before, after), DASHES.items(), strict=True):
        hover = f"{_name(vector)}<br>{state}: ({numbers[0]:.4g}, {numbers[1]:.4g})<br>angle {angle:.4g} rad"
        line = {"color": colour, "width": sized(2, 3), "dash": dash}
        style = {"mode": "lines+markers", "line": line, "marker": arrow, "cliponaxis": False, "meta": {"columns": {}}}
        traces.append(scatter([0, float(numbers[0])], [0, float(numbers[1])], [hover, hover]) | style)
    arc: dict[str, Any] = {"mode": "lines", "line": {"color": colour, "width": sized(1, 2)}}
    return [*traces, scatter((radius * np.cos(path)).tolist(), (radius * np.sin(path)).tolist(), **arc)]


def _columns(
    vectors: Sequence[RotatedVector], frequencies: np.ndarray, pairs: Sequence[int]
) -> dict[str, list[object]]:
    """Return the columns of the exported table, with a row for each pair of each vector."""
    half, rows = len(frequencies), [(vector, pair) for pair in pairs for vector in vectors]
    return {
        "vector": [vector.name for vector, _ in rows],
        "token": escaped([vector.token for vector, _ in rows]),
        "position": [vector.position for vector, _ in rows],
        "first number": [pair for _, pair in rows],
        "second number": [pair + half for _, pair in rows],
        "frequency": [float(frequencies[pair]) for _, pair in rows],
        "angle": [vector.position * float(frequencies[pair]) for vector, pair in rows],
        **{
            f"{part} {state}": [float(getattr(vector, state)[pair + half * index]) for vector, pair in rows]
            for state in ("before", "after")
            for index, part in enumerate(("first", "second"))
        },
    }


def score_by_distance(distances: np.ndarray, scores: np.ndarray, distance: int, *, title: str) -> go.Figure:
    """Draw the score of a query and a key by their distance, with the distance that they have marked.

    distances, scores: (distance,). distance: that of the two in the text. title: of the vertical axis.
    Raises ValueError if the distance is not one of them.
    """
    if distance not in distances:
        raise ValueError(f"distance {distance} is not one of {distances.min()} to {distances.max()}")
    axis = {"title": {"text": "distance: position of the key − position of the query"}}
    score = float(scores[distances == distance][0])
    return lines(
        {"score at each distance": (distances.tolist(), scores.tolist())},
        title=title,
        x_axis=axis,
        place="distance %{x}",
        reference=distance,
        point=("distance in this text", distance, score),
        height=(260, 320),
    )

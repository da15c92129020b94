"""Figures over the layers: a grid of words, lines from layer to layer, states in the plane, similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import (
    LONGEST_HOVER,
    PointGroup,
    cells,
    depth_axis,
    depth_series,
    lines,
    points,
    require_equal_lengths,
)
from viz_app.figures.style import one_line, plain, sized, token_font

LONGEST_LABEL = 16
LETTERS_A_LINE, LECTURE_LETTERS_A_LINE = 64, 56  # of all cells of a row together
LEAST_LETTERS = 8  # of each cell: most words are no longer
ROWS_THAT_FIT = 30
POINTS_WITH_NAMES = 60


def depth_names(depths: int) -> list[str]:
    """Return the names of the states between the layers: "embeddings", "after L0", ..."""
    return ["embeddings", *(f"after L{layer}" for layer in range(depths - 1))]


def depth_phrase(depth: int) -> str:
    """Return the place of the states of a depth in a sentence: "at the embeddings", "after L0", ..."""
    return f"after L{depth - 1}" if depth else "at the embeddings"


def short_names(depths: int) -> list[str]:
    """Return short names of the states between the layers: "emb.", "L0", ..."""
    return ["emb.", *(f"L{layer}" for layer in range(depths - 1))]


def lens_grid(
    words: Sequence[Sequence[str]],
    values: np.ndarray,
    row_labels: Sequence[str],
    hovers: Sequence[Sequence[Sequence[str]]],
    places: Sequence[int],
    *,
    highest: float | None = None,
    selected: tuple[int, int] | None = None,
    unit: str,
) -> go.Figure:
    """Draw a word in every cell: rows are positions, columns the states between the layers, coloured from 0 up.

    words: (row, depth). values: (row, depth), >= 0. hovers: (row, depth, line).
    places: (row,) positions of the rows, in steps of 1: what a click on a cell returns.
    highest: value at the end of the colour scale; the largest one if None. selected: the (position, depth) to frame.
    unit: of the values, in words.
    Raises ValueError if the parts do not fit each other.
    """
    rows, depths = values.shape
    for name, part in (("words", words), ("hovers", hovers)):
        if len(part) != rows or any(len(line) != depths for line in part):
            raise ValueError(f"{name} do not fit {rows} rows of {depths} depths")
    require_equal_lengths(labels=row_labels, positions=places)
    size = sized(13, 17) if depths <= 9 else sized(12, 14)
    longest = max(LEAST_LETTERS, round(sized(LETTERS_A_LINE, LECTURE_LETTERS_A_LINE) / depths))
    return cells(
        values,
        row_labels,
        short_names(depths),
        signed=False,
        unit=unit,
        table={"word": words, unit: values},
        limit=highest,
        texts=[[one_line(word, longest) for word in line] for line in words],
        text_width=0.6 * size * longest + 10,
        token_size=size,
        hover=lambda row, column: "<br>".join(plain(text, LONGEST_HOVER) for text in hovers[row][column]),
        selected=None if selected is None else (selected[0] - places[0], selected[1]),
        longest_row=LONGEST_LABEL,
        first_row=places[0],
        tall=True,
    )


def layer_lines(
    series: Mapping[str, np.ndarray], names: Sequence[str], *, title: str, ranks: bool = False, height: int = 320
) -> go.Figure:
    """Draw series of numbers from layer to layer, a line each.

    series: name -> (layer,) numbers, as many as `names`; NaN leaves a gap. title: of the vertical axis.
    ranks: whether the axis is logarithmic, with 1 on top. height: in pixels.
    Raises ValueError if the length of a series is not the number of layers.
    """
    curves = depth_series(series, names)
    top = max((float(np.nanmax(v)) for v in series.values() if np.isfinite(v).any()), default=1.0)
    y_axis: dict[str, Any] = {"range": [0, (top or 1.0) * 1.06]}
    if ranks:  # from rank 1, a little above the line, down to the lowest
        y_axis = {"type": "log", "range": [float(np.log10(max(top, 10) * 1.4)), -0.12], "dtick": 1}
    return lines(curves, title=title, x_axis=depth_axis(names), y_axis=y_axis, height=(height, max(height, 420)))


def state_map(
    coordinates: np.ndarray,
    labels: Sequence[str],
    groups: Sequence[str],
    *,
    axes: tuple[str, str] = ("first component", "second component"),
) -> go.Figure:
    """Draw the states of all tokens in the plane.

    coordinates: (seq, 2). labels: (seq,) the tokens. groups: (seq,) of the tokens, drawn by colour and symbol.
    axes: titles of the axes. Raises ValueError if the labels or groups do not fit.
    """
    require_equal_lengths(labels=labels, groups=groups, points=coordinates)
    # A unit is as long on both axes, and plotly extends the range of one of them; the picture is about twice as wide as
    # it is high.
    width, height = (1.15 * np.abs(coordinates).max(0, initial=1e-3)).tolist()
    wide, high = 2 * max(width / 2, height), max(width / 2, height)
    has_names = len(coordinates) <= POINTS_WITH_NAMES
    lengths = [min(len(label), LONGEST_LABEL) for label in labels]
    sides = name_sides(coordinates / [wide, high], lengths) if has_names else [""] * len(labels)
    point_groups = []
    for group in dict.fromkeys(groups):
        places = [place for place, name in enumerate(groups) if name == group]
        hovers = [
            f"{plain(labels[place], LONGEST_HOVER)} ({place})<br>{x:.4g}, {y:.4g}"
            for place, (x, y) in zip(places, coordinates[places].tolist(), strict=True)
        ]
        x, y = coordinates[places].T.tolist()
        names = [plain(labels[place], LONGEST_LABEL) for place in places] if has_names else ()
        style: dict[str, Any] = {"sides": [sides[place] for place in places], "font": token_font(sized(12, 16))}
        point_groups.append(PointGroup(x, y, hovers, name=group, labels=names, **style))
    axis = {"showticklabels": False, "zeroline": True}
    return points(
        point_groups,
        x_axis={"range": [-width, width], "title": {"text": axes[0]}, **axis},
        y_axis={"range": [-height, height], "title": {"text": axes[1]}, "scaleanchor": "x", **axis},
        height=sized(560, 680),
    )


def name_sides(coordinates: np.ndarray, letters: Sequence[int]) -> list[str]:
    """Return on which side of its point each name overlaps the fewest others, as values of `textposition`.

    coordinates: (point, 2), -1 to 1 in a figure twice as wide as high. letters: (point,) length of each name.
    """
    # Widths as shares of half the width of the figure, heights of half its height.
    letter, line, offset, sign = 0.018, 0.07, 0.06, 0.04
    names: list[tuple[float, float, float, float]] = []  # of names with a place: centre, half width, height
    sides = []
    for place, (x, y) in enumerate(coordinates.tolist()):
        half = letters[place] * letter / 2
        right, left = x + half + offset / 3, x - half - offset / 3
        candidates = {"top center": (x, y + offset), "bottom center": (x, y - offset)}
        candidates |= {"middle right": (right, y), "middle left": (left, y)}
        markers = [(u, v, 0.01, sign) for number, (u, v) in enumerate(coordinates.tolist()) if number != place]
        obstacles = [*names, *markers]
        clashes = {
            side: sum(abs(u - a) < half + wide and abs(v - b) < high for u, v, wide, high in obstacles)
            for side, (a, b) in candidates.items()
        }
        best = min(clashes, key=clashes.__getitem__)
        sides.append(best)
        names.append((*candidates[best], half, line))
    return sides


def similarity_matrix(values: np.ndarray, labels: Sequence[str]) -> go.Figure:
    """Draw the cosine similarity of every pair of states, coloured from 0 to 1.

    values: (occurrence, occurrence). labels: (occurrence,). Raises ValueError if the labels do not fit.
    """
    return cells(
        values,
        [f"{number}  {label}" for number, label in enumerate(labels, 1)],
        [str(number) for number in range(1, len(labels) + 1)],
        signed=False,
        unit="cosine",
        limit=1.0,
        hover=lambda row, column: (
            f"{plain(labels[row])}<br>{plain(labels[column])}<br>cosine {values[row, column]:.9g}"
        ),
        longest_row=48,
        tall=True,
    )

"""Figures over the layers: a grid of words, lines from layer to layer, states in the plane, similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    HEAD_COLOURS,
    SEQUENTIAL,
    cell_frame,
    cells,
    figure_of,
    horizontal_scale,
    label_axis,
    lines,
    page,
    plain,
    points,
    row_axis,
    same_when_selected,
    series_line,
    sized,
    tick_axis,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 16, 160
LETTERS_A_LINE, LEAST_LETTERS = 64, 8  # of all cells of a row together, and of each: most words are no longer
STRONG = 0.5  # share of the scale from where on a cell is further from the page than from its text
ROWS_THAT_FIT = 30
POINTS_WITH_NAMES = 60
GROUP_SYMBOLS = ("circle", "square", "diamond", "star")


def depth_names(depths: int) -> list[str]:
    """Return the names of the states between the layers: "embeddings", "after L0", ..."""
    return ["embeddings", *(f"after L{layer}" for layer in range(depths - 1))]


def short_names(depths: int) -> list[str]:
    """Return short names of the states between the layers: "emb.", "L0", ..."""
    return ["emb.", *(f"L{layer}" for layer in range(depths - 1))]


def lens_width(depths: int) -> int:
    """Return the smallest width in pixels at which the words of the depths do not overlap."""
    size, longest = _letters(depths)
    return round(110 + depths * (0.6 * size * longest + 10))


def _letters(depths: int) -> tuple[int, int]:
    """Return the font size of the words in the cells, in pixels, and their largest number of letters."""
    size = sized(13, 17) if depths <= 9 else sized(12, 14)
    return size, max(LEAST_LETTERS, round(LETTERS_A_LINE / depths))


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
    Words, labels and hovers are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the parts do not fit each other.
    """
    rows, depths = values.shape
    for name, part in (("words", words), ("hovers", hovers)):
        if len(part) != rows or any(len(line) != depths for line in part):
            raise ValueError(f"{name} do not fit {rows} rows of {depths} depths")
    if not rows or not len(row_labels) == len(places) == rows:
        raise ValueError(f"{len(row_labels)} labels and {len(places)} positions for {rows} rows: one for each")
    limit = (float(np.nanmax(values)) or 1.0) if highest is None else highest
    size, longest = _letters(depths)
    place = {"x": 1, "xanchor": "right", "y": 0, "yanchor": "top", "ypad": 10, "nticks": 5}
    title = {"text": plain(unit), "side": "top"}
    scale = {"zmin": 0, "zmax": limit, "colorscale": SEQUENTIAL.colorscale()}
    colourbar = horizontal_scale(260, title=title, **place)
    traces = [cells(values, y=list(places), xgap=2, ygap=2, colorbar=colourbar, **scale)]
    # The words are points of their own over the map: a map gives all its words one colour, and clicks on it get lost.
    for strong, colour in ((False, page().text), (True, page().background)):
        places_of_words = np.argwhere((np.nan_to_num(values) / limit > STRONG) == strong).tolist()
        x, y = [depth for _, depth in places_of_words], [places[row] for row, _ in places_of_words]
        text = [plain(words[row][depth], longest) for row, depth in places_of_words]
        hover_lines = [
            "<br>".join(plain(line, LONGEST_HOVER) for line in hovers[row][depth]) for row, depth in places_of_words
        ]
        style: dict[str, Any] = {
            "mode": "markers+text",
            "textposition": "middle center",
            "textfont": token_font(size, colour),
        }
        style |= {"marker": {"opacity": 0, "size": 2}, "showlegend": False}
        style |= same_when_selected(textfont={"color": colour})
        traces.append(points(x, y, "%{customdata}", text=text, customdata=hover_lines, **style))
    frames = [] if selected is None else [cell_frame(*selected)]
    line = sized(30, 40)
    layout = {
        "shapes": frames,
        "hovermode": "closest",
        "hoverdistance": -1,  # anywhere in a cell is nearest to its word
        "height": rows * line + sized(112, 136),
        "margin": {"t": sized(34, 44), "r": 8, "b": sized(76, 90)},
        "xaxis": label_axis(short_names(depths), side="top", range=[-0.5, depths - 0.5], fixedrange=True),
        "yaxis": row_axis(
            row_labels,
            LONGEST_LABEL,
            places,
            tickfont=token_font(size),
            range=[places[-1] + 0.5, places[0] - 0.5],
            fixedrange=True,
        ),
    }
    return figure_of(traces, layout)


def layer_lines(
    series: Mapping[str, np.ndarray], names: Sequence[str], *, title: str, ranks: bool = False
) -> go.Figure:
    """Draw series of numbers from layer to layer, a line each.

    series: name -> (layer,) numbers, as many as `names`; NaN leaves a gap. title: of the vertical axis.
    ranks: whether the axis is logarithmic, with 1 on top.
    Names and title are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the length of a series is not the number of layers.
    """
    traces = []
    for number, (name, values) in enumerate(series.items()):
        if len(values) != len(names):
            raise ValueError(f"{name!r} has {len(values)} figures for {len(names)} layers: one for each")
        hover, marker = f"{plain(name, LONGEST_HOVER)}<br>%{{x}}: %{{y:.9g}}", {"size": sized(8, 11)}
        style = {"name": plain(name, 40), "line": series_line(number), "marker": marker, "cliponaxis": False}
        traces.append(lines(list(range(len(names))), values, hover, **style))
    top = max((float(np.nanmax(v)) for v in series.values() if np.isfinite(v).any()), default=1.0)
    scale: dict[str, Any] = {"range": [0, (top or 1.0) * 1.06]}
    if ranks:  # from rank 1, a little above the line, down to the lowest
        scale = {"type": "log", "range": [float(np.log10(max(top, 10) * 1.4)), -0.12], "dtick": 1}
    layout = {
        "height": sized(320, 420),
        "showlegend": True,
        "margin": {"t": sized(36, 44), "r": 24},
        "xaxis": tick_axis(names),
        "yaxis": {"title": {"text": plain(title)}, "zeroline": False} | scale,
    }
    return figure_of(traces, layout)


def state_map(
    coordinates: np.ndarray,
    labels: Sequence[str],
    groups: Sequence[str],
    *,
    axes: tuple[str, str] = ("first axis", "second axis"),
) -> go.Figure:
    """Draw the states of all tokens in the plane.

    coordinates: (seq, 2). labels: (seq,) the tokens. groups: (seq,) of the tokens, drawn by colour and symbol.
    axes: titles of the axes. Labels and groups are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels or groups do not fit.
    """
    length = len(coordinates)
    if not len(labels) == len(groups) == length:
        raise ValueError(f"{len(labels)} labels and {len(groups)} groups for {length} points: one for each")
    colours = page()
    # As long on both axes; the picture is about twice as wide as it is high.
    width, height = 1.15 * np.abs(coordinates).max(0, initial=1e-3)
    reach = max(width / 2, height) * np.array([2.0, 1.0])
    traces = []
    has_names = length <= POINTS_WITH_NAMES
    sides = name_sides(coordinates / reach, [min(len(label), LONGEST_LABEL) for label in labels]) if has_names else []
    for number, group in enumerate(dict.fromkeys(groups)):
        places = [place for place, name in enumerate(groups) if name == group]
        texts = [plain(labels[place], LONGEST_LABEL) for place in places]
        hovers = [f"{plain(labels[place], LONGEST_HOVER)} ({place})" for place in places]
        colour, symbol = HEAD_COLOURS[number % len(HEAD_COLOURS)], GROUP_SYMBOLS[number % len(GROUP_SYMBOLS)]
        style: dict[str, Any] = {
            "name": plain(group),
            "marker": {"size": sized(10, 14), "color": colour, "symbol": symbol},
        }
        style |= {"mode": "markers+text" if has_names else "markers", "text": texts, "customdata": hovers}
        style |= {"textfont": token_font(sized(12, 16), colours.text)}
        if has_names:
            style["textposition"] = [sides[place] for place in places]
        x, y = coordinates[places, 0], coordinates[places, 1]
        traces.append(points(x, y, "%{customdata}<br>%{x:.4g}, %{y:.4g}", **style))
    wide, high = reach.tolist()
    layout = {
        "height": sized(560, 680),
        "margin": {"t": sized(36, 44)},
        "showlegend": True,
        "xaxis": {"range": [-wide, wide], "showticklabels": False, "title": {"text": axes[0]}},
        "yaxis": {"range": [-high, high], "showticklabels": False, "title": {"text": axes[1]}, "scaleanchor": "x"},
    }
    return figure_of(traces, layout)


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

    values: (occurrence, occurrence). labels: (occurrence,), plain text.
    Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels do not fit.
    """
    count = len(labels)
    if values.shape != (count, count) or not count:
        raise ValueError(f"values of shape {values.shape} with {count} labels: a square of them, at least one")
    size = sized(12, 16)
    tick = {"tickfont": token_font(size), "fixedrange": True}
    hover_labels = [plain(label, LONGEST_HOVER) for label in labels]
    pairs = [[f"{row_label}<br>{column_label}" for column_label in hover_labels] for row_label in hover_labels]
    texts = [[two_digits(float(value)) for value in row] for row in values]
    title = {"text": "cosine", "side": "right"}
    style: dict[str, Any] = {
        "colorbar": {"title": title, "thickness": 12, "outlinewidth": 0, "nticks": 5},
        "customdata": pairs,
    }
    style |= {"text": texts, "texttemplate": "%{text}", "textfont": {"size": size}}
    scale = {"zmin": 0, "zmax": 1, "colorscale": SEQUENTIAL.colorscale(), "xgap": 2, "ygap": 2}
    trace = cells(values, "%{customdata}<br>cosine %{z:.9g}", **scale, **style)
    layout = {
        "height": round(count * sized(52, 64)) + 60,
        "margin": {"t": 36},
        "xaxis": label_axis([f"{number + 1}" for number in range(count)], side="top", **tick),
        "yaxis": label_axis(
            [f"{number + 1}  {plain(label, 44)}  " for number, label in enumerate(labels)], autorange="reversed", **tick
        ),
    }
    return figure_of([trace], layout)

"""What happens through the layers: a grid of words, lines from layer to layer, states in the plane, similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    HEAD_COLOURS,
    HEAD_DASHES,
    SEQUENTIAL,
    cell_frame,
    figure_of,
    label_axis,
    page,
    plain,
    sized,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 16, 160
LETTERS_A_LINE, LEAST_LETTERS = 64, 8  # of all cells of a row together, and of each: most words are no longer
STRONG = 0.5  # share of the scale from where on a cell is further from the page than from its text
ROWS_THAT_FIT = 30
POINTS_WITH_NAMES = 60


def depth_names(depths: int) -> list[str]:
    """What the states between the layers are called: "embeddings", "after L0", ..."""
    return ["embeddings", *(f"after L{layer}" for layer in range(depths - 1))]


def short_names(depths: int) -> list[str]:
    """The same where there is little room: "emb.", "L0", ..."""
    return ["emb.", *(f"L{layer}" for layer in range(depths - 1))]


def lens_width(depths: int) -> int:
    """The pixels from which the words of so many depths stand clear of each other."""
    size, longest = _letters(depths)
    return round(110 + depths * (0.6 * size * longest + 10))


def _letters(depths: int) -> tuple[int, int]:
    """Of the words in the cells, the size of the type in pixels, and the most letters."""
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
    """A word in every cell: rows are positions, columns what stands between the layers, coloured from 0 up.

    words: (row, depth). values: the same, never negative. hovers: the same, some lines each.
    places: (row,) the rows' positions, which rise by one: what a click on a cell gives back.
    highest: where the colours end, if not at the largest value. selected: the (position, depth) to frame.
    unit: what the colours show.
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
    traces: list[dict[str, Any]] = [{
        "type": "heatmap", "z": values, "y": list(places), "zmin": 0, "zmax": limit, "xgap": 2, "ygap": 2,
        "colorscale": SEQUENTIAL.colorscale(), "hoverinfo": "skip",
        "colorbar": {
            "title": {"text": plain(unit), "side": "top"}, "orientation": "h", "thickness": 12,
            "lenmode": "pixels", "len": 260, "x": 1, "xanchor": "right", "y": 0, "yanchor": "top", "ypad": 10,
            "xpad": 0, "nticks": 5, "outlinewidth": 0,
        },
    }]  # fmt: skip
    # The words are points of their own over the map: a map gives all its words one colour, and clicks on it get lost.
    for strong, colour in ((False, page().text), (True, page().background)):
        cells = np.argwhere((np.nan_to_num(values) / limit > STRONG) == strong).tolist()
        traces.append({
            "type": "scatter", "x": [depth for _, depth in cells], "y": [places[row] for row, _ in cells],
            "mode": "markers+text", "text": [plain(words[row][depth], longest) for row, depth in cells],
            "textfont": token_font(size, colour), "textposition": "middle center",
            "marker": {"opacity": 0, "size": 2}, "showlegend": False,
            "selected": {"textfont": {"color": colour}}, "unselected": {"textfont": {"color": colour}},
            "customdata": [
                "<br>".join(plain(text, LONGEST_HOVER) for text in hovers[row][depth]) for row, depth in cells
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        })  # fmt: skip
    frames = [] if selected is None else [cell_frame(*selected)]
    line = sized(30, 40)
    layout = {
        "shapes": frames,
        "hovermode": "closest",
        "hoverdistance": -1,  # anywhere in a cell is nearest to its word
        "height": rows * line + sized(112, 136),
        "margin": {"t": sized(34, 44), "r": 8, "b": sized(76, 90)},
        "xaxis": label_axis(short_names(depths), side="top", range=[-0.5, depths - 0.5], fixedrange=True),
        "yaxis": label_axis(
            [plain(label, LONGEST_LABEL) + "  " for label in row_labels],
            places,
            tickfont=token_font(size),
            range=[places[-1] + 0.5, places[0] - 0.5],
            fixedrange=True,
        ),
    }
    return figure_of(traces, layout)


def layer_lines(
    series: Mapping[str, np.ndarray],
    names: Sequence[str],
    *,
    title: str,
    ranks: bool = False,
) -> go.Figure:
    """Some figures from layer to layer, a line each.

    series: name -> one number for each of the `names` of the layers; NaN leaves a gap. title: what is drawn upwards.
    ranks: logarithmic, with 1 on top.
    Names and title are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if a line has another number of figures than there are layers.
    """
    traces = []
    for number, (name, values) in enumerate(series.items()):
        if len(values) != len(names):
            raise ValueError(f"{name!r} has {len(values)} figures for {len(names)} layers: one for each")
        colour = HEAD_COLOURS[number % len(HEAD_COLOURS)]
        traces.append({
            "type": "scatter", "x": list(range(len(names))), "y": values, "name": plain(name, 40),
            "mode": "lines+markers", "marker": {"size": sized(8, 11)}, "cliponaxis": False,
            "line": {
                "color": colour, "width": sized(2.5, 4), "dash": HEAD_DASHES[number % len(HEAD_DASHES)],
            },
            "hovertemplate": f"{plain(name, LONGEST_HOVER)}<br>%{{x}}: %{{y:.9g}}<extra></extra>",
        })  # fmt: skip
    top = max((float(np.nanmax(v)) for v in series.values() if np.isfinite(v).any()), default=1.0)
    layout = {
        "height": sized(320, 420),
        "showlegend": True,
        "margin": {"t": sized(36, 44), "r": 24},
        "xaxis": {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names), "zeroline": False},
        "yaxis": {"title": {"text": plain(title)}, "zeroline": False}
        | (
            # From rank 1, a little above the line, down to the lowest.
            {"type": "log", "range": [float(np.log10(max(top, 10) * 1.4)), -0.12], "dtick": 1}
            if ranks
            else {"range": [0, (top or 1.0) * 1.06]}
        ),
    }
    return figure_of(traces, layout)


def state_map(
    points: np.ndarray,
    labels: Sequence[str],
    groups: Sequence[str],
    *,
    axes: tuple[str, str] = ("first axis", "second axis"),
) -> go.Figure:
    """The states of all tokens in the plane.

    points: (seq, 2). labels: the tokens. groups: what each belongs to, told apart by colour and sign.
    axes: what they are called. Labels and groups are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels or groups do not fit.
    """
    length = len(points)
    if not len(labels) == len(groups) == length:
        raise ValueError(f"{len(labels)} labels and {len(groups)} groups for {length} points: one for each")
    colours = page()
    # As long on both axes; the picture is about twice as wide as it is high.
    width, height = 1.15 * np.abs(points).max(0, initial=1e-3)
    reach = max(width / 2, height) * np.array([2.0, 1.0])
    traces = []
    has_names = length <= POINTS_WITH_NAMES
    sides = name_sides(points / reach, [min(len(label), LONGEST_LABEL) for label in labels]) if has_names else []
    for number, group in enumerate(dict.fromkeys(groups)):
        places = [place for place, name in enumerate(groups) if name == group]
        traces.append({
            "type": "scatter", "x": points[places, 0], "y": points[places, 1], "name": plain(group),
            "mode": "markers+text" if has_names else "markers",
            "text": [plain(labels[place], LONGEST_LABEL) for place in places],
            **({"textposition": [sides[place] for place in places]} if has_names else {}),
            "textfont": token_font(sized(12, 16), colours.text),
            "customdata": [f"{plain(labels[place], LONGEST_HOVER)} ({place})" for place in places],
            "hovertemplate": "%{customdata}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
            "marker": {
                "size": sized(10, 14), "color": HEAD_COLOURS[number % len(HEAD_COLOURS)],
                "symbol": ("circle", "square", "diamond", "star")[number % 4],
            },
        })  # fmt: skip
    wide, high = reach.tolist()
    layout = {
        "height": sized(560, 680),
        "margin": {"t": sized(36, 44)},
        "showlegend": True,
        "xaxis": {"range": [-wide, wide], "showticklabels": False, "title": {"text": axes[0]}},
        "yaxis": {"range": [-high, high], "showticklabels": False, "title": {"text": axes[1]}, "scaleanchor": "x"},
    }
    return figure_of(traces, layout)


def name_sides(points: np.ndarray, letters: Sequence[int]) -> list[str]:
    """On which side of its point each name stands in the way of the fewest others, in plotly's words.

    points: (point, 2), -1 to 1 in a picture twice as wide as high. letters: how long each name is.
    """
    letter, line, offset, sign = (
        0.018,
        0.07,
        0.06,
        0.04,
    )  # widths as shares of half the picture's, heights of half of its
    names: list[tuple[float, float, float, float]] = []  # of those that have a place: middle, half the width, height
    sides = []
    for place, (x, y) in enumerate(points.tolist()):
        half = letters[place] * letter / 2
        candidates = {
            "top center": (x, y + offset), "bottom center": (x, y - offset), "middle right": (x + half + offset / 3, y),
            "middle left": (x - half - offset / 3, y),
        }  # fmt: skip
        obstacles = [*names, *((u, v, 0.01, sign) for number, (u, v) in enumerate(points.tolist()) if number != place)]
        clashes = {
            side: sum(abs(u - a) < half + wide and abs(v - b) < high for u, v, wide, high in obstacles)
            for side, (a, b) in candidates.items()
        }
        best = min(clashes, key=clashes.__getitem__)
        sides.append(best)
        names.append((*candidates[best], half, line))
    return sides


def similarity_matrix(values: np.ndarray, labels: Sequence[str]) -> go.Figure:
    """How alike some states are, each with each: cosines in the cells, coloured from 0 to 1.

    values: (occurrence, occurrence). labels: plain text, one each.
    Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels do not fit.
    """
    count = len(labels)
    if values.shape != (count, count) or not count:
        raise ValueError(f"values of shape {values.shape} with {count} labels: a square of them, at least one")
    size = sized(12, 16)
    tick: dict[str, Any] = {"tickfont": token_font(size), "fixedrange": True}
    hover_labels = [plain(label, LONGEST_HOVER) for label in labels]
    map_ = {
        "type": "heatmap", "z": values, "zmin": 0, "zmax": 1, "xgap": 2, "ygap": 2,
        "colorscale": SEQUENTIAL.colorscale(), "textfont": {"size": size}, "texttemplate": "%{text}",
        "text": [[two_digits(float(value)) for value in row] for row in values],
        "customdata": [
            [f"{row_label}<br>{column_label}" for column_label in hover_labels] for row_label in hover_labels
        ],
        "hovertemplate": "%{customdata}<br>cosine %{z:.9g}<extra></extra>",
        "colorbar": {"title": {"text": "cosine", "side": "right"}, "thickness": 12, "outlinewidth": 0, "nticks": 5},
    }  # fmt: skip
    layout = {
        "height": round(count * sized(52, 64)) + 60,
        "margin": {"t": 36},
        "xaxis": label_axis([f"{number + 1}" for number in range(count)], side="top", **tick),
        "yaxis": label_axis(
            [f"{number + 1}  {plain(label, 44)}  " for number, label in enumerate(labels)], autorange="reversed", **tick
        ),
    }
    return figure_of([map_], layout)

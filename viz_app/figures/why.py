"""Answers to "why this word?": every method beside the others, how alike they are, and how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    DIVERGING,
    TOKEN_FONT,
    figure_of,
    page,
    plain,
    shade,
    sized,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 12, 160
NUMBERS_THAT_FIT = 18  # columns with a number in every cell
LABELS_THAT_FIT = 36
ROWS_IN_LARGE_TYPE = 10
# The layout under `coloured_cells`: anywhere in a cell is nearest to its own point.
CLICKED_CELLS = {"hovermode": "closest", "hoverdistance": -1, "clickmode": "event+select", "dragmode": False}
SIGNS = {"better": "circle", "chance": "circle-open", "worse": "x"}
MEANINGS = {"better": "better than chance here", "chance": "no better than chance here", "worse": "worse than chance"}


def score_table(
    shares: np.ndarray,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    selected: int | None = None,
    extra_column: tuple[str, np.ndarray] | None = None,
) -> go.Figure:
    """Scores as a table of coloured cells: orange speaks for, blue against.

    shares: (row, column), what is drawn, -1 to 1. values: the same cells as they are, on hover, and written in them
    where there is room. selected: a row with a frame around it. extra_column: label and numbers (row,), -1 to 1, of a
    column at the right edge, always written.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels, or the column beside, do not fit the values.
    """
    if extra_column is not None and extra_column[1].shape != (len(row_labels),):
        raise ValueError(
            f"a column of shape {extra_column[1].shape} beside {len(row_labels)} rows: one number for each"
        )
    if shares.shape != values.shape or shares.shape != (len(row_labels), len(column_labels)) or 0 in shares.shape:
        raise ValueError(
            f"shares of shape {shares.shape}, values of {values.shape}, {len(row_labels)} row and {len(column_labels)} "
            "column labels: expected (row, column) of one size, at least one of each"
        )
    rows, columns = shares.shape
    has_numbers = columns <= sized(NUMBERS_THAT_FIT, NUMBERS_THAT_FIT * 2 // 3)
    cells = two_digits if has_numbers else None
    traces = coloured_cells(shares, values, row_labels, column_labels, axis="x", format_value=cells)
    if extra_column is not None:
        name, numbers = extra_column[0], extra_column[1][:, None]
        traces += coloured_cells(numbers, numbers, row_labels, [name], axis="x2", format_value=two_digits)
    frames = [
        {
            "type": "rect", "xref": axis, "x0": -0.5, "x1": last, "y0": selected - 0.5, "y1": selected + 0.5,
            "line": {"color": page().accent, "width": 3},
        }
        for axis, last in (("x", columns - 0.5), ("x2", 0.5))[: 1 if extra_column is None else 2]
        if selected is not None
    ]  # fmt: skip
    step = max(1, -(-columns // sized(LABELS_THAT_FIT, LABELS_THAT_FIT // 2)))
    labelled = list(range(0, columns, step))
    # In a lecture many rows share the height of a window.
    size = sized(13, 18 if rows <= ROWS_IN_LARGE_TYPE else 15)
    layout = {
        **CLICKED_CELLS,
        "shapes": frames,
        "height": round(rows * sized(28, 38) + sized(110, 140)),
        "margin": {"l": 8, "r": 48, "t": sized(100, round(7.2 * size)), "b": 10},
        "xaxis": {
            "side": "top", "tickmode": "array", "tickvals": labelled, "tickangle": -50, "showgrid": False,
            "ticktext": [plain(column_labels[column], LONGEST_LABEL) for column in labelled], "zeroline": False,
            "tickfont": token_font(size),
            "range": [-0.5, columns - 0.5], "automargin": False, "domain": [0, 1 if extra_column is None else 0.93],
        },
        "yaxis": {
            "tickmode": "array", "tickvals": list(range(rows)), "range": [rows - 0.5, -0.5], "showgrid": False,
            "ticktext": [plain(label, 40) + "  " for label in row_labels], "zeroline": False,
            "tickfont": {"size": sized(14, size)},
        },
    }  # fmt: skip
    if extra_column is not None:
        layout["xaxis2"] = {
            "side": "top", "tickvals": [0], "ticktext": [plain(extra_column[0], LONGEST_LABEL)], "tickangle": -50,
            "tickfont": {"size": size}, "range": [-0.5, 0.5], "domain": [0.945, 1], "anchor": "y",
            "showgrid": False, "zeroline": False,
        }  # fmt: skip
    return figure_of(traces, layout)


def coloured_cells(
    shares: np.ndarray,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    axis: str,
    format_value: Callable[[float], str] | None,
) -> list[dict[str, Any]]:
    """Coloured cells that can be clicked, with their numbers on hover.

    shares, values: (row, column), what is drawn, and what is read. axis: "x", or another one
    beside it. format_value: how a number stands in its cell; None leaves it out.
    """
    rows, columns = shares.shape
    on_hover = [plain(label, LONGEST_HOVER) for label in row_labels]
    column_hovers = [plain(label, LONGEST_HOVER) for label in column_labels]
    map_ = {
        "type": "heatmap", "z": shares, "x": list(range(columns)), "y": list(range(rows)), "zmin": -1, "zmax": 1,
        "xaxis": axis, "colorscale": DIVERGING.colorscale(), "showscale": False, "xgap": 1, "ygap": 1,
        "hoverinfo": "skip",
    }  # fmt: skip
    # Points that nobody sees over the map: clicks on a map get lost.
    points = {
        "type": "scatter", "x": np.tile(np.arange(columns), rows), "y": np.repeat(np.arange(rows), columns),
        "mode": "markers", "xaxis": axis, "marker": {"opacity": 0, "size": 2},
        "selected": {"marker": {"opacity": 0}}, "showlegend": False,
        "customdata": [
            [row, column, f"{value:.9g}"]
            for row, numbers in zip(on_hover, values.tolist(), strict=True)
            for column, value in zip(column_hovers, numbers, strict=True)
        ],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]}<extra></extra>",
    }  # fmt: skip
    traces: list[dict[str, Any]] = [map_, points]
    if format_value is None:
        return traces
    finite_shares = np.nan_to_num(shares)
    inks = np.array([[shade(share, signed=True)[1] for share in row] for row in finite_shares.tolist()])
    for ink in sorted(set(inks.flat)):
        cells = np.argwhere(inks == ink).tolist()
        traces.append({
            "type": "scatter", "x": [column for _, column in cells], "y": [row for row, _ in cells], "mode": "text",
            "hoverinfo": "skip", "xaxis": axis, "showlegend": False,
            "text": [format_value(float(values[row, column])) for row, column in cells],
            "textfont": {"size": sized(12, 14), "color": ink},
            "selected": {"textfont": {"color": ink}}, "unselected": {"textfont": {"color": ink}},
        })  # fmt: skip
    return traces


def trust_chart(
    methods: Sequence[str],
    scores: np.ndarray,
    verdicts: Sequence[str],
    band: tuple[float, float],
    *,
    measure: str,
) -> go.Figure:
    """A measure of every method as a point, over the band in which 95% of random rankings lie.

    scores: (method,). verdicts: of each "better", "chance" or "worse"; a full, an empty and a crossed point.
    Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if not len(methods) == len(scores) == len(verdicts):
        raise ValueError(f"{len(methods)} methods, {len(scores)} scores, {len(verdicts)} verdicts: one of each")
    colours = page()
    grey = {
        "type": "rect", "x0": band[0], "x1": band[1], "xref": "x", "y0": 0, "y1": 1, "yref": "y domain",
        "fillcolor": colours.line, "opacity": 0.55, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
    traces = []
    for verdict, meaning in MEANINGS.items():
        places = [place for place, own_verdict in enumerate(verdicts) if own_verdict == verdict]
        traces.append({
            "type": "scatter", "x": [float(scores[place]) for place in places], "y": places, "mode": "markers+text",
            "name": meaning, "cliponaxis": False, "textposition": "middle right",
            "text": [f"  {two_digits(float(scores[place]))}" for place in places],
            "textfont": {"color": colours.faint if verdict == "chance" else colours.text},
            "customdata": [plain(methods[place]) for place in places],
            "marker": {
                "symbol": SIGNS[verdict], "size": sized(11, 15), "line": {"width": 2},
                "color": colours.faint if verdict == "chance" else colours.accent,
            },
            "hovertemplate": f"%{{customdata}}<br>{plain(measure)} %{{x:.9g}}<br>{meaning}<extra></extra>",
        })  # fmt: skip
    layout = {
        "shapes": [grey],
        "height": round(len(methods) * sized(26, 36) + 110),
        "margin": {"l": 8, "r": 60, "t": 36, "b": 8},
        "xaxis": {"title": {"text": f"{plain(measure)}; grey: 95% of random rankings"}, "zeroline": True},
        "yaxis": {
            "tickmode": "array", "tickvals": list(range(len(methods))), "zeroline": False,
            "ticktext": [plain(name, 40) + "  " for name in methods], "range": [len(methods) - 0.4, -0.6],
        },
    }  # fmt: skip
    return figure_of(traces, layout)


def totals_chart(
    words: Sequence[str],
    means: np.ndarray,
    errors: np.ndarray,
    texts: Sequence[int],
    *,
    unit: str,
) -> go.Figure:
    """What words say of an answer over a whole file: a point at each mean, with 95% of where it may lie.

    means, errors: (word,), the errors NaN where one text has the word. texts: of each word. unit: of the means.
    Words are plain text. Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if not len(words) == len(means) == len(errors) == len(texts) or not len(words):
        raise ValueError(f"{len(words)} words, {len(means)} means, {len(errors)} errors: one of each, and a word")
    colours, scale = page(), DIVERGING.colours()
    points = {
        "type": "scatter", "mode": "markers", "x": means.tolist(), "y": list(range(len(words))), "cliponaxis": False,
        "marker": {
            "size": sized(10, 14),
            "color": [scale[-2] if mean > 0 else scale[1] for mean in means.tolist()],
            "symbol": ["circle" if mean > 0 else "diamond" for mean in means.tolist()],
        },
        "error_x": {"array": np.nan_to_num(1.96 * errors).tolist(), "color": colours.faint, "thickness": 1.5},
        "customdata": [
            [plain(word, LONGEST_HOVER), count, f"{error:.3g}"]
            for word, count, error in zip(words, texts, errors.tolist(), strict=True)
        ],
        "hovertemplate": "%{customdata[0]}<br>mean %{x:.9g}, standard error %{customdata[2]}<br>"
        "%{customdata[1]} texts<extra></extra>",
    }  # fmt: skip
    layout = {
        "height": round(len(words) * sized(24, 34) + 90),
        "margin": {"l": 8, "r": 24, "t": 16, "b": 8},
        "xaxis": {"title": {"text": plain(unit)}, "zeroline": True},
        "yaxis": {
            "tickmode": "array", "tickvals": list(range(len(words))), "range": [len(words) - 0.4, -0.6],
            "ticktext": [
                f"{plain(word, 2 * LONGEST_LABEL)} ({count})  " for word, count in zip(words, texts, strict=True)
            ],
            "tickfont": {"family": TOKEN_FONT}, "zeroline": False,
        },
    }  # fmt: skip
    return figure_of([points], layout)

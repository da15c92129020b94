"""Figures of attributions: the scores of every method side by side, and how reliable each method is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    DIVERGING,
    TOKEN_FONT,
    cells,
    figure_of,
    label_axis,
    page,
    plain,
    points,
    rectangle,
    row_axis,
    row_frame,
    same_when_selected,
    shade,
    sized,
    tick_axis,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 12, 160
NUMBERS_THAT_FIT = 18  # columns with a number in every cell
LABELS_THAT_FIT = 36
ROWS_IN_LARGE_TYPE = 10
# Layout of `coloured_cells`: everywhere in a cell the nearest point is its own.
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
    """Draw scores as a table of coloured cells: orange for a positive, blue for a negative score.

    shares: (row, column), colours, -1 to 1. values: (row, column), numbers of the hover text, and of the cells if they
        fit. selected: the row to frame. extra_column: label and numbers (row,), -1 to 1, of a column at the right edge,
        whose numbers are always written.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels or the extra column do not fit the values.
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
    edges = [("x", columns)] if extra_column is None else [("x", columns), ("x2", 1)]
    frames = [] if selected is None else [row_frame(selected, last, 3, xref=axis) for axis, last in edges]
    step = max(1, -(-columns // sized(LABELS_THAT_FIT, LABELS_THAT_FIT // 2)))
    labelled = list(range(0, columns, step))
    # In lecture mode many rows share the height of a window.
    size = sized(13, 18 if rows <= ROWS_IN_LARGE_TYPE else 15)
    column_style = {"side": "top", "tickangle": -50}
    layout = {
        **CLICKED_CELLS,
        "shapes": frames,
        "height": round(rows * sized(28, 38) + sized(110, 140)),
        "margin": {"l": 8, "r": 48, "t": sized(100, round(7.2 * size)), "b": 10},
        "xaxis": label_axis(
            [plain(column_labels[column], LONGEST_LABEL) for column in labelled],
            labelled,
            range=[-0.5, columns - 0.5],
            domain=[0, 1 if extra_column is None else 0.93],
            tickfont=token_font(size),
            automargin=False,
            **column_style,
        ),
        "yaxis": row_axis(row_labels, 40, tickfont={"size": sized(14, size)}),
    }
    if extra_column is not None:
        ticks = {"tickvals": [0], "ticktext": [plain(extra_column[0], LONGEST_LABEL)], "tickfont": {"size": size}}
        place = {"range": [-0.5, 0.5], "domain": [0.945, 1], "anchor": "y", "showgrid": False, "zeroline": False}
        layout["xaxis2"] = ticks | place | column_style
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
    """Return the traces of coloured cells that can be clicked, with their numbers in the hover text.

    shares, values: (row, column), colours from -1 to 1, and numbers. axis: horizontal axis of the traces, such as "x".
    format_value: returns the text of a number in its cell; None for cells without numbers.
    """
    rows, columns = shares.shape
    on_hover = [plain(label, LONGEST_HOVER) for label in row_labels]
    column_hovers = [plain(label, LONGEST_HOVER) for label in column_labels]
    numbers = [
        [row, column, f"{value:.9g}"]
        for row, row_values in zip(on_hover, values.tolist(), strict=True)
        for column, value in zip(column_hovers, row_values, strict=True)
    ]
    scale = {"zmin": -1, "zmax": 1, "colorscale": DIVERGING.colorscale(), "showscale": False, "xgap": 1, "ygap": 1}
    # Invisible points over the map: clicks on a heatmap do not select anything.
    hover, opacity = "%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]}", {"marker": {"opacity": 0}}
    style: dict[str, Any] = {
        "marker": {"opacity": 0, "size": 2},
        "selected": opacity,
        "showlegend": False,
        "xaxis": axis,
    }
    x, y = np.tile(np.arange(columns), rows), np.repeat(np.arange(rows), columns)
    traces = [
        cells(shares, x=list(range(columns)), y=list(range(rows)), xaxis=axis, **scale),
        points(x, y, hover, customdata=numbers, **style),
    ]
    if format_value is None:
        return traces
    finite_shares = np.nan_to_num(shares)
    inks = np.array([[shade(share, signed=True)[1] for share in row] for row in finite_shares.tolist()])
    for ink in sorted(set(inks.flat)):
        places = np.argwhere(inks == ink).tolist()
        text = [format_value(float(values[row, column])) for row, column in places]
        style = {"mode": "text", "xaxis": axis, "showlegend": False, "textfont": {"size": sized(12, 14), "color": ink}}
        style |= {"text": text, **same_when_selected(textfont={"color": ink})}
        traces.append(points([column for _, column in places], [row for row, _ in places], **style))
    return traces


def trust_chart(
    methods: Sequence[str], scores: np.ndarray, verdicts: Sequence[str], band: tuple[float, float], *, measure: str
) -> go.Figure:
    """Draw a measure of every method as a point, over the band that holds 95% of random rankings.

    scores: (method,). verdicts: (method,) "better", "chance" or "worse": a filled, an open and a crossed point.
    Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if not len(methods) == len(scores) == len(verdicts):
        raise ValueError(f"{len(methods)} methods, {len(scores)} scores, {len(verdicts)} verdicts: one of each")
    colours = page()
    band_style = {"fillcolor": colours.line, "opacity": 0.55, "layer": "below"}
    grey = rectangle(band, (0, 1), {"width": 0}, xref="x", yref="y domain", **band_style)
    traces = []
    for verdict, meaning in MEANINGS.items():
        rows = [row for row, row_verdict in enumerate(verdicts) if row_verdict == verdict]
        values, is_chance = [float(scores[row]) for row in rows], verdict == "chance"
        marker: dict[str, Any] = {"symbol": SIGNS[verdict], "size": sized(11, 15), "line": {"width": 2}}
        marker["color"] = colours.faint if is_chance else colours.accent
        style: dict[str, Any] = {"text": [f"  {two_digits(value)}" for value in values], "textposition": "middle right"}
        style |= {"textfont": {"color": colours.faint if is_chance else colours.text}, "mode": "markers+text"}
        style |= {"customdata": [plain(methods[row]) for row in rows], "name": meaning, "cliponaxis": False}
        hover = f"%{{customdata}}<br>{plain(measure)} %{{x:.9g}}<br>{meaning}"
        traces.append(points(values, rows, hover, marker=marker, **style))
    layout = {
        "shapes": [grey],
        "height": round(len(methods) * sized(26, 36) + 110),
        "margin": {"l": 8, "r": 60, "t": 36, "b": 8},
        "xaxis": {"title": {"text": f"{plain(measure)}; grey: 95% of random rankings"}, "zeroline": True},
        "yaxis": tick_axis([plain(name, 40) + "  " for name in methods], range=[len(methods) - 0.4, -0.6]),
    }
    return figure_of(traces, layout)


def totals_chart(
    words: Sequence[str], means: np.ndarray, errors: np.ndarray, texts: Sequence[int], *, unit: str
) -> go.Figure:
    """Draw the mean attribution of words over a file as points with 95% confidence intervals.

    means, errors: (word,) means and standard errors, NaN for a word in one text only. texts: (word,) number of texts.
    unit: of the means.
    Words are plain text. Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if not len(words) == len(means) == len(errors) == len(texts) or not len(words):
        raise ValueError(f"{len(words)} words, {len(means)} means, {len(errors)} errors: one of each, and a word")
    colours, scale = page(), DIVERGING.colours()
    signs = [mean > 0 for mean in means.tolist()]
    marker = {
        "size": sized(10, 14),
        "color": [scale[-2] if is_positive else scale[1] for is_positive in signs],
        "symbol": ["circle" if is_positive else "diamond" for is_positive in signs],
    }
    intervals = {"array": np.nan_to_num(1.96 * errors).tolist(), "color": colours.faint, "thickness": 1.5}
    rows = list(zip(words, texts, errors.tolist(), strict=True))
    numbers = [[plain(word, LONGEST_HOVER), count, f"{error:.3g}"] for word, count, error in rows]
    hover = "%{customdata[0]}<br>mean %{x:.9g}, standard error %{customdata[2]}<br>%{customdata[1]} texts"
    style = {"marker": marker, "error_x": intervals, "customdata": numbers, "cliponaxis": False}
    trace = points(means.tolist(), list(range(len(words))), hover, **style)
    labels = [f"{plain(word, 2 * LONGEST_LABEL)} ({count})  " for word, count, _ in rows]
    row_range = [len(words) - 0.4, -0.6]
    layout = {
        "height": round(len(words) * sized(24, 34) + 90),
        "margin": {"l": 8, "r": 24, "t": 16, "b": 8},
        "xaxis": {"title": {"text": plain(unit)}, "zeroline": True},
        "yaxis": tick_axis(labels, range=row_range, tickfont={"family": TOKEN_FONT}),
    }
    return figure_of([trace], layout)

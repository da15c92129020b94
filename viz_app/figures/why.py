"""Figures of attributions: the scores of every method side by side, and how reliable each method is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import (
    INVISIBLE,
    LABELS_THAT_FIT,
    LONGEST_HOVER,
    PointGroup,
    cell_columns,
    cells,
    points,
    require_equal_lengths,
    row_axis,
    scatter,
    signed_fill,
)
from viz_app.figures.style import DIVERGING, SEQUENTIAL, TOKEN_FONT, cell_number, page, plain, sized, two_digits

PAGE_WIDTH, LECTURE_WIDTH = 900, 1150  # of a figure over the whole page, in pixels
SYMBOLS = {"better": "circle", "chance": "circle-open", "worse": "x"}
MEANINGS = {"better": "better than chance here", "chance": "no better than chance here", "worse": "worse than chance"}
STRIP_HEIGHT, BARS_HEIGHT = (58, 76), (96, 84)  # of the first row and of a row of bars, in pixels, and in lecture mode
UNSIGNED = 10  # index in the sequential scale of a colour that is neither warm nor cool
SHARE = "share of the method's largest score"


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one method. name: with its mark. shares, values: (unit,) -1 to 1, and in the method's own unit."""

    name: str
    shares: np.ndarray
    values: np.ndarray
    signed: bool


def score_strip(rows: Sequence[ScoreRow], labels: Sequence[str]) -> go.Figure:
    """Draw the scores of the first method as a strip of cells, and those of the others as bars in the same columns.

    Warm supports, cool opposes; scores without a sign have the sequential scale. labels: (unit,). The customdata of a
    point is the number of its row. Raises ValueError if the lengths differ.
    """
    first, *rows_of_bars = rows
    for row in rows_of_bars:
        require_equal_lengths(labels=labels, scores=row.shares)
    strip: dict[str, Any] = {"signed": first.signed, "unit": SHARE, "limit": 1.0, "tokens": False}
    strip["width"] = sized(PAGE_WIDTH, LECTURE_WIDTH)
    strip["table"] = {"score": first.values[None]}
    figure = cells(first.shares[None], [first.name], labels, numbers=first.values[None], longest_row=40, **strip)
    has_numbers, columns = any(trace.mode == "text" for trace in figure.data[2:]), list(range(len(labels)))
    figure.data[1].customdata = [0] * len(labels)
    if len(labels) > LABELS_THAT_FIT:  # every word is named
        names = [plain(label, 12) for label in labels]
        figure.layout.xaxis.update(tickvals=columns, ticktext=names, tickangle=-50, automargin=False)
        figure.layout.margin.t = sized(96, 130)
    top, bottom = figure.layout.margin.t, figure.layout.margin.b
    strip_height, bars_height = sized(*STRIP_HEIGHT), sized(*BARS_HEIGHT)
    total = strip_height + bars_height * len(rows_of_bars)
    figure.layout.height = total + top + bottom
    figure.layout.yaxis.domain = [1 - strip_height / total, 1]
    traces: list[dict[str, Any]] = []
    for number, row in enumerate(rows_of_bars, 1):
        end = 1 - (strip_height + bars_height * (number - 1)) / total
        lowest, axis = min(0.0, float(row.shares.min(initial=0.0))), f"y{number + 1}"
        name = plain(row.name, 40) + ("  " if row.signed else " (unsigned)  ")
        room = sized(1.45, 1.8)  # for the numbers
        limits = [room * lowest - 0.05, room]
        figure.layout[f"yaxis{number + 1}"] = {
            "domain": [end - 0.94 * bars_height / total, end - 0.06 * bars_height / total],
            "range": limits, "fixedrange": True, "showgrid": False, "zeroline": True, "tickmode": "array",
            "tickvals": [0.35], "ticktext": [name], "tickfont": figure.layout.yaxis.tickfont,
        }  # fmt: skip
        values = row.shares.tolist()
        hovers = [
            f"{plain(row.name)}<br>{plain(label, LONGEST_HOVER)}<br>{value:.9g}"
            for label, value in zip(labels, row.values.tolist(), strict=True)
        ]
        fill = signed_fill(values) if row.signed else {"color": SEQUENTIAL.colours()[UNSIGNED]}
        bar = {"type": "bar", "x": columns, "y": values, "yaxis": axis, "marker": fill, "width": 0.62}
        texts = [cell_number(value) for value in row.values.tolist()] if has_numbers else None
        bar |= {"text": texts, "textposition": "outside", "textangle": 0, "cliponaxis": False, "constraintext": "none"}
        bar |= {"hoverinfo": "skip", "showlegend": False, "textfont": {"size": sized(13, 16)}}
        unchanged = {"marker": {"opacity": 1}}
        traces.append(bar | {"selected": unchanged, "unselected": unchanged})
        # Invisible points over the columns: a short bar is as easily met as a long one.
        heights = [sum(limits) / 2] * len(labels)
        points = scatter(columns, heights, hovers, yaxis=axis, customdata=[number] * len(labels), **INVISIBLE)
        traces.append(points | {"meta": cell_columns([row.name], labels, {"score": row.values[None]})})
    figure.add_traces(traces)
    return figure


def score_table(
    shares: np.ndarray,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    unit: str = SHARE,
    selected: int | None = None,
    extra_column: tuple[str, np.ndarray] | None = None,
) -> go.Figure:
    """Draw scores as a table of coloured cells: warm for a positive, cool for a negative score.

    shares: (row, column), colours, -1 to 1. values: (row, column), numbers of the cells. unit: of the colours.
    selected: the row to frame. extra_column: label and numbers (row,), -1 to 1, of a column at the right edge.
    Raises ValueError if the labels or the extra column do not fit the values.
    """
    options: dict[str, Any] = {"selected_row": selected, "extra_column": extra_column, "longest_row": 40}
    options |= {"numbers": values, "table": {"score": values}, "tokens": False, "width": PAGE_WIDTH}
    return cells(shares, row_labels, column_labels, signed=True, unit=unit, limit=1.0, **options)


def direct_map(
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    unit: str,
    selected: tuple[int, int] | None,
    width: int,
) -> go.Figure:
    """Draw the contribution of each component as a cell: warm for a positive, cool for a negative one.

    values: (layer, head and MLP); NaN leaves a cell empty. unit: of the colours. selected: the cell to frame. width:
    expected, in pixels. Raises ValueError if the labels do not fit the values.
    """
    options: dict[str, Any] = {"selected": selected, "width": width, "table": {"contribution": values}}
    return cells(values, row_labels, column_labels, signed=True, unit=unit, tokens=False, **options)


def trust_chart(
    methods: Sequence[str], scores: np.ndarray, verdicts: Sequence[str], band: tuple[float, float], *, measure: str
) -> go.Figure:
    """Draw a measure of every method as a point, over the band that holds 95% of random rankings.

    scores: (method,). verdicts: (method,) "better", "chance" or "worse": a filled, an open and a crossed point.
    Raises ValueError if the lengths differ.
    """
    require_equal_lengths(methods=methods, scores=scores, verdicts=verdicts)
    colours, groups = page(), []
    for verdict, meaning in MEANINGS.items():
        rows = [row for row, row_verdict in enumerate(verdicts) if row_verdict == verdict]
        values, colour = [float(scores[row]) for row in rows], colours.faint if verdict == "chance" else colours.accent
        hovers = [
            f"{plain(methods[row])}<br>{plain(measure)} {value:.9g}<br>{meaning}"
            for row, value in zip(rows, values, strict=True)
        ]
        marker = {"symbol": SYMBOLS[verdict], "line": {"width": 2}, "color": colour}
        labels = [f"  {two_digits(value)}" for value in values]
        groups.append(PointGroup(values, rows, hovers, marker, meaning, labels, sides="middle right"))
    return points(
        groups,
        x_axis={"title": {"text": f"{plain(measure)}; grey: 95% of random rankings"}},
        y_axis=row_axis(methods, 40, showgrid=True),
        height=round(len(methods) * sized(26, 36) + 110),
        band=band,
    )


def totals_chart(
    words: Sequence[str], means: np.ndarray, errors: np.ndarray, texts: Sequence[int], *, unit: str
) -> go.Figure:
    """Draw the mean attribution of words over a file as points with 95% confidence intervals.

    means, errors: (word,) means and standard errors, NaN for a word in one text only. texts: (word,) number of texts.
    unit: of the means. Raises ValueError if the lengths differ.
    """
    require_equal_lengths(words=words, means=means, errors=errors, counts_of_texts=texts)
    scale, is_positive = DIVERGING.colours(), [mean > 0 for mean in means.tolist()]
    marker = {
        "color": [scale[-2] if sign else scale[1] for sign in is_positive],
        "symbol": ["circle" if sign else "diamond" for sign in is_positive],
    }
    hovers = [
        f"{plain(word)}<br>mean {mean:.9g}, standard error {error:.3g}<br>{count} texts"
        for word, mean, error, count in zip(words, means.tolist(), errors.tolist(), texts, strict=True)
    ]
    intervals = np.nan_to_num(1.96 * errors).tolist()
    labels = [f"{word} ({count})" for word, count in zip(words, texts, strict=True)]
    return points(
        [PointGroup(means.tolist(), range(len(words)), hovers, marker, errors=intervals)],
        x_axis={"title": {"text": plain(unit)}},
        y_axis=row_axis(labels, 32, showgrid=True, tickfont={"family": TOKEN_FONT}),
        height=round(len(words) * sized(24, 34) + 90),
    )

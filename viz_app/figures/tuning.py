"""Figures of training: losses and scores from step to step, and the similarity of depths of two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    SEQUENTIAL,
    cells,
    figure_of,
    label_axis,
    lines,
    page,
    plain,
    series_line,
    sized,
    two_digits,
    vertical_rule,
)

LONGEST_HOVER = 60


def tuning_lines(
    series: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    *,
    steps: int,
    title: str,
    shares: bool = False,
    selected: int | None = None,
) -> go.Figure:
    """Draw series of numbers against the steps of a training; series of few points have markers.

    series: name -> steps, and a number at each. steps: number of steps of the training. title: of the vertical axis.
    shares: whether numbers are shares, 0 to 1. selected: a step with a vertical line.
    Names and title are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    """
    colours = page()
    form = ".1%" if shares else ".4f"
    traces = []
    for number, (name, (positions, values)) in enumerate(series.items()):
        hover = f"{plain(name, LONGEST_HOVER)}<br>step %{{x}}: %{{y:{form}}}"
        style: dict[str, Any] = {"name": plain(name, 40), "line": series_line(number), "marker": {"size": sized(7, 10)}}
        style |= {"mode": "lines" if len(positions) > 24 else "lines+markers", "cliponaxis": False}
        traces.append(lines(list(positions), list(values), hover, **style))
    rule = {"color": colours.accent, "width": 2, "dash": "dot"}
    value_axis = {"title": {"text": plain(title)}, "rangemode": "tozero", "fixedrange": True, "zeroline": False}
    layout = {
        "height": sized(260, 340),
        "margin": {"l": 8, "r": 16, "t": 36, "b": 8},
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "xaxis": {"title": {"text": "step"}, "range": [0, max(steps, 1)], "fixedrange": True, "zeroline": False},
        "yaxis": value_axis | ({"tickformat": ".0%", "range": [0, 1.02]} if shares else {}),
        "shapes": [] if selected is None else [vertical_rule(selected, rule, "paper")],
    }
    return figure_of(traces, layout)


def alike_depths(
    values: np.ndarray, names: Sequence[str], column_names: Sequence[str], *, rows: str, columns: str
) -> go.Figure:
    """Draw the similarity of the states of each depth of one model and each depth of another, 0 to 1.

    values: (depth, depth) CKA, first row at the bottom. names, column_names: of the depths. rows, columns: names of the
        two models.
    All labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the names do not fit the values.
    """
    if values.shape != (len(names), len(column_names)):
        raise ValueError(
            f"values of shape {values.shape} with {len(names)} and {len(column_names)} names: one for each"
        )
    size = sized(12, 16) if max(values.shape) <= 9 else sized(10, 12)
    axis = {"fixedrange": True, "tickfont": {"size": size}}
    texts = [[two_digits(float(value)) for value in row] for row in values]
    hover = f"{plain(rows)} %{{y}}<br>{plain(columns)} %{{x}}<br>CKA %{{customdata:.6f}}"
    scale = {"zmin": 0, "zmax": 1, "colorscale": SEQUENTIAL.colorscale(), "showscale": False, "xgap": 2, "ygap": 2}
    text_style = {"text": texts, "texttemplate": "%{text}", "textfont": {"size": size}}
    trace = cells(np.clip(values, 0, 1), hover, customdata=values, **text_style, **scale)
    layout = {
        "height": round(len(names) * sized(36, 46)) + 90,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": label_axis(column_names, title={"text": plain(columns)}, **axis),
        "yaxis": label_axis(names, title={"text": plain(rows)}, **axis),
    }
    return figure_of([trace], layout)

"""A model while it learns: its losses and scores from step to step, and how alike its depths stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    HEAD_COLOURS,
    HEAD_DASHES,
    SEQUENTIAL,
    figure_of,
    page,
    plain,
    sized,
    two_digits,
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
    """Some figures of a run against its steps; those of few points with marks.

    series: name -> steps, and a number at each. steps: how many there will be. title: what is drawn upwards.
    shares: of all, from 0 to 1. selected: a step with a line through it.
    Names and title are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    """
    colours = page()
    form = ".1%" if shares else ".4f"
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "x": list(positions), "y": list(values), "name": plain(name, 40), "cliponaxis": False,
            "mode": "lines" if len(positions) > 24 else "lines+markers",
            "line": {"width": sized(2.5, 4), "color": HEAD_COLOURS[number], "dash": HEAD_DASHES[number]},
            "marker": {"size": sized(7, 10)},
            "hovertemplate": f"{plain(name, LONGEST_HOVER)}<br>step %{{x}}: %{{y:{form}}}<extra></extra>",
        }
        for number, (name, (positions, values)) in enumerate(series.items())
    ]  # fmt: skip
    layout = {
        "height": sized(260, 340),
        "margin": {"l": 8, "r": 16, "t": 36, "b": 8},
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "xaxis": {"title": {"text": "step"}, "range": [0, max(steps, 1)], "fixedrange": True, "zeroline": False},
        "yaxis": {
            "title": {"text": plain(title)}, "rangemode": "tozero", "fixedrange": True, "zeroline": False,
            **({"tickformat": ".0%", "range": [0, 1.02]} if shares else {}),
        },
        "shapes": [] if selected is None else [{
            "type": "line", "x0": selected, "x1": selected, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": colours.accent, "width": 2, "dash": "dot"},
        }],
    }  # fmt: skip
    return figure_of(traces, layout)


def alike_depths(
    values: np.ndarray,
    names: Sequence[str],
    column_names: Sequence[str],
    *,
    rows: str,
    columns: str,
) -> go.Figure:
    """How alike the states of each depth of a model are to those of each depth of another, 0 to 1.

    values: (depth, depth), rows from below. names, column_names: of the depths. rows, columns: whose they are.
    All labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the names do not fit the values.
    """
    if values.shape != (len(names), len(column_names)):
        raise ValueError(
            f"values of shape {values.shape} with {len(names)} and {len(column_names)} names: one for each"
        )
    size = sized(12, 16) if max(values.shape) <= 9 else sized(10, 12)
    shared = {"showgrid": False, "zeroline": False, "fixedrange": True, "tickfont": {"size": size}}
    map_ = {
        "type": "heatmap", "z": np.clip(values, 0, 1), "zmin": 0, "zmax": 1, "xgap": 2, "ygap": 2,
        "colorscale": SEQUENTIAL.colorscale(), "showscale": False, "customdata": values,
        "text": [[two_digits(float(value)) for value in row] for row in values], "texttemplate": "%{text}",
        "textfont": {"size": size},
        "hovertemplate": f"{plain(rows)} %{{y}}<br>{plain(columns)} %{{x}}<br>CKA %{{customdata:.6f}}<extra></extra>",
    }  # fmt: skip
    layout = {
        "height": round(len(names) * sized(36, 46)) + 90,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "xaxis": {
            **shared, "title": {"text": plain(columns)}, "tickmode": "array",
            "tickvals": list(range(len(column_names))),
            "ticktext": list(column_names),
        },
        "yaxis": {
            **shared, "title": {"text": plain(rows)}, "tickmode": "array", "tickvals": list(range(len(names))),
            "ticktext": list(names),
        },
    }  # fmt: skip
    return figure_of([map_], layout)

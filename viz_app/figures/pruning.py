"""What is left of a model as its heads go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import HEAD_COLOURS, figure_of, page


def pruning_curve(
    curves: Sequence[tuple[str, np.ndarray, np.ndarray]],
    band: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    own: tuple[float, float] | None,
    heads: int,
    unit: str,
    dark: bool,
    lecture: bool = False,
) -> go.Figure:
    """One figure of a model against the share of its heads that is gone.

    curves: name, heads removed (point,) and figure (point,). band: of random orders, heads removed, lowest, mean and
    highest, (point,) each. own: heads removed and figure of the reader's own choice. heads: how many there were.
    unit: what the figure is.
    """
    colours = page(dark)
    width = 4 if lecture else 2.5
    removed, low, mean, high = band
    shared = {"hovertemplate": "%{x:.0%} gone<br>%{y:.4~g}<extra>%{fullData.name}</extra>"}
    lines: list[dict[str, Any]] = []
    if len(removed):
        edge = {
            "x": removed / heads, "mode": "lines", "line": {"width": 0, "color": colours.faint}, "hoverinfo": "skip",
            "showlegend": False,
        }  # fmt: skip
        lines += [
            {**edge, "y": high},
            {**edge, "y": low, "fill": "tonexty", "fillcolor": "rgba(140, 148, 160, 0.28)"},
            {
                "x": removed / heads, "y": mean, "mode": "lines", "name": "random orders: mean and range", **shared,
                "line": {"width": width, "color": colours.faint, "dash": "dot"},
            },
        ]  # fmt: skip
    lines += [
        {
            "x": x / heads, "y": y, "name": name, "mode": "lines+markers", **shared,
            "line": {"width": width, "color": HEAD_COLOURS[number]}, "marker": {"size": 9 if lecture else 6},
        }
        for number, (name, x, y) in enumerate(curves)
    ]  # fmt: skip
    if own is not None:
        lines.append({
            "x": [own[0] / heads], "y": [own[1]], "name": "the heads that are off now", "mode": "markers", **shared,
            "marker": {
                "size": 18 if lecture else 14, "symbol": "diamond", "color": colours.accent,
                "line": {"width": 2, "color": colours.background},
            },
        })  # fmt: skip
    layout = {
        "height": 480 if lecture else 360,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "xaxis": {"title": {"text": "share of heads removed"}, "tickformat": ".0%", "range": [-0.02, 1.02]},
        "yaxis": {"title": {"text": unit}},
    }
    return figure_of([{"type": "scatter", **line} for line in lines], layout, dark=dark, lecture=lecture)

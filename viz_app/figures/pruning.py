"""What is left of a model as its heads, neurons or layers go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import HEAD_COLOURS, figure_of, page, sized


def pruning_curve(
    curves: Sequence[tuple[str, np.ndarray, np.ndarray]],
    band: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    current_point: tuple[float, float] | None,
    total: int,
    unit: str,
    part_name: str = "heads",
) -> go.Figure:
    """One figure of a model against the share of its heads that is gone, or of its other parts.

    curves: name, how many are removed (point,) and figure (point,). band: of random orders, how many, lowest, mean and
    highest, (point,) each. current_point: how many, and figure of the reader's own choice. total: how many there were.
    unit: what the figure is. part_name: the parts in words.
    """
    colours = page()
    current_label = f"the {part_name} that are {'off' if part_name == 'heads' else 'gone'} now"
    width = sized(2.5, 4)
    removed, low, mean, high = band
    shared = {"hovertemplate": "%{x:.0%} gone<br>%{y:.4~g}<extra>%{fullData.name}</extra>"}
    lines: list[dict[str, Any]] = []
    if len(removed):
        edge = {
            "x": removed / total, "mode": "lines", "line": {"width": 0, "color": colours.faint}, "hoverinfo": "skip",
            "showlegend": False,
        }  # fmt: skip
        lines += [
            {**edge, "y": high},
            {**edge, "y": low, "fill": "tonexty", "fillcolor": "rgba(140, 148, 160, 0.28)"},
            {
                "x": removed / total, "y": mean, "mode": "lines", "name": "random orders: mean and range", **shared,
                "line": {"width": width, "color": colours.faint, "dash": "dot"},
            },
        ]  # fmt: skip
    lines += [
        {
            "x": x / total, "y": y, "name": name, "mode": "lines+markers", **shared,
            "line": {"width": width, "color": HEAD_COLOURS[number]}, "marker": {"size": sized(6, 9)},
        }
        for number, (name, x, y) in enumerate(curves)
    ]  # fmt: skip
    if current_point is not None:
        lines.append({
            "x": [current_point[0] / total], "y": [current_point[1]], "name": current_label, "mode": "markers",
            **shared,
            "marker": {
                "size": sized(14, 18), "symbol": "diamond", "color": colours.accent,
                "line": {"width": 2, "color": colours.background},
            },
        })  # fmt: skip
    layout = {
        "height": sized(360, 480),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "xaxis": {"title": {"text": f"share of {part_name} removed"}, "tickformat": ".0%", "range": [-0.02, 1.02]},
        "yaxis": {"title": {"text": unit}},
    }
    return figure_of([{"type": "scatter", **line} for line in lines], layout)

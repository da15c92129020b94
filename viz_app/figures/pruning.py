"""The curve of a model's score against the share of its heads, neurons or layers that were removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import HEAD_COLOURS, figure_of, lines, page, points, sized


def pruning_curve(
    curves: Sequence[tuple[str, np.ndarray, np.ndarray]],
    band: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    current_point: tuple[float, float] | None,
    total: int,
    unit: str,
    part_name: str = "heads",
) -> go.Figure:
    """Draw a score of a model against the share of its heads, or of its other parts, that was removed.

    curves: name, number of removed parts (point,) and score (point,) each. band: of random orders: number of removed
        parts, lowest, mean and highest score, (point,) each. current_point: number of removed parts and score of the
        current selection. total: number of parts before. unit: of the score, in words. part_name: of the parts.
    """
    colours = page()
    current_label = f"the {part_name} that are {'off' if part_name == 'heads' else 'gone'} now"
    width = sized(2.5, 4)
    removed, low, mean, high = band
    hover = "%{x:.0%} gone<br>%{y:.4~g}<extra>%{fullData.name}</extra>"
    traces: list[dict[str, Any]] = []
    if len(removed):
        shares, edge = removed / total, {"line": {"width": 0, "color": colours.faint}, "showlegend": False}
        dotted = {"width": width, "color": colours.faint, "dash": "dot"}
        traces = [
            lines(shares, high, **edge),
            lines(shares, low, fill="tonexty", fillcolor="rgba(140, 148, 160, 0.28)", **edge),
            lines(shares, mean, hover, name="random orders: mean and range", line=dotted),
        ]
    for number, (name, x, y) in enumerate(curves):
        line = {"width": width, "color": HEAD_COLOURS[number]}
        traces.append(lines(x / total, y, hover, name=name, line=line, marker={"size": sized(6, 9)}))
    if current_point is not None:
        marker: dict[str, Any] = {"size": sized(14, 18), "symbol": "diamond", "color": colours.accent}
        marker["line"] = {"width": 2, "color": colours.background}
        share, score = current_point[0] / total, current_point[1]
        traces.append(points([share], [score], hover, name=current_label, marker=marker))
    layout = {
        "height": sized(360, 480),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "xaxis": {"title": {"text": f"share of {part_name} removed"}, "tickformat": ".0%", "range": [-0.02, 1.02]},
        "yaxis": {"title": {"text": unit}},
    }
    return figure_of(traces, layout)

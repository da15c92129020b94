"""What is left of a model as its heads, neurons or layers go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import HEAD_COLOURS, current_look, figure_of, page


def pruning_curve(
    curves: Sequence[tuple[str, np.ndarray, np.ndarray]],
    band: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    own: tuple[float, float] | None,
    there: int,
    unit: str,
    what: str = "heads",
) -> go.Figure:
    """One figure of a model against the share of its heads that is gone, or of its other parts.

    curves: name, how many are removed (point,) and figure (point,). band: of random orders, how many, lowest, mean and
    highest, (point,) each. own: how many, and figure of the reader's own choice. there: how many there were.
    unit: what the figure is. what: the parts in words.
    """
    look = current_look()
    colours = page()
    now = f"the {what} that are {'off' if what == 'heads' else 'gone'} now"
    width = 4 if look.lecture else 2.5
    removed, low, mean, high = band
    shared = {"hovertemplate": "%{x:.0%} gone<br>%{y:.4~g}<extra>%{fullData.name}</extra>"}
    lines: list[dict[str, Any]] = []
    if len(removed):
        edge = {
            "x": removed / there, "mode": "lines", "line": {"width": 0, "color": colours.faint}, "hoverinfo": "skip",
            "showlegend": False,
        }  # fmt: skip
        lines += [
            {**edge, "y": high},
            {**edge, "y": low, "fill": "tonexty", "fillcolor": "rgba(140, 148, 160, 0.28)"},
            {
                "x": removed / there, "y": mean, "mode": "lines", "name": "random orders: mean and range", **shared,
                "line": {"width": width, "color": colours.faint, "dash": "dot"},
            },
        ]  # fmt: skip
    lines += [
        {
            "x": x / there, "y": y, "name": name, "mode": "lines+markers", **shared,
            "line": {"width": width, "color": HEAD_COLOURS[number]}, "marker": {"size": 9 if look.lecture else 6},
        }
        for number, (name, x, y) in enumerate(curves)
    ]  # fmt: skip
    if own is not None:
        lines.append({
            "x": [own[0] / there], "y": [own[1]], "name": now, "mode": "markers", **shared,
            "marker": {
                "size": 18 if look.lecture else 14, "symbol": "diamond", "color": colours.accent,
                "line": {"width": 2, "color": colours.background},
            },
        })  # fmt: skip
    layout = {
        "height": 480 if look.lecture else 360,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "xaxis": {"title": {"text": f"share of {what} removed"}, "tickformat": ".0%", "range": [-0.02, 1.02]},
        "yaxis": {"title": {"text": unit}},
    }
    return figure_of([{"type": "scatter", **line} for line in lines], layout)

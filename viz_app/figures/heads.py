"""One head, one point: what an estimate says of it against what happens."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import page, styled


def sweep_scatter(estimated: np.ndarray, found: np.ndarray, *, dark: bool, lecture: bool = False) -> go.Figure:
    """Change of the target without each head: as its gradient estimates it, and as it is.

    estimated, found: (layer, head); a head that is NaN in either is left out. On the thin line both agree.
    Raises ValueError if the shapes differ.
    """
    if estimated.shape != found.shape:
        raise ValueError(f"{estimated.shape} estimates and {found.shape} findings: one of each for every head")
    there = np.isfinite(estimated) & np.isfinite(found)
    x, y = estimated[there], found[there]
    names = [f"L{layer} H{head}" for layer, head in np.argwhere(there)]
    # Those that stand out have their names beside them; the others have them on hover.
    named = set(np.argsort(-np.abs(y))[:6].tolist()) | set(np.argsort(-np.abs(x))[:3].tolist())
    low, high = (float(min(x.min(), y.min())), float(max(x.max(), y.max()))) if len(x) else (0.0, 1.0)
    colours = page(dark)
    figure = go.Figure(
        [
            go.Scatter(
                x=[low, high], y=[low, high], mode="lines", hoverinfo="skip", showlegend=False,
                line={"color": colours.faint, "width": 2 if lecture else 1, "dash": "dot"},
            ),
            go.Scatter(
                x=x, y=y, mode="markers+text", showlegend=False, customdata=names,
                text=[name if number in named else "" for number, name in enumerate(names)],
                textposition="top center", textfont={"size": 16 if lecture else 11, "color": colours.faint},
                marker={"size": 12 if lecture else 8, "color": colours.accent, "opacity": 0.75},
                hovertemplate="%{customdata}<br>estimated %{x:+.9g}<br>found %{y:+.9g}<extra></extra>",
            ),
        ]
    )  # fmt: skip
    figure.update_layout(height=460 if lecture else 340, margin={"l": 8, "r": 8, "t": 24, "b": 8})
    figure.update_xaxes(title_text="estimated: minus the slope of the head", zeroline=True)
    figure.update_yaxes(title_text="found: change of the target without it", zeroline=True)
    return styled(figure, dark=dark, lecture=lecture)

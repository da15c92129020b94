"""Heads as points and bars: an estimate against what happens, who is like whom, and what one head does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import HEAD_COLOURS, figure_of, page, plain, sized

# The figures of `role_figures`, in their order, and what an order by each of them is called.
FIGURE_ORDERS = {"entropy": "by entropy", "to_sep": "by share to [SEP]", "distance": "by mean distance"}
BY_ROLE = "by role"  # of the heads of a layer; a layer has none
ROLE_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "circle-open")


def sweep_scatter(
    estimated: np.ndarray,
    measured: np.ndarray,
    *,
    estimate: str = "estimated: minus the gradient of the head",
    finding: str = "found: change of the answer without it",
) -> go.Figure:
    """What an estimate says of every head, and what is found without it.

    estimated, measured: (layer, head); a head that is NaN in either is left out. On the thin line both agree.
    A point's customdata is its layer and head.
    estimate, finding: what stands at the axes.
    Raises ValueError if the shapes differ.
    """
    if estimated.shape != measured.shape:
        raise ValueError(f"{estimated.shape} estimates and {measured.shape} findings: one of each for every head")
    is_known = np.isfinite(estimated) & np.isfinite(measured)
    x, y = estimated[is_known], measured[is_known]
    heads = np.argwhere(is_known).tolist()
    names = [f"L{layer} H{head}" for layer, head in heads]
    # Those that stand out have their names beside them; the others have them on hover.
    labelled = set(np.argsort(-np.abs(y))[:6].tolist()) | set(np.argsort(-np.abs(x))[:3].tolist())
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
    colours = page()
    traces = [
        {
            "type": "scatter", "x": [low, high], "y": [low, high], "mode": "lines", "hoverinfo": "skip",
            "showlegend": False, "line": {"color": colours.faint, "width": sized(1, 2), "dash": "dot"},
        },
        {
            "type": "scatter", "x": x, "y": y, "mode": "markers+text", "showlegend": False, "customdata": heads,
            "text": [name if number in labelled else "" for number, name in enumerate(names)],
            "textposition": "top center", "textfont": {"size": sized(11, 16), "color": colours.faint},
            "marker": {"size": sized(8, 12), "color": colours.accent, "opacity": 0.75},
            "selected": {"marker": {"opacity": 0.75}}, "unselected": {"marker": {"opacity": 0.75}},
            "hovertemplate": "L%{customdata[0]} H%{customdata[1]}<br>estimated %{x:+.9g}<br>found %{y:+.9g}"
            "<extra></extra>",
        },
    ]  # fmt: skip
    layout = {
        "height": sized(340, 460),
        "dragmode": False,
        "margin": {"l": 8, "r": 8, "t": 24, "b": 8},
        "xaxis": {"title": {"text": estimate}, "zeroline": True},
        "yaxis": {"title": {"text": finding}, "zeroline": True},
    }
    return figure_of(traces, layout)


def role_map(
    points: np.ndarray,
    roles: Mapping[str, Sequence[tuple[int, int]]],
    selected: tuple[int, int],
    *,
    names: Mapping[str, str],
) -> go.Figure:
    """Every head as a point, near to those that attend alike; a mark of its own for each role.

    points: (layer, head, 2); NaN is a head that is not there. roles: role -> its heads; names: role -> its words.
    selected: the head that is ringed. A point's customdata is its layer and head.
    """
    colours = page()
    traces: list[dict[str, Any]] = []
    for number, (role, heads) in enumerate(roles.items()):
        if not heads:
            continue
        coordinates = np.array([points[head] for head in heads])
        traces.append({
            "type": "scatter", "x": coordinates[:, 0], "y": coordinates[:, 1], "name": names[role],
            "mode": "markers+text" if len(heads) < 8 else "markers", "customdata": heads,
            "text": ["" if head == selected else f"L{head[0]} H{head[1]}" for head in map(tuple, heads)],
            "textfont": {"size": sized(11, 15), "color": colours.faint}, "textposition": "top center",
            "cliponaxis": False,
            "marker": {
                "size": sized(11, 15), "symbol": ROLE_SYMBOLS[number % len(ROLE_SYMBOLS)],
                "color": HEAD_COLOURS[number % len(HEAD_COLOURS)] if number < len(roles) - 1 else colours.faint,
            },
            "selected": {"marker": {"opacity": 1}}, "unselected": {"marker": {"opacity": 1}},
            "hovertemplate": "L%{customdata[0]} H%{customdata[1]}<br>" + names[role] + "<extra></extra>",
        })  # fmt: skip
    if np.isfinite(points[selected]).all():
        x, y = points[selected].tolist()
        traces.append({
            "type": "scatter", "x": [x], "y": [y], "mode": "markers+text", "showlegend": False, "hoverinfo": "skip",
            "customdata": [selected],
            # Its name belongs to the ring, and so keeps clear of it.
            "text": [f"L{selected[0]} H{selected[1]}"], "textposition": "top center", "cliponaxis": False,
            "textfont": {"size": sized(12, 15), "color": colours.text},
            "marker": {
                "size": sized(22, 30), "symbol": "circle-open", "color": colours.text,
                "line": {"width": sized(2, 3)},
            },
            "unselected": {"marker": {"opacity": 1}},
        })  # fmt: skip
    layout = {
        "height": sized(500, 620),
        "clickmode": "event+select",
        "dragmode": False,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {"y": -0.02, "yanchor": "top"},
        "xaxis": {"visible": False},
        "yaxis": {"visible": False, "scaleanchor": "x"},
    }
    return figure_of(traces, layout)


def role_bars(scores: Sequence[float], labels: Sequence[str], thresholds: Sequence[float]) -> go.Figure:
    """How far a head fills each role, 0 to 1, and where each role begins.

    scores, labels, thresholds: one of each a role, the first on top. Raises ValueError if they are not as many.
    """
    if not len(scores) == len(labels) == len(thresholds):
        raise ValueError(f"{len(scores)} scores, {len(labels)} labels and {len(thresholds)} thresholds: one of each")
    colours, rows = page(), list(range(len(labels)))
    filled = [colours.accent if s > t else colours.line for s, t in zip(scores, thresholds, strict=True)]
    traces = [
        {
            "type": "bar", "x": list(scores), "y": rows, "orientation": "h", "showlegend": False,
            "marker": {"color": filled}, "text": [f"{score:.2f}" for score in scores], "textposition": "outside",
            "cliponaxis": False, "customdata": [plain(label) for label in labels],
            "hovertemplate": "%{customdata}: %{x:.9g}<extra></extra>",
        },
        {
            "type": "scatter", "x": list(thresholds), "y": rows, "mode": "markers", "showlegend": False,
            "marker": {"symbol": "line-ns-open", "size": sized(16, 22), "color": colours.text},
            "hovertemplate": "the role begins above %{x:.9g}<extra></extra>",
        },
    ]  # fmt: skip
    layout = {
        "height": sized(30, 44) * len(labels) + 40,
        "margin": {"l": 8, "r": 32, "t": 4, "b": 4},
        "xaxis": {"range": [0, 1.08], "tickvals": [0, 0.5, 1]},
        "yaxis": {"tickvals": rows, "ticktext": [plain(label) for label in labels], "autorange": "reversed"},
    }
    return figure_of(traces, layout)


def head_titles(
    entropy: np.ndarray,
    to_sep: np.ndarray,
    distance: np.ndarray,
    *,
    roles: Sequence[Sequence[str]],
    existing: np.ndarray,
) -> list[list[str]]:
    """What a head does, and under it its role figures (layer, head).

    roles: its role in words. existing: which heads exist.
    """
    layers, heads = entropy.shape
    return [
        [
            f"L{layer} H{head}: pruned"
            if not existing[layer, head]
            else f"L{layer} H{head}: {roles[layer][head]}\n"
            f"entropy {entropy[layer, head]:.2f} nats, {to_sep[layer, head]:.0%} to [SEP], "
            f"mean distance {distance[layer, head]:.1f} tokens"
            for head in range(heads)
        ]
        for layer in range(layers)
    ]

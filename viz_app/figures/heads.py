"""Heads as points and bars: an estimate against what happens, who is like whom, and what one head does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    HEAD_COLOURS,
    figure_of,
    labelled_bars,
    lines,
    page,
    plain,
    points,
    same_when_selected,
    sized,
)

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
    """Draw the estimated effect of every head against the measured one.

    estimated, measured: (layer, head); a head that is NaN in either is left out. On the thin line both are equal.
    The customdata of a point is its layer and head. estimate, finding: titles of the axes.
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
    equality = {"color": colours.faint, "width": sized(1, 2), "dash": "dot"}
    hover = "L%{customdata[0]} H%{customdata[1]}<br>estimated %{x:+.9g}<br>found %{y:+.9g}"
    text = [name if number in labelled else "" for number, name in enumerate(names)]
    style = {"customdata": heads, "text": text, "textposition": "top center", "showlegend": False}
    font = {"size": sized(11, 16), "color": colours.faint}
    marker = {"size": sized(8, 12), "color": colours.accent, "opacity": 0.75}
    selection = same_when_selected(marker={"opacity": 0.75})
    traces = [
        lines([low, high], [low, high], showlegend=False, line=equality),
        points(x, y, hover, mode="markers+text", marker=marker, textfont=font, **style, **selection),
    ]
    layout = {
        "height": sized(340, 460),
        "dragmode": False,
        "margin": {"l": 8, "r": 8, "t": 24, "b": 8},
        "xaxis": {"title": {"text": estimate}, "zeroline": True},
        "yaxis": {"title": {"text": finding}, "zeroline": True},
    }
    return figure_of(traces, layout)


def role_map(
    positions: np.ndarray,
    roles: Mapping[str, Sequence[tuple[int, int]]],
    selected: tuple[int, int],
    *,
    names: Mapping[str, str],
) -> go.Figure:
    """Draw every head as a point, near heads with similar attention, with one symbol for each role.

    positions: (layer, head, 2); NaN for a head that does not exist. roles: role -> its heads. names: role -> its label.
    selected: the head with a ring. The customdata of a point is its layer and head.
    """
    colours = page()
    traces: list[dict[str, Any]] = []
    label_style = {"textposition": "top center", "cliponaxis": False}
    for number, (role, heads) in enumerate(roles.items()):
        if not heads:
            continue
        coordinates = np.array([positions[head] for head in heads])
        is_last = number == len(roles) - 1
        marker = {
            "size": sized(11, 15),
            "symbol": ROLE_SYMBOLS[number % len(ROLE_SYMBOLS)],
            "color": colours.faint if is_last else HEAD_COLOURS[number % len(HEAD_COLOURS)],
        }
        text = ["" if head == selected else f"L{head[0]} H{head[1]}" for head in map(tuple, heads)]
        font = {"size": sized(11, 15), "color": colours.faint}
        style: dict[str, Any] = {
            "mode": "markers+text" if len(heads) < 8 else "markers",
            "customdata": heads,
            **label_style,
        }
        style |= {"text": text, "textfont": font, "name": names[role], "marker": marker}
        hover = "L%{customdata[0]} H%{customdata[1]}<br>" + names[role]
        selection = same_when_selected(marker={"opacity": 1})
        traces.append(points(coordinates[:, 0], coordinates[:, 1], hover, **style, **selection))
    if np.isfinite(positions[selected]).all():
        x, y = positions[selected].tolist()
        line = {"width": sized(2, 3)}
        marker = {"size": sized(22, 30), "symbol": "circle-open", "color": colours.text, "line": line}
        # The ring has the label of the selected head, so that the two do not overlap.
        style = {"mode": "markers+text", "text": [f"L{selected[0]} H{selected[1]}"], "customdata": [selected]}
        style |= {"textfont": {"size": sized(12, 15), "color": colours.text}, "marker": marker, "showlegend": False}
        traces.append(points([x], [y], **style, **label_style, unselected={"marker": {"opacity": 1}}))
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
    """Draw the score of a head in each role, 0 to 1, and the threshold of each role.

    scores, labels, thresholds: (role,), the first on top. Raises ValueError if the lengths differ.
    """
    if not len(scores) == len(labels) == len(thresholds):
        raise ValueError(f"{len(scores)} scores, {len(labels)} labels and {len(thresholds)} thresholds: one of each")
    colours, rows = page(), list(range(len(labels)))
    filled = [colours.accent if s > t else colours.line for s, t in zip(scores, thresholds, strict=True)]
    texts, names = [f"{score:.2f}" for score in scores], [plain(label) for label in labels]
    hover = "%{customdata}: %{x:.9g}"
    marker = {"symbol": "line-ns-open", "size": sized(16, 22), "color": colours.text}
    traces = [
        labelled_bars(scores, texts, names, hover, marker={"color": filled}, showlegend=False),
        points(list(thresholds), rows, "the role begins above %{x:.9g}", marker=marker, showlegend=False),
    ]
    layout = {
        "height": sized(30, 44) * len(labels) + 40,
        "margin": {"l": 8, "r": 32, "t": 4, "b": 4},
        "xaxis": {"range": [0, 1.08], "tickvals": [0, 0.5, 1]},
        "yaxis": {"tickvals": rows, "ticktext": names, "autorange": "reversed"},
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
    """Return the role of each head and its measures in words, (layer, head).

    entropy: in nats. to_sep: share of attention to [SEP], 0 to 1. distance: mean distance in tokens.
    roles: (layer, head), in words. existing: (layer, head), which heads exist.
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

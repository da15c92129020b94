"""Heads as points and bars: an estimate against what happens, who is like whom, and what one head does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import SYMBOLS, PointGroup, bars, points, require_equal_lengths
from viz_app.figures.style import HEAD_COLOURS, page, sized

# Figures of `role_figures`, and what an order by each of them is called.
FIGURE_ORDERS = {"entropy": "by entropy", "to_sep": "by share to [SEP]", "distance": "by mean distance"}
BY_ROLE = "by role"  # of the heads of a layer; a layer has none


def sweep_scatter(
    estimated: np.ndarray,
    measured: np.ndarray,
    *,
    estimate: str = "contribution, estimated from the gradient",
    finding: str = "contribution, measured by ablation",
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
    hovers = [f"{name}<br>estimated {a:+.4g}<br>measured {b:+.4g}" for name, a, b in zip(names, x, y, strict=True)]
    labels = [name if number in labelled else "" for number, name in enumerate(names)]
    marker = {"size": sized(8, 12), "color": page().accent, "opacity": 0.75}
    return points(
        [PointGroup(x.tolist(), y.tolist(), hovers, marker, labels=labels, clicks=heads)],
        x_axis={"title": {"text": estimate}},
        y_axis={"title": {"text": finding}, "zeroline": True},
        height=sized(340, 460),
        diagonal=(float(x.min()), float(x.max())) if len(x) else (0.0, 1.0),
    )


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
    colours, groups = page(), []
    for number, (role, heads) in enumerate(roles.items()):
        if not heads:
            continue
        colour = colours.faint if number == len(roles) - 1 else HEAD_COLOURS[number % len(HEAD_COLOURS)]
        marker = {"color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)]}
        head_names = [f"L{layer} H{head}" for layer, head in heads]
        labels = ["" if tuple(head) == selected else name for head, name in zip(heads, head_names, strict=True)]
        hovers = [f"{name}<br>{names[role]}" for name in head_names]
        x, y = np.array([positions[head] for head in heads]).T.tolist()
        labels = labels if len(heads) < 8 else []
        groups.append(PointGroup(x, y, hovers, marker, names[role], labels, heads))
    if np.isfinite(positions[selected]).all():
        x, y = positions[selected].tolist()
        ring = {"size": sized(22, 30), "symbol": "circle-open", "color": colours.text, "line": {"width": sized(2, 3)}}
        # The ring has the label of the selected head, so that the two do not overlap.
        label, font = [f"L{selected[0]} H{selected[1]}"], {"size": sized(12, 15), "color": colours.text}
        groups.append(PointGroup([x], [y], None, ring, labels=label, clicks=[selected], font=font))
    return points(
        groups,
        x_axis={"visible": False},
        y_axis={"visible": False, "scaleanchor": "x"},
        height=sized(500, 620),
        clickmode="event+select",
        margin={"t": 16},
        legend={"y": -0.02, "yanchor": "top"},
    )


def role_bars(scores: Sequence[float], labels: Sequence[str], thresholds: Sequence[float]) -> go.Figure:
    """Draw the score of a head in each role, 0 to 1, and the threshold of each role.

    scores, labels, thresholds: (role,), the first on top. Raises ValueError if the lengths differ.
    """
    require_equal_lengths(scores=scores, labels=labels, thresholds=thresholds)
    colours = page()
    filled = [colours.accent if s > t else colours.line for s, t in zip(scores, thresholds, strict=True)]
    return bars(
        labels,
        {"": scores},
        title="",
        write=lambda score: f"{score:.2f}",
        fills={"": {"color": filled}},
        marks=("the role begins above", thresholds),
        legend=False,
        limits=(0, 1.08),
        tokens=False,
        longest=40,
        axis={"tickvals": [0, 0.5, 1]},
    )


def head_titles(
    entropy: np.ndarray,
    to_sep: np.ndarray,
    distance: np.ndarray,
    relative_entropy: np.ndarray,
    *,
    roles: Sequence[Sequence[str]],
    existing: np.ndarray,
    windows: Sequence[int | None] = (),
) -> list[list[str]]:
    """Return the role of each head and its measures in words, (layer, head).

    entropy: in nats. to_sep: share of attention to [SEP], 0 to 1. distance: mean distance in tokens.
    relative_entropy: share of the largest possible entropy, written for local layers.
    roles: (layer, head), in words. existing: (layer, head), which heads exist. windows: those of `ModelRun`.
    """

    def title(layer: int, head: int) -> str:
        place = layer, head
        if not existing[place]:
            return f"L{layer} H{head}: pruned"
        measures = f"entropy {entropy[place]:.2f} nats"
        window, local = windows[layer] if windows else None, ""
        if window is not None:
            measures += f" ({relative_entropy[place]:.0%} of its maximum)"
            local = f"\nlocal layer: {window} tokens to each side"
        if np.isfinite(to_sep[place]):
            measures += f", {to_sep[place]:.0%} to [SEP]"
        measures += f", mean distance {distance[place]:.1f} tokens"
        return f"L{layer} H{head}: {roles[layer][head]}\n{measures}{local}"

    layers, heads = entropy.shape
    return [[title(layer, head) for head in range(heads)] for layer in range(layers)]

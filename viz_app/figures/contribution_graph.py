"""Figure of a contribution graph: tokens in columns, depths in rows, and an edge for each share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import (
    CLICKS,
    LONGEST_HOVER,
    LONGEST_LABEL,
    escaped,
    require_equal_lengths,
    scatter,
    ticks_at,
)
from viz_app.figures.style import DIVERGING, figure_of, page, plain, sized, token_font, two_digits

LONGEST_TILTED = 14  # letters of a tilted label
LEVELS = 6  # of width and opacity
ROW_HEIGHT, COLUMN_WIDTH = (52, 64), (46, 64)  # in pixels, and in lecture mode
HIT_PLACE = 0.62  # of the dot of an edge between its query and its key, so that crossing edges have separate dots


def contribution_figure(
    edges: np.ndarray,
    shares: np.ndarray,
    positions: Sequence[int],
    labels: Sequence[str],
    layers: int,
    *,
    targets: Sequence[int],
    selected: tuple[int, int, int],
) -> go.Figure:
    """Draw the edges of a contribution graph, wider and more opaque for a larger share, with the input at the bottom.

    Edges between tokens have the accent colour, those from a token to itself are grey. A click returns as `customdata`
    [layer, query] of a node or [layer, query, key] of an edge.
    edges: (edge, 3) layer, query and key, all at drawn positions. shares: (edge,). positions, labels: of the columns.
    targets: positions of the target. selected: the selected edge, whose query is the selected node.
    Raises ValueError if the lengths differ.
    """
    require_equal_lengths(edges=edges, shares=shares)
    require_equal_lengths(labels=labels, positions=positions)
    colours, column_of = page(), {position: column for column, position in enumerate(positions)}
    layer, query, key = edges.T
    x_query, x_key = (np.array([column_of[place] for place in ends.tolist()], float) for ends in (query, key))
    names = {place: plain(label, LONGEST_HOVER) for place, label in zip(positions, labels, strict=True)}
    highlight, traces = DIVERGING.colours()[-4], []
    edge_colours = {True: colours.faint, False: colours.accent}  # of edges from a token to itself, and of all others
    for is_own in (True, False):
        is_this_kind = (query == key) == is_own
        limit = max(float(shares[is_this_kind].max(initial=0)), 1e-9)  # most shares of other tokens are smaller
        levels = np.minimum((shares / limit * LEVELS).astype(int), LEVELS - 1)
        for level in range(LEVELS):
            selected_edges = np.flatnonzero(is_this_kind & (levels == level))
            strength = (level + 1) / LEVELS
            line = {"color": edge_colours[is_own], "width": sized(1.5, 2.5) + 5 * strength}
            traces.append(
                _lines(
                    x_query[selected_edges], x_key[selected_edges], layer[selected_edges], line, 0.5 + 0.45 * strength
                )
            )
    if all(place in column_of for place in selected[1:]):  # drawn whatever its share
        x_selected = [np.array([float(column_of[place])]) for place in selected[1:]]
        line = {"color": highlight, "width": sized(5, 7)}
        traces.append(_lines(x_selected[0], x_selected[1], np.array([selected[0]]), line, 1.0))
    hovers = [
        f"layer {edge[0]}: {names[edge[2]]} → {names[edge[1]]}<br>share {share:.4g}"
        for edge, share in zip(edges.tolist(), shares.tolist(), strict=True)
    ]
    table = {
        "layer": layer.tolist(), "query position": query.tolist(), "key position": key.tolist(),
        "query": escaped([names[place] for place in query.tolist()]),
        "key": escaped([names[place] for place in key.tolist()]), "share": shares.tolist(),
    }  # fmt: skip
    unchanged: dict[str, Any] = {"selected": {"marker": {"opacity": 1}}, "unselected": {"marker": {"opacity": 1}}}
    dots = {"size": sized(7, 10), "color": colours.background, "line": {"color": colours.faint, "width": 1.5}}
    x_dots, y_dots = x_query + HIT_PLACE * (x_key - x_query), layer + 1 - HIT_PLACE
    traces.append(
        scatter(x_dots, y_dots, hovers, customdata=edges.tolist(), marker=dots, meta={"columns": table}, **unchanged)
    )
    traces += _nodes(edges, column_of, names, targets, layers, selected[:2], highlight, unchanged)
    legend = {
        "from another token": edge_colours[False],
        "from the same token": edge_colours[True],
        "selected": highlight,
    }
    for name, colour in legend.items():
        line = {"color": colour, "width": sized(5, 7)}
        traces.append(scatter([None], [None], mode="lines", line=line, name=name, showlegend=True))
    is_tilted = len(labels) > 12 or max(map(len, labels)) * sized(8, 11) > sized(*COLUMN_WIDTH) * 2
    size, top = sized(13, 17), sized(36, 48)
    column = sized(*COLUMN_WIDTH)
    width = 90 + column * len(labels)
    after_target = len(labels) - column_of[targets[0] if targets else positions[0]] - 0.5  # columns
    names_shown = [plain(label, LONGEST_TILTED if is_tilted else LONGEST_LABEL) for label in labels]
    bottom = 28 + sized(7, 9) * max(map(len, names_shown)) if is_tilted else sized(40, 52)
    layout = {
        **CLICKS,
        "hoverdistance": 14,
        "height": (layers + 1) * sized(*ROW_HEIGHT) + top + bottom,
        "margin": {"l": 8, "r": 16, "t": top, "b": bottom if is_tilted else 8},
        "showlegend": True,
        "xaxis": ticks_at(names_shown)
        | {"range": [-0.6, len(labels) - 0.4], "fixedrange": True, "tickangle": -50 if is_tilted else 0}
        | {"tickfont": token_font(size), "automargin": not is_tilted},
        "yaxis": ticks_at(["embeddings  ", *(f"L{number}  " for number in range(layers))])
        | {"range": [-0.4, layers + 0.4], "fixedrange": True, "tickfont": {"size": size}},
        "meta": {"min_width": width, "center": 1 - column * after_target / width},
    }
    return figure_of(traces, layout)


def _lines(
    x_query: np.ndarray, x_key: np.ndarray, layer: np.ndarray, line: dict[str, Any], opacity: float
) -> dict[str, Any]:
    """Return a trace of the edges from keys to queries of one width."""
    gap = np.full(len(layer), np.nan)
    x, y = np.stack([x_key, x_query, gap], 1).ravel(), np.stack([layer, layer + 1, gap], 1).ravel()
    return scatter(x, y, mode="lines", line=line, opacity=opacity)


def _nodes(
    edges: np.ndarray,
    column_of: dict[int, int],
    names: dict[int, str],
    targets: Sequence[int],
    layers: int,
    selected: tuple[int, int],
    highlight: str,
    unchanged: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return the traces of the nodes: those of the input, those with inputs, and the selected one."""
    layer, query, key = edges.T
    inputs = sorted(set(key[layer == 0].tolist()))
    nodes = sorted({*zip(layer.tolist(), query.tolist(), strict=True), *((layers - 1, place) for place in targets)})
    colours, size = page(), sized(13, 18)
    traces = [
        scatter(
            [column_of[place] for place in inputs], [0] * len(inputs), [f"{names[place]}<br>input" for place in inputs],
            marker={"size": size, "symbol": "square", "color": colours.faint}, **unchanged,
        )
    ]  # fmt: skip
    traces.append(
        scatter(
            [column_of[place] for _, place in nodes], [number + 1 for number, _ in nodes],
            [f"{names[place]}, output of layer {number}" for number, place in nodes],
            customdata=[list(node) for node in nodes], marker={"size": size, "color": colours.text}, **unchanged,
        )
    )  # fmt: skip
    ring = {"symbol": "circle-open", "size": size + 8, "color": highlight, "line": {"width": 3}}
    if selected[1] in column_of:
        traces.append(scatter([column_of[selected[1]]], [selected[0] + 1], marker=ring))
    return traces


def share_text(share: float) -> str:
    """Return a share as a percentage with two significant digits."""
    return f"{two_digits(100 * share)}%"

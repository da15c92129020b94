"""The figure of one attention map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import (
    LABELS_THAT_FIT,
    LONGEST_HOVER,
    TOP_LEFT,
    annotation,
    colour_bar,
    heatmap,
    row_frame,
    ticks_at,
)
from viz_app.figures.style import figure_of, page, plain, sized, token_font
from viz_app.windows import Hatching, hatch_segments

LONGEST_LABEL = 14


def attention_heatmap(
    values: np.ndarray,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    signed: bool,
    title: str,
    unit: str = "attention",
    selected_row: int | None = None,
    hatching: Hatching | None = None,
) -> go.Figure:
    """Draw one map as a matrix: rows are queries, columns are keys.

    values: (query, key). signed=False starts the colours at 0; signed=True puts 0 in the middle.
    unit: of a value, in words. selected_row: the row to frame. hatching: the area outside the window of a local layer.
    Raises ValueError if the labels do not fit the values.
    """
    if values.ndim != 2 or values.shape != (len(query_labels), len(key_labels)) or 0 in values.shape:
        raise ValueError(
            f"values of shape {values.shape} with {len(query_labels)} query labels and {len(key_labels)} key labels: "
            "expected (query, key), at least one of each"
        )
    values = np.asarray(values, dtype=np.float32)
    finite = values[np.isfinite(values)]
    # A map of zeros still needs a range; 1 is the largest probability.
    limit = float(np.abs(finite).max(initial=0)) or 1.0
    longest = max(values.shape)
    side = min(sized(560, 640), max(340, 34 * longest))
    room = side / min(longest, LABELS_THAT_FIT)  # pixels from one label to the next
    font_size = int(min(sized(13, 18), max(12, 0.75 * room)))
    gap = 1 if longest <= 64 else 0
    # Nine significant digits distinguish every float32 from its neighbours.
    hover = f"query %{{y}}<br>key %{{x}}<br>{plain(unit)} %{{z:.9g}}"
    bar = colour_bar(unit, signed=signed, limit=limit, y=1, yanchor="bottom", ypad=6)
    options: dict[str, Any] = {"xgap": gap, "ygap": gap}
    shapes = [] if selected_row is None else [row_frame(selected_row, len(key_labels))]
    key_title = "key (to)"
    if hatching is not None:
        first, end = np.array(hatching["ranges"]).T[..., None]
        columns = np.arange(len(key_labels))
        possible = (columns >= first) & (columns < end)
        values, texts = np.where(possible, values, np.nan), np.full(values.shape, hatching["outside"], object)
        texts[possible] = [f"{value:.9g}" for value in values[possible].tolist()]
        hover, options["text"] = hover.replace("%{z:.9g}", "%{text}"), texts
        shapes.append(_hatching(possible))
        key_title += f"<br>{plain(hatching['label'], LONGEST_HOVER)}"
    trace = heatmap(values, signed=signed, limit=limit, hover=hover, bar=bar, **options)
    # The map belongs to axes with the full tokens, for the hover text; over them lie the visible axes, whose labels are
    # shortened, and thinned where they would overlap.
    domain = {"constrain": "domain", "scaleanchor": "x", "scaleratio": 1, "constraintoward": "top"}
    key_axis = {"side": "bottom", "title": {"text": key_title}}
    query_axis = {"side": "left", "title": {"text": "query (from)"}}
    # An annotation, because the title of a plotly figure of this height does not stay at one place.
    title_style = {"font": {"size": sized(17, 22)}, "yshift": sized(64, 76), **TOP_LEFT}
    layout = {
        "height": side + sized(176, 208),
        "margin": {"t": sized(96, 114)},
        "annotations": [annotation(f"<b>{plain(title)}</b>", 0, 1, **title_style)],
        "shapes": shapes,
        "xaxis": _hover_axis(key_labels) | {"constrain": "domain", "constraintoward": "left"},
        "yaxis": _hover_axis(query_labels) | {"autorange": "reversed", **domain},
        "xaxis2": _visible_axis(key_labels, font_size)
        | {"matches": "x", "overlaying": "x", **key_axis}
        | {"autotickangles": [0, -45, -90] if longest <= 20 else [-90]},
        "yaxis2": _visible_axis(query_labels, font_size) | {"matches": "y", "overlaying": "y", **query_axis},
    }
    axes = {"xaxis": "x2", "yaxis": "y2", "hoverinfo": "skip", "showlegend": False}
    return figure_of([trace, {"type": "scatter", "x": [], "y": [], **axes}], layout)


def _hatching(possible: np.ndarray) -> dict[str, Any]:
    """Return lines over the cells outside the window of a local layer, as a shape of a layout.

    possible: (query, key) boolean.
    """
    points = (np.array(hatch_segments(possible)) - 0.5).tolist()  # the middle of the first cell is at 0
    path = " ".join(f"M{x0:g},{y0:g} L{x1:g},{y1:g}" for (x0, y0), (x1, y1) in points)
    return {"type": "path", "path": path, "line": {"color": page().faint, "width": 1}}


def _hover_axis(labels: Sequence[str]) -> dict[str, Any]:
    names = [f"{plain(label, LONGEST_HOVER)} ({position})" for position, label in enumerate(labels)]
    return ticks_at(names, ticks="", showticklabels=False)


def _visible_axis(labels: Sequence[str], font_size: int) -> dict[str, Any]:
    labelled = range(0, len(labels), -(-len(labels) // LABELS_THAT_FIT))
    return ticks_at(
        [plain(labels[i], LONGEST_LABEL) for i in labelled],
        labelled,
        tickfont=token_font(font_size),
        ticklabelstandoff=4,
    )

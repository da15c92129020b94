"""One attention map, large: who looks at whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import DIVERGING, SEQUENTIAL, plain, sized, styled, token_font

LONGEST_LABEL, LONGEST_HOVER = 14, 160
LABELS_THAT_FIT = 36


def attention_heatmap(
    values: np.ndarray,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    signed: bool,
    title: str,
    unit: str = "attention",
) -> go.Figure:
    """One map as a matrix: rows are queries (who looks), columns are keys (who is looked at).

    values: (query, key). signed=False starts the colours at 0; signed=True puts 0 in the middle.
    unit: what a value is, written on hover.
    Labels, title and unit are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels do not fit the values.
    """
    if values.ndim != 2 or values.shape != (len(query_labels), len(key_labels)) or 0 in values.shape:
        raise ValueError(
            f"values of shape {values.shape} with {len(query_labels)} query labels and {len(key_labels)} key labels: "
            "expected (query, key), at least one of each"
        )
    values = np.asarray(values, dtype=np.float32)
    finite = values[np.isfinite(values)]
    # An all-zero map still needs a range; 1 is what a probability could reach.
    limit = float(np.abs(finite).max(initial=0)) or 1.0
    longest = max(values.shape)
    side = min(sized(560, 640), max(340, 34 * longest))
    room = side / min(longest, LABELS_THAT_FIT)  # pixels from one label to the next
    font_size = int(min(sized(13, 18), max(12, 0.75 * room)))
    gap = 1 if longest <= 64 else 0

    heatmap = go.Heatmap(
        z=values,
        zmin=-limit if signed else 0,
        zmax=limit,
        colorscale=(DIVERGING if signed else SEQUENTIAL).colorscale(),
        xgap=gap,
        ygap=gap,
        # Nine significant digits tell every float32 from its neighbours.
        hovertemplate=f"query %{{y}}<br>key %{{x}}<br>{plain(unit)} %{{z:.9g}}<extra></extra>",
        colorbar={
            "orientation": "h",
            "lenmode": "pixels",
            "len": 260,
            "thickness": 12,
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "bottom",
            "ypad": 6,
            "xpad": 0,
            "nticks": 4,
            "tickangle": 0,
            "outlinewidth": 0,
        },
    )
    figure = go.Figure([heatmap, go.Scatter(x=[], y=[], xaxis="x2", yaxis="y2", hoverinfo="skip", showlegend=False)])
    # The map hangs on axes that know every whole token, for the hover; over them lie the axes that are seen, whose
    # labels are shortened, and thinned when they would touch.
    figure.update_layout(
        height=side + sized(160, 190),
        margin={"t": sized(80, 96)},
        xaxis=_hover_ticks(key_labels),
        yaxis=_hover_ticks(query_labels)
        | {
            "autorange": "reversed",
            "scaleanchor": "x",
            "scaleratio": 1,
            "constrain": "domain",
            "constraintoward": "top",
        },
        xaxis2=_visible_ticks(key_labels, LABELS_THAT_FIT, font_size)
        | {"matches": "x", "overlaying": "x", "side": "bottom", "title": {"text": "key: who is looked at"}}
        | {"autotickangles": [0, -45, -90] if longest <= 20 else [-90]},
        yaxis2=_visible_ticks(query_labels, LABELS_THAT_FIT, font_size)
        | {"matches": "y", "overlaying": "y", "side": "left", "title": {"text": "query: who looks"}},
    )
    figure.layout.xaxis.update(constrain="domain", constraintoward="left")
    # An annotation, because a plotly title of a figure this high does not stay at its own place.
    figure.add_annotation(
        text=f"<b>{plain(title)}</b>",
        font_size=sized(17, 22),
        x=0,
        xref="paper",
        xanchor="left",
        y=1,
        yref="paper",
        yanchor="bottom",
        yshift=sized(48, 58),
        showarrow=False,
    )
    return styled(figure)


def _hover_ticks(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": [f"{plain(label, LONGEST_HOVER)} ({position})" for position, label in enumerate(labels)],
        "ticks": "",
        "showticklabels": False,
        "showgrid": False,
        "zeroline": False,
    }


def _visible_ticks(labels: Sequence[str], room: int, font_size: int) -> dict[str, Any]:
    labelled = range(0, len(labels), -(-len(labels) // room))
    return {
        "tickmode": "array",
        "tickvals": list(labelled),
        "ticktext": [plain(labels[i], LONGEST_LABEL) for i in labelled],
        "tickfont": token_font(font_size),
        "showgrid": False,
        "zeroline": False,
    }

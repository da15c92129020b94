"""Two aligned sentences: how surprising each piece is to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    SEQUENTIAL,
    annotation,
    columns,
    figure_of,
    hatched,
    page,
    plain,
    rectangle,
    sized,
    token_font,
    two_digits,
)

LONGEST_LABEL, LONGEST_HOVER = 12, 160
COLUMNS_WITH_NUMBERS, LABELS_THAT_FIT = 30, 60
COLUMNS_WITH_LEVEL_LABELS = 16


def pair_bars(
    first: Sequence[str | None],
    second: Sequence[str | None],
    first_values: np.ndarray,
    second_values: np.ndarray,
    is_equal: np.ndarray,
) -> go.Figure:
    """Draw how unlikely each piece of two aligned sentences is: the first above the line, the second below.

    first, second: (column,) tokens, None where a sentence has none. first_values, second_values: (column,)
        log-probabilities in nats, NaN where there is no token; minus each is drawn. is_equal: (column,), whether both
        have the same token; other columns have a background.
    Tokens are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ, or there is no column.
    """
    lengths = {len(part) for part in (first, second, first_values, second_values, is_equal)}
    if len(lengths) != 1 or not len(first):
        raise ValueError(f"columns of {sorted(lengths)} entries: as many in each part, and at least one")
    colours, count = page(), len(first)
    size = sized(12, 16)
    differing = np.nonzero(~np.asarray(is_equal, bool))[0].tolist()
    background = {"xref": "x", "yref": "y domain", "fillcolor": colours.raised, "layer": "below"}
    backgrounds = [rectangle((column - 0.5, column + 0.5), (0, 1), {"width": 0}, **background) for column in differing]
    labels: list[dict[str, object]] = []
    longest = float(np.nanmax(np.abs(np.concatenate([first_values, second_values])), initial=0.0)) or 1.0
    solid, pattern = {"color": SEQUENTIAL.colours()[7]}, hatched(SEQUENTIAL.colours()[7], solidity=0.5)
    sides = (("first sentence", first, first_values, 1, solid), ("second sentence", second, second_values, -1, pattern))
    has_numbers, is_tilted = count <= COLUMNS_WITH_NUMBERS, count > COLUMNS_WITH_LEVEL_LABELS
    text_style = {"textposition": "outside", "textfont": {"size": size}, "constraintext": "none", "cliponaxis": False}
    traces = []
    for name, tokens, values, sign, fill in sides:
        hovers = ["" if token is None else plain(token, LONGEST_HOVER) for token in tokens]
        numbers = list(zip(hovers, np.exp(values).tolist(), strict=True))
        texts = [two_digits(-value) if has_numbers and not np.isnan(value) else "" for value in values.tolist()]
        style: dict[str, Any] = {
            "name": name,
            "marker": fill,
            "width": 0.7,
            "text": texts,
            "customdata": numbers,
            **text_style,
        }
        hover = f"{name}<br>%{{customdata[0]}}<br>probability %{{customdata[1]:.9g}}"
        traces.append(columns(list(range(count)), -sign * values, hover, **style))
        step = -(-count // LABELS_THAT_FIT)
        # A tilted label begins above its column, or ends below it.
        place: dict[str, Any] = {
            "yref": "paper",
            "yanchor": "bottom" if sign > 0 else "top",
            "textangle": -60 if is_tilted else 0,
        }
        place |= {"xanchor": "center", "xshift": -5 * sign * is_tilted}
        if is_tilted:
            place["xanchor"] = "left" if sign > 0 else "right"
        for column, token in enumerate(tokens):
            if token is not None and (column % step == 0 or not is_equal[column]):
                font = token_font(size + 1, colours.text if is_equal[column] else colours.accent)
                label = plain(token, LONGEST_LABEL)
                labels.append(annotation(label, column, 1 if sign > 0 else 0, font=font, **place))
    room = 84 if is_tilted else 24
    layout = {
        "shapes": backgrounds,
        "annotations": labels,
        "barmode": "overlay",
        "bargap": 0.2,
        "showlegend": True,
        "legend": {"y": 1, "yanchor": "top", "yref": "container", "orientation": "h"},
        "height": sized(380, 460) + 2 * room,
        "margin": {"t": room + 44, "b": room + 8, "r": 8},
        "xaxis": {"range": [-0.6, count - 0.4], "visible": False},
        "yaxis": {
            "range": [-1.18 * longest, 1.18 * longest],
            "zeroline": True,
            "showticklabels": False,
            "title": {"text": "surprise: −log probability (nats)"},
        },
    }
    return figure_of(traces, layout)

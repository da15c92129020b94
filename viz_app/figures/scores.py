"""Two sentences: the surprisal of each token, and the part of each pair of tokens in their cosine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import annotation, cells, frame, mirrored_bars
from viz_app.figures.style import page, plain, sized, token_font

LONGEST_LABEL = 12
COLUMNS_WITH_NUMBERS, LABELS_THAT_FIT = 30, 60
COLUMNS_WITH_LEVEL_LABELS = 16
MAP_WIDTH = 640  # pixels, expected


def pair_bars(
    first: Sequence[str | None],
    second: Sequence[str | None],
    first_values: np.ndarray,
    second_values: np.ndarray,
    is_equal: np.ndarray,
) -> go.Figure:
    """Draw the surprisal of each token of two aligned sentences: the first above the line, the second below.

    first, second: (column,) tokens, None where a sentence has none. first_values, second_values: (column,)
        log-probabilities in nats, NaN where there is no token; minus each is drawn. is_equal: (column,), whether both
        have the same token; other columns have a background.
    Raises ValueError if the lengths differ, or there is no column.
    """
    lengths = {len(part) for part in (first, second, first_values, second_values, is_equal)}
    if len(lengths) != 1 or not len(first):
        raise ValueError(f"columns of {sorted(lengths)} entries: as many in each part, and at least one")
    colours, count = page(), len(first)
    differing = np.nonzero(~np.asarray(is_equal, bool))[0].tolist()
    background: dict[str, Any] = {"xref": "x", "yref": "y domain", "fillcolor": colours.raised, "layer": "below"}
    is_tilted, step = count > COLUMNS_WITH_LEVEL_LABELS, -(-count // LABELS_THAT_FIT)
    sides = (("first sentence", first, first_values, 1), ("second sentence", second, second_values, -1))
    series, hovers, labels = {}, {}, []
    for name, tokens, values, sign in sides:
        series[name] = (-values).tolist()
        hovers[name] = [
            "" if token is None else f"{name}<br>{plain(token)}<br>probability {np.exp(value):.9g}"
            for token, value in zip(tokens, values.tolist(), strict=True)
        ]
        # A tilted label begins above its column, or ends below it.
        anchor = ("left" if sign > 0 else "right") if is_tilted else "center"
        place: dict[str, Any] = {"yref": "paper", "yanchor": "bottom" if sign > 0 else "top", "xanchor": anchor}
        place |= {"textangle": -60 if is_tilted else 0, "xshift": -5 * sign * is_tilted}
        for column, token in enumerate(tokens):
            if token is not None and (column % step == 0 or not is_equal[column]):
                font = token_font(sized(13, 17), colours.text if is_equal[column] else colours.accent)
                labels.append(annotation(plain(token, LONGEST_LABEL), column, max(sign, 0), font=font, **place))
    longest, room = float(np.nanmax(np.abs([*series.values()]), initial=0.0)) or 1.0, 84 if is_tilted else 24
    return mirrored_bars(
        series,
        labels={name: tokens for name, tokens, _, _ in sides},
        hovers=hovers,
        x_axis={"visible": False},
        y_axis={
            "range": [-1.18 * longest, 1.18 * longest],
            "showticklabels": False,
            "title": {"text": "surprisal: −log probability (nats)"},
        },
        texts=count <= COLUMNS_WITH_NUMBERS,
        height=sized(380, 460) + 2 * room,
        shapes=[frame((column - 0.5, column + 0.5), (0, 1), **background) for column in differing],
        annotations=labels,
        legend={"y": 1, "yanchor": "top", "yref": "container", "orientation": "h"},
        margin={"t": room + 44, "b": room + 8, "r": 8},
    )


def similarity_parts(values: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> go.Figure:
    """Draw the part of each pair of tokens in the cosine of two sentences, with the sums of the rows.

    values: (row, column). rows, columns: tokens of the first and of the second sentence.
    Raises ValueError if the labels do not fit the values.
    """
    options: dict[str, Any] = {
        "extra_column": ("sum", values.sum(1)),
        "titles": ("first sentence", "second sentence"),
        "width": MAP_WIDTH,
    }
    return cells(values, rows, columns, signed=True, unit="part of the cosine", **options)

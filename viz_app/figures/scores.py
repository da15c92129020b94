"""Two sentences token under token: how surprising each piece is to the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import SEQUENTIAL, TOKEN_FONT, figure_of, page, plain, sized, two_digits

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
    """How unlikely each piece of two aligned sentences is: the first above the line, the second below.

    first, second: (column,) tokens, None where a sentence has none. first_values, second_values: (column,)
    log-probabilities in nats, NaN there; minus each is drawn and written. is_equal: (column,),
    whether both have the same
    token; where they part, the column has a ground.
    Tokens are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ, or there is no column.
    """
    lengths = {len(part) for part in (first, second, first_values, second_values, is_equal)}
    if len(lengths) != 1 or not len(first):
        raise ValueError(f"columns of {sorted(lengths)} entries: as many in each part, and at least one")
    colours, count = page(), len(first)
    size = sized(12, 16)
    grounds = [
        {
            "type": "rect", "x0": column - 0.5, "x1": column + 0.5, "y0": 0, "y1": 1, "xref": "x", "yref": "y domain",
            "fillcolor": colours.raised, "line": {"width": 0}, "layer": "below",
        }
        for column in np.nonzero(~np.asarray(is_equal, bool))[0].tolist()
    ]  # fmt: skip
    labels: list[dict[str, object]] = []
    longest = float(np.nanmax(np.abs(np.concatenate([first_values, second_values])), initial=0.0)) or 1.0
    sides = (
        ("first sentence", first, first_values, 1, {"color": SEQUENTIAL.colours()[7]}),
        (
            "second sentence", second, second_values, -1,
            {
                "color": colours.background, "line": {"color": SEQUENTIAL.colours()[7], "width": 1},
                "pattern": {"shape": "/", "fgcolor": SEQUENTIAL.colours()[7], "size": 7, "solidity": 0.5},
            },
        ),
    )  # fmt: skip
    bars = []
    for name, tokens, values, sign, fill in sides:
        bars.append({
            "type": "bar", "x": list(range(count)), "y": -sign * values, "name": name, "marker": fill, "width": 0.7,
            "text": ["" if np.isnan(v) or count > COLUMNS_WITH_NUMBERS else two_digits(-float(v)) for v in values],
            "textposition": "outside", "textfont": {"size": size}, "constraintext": "none", "cliponaxis": False,
            "customdata": [
                ["" if token is None else plain(token, LONGEST_HOVER), float(np.exp(value))]
                for token, value in zip(tokens, values, strict=True)
            ],
            "hovertemplate": f"{name}<br>%{{customdata[0]}}<br>probability %{{customdata[1]:.9g}}<extra></extra>",
        })  # fmt: skip
        step = -(-count // LABELS_THAT_FIT)
        for column, token in enumerate(tokens):
            if token is not None and (column % step == 0 or not is_equal[column]):
                tilted = count > COLUMNS_WITH_LEVEL_LABELS
                labels.append({
                    "x": column, "y": 1 if sign > 0 else 0, "yref": "paper", "text": plain(token, LONGEST_LABEL),
                    "yanchor": "bottom" if sign > 0 else "top", "textangle": -60 if tilted else 0, "showarrow": False,
                    # What is tilted begins above its column, or ends below it.
                    "xanchor": ("left" if sign > 0 else "right") if tilted else "center", "xshift": -5 * sign * tilted,
                    "font": {
                        "family": TOKEN_FONT, "size": size + 1,
                        "color": colours.text if is_equal[column] else colours.accent,
                    },
                })  # fmt: skip
    room = 84 if count > COLUMNS_WITH_LEVEL_LABELS else 24
    layout = {
        "shapes": grounds,
        "annotations": labels,
        "barmode": "overlay",
        "bargap": 0.2,
        "showlegend": True,
        "legend": {"y": 1, "yanchor": "top", "yref": "container", "orientation": "h"},
        "height": sized(380, 460) + 2 * room,
        "margin": {"t": room + 44, "b": room + 8, "r": 8},
        "xaxis": {"range": [-0.6, count - 0.4], "visible": False},
        "yaxis": {
            "range": [-1.18 * longest, 1.18 * longest], "zeroline": True, "showticklabels": False,
            "title": {"text": "surprise: −log probability (nats)"},
        },
    }  # fmt: skip
    return figure_of(bars, layout)

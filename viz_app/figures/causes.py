"""What carries an answer from one text to another: a map of effects, and single neurons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    DIVERGING,
    TOKEN_FONT,
    cell_frame,
    figure_of,
    label_axis,
    plain,
    shade,
    sized,
    token_font,
)
from viz_app.figures.why import CLICKED_CELLS, coloured_cells

LONGEST_LABEL = 20
NUMBERS_THAT_FIT = 14  # columns with a number in every cell


def two_places(effect: float) -> str:
    """An effect as it stands in a cell: 0.07, −1.20, and 0 for what rounds to it; nothing for NaN."""
    if effect != effect:
        return ""
    return f"{effect:.2f}".replace("-", "−") if round(abs(effect), 2) else "0"


def map_width(row_labels: Sequence[str], columns: int) -> int:
    """The pixels from which the numbers of so many columns stand clear of each other."""
    return 40 + 8 * min(max(map(len, row_labels)), LONGEST_LABEL) + 33 * columns


def effect_map(
    effects: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    selected: tuple[int, int] | None = None,
    by_chance: np.ndarray | None = None,
    limit: float = 1.0,
) -> go.Figure:
    """The effect of each place as a coloured cell: orange goes towards the source's answer, blue away from it.

    effects: (row, column), 0 for nothing and 1 for the source's answer; NaN leaves a cell empty. selected: the (row,
        column) to frame. by_chance: (row, column), whether a cell is marked with a ring. limit: where the colours end.
    A click on a cell gives back its column as x and its row as y.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if labels or marks do not fit the effects.
    """
    if effects.shape != (len(row_labels), len(column_labels)) or 0 in effects.shape:
        raise ValueError(
            f"effects of shape {effects.shape}, {len(row_labels)} row and {len(column_labels)} column labels: expected "
            "(row, column), at least one of each"
        )
    if by_chance is not None and by_chance.shape != effects.shape:
        raise ValueError(f"marks of shape {by_chance.shape} for effects of {effects.shape}: one for each")
    columns, shares = effects.shape[1], np.clip(effects / (limit or 1.0), -1, 1)
    has_numbers = columns <= sized(NUMBERS_THAT_FIT, NUMBERS_THAT_FIT * 2 // 3)
    traces = coloured_cells(
        shares, effects, row_labels, column_labels, axis="x", format_value=two_places if has_numbers else None,
    )  # fmt: skip
    if by_chance is not None:
        cells = np.argwhere(by_chance & np.isfinite(effects)).tolist()
        traces.append({
            "type": "scatter", "x": [column + 0.38 for _, column in cells], "y": [row - 0.28 for row, _ in cells],
            "mode": "markers", "hoverinfo": "skip", "showlegend": False,
            "marker": {
                "symbol": "circle-open", "size": sized(6, 8),
                "color": [shade(shares[row, column], signed=True)[1] for row, column in cells],
            },
        })  # fmt: skip
    layout = cells_layout(row_labels, column_labels, selected)
    return figure_of(traces, layout)


def cells_layout(
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    selected: tuple[int, int] | None,
) -> dict[str, Any]:
    """The layout of cells that can be clicked, with their names beside and above; `selected` has a frame."""
    rows, columns, size = len(row_labels), len(column_labels), sized(13, 18)
    return {
        **CLICKED_CELLS,
        "shapes": [] if selected is None else [cell_frame(*selected)],
        "height": round(rows * sized(30, 38) + sized(64, 84)),
        "margin": {"l": 8, "r": 8, "t": sized(34, 44), "b": 10},
        "xaxis": label_axis(
            [plain(label, LONGEST_LABEL) for label in column_labels],
            side="top",
            tickfont={"size": size},
            range=[-0.5, columns - 0.5],
            fixedrange=True,
        ),
        "yaxis": label_axis(
            [plain(label, LONGEST_LABEL) + "  " for label in row_labels],
            tickfont=token_font(size),
            range=[rows - 0.5, -0.5],
            fixedrange=True,
        ),
    }


def neuron_bars(neurons: Sequence[int], effects: Sequence[float]) -> go.Figure:
    """The effect of each of some neurons as a horizontal bar, in the order given, the first on top.

    Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    names = [f"neuron {number}" for number in neurons]
    return value_bars(names, effects, title="effect", format_value=two_places)


def value_bars(
    labels: Sequence[str],
    values: Sequence[float],
    *,
    title: str,
    format_value: Callable[[float], str],
    selected: int | None = None,
) -> go.Figure:
    """A number of either sign for each label as a horizontal bar, the first on top; the name of `selected` is bold.

    title: of the axis of the numbers. format_value: how a number stands beside its bar.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if len(labels) != len(values):
        raise ValueError(f"{len(labels)} labels and {len(values)} values: one for each")
    ends, places = DIVERGING.colours(), list(range(len(values)))
    names = [plain(label, LONGEST_LABEL) for label in labels]
    reach = max((abs(value) for value in values), default=0.0) or 1.0
    bars = {
        "type": "bar", "orientation": "h", "x": list(values), "y": places, "showlegend": False,
        "text": [format_value(value) for value in values], "textposition": "outside", "cliponaxis": False,
        "marker": {"color": [ends[9] if value >= 0 else ends[3] for value in values]},
        "customdata": names, "hovertemplate": "%{customdata}<br>%{x:.9g}<extra></extra>",
    }  # fmt: skip
    layout = {
        "height": round(len(values) * sized(26, 38) + sized(64, 84)),
        "margin": {"l": 8, "r": 56, "t": 8},
        "dragmode": False,
        "bargap": 0.3,
        "hovermode": "y",
        "xaxis": {
            "title": {"text": title}, "zeroline": True, "nticks": 5,
            "range": [1.15 * min(0.0, *values, -0.1 * reach), 1.15 * max(0.0, *values)],
        },
        "yaxis": label_axis(
            [f"<b>{name}</b>  " if place == selected else f"{name}  " for place, name in enumerate(names)],
            range=[len(values) - 0.5, -0.5], tickfont={"family": TOKEN_FONT},
        ),
    }  # fmt: skip
    return figure_of([bars], layout)

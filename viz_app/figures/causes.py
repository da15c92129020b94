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
    labelled_bars,
    plain,
    points,
    row_axis,
    shade,
    sized,
    token_font,
)
from viz_app.figures.why import CLICKED_CELLS, coloured_cells

LONGEST_LABEL = 20
NUMBERS_THAT_FIT = 14  # columns with a number in every cell


def two_places(effect: float) -> str:
    """Return an effect as written in a cell: 0.07, −1.20, 0 for what rounds to 0; an empty text for NaN."""
    if effect != effect:
        return ""
    return f"{effect:.2f}".replace("-", "−") if round(abs(effect), 2) else "0"


def map_width(row_labels: Sequence[str], columns: int) -> int:
    """Return the smallest width in pixels at which the numbers of the columns do not overlap."""
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
    """Draw the effect of each place as a coloured cell: orange towards the answer of the source, blue away from it.

    effects: (row, column), 0 for no effect, 1 for the answer of the source; NaN leaves a cell empty. selected: the
        (row, column) to frame. by_chance: (row, column), whether a cell is marked with a ring. limit: the effect at
        the end of the colour scale.
    A click on a cell returns its column as x and its row as y.
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
    format_value = two_places if has_numbers else None
    traces = coloured_cells(shares, effects, row_labels, column_labels, axis="x", format_value=format_value)
    if by_chance is not None:
        cells = np.argwhere(by_chance & np.isfinite(effects)).tolist()
        x, y = [column + 0.38 for _, column in cells], [row - 0.28 for row, _ in cells]
        colours = [shade(shares[row, column], signed=True)[1] for row, column in cells]
        marker = {"symbol": "circle-open", "size": sized(6, 8), "color": colours}
        traces.append(points(x, y, marker=marker, showlegend=False))
    return figure_of(traces, cells_layout(row_labels, column_labels, selected))


def cells_layout(
    row_labels: Sequence[str], column_labels: Sequence[str], selected: tuple[int, int] | None
) -> dict[str, Any]:
    """Return the layout of cells that can be clicked, with labels beside and above; `selected` has a frame."""
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
        "yaxis": row_axis(row_labels, LONGEST_LABEL, tickfont=token_font(size), fixedrange=True),
    }


def neuron_bars(neurons: Sequence[int], effects: Sequence[float]) -> go.Figure:
    """Draw the effect of each neuron as a horizontal bar, in the order given, the first on top.

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
    """Draw a signed number for each label as a horizontal bar, the first on top; the label of `selected` is bold.

    title: of the axis of the numbers. format_value: returns the text beside the bar of a number.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if len(labels) != len(values):
        raise ValueError(f"{len(labels)} labels and {len(values)} values: one for each")
    ends = DIVERGING.colours()
    names = [plain(label, LONGEST_LABEL) for label in labels]
    reach = max((abs(value) for value in values), default=0.0) or 1.0
    colours = [ends[9] if value >= 0 else ends[3] for value in values]
    texts, hover = [format_value(value) for value in values], "%{customdata}<br>%{x:.9g}"
    trace = labelled_bars(values, texts, names, hover, showlegend=False, marker={"color": colours})
    limits = [1.15 * min(0.0, *values, -0.1 * reach), 1.15 * max(0.0, *values)]
    row_names = [f"<b>{name}</b>  " if row == selected else f"{name}  " for row, name in enumerate(names)]
    row_range = [len(values) - 0.5, -0.5]
    layout = {
        "height": round(len(values) * sized(26, 38) + sized(64, 84)),
        "margin": {"l": 8, "r": 56, "t": 8},
        "dragmode": False,
        "bargap": 0.3,
        "hovermode": "y",
        "xaxis": {"title": {"text": title}, "zeroline": True, "nticks": 5, "range": limits},
        "yaxis": label_axis(row_names, range=row_range, tickfont={"family": TOKEN_FONT}),
    }
    return figure_of([trace], layout)

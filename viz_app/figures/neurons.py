"""The map of the neuron with the largest activation in each layer at each token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.causes import NUMBERS_THAT_FIT, cells_layout
from viz_app.figures.style import figure_of, sized, two_digits
from viz_app.figures.why import coloured_cells


def neuron_map(
    neurons: np.ndarray,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    value_name: str,
    limits: Sequence[float],
    selected: tuple[int, int] | None = None,
) -> go.Figure:
    """Draw the number of the strongest neuron in each cell, coloured by its value: orange above 0, blue below.

    neurons, values: (row, column); -1 and NaN leave a cell empty. value_name: of the values, for the hover text.
    limits: (column,) value at the end of the colours. selected: the (row, column) to frame.
    A click on a cell returns its column as x and its row as y.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if labels, values or limits do not fit the neurons.
    """
    shape = (len(row_labels), len(column_labels))
    if neurons.shape != shape or values.shape != shape or len(limits) != shape[1] or 0 in shape:
        raise ValueError(
            f"neurons of shape {neurons.shape}, values of {values.shape}, {shape[0]} row and {shape[1]} column labels "
            f"and {len(limits)} limits: expected (row, column), at least one of each"
        )
    has_numbers = shape[1] <= sized(NUMBERS_THAT_FIT, NUMBERS_THAT_FIT * 2 // 3)
    ends = np.array([limit or 1.0 for limit in limits])
    shares, numbers, format_value = (
        np.clip(values / ends, -1, 1),
        neurons.astype(float),
        _number if has_numbers else None,
    )
    traces = coloured_cells(shares, numbers, row_labels, column_labels, axis="x", format_value=format_value)
    points = traces[1]
    points["customdata"] = [
        [*texts, two_digits(value)] for texts, value in zip(points["customdata"], values.ravel().tolist(), strict=True)
    ]
    points["hovertemplate"] = (
        "%{customdata[0]}<br>%{customdata[1]} neuron %{customdata[2]}<br>"
        + value_name
        + " %{customdata[3]}<extra></extra>"
    )
    return figure_of(traces, cells_layout(row_labels, column_labels, selected))


def _number(neuron: float) -> str:
    return "" if neuron < 0 else f"{neuron:.0f}"

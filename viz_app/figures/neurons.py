"""The map of the neuron with the largest activation in each layer at each token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import cells, require_equal_lengths
from viz_app.figures.style import plain, two_digits


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
    """Draw the number of the strongest neuron in each cell, coloured by its value: warm above 0, cool below.

    neurons, values: (row, column); -1 and NaN leave a cell empty. value_name: of the values. limits: (column,) value at
    the end of the colours. selected: the (row, column) to frame.
    Raises ValueError if labels, values or limits do not fit the neurons.
    """
    require_equal_lengths(columns=column_labels, limits=limits)
    return cells(
        np.clip(values / [limit or 1.0 for limit in limits], -1, 1),
        row_labels,
        column_labels,
        signed=True,
        unit=f"{value_name}: share of the layer's largest",
        limit=1.0,
        numbers=neurons,
        write=lambda neuron: "" if neuron < 0 else f"{neuron:.0f}",
        hover=lambda row, column: (
            f"{plain(row_labels[row])}<br>{plain(column_labels[column])} neuron {neurons[row, column]}<br>"
            f"{value_name} {two_digits(values[row, column])}"
        ),
        selected=selected,
    )

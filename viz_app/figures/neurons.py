"""The map of the neuron with the largest activation in each layer at each token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import WIDTH, bars, cells, require_equal_lengths
from viz_app.figures.score_terms import term_fill
from viz_app.figures.style import one_line, plain, sized, two_digits

WORD_SIZE, LONGEST_WORD = (12, 14), (9, 8)  # pixels and letters of the words in cells, and in lecture mode


def input_bars(labels: Sequence[str], series: Mapping[str, Sequence[float]], *, selected: int) -> go.Figure:
    """Draw the inputs and the activation of a gated neuron at each token, the first on top.

    series: name -> (label,) numbers. selected: row with a bold label.
    """
    row_height = (12 + 9 * len(series)) * sized(1, 1.35)
    fills = {name: term_fill(number) for number, name in enumerate(series)}
    options: dict[str, Any] = {"bargap": 0.25, "height": round(len(labels) * row_height + sized(104, 134))}
    return bars(labels, series, title="value", fills=fills, selected=selected, bar_texts=False, legend=True, **options)


def neuron_map(
    neurons: np.ndarray,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    value_name: str,
    limits: Sequence[float],
    words: Sequence[Sequence[str]] | None = None,
    selected: tuple[int, int] | None = None,
    width: int = WIDTH,
) -> go.Figure:
    """Draw the strongest neuron in each cell, coloured by its value: warm above 0, cool below.

    neurons, values: (row, column); -1 and NaN leave a cell empty. value_name: of the values. limits: (column,) value at
    the end of the colours. words: (row, column) written in the cells, by default the numbers of the neurons. selected:
    the (row, column) to frame. width: expected, in pixels.
    Raises ValueError if labels, values or limits do not fit the neurons.
    """
    require_equal_lengths(columns=column_labels, limits=limits)
    size, longest = sized(*WORD_SIZE), sized(*LONGEST_WORD)
    texts = None if words is None else [[one_line(word, longest) for word in line] for line in words]

    def hover(row: int, column: int) -> str:
        lines = [row_labels[row], f"{column_labels[column]} neuron {neurons[row, column]}"]
        lines += [] if words is None else [f"promotes {words[row][column]}"]
        return "<br>".join(map(plain, [*lines, f"{value_name} {two_digits(values[row, column])}"]))

    return cells(
        np.clip(values / [limit or 1.0 for limit in limits], -1, 1),
        row_labels,
        column_labels,
        signed=True,
        unit=f"{value_name}: share of the layer's largest",
        limit=1.0,
        numbers=neurons,
        write=lambda neuron: "" if neuron < 0 else f"{neuron:.0f}",
        texts=texts,
        table={"neuron": neurons, value_name: values} | ({} if words is None else {"promotes": words}),
        text_width=None if words is None else 0.6 * size * longest + 8,
        token_size=None if words is None else size,
        hover=hover,
        selected=selected,
        width=width,
        tall=True,
    )

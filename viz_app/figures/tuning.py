"""Figures of training: losses and scores from step to step, and the similarity of depths of two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import cells, lines
from viz_app.figures.style import plain


def tuning_lines(
    series: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    *,
    steps: int,
    title: str,
    shares: bool = False,
    selected: int | None = None,
) -> go.Figure:
    """Draw series of numbers against the steps of a training.

    series: name -> steps, and a number at each. steps: number of steps of the training. title: of the vertical axis.
    shares: whether numbers are shares, 0 to 1. selected: a step with a vertical line.
    """
    return lines(
        series,
        title=title,
        x_axis={"title": {"text": "step"}, "range": [0, max(steps, 1)]},
        y_axis={"tickformat": ".0%", "range": [0, 1.02]} if shares else {"rangemode": "tozero"},
        form=".1%" if shares else ".4f",
        place="step %{x}",
        reference=selected,
        height=(260, 340),
    )


def alike_depths(
    values: np.ndarray, names: Sequence[str], column_names: Sequence[str], *, rows: str, columns: str
) -> go.Figure:
    """Draw the similarity of the states of each depth of one model and each depth of another, 0 to 1.

    values: (depth, depth) CKA, first row at the bottom. names, column_names: of the depths. rows, columns: names of the
    two models. Raises ValueError if the names do not fit the values.
    """

    def hover(row: int, column: int) -> str:
        return f"{plain(rows)} {names[row]}<br>{plain(columns)} {column_names[column]}<br>CKA {values[row, column]:.6f}"

    options: dict[str, Any] = {"numbers": values, "hover": hover, "titles": (rows, columns), "upwards": True}
    return cells(values.clip(0, 1), names, column_names, signed=False, unit="similarity (CKA)", limit=1.0, **options)

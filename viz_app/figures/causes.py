"""What carries an answer from one text to another: a map of effects, and single neurons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import WIDTH, bars, cells, signed_fill
from viz_app.figures.style import cell_number, page


def effect_map(
    effects: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    selected: tuple[int, int] | None = None,
    by_chance: np.ndarray | None = None,
    greyed: np.ndarray | None = None,
    limit: float = 1.0,
    unit: str = "effect: 1 = the prediction of the source",
    width: int = WIDTH,
) -> go.Figure:
    """Draw the effect of each place as a cell: warm towards the prediction of the source, cool away from it.

    effects: (row, column), 0 for no effect, 1 for the prediction of the source; NaN leaves a cell empty. selected: the
        (row, column) to frame. by_chance: (row, column), whether a cell is marked with a ring. greyed: (row, column),
        whether a cell is grey. limit: the effect at the end of the colour scale. unit: title of the colour bar.
        width: expected, in pixels.
    Raises ValueError if labels or marks do not fit the effects.
    """
    marks = dict[str, Any](selected=selected, marked=by_chance, width=width)
    if greyed is None:
        return cells(effects, row_labels, column_labels, signed=True, unit=unit, limit=limit, **marks)
    coloured = np.where(greyed & np.isfinite(effects), 0.0, effects)
    figure = cells(coloured, row_labels, column_labels, signed=True, unit=unit, limit=limit, numbers=effects, **marks)
    ground, grey = figure.data[0], page().line
    layer = {"x": ground.x, "y": ground.y, "xgap": 1, "ygap": 1, "showscale": False, "hoverinfo": "skip"}
    values = np.where(greyed & np.isfinite(effects), 1.0, np.nan)
    figure.add_trace({"type": "heatmap", "z": values, "colorscale": [(0, grey), (1, grey)], **layer})
    return figure


def value_bars(
    labels: Sequence[str],
    values: Sequence[float],
    *,
    title: str,
    write: Callable[[float], str] = cell_number,
    selected: int | None = None,
) -> go.Figure:
    """Draw a signed number for each label as a horizontal bar, the first on top; the label of `selected` is bold.

    title: of the axis of the numbers. write: returns the text beside a bar. Raises ValueError if the lengths differ.
    """
    return bars(labels, {"": values}, title=title, write=write, fills={"": signed_fill(values)}, selected=selected)

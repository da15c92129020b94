"""What carries an answer from one text to another: a map of effects, and single neurons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import bars, cells, signed_fill
from viz_app.figures.style import cell_number


def effect_map(
    effects: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    selected: tuple[int, int] | None = None,
    by_chance: np.ndarray | None = None,
    limit: float = 1.0,
) -> go.Figure:
    """Draw the effect of each place as a cell: warm towards the answer of the source, cool away from it.

    effects: (row, column), 0 for no effect, 1 for the answer of the source; NaN leaves a cell empty. selected: the
        (row, column) to frame. by_chance: (row, column), whether a cell is marked with a ring. limit: the effect at
        the end of the colour scale.
    Raises ValueError if labels or marks do not fit the effects.
    """
    unit, marks = "effect: 1 is the answer of the source", dict[str, Any](selected=selected, marked=by_chance)
    return cells(effects, row_labels, column_labels, signed=True, unit=unit, limit=limit, **marks)


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

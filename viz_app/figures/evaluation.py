"""Figures of evaluated texts: the confusion matrix, and accuracy or mean loss by slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import bars, cells, require_equal_lengths, vertical_line
from viz_app.figures.style import one_line, page, plain, sized

LONGEST_LABEL = 16  # letters of a label of the confusion matrix
LONGEST_VALUE = 26  # letters of the value of a slice
MATRIX_WIDTH = 560  # expected, in pixels
LEAST_HEIGHT = 360  # in pixels


def confusion_map(counts: np.ndarray, labels: Sequence[str], *, selected: tuple[int, int] | None = None) -> go.Figure:
    """Draw a confusion matrix: rows are answers, columns are predictions, and a click returns them as y and x.

    counts: (answer, prediction) numbers of texts, written in the cells. The colour is the share of the answer's row, so
        that the row of a rare label is as visible as that of a frequent one. labels: of the columns; the first ones are
        those of the rows, since the last labels may be no answer. selected: the cell with a frame.
    Raises ValueError if the labels do not fit the counts.
    """
    totals = counts.sum(1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    names = [plain(label, LONGEST_LABEL * 2) for label in labels]

    def hover(row: int, column: int) -> str:
        share = f" of {int(totals[row, 0]):,}" if totals[row, 0] else ""
        return f"answer {names[row]}<br>prediction {names[column]}<br>{int(counts[row, column]):,}{share}"

    figure = cells(
        shares,
        [f"{label} ({int(total):,})" for label, total in zip(labels[: len(counts)], totals[:, 0], strict=True)],
        labels,
        signed=False,
        unit="share of the texts with this answer",
        limit=1.0,
        texts=[[f"{count:,}" if count else "" for count in row] for row in counts.tolist()],
        table={"texts": counts, "share of the answer": shares},
        text_width=30,
        hover=hover,
        selected=selected,
        tokens=False,
        longest_row=LONGEST_LABEL + 7,
        titles=("answer", "prediction"),
        width=MATRIX_WIDTH,
    )
    return _with_least_height(figure)


def slice_bars(
    values: Sequence[str],
    counts: Sequence[int],
    numbers: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    *,
    title: str,
    is_share: bool,
    selected: int | None = None,
    reference: float | None = None,
) -> go.Figure:
    """Draw a number of each slice as a bar with its interval; a click returns the row of the bar as y.

    values: (slice,) texts, shown with `counts`, the numbers of texts. numbers, low, high: (slice,) the accuracy or the
        mean loss, with the bounds of its interval; NaN without one. title: of the horizontal axis. is_share: whether
        the numbers are from 0 to 1. selected: the slice with a bold label. reference: a number with a dotted line.
    Raises ValueError if the lengths differ.
    """
    require_equal_lengths(values=values, counts=counts, numbers=numbers, lower_bounds=low, upper_bounds=high)
    names = [one_line(value, LONGEST_VALUE) or "(empty)" for value in values]
    labels = [f"{name} ({count:,})" for name, count in zip(names, counts, strict=True)]
    # Without a limit of the distance, Plotly finds the last bar wherever a click is.
    options: dict[str, Any] = {"clickmode": "event+select"}
    if is_share:
        options |= {"limits": (0.0, 1.0), "axis": {"tickformat": ".0%"}}
    if reference is not None:
        options["shapes"] = [vertical_line(reference, page().text, "dot")]
    figure = bars(
        labels,
        {"": numbers},
        title=title,
        write=(lambda number: f"{number:.0%}") if is_share else (lambda number: f"{number:.2f}"),
        form=".1%" if is_share else ".4g",
        intervals=(low, high),
        selected=selected,
        tokens=False,
        longest=LONGEST_VALUE + 10,
        **options,
    )
    figure.update_traces(unselected={"marker": {"opacity": 1}})
    return _with_least_height(figure)


def _with_least_height(figure: go.Figure) -> go.Figure:
    """Return a figure that is high enough to fill its place, except in lecture mode, where it must fit the window."""
    return figure.update_layout(height=max(figure.layout.height, sized(LEAST_HEIGHT, 0)))

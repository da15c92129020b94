"""Figures of attributions: the scores of every method side by side, and how reliable each method is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import PointGroup, cells, points, require_equal_lengths, row_axis
from viz_app.figures.style import DIVERGING, TOKEN_FONT, page, plain, sized, two_digits

PAGE_WIDTH = 900  # of the table, which has a page for itself, in pixels
SYMBOLS = {"better": "circle", "chance": "circle-open", "worse": "x"}
MEANINGS = {"better": "better than chance here", "chance": "no better than chance here", "worse": "worse than chance"}


def score_table(
    shares: np.ndarray,
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    unit: str,
    selected: int | None = None,
    extra_column: tuple[str, np.ndarray] | None = None,
) -> go.Figure:
    """Draw scores as a table of coloured cells: warm for a positive, cool for a negative score.

    shares: (row, column), colours, -1 to 1. values: (row, column), numbers of the cells. unit: of the colours.
    selected: the row to frame. extra_column: label and numbers (row,), -1 to 1, of a column at the right edge.
    Raises ValueError if the labels or the extra column do not fit the values.
    """
    options: dict[str, Any] = {"selected_row": selected, "extra_column": extra_column, "longest_row": 40}
    options |= {"numbers": values, "tokens": False, "width": PAGE_WIDTH}
    return cells(shares, row_labels, column_labels, signed=True, unit=unit, limit=1.0, **options)


def trust_chart(
    methods: Sequence[str], scores: np.ndarray, verdicts: Sequence[str], band: tuple[float, float], *, measure: str
) -> go.Figure:
    """Draw a measure of every method as a point, over the band that holds 95% of random rankings.

    scores: (method,). verdicts: (method,) "better", "chance" or "worse": a filled, an open and a crossed point.
    Raises ValueError if the lengths differ.
    """
    require_equal_lengths(methods=methods, scores=scores, verdicts=verdicts)
    colours, groups = page(), []
    for verdict, meaning in MEANINGS.items():
        rows = [row for row, row_verdict in enumerate(verdicts) if row_verdict == verdict]
        values, colour = [float(scores[row]) for row in rows], colours.faint if verdict == "chance" else colours.accent
        hovers = [
            f"{plain(methods[row])}<br>{plain(measure)} {value:.9g}<br>{meaning}"
            for row, value in zip(rows, values, strict=True)
        ]
        marker = {"symbol": SYMBOLS[verdict], "line": {"width": 2}, "color": colour}
        labels = [f"  {two_digits(value)}" for value in values]
        groups.append(PointGroup(values, rows, hovers, marker, meaning, labels, sides="middle right"))
    return points(
        groups,
        x_axis={"title": {"text": f"{plain(measure)}; grey: 95% of random rankings"}},
        y_axis=row_axis(methods, 40, showgrid=True),
        height=round(len(methods) * sized(26, 36) + 110),
        band=band,
    )


def totals_chart(
    words: Sequence[str], means: np.ndarray, errors: np.ndarray, texts: Sequence[int], *, unit: str
) -> go.Figure:
    """Draw the mean attribution of words over a file as points with 95% confidence intervals.

    means, errors: (word,) means and standard errors, NaN for a word in one text only. texts: (word,) number of texts.
    unit: of the means. Raises ValueError if the lengths differ.
    """
    require_equal_lengths(words=words, means=means, errors=errors, counts_of_texts=texts)
    scale, is_positive = DIVERGING.colours(), [mean > 0 for mean in means.tolist()]
    marker = {
        "color": [scale[-2] if sign else scale[1] for sign in is_positive],
        "symbol": ["circle" if sign else "diamond" for sign in is_positive],
    }
    hovers = [
        f"{plain(word)}<br>mean {mean:.9g}, standard error {error:.3g}<br>{count} texts"
        for word, mean, error, count in zip(words, means.tolist(), errors.tolist(), texts, strict=True)
    ]
    intervals = np.nan_to_num(1.96 * errors).tolist()
    labels = [f"{word} ({count})" for word, count in zip(words, texts, strict=True)]
    return points(
        [PointGroup(means.tolist(), range(len(words)), hovers, marker, errors=intervals)],
        x_axis={"title": {"text": plain(unit)}},
        y_axis=row_axis(labels, 32, showgrid=True, tickfont={"family": TOKEN_FONT}),
        height=round(len(words) * sized(24, 34) + 90),
    )

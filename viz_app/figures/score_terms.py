"""The terms of attention scores: bars for one query, and the map of one term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import annotation, bars, cells, hatched
from viz_app.figures.style import HEAD_COLOURS, cell_number, page, sized

SCORE = "score"
MAX_KEYS, TOP_KEYS = 16, 12  # drawn as bars: all keys of a short text, those with the highest scores of a long one
SHAPES = ("", "/", ".")  # of the fills of the bars, so that terms can be told apart without colour


def drawn_keys(scores: np.ndarray, selected: Sequence[int] = ()) -> list[int]:
    """Return the keys that are drawn as bars, in order: those with the highest scores, and the selected ones.

    scores: (key,); keys whose score is not a finite number are left out.
    """
    finite = np.isfinite(scores)
    keys: list[int] = np.flatnonzero(finite).tolist()
    if len(keys) <= MAX_KEYS:
        return keys
    highest = np.argsort(-np.where(finite, scores, -np.inf), kind="stable")[:TOP_KEYS].tolist()
    return sorted({*highest, *(key for key in selected if key < len(scores) and finite[key])})


def term_fill(number: int) -> dict[str, Any]:
    """Return the fill of the bars of a term. number: of the term, from 0."""
    colour = HEAD_COLOURS[number % len(HEAD_COLOURS)]
    shape = SHAPES[number % len(SHAPES)]
    return hatched(colour, shape=shape, solidity=0.5) if shape else {"color": colour}


def term_bars(labels: Sequence[str], terms: Mapping[str, np.ndarray], scores: np.ndarray) -> go.Figure:
    """Draw the terms of the scores of one query as bars for each key, with a mark at the score and its number.

    labels: (key,). terms: name -> (key,) numbers. scores: (key,).
    Raises ValueError if the lengths differ.
    """
    series = {name: values.tolist() for name, values in terms.items()}
    numbers = np.concatenate([scores, *terms.values()])
    low, high = float(numbers.min(initial=0)), float(numbers.max(initial=0))
    reach = high - low or 1.0
    row_height = (10 + 8 * len(series)) * sized(1, 1.35)
    legend_height, axis_height = sized(44, 56), sized(60, 78)
    font = {"size": sized(13, 17)}
    row_end: dict[str, Any] = {"xref": "paper", "xanchor": "left", "xshift": 8, "showarrow": False}
    notes = [annotation(cell_number(score), 1, row, font=font, **row_end) for row, score in enumerate(scores.tolist())]
    notes.append(annotation(SCORE, 1, -0.5, font={**font, "color": page().faint}, yanchor="bottom", **row_end))
    figure = bars(
        labels,
        series,
        title="part of the score",
        fills={name: term_fill(number) for number, name in enumerate(series)},
        marks=(SCORE, scores.tolist()),
        limits=(low - 0.03 * reach if low < 0 else 0.0, high + 0.03 * reach),
        bar_texts=False,
        legend=True,
        annotations=notes,
        bargap=0.25,
        height=round(len(labels) * row_height + legend_height + axis_height),
    )
    mark = {"size": round(sized(0.8, 0.35) * row_height), "line": {"width": 2}}
    figure.update_traces(marker=mark, legendrank=2000, selector={"type": "scatter"})
    return figure.update_layout(legend_itemsizing="constant")


def term_map(
    values: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    name: str,
    limit: float,
    selected_row: int,
    first_row: int = 0,
    width: int,
) -> go.Figure:
    """Draw one term of the scores of a head as a map: queries are rows, keys columns; warm above 0, cool below.

    values: (query, key); NaN leaves a cell empty. name: of the term. limit: value of the last colour. selected_row: row
    with a frame. first_row: position of the first query. width: expected, in pixels. A click returns the position of
    the query as y.
    Raises ValueError if the labels do not fit the values.
    """
    return cells(
        values,
        row_labels,
        column_labels,
        signed=True,
        unit=name,
        limit=limit,
        selected_row=selected_row,
        first_row=first_row,
        titles=("query (from)", "key (to)"),
        width=width,
        dense=True,
    )

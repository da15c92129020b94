"""The numbers of a figure as a table: every bar, point and cell has its row, and reference lines have none."""

from __future__ import annotations

import numpy as np

from viz_app.figures.attention import attention_heatmap
from viz_app.figures.columns import figure_columns
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import figure_of


def test_bars_are_rows_in_full_precision() -> None:
    """Each bar has the label that the axis shows, and the exact value; hatched bars are a second series."""
    columns = figure_columns(prediction_bars(["<b>cat", "أهل"], [0.123456789, 0.5]))
    assert list(columns.values()) == [[0.123456789, 0.5], ["<b>cat", "أهل"]]
    both = figure_columns(prediction_bars(["cat", "dog"], [0.25, 0.5], before=[0.125, 0.75]))
    assert sorted(both) != sorted(columns) and len(both["series"]) == 4
    assert {0.25, 0.5, 0.125, 0.75} <= {value for column in both.values() for value in column}


def test_cells_are_rows_with_both_labels() -> None:
    """A map (2, 3) has six rows, and each value stands with its row and its column."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    columns = figure_columns(attention_heatmap(values, ["a", "b"], ["x", "y", "z"], signed=False, title=""))
    rows = list(zip(*columns.values(), strict=True))
    assert [(row[0].split()[0], row[1].split()[0]) for row in rows] == [(r, c) for r in "ab" for c in "xyz"]
    assert [row[2] for row in rows] == values.ravel().tolist()


def test_lines_have_the_name_of_their_series_and_references_are_left_out() -> None:
    """A line without hover text is decoration; titles of the axes name the columns, and equal ones stay apart."""
    traces: list[dict[str, object]] = [
        {"type": "scatter", "x": [0, 1], "y": [0.5, 0.25], "name": "probe"},
        {"type": "scatter", "x": [0, 1], "y": [0.1, 0.2], "name": "control"},
        {"type": "scatter", "x": [0, 1], "y": [0.0, 0.0], "hoverinfo": "skip"},
    ]
    ticks = {"tickvals": [0, 1], "ticktext": ["first", "last"], "title": {"text": "layer"}}
    columns = figure_columns(figure_of(traces, {"xaxis": ticks, "yaxis": {"title": {"text": "accuracy"}}}))
    assert columns == {
        "series": ["probe", "probe", "control", "control"],
        "layer": ["first", "last"] * 2,
        "accuracy": [0.5, 0.25, 0.1, 0.2],
    }
    same = {"xaxis": {"title": {"text": "score"}}, "yaxis": {"title": {"text": "score"}}}
    assert list(figure_columns(figure_of(traces[:1], same))) == ["score (x)", "score (y)"]
    empty = figure_of([{"type": "heatmap", "z": np.zeros((0, 0))}], {})
    assert figure_columns(empty) == {"row": [], "column": [], "value": []}

"""The numbers of a figure as a table: every bar, point and cell has its row, and reference lines have none."""

from __future__ import annotations

import numpy as np

from viz_app.figures.attention import attention_heatmap
from viz_app.figures.columns import figure_columns
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import annotation, cells, figure_of, label_axis, lines


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
    traces = [
        lines([0, 1], [0.5, 0.25], "%{y}", name="probe"),
        lines([0, 1], [0.1, 0.2], "%{y}", name="control"),
        lines([0, 1], [0.0, 0.0]),
    ]
    layout = {"xaxis": label_axis(["first", "last"], title={"text": "layer"}), "yaxis": {"title": {"text": "accuracy"}}}
    columns = figure_columns(figure_of(traces, layout | {"annotations": [annotation("note", 0, 0)]}))
    assert columns == {
        "series": ["probe", "probe", "control", "control"],
        "layer": ["first", "last"] * 2,
        "accuracy": [0.5, 0.25, 0.1, 0.2],
    }
    same = {"xaxis": {"title": {"text": "score"}}, "yaxis": {"title": {"text": "score"}}}
    assert list(figure_columns(figure_of(traces[:1], same))) == ["score (x)", "score (y)"]
    assert figure_columns(figure_of([cells(np.zeros((0, 0)), "%{z}")], {})) == {"row": [], "column": [], "value": []}

"""The numbers of a figure as a table: every bar, point and cell has its row, and reference lines have none."""

from __future__ import annotations

import numpy as np

from viz_app.figures.attention import attention_heatmap
from viz_app.figures.causes import effect_map
from viz_app.figures.columns import figure_columns
from viz_app.figures.lens import lens_grid
from viz_app.figures.neurons import neuron_map
from viz_app.figures.predictions import answer_bars, nsp_bar, prediction_bars
from viz_app.figures.scores import pair_bars, similarity_parts
from viz_app.figures.stages import PassColumns, pass_overview
from viz_app.figures.style import figure_of
from viz_app.figures.why import ScoreRow, score_strip, score_table, totals_chart


def test_bars_are_rows_in_full_precision() -> None:
    """Each bar has the label that the axis shows, and the exact value; hatched bars are a second series."""
    columns = figure_columns(prediction_bars(["<b>cat", "أهل"], [0.123456789, 0.5]))
    assert columns == {"label": ["<b>cat", "أهل"], "probability": [0.123456789, 0.5]}
    both = figure_columns(prediction_bars(["cat", "dog"], [0.25, 0.5], before=[0.125, 0.75]))
    assert sorted(both) != sorted(columns) and len(both["series"]) == 4
    assert {0.25, 0.5, 0.125, 0.75} <= {value for column in both.values() for value in column}


def test_bars_from_a_base_or_downwards_have_their_own_numbers() -> None:
    """Neither the place where a bar begins nor its direction changes the number, and every token has its row."""
    columns = figure_columns(nsp_bar(0.125, before=1.0))
    assert columns["series"] == ["before", "now"] and columns["probability that B follows A"] == [1.0, 0.125]
    columns = figure_columns(answer_bars(["a", "b"], [0.25, 0.5], [0.125, 0.75], answer=(0, 1)))
    assert columns == {
        "series": ["as the first token of the answer"] * 2 + ["as the last token"] * 2,
        "label": ["a", "b", "a", "b"],
        "probability": [0.25, 0.5, 0.125, 0.75],
    }
    values = np.array([-0.5, -1.0]), np.array([-0.25, np.nan])
    columns = figure_columns(pair_bars(["a", "b"], ["c", None], *values, np.array([False, False])))
    assert columns["label"] == ["a", "b", "c"] and list(columns.values())[-1] == [0.5, 1.0, 0.25]


def test_maps_of_cells_have_the_numbers_and_not_the_colours() -> None:
    """Of a map whose cells are greyed, cut at the end of the scale, or filled with words, the numbers are exported."""
    effects, greyed = np.array([[0.5, 3.25], [-1.5, 0.0]]), np.array([[True, False], [False, False]])
    columns = figure_columns(effect_map(effects, ["a", "b"], ["c", "d"], greyed=greyed, unit="effect"))
    assert columns == {"row": ["a", "a", "b", "b"], "column": ["c", "d"] * 2, "effect": [0.5, 3.25, -1.5, 0.0]}
    words, hovers = [["a long word that is cut", "b"]], [[["one"], ["two"]]]
    columns = figure_columns(lens_grid(words, np.array([[0.5, 0.25]]), ["a"], hovers, [4], unit="probability"))
    assert columns["word"] == words[0] and columns["probability"] == [0.5, 0.25]
    neurons, values = np.array([[7, 12]]), np.array([[2.5, -0.5]])
    columns = figure_columns(neuron_map(neurons, values, ["a"], ["L0", "L1"], value_name="activation", limits=[1, 1]))
    assert columns["neuron"] == [7, 12] and columns["activation"] == [2.5, -0.5]
    columns = figure_columns(similarity_parts(np.array([[0.5, 0.25]]), ["a"], ["b", "c"]))
    assert columns["sum"] == [0.75, 0.75] and columns["part of the cosine"] == [0.5, 0.25]


def test_scores_of_several_methods_have_their_own_units() -> None:
    """Rows of a strip and of a table have the scores, not the shares that are drawn."""
    rows = [ScoreRow(name, np.array([1.0, -0.5]), np.array([4.0, -2.0]) * n, True) for n, name in ((1, "A"), (2, "B"))]
    columns = figure_columns(score_strip(rows, ["x", "y"]))
    assert columns == {"row": ["A", "A", "B", "B"], "column": ["x", "y"] * 2, "score": [4.0, -2.0, 8.0, -4.0]}
    table = score_table(np.array([[1.0, 0.5]]), np.array([[3.0, 1.5]]), ["A"], ["x", "y"])
    assert figure_columns(table)["score"] == [3.0, 1.5]


def test_points_have_their_intervals() -> None:
    """The half length of a confidence interval is a column; hostile labels are texts."""
    columns = figure_columns(totals_chart(["<b>a", "c"], np.array([0.5, -1.0]), np.array([0.1, 0.2]), [3, 2], unit="u"))
    assert columns["u"] == [0.5, -1.0] and columns["y"] == ["<b>a (3)", "c (2)"]
    assert columns["half length of the interval"] == [1.96 * 0.1, 1.96 * 0.2]


def test_the_overview_has_ids_weights_and_means() -> None:
    """Every cell has its token and place; weights stand at the layer that they enter from."""
    states = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    overview = PassColumns([5, 6], states, np.array([[0.25, 0.75]]))
    columns = figure_columns(pass_overview(overview, ["a", "b"], selected=0, highlight=(0, 1), remarks=[]))
    assert columns["token"] == ["a (0)"] * 3 + ["b (1)"] * 3
    assert columns["token id"] == [5, None, None, 6, None, None]
    assert columns["attention of the selected token in the next layer"] == [None, 0.25, None, None, 0.75, None]
    assert columns["mean of block 1"] == [None, 1.0, 7.0, None, 4.0, 10.0]


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

"""Figures of evaluated texts: what is written in a cell, how long a bar is, and what a click returns."""

from __future__ import annotations

import numpy as np
import pytest

from viz_app.figures.columns import figure_columns
from viz_app.figures.evaluation import confusion_map, slice_bars
from viz_app.figures.primitives import bars

COUNTS = np.array([[6, 2], [0, 0]])


def test_cells_have_counts_and_the_colour_of_the_share_of_their_row() -> None:
    """A row without texts has no colour; every cell can be clicked, and its column is x and its row is y."""
    figure = confusion_map(COUNTS, ["yes", "no <b>"], selected=(0, 1))
    colours, clicks = figure.data[0], figure.data[1]
    np.testing.assert_allclose(np.asarray(colours.z, float), [[0.75, 0.25], [np.nan, np.nan]])
    assert list(zip(clicks.x, clicks.y, strict=True)) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    written = [text for trace in figure.data[2:] for text in trace.text if text]
    assert sorted(written) == ["2", "6"]
    assert "no &lt;b&gt;" in clicks.hovertext[1] and "2 of 8" in clicks.hovertext[1]
    frame = figure.layout.shapes[0]
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, -0.5, 0.5)
    columns = figure_columns(figure)
    assert columns["texts"] == [6, 2, 0, 0] and columns["prediction"] == ["yes", "no <b>"] * 2
    assert columns["answer"] == ["yes (8)"] * 2 + ["no <b> (0)"] * 2


def test_a_bar_of_a_slice_has_its_interval_and_its_number_behind_it() -> None:
    """The interval ends at both bounds, which the exported table has; the number is to the right of it."""
    figure = slice_bars(
        ["a<i>", ""], [40, 1], [0.5, 1.0], [0.35, 0.2], [0.65, 1.0], title="Accuracy", is_share=True, selected=0
    )
    trace, texts = figure.data
    np.testing.assert_allclose(np.add(trace.x, trace.error_x.array), [0.65, 1.0])
    np.testing.assert_allclose(np.subtract(trace.x, trace.error_x.arrayminus), [0.35, 0.2])
    np.testing.assert_allclose(texts.x, [0.65, 1.0])
    assert [text.strip() for text in texts.text] == ["50%", "100%"]
    assert list(trace.y) == [0, 1] and "<b>a&lt;i&gt; (40)</b>" in figure.layout.yaxis.ticktext[0]
    columns = figure_columns(figure)
    assert columns["label"] == ["a<i> (40)", "(empty) (1)"]
    assert columns["interval low"] == [0.35, 0.2] and columns["interval high"] == [0.65, 1.0]


def test_a_click_anywhere_in_a_row_finds_its_bar_and_a_reference_is_a_line() -> None:
    """Plotly searches the row, also of a bar of length 0; with an unlimited distance it would find the last bar."""
    figure = slice_bars(
        ["a", "b"], [3, 4], [0.0, 1.0], [0.0, 0.4], [0.6, 1.0], title="Share", is_share=True, reference=0.5
    )
    assert figure.layout.hovermode == "y" and figure.layout.hoverdistance is None
    assert figure.layout.clickmode == "event+select"
    (line,) = figure.layout.shapes
    assert (line.x0, line.x1, line.y0, line.y1) == (0.5, 0.5, 0, 1)


def test_a_bar_without_an_interval_is_as_long_as_its_number() -> None:
    """The mean of one text has no standard error: nothing is drawn over the bar, and the axis has room for the rest."""
    figure = slice_bars(["a", "b"], [1, 9], [2.0, 3.0], [np.nan, 2.5], [np.nan, 3.5], title="loss", is_share=False)
    trace, texts = figure.data
    assert trace.error_x.array[0] == trace.error_x.arrayminus[0] == 0
    np.testing.assert_allclose(texts.x, [2.0, 3.5])
    assert figure.layout.xaxis.range[1] >= 3.5


def test_parts_of_different_lengths_are_refused() -> None:
    """No bar is left without its number."""
    with pytest.raises(ValueError, match="one of each"):
        slice_bars(["a"], [1, 2], [0.5], [0.1], [0.9], title="Accuracy", is_share=True)
    with pytest.raises(ValueError, match="one for each label"):
        bars(["a", "b"], {"": [1.0]}, title="x", intervals=([0.0], [2.0]))

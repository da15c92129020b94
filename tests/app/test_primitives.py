"""What all maps have in common: digits only where they fit, readable text, and a colour bar with a title."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest

from tests.app.test_figures import contrast
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.causes import effect_map
from viz_app.figures.images import picture_heat
from viz_app.figures.lens import lens_grid, similarity_matrix
from viz_app.figures.neurons import neuron_map
from viz_app.figures.primitives import DIGIT_CELL, WIDTH, bars, cells
from viz_app.figures.stages import vector_panels
from viz_app.figures.style import Look, cell_number, shade, use_look
from viz_app.figures.tuning import alike_depths
from viz_app.figures.why import score_table

ONE_CELL = np.ones((1, 1))
MAPS: dict[str, Callable[[], go.Figure]] = {
    "attention": lambda: attention_heatmap(ONE_CELL, ["q"], ["k"], signed=False, title="L0 H0"),
    "effects": lambda: effect_map(ONE_CELL, ["a"], ["L0"]),
    "image": lambda: picture_heat(np.zeros((8, 8, 3), np.uint8), ONE_CELL, signed=True, unit="gradient"),
    "neurons": lambda: neuron_map(
        np.ones((1, 1), int), ONE_CELL, ["a"], ["L0"], value_name="contribution", limits=[1.0]
    ),
    "panels": lambda: vector_panels({"query": ONE_CELL}, ["a"]),
    "scores": lambda: score_table(ONE_CELL, ONE_CELL, ["LRP"], ["a"], unit="share of the largest"),
    "similarity": lambda: similarity_matrix(ONE_CELL, ["a"]),
    "depths": lambda: alike_depths(ONE_CELL, ["emb."], ["emb."], rows="start", columns="end"),
    "words": lambda: lens_grid([["a"]], ONE_CELL, ["a"], [[("a",)]], [0], unit="probability"),
}


@pytest.mark.parametrize("name", MAPS)
def test_every_map_has_a_colour_bar_with_a_title(name: str) -> None:
    """One colour bar, whose title states what the colours are."""
    bars = [trace.colorbar for trace in MAPS[name]().data if trace.type == "heatmap" and trace.showscale]
    assert len(bars) == 1 and bars[0].title.text


@pytest.mark.parametrize("columns", [1, 5, 11, 12, 13, 14, 24])
@pytest.mark.parametrize("width", [300, WIDTH, 1000])
def test_digits_are_written_only_in_cells_of_44_pixels(columns: int, width: int) -> None:
    """Text in the cells exactly if the width without the row labels has 44 pixels for each column; hover always."""
    figure = cells(np.full((1, columns), 1 / 3), ["abcd"], ["x"] * columns, signed=True, unit="u", width=width)
    assert (len(figure.data) > 2) == ((width - 40 - 8 * 4) / columns >= DIGIT_CELL)
    assert figure.data[1].hovertext[0].endswith("0.333333333")
    assert figure.layout.meta["min_width"] >= columns * (DIGIT_CELL if len(figure.data) > 2 else 20)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0.00"), (-2e-5, "0.00"), (2e-5, "0.00"), (-0.004, "0.00"), (-0.006, "−0.01"), (1.2, "1.20")),
        *((-0.2, "−0.20"), (9.996, "10.0"), (-12.34, "−12.3"), (99.96, "100"), (123456.0, "123456"), (np.nan, "")),
    ],
)
def test_numbers_of_cells_are_short_and_never_scientific(value: float, text: str) -> None:
    """Two decimals, fewer for large numbers, no sign for what rounds to zero, and nothing for NaN."""
    assert cell_number(value) == text


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_text_of_cells_can_be_read_on_the_whole_scale(signed: bool, dark: bool) -> None:
    """Every written number and ring has a contrast of at least 4.5 with the colour of its cell."""
    values = np.linspace(-1 if signed else 0, 1, 200).reshape(20, 10)
    names = [[str(number) for number in range(count)] for count in values.shape]
    with use_look(Look(dark)):
        figure = cells(values, *names, signed=signed, unit="u", marked=np.ones(values.shape, bool))
        *texts, rings = figure.data[2:]
        inks = {(x, y): trace.textfont.color for trace in texts for x, y in zip(trace.x, trace.y, strict=True)}
        assert len(inks) == values.size == len(rings.marker.color)
        for (column, row), ink in inks.items():
            assert contrast(shade(values[row, column], signed=signed)[0], ink) >= 4.5
        for value, ink in zip(values.flat, rings.marker.color, strict=True):
            assert contrast(shade(value, signed=signed)[0], ink) >= 4.5


def test_stacked_bars_are_parts_of_a_total_in_one_row() -> None:
    """Each bar begins where the one before ends, in the row of its label; the only text is the sum."""
    figure = bars(["a", "b"], {"first": [1.0, 2.0], "second": [4.0, 0.0]}, title="share", stacked=True)
    first, second = figure.data
    assert figure.layout.barmode == "overlay" and list(first.y) == list(second.y) == [0, 1]
    assert (list(first.base), list(first.x)) == ([0.0, 0.0], [1.0, 2.0])
    assert (list(second.base), list(second.x)) == ([1.0, 2.0], [4.0, 0.0])
    assert first.textposition == "none" and (second.textposition, list(second.text)) == ("outside", ["5.0", "2.0"])
    assert figure.layout.xaxis.range[1] >= 5
    grouped = bars(["a", "b"], {"first": [1.0, 2.0], "second": [4.0, 0.0]}, title="share")
    assert grouped.layout.height > figure.layout.height and grouped.layout.barmode == "group"


def test_parts_of_another_shape_are_refused() -> None:
    """Labels, numbers, marks and extra columns that do not fit the values are errors with both sizes."""
    with pytest.raises(ValueError, match=r"values of shape \(1, 1\) with 2 row labels and 1 column labels"):
        cells(ONE_CELL, ["a", "b"], ["x"], signed=True, unit="u")
    with pytest.raises(ValueError, match=r"numbers of shape \(2,\) for values of \(1, 1\)"):
        cells(ONE_CELL, ["a"], ["x"], signed=True, unit="u", numbers=np.ones(2))
    with pytest.raises(ValueError, match=r"marks of shape \(2,\) for values of \(1, 1\)"):
        cells(ONE_CELL, ["a"], ["x"], signed=True, unit="u", marked=np.ones(2, bool))

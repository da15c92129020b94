"""Parts of the page that several of its views have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.records import LayerStates
from bert_core.run.lens import layer_states
from bert_core.tokenizer import Encoding
from viz_app.export.tables import labelled_csv
from viz_app.figures.lens import depth_names, layer_lines
from viz_app.pages.layers import depth, depth_slider
from viz_app.shell.downloads import file_button
from viz_app.shell.markdown import escape_markdown, protect_terms
from viz_app.shell.view import chart
from viz_app.shell.work import work


@work("{model} reads {encoding} tokens")
def hidden_states(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray) -> LayerStates:
    """Compute the hidden states of a text at every depth."""
    return layer_states(model, encoding, head_mask=head_mask)


def select_depth(depths: int) -> int:
    """Draw the slider over the depths and return the selected one, by default the last."""
    is_possible = depth.value is not None and 0 <= depth.value < depths
    depth_slider.set(depth.value if depth.value is not None and is_possible else depths - 1)
    names = depth_names(depths)
    return depth_slider(options=range(depths), format_func=names.__getitem__, on_change=_take_slider)


def _take_slider() -> None:
    depth.set(depth_slider.value)


def draw_lines(
    key: str, series: Mapping[str, np.ndarray], depths: Sequence[str], title: str, *, ranks: bool = False
) -> None:
    """Draw a line for each series, (depth,) each, under its name. depths: their names. ranks: as in `layer_lines`."""
    figure = layer_lines(series, depths, title=title, ranks=ranks)
    chart(figure, key=key, toolbar=False, alt=f"{title} through the layers")


def numbers_button(name: str, make_columns: Callable[[], Mapping[str, Sequence[object]]]) -> None:
    """Draw the button of the numbers of a figure as a CSV file, whose columns are made after the click."""
    file_button("Numbers (CSV)", lambda: labelled_csv(make_columns()), f"{name}.csv")


def quote(word: str) -> str:
    """Return a word of a text in quotation marks, for a line of Markdown whose terms are explained."""
    return f"“{protect_terms(escape_markdown(word))}”"

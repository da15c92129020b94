"""Parts of the page that several views have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.records import LayerStates
from bert_core.run.lens import layer_states
from bert_core.tokenizer import Encoding
from viz_app.export.tables import labelled_csv
from viz_app.figures.lens import layer_lines
from viz_app.shell.markdown import escape_markdown, protect_terms
from viz_app.shell.view import add_file, chart, write_line
from viz_app.shell.work import work

TALL, LOW = 420, 210  # heights of figures, in pixels


@work("{model} encodes {encoding} tokens")
def hidden_states(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray) -> LayerStates:
    """Compute the hidden states of a text at every depth."""
    return layer_states(model, encoding, head_mask=head_mask)


def draw_lines(
    key: str,
    series: Mapping[str, np.ndarray],
    depths: Sequence[str],
    title: str,
    *,
    ranks: bool = False,
    height: int = TALL,
) -> None:
    """Draw a line for each series, (depth,) each, under its name.

    depths: their names. ranks: as in `layer_lines`. height: in pixels.
    """
    figure = layer_lines(series, depths, title=title, ranks=ranks, height=height)
    chart(figure, key=key, alt=f"{title}, layer by layer")


def add_numbers(name: str, make_columns: Callable[[], Mapping[str, Sequence[object]]]) -> None:
    """Offer the numbers of a figure as a CSV file, whose columns are made after the click."""
    add_file("Numbers (CSV)", lambda: labelled_csv(make_columns()), f"{name}.csv")


def quote(word: str) -> str:
    """Return a word of a text in quotation marks, for a line of Markdown whose terms are explained."""
    return f"“{protect_terms(escape_markdown(word))}”"


def draw_result(heading: str, line: str) -> None:
    """Write the result of a view above its figure. heading: a sentence with its numbers, without technical terms."""
    st.markdown(f"#### {heading}")
    write_line(line)

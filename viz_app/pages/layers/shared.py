"""What several of the ways to look through the layers need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from bert_core.records import LayerStates
from bert_core.run.lens import layer_states
from bert_core.tokenizer import Encoding
from viz_app.export.tables import labelled_csv
from viz_app.figures.lens import depth_names, layer_lines
from viz_app.shell.controls import control
from viz_app.shell.markdown import escape_markdown, protect_terms
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart
from viz_app.shell.work import Work, wait_for


@dataclass(frozen=True)
class Part:
    """One way to look through the layers: its name, what draws it, and two lines on reading it."""

    title: str
    draw: Callable[[Selection], None]
    reading: str
    misleading: str


def states_of(current: Selection, encoding: Encoding) -> LayerStates:
    """Every state of a text, from the queue."""
    loaded, gates = current.loaded if encoding == current.encoding else current.plain, current.head_mask
    work = Work(
        ("states", loaded.identity, encoding, gates.tobytes()),
        f"{shown_name(loaded.name)} reads {len(encoding)} tokens",
        lambda _: layer_states(loaded, encoding, head_mask=gates),
    )
    return wait_for(work)


def depth_slider(depths: int) -> int:
    """The chosen depth, from the slider; the last to begin with."""
    state, names = st.session_state, depth_names(depths)
    state.depth_slider = state.depth if state.depth is not None and 0 <= state.depth < depths else depths - 1
    depth: int = control(
        st.select_slider,
        "Through the layers",
        "depth_slider",
        options=range(depths),
        format_func=names.__getitem__,
        on_change=_take_depth,
    )
    return depth


def _take_depth() -> None:
    st.session_state.depth = st.session_state.depth_slider


def draw_lines(
    current: Selection, key: str, series: dict[str, np.ndarray], names: list[str], title: str, *, ranks: bool = False
) -> None:
    """Series through the layers, each under its name."""
    chart(
        layer_lines(series, names, title=title, ranks=ranks),
        key=key, config={"displayModeBar": False}, alt=f"{title} through the layers",
    )  # fmt: skip


def take_along(name: str, columns: Callable[[], dict[str, Sequence[object]]]) -> None:
    """The numbers of a picture as a file."""
    st.download_button(
        "Numbers (CSV)", lambda: labelled_csv(columns()), f"{name}.csv", "text/csv", on_click="ignore",
        icon=":material/table:", key=f"{name}_csv",
    )  # fmt: skip


def quoted(word: str) -> str:
    """A word of a text in quotation marks, for a line in Markdown whose technical words are explained."""
    return f"“{protect_terms(escape_markdown(word))}”"

"""The index of the searched corpus, of the server or of the visitor, and the button that opens a search."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.index_reader import Index, open_index
from viz_app.access import is_local_server
from viz_app.shell import frame
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.own_corpus import own_index
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.work import cached_per_model

INDEX = "HEADLIGHT_INDEX"  # environment variable: folder of an index that `headlight index` made


def find_index(loaded: LoadedModel) -> Index | None:
    """Return the index of the server, or else that of the visitor's corpus; None if there is none for this model."""
    with suppress(Refused):
        if (index := _server_index(loaded)) is not None:
            return index
    return own_index(loaded)


def show_index_error(loaded: LoadedModel) -> None:
    """On a local server, write why the index of the server cannot be searched with a model."""
    try:
        _server_index(loaded)
    except Refused as error:
        if is_local_server():
            st.info(with_help(escape_markdown(f"{error}.")), icon=":material/info:")


@cached_per_model
def _open_index(folder: Path) -> Index:
    return open_index(folder)


def _server_index(loaded: LoadedModel) -> Index | None:
    """Return the index of the server, or None. Raises Refused for an index of other weights, and a damaged one."""
    folder = os.environ.get(INDEX)
    if not folder:
        return None
    index = _open_index(Path(folder))
    index.check_model(loaded)
    return index


def query_position(current: Selection) -> int:
    """Return the position of the token that is searched for: the selected one, or else the first that was typed."""
    selected: int | None = st.session_state.query_position
    if selected is not None and selected < len(current.encoding):
        return selected
    return next((position for position, special in enumerate(current.encoding.special) if not special), 0)


def search_button(current: Selection, head: Head, *, similarity: str, position: int | None = None) -> None:
    """Draw a button that searches the corpus for similar tokens of a head, if there is an index.

    similarity: "brings" or "looks". position: of the token to search for; that of the last search if None.
    """
    if current.encoding.pair is not None:
        return
    index = find_index(current.plain)
    if index is None or head not in index.all_heads:
        return
    label, help_text = (
        "Where else does L{} H{} do this?",
        "Search the corpus for tokens at which this head does the like.",
    )
    if st.button(label.format(*head), icon=":material/travel_explore:", key="where_else", help=help_text):
        state = st.session_state
        set_head(head, state.other_heads if state.head == head else ())
        state.layers_view, state.alike = "elsewhere", similarity
        state.query_position = position if position is not None else query_position(current)
        frame.go_to("layers")

"""The index of a corpus that is searched, the server's or a visitor's own, and the way from a page to a search."""

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
from viz_app.shell.work import cached_of_model_by_key

INDEX = "HEADLIGHT_INDEX"  # a folder that `headlight index` made, named at start


def find_index(loaded: LoadedModel) -> Index | None:
    """The index that this server offers, or else that of the visitor's own corpus, where it is one of this model."""
    with suppress(Refused):
        if (index := _server_index(loaded)) is not None:
            return index
    return own_index(loaded)


def show_index_error(loaded: LoadedModel) -> None:
    """Say why the index that this server offers cannot be searched with a model, to who can make another one."""
    try:
        _server_index(loaded)
    except Refused as error:
        if is_local_server():
            st.info(with_help(escape_markdown(f"{error}.")), icon=":material/info:")


def _server_index(loaded: LoadedModel) -> Index | None:
    """The index that this server offers, if it does. Raises Refused for one of other weights, or a broken one."""
    folder = os.environ.get(INDEX)
    if not folder:
        return None
    index: Index = cached_of_model_by_key(("index", folder), lambda: open_index(Path(folder)))
    index.check_model(loaded)
    return index


def query_position(current: Selection) -> int:
    """The position of the token that is searched for: the first that was typed as long as none was chosen."""
    position: int | None = st.session_state.query_position
    if position is not None and position < len(current.encoding):
        return position
    return next((index for index, special in enumerate(current.encoding.special) if not special), 0)


def search_button(current: Selection, head: Head, *, similarity: str, position: int | None = None) -> None:
    """A button that asks the index where else a head does the like; nothing where that cannot be asked.

    alike: what of it, "brings" or "looks". token: the position to begin with; None for the one that was searched last.
    """
    if current.encoding.pair is not None:
        return
    index = find_index(current.plain)
    if index is None or head not in index.all_heads:
        return
    layer, number = head
    if st.button(
        f"Where else does L{layer} H{number} do this?", icon=":material/travel_explore:", key="where_else",
        help="Search the corpus for tokens at which this head does the like.",
    ):  # fmt: skip
        set_head(head, st.session_state.other_heads if st.session_state.head == head else ())
        st.session_state.layers_view, st.session_state.alike = "elsewhere", similarity
        st.session_state.query_position = position if position is not None else query_position(current)
        frame.go_to("layers")

"""The index of the searched corpus, of the server or of the visitor, and the button that opens a search."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.index_reader import Index, open_index
from bert_core.tokenizer import Encoding
from viz_app.access import is_local_server
from viz_app.shell import frame
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.own_corpus import own_index
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection, longest_word
from viz_app.shell.work import cached_per_model

INDEX = "HEADLIGHT_INDEX"  # environment variable: folder of an index that `headlight index` made


def find_index(loaded: LoadedModel) -> Index | None:
    """Return the index of the server, or else that of the visitor's corpus; None if neither exists for this model."""
    return server_index(loaded) or own_index(loaded)


def server_index(loaded: LoadedModel) -> Index | None:
    """Return the index of the server; None if there is none for this model."""
    with suppress(Refused):
        return _server_index(loaded)
    return None


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


def query_encoding(current: Selection) -> Encoding:
    """Return the text that is searched for, with its masks: the first sentence, as corpora have single sentences."""
    if current.encoding.pair is None:
        return current.encoding
    loaded = current.loaded
    encoding = loaded.tokenizer.encode(current.encoding.text)
    masked = [word for word in st.session_state.masked if word < encoding.word_count]
    return loaded.tokenizer.mask_words(encoding, masked)


def query_position(current: Selection) -> int:
    """Return the position of the token that is searched for.

    It is the selected one, or else the token of the target, the masked word, or the first token of the longest word.
    """
    encoding, selected = query_encoding(current), st.session_state.query_position
    own_position = None if current.target is None else current.target.position
    positions: tuple[int | None, ...] = (selected, own_position, *encoding.mask_positions)
    if (first := next((n for n in positions if n is not None and n < len(encoding)), None)) is not None:
        return first
    return encoding.pieces_of(longest_word(encoding))[0] if encoding.word_count else 0


def open_search(similarity: str, position: int | None) -> NoReturn:
    """Open Corpus search. similarity: one of its options. position: of the token to search for; None: as by default."""
    st.session_state.alike, st.session_state.query_position = similarity, position
    frame.go_to("search")


def search_button(current: Selection, head: Head, *, similarity: str, position: int | None = None) -> None:
    """Draw a button that searches the corpus for similar tokens of a head.

    similarity: "brings" or "looks". position: of the token to search for; the one that was selected last if None.
    """
    index = find_index(current.plain)
    if current.encoding.pair is not None or (index is not None and head not in index.all_heads):
        return
    label, help_text = (
        "Find similar uses of L{} H{}",
        "Search the corpus for tokens where this head behaves similarly.",
    )
    if st.button(label.format(*head), icon=":material/travel_explore:", key="where_else", help=help_text):
        state = st.session_state
        set_head(head, state.other_heads if state.head == head else ())
        open_search(similarity, state.query_position if position is None else position)

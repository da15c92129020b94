"""What becomes of an error on a page: a mistake in what was chosen is a sentence, a bug of ours a calm message."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.refused import Refused
from viz_app.bugs import NO_MEMORY, lacks_memory, versions
from viz_app.shell.address import log_line
from viz_app.shell.markdown import error_sentence, with_help

PAGE = "_page"  # the page that is drawn, by its address

logger = logging.getLogger(__name__)


@contextmanager
def error_boundary(place: DeltaGenerator | None = None) -> Iterator[None]:
    """Say what went wrong inside where the picture stands, or in a place; nothing that was chosen is lost.

    A bug goes to the log with its traceback. What Streamlit itself raises to stop or restart a page goes through.
    Also a decorator, for a part of a page that runs alone.
    """
    try:
        yield
    except Refused as error:
        (place or st).error(with_help(error_sentence(error)), icon=":material/error:")
    except Exception as error:
        if lacks_memory(error):
            (place or st).error(with_help(error_sentence(MemoryError(NO_MEMORY))), icon=":material/error:")
            return
        page = st.session_state.get(PAGE, "")
        facts = f"{versions()}\npage {page}: {type(error).__name__}\n{log_line()}"
        logger.exception("a bug on a page\n%s", facts)
        with (place or st).container():
            st.error(
                with_help(
                    "This page has a bug: it is not your fault, and nothing that you chose is lost. Change something, "
                    "or open another page."
                ),
                icon=":material/error:",
            )
            st.caption("To report it, copy these lines. Nothing that you typed is in them.")
            st.code(facts, language=None)

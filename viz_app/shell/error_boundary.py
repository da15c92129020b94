"""Errors on a page: impossible input is explained by a sentence, a bug by a message with facts for a report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.refused import Refused
from viz_app.bugs import NO_MEMORY, lacks_memory, versions
from viz_app.shell.address import log_line
from viz_app.shell.markdown import PAGE, error_sentence, with_help
from viz_app.texts import page_texts

TEXTS = page_texts("frame")

logger = logging.getLogger(__name__)


@contextmanager
def error_boundary(place: DeltaGenerator | None = None) -> Iterator[None]:
    """Show an error that is raised inside, in `place` or below what is drawn. Also a decorator.

    A bug is logged with its traceback. Exceptions by which Streamlit stops or restarts a page are not caught.
    """
    container = place or st
    try:
        yield
    except Refused as error:
        container.error(with_help(error_sentence(error)), icon=":material/error:")
    except Exception as error:
        if lacks_memory(error):
            container.error(with_help(error_sentence(MemoryError(NO_MEMORY))), icon=":material/error:")
            return
        page = st.session_state.get(PAGE, "")
        facts = f"{versions()}\npage {page}: {type(error).__name__}\n{log_line()}"
        logger.exception("a bug on a page\n%s", facts)
        with container.container():
            st.error(with_help(TEXTS["bug.sentence"]), icon=":material/error:")
            st.caption(TEXTS["bug.report"])
            st.code(facts, language=None)

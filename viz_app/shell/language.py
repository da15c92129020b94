"""The language of the session, in which `viz_app.texts` looks up the texts of the app."""

from __future__ import annotations

import streamlit as st

from viz_app.streamlit_compat import is_in_script_run
from viz_app.texts import ENGLISH, set_reader_language


def language() -> str:
    """Return the tag of the selected language, one of `LANGUAGES`; outside of the app, English."""
    if not is_in_script_run():
        return ENGLISH
    return str(st.session_state.get("lang", ENGLISH))


set_reader_language(language)

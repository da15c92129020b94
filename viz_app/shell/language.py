"""The language of the app: English sentences are in the code, translations in a file for each language."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamlit as st

from viz_app.lessons import ENGLISH
from viz_app.streamlit_compat import is_in_script_run


def language() -> str:
    """Return the tag of the selected language, of `lessons.LANGUAGES`; outside of the app, English."""
    if not is_in_script_run():
        return ENGLISH
    return str(st.session_state.get("lang", ENGLISH))


def translate(english: str, *, tag: str | None = None) -> str:
    """Return a sentence of the app in the selected language, or in English without a translation.

    Values are formatted into its braces afterwards. tag: of a language other than the selected one.
    """
    tag = language() if tag is None else tag
    return english if tag == ENGLISH else translations(tag).get(english, english)


@cache
def translations(tag: str) -> Mapping[str, str]:
    """Return the sentences of a language by the English ones."""
    return tomllib.loads(Path(__file__).with_name(f"{tag}.toml").read_text("utf-8"))

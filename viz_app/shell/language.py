"""The language in which the app speaks: its English sentences stand in the code, another's in a file of pairs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamlit as st

from viz_app.lessons import ENGLISH
from viz_app.streamlit_compat import is_in_script_run


def language() -> str:
    """The tag of the language that is chosen, of `lessons.LANGUAGES`; outside of the app, English."""
    if not is_in_script_run():
        return ENGLISH
    return str(st.session_state.get("lang", ENGLISH))


def translate(english: str, *, tag: str | None = None) -> str:
    """A sentence of the app in the language that is chosen; one that has no other words stays English.

    What it names stands in braces, and is filled in afterwards. tag: of another language than the chosen one.
    """
    chosen = language() if tag is None else tag
    return english if chosen == ENGLISH else translations(chosen).get(english, english)


@cache
def translations(tag: str) -> Mapping[str, str]:
    """The sentences of a language by the English ones."""
    return tomllib.loads(Path(__file__).with_name(f"{tag}.toml").read_text("utf-8"))

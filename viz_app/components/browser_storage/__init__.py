"""Texts stored in the browser, which remain when a page is reloaded or its server is restarted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from viz_app.components.joining import joined

MAX_CHARACTERS = 100_000  # signs

_view = component("headlight.browser_storage", js=joined(Path(__file__).parent / "browser_storage.js"))


def browser_storage(name: str, text: str | None, receive_text: Callable[[str], None], *, tab: bool = False) -> None:
    """Store a text in the browser under a name, in place of the previous one; it is stored in this browser only.

    text: None reads the stored text. receive_text: called with the stored text before the next run, or with an empty
    text if there is none, or more than `MAX_CHARACTERS`. tab: whether only this tab stores it, until it is closed.
    """
    key = f"browser_storage_{name}"

    def receive() -> None:
        view = st.session_state.get(key)
        stored = view.get("kept") if view else None
        receive_text(stored if isinstance(stored, str) and len(stored) <= MAX_CHARACTERS else "")

    _view(key=key, data={"name": name, "text": text, "tab": tab}, height=0, on_kept_change=receive)

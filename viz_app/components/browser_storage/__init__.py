"""What a browser keeps for itself, and gives back to a page that was reloaded or whose server was started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from viz_app.components.joining import joined

MAX_CHARACTERS = 100_000  # signs

_view = component("headlight.browser_storage", js=joined(Path(__file__).parent / "browser_storage.js"))


def browser_storage(name: str, text: str | None, on_read: Callable[[str], None], *, tab: bool = False) -> None:
    """Let the browser keep a text under a name, in the place of the one before; it leaves this browser for no other.

    text: None asks for what is kept. on_read: called with it before the next run, or with an empty text where there is
    nothing, or more than LONGEST signs. tab: whether only this tab keeps it, until it is closed.
    """
    key = f"browser_storage_{name}"

    def receive() -> None:
        view = st.session_state.get(key)
        stored = view.get("kept") if view else None
        on_read(stored if isinstance(stored, str) and len(stored) <= MAX_CHARACTERS else "")

    _view(key=key, data={"name": name, "text": text, "tab": tab}, height=0, on_kept_change=receive)

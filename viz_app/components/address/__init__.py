"""The browser's side of a page: a press of Back takes back one step, and a lost connection loses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined

_view = component("headlight.address", js=joined(Path(__file__).parent / "address.js"))


def keep_history(steps: Sequence[str]) -> None:
    """Let the browser's history have an entry for each page and each change of a step, and for nothing else.

    When a connection that was lost is back, the page runs again: it may be at another server now.
    steps: parameters of the address whose change is a step.
    """
    _view(key="address", data={"steps": list(steps)}, height=0, on_again_change=lambda: None)

"""The browser's history: one press of Back takes back what a person would call one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined

_view = component("headlight.address", js=joined(Path(__file__).parent / "address.js"))


def keep_history(steps: Sequence[str]) -> None:
    """Let the browser's history have an entry for each page and each change of a step, and for nothing else.

    steps: parameters of the address whose change is a step.
    """
    _view(key="address", data={"steps": list(steps)}, height=0)

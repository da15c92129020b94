"""The side bar of Streamlit, closed where it would take the window from the picture."""

from __future__ import annotations

from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined

_view = component("headlight.side_bar", js=joined(Path(__file__).parent / "side_bar.js"))


def close_on_narrow_windows() -> None:
    """Close the side bar once, when the app is opened in a narrow window; a visitor may open it again."""
    _view(key="side_bar", height=0)

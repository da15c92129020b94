"""A sentence that screen readers read aloud when it changes, and nobody sees."""

from __future__ import annotations

from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.joining import joined

_view = component(
    "headlight.announcer",
    html='<div class="status" role="status"></div>',
    css=".status { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }",
    js=joined(Path(__file__).parent / "announcer.js"),
)


def announce(sentence: str) -> None:
    """Let a screen reader read a sentence, such as the result of a run, if it differs from that of the last run."""
    _view(key="announcer", data={"sentence": sentence}, height=0)

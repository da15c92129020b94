"""The sentence as the model reads it, shown in the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from streamlit.components.v2 import component

from viz_app.components.clicks import deliver, latest
from viz_app.components.joining import joined
from viz_app.components.token_strip import MARKUP, STYLE, Chip, TokenClick, strip_message

_view = component("headlight.token_strip", html=MARKUP, css=STYLE, js=joined(Path(__file__).parent / "token_strip.js"))


def token_strip(
    tokens: Sequence[Chip],
    *,
    key: str,
    disabled: bool = False,
    label: str = "Tokens; click a word to mask it or show it again",
    appear: str = "",
    start: int = 0,
    on_click: Callable[[TokenClick], None] | None = None,
) -> TokenClick | None:
    """The chips in reading order; returns the word clicked, in the one run that the click started.

    label: what the strip is and what a click does, for those who hear the page.
    appear: the chips come one after another whenever this changes to another text; empty shows them all at once.
    start: the position of the first chip; when it changes, the strip scrolls to the target or the first hidden word.
    on_click: called with each click before that run, so that what it changes is already seen by the whole page.
    """
    words = set() if disabled else {chip.word for chip in tokens if chip.word is not None and not chip.special}

    def read(target: object) -> TokenClick | None:
        return TokenClick(target) if isinstance(target, int) and target in words else None

    def receive(target: object) -> None:
        if on_click is not None and (click := read(target)) is not None:
            on_click(click)

    result = _view(
        key=key,
        data=strip_message(tokens, disabled=disabled, label=label, appear=appear, start=start),
        on_click_change=lambda: deliver(key, receive),
    )
    return read(latest(result.click))

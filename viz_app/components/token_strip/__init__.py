"""The sentence as the model reads it: one chip a piece, a click for each word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamlit.components.v2 import component

from viz_app.components import TIP, TIP_STYLE
from viz_app.components.clicks import deliver, latest
from viz_app.components.joining import joined
from viz_app.figures.style import SENTENCE_TINTS, current_look


@dataclass(frozen=True)
class Chip:
    """One token as the reader sees it.

    text: what stands on the chip, plain text. title: shown on hover.
    word: number of the word it is a piece of, the value a click returns; None for a special token.
    side: the sentence it belongs to. masked: hidden from the model. target: what is being explained.
    number: written under the text. shades: ground and ink on a light and on a dark page, as `style.shade` gives them.
    """

    text: str
    title: str = ""
    word: int | None = None
    side: Literal["A", "B"] | None = None
    special: bool = False
    masked: bool = False
    target: bool = False
    number: str = ""
    shades: tuple[tuple[str, str], tuple[str, str]] | None = None


@dataclass(frozen=True)
class TokenClick:
    """A word was clicked."""

    word: int


_FOLDER = Path(__file__).parent
_view = component(
    "headlight.token_strip",
    html='<div class="strip" role="toolbar"></div>' + TIP,
    css=TIP_STYLE + (_FOLDER / "token_strip.css").read_text("utf-8"),
    js=joined(_FOLDER / "token_strip.js"),
)


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
        data={
            "chips": [
                [
                    chip.text,
                    chip.title,
                    chip.word,
                    chip.side,
                    chip.special,
                    chip.masked,
                    chip.target,
                    chip.number,
                    chip.shades,
                ]
                for chip in tokens
            ],
            "tints": SENTENCE_TINTS,
            "lecture": current_look().lecture,
            "disabled": disabled,
            "label": label,
            "appear": appear,
            "start": start,
        },
        on_click_change=lambda: deliver(key, receive),
    )
    return read(latest(result.click))

"""The sentence as the model reads it: one chip a piece, a click for each word.

Here is what a browser gets and is told, in the app as in a page of its own; `view` shows it in the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from viz_app.components import TIP, TIP_STYLE
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


MARKUP = '<div class="strip" role="toolbar"></div>' + TIP
STYLE = TIP_STYLE + (Path(__file__).parent / "token_strip.css").read_text("utf-8")


def strip_message(chips: Sequence[Chip], *, disabled: bool, label: str, appear: str, start: int) -> dict[str, Any]:
    """What the browser is told; the arguments are those of `token_strip`."""
    return {
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
            for chip in chips
        ],
        "tints": SENTENCE_TINTS,
        "lecture": current_look().lecture,
        "disabled": disabled,
        "label": label,
        "appear": appear,
        "start": start,
    }

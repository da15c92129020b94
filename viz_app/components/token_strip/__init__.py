"""The sentence as the model reads it: one chip a piece, a click for each word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Chip:
    """One token as the reader sees it.

    text: what stands on the chip, plain text. title: shown on hover.
    word: number of the word it is a piece of, the value a click returns; None for a special token.
    side: the sentence it belongs to. masked: hidden from the model. target: what is being explained.
    """

    text: str
    title: str = ""
    word: int | None = None
    side: Literal["A", "B"] | None = None
    special: bool = False
    masked: bool = False
    target: bool = False


@dataclass(frozen=True)
class TokenClick:
    """A word was clicked."""

    word: int


def token_strip(
    tokens: Sequence[Chip],
    *,
    key: str,
    lecture: bool = False,
    disabled: bool = False,
    on_click: Callable[[TokenClick], None] | None = None,
) -> TokenClick | None:
    """The chips in reading order; returns the word clicked, in the one run that the click started.

    on_click: called with the click before that run, so that what it changes is already seen by the whole page.
    """
    return None

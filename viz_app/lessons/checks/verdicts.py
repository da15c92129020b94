"""What a check says of an answer, and how a lesson names a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from viz_app.lessons import Reveal

Head = tuple[int, int]  # layer, head
Figures = dict[str, str | float]
Mark = Literal["", "yours", "true", "both"]


class Phrase(str):
    """A word of a figure that is ours, and not the text's or the model's: it is said in the reader's language."""


class Bar(NamedTuple):
    """One bar of the picture: its name, its length, and whose it is: your answer, the true one, both or neither."""

    name: str
    value: float
    mark: Mark = ""


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what is true.

    figures: numbers and words for a sentence, by name. bars: your answer and the truth in one picture.
    holds: whether what the lesson claims is so on this model and this text.
    """

    right: bool
    truth: tuple[str | float | Head, ...]
    figures: Mapping[str, str | float]
    bars: tuple[Bar, ...] = ()
    claim_holds: bool = True

    def reveal_text(self, reveal: Reveal) -> str:
        """What a lesson says of the answer: of a right one, a wrong one, or where the model does otherwise."""
        if not self.claim_holds:
            return reveal.claim_fails
        return reveal.right if self.right else reveal.wrong

    def translated_figures(self, say: Callable[[str], str]) -> Figures:
        """The figures in a reader's language. say: says a word of ours in it."""
        return {name: say(what) if isinstance(what, Phrase) else what for name, what in self.figures.items()}


@dataclass(frozen=True)
class Check:
    """A check, as a lesson names it.

    judge: record and answer to a verdict. needs: the record that it is asked of. answers: the ways of answering that
    it takes, of `lessons.ANSWERS`. words, numbers: the figures that a sentence may name. bars: the names of its bars
    that are no words of the text. things: what an order puts in order, by its names. page: what of the page is the
    answer, where it is given there: "head", or the name of a choice; nothing where the record holds it.
    """

    judge: Callable[[Any, Any], Verdict]
    record: str
    answers: tuple[str, ...]
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    bars: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    page_choice: str = ""


def bar_mark(what: object, *, true: object, yours: object) -> Mark:
    """Whose a bar is that stands for `what`, beside the true answer and yours."""
    if what == true:
        return "both" if what == yours else "true"
    return "yours" if what == yours else ""


def head_name(head: Head) -> str:
    """A head as a sentence names it."""
    return f"L{head[0]} H{head[1]}"


def best_head(scores: np.ndarray) -> Head:
    """The head with the largest score; one without a score, NaN, is passed over."""
    layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
    return int(layer), int(head)

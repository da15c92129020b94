"""The verdict on an answer, and the registry of checks by the names that lessons use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from bert_core.refused import Refused
from viz_app.lessons import Reveal
from viz_app.lessons.checks.context import Head, Record
from viz_app.texts import Phrase

Figures = Mapping[str, str | float]
Mark = Literal["", "yours", "true", "both"]


class Bar(NamedTuple):
    """One bar of the chart: its name, its length, and whether it marks the reader's answer, the true one or both."""

    name: str
    value: float
    mark: Mark = ""


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what is true.

    figures: numbers and words that a sentence can contain, by name. bars: the answer and the truth in one chart.
    claim_holds: whether the claim of the lesson is true of this model and this text.
    """

    right: bool
    truth: tuple[str | float | Head, ...]
    figures: Figures
    bars: tuple[Bar, ...] = ()
    claim_holds: bool = True

    def reveal_text(self, reveal: Reveal) -> str:
        """Return the text of a lesson for a right answer, a wrong answer, or a claim that does not hold."""
        if not self.claim_holds:
            return reveal.claim_fails
        return reveal.right if self.right else reveal.wrong

    def translated_figures(self, tag: str | None = None) -> dict[str, str | float]:
        """Return the figures with every `Phrase` translated. tag: of the language; None: that of the reader."""
        return {
            name: figure.translated(tag) if isinstance(figure, Phrase) else figure
            for name, figure in self.figures.items()
        }


@dataclass(frozen=True)
class Check:
    """A check that lessons refer to by name.

    judge: returns the verdict on the data of a record and an answer. answers: the kinds of answer that it accepts, of
    `lessons.ANSWERS`. words, numbers: names of the figures that a sentence can contain. bars: names of its bars that
    are not words of the text. items: what an order consists of. page_choice: for an answer given on the page, "head" or
    the name of the choice; empty where the record contains it.
    """

    judge: Callable[[Any, Any], Verdict]
    record: Record
    answers: tuple[str, ...]
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    bars: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    page_choice: str = ""


REGISTRY: dict[str, Check] = {}
Judge = TypeVar("Judge", bound=Callable[..., Verdict])


def check(
    record: Record,
    answer: str,
    words: str = "",
    numbers: str = "",
    *,
    bars: str = "",
    items: tuple[str, ...] = (),
    page_choice: str = "",
    name: str = "",
) -> Callable[[Judge], Judge]:
    """Return a decorator that registers a function as a `Check` under its own name, or under `name`.

    words, numbers, bars: names separated by spaces; the other arguments are those of `Check`.
    """

    def register(judge: Judge) -> Judge:
        names = tuple(words.split()), tuple(numbers.split()), tuple(bars.split())
        REGISTRY[name or judge.__name__] = Check(judge, record, (answer,), *names, items, page_choice)
        return judge

    return register


def bar_mark(name: object, *, true: object, answer: object) -> Mark:
    """Return the mark of a bar, given the names of the true answer and of the reader's answer."""
    if name == true:
        return "both" if name == answer else "true"
    return "yours" if name == answer else ""


def marked_bars(values: Mapping[str, float], *, true: str, answer: str = "yours") -> tuple[Bar, ...]:
    """Return one bar for each value, in order, marked by the names of the true answer and of the reader's answer."""
    return tuple(Bar(name, value, bar_mark(name, true=true, answer=answer)) for name, value in values.items())


def estimate_verdict(
    answer: float, true: str, tolerance: float, figures: Figures, values: Mapping[str, float], *, claim_holds: bool
) -> Verdict:
    """Return the verdict on an estimated number, which is right if it differs from the truth by `tolerance` at most.

    values: of the bars, by name; that of `true` is the truth. The figures "yours" (the answer), "away" (its distance
    from the truth) and "near" (the tolerance) are added.
    """
    distance = abs(answer - values[true])
    figures = {"yours": answer, "away": distance, "near": tolerance, **figures}
    bars = marked_bars(values, true=true)
    return Verdict(distance <= tolerance, (float(values[true]),), figures, bars, claim_holds)


def require_other_word(answer: int, words: Sequence[str], excluded: int, description: str) -> None:
    """Raise Refused for the number of a word that does not exist, or of the excluded word."""
    if answer == excluded or answer not in range(len(words)):
        raise Refused(f"word {answer} cannot be the answer: choose another word than {description}")


def head_name(head: Head) -> str:
    """Return a head in the notation of sentences, such as L3 H2."""
    return f"L{head[0]} H{head[1]}"


def best_head(scores: np.ndarray) -> Head:
    """Return the head with the largest score. scores: (layer, head), NaN for a head without a score."""
    layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
    return int(layer), int(head)

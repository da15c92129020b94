"""Lessons as data; the text of each lesson is in a TOML file of its own.

The reader answers a question before the truth is shown. `STEPS` are: a prediction, an exercise on the live page, the
truth beside the prediction, the same question about a sentence of the reader's own, and free exploration. This package
does not import Streamlit; only its checks import models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

STEPS = ("predict", "do", "reveal", "yours", "free")
# The kinds of answer: given in the panel as a word that is clicked, a number, an option or an order; or on the page.
ANSWERS = ("word", "number", "choice", "order", "page")
TREES = Path(__file__).with_name("trees.conllu")  # sixty example sentences with their dependency trees


@dataclass(frozen=True)
class View:
    """The state of a page: its path, and its choices as in an address; an empty address leaves them unchanged."""

    page: str
    address: Mapping[str, str]


@dataclass(frozen=True)
class Option:
    """One option of a choice: a range of numbers, both ends included, and its label.

    Options are equal whatever the language of their labels.
    """

    minimum: float
    maximum: float
    label: str = field(compare=False)

    def contains(self, number: float) -> bool:
        """Return whether a number is in the range."""
        return self.minimum <= number <= self.maximum

    def nearest_to(self, number: float) -> float:
        """Return the number of the range that is nearest to a number."""
        return min(max(number, self.minimum), self.maximum)


@dataclass(frozen=True)
class Task:
    """The question or instruction of a step.

    text: what to do. answer: one of `ANSWERS`. check: a name in `checks.CHECKS`. right, wrong: the text for a right and
    a wrong answer, with figures of the check in braces. options: of a choice. minimum, maximum: of a number, counted in
    `unit`. items: what an order consists of.
    """

    view: View
    text: str
    answer: str
    check: str
    right: str = ""
    wrong: str = ""
    hint: str = ""
    options: tuple[Option, ...] = ()
    minimum: float = 0.0
    maximum: float = 0.0
    unit: str = ""
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reveal:
    """The step that shows the truth.

    right, wrong, claim_fails: the text for a right answer, a wrong answer, and a model for which the claim of the
    lesson is false. title: of the chart. bars: labels of bars by the names in the check. form: format specification of
    the numbers of bars.
    """

    view: View
    right: str
    wrong: str
    claim_fails: str
    title: str
    bars: Mapping[str, str]
    form: str


@dataclass(frozen=True)
class PageLink:
    """A link to further exploration: its label and the view that it opens."""

    label: str
    view: View


@dataclass(frozen=True)
class Lesson:
    """A lesson: one question, its steps, and the publication that it is based on.

    name: the name of its file. course: 1 to 3. number: position among all lessons. minutes: approximate duration.
    source, link: the publication and its address.
    """

    name: str
    title: str
    question: str
    course: int
    number: int
    minutes: int
    source: str
    link: str
    predict: Task
    exercise: Task
    reveal: Reveal
    own_sentence: Task
    free: tuple[PageLink, ...]

    def view(self, step: str) -> View:
        """Return the view at the start of a step; the last step has that of the step before it."""
        views = {"predict": self.predict.view, "do": self.exercise.view, "reveal": self.reveal.view}
        return views.get(step, self.own_sentence.view)


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, which empty lines separate, each on one line."""
    return [" ".join(part.split()) for part in text.split("\n\n")]

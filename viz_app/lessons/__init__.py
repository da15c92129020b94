"""Lessons: what is asked, said and checked, as data; the words of each stand in a file of their own.

A lesson asks before it shows. Its steps are `STEPS`: a prediction, something to do on the live page, the truth beside
the prediction, the same with one's own sentence, and free play. Nothing here knows Streamlit or a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEPS = ("predict", "do", "reveal", "yours", "free")
# How an answer is given: in the panel, by a click on a word, as a number, as one of some options or as an order of
# some things; or on the page.
ANSWERS = ("word", "number", "choice", "order", "page")
# By their tags, each in its own name. A lesson is written in English; its words in another stand in a folder so called.
LANGUAGES = {"en": "English", "de": "Deutsch"}
ENGLISH = "en"


@dataclass(frozen=True)
class View:
    """What a page shows: its path, and its address by the names of the choices; no address leaves it as it is."""

    page: str
    address: Mapping[str, str]


@dataclass(frozen=True)
class Option:
    """One of several answers: the range of numbers that it stands for, both ends in it, and what it says.

    In any language it is the same answer.
    """

    minimum: float
    maximum: float
    label: str = field(compare=False)


@dataclass(frozen=True)
class Task:
    """What a step asks for.

    view: where. says: what is to be done. answer: one of `ANSWERS`. check: its name in `checks.CHECKS`.
    right, wrong: what is said of the answer, with the check's figures in braces. hint: given when it is asked for.
    options: of a choice. least, most: of a number; unit: what it counts.
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


@dataclass(frozen=True)
class Reveal:
    """What is said when the truth is shown: of a right answer, of a wrong one, and where the model does otherwise.

    view: where. title: of the picture. bars: what its bars are called, by the names that the check gives them.
    form: how a bar's number is written, as in a sentence.
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
    """Where to go on without prompts: what the link says, and what it opens."""

    label: str
    view: View


@dataclass(frozen=True)
class Lesson:
    """A lesson: one question, its steps, and on whose result it stands.

    name: of its file. course: 1 to 3. number: its place among all lessons. minutes: about how long it takes.
    source: whose result; link: where to read it.
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
        """What the page shows when a step begins; the last one leaves it as it is."""
        views = {
            "predict": self.predict.view, "do": self.exercise.view, "reveal": self.reveal.view,
            "yours": self.own_sentence.view,
        }  # fmt: skip
        return views.get(step, self.own_sentence.view)


def split_paragraphs(text: str) -> list[str]:
    """What a lesson says, paragraph by paragraph, as an empty line parts them in its file; each in one line."""
    return [" ".join(part.split()) for part in text.split("\n\n")]

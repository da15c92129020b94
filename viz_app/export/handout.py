"""A lesson as one self-contained HTML file: the question, the answer of the reader, then the truth.

The file contains the verdict on every possible answer, so that it works without a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from viz_app.components.joining import joined
from viz_app.export.markup import render, themed_style
from viz_app.figures.style import DIVERGING

SCRIPT = joined(Path(__file__).parent / "handout.js")


@dataclass(frozen=True)
class Bar:
    """One bar of the truth.

    start, length: shares of the width, from 0 to 1. mark: "yours", "true", "both" or ""; mark_label: its words.
    """

    label: str
    number: str
    start: float
    length: float
    mark: str
    mark_label: str


@dataclass(frozen=True)
class Outcome:
    """The paragraphs of the verdict on an answer, and its bars."""

    paragraphs: Sequence[str]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Picture:
    """A picture as SVG, and its description."""

    svg: bytes
    alt: str


@dataclass(frozen=True)
class Handout:
    """The content of the file; every text is escaped.

    texts: the one or two sentences as words, each with whether it is hidden. answer: "word", "number", "choice" or
    "order". choices: words, options or items of an order, by the numbers that denote them. bounds: the smallest and the
    largest number. outcomes: by the number of the answer, or by numbers separated by commas. links: further views, each
    a label and an address. words: labels of the page in its language: "expect", "say", "number", "hint", "true", "on",
    "needs".
    """

    language: str
    title: str
    question: str
    paragraphs: Sequence[str]
    hint: str
    texts: Sequence[Sequence[tuple[str, bool]]]
    pictures: Sequence[Picture]
    answer: str
    choices: Mapping[int, str]
    bounds: tuple[int, int]
    outcomes: Mapping[str, Outcome]
    bars_title: str
    true_pictures: Sequence[Picture]
    description: str
    source: str
    link: str
    links: Sequence[tuple[str, str]]
    words: Mapping[str, str]


def handout_page(handout: Handout) -> str:
    """Return the HTML of the file."""
    style = themed_style("export/handout.css", lambda is_dark: f"--yours: {DIVERGING[is_dark][-4]};")
    return render("export/handout.html", handout=handout, style=style, script=SCRIPT)

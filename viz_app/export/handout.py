"""A lesson as one self-contained HTML file: the question, the answer of the reader, then the truth.

The file contains the verdict on every possible answer, so that it works without a server.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from viz_app.components.joining import joined
from viz_app.export.page import variables
from viz_app.export.policy import hash_source
from viz_app.figures.style import DIVERGING

_FOLDER = Path(__file__).parent
SCRIPT = joined(_FOLDER / "handout.js")


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
    colours = [f":root {{--yours: {scale[-4]};}}" for scale in DIVERGING]
    style = "\n".join([
        variables(None), colours[0], f"@media (prefers-color-scheme: dark) {{{colours[1]}}}",
        (_FOLDER / "handout.css").read_text("utf-8"),
    ])  # fmt: skip
    outcomes = {number: asdict(outcome) for number, outcome in handout.outcomes.items()}
    filling = {
        "language": html.escape(handout.language),
        "title": html.escape(handout.title),
        "question": html.escape(handout.question),
        "script-hash": hash_source(SCRIPT),
        "style-hash": hash_source(style),
        "style": style,
        "script": SCRIPT,
        "texts": "\n".join(_text(text, side) for text, side in zip(handout.texts, "ab", strict=False)),
        "pictures": _pictures(handout.pictures),
        "says": _paragraphs(handout.paragraphs),
        "answers": _answers(handout),
        "hint": _hint(handout),
        "told": html.escape(handout.bars_title),
        "true-pictures": _pictures(handout.true_pictures),
        "about": html.escape(handout.description),
        "source": html.escape(handout.source),
        "link": html.escape(handout.link),
        "ways": "".join(
            f"<li>{html.escape(label)}<br><code>{html.escape(address)}</code></li>" for label, address in handout.links
        ),
        # Within a script, only "<" could end it.
        "outcomes": json.dumps(outcomes).replace("<", "\\u003c"),
        **{name: html.escape(handout.words[name]) for name in ("expect", "say", "true", "on", "needs")},
    }
    # In one pass, so that no inserted text is replaced again.
    template = (_FOLDER / "handout.html").read_text("utf-8")
    return re.sub(r"\{\{([\w-]+)\}\}", lambda match: filling[match[1]], template)


def _text(words: Iterable[tuple[str, bool]], side: str) -> str:
    spans = "".join(
        f'<span class="hidden">{html.escape(word)}</span>' if hidden else f"<span>{html.escape(word)}</span>"
        for word, hidden in words
    )
    return f'<p class="text {side}">{spans}</p>'


def _paragraphs(parts: Iterable[str]) -> str:
    return "".join(f"<p>{html.escape(part)}</p>" for part in parts)


def _pictures(pictures: Iterable[Picture]) -> str:
    return "".join(
        f'<figure><img alt="{html.escape(picture.alt)}" src="data:image/svg+xml;base64,'
        f'{base64.b64encode(picture.svg).decode()}"></figure>'
        for picture in pictures
    )


def _answers(handout: Handout) -> str:
    """Return the control of the answer: a number field, a list for each rank of an order, or radio buttons."""
    if handout.answer == "number":
        minimum, maximum = handout.bounds
        attributes = f'name="answer" type="number" min="{minimum}" max="{maximum}" step="1" required'
        return f"<label>{html.escape(handout.words['number'])} <input {attributes}></label>"
    if handout.answer == "order":
        options = "".join(
            f'<option value="{key}">{html.escape(label)}</option>' for key, label in handout.choices.items()
        )
        return "".join(
            f'<label>{place}. <select name="answer"><option value=""></option>{options}</select></label>'
            for place in range(1, len(handout.choices) + 1)
        )
    return "".join(
        f'<label><input name="answer" type="radio" value="{key}"> {html.escape(label)}</label>'
        for key, label in handout.choices.items()
    )


def _hint(handout: Handout) -> str:
    if not handout.hint:
        return ""
    summary = html.escape(handout.words["hint"])
    return f"<details><summary>{summary}</summary><p>{html.escape(handout.hint)}</p></details>"

"""A lesson as one self-contained HTML file: the question, the answer of the reader, then the truth.

The file contains the verdict on every possible answer, so that it works without a server.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from viz_app.components.joining import joined
from viz_app.export.page import fill_template, themed_style
from viz_app.export.policy import hash_source
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
    style = themed_style("handout.css", lambda is_dark: f"--yours: {DIVERGING[is_dark][-4]};")
    outcomes = {number: asdict(outcome) for number, outcome in handout.outcomes.items()}
    texts = {
        "language": handout.language,
        "title": handout.title,
        "question": handout.question,
        "bars-title": handout.bars_title,
        "description": handout.description,
        "source": handout.source,
        "link": handout.link,
        **{name: handout.words[name] for name in ("expect", "say", "true", "on", "needs")},
    }
    values = {
        **{name: html.escape(text) for name, text in texts.items()},
        "script-hash": hash_source(SCRIPT),
        "style-hash": hash_source(style),
        "style": style,
        "script": SCRIPT,
        "texts": "\n".join(_text(text, side) for text, side in zip(handout.texts, "ab", strict=False)),
        "pictures": _pictures(handout.pictures),
        "paragraphs": _paragraphs(handout.paragraphs),
        "answers": _answers(handout),
        "hint": _hint(handout),
        "true-pictures": _pictures(handout.true_pictures),
        "links": "".join(
            f"<li>{html.escape(label)}<br><code>{html.escape(address)}</code></li>" for label, address in handout.links
        ),
        # Within a script, only "<" could end it.
        "outcomes": json.dumps(outcomes).replace("<", "\\u003c"),
    }
    return fill_template("handout.html", values)


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

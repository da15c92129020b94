"""A lesson as one HTML file that opens from disk: the question, the reader's answer, then what is true.

Every answer that can be given stands in the file with what is said of it, so nobody has to be asked.
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
    """One bar of what is true.

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
    """What is said of an answer, paragraph by paragraph, and the bars beside it."""

    paragraphs: Sequence[str]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Picture:
    """A picture as SVG, and what it shows."""

    svg: bytes
    alt: str


@dataclass(frozen=True)
class Handout:
    """What stands in the file; every text is written as it is.

    texts: the one or two sentences, word by word, each with whether it is hidden. answer: "word", "number", "choice" or
    "order". choices: what can be chosen or put in order, by the numbers that name them. bounds: the least and the
    largest number. outcomes: by the number of the answer, or numbers with commas between. told: the title of the bars.
    ways: where to look on, each with the address of it. words: what the page itself says, in its language: "expect",
    "say", "number", "hint", "true", "on", "needs".
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
    about: str
    source: str
    link: str
    links: Sequence[tuple[str, str]]
    words: Mapping[str, str]


def handout_page(handout: Handout) -> str:
    """The file."""
    yours = [f":root {{--yours: {colours[-4]};}}" for colours in DIVERGING]
    style = "\n".join([
        variables(None), yours[0], f"@media (prefers-color-scheme: dark) {{{yours[1]}}}",
        (_FOLDER / "handout.css").read_text("utf-8"),
    ])  # fmt: skip
    told = {number: asdict(outcome) for number, outcome in handout.outcomes.items()}
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
        "about": html.escape(handout.about),
        "source": html.escape(handout.source),
        "link": html.escape(handout.link),
        "ways": "".join(
            f"<li>{html.escape(label)}<br><code>{html.escape(address)}</code></li>" for label, address in handout.links
        ),
        # In a script no text but this one could end it.
        "outcomes": json.dumps(told).replace("<", "\\u003c"),
        **{name: html.escape(handout.words[name]) for name in ("expect", "say", "true", "on", "needs")},
    }
    # In one go, so that nothing that was filled in is read as a place to fill.
    template = (_FOLDER / "handout.html").read_text("utf-8")
    return re.sub(r"\{\{([\w-]+)\}\}", lambda found: filling[found[1]], template)


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
        f'<figure><img alt="{html.escape(one.alt)}" src="data:image/svg+xml;base64,'
        f'{base64.b64encode(one.svg).decode()}"></figure>'
        for one in pictures
    )


def _answers(handout: Handout) -> str:
    """The control of the answer: a field for a number, a list for each place of an order, else a button for each."""
    if handout.answer == "number":
        least, most = handout.bounds
        asks = html.escape(handout.words["number"])
        return f'<label>{asks} <input name="answer" type="number" min="{least}" max="{most}" step="1" required></label>'
    if handout.answer == "order":
        options = "".join(
            f'<option value="{key}">{html.escape(says)}</option>' for key, says in handout.choices.items()
        )
        return "".join(
            f'<label>{place}. <select name="answer"><option value=""></option>{options}</select></label>'
            for place in range(1, len(handout.choices) + 1)
        )
    return "".join(
        f'<label><input name="answer" type="radio" value="{key}"> {html.escape(says)}</label>'
        for key, says in handout.choices.items()
    )


def _hint(handout: Handout) -> str:
    if not handout.hint:
        return ""
    summary = html.escape(handout.words["hint"])
    return f"<details><summary>{summary}</summary><p>{html.escape(handout.hint)}</p></details>"

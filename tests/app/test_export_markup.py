"""HTML from the templates of the app: what is escaped, and what the policy of a page allows."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from html.parser import HTMLParser

import jinja2
import pytest

from tests.hostile import HOSTILE
from viz_app.classroom.sheet import Entry, Words, as_page
from viz_app.export.handout import Bar, Handout, Outcome, Picture, handout_page
from viz_app.export.markup import hash_source, render, themed_style, variables


class Elements(HTMLParser):
    """The elements of a page. tags: how often each occurs. attributes: names of all attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def handout_of(texts: list[str], answer: str) -> Handout:
    """A handout with these texts in every place."""
    whole = "".join(texts)
    words = dict.fromkeys(("expect", "say", "number", "hint", "true", "on", "needs"), whole)
    outcomes = {"1": Outcome(texts, [Bar(text, text, 0.0, 1.0, "true", text) for text in texts])}
    pictures = [Picture(b"<svg/>", whole)]
    return Handout(
        language="en", title=whole, question=whole, paragraphs=texts, hint=whole,
        texts=[[(text, True) for text in texts]], pictures=pictures, answer=answer, choices=dict(enumerate(texts)),
        bounds=(0, 3), outcomes=outcomes, bars_title=whole, true_pictures=pictures, description=whole, source=whole,
        link=whole, links=[(text, text) for text in texts], words=words,
    )  # fmt: skip


@pytest.mark.parametrize("answer", ["word", "number", "order"])
def test_a_handout_escapes_every_text(answer: str) -> None:
    """Hostile texts add no element and no script; the script's JSON gives them back, and no "<" is in it."""
    page = handout_page(handout_of(HOSTILE, answer))
    (outcomes,) = re.findall(r'<script type="application/json" id="outcomes">(.*?)</script>', page, re.DOTALL)
    assert "<" not in outcomes and json.loads(outcomes)["1"]["paragraphs"] == HOSTILE
    assert json.loads(outcomes)["1"]["bars"][0]["label"] == HOSTILE[0]
    elements = Elements(page)
    assert elements.tags["script"] == elements.tags["img"] == 2 and not {"a", "b", "svg"} & elements.tags.keys()
    assert not any(name.startswith("on") for name in elements.attributes)
    assert "".join(HOSTILE) in html.unescape(page)


def test_links_of_answers_are_addresses_of_the_web() -> None:
    """A link that would run a script is left out; the others and all texts are escaped."""
    links = (("<b>", 'http://x/?a="&b'), ("y", "javascript:window.ran=1"))
    entry = Entry("lesson", HOSTILE[0], HOSTILE[1], HOSTILE[2], None, HOSTILE[10], links)
    page = as_page([entry], Words("en", HOSTILE[12], "expected", "right", "wrong"))
    assert Elements(page).tags["a"] == 1 and '<a href="http://x/?a=&#34;&amp;b">&lt;b&gt;</a>' in page
    assert "javascript:" not in page and not {"script", "img", "svg"} & Elements(page).tags.keys()
    assert all(text in html.unescape(page) for text in (*HOSTILE[:3], HOSTILE[10], HOSTILE[12]))
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style and f"style-src '{hash_source(style[1])}'" in page


def test_a_value_without_a_name_is_an_error() -> None:
    """A template that asks for a value that it did not get is not filled with nothing."""
    with pytest.raises(jinja2.UndefinedError, match="'handout' is undefined"):
        render("export/handout.html", style="", script="")


def test_the_hash_of_a_source_is_that_of_its_bytes() -> None:
    """SHA-256 of the UTF-8 text in base64, as a policy expects."""
    digest = hashlib.sha256("é".encode()).digest()
    assert hash_source("é") == f"sha256-{base64.b64encode(digest).decode()}"


def test_a_style_has_the_colours_of_both_themes() -> None:
    """One theme has one rule; both have the dark one behind a media query, and so have more properties."""
    light, dark = variables("light"), variables("dark")
    assert light != dark and "color-scheme: light" in light and "color-scheme: dark" in dark
    assert variables(None).startswith(light) and f"(prefers-color-scheme: dark) {{{dark}}}" in variables(None)
    style = themed_style("export/profiles.css", lambda is_dark: f"--x: {is_dark};")
    assert style.index(":root {--x: False;}") < style.index("{:root {--x: True;}}")

"""A lesson as one file, opened from disk in a real browser without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened_from_disk
from tests.hostile import HOSTILE
from tests.lessons import ANSWERS, bundled, record
from viz_app.export.handout import Bar, Handout, Outcome, Picture, handout_page
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson_records
from viz_app.shell.handouts import handout_of
from viz_app.shell.work import Work

SAYS = {"en": ("That is what I expect", "What is true"), "de": ("Das erwarte ich", "Was stimmt")}
WORDS = dict.fromkeys(("expect", "say", "number", "hint", "true", "on", "needs"), "ours")


def answer(page: Page, name: str) -> None:
    """Give the true answer of a lesson, as its control takes it."""
    task, true = lesson_of(name).predict, ANSWERS[name].true
    if task.answer == "order":
        things = CHECKS[task.check].items
        for place, thing in zip(page.locator("select").all(), true, strict=True):
            place.select_option(str(things.index(thing)))
    elif task.answer == "number":
        page.locator("input[type=number]").fill(str(true))
    else:
        page.locator(f'input[value="{true}"]').check()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_lesson_asks_before_it_shows(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In both languages: nothing of the truth until an answer is given, then bars and sentences; nothing is asked."""
    found = record(name)  # the model's own, made once for both languages
    monkeypatch.setattr(lesson_records, "record_work", lambda *_: Work("", "", lambda _: found))
    for tag, (say, true) in SAYS.items():
        one = lesson_of(name, tag)
        opened_from_disk(page, tmp_path, handout_of(one, bundled(), tag))
        expect(page.get_by_role("heading", name=one.question, exact=True)).to_be_visible()
        button, truth = page.get_by_role("button", name=say), page.get_by_role("heading", name=true)
        expect(button).to_be_disabled()
        expect(truth).to_be_hidden()
        answer(page, name)
        button.click()
        expect(truth).to_be_focused()
        expect(page.locator("#bars .true")).to_have_count(1)
        expect(page.locator("#says p").first).not_to_be_empty()
        expect(page.get_by_text(one.link)).to_be_visible()
        for way in one.free:
            expect(page.locator("#truth li").filter(has_text=way.label)).to_be_visible()
        pictures = page.locator("img")
        assert all(picture.evaluate("one => one.naturalWidth > 0") for picture in pictures.all())
        assert all(picture.get_attribute("alt") for picture in pictures.all())
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert all(url.startswith(("file:", "data:")) for url in page.requested), page.requested
    assert page.problems == []


@pytest.mark.parametrize("answer", ["word", "number", "order"])
def test_no_text_of_a_lesson_becomes_more_than_text(page: Page, tmp_path: Path, answer: str) -> None:
    """Hostile texts in every place of the file are read, run nothing, and are filled with nothing themselves."""
    texts = [text[:200] for text in HOSTILE]
    whole = "".join(texts)
    bars = [Bar(text, text, 0.0, 1.0, "true", text) for text in texts]
    made = handout_page(Handout(
        language="en", title=whole, question=whole, paragraphs=texts, hint=whole,
        texts=[[(text, True) for text in texts]],
        pictures=[Picture(b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.ran=1'/>", whole)], answer=answer,
        choices=dict(enumerate(texts)), bounds=(0, 3), outcomes={"1": Outcome(texts, bars)}, bars_title=whole,
        true_pictures=[], description=whole, source=whole, link=whole, links=[(text, text) for text in texts],
        words=WORDS | {"number": whole, "hint": whole},
    ))  # fmt: skip
    opened_from_disk(page, tmp_path, made)
    expect(page.locator(".text span")).to_have_count(len(texts))
    for place, text in zip(page.locator(".text span").all(), texts, strict=True):
        assert place.evaluate("one => one.textContent") == text
    if answer == "word":
        page.locator('input[value="1"]').check()
        page.locator("form button").click()
        assert page.locator("#says p").evaluate_all("all => all.map((one) => one.textContent)") == texts
        expect(page.locator("#bars li")).to_have_count(len(texts))
    assert page.evaluate("window.ran") is None
    assert page.locator("script, img, svg, style, form, iframe, a").count() == 5
    assert page.problems == []


def test_a_browser_without_scripts_says_what_is_missing(page: Page, tmp_path: Path) -> None:
    """Then the question stands there, and that the truth cannot be shown."""
    made = handout_page(Handout(
        "en", "t", "Which?", [], "", [], [], "number", {}, (0, 1), {}, "", [], "", "", "", [],
        WORDS | {"needs": "needs!"},
    ))  # fmt: skip
    context = page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]
    (tmp_path / "lesson.html").write_text(made, encoding="utf-8")
    other = context.new_page()
    other.goto((tmp_path / "lesson.html").as_uri())
    expect(other.get_by_text("needs!")).to_be_visible()
    expect(other.locator("#truth")).to_be_hidden()
    context.close()

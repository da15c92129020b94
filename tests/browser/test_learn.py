"""A lesson in a browser: from the list to its end, and the panel beside the page in windows of every size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import address_of, opened, settled
from tests.browser.walker import walk
from viz_app.lessons import Lesson
from viz_app.lessons.parsing import lessons

WALKED_IN_CI = 2  # lessons; the others are walked before a release
HEADING = "| Lesson | Clicks and entries | Wait, median | Longest | All |\n| --- | ---: | ---: | ---: | ---: |\n"
# The edges of the panel, of what stands beside it, and of the window.
BOXES = """() => {
  const box = (selector) => {
    const { left, top, right, bottom } = document.querySelector(selector).getBoundingClientRect();
    return [left, top, right, bottom].map(Math.round);
  };
  const main = document.querySelector("[data-testid=stMain]");
  return { panel: box("[class*=st-key-lesson]"), page: box(".st-key-screen"), width: window.innerWidth,
           wide: main.scrollWidth - main.clientWidth };
}"""


def pressed(page: Page, key: str) -> None:
    """A button of the panel, by its key, pressed from the keyboard."""
    button = page.locator(f".st-key-{key} button").first
    button.focus()
    button.press("Enter")
    settled(page)


@pytest.mark.smoke
def test_a_lesson_is_walked_from_the_list_to_its_end(app: str, page: Page) -> None:
    """Both sides, by the keyboard alone: predicted, tried on the page, revealed, own sentence; Back is one step."""
    opened(page, app)
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Lessons", exact=True).press("Enter")
    page.locator(".st-key-begin_both_sides button").wait_for()
    settled(page)
    pressed(page, "begin_both_sides")
    panel = page.locator(".st-key-lesson")
    expect(panel).to_contain_text("Which word")
    expect(page).to_have_url(re.compile("/(predict)?\\?.*lesson=both_sides"))
    panel.get_by_role("button", name=re.compile("^cup")).press("Enter")
    expect(panel).to_contain_text("Chosen: cup")
    pressed(page, "lesson_say")
    expect(panel).to_contain_text("So far the first guess is still “milk”")
    page.locator(".st-key-screen_strip").get_by_role("button", name=re.compile("^milk")).press("Enter")
    expect(panel).to_contain_text("Done: with “milk” masked, the first guess is “tea”")
    pressed(page, "lesson_next")
    expect(panel).to_contain_text("You said “cup”")
    expect(panel.locator(".js-plotly-plot")).to_contain_text("your guess")
    assert address_of(page)["step"] == "reveal" and "/why" in page.url
    page.go_back()
    expect(panel).to_contain_text("Try it")
    page.go_forward()
    expect(panel).to_contain_text("You said “cup”")
    assert not page.problems, page.problems
    settled(page)  # the address follows the page with some delay, and a reload asks the address
    page.reload()
    expect(panel).to_contain_text("You said “cup”")
    assert address_of(page)["step"] == "reveal"
    settled(page)
    pressed(page, "lesson_next")
    expect(panel).to_contain_text("The sentence on the page is still that of the lesson")
    page.get_by_label("Sentence", exact=True).fill("She took the key and opened the door.")
    page.get_by_label("Sentence", exact=True).press("Enter")
    strip = page.locator(".st-key-screen_strip")
    strip.get_by_role("button", name=re.compile("^door")).press("Enter")
    expect(strip.get_by_role("button", name=re.compile("^door \\(masked\\)"))).to_be_visible()
    panel.get_by_role("button", name=re.compile("^opened")).press("Enter")
    expect(panel).to_contain_text("Chosen: opened")
    pressed(page, "lesson_say")
    expect(panel).to_contain_text("Right: with “opened” masked")
    pressed(page, "lesson_next")
    expect(panel).to_contain_text("predicted otherwise, tried, own sentence")
    assert not page.problems, page.problems


@pytest.fixture(scope="module")
def rows() -> Iterator[list[str]]:
    """Rows of a table of what the walks took, which is written to the file that `LESSON_WALKS` names, if it does."""
    rows: list[str] = []
    yield rows
    if file := os.environ.get("LESSON_WALKS"):
        Path(file).write_text("".join([HEADING, *rows]), "utf-8")


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(lesson, marks=[pytest.mark.release] if number >= WALKED_IN_CI else [])
        for number, lesson in enumerate(lessons())
    ],
    ids=lambda lesson: lesson.name,
)
def test_every_lesson_is_walked(app: str, page: Page, rows: list[str], lesson: Lesson) -> None:
    """From a link to its first step: predicted, tried, revealed and asked of an own sentence, without an error."""
    walker = walk(page, app, lesson)
    expect(walker.panel).to_contain_text(re.compile("predicted (rightly|otherwise), tried, own sentence"))
    expect(page.get_by_test_id("stAlertContentError")).to_have_count(0)
    assert not page.problems, page.problems
    times, middle, longest, whole = walker.row()
    rows.append(f"| {lesson.number} {lesson.title} | {times} | {middle:.1f} s | {longest:.1f} s | {whole:.0f} s |\n")


def test_a_lesson_is_walked_in_german(app: str, page: Page) -> None:
    """The third, in a lecture: chosen among the settings, kept on every page, and nothing is cut at the edge."""
    page.set_viewport_size({"width": 1280, "height": 720})
    opened(page, app, lesson="the_bin", lecture="1")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("radio", name="Deutsch").click()
    panel = page.locator(".st-key-lesson")
    expect(panel).to_contain_text("Was erwartest du?")
    expect(page).to_have_url(re.compile("lang=de"))
    page.keyboard.press("Escape")
    settled(page)
    expect(panel).to_contain_text("Dieser Schritt ist auf der Seite Rollen der Köpfe.")
    pressed(page, "lesson_open")
    panel.get_by_label("Wie viele Prozent?").fill("80")
    panel.get_by_label("Wie viele Prozent?").press("Enter")
    expect(page.locator(".st-key-lesson_say button")).to_be_enabled()
    for key, says in (
        ("lesson_say", "Finde einen anderen als L3 H2, mit 60% oder mehr."), ("lesson_next", "Dein Tipp war 80%"),
        ("lesson_next", "Auf der Seite steht noch der Satz der Lektion."), ("lesson_next", "anders getippt"),
        ("lesson_following", "Wie viele Köpfe können weg"),
    ):  # fmt: skip
        pressed(page, key)
        expect(panel).to_contain_text(says)
        assert panel.evaluate("panel => panel.scrollWidth - panel.clientWidth") <= 0, says
        bar = page.locator(".st-key-screen_bar").bounding_box()
        assert bar is not None and bar["x"] + bar["width"] <= panel.bounding_box()["x"], says  # type: ignore[index]
    assert address_of(page)["lang"] == "de" and address_of(page)["lesson"] == "fewer_heads"
    assert not page.problems, page.problems


def test_the_panel_stands_beside_the_page_and_never_over_it(app: str, page: Page) -> None:
    """In a wide window and in a lecture at the right, folded a button there; on a narrow window above the page."""
    for size, query in (((1400, 1000), {}), ((1280, 720), {"lecture": "1"}), ((700, 900), {})):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        opened(page, app, "", lesson="both_sides", **query)
        for _ in range(2):
            expect(page.locator("[class*=st-key-lesson]").first).to_be_visible()
            settled(page)
            seen = page.evaluate(BOXES)
            assert seen["wide"] == 0 and seen["panel"][2] <= seen["width"], (size, seen)
            if size[0] > 1000:
                assert seen["page"][2] <= seen["panel"][0], (size, seen)
            else:
                assert seen["panel"][3] <= seen["page"][1], (size, seen)
            if page.locator(".st-key-lesson_fold button").count():
                pressed(page, "lesson_fold")

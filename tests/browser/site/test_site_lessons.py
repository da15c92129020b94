"""The lessons in a browser, walked through as a person does: what the panel says is what Python's checks say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

import bert_core
from bert_core.progress import ignore_progress
from tests.browser.conftest import PATIENCE, WINDOW
from tests.browser.static_site import StaticSite, serve_site
from tests.browser.test_accessibility import AXE, RUN_AXE, SERIOUS
from tests.conftest import built_once, exported_mini
from tests.lessons import ANSWERS, answered, asked_of, bundled, record
from viz_app.lessons import Lesson, Task
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.lessons.parsing import lesson_of
from viz_app.shell.lesson_records import record_work
from viz_app.site.build import build_site

pytestmark = pytest.mark.slow


class Walk(NamedTuple):
    """What a person does in a lesson.

    own: texts of the last question, as in an address. answer: to it; the number of a word or of an option, or a number.
    """

    own: dict[str, str]
    answer: int


WALKS = {
    "both_sides": Walk({"text": "We put the bread in the oven to bake it.", "masked": "3"}, 6),
    "follows": Walk({"text": "Where is the key?", "pair": "It is under the mat.", "masked": ""}, 3),
    "a_robin": Walk({"text": "The door was [MASK].", "masked": ""}, 2),
    "he_or_she": Walk({"text": "[MASK] is a teacher.", "masked": ""}, 3),
}


@pytest.fixture(scope="module")
def server() -> Iterator[StaticSite]:
    """A server of the site of the bundled model."""
    mini = bert_core.load("headlight-mini", device="cpu")
    with serve_site(built_once("site", lambda folder: build_site(mini, folder, exported=exported_mini()))) as started:
        yield started


@pytest.fixture
def window(browser: Browser) -> Iterator[BrowserContext]:
    """A window of the browser, which has stored nothing."""
    context = browser.new_context(viewport=WINDOW, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(server: StaticSite, window: BrowserContext) -> Iterator[Open]:
    """Opens a page of the site; there must be no error on its console at the end."""
    problems: list[str] = []

    def open_tab(path: str, *, has_model: bool = True, **parameters: str) -> Page:
        tab = window.new_page()
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        if not has_model:
            tab.route("**/model/**", lambda route: None)
        tab.goto(f"{server.address}/{path}/?{urlencode(parameters)}")
        return tab

    yield open_tab
    assert problems == []


def panel(tab: Page) -> Locator:
    """The panel of the lesson."""
    return tab.locator("aside.lesson")


def verdict_on(task: Task, context: Any, answer: Any) -> Verdict:
    """The verdict of Python."""
    found = record_work(task.check, context).compute(ignore_progress)
    return CHECKS[task.check].judge(found, task.options[answer] if task.options else answer)


def one_line(text: str) -> str:
    """A text with single spaces."""
    return " ".join(text.split())


def give(tab: Page, task: Task, answer: int, button: str) -> None:
    """Give an answer in the panel."""
    if task.answer == "number":
        panel(tab).get_by_role("spinbutton").fill(str(answer))
    else:
        panel(tab).get_by_role("radio").nth(answer).check(force=True)
    panel(tab).get_by_role("button", name=button).click()


def type_texts(tab: Page, text: str, pair: str = "") -> None:
    """Type a text, and a second one unless it is empty, on top of the page."""
    tab.locator(".texts input[name=text]").fill(text)
    if pair:
        if not tab.locator(".texts input[name=pair]").is_visible():
            tab.locator(".texts button").first.click()
        tab.locator(".texts input[name=pair]").fill(pair)
    tab.keyboard.press("Enter")


def do_exercise(tab: Page, name: str) -> None:
    """Do what the second step asks for."""
    done = ANSWERS[name].done
    lesson = lesson_of(name)
    if "masked" in done:
        tab.locator(".strip button.word").nth(7).click()
    else:
        address = {**lesson.exercise.view.address, **done}
        type_texts(tab, address["text"], address.get("pair", ""))


def expect_step(tab: Page, lesson: Lesson, step: str) -> None:
    """The panel and the address are at a step."""
    expect(panel(tab).locator("[aria-current=step]")).to_have_accessible_name(re.compile(r"\d"))
    expect(tab).to_have_url(re.compile(rf"lesson={lesson.name}.*step={step}"))


def reveal_text(lesson: Lesson, answer: Any) -> str:
    """The text of the reveal after an answer."""
    verdict = CHECKS[lesson.predict.check].judge(record(lesson.name), answered(lesson.name, answer))
    return one_line(verdict.reveal_text(lesson.reveal).format(**verdict.figures))


@pytest.mark.parametrize("name", WALKS)
def test_a_lesson_from_its_first_step_to_its_last(name: str, open_page: Open) -> None:
    """A wrong prediction, the exercise, the truth, an own sentence, further views; Back and reload keep the step."""
    lesson, answers, walk = lesson_of(name), ANSWERS[name], WALKS[name]
    tab = open_page("learn")
    tab.locator(".lesson-card").get_by_role("button", name=f"Start: {lesson.title}").click()
    expect(panel(tab)).to_contain_text(lesson.question)
    expect(panel(tab).get_by_role("button", name="That is what I expect")).to_be_disabled()
    give(tab, lesson.predict, answers.wrong, "That is what I expect")

    expect_step(tab, lesson, "do")
    expect(panel(tab).get_by_role("heading")).to_be_focused()
    verdict = verdict_on(lesson.exercise, asked_of(name, bundled()), None)
    status = panel(tab).get_by_role("status")
    expect(status).to_have_text(one_line(lesson.exercise.wrong.format(**verdict.figures)))
    do_exercise(tab, name)
    verdict = verdict_on(lesson.exercise, asked_of(name, bundled(), **answers.done), None)
    expect(status).to_have_text(one_line(lesson.exercise.right.format(**verdict.figures)))

    panel(tab).get_by_role("button", name="See what is true").click()
    expect_step(tab, lesson, "reveal")
    paragraphs = panel(tab).locator(".lesson-reveal > p")
    expect(paragraphs.last).to_be_visible()
    assert one_line(" ".join(paragraphs.all_inner_texts())) == reveal_text(lesson, answers.wrong)
    assert panel(tab).locator(".lesson-bars li.true, .lesson-bars li.both").count() == 1
    tab.reload()
    expect(paragraphs.last).to_be_visible()
    expect_step(tab, lesson, "reveal")
    tab.go_back()
    expect_step(tab, lesson, "do")
    expect(status).to_have_text(one_line(lesson.exercise.right.format(**verdict.figures)))
    tab.go_forward()
    expect_step(tab, lesson, "reveal")

    panel(tab).get_by_role("button", name="With a sentence of your own").click()
    expect_step(tab, lesson, "yours")
    expect(panel(tab)).to_contain_text("The sentence on the page is still that of the lesson.")
    own = {"pair": "", **walk.own}
    type_texts(tab, own["text"], own["pair"])
    give(tab, lesson.own_sentence, walk.answer, "Is that right?")
    verdict = verdict_on(lesson.own_sentence, asked_of(name, bundled(), **own), walk.answer)
    sentence = lesson.own_sentence.right if verdict.right else lesson.own_sentence.wrong
    expect(panel(tab).get_by_role("status")).to_have_text(one_line(sentence.format(**verdict.figures)))

    panel(tab).get_by_role("button", name="Continue", exact=True).click()
    expect(panel(tab)).to_contain_text("Lesson complete: predicted otherwise, tried, own sentence.")
    panel(tab).get_by_role("button", name="All lessons").click()
    card = tab.locator(".lesson-card").filter(has_text=lesson.question)
    expect(card).to_contain_text("predicted otherwise, tried, own sentence")
    expect(panel(tab)).to_be_hidden()

    card.get_by_role("button", name="Repeat").click()
    give(tab, lesson.predict, answers.true, "That is what I expect")
    panel(tab).get_by_role("button", name="Skip").click()
    expect(paragraphs.last).to_be_visible()
    assert one_line(" ".join(paragraphs.all_inner_texts())) == reveal_text(lesson, answers.true)


def test_the_truth_needs_no_model_and_no_address_shows_it_first(open_page: Open) -> None:
    """The record of the question is stored; before a prediction, the panel is at the first step."""
    lesson = lesson_of("a_robin")
    reveal = lesson.reveal.view
    tab = open_page(reveal.page, has_model=False, lesson=lesson.name, step="reveal", **reveal.address)
    expect(panel(tab)).to_contain_text(lesson.question)
    give(tab, lesson.predict, 0, "That is what I expect")
    panel(tab).get_by_role("button", name="Skip").click()
    expect(panel(tab).locator(".lesson-reveal > p").first).to_contain_text("You said 0")
    panel(tab).get_by_role("button", name="1 of 5").click()
    expect(panel(tab)).to_contain_text("You said: 0 words")


def test_a_text_that_is_not_suitable_is_named_and_no_text_is_markup(open_page: Open) -> None:
    """The sentence of the check is shown; tags remain text; a lesson that is not there is named."""
    tab = open_page("predict", lesson="a_robin", text="A robin is a [MASK].")
    give(tab, lesson_of("a_robin").predict, 0, "That is what I expect")
    type_texts(tab, "<b>Robins</b> [MASK] and [MASK].")
    sentence = "Leave exactly one gap: type [MASK] for one word, or click a short one."
    expect(panel(tab).get_by_role("status")).to_have_text(sentence)
    panel(tab).get_by_role("button", name="4 of 5").click()
    type_texts(tab, "The <b>door</b> was [MASK].")
    give(tab, lesson_of("a_robin").own_sentence, 0, "Is that right?")
    expect(panel(tab).get_by_role("status")).to_contain_text("stay")
    assert panel(tab).locator("b").count() == 0
    tab = open_page("predict", lesson="one_head", text="A robin is a [MASK].")
    expect(panel(tab)).to_contain_text("This lesson needs pages that the browser edition does not have.")
    panel(tab).get_by_role("button", name="All lessons").click()
    expect(tab.get_by_role("heading", name="Course 3: What BERT gets wrong")).to_be_visible()


def test_a_lesson_in_german(open_page: Open) -> None:
    """The texts of the lesson and of the panel are German; German figures are in the sentences."""
    lesson = lesson_of("he_or_she", "de")
    tab = open_page("learn", lang="de")
    tab.get_by_role("button", name=lesson.title).last.click()
    expect(panel(tab)).to_contain_text(lesson.question)
    panel(tab).get_by_role("spinbutton").fill("4")
    panel(tab).get_by_role("button", name="Das erwarte ich").click()
    panel(tab).get_by_role("button", name="3 von 5").click()
    paragraphs = panel(tab).locator(".lesson-reveal > p")
    expect(paragraphs.last).to_be_visible()
    assert one_line(" ".join(paragraphs.all_inner_texts())) == reveal_text(lesson, 4)


def test_on_a_narrow_window_the_panel_is_below_the_figure(open_page: Open) -> None:
    """The text is above the figure, the panel below it, and nothing is wider than the window."""
    address = lesson_of("a_robin").predict.view.address
    tab = open_page("predict", lesson="a_robin", **address)
    tab.set_viewport_size({"width": 390, "height": 844})
    expect(tab.locator(".figure")).to_have_attribute("aria-busy", "false")
    tops = [tab.locator(selector).bounding_box() for selector in (".texts", ".figure", "aside.lesson", ".reading")]
    assert [box and box["y"] for box in tops] == sorted(box["y"] for box in tops if box)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(scheme: str, open_page: Open) -> None:
    """The list of the lessons, and the panel at a step with a control, a verdict and the truth."""
    lesson = lesson_of("follows")
    tab = open_page("learn")
    tab.emulate_media(color_scheme=scheme)
    expect(tab.locator(".lesson-card").first).to_be_visible()
    assert axe_findings(tab) == []
    tab.locator(".lesson-card").get_by_role("button", name=lesson.title).click()
    expect(panel(tab).get_by_role("radio").first).to_be_visible()
    assert axe_findings(tab) == []
    give(tab, lesson.predict, 0, "That is what I expect")
    expect(panel(tab).get_by_role("status")).to_contain_text("Wanted")
    assert axe_findings(tab) == []
    panel(tab).get_by_role("button", name="Skip").click()
    expect(panel(tab).locator(".lesson-bars")).to_be_visible()
    assert axe_findings(tab) == []


def test_the_panel_is_used_with_the_keyboard(open_page: Open) -> None:
    """The arrow keys choose a word, Enter gives the answer, and the focus is on the next step."""
    tab = open_page("predict", lesson="both_sides", **lesson_of("both_sides").predict.view.address)
    panel(tab).get_by_role("radio").first.focus()
    tab.keyboard.press("ArrowRight")
    expect(panel(tab).get_by_role("radio").nth(1)).to_be_checked()
    tab.keyboard.press("Enter")
    expect(panel(tab).get_by_role("heading", name="Try it")).to_be_focused()
    tab.keyboard.press("Tab")
    expect(panel(tab).get_by_role("button", name="Skip")).to_be_focused()


def axe_findings(tab: Page) -> list[object]:
    """Serious findings of axe, which the policy of the site lets in through the debugger alone."""
    expect(tab.locator(".figure")).to_have_attribute("aria-busy", "false")
    tab.evaluate(AXE.read_text("utf-8"))
    violations: list[dict[str, object]] = tab.evaluate(RUN_AXE)
    return [violation for violation in violations if violation["impact"] in SERIOUS]


def test_answers_are_deleted_on_request(open_page: Open) -> None:
    """The button of the page deletes the answers, and stored texts that are no notes are ignored."""
    tab = open_page("predict", lesson="a_robin", **lesson_of("a_robin").predict.view.address)
    give(tab, lesson_of("a_robin").predict, 0, "That is what I expect")
    tab.goto(tab.url.split("/predict")[0] + "/learn/")
    expect(tab.locator(".lesson-card").filter(has_text="predicted")).to_have_count(1)
    tab.get_by_role("button", name="Reset my answers").click()
    expect(tab.locator(".lesson-card").filter(has_text="predicted")).to_have_count(0)
    tab.evaluate('localStorage.setItem(localStorage.key(0), \'{"a_robin": {"answer": "<b>", "isTried": 1}}\')')
    tab.reload()
    expect(tab.locator(".lesson-card").get_by_role("button", name="Start")).to_have_count(len(WALKS))

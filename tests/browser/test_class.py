"""A class in browsers: a teacher and students at pages of their own, and before several copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import ROOT, Serve, opened_tab
from tests.browser.reader import address_of, settled
from tests.browser.test_copies import TEACHERS_CODE as CODE
from tests.browser.test_copies import Copy, copies, proxy, wait_for

__all__ = ["copies", "proxy"]  # fixtures

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def for_class(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> str:
    """A server that was started for a class."""
    return serve(ROOT / "streamlit_app.py", {"HEADLIGHT_CLASS": CODE})


@contextmanager
def tabs(browser: Browser, number: int) -> Iterator[list[Page]]:
    """So many tabs, each of a browser of its own."""
    found = [opened_tab(browser) for _ in range(number)]
    yield found
    for tab in found:
        tab.context.close()


def opened_class(teacher: Page, base: str, lesson: str) -> str:
    """Open a class as its teacher does; returns the link for its students."""
    teacher.goto(f"{base}/learn?teach=1&lecture=1")
    teacher.get_by_label("Teacher's code").fill(CODE)
    teacher.get_by_role("button", name="Continue").click()
    settled(teacher)
    teacher.get_by_role("combobox").first.click()
    teacher.get_by_role("option", name=lesson, exact=True).click()
    settled(teacher)
    teacher.get_by_role("button", name="Open the class").click()
    expect(teacher.locator(".st-key-class_qr img")).to_be_visible()
    settled(teacher)
    return teacher.locator(".st-key-class_link code").inner_text()


def number(tab: Page, value: int) -> None:
    """Answer with a number."""
    tab.locator(".st-key-class_student input[type=number]").fill(str(value))
    tab.locator(".st-key-class_student input[type=number]").press("Enter")
    said(tab, f"Your answer: {value} percent")


def said(tab: Page, says: str) -> None:
    """Send what was chosen, and wait until the page says so."""
    button = tab.locator(".st-key-class_say button")
    expect(button).to_be_enabled()
    button.click()
    expect(tab.locator(".st-key-class_student")).to_contain_text(says)


def counted(teacher: Page, joined: int, answered: int) -> None:
    """Wait until the teacher's page has counted so many."""
    expect(teacher.locator(".st-key-class_counts")).to_have_text(
        re.compile(rf"joined\s*{joined}\s*answered\s*{answered}")
    )


def chosen_word(tab: Page, word: str) -> None:
    """Answer with a word of the sentence."""
    tab.locator(".st-key-class_student").get_by_role("button", name=re.compile(rf"^{word}\b")).click()
    said(tab, f"Your answer: {word}")


def test_a_class_is_led_by_four_keys(for_class: str, browser: Browser) -> None:
    """A teacher at a projector, three students with phones: asked, shown, asked again, revealed; nobody reloads."""
    with tabs(browser, 4) as (teacher, *students):
        teacher.set_viewport_size({"width": 1280, "height": 720})
        link = opened_class(teacher, for_class, "Both sides")
        assert re.fullmatch(rf"{for_class}/learn\?class=[0-9a-z]{{12}}", link)
        expect(teacher.get_by_text("Only this computer can open this address")).to_be_visible()
        for tab in students:
            tab.set_viewport_size(PHONE)
            tab.goto(link)
            expect(tab.locator(".st-key-class_student")).to_contain_text("The vote has not begun yet.")
        teacher.keyboard.press("1")
        for word, tab in zip(("cup", "drank", "milk"), students, strict=True):
            chosen_word(tab, word)
        counted(teacher, 3, 3)
        expect(teacher.locator(".js-plotly-plot")).to_have_count(0)
        chosen_word(students[0], "drank")
        settled(teacher)
        teacher.keyboard.press("2")
        first = teacher.locator(".st-key-class_votes_0 .js-plotly-plot")
        expect(first).to_contain_text("drank  2")
        expect(first).not_to_contain_text("cup")
        for tab in students:
            expect(tab.locator(".st-key-class_student")).to_contain_text("The vote is over. Your answer:")
            assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        settled(teacher)
        teacher.keyboard.press("3")
        expect(students[0].locator(".st-key-class_student")).to_contain_text("A second vote")
        chosen_word(students[0], "milk")
        students[1].reload()  # it is the same student
        expect(students[1].locator(".st-key-class_student")).to_contain_text("A second vote")
        chosen_word(students[1], "milk")
        counted(teacher, 3, 2)
        settled(teacher)
        teacher.keyboard.press("2")
        expect(teacher.locator(".st-key-class_votes_1 .js-plotly-plot")).to_contain_text("milk  2")
        expect(first).to_contain_text("drank  2")
        settled(teacher)
        teacher.keyboard.press("4")
        panel = teacher.locator(".st-key-lesson")
        expect(panel).to_contain_text("Vote 1: 1 of 3 expected it.")
        expect(panel).to_contain_text("Vote 2: 2 of 2 expected it.")
        expect(teacher).to_have_url(re.compile("/why.*step=reveal"))
        for tab in students:
            expect(tab.locator(".st-key-class_student .js-plotly-plot")).to_contain_text("true")
        with students[0].expect_download() as taken:
            students[0].get_by_role("button", name="My answers").click()
        page = Path(taken.value.path()).read_text("utf-8")
        assert "<h2>Both sides</h2>" in page and "milk" in page and for_class in page and "<script" not in page
        settled(teacher)
        teacher.keyboard.press("5")
        expect(first).to_contain_text("true")
        teacher.reload()
        expect(first).to_contain_text("true")
        teacher.get_by_role("button", name="Controls").click()
        teacher.get_by_role("button", name="Close the class").click()
        for tab in students:
            expect(tab.get_by_text("There is no such class")).to_be_visible()
            expect(tab.get_by_role("button", name="My answers")).to_be_visible()


def test_a_word_that_is_clicked_and_sent_at_once_is_the_answer(for_class: str, browser: Browser) -> None:
    """A click on another word and one on the button, faster than the server answers, send the other word."""
    with tabs(browser, 2) as (teacher, student):
        student.goto(opened_class(teacher, for_class, "Both sides"))
        expect(student.locator(".st-key-class_student")).to_contain_text("The vote has not begun yet.")
        teacher.keyboard.press("1")
        chosen_word(student, "cup")
        for word in ("drank", "milk", "cup"):
            other = student.locator(".st-key-class_student").get_by_role("button", name=re.compile(r"^with\b"))
            other.click()
            expect(student.get_by_text("Chosen: with")).to_be_visible()
            expect(student.locator(".st-key-class_say button")).to_be_enabled()
            chip = student.locator(".st-key-class_student").get_by_role("button", name=re.compile(rf"^{word}\b"))
            send = student.locator(".st-key-class_say button").element_handle()
            chip.evaluate("(chip, send) => { chip.click(); send.click(); }", send)
            expect(student.locator(".st-key-class_student")).to_contain_text(f"Your answer: {word}")


def test_copies_keep_a_class_together(copies: list[Copy], proxy: Serve, browser: Browser) -> None:
    """Behind HAProxy the link leads each student to the copy of the class, also who was at another one before."""
    address = proxy(*(copy.port for copy in copies))
    wait_for(f"{address}/_stcore/health")
    with tabs(browser, 5) as (teacher, *students):
        for tab in students[:3]:  # they come from elsewhere
            tab.goto(f"{address}/glossary")
            expect(tab.get_by_test_id("stHeading").first).to_be_visible()
        link = opened_class(teacher, address, "The bin")
        route = re.search(r"class=(copy\d)-[0-9a-z]{12}$", link)
        assert route is not None, link
        for tab in students:
            tab.goto(link)
            expect(tab.locator(".st-key-class_student")).to_contain_text("The vote has not begun yet.")
            cookies = {one["name"]: one["value"] for one in tab.context.cookies()}
            assert cookies["HEADLIGHT_CLASS"] == route[1]
        elsewhere = {one["value"] for tab in students for one in tab.context.cookies() if one["name"] == "HEADLIGHT"}
        assert len(elsewhere) > 1, "not all were with one copy before"
        teacher.keyboard.press("1")
        for value, tab in zip((20, 30, 80, 80), students, strict=True):
            expect(tab.locator(".st-key-class_say")).to_be_visible()
            number(tab, value)
        counted(teacher, 4, 4)
        assert address_of(teacher)["class"].startswith(route[1])
        teacher.reload()
        counted(teacher, 4, 4)

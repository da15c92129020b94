"""A lesson of a site of another model, for which its claim does not hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bert_core import LoadedModel
from tests.browser.static_site import StaticSite
from tests.lessons import record_of
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import lesson_of
from viz_app.shell.lesson_records import prediction_context

pytestmark = pytest.mark.slow


def test_a_claim_that_fails_is_named(server: StaticSite, page: Page, tiny_loaded: LoadedModel) -> None:
    """The reveal has the text for another model, with its figures, whatever the answer was."""
    lesson = lesson_of("he_or_she")
    found: Any = record_of("he_or_she", prediction_context(tiny_loaded, lesson))
    verdict = CHECKS[lesson.predict.check].judge(found, 8)
    assert not verdict.claim_holds
    page.goto(f"{server.address}/learn/")
    page.locator(".lesson-card").get_by_role("button", name=lesson.title).click()
    panel = page.locator("aside.lesson")
    panel.get_by_role("spinbutton").fill("8")
    panel.get_by_role("button", name="That is what I expect").click()
    panel.get_by_role("button", name=re.compile("Skip|See what is true")).click()
    first = lesson.reveal.claim_fails.format(**verdict.figures).split("\n\n")[0]
    expect(panel.locator(".lesson-reveal > p").first).to_have_text(" ".join(first.split()))


def test_a_question_that_a_model_cannot_answer_is_refused(server: StaticSite, page: Page) -> None:
    """The vocabulary of the model splits the masked word: the panel says what the check needs."""
    page.goto(f"{server.address}/learn/")
    page.locator(".lesson-card").get_by_role("button", name="Both sides").click()
    panel = page.locator("aside.lesson")
    panel.get_by_role("radio").first.check(force=True)
    panel.get_by_role("button", name="That is what I expect").click()
    panel.get_by_role("button", name="Skip").click()
    sentence = "Mask exactly one short word of the sentence on top of the page: click it."
    expect(panel.get_by_role("status")).to_have_text(sentence)

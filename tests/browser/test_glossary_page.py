"""The glossary in a browser: its field filters as one types, and its sentences come by mouse, keyboard and tap."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE
from tests.browser.reader import opened, settled

BUBBLE = "(word) => getComputedStyle(word, '::after').content"
# Whether the page can be scrolled from side to side.
WIDE = "() => document.documentElement.scrollWidth > window.innerWidth"


@pytest.mark.smoke
def test_the_field_filters_as_one_types_and_a_word_leads_to_its_page(app: str, page: Page) -> None:
    """Without Enter; the address holds what was typed, and a click on a page's name opens that page."""
    opened(page, app)
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Glossary", exact=True).click()
    words = page.locator("[class*=st-key-term_]")
    expect(words.filter(has_text="entropy: How spread out")).to_have_count(1)
    page.get_by_label("Find a word").press_sequentially("entr")
    expect(words).to_have_count(1)
    expect(page).to_have_url(re.compile("term=entr"))
    words.get_by_role("link", name="Layers & logit lens").first.click()
    expect(page.get_by_role("heading", name="Layers & logit lens")).to_be_visible()
    assert not page.problems, page.problems


def test_a_sentence_comes_by_mouse_keyboard_and_tap(app: str, page: Page, browser: Browser) -> None:
    """A word in the reading shows its sentence when it is pointed at or focused; on a phone when it is tapped."""
    opened(page, app, "layers")
    settled(page)
    word = page.locator(".st-key-screen_reading abbr", has_text="tuned lens")
    assert word.evaluate(BUBBLE) == "none"
    word.hover()
    assert "A logit lens that first translates" in word.evaluate(BUBBLE)
    page.mouse.move(0, 0)
    assert word.evaluate(BUBBLE) == "none"
    page.locator(".st-key-screen_reading abbr", has_text="layer").press("Tab")
    expect(word).to_be_focused()
    assert "A logit lens that first translates" in word.evaluate(BUBBLE)
    phone = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    phone.set_default_timeout(PATIENCE)
    try:
        hand = opened(phone.new_page(), app, "layers")  # a word that is drawn anew after the tap loses it
        word = hand.locator(".st-key-screen_reading abbr", has_text="tuned lens")
        word.scroll_into_view_if_needed()
        word.tap()
        assert "A logit lens that first translates" in word.evaluate(BUBBLE) and not hand.evaluate(WIDE)
    finally:
        phone.close()

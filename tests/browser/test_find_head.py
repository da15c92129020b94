"""Find a head: two clicked tokens colour all heads by the attention from one to the other."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.reader import address_of, opened, settled

SENTENCE = "She gave the book to her brother."


def token(page: Page, side: str, text: str) -> Locator:
    """A token in a column of the large view."""
    return page.locator(f".column.{side} [role=option]").filter(has_text=re.compile(rf"^{re.escape(text)}$"))


def test_two_clicks_on_attention_colour_all_heads(app: str, page: Page) -> None:
    """The first selects a token; the second, in the other column, colours the grid and lists heads; Back undoes it."""
    opened(page, app, "attention", model="headlight-mini", text=SENTENCE, masked="5")
    expect(page.get_by_text("Heads with the most attention")).to_have_count(0)
    token(page, "query", "she").click()
    expect(page).to_have_url(re.compile("tokens=q1"))
    token(page, "key", "book").click()
    expect(page.get_by_role("heading", name="Heads with the most attention from “she” to “book”")).to_be_visible()
    settled(page)
    assert address_of(page)["edge"] == "1.4"
    page.get_by_role("button", name="Show whole maps").click()
    expect(page.get_by_text("Heads with the most attention")).to_have_count(0)


def test_two_clicks_on_home_select_query_and_key(app: str, page: Page) -> None:
    """Each column selects its own end; the grid, the sentence and the list follow, and Back restores the one before."""
    opened(page, app, "start", model="headlight-mini", text=SENTENCE, masked="5")
    heading = page.get_by_role("heading", name=re.compile("^All heads"))
    expect(heading).to_have_text(re.compile("“her \\(masked\\)” → “she”"))
    token(page, "key", "brother").click()
    expect(heading).to_have_text(re.compile("“her \\(masked\\)” → “brother”"))
    settled(page)
    token(page, "query", "gave").click()
    expect(heading).to_have_text(re.compile("“gave” → “brother”"))
    settled(page)
    assert address_of(page)["edge"] == "2.7"
    page.go_back()
    expect(heading).to_have_text(re.compile("“her \\(masked\\)” → “brother”"))


def test_a_click_on_a_head_keeps_the_compared_tokens(app: str, page: Page) -> None:
    """The head is opened; heading and colours stay those of the same pair."""
    opened(page, app, "start", model="headlight-mini", text=SENTENCE, masked="5")
    heading = page.get_by_role("heading", name=re.compile("^All heads"))
    expect(heading).to_have_text(re.compile("“her \\(masked\\)” → “she”"))
    page.get_by_role("button", name=re.compile("^L0 H3")).click()
    expect(page.get_by_role("heading", name="One of its 72 heads: L0 H3")).to_be_visible()
    settled(page)
    expect(heading).to_have_text(re.compile("“her \\(masked\\)” → “she”"))


def test_switching_the_head_off_changes_the_prediction_and_stays(app: str, page: Page) -> None:
    """One click shows the effect; another page keeps the head off; Back returns to Home as it was."""
    opened(page, app, "start", model="headlight-mini", text=SENTENCE, masked="5")
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.get_by_text(re.compile("Without this one head of 72, the prediction changes to “his”"))).to_be_visible()
    settled(page)
    page.get_by_role("link", name="Predictions").first.click()
    expect(page.get_by_text("1 head is off").first).to_be_visible()
    settled(page)
    page.go_back()
    expect(page.get_by_role("button", name="Switch it on again")).to_be_visible()
    settled(page)
    page.get_by_role("button", name="Switch it on again").click()
    expect(page.get_by_role("button", name="Switch this head off")).to_be_visible()

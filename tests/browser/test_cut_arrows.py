"""Arrows cut by hand in a real browser: the answer changes on every page, Back and Restore put it back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.reader import opened, reaches_address, settled

TEXT = "The army crossed the river at night."


def test_arrows_are_cut_and_put_back(app: str, page: Page) -> None:
    """Click a token, cut what it looks at, see another answer there and on Predict; Back, and Restore."""
    opened(page, app, "attention", text=TEXT, masked="4", view="curves", head="2.3")
    page.locator(".column.query .token").nth(5).click()
    settled(page)
    page.get_by_role("button", name="Attention knockout").click()
    expect(page.get_by_text("an empty row cannot be renormalised")).to_be_visible()
    page.get_by_text("All layers", exact=True).click()
    settled(page)
    page.get_by_text("Leave unchanged", exact=True).click()
    settled(page)
    page.get_by_role("button", name="Block these edges").click()
    line = page.get_by_text("Blocked attention: all layers, “[MASK]” (5) → every token: the rest is unchanged")
    expect(line).to_be_visible()
    settled(page)
    assert reaches_address(page, lambda said: said.get("cut") == "all:q5>k:x")
    page.get_by_role("link", name="Predictions").click()
    expect(page.get_by_role("heading", name="Predictions")).to_be_visible()
    settled(page)
    expect(line).to_be_visible()
    cut = page.locator(".js-plotly-plot").first.inner_text()
    page.go_back()
    settled(page)
    page.go_back()
    settled(page)
    expect(line).to_be_hidden()
    page.go_forward()
    settled(page)
    expect(line).to_be_visible()
    page.get_by_role("link", name="Predictions").click()
    settled(page)
    page.get_by_role("button", name="Restore").click()
    expect(line).to_be_hidden()
    settled(page)
    assert page.locator(".js-plotly-plot").first.inner_text() != cut
    assert page.problems == []

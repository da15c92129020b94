"""The view Bias as a person walks it: each change of a control or click on a bar is in the address bar."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.reader import click_at, opened, reaches_address, settled

BARS = "[class*=st-key-bias_shares] .nsewdrag"
PAGER = ".st-key-bias_pager"


def test_the_address_follows_each_click(app: str, page: Page) -> None:
    """The score and the bar are in the address without a further interaction, and Back lists all pairs again."""
    opened(page, app, "score", compared="bias")
    start = page.get_by_role("button", name=re.compile("^Score 60 pairs"))  # on a busy machine
    expect(page.locator(BARS).or_(start).first).to_be_visible()
    if start.is_visible():
        start.click()
    expect(page.locator(BARS).first).to_be_visible()
    settled(page)
    page.get_by_role("radio", name="Whole sentence").click()
    assert reaches_address(page, lambda address: address.get("bias_measure") == "whole sentence")
    settled(page)
    click_at(page.locator(BARS).first, 0.05, 0.3)
    assert reaches_address(page, lambda address: address.get("bias_category") == "gender")
    expect(page.locator(PAGER)).to_have_text(re.compile("1 to 12 of 12 pairs"))
    settled(page)
    page.go_back()
    assert reaches_address(page, lambda address: "bias_category" not in address)
    expect(page.locator(PAGER)).to_have_text(re.compile("1 to 50 of 60 pairs"))
    assert page.problems == []  # type: ignore[attr-defined]

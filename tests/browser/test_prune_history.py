"""Heads that are switched on Prune are steps in the history of the browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.reader import address_of, opened, reaches_address, settled

TEXT = "The army crossed the river at night."
HEADS = {"L0 H1": "0.1", "L2 H4": "2.4", "L5 H11": "5.11"}


def test_back_and_forward_restore_every_switched_head(app: str, page: Page) -> None:
    """Back takes back three heads one by one, Forward switches them off again, and the page shows each state."""
    opened(page, app, "prune", text=TEXT, pair="")
    button, cells = page.get_by_role("button", name="Test on "), page.locator("button.cell")
    expect(button.or_(cells).first).to_be_visible()
    if button.count():
        button.click()
        expect(cells.first).to_be_visible()
        settled(page)

    def expect_off(count: int) -> None:
        names = list(HEADS)[:count]
        expected = ",".join(HEADS[name] for name in names)
        assert reaches_address(page, lambda address: address.get("off", "") == expected), address_of(page)
        expect(page.get_by_text(f"{count} of 72 heads are off.")).to_be_visible()
        expect(page.locator("button.cell.off")).to_have_count(count)
        for name in names:
            expect(page.get_by_role("button", name=re.compile(rf"^{name}\b.*off"))).to_be_visible()
        settled(page)

    for count, name in enumerate(HEADS, 1):
        page.get_by_role("button", name=re.compile(rf"^{name}\b")).click()
        expect_off(count)
    for count in (2, 1, 0):
        page.go_back()
        expect_off(count)
    for count in (1, 2, 3):
        page.go_forward()
        expect_off(count)
    page.go_back()
    expect_off(2)
    page.get_by_role("button", name=re.compile(r"^L2 H4\b")).click()  # switched on again: a step from there
    assert reaches_address(page, lambda address: address.get("off") == "0.1"), address_of(page)
    settled(page)
    page.go_back()
    expect_off(2)

"""A tour over all pages by the navigation: whatever is selected on a page is there when the visitor comes back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import address_of, opened, reaches_address, settled
from viz_app.pages import PAGES

TEXT, PAIR = "The army crossed the river at night.", "In the morning the soldiers attacked the city."
SHARED = {"text": TEXT, "pair": PAIR, "masked": "4", "target": "nsp"}
TOUR = [page for page in PAGES if page.path not in ("start", "learn", "glossary")]  # pages with controls of their own
CONTROLS = ".st-key-screen_controls"  # the place above the figure
GROUPS = """(place) => [...document.querySelectorAll(`${place} [role=radiogroup]`)]
    .map((group) => [...group.querySelectorAll("[role=radio]")].map((radio) => radio.textContent))"""


def go_to(page: Page, title: str) -> None:
    """Open a page by its link in the navigation."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=title, exact=True).click()
    settled(page)


def select_other_option(page: Page) -> str | None:
    """Click the second option of the first group of options of the page, and return its text; None without a group."""
    groups = [options for options in page.evaluate(GROUPS, CONTROLS) if len(options) > 1]
    if not groups:
        return None
    option: str = groups[0][1]
    page.locator(CONTROLS).get_by_role("radio", name=option, exact=True).first.click()
    settled(page)
    return option


@pytest.mark.slow
def test_a_tour_over_all_pages_loses_nothing(app: str, page: Page) -> None:
    """Text, mask and target on pages about the text, and the option that was selected on each page."""
    opened(page, app, "predict", **SHARED)
    selected: dict[str, str] = {}
    for visited in TOUR:
        go_to(page, visited.title)
        option = select_other_option(page)
        if option is not None:
            selected[visited.title] = option
    assert len(selected) >= 10, selected  # the pages do have options
    for visited in TOUR:
        go_to(page, visited.title)
        if visited.text:
            expect(page.get_by_label("Sentence", exact=True)).to_have_value(TEXT)
            expect(page.get_by_label("Second sentence")).to_have_value(PAIR)
            assert reaches_address(page, lambda address: SHARED.items() <= address.items()), address_of(page)
        if visited.title in selected:
            radio = page.locator(CONTROLS).get_by_role("radio", name=selected[visited.title], exact=True)
            expect(radio.first).to_be_checked()

"""On a dark page and in a lecture, what a part of a page draws when it runs alone looks like the rest of the page."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled
from viz_app.figures.style import DARK_PAGE, LIGHT_PAGE

TEXT = "She opened the door."
BACKGROUND = ".st-key-curve .js-plotly-plot .main-svg"


def test_a_figure_of_a_fragment_is_dark_on_a_dark_page(app: str, page: Page) -> None:
    """Prune's curve, when only its own part of the page runs again; and light again on a light page."""
    page.emulate_media(color_scheme="dark")
    opened(page, app, "prune", text=TEXT, model="headlight-mini")
    page.locator(".st-key-start_curve button").click()
    expect(page.locator(".st-key-curve")).to_be_visible()
    expect(page.locator(".st-key-stop_curve")).to_have_count(0)
    settled(page)
    for scheme, colours in (("dark", DARK_PAGE), ("light", LIGHT_PAGE)):
        page.emulate_media(color_scheme=scheme)
        settled(page)
        red, green, blue = (int(colours.background[at : at + 2], 16) for at in (1, 3, 5))
        for name in ("Parameters", "Loss"):
            page.get_by_role("button", name=re.compile("^Options")).click()
            page.get_by_role("radio", name=re.compile(f"^{name}")).click()
            settled(page)
            page.keyboard.press("Escape")
            expect(page.locator(BACKGROUND).first).to_have_css("background-color", f"rgb({red}, {green}, {blue})")


def test_a_head_chosen_in_a_lecture_keeps_its_type(app: str, page: Page) -> None:
    """Attention, when a click on a head runs its picture alone: it is drawn for a lecture, as before the click."""
    page.emulate_media(color_scheme="dark")
    opened(page, app, "attention", text=TEXT, lecture="1")
    expect(page.locator(".view.lecture")).to_be_visible()
    head = page.get_by_role("button", name=re.compile(r"^L1 H1\b"))
    head.click()
    settled(page)
    expect(head).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".view.lecture")).to_be_visible()

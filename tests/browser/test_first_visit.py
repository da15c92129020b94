"""The page Home in a browser: where it leads, and what Back does."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled
from viz_app.pages import PAGES

ASKS, PREDICTS = "Home", "Predictions"


def heading(page: Page, says: str) -> None:
    """Wait for a page with this heading."""
    expect(page.get_by_role("heading", name=says)).to_be_visible()
    settled(page)


@pytest.mark.smoke
def test_the_bare_address_is_home_and_back_leads_there(app: str, page: Page) -> None:
    """The server redirects it; a page is one press of Back from Home, and one of Forward from there."""
    page.goto(f"{app}/")
    heading(page, ASKS)
    page.wait_for_function("location.pathname === '/start' && location.search !== ''")
    settled(page)
    home, length = page.url, page.evaluate("history.length")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Predictions", exact=True).click()
    heading(page, PREDICTS)
    page.wait_for_function("location.pathname === '/predict' && location.search !== ''")
    settled(page)
    predictions = page.url
    for _ in range(2):
        page.go_back()
        heading(page, ASKS)
        assert page.url == home
        page.go_forward()
        heading(page, PREDICTS)
        assert page.url == predictions
    assert page.evaluate("history.length") == length + 1


def test_a_view_that_had_no_path_is_opened_and_gone_back_to(app: str, page: Page) -> None:
    """A link without a page opens Predictions; Home keeps its text, also when loaded anew, and Back leads back."""
    opened(page, app, text="The cat sat.")
    heading(page, PREDICTS)
    assert page.url == f"{app}/predict?text=The+cat+sat."
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Home", exact=True).click()
    heading(page, ASKS)
    page.wait_for_url(f"{app}/start?text=The+cat+sat.")
    page.reload()
    heading(page, ASKS)
    expect(page.get_by_label("Sentence", exact=True)).to_have_value("The cat sat.")
    page.go_back()
    heading(page, PREDICTS)
    expect(page.get_by_label("Sentence", exact=True)).to_have_value("The cat sat.")
    assert page.url == f"{app}/predict?text=The+cat+sat."


def test_in_german_too_each_page_is_one_press_of_back(app: str, page: Page) -> None:
    """Start says its language in the address as soon as it is drawn: there and back again, each page is one entry."""
    opened(page, app, "attention", text="The cat sat.", lang="de")
    page.wait_for_function("window.headlightSteps")  # what keeps the history is there
    length, walked = page.evaluate("history.length"), [page.url]
    links, start = page.get_by_test_id("stSidebarNav"), ("/start", "Startseite")
    for path, name in (start, ("/attention", "Aufmerksamkeit"), start, ("/glossary", "Glossar")):
        links.get_by_role("link", name=name, exact=True).click()
        page.wait_for_function("path => location.pathname === path && location.search.includes('lang=de')", arg=path)
        settled(page)
        walked.append(page.url)
    assert page.evaluate("history.length") == length + 4, walked
    for url in walked[-2::-1]:
        page.go_back()
        page.wait_for_url(url)
        settled(page)
        assert page.url == url


@pytest.mark.parametrize("size", [(1280, 720), pytest.param((390, 844), marks=pytest.mark.smoke)])
def test_every_page_is_a_click_away(app: str, page: Page, size: tuple[int, int]) -> None:
    """On a wide and on a narrow window nothing reaches out of it, and each page's name is a link to it."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{app}/")
    heading(page, ASKS)
    groups = page.locator(".st-key-start_groups")
    others = len(PAGES) - 1  # all but Start itself
    expect(groups.get_by_role("link")).to_have_count(others)
    paths = [link.get_attribute("href") for link in groups.get_by_role("link").all()]
    assert len(set(paths)) == len(paths) == others
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    groups.get_by_role("link", name="Glossary").click()
    heading(page, "Glossary")


def test_in_a_lecture_every_page_is_two_clicks_away(app: str, page: Page) -> None:
    """The groups stand on top, and each opens the list of its pages."""
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{app}/?lecture=1")
    heading(page, ASKS)
    page.get_by_test_id("stHeader").get_by_text("Explain", exact=True).click()
    page.get_by_role("link", name="Layers & logit lens").last.click()
    heading(page, "Layers & logit lens")
    assert "lecture=1" in page.url

"""The figure comes first: where it starts on every page, how much of the window it takes, and what a lecture shows."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled, start_slow_work
from viz_app.pages import PAGES

WITHOUT_FIGURE = {"start", "learn", "glossary"}
WINDOW, LECTURE_WINDOW = {"width": 1440, "height": 900}, {"width": 1280, "height": 720}
MAX_TOP = 260  # pixels
MIN_SHARE = 0.5  # of the main area, right of the side bar
FIGURE_BOX = """() => {
  const box = document.querySelector(".st-key-screen_figure")?.getBoundingClientRect();
  const main = document.querySelector('[data-testid="stMain"]').getBoundingClientRect();
  return box && { top: box.top, bottom: box.bottom, width: box.width, mainWidth: main.width, mainBottom: main.bottom };
}"""
STARTED = {"dataset", "score", "similarity"}  # pages that a slow machine opens with a button in place of the figure
PATHS = [page.path for page in PAGES if page.path not in WITHOUT_FIGURE]


def figure_box(page: Page) -> dict[str, float]:
    """Place of the figure with its detail panel, and of the main area, in pixels."""
    expect(page.locator(".st-key-screen_figure")).to_be_visible()
    settled(page)
    box: dict[str, float] = page.evaluate(FIGURE_BOX)
    return box


@pytest.mark.parametrize("path", PATHS)
def test_the_figure_starts_high_and_fills_half_of_the_main_area(path: str, app: str, page: Page) -> None:
    """At 1440 x 900, as a new visitor sees the page: nothing was chosen."""
    page.set_viewport_size(WINDOW)
    opened(page, app, path, model="headlight-mini")
    if path in STARTED:
        start_slow_work(page)
    box = figure_box(page)
    assert box["top"] <= MAX_TOP
    height = min(box["bottom"], WINDOW["height"]) - box["top"]
    assert box["width"] * height >= MIN_SHARE * box["mainWidth"] * WINDOW["height"]


@pytest.mark.parametrize("path", [*PATHS, "learn"])
def test_a_lecture_shows_the_whole_figure(path: str, app: str, page: Page) -> None:
    """At 1280 x 720 in lecture mode the figure ends inside the window, and is not empty."""
    page.set_viewport_size(LECTURE_WINDOW)
    opened(page, app, path, model="headlight-mini", lecture="1")
    box = figure_box(page)
    assert 0 < box["top"] < box["bottom"] <= LECTURE_WINDOW["height"] + 1
    assert box["bottom"] - box["top"] >= 0.4 * LECTURE_WINDOW["height"]

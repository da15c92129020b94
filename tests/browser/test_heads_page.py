"""Heads are switched where they are seen: nothing moves under the hand."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import settled

TEXT = "The army crossed the river at night."


@pytest.mark.parametrize("path", ["heads", "prune"])
def test_a_second_click_at_the_same_place_switches_the_same_head_on_again(app: str, page: Page, path: str) -> None:
    """The first head that goes off brings a notice, and the grid stays where it is."""
    page.goto(f"{app}/{path}?{urlencode({'text': TEXT, 'masked': '4'})}")
    cell = page.get_by_role("button", name=re.compile(r"^L2 H4\b"))
    expect(cell).to_be_visible()
    settled(page)
    cell.scroll_into_view_if_needed()
    before = cell.bounding_box()
    assert before is not None
    at = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    page.mouse.click(*at)
    expect(page.get_by_role("button", name="1 head is off")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^L2 H4.*off"))).to_be_visible()
    settled(page)
    assert cell.bounding_box() == before
    page.mouse.click(*at)
    expect(page.get_by_role("button", name="All heads are on")).to_be_visible()
    expect(page.locator("button.cell.off")).to_have_count(0)
    settled(page)
    assert cell.bounding_box() == before


def test_the_colour_means_the_same_estimated_and_measured(app: str, page: Page) -> None:
    """Both are contributions in the same unit, and the largest have the same sign."""
    seen = []
    for colour in ("slope", "removal"):
        page.goto(f"{app}/heads?{urlencode({'text': TEXT, 'masked': '4', 'colour': colour})}")
        expect(page.locator(".legend .unit")).to_have_text("contribution, in nats of log-probability")
        labels = page.locator("button.cell").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        seen.append(
            {name: float(figure.replace("−", "-")) for name, *_, figure in (label.split(", ") for label in labels)}
        )
    estimated, found = seen
    largest = sorted(found, key=lambda head: -abs(found[head]))[:5]
    assert all(estimated[head] * found[head] > 0 for head in largest), [(estimated[h], found[h]) for h in largest]


@pytest.mark.smoke
def test_a_point_opens_its_head(app: str, page: Page) -> None:
    """A click on a head among the estimates and measurements opens its attention."""
    page.goto(f"{app}/heads?{urlencode({'text': TEXT, 'masked': '4', 'colour': 'removal'})}")
    chart = page.locator(".js-plotly-plot", has=page.locator(".scatterlayer .point")).first
    point = chart.locator(".scatterlayer .trace").last.locator(".point").first
    expect(point).to_be_visible()
    settled(page)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("heading", name="Attention", exact=True)).to_be_visible()
    expect(page.locator("button.cell.selected")).to_have_count(1)
    expect(page.locator(".heads [aria-pressed=true]")).to_have_count(1)

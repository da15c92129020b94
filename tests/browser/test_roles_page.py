"""The page Roles in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.reader import settled


def box_centre(mark: Locator) -> tuple[float, float]:
    """Where the middle of a mark is on the page."""
    box = mark.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.smoke
def test_a_head_is_chosen_on_the_map_by_its_neighbours_and_in_a_grid(
    app: str, page: Page, tiny_model_folder: Path
) -> None:
    """A click on a point, a nearest head, or a cell opens the card of that head and writes it into the address.

    From Attention, where it is shown, one press of Back leads to it again.
    """
    page.goto(f"{app}/roles?model={tiny_model_folder}&text=the+cat+sat+on+the+mat&masked=1&head=1.3")
    card = page.get_by_role("heading", level=3).first
    expect(card).to_contain_text("L1 H3")
    points = page.get_by_test_id("stPlotlyChart").first.locator(".scatterlayer .points path")
    expect(points).to_have_count(9)  # eight heads, and the ring
    *spots, ring = (box_centre(points.nth(number)) for number in range(9))
    page.mouse.click(*max(spots, key=lambda spot: abs(spot[0] - ring[0]) + abs(spot[1] - ring[1])))
    expect(card).not_to_contain_text("L1 H3")
    name = re.match(r"L(\d) H(\d)", card.inner_text())
    assert name is not None
    page.wait_for_url(re.compile(rf"head={name[1]}\.{name[2]}" if name[0] != "L0 H0" else r"roles\?(?!.*head=)"))
    page.get_by_role("tab", name="Similar heads").click()
    near = page.get_by_role("button", name=re.compile(r"^L\d H\d · ")).first
    other = near.inner_text()[:5]
    near.click()
    expect(card).to_contain_text(other)
    page.get_by_role("radio", name="Importance").click()
    page.get_by_role("button", name=re.compile(r"^L1 H2\b")).first.click()
    expect(card).to_contain_text("L1 H2")
    page.wait_for_url(re.compile(r"head=1\.2"))
    length = page.evaluate("history.length")
    page.get_by_role("button", name="Open in Attention").click()
    expect(page.get_by_role("heading", name="Attention", level=1)).to_be_visible()
    page.wait_for_url(re.compile(r"/attention\?.*head=1\.2"))
    expect(page.locator(".view .layer .name")).to_have_text("L1")
    settled(page)
    assert page.evaluate("history.length") == length + 1, "one press of Back"
    page.go_back()
    expect(card).to_contain_text("L1 H2")
    page.wait_for_url(re.compile(r"/roles\?.*head=1\.2"))
    assert not page.problems

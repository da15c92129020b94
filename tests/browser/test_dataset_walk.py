"""The page Dataset as a person walks it: a cell, its texts, one of them on another page, and back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled, start_slow_work


@pytest.mark.slow
def test_a_cell_is_clicked_a_text_is_opened_and_back_returns_to_it(app: str, page: Page) -> None:
    """The cell lists its texts, the selected one opens on Attention, and Back has the same filter and row again."""
    opened(page, app, "dataset", expected="is")
    start_slow_work(page)
    rows = page.locator("[class*=st-key-dataset_rows_] canvas[data-testid=data-grid-canvas] tbody tr")
    expect(rows.first).to_contain_text("is")
    matrix = page.locator("[class*=st-key-confusion] .nsewdrag").first
    expect(matrix).to_be_visible()
    labels = [label.strip() for label in page.locator("[class*=st-key-confusion] .xtick text").all_text_contents()]
    expected = page.locator("[class*=st-key-confusion] .ytick text").all_text_contents()
    place = [labels.index("was"), next(n for n, label in enumerate(expected) if label.strip().startswith("is "))]
    box = matrix.bounding_box()
    assert box is not None
    x, y = ((number + 0.5) / len(names) for number, names in zip(place, (labels, expected), strict=True))
    matrix.click(position={"x": x * box["width"], "y": y * box["height"]})
    settled(page)
    page.wait_for_function("location.search.includes('predicted=was')")
    expect(page.get_by_text(re.compile("predicted “was”")).first).to_be_visible()
    page.get_by_role("radio", name="Wrong").or_(page.get_by_text("Wrong", exact=True)).first.click()
    settled(page)
    grid = page.locator("[class*=st-key-dataset_rows_] .dvn-scroller").first
    grid.click(position={"x": 16, "y": 35 * 3 + 17})  # the third row below the header
    settled(page)
    page.wait_for_function("location.search.includes('data_row=')")
    card = page.locator(".st-key-dataset_row")
    text = card.locator("p").filter(has_text="“").first.inner_text()
    before = page.url
    card.get_by_role("button", name="Attention").click()
    settled(page)
    page.wait_for_function("location.pathname === '/attention'")
    expect(page.get_by_role("heading", name="Attention")).to_be_visible()
    assert text.strip("“”").split(" [MASK]")[0] in page.locator(".st-key-text input").input_value()
    page.go_back()
    page.wait_for_function("location.pathname === '/dataset'")
    settled(page)
    expect(page.locator(".st-key-dataset_row p").filter(has_text="“").first).to_have_text(text)
    for part in ("expected=is", "predicted=was", "outcome=wrong", re.search(r"data_row=\d+", before)[0]):  # type: ignore[index]
        assert part in page.url
    assert page.problems == []  # type: ignore[attr-defined]

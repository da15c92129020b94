"""The page Predict in a real browser: what stands in the first window, and bars that can be clicked."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import settled

TWO_GAPS = {"text": "The [MASK] of France is a [MASK] city.", "pair": "It rained."}


def test_two_gaps_and_the_verdict_stand_in_the_first_window(app: str, page: Page) -> None:
    """Both gaps with all their bars, on one scale; the verdict and its bar say one number."""
    page.goto(f"{app}/?{urlencode(TWO_GAPS)}")
    charts = page.locator(".js-plotly-plot")
    expect(charts).to_have_count(3)
    for number in range(3):
        expect(charts.nth(number).locator(".bars .point").first).to_be_visible()
        settled(page)
        box = charts.nth(number).bounding_box()
        assert box is not None and box["y"] >= 0 and box["y"] + box["height"] <= 1000, (number, box)
    ticks = [charts.nth(number).locator(".xaxislayer-above .xtick").all_text_contents() for number in range(2)]
    assert ticks[0] == ticks[1]
    verdict = page.get_by_role("heading", name="B follows A with probability").inner_text()
    assert charts.nth(2).locator(".bars .bartext").text_content() == verdict.rpartition(" ")[2]


@pytest.mark.smoke
def test_a_click_on_a_bar_puts_its_word_in(app: str, page: Page) -> None:
    """The second bar of the second gap: its word stands in the text, and the other gap stays open."""
    page.goto(f"{app}/?{urlencode(TWO_GAPS)}")
    second = page.locator(".js-plotly-plot").nth(1)
    expect(second.locator(".bars .point").nth(1)).to_be_visible()
    settled(page)
    word = second.locator(".yaxislayer-above .ytick text").nth(1).text_content().strip()
    box = second.locator(".bars .point path").nth(1).bounding_box()
    assert box is not None
    # Its row is clicked, where the bar itself may be a few pixels wide.
    page.mouse.click(box["x"] + box["width"] + 60, box["y"] + box["height"] / 2)
    expect(page.get_by_text("[MASK] at position 7", exact=True)).to_have_count(0)
    settled(page)
    expect(page.get_by_label("Sentence", exact=True)).to_have_value(f"The [MASK] of France is a {word} city.")
    expect(page.get_by_text("[MASK] at position 2", exact=True)).to_be_visible()

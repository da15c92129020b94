"""The page Predictions in a real browser: what the first window shows, and bars that can be clicked."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import settled

TWO_MASKS = {"text": "The [MASK] of France is a [MASK] city.", "pair": "It rained."}


def test_two_masks_and_the_verdict_are_in_the_first_window(app: str, page: Page) -> None:
    """Both masks with all their bars, on one scale; the verdict and its bar have one number."""
    page.goto(f"{app}/predict?{urlencode(TWO_MASKS)}")
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
def test_a_click_on_a_bar_makes_its_word_the_target_and_the_button_puts_it_into_the_text(app: str, page: Page) -> None:
    """The second bar of the second mask, and then the first; the other mask stays."""
    page.goto(f"{app}/predict?{urlencode(TWO_MASKS)}")
    second = page.locator(".js-plotly-plot").nth(1)
    expect(second.locator(".bars .point").nth(1)).to_be_visible()
    settled(page)
    explained = page.get_by_role("combobox", name="Explain", exact=True)
    for row in (1, 0, 1):
        word = second.locator(".yaxislayer-above .ytick text").nth(row).text_content().strip()
        box = second.locator(".bars .point path").nth(row).bounding_box()
        assert box is not None
        # Its row is clicked, where the bar itself may be a few pixels wide.
        page.mouse.click(box["x"] + box["width"] + 60, box["y"] + box["height"] / 2)
        button = page.get_by_role("button", name=f"Put “{word}” into the text")
        expect(button).to_be_visible()
        settled(page)
        expect(explained).to_have_value(f"Explain “{word}” at 7")
        assert float(second.locator(".bars .point path").nth(2).evaluate("bar => getComputedStyle(bar).opacity")) == 1
    button.click()
    expect(page.get_by_text("[MASK] (position 7)", exact=True)).to_have_count(0)
    settled(page)
    expect(page.get_by_label("Sentence", exact=True)).to_have_value(f"The [MASK] of France is a {word} city.")
    expect(page.get_by_text("[MASK] (position 2)", exact=True)).to_be_visible()


def test_numbers_on_hover_have_four_digits_and_their_series(app: str, page: Page) -> None:
    """One number without a name for the unmodified model; with a head off, each has its name."""
    for off, names in (("", [""]), ("5.8", ["before ", "now "])):
        page.goto(
            f"{app}/predict?{urlencode({'text': 'She gave the book to her brother.', 'masked': '5', 'off': off})}"
        )
        bars = page.locator(".js-plotly-plot").first
        expect(bars.locator(".bars .point").first).to_be_visible()
        settled(page)
        box = bars.locator(".bars .point path").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(bars.locator(".hoverlayer .hovertext")).to_have_count(len(names))
        for number, name in enumerate(names):
            lines = bars.locator(".hoverlayer .hovertext").nth(number).locator("tspan.line").all_text_contents()
            assert re.fullmatch(rf"{name}0\.\d{{1,4}}", lines[-1]), lines

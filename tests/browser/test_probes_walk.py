"""The page Probes as a person walks it: a file of one's own, a label, its lines, elsewhere and back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.app.test_probes_page import TABLE
from tests.browser.reader import opened, reaches_address, settled


def test_a_file_is_probed_and_stays(app: str, page: Page) -> None:
    """A table is uploaded and its second label chosen; its lines, and the answer without it, outlast a walk."""
    opened(page, app, "probes", seeds="1", text="The pilots were tired.", masked="2")
    expect(page.get_by_role("button", name="Probe 7 depths with 1 seed")).to_be_visible()
    page.get_by_role("button", name="Your own words").click()
    page.locator("input[type=file]").set_input_files({"name": "words.csv", "mimeType": "text/csv", "buffer": TABLE})
    settled(page)
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Label").click()
    page.get_by_role("option", name="place").click()
    assert reaches_address(page, lambda address: address.get("label") == "place")
    settled(page)
    page.get_by_text("Erase the label").click()
    assert reaches_address(page, lambda address: address.get("probes_view") == "erase")
    settled(page)
    ask = page.get_by_role("button", name="Probe 7 depths with 1 seed")
    if ask.count():
        ask.click()
    lines = page.locator(".st-key-probe_lines .js-plotly-plot").first
    expect(lines).to_be_visible(timeout=120_000)
    expect(lines.get_by_text("label erased")).to_be_visible()
    expect(page.get_by_text("Masked word “were” (position 3)")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Predictions").click()
    expect(page.get_by_role("heading", name="Predictions", exact=True)).to_be_visible()
    settled(page)
    page.get_by_role("link", name="Probing").click()
    expect(lines.get_by_text("label erased")).to_be_visible(timeout=60_000)
    assert page.problems == []


def test_a_steered_prediction_stays(app: str, page: Page) -> None:
    """The view Steer is opened by a click; its figure outlasts another page, and Back returns to the other view."""
    opened(page, app, "probes", text="The pilots were tired.", masked="2", contrast="was", label="subject")
    page.get_by_text("Steer", exact=True).click()
    assert reaches_address(page, lambda address: address.get("probes_view") == "steer")
    settled(page)
    page.get_by_role("button", name="Steer, about").click()
    figure = page.locator(".st-key-steering_target .js-plotly-plot").first
    expect(figure).to_be_visible(timeout=120_000)
    page.get_by_role("link", name="Predictions").click()
    expect(page.get_by_role("heading", name="Predictions", exact=True)).to_be_visible()
    settled(page)
    page.go_back()
    expect(page.get_by_role("heading", name="Probing", exact=True)).to_be_visible()
    expect(figure).to_be_visible(timeout=60_000)
    assert page.problems == []

"""The page MLP neurons as a person walks it: open, click a cell, switch its neuron off, press Back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.reader import click_at, opened, reaches_address, settled


def test_a_cell_is_clicked_and_its_neuron_switched_off(app: str, page: Page) -> None:
    """The example stands there; a click names the cell in the address; what is switched off is said, until Back."""
    opened(page, app, "neurons")
    expect(page.get_by_text("L3 neuron 146 is active")).to_be_visible()
    # Ten tokens by six layers: “brother”, in L1.
    click_at(page.locator(".st-key-neurons_map .js-plotly-plot .nsewdrag").first, 1.5 / 6, 7.5 / 10)
    assert reaches_address(page, lambda address: address.get("neuron_cell") == "1.7")
    settled(page)
    expect(page.get_by_role("heading", name="L1 at “brother”")).to_be_visible()
    page.get_by_role("button", name="Switch off", exact=True).click()
    assert reaches_address(page, lambda address: address.get("scaled", "").startswith("1."))
    settled(page)
    expect(page.get_by_text("Scaled: L1 neuron")).to_be_visible()
    page.go_back()
    settled(page)
    expect(page.get_by_text("Scaled: L1 neuron")).to_be_hidden()
    assert page.problems == []

"""The page Activation patching as a person walks it: open, click a cell, go elsewhere and back, press Back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.reader import click_at, opened, reaches_address, settled


def test_a_cell_is_clicked_and_back_takes_it_back(app: str, page: Page) -> None:
    """The example stands there; a click names the cell in the address and shows what is said; it lasts, until Back."""
    opened(page, app, "causes")
    expect(page.get_by_text("Look at the row of “man”")).to_be_visible()
    expect(page.get_by_label("Source text")).to_have_value("The woman lost his hat.")
    grid = page.locator(".st-key-causes_found .js-plotly-plot").first
    # Eight tokens by seven depths: “man”, after L2.
    click_at(grid.locator(".nsewdrag").first, 3.5 / 7, 2.5 / 8)
    assert reaches_address(page, lambda address: address.get("place") == "2.3")
    settled(page)
    heading = page.get_by_role("heading", name="Hidden state: man → woman at L2")
    expect(heading).to_be_visible()
    expect(page.get_by_text("with this patch; effect 0.98")).to_be_visible()
    page.get_by_role("link", name="Predictions").click()
    expect(page.get_by_role("heading", name="Predictions")).to_be_visible()
    settled(page)
    page.get_by_role("link", name="Activation patching").click()
    expect(heading).to_be_visible()
    settled(page)
    for _ in range(3):
        page.go_back()
        settled(page)
    expect(page.get_by_text("Look at the row of “man”")).to_be_visible()
    expect(heading).to_be_hidden()
    assert page.problems == []


def test_another_text_and_another_part(app: str, page: Page) -> None:
    """A source is typed and a part chosen with the hand; what it needs is asked for by buttons, and nothing is lost."""
    opened(page, app, "causes", text="The man lost his hat.", masked="3", target="4:her", contrast="his")
    source = page.get_by_label("Source text")
    source.fill("The queen lost his hat.")
    source.press("Enter")
    assert reaches_address(page, lambda address: address.get("source") == "The queen lost his hat.")
    settled(page)
    page.get_by_role("combobox", name="Patch").click()
    page.get_by_role("option", name="Head output").click()
    assert reaches_address(page, lambda address: address.get("patched") == "head")
    settled(page)
    page.get_by_role("button", name="Compare with 10 random texts").click()
    expect(page.get_by_text("no stronger than 10 random texts")).to_be_visible(timeout=60_000)
    page.reload()
    expect(page.get_by_label("Source text")).to_have_value("The queen lost his hat.")
    expect(page.get_by_role("heading", name="Head output: L5 H8")).to_be_visible(timeout=60_000)
    assert page.problems == []


def test_in_a_lecture_no_button_is_over_the_map(app: str, page: Page) -> None:
    """At 1280 x 720 the button of the random texts is inside the figure, beside the map."""
    page.set_viewport_size({"width": 1280, "height": 720})
    opened(page, app, "causes", model="headlight-mini", lecture="1")
    settled(page)
    grid = page.locator(".st-key-causes_found").bounding_box()
    button = page.get_by_role("button", name="Compare with 10 random texts").bounding_box()
    assert grid is not None and button is not None
    assert button["x"] >= grid["x"] + grid["width"] and button["y"] + button["height"] <= 720

"""Local layers in an exported page: what is hatched, and what a cell outside the window says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bert_core.analysis.patterns import possible_keys
from tests.browser.reader import opened_from_disk
from tests.hostile import run_of
from viz_app.export.page import attention_page
from viz_app.maps import MapView

WINDOWS = (None, 1)
LEGEND = "hatched: outside the window of this local layer (1 tokens to each side)"

# How many colours are in the middle of a cell.
COLOURS = """(canvas, [row, column]) => {
  const { margin, top, cell } = canvas.getRootNode().querySelector(".view").view.layout;
  const [x, y] = [margin.left + (column + 0.25) * cell, top + (row + 0.25) * cell];
  const { data } = canvas.getContext("2d").getImageData(x, y, cell / 2, cell / 2);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture
def local(page: Page, tmp_path: Path) -> Page:
    run = run_of(["The", "cat", "sat", "on", "it"], heads=2)
    possible = possible_keys(WINDOWS, len(run.encoding))
    assert possible is not None
    maps = run.attention * possible[:, None]
    run = replace(run, attention=maps / maps.sum(-1, keepdims=True), windows=WINDOWS)
    return opened_from_disk(page, tmp_path, attention_page(run, MapView(layer=1, heads=(0,), mode="matrix")))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cells_outside_the_window_are_hatched_and_say_so(local: Page, scheme: str) -> None:
    """The tooltip and the text for screen readers, the legend, and lines in the canvas; in a global layer none."""
    local.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    matrix = local.locator("canvas.matrix")
    matrix.focus()
    local.keyboard.press("ArrowRight")
    expect(local.get_by_role("tooltip").last).not_to_contain_text("outside")
    local.keyboard.press("End")
    for place in (local.get_by_role("tooltip").last, local.locator(".reading")):
        expect(place).to_contain_text("[CLS] (0) → [SEP] (6)")
        expect(place).to_contain_text("attention: outside the window")
    expect(local.locator(".matrix-box .hatched")).to_have_text(LEGEND)
    expect(matrix).to_have_attribute("aria-label", f"Map of L1 H0; {LEGEND}; arrow keys read its cells")
    expect(local.locator(".numbers tr.foot").last).to_contain_text("5 outside the window")
    assert matrix.evaluate(COLOURS, [1, 5]) > 2  # lines on the ground
    assert matrix.evaluate(COLOURS, [1, 1]) == 1
    local.get_by_role("button", name="the layer before").click()
    expect(local.locator(".matrix-box .hatched")).to_be_hidden()
    assert local.problems == []  # type: ignore[attr-defined]


def test_small_maps_of_local_layers_are_hatched(local: Page) -> None:
    """A picture of a local layer is as large as the screen has room, so that its lines are thin."""
    widths = local.locator(".cell img").evaluate_all("all => all.map((one) => one.naturalWidth)")
    assert widths[:2] == [7, 7] and min(widths[2:]) > 20
    expect(local.locator(".legend .hatched")).to_have_text("hatched: outside the windows of the local layers")
    assert "local layer: 1 tokens to each side" in _tip(local, 'button[data-layer="1"][data-head="0"]')
    assert "local layer" not in _tip(local, 'button[data-layer="0"][data-head="0"]')


def _tip(page: Page, cell: str) -> str:
    page.locator(cell).hover()
    return page.get_by_role("tooltip").first.inner_text()


def test_curves_count_the_edges_within_the_window(local: Page) -> None:
    local.get_by_role("button", name="Head", exact=True).click()
    expect(local.locator(".note")).to_contain_text("of 19 edges")  # 7 and two times 6
    local.locator(".column.query .token").first.hover()
    expect(local.locator(".numbers tr.foot").last).to_contain_text("5 outside the window")
    assert local.locator(".numbers tr:not(.foot)").count() == 2

"""The contribution graph as a person walks it: click a node and an edge, knock it out, leave, press Back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Serve
from tests.browser.reader import address_of, opened, reaches_address, settled


def test_an_edge_is_clicked_and_knocked_out_and_kept(serve: Serve, page: Page) -> None:
    """The address has the edge; Back returns to it after another page."""
    app = serve(ROOT / "streamlit_app.py")
    link = {"text": "She opened the door and walked in.", "masked": "3", "target": "4:door"}
    opened(page, app, "why", attributed="graph", graph_threshold="10", **link)
    nodes = page.locator(".st-key-graph .scatterlayer .trace").nth(-2).locator("path.point")
    expect(nodes.first).to_be_attached()
    box = nodes.first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert reaches_address(page, lambda address: "graph_edge" in address)
    settled(page)
    edge = address_of(page)["graph_edge"]
    page.get_by_role("button", name="Knock out this edge").click()
    expect(page.get_by_text("random edges with an equal share").first).to_be_visible()
    settled(page)
    page.get_by_role("link", name="Predictions", exact=True).click()
    settled(page)
    page.go_back()
    settled(page)
    assert address_of(page)["graph_edge"] == edge and address_of(page)["attributed"] == "graph"
    assert page.problems == []

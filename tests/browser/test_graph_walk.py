"""The contribution graph as a person walks it: click a node and an edge, knock it out, leave, press Back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Serve
from tests.browser.reader import address_of, opened, reaches_address, settled

EDGES, NODES = 0, 2  # among the traces with points; 1 is the input, and 3 the ring of the selected node


def click_point(page: Page, trace: int, point: int) -> str:
    """Click a point of a trace of the graph, and return the edge in the address that the click selects."""
    before = address_of(page).get("graph_edge")
    points = page.locator(".st-key-graph .scatterlayer .trace:has(path.point)").nth(trace).locator("path.point")
    expect(points.first).to_be_attached()
    box = points.nth(point).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert reaches_address(page, lambda address: address.get("graph_edge") not in (None, before))
    settled(page)
    return address_of(page)["graph_edge"]


def test_an_edge_is_clicked_and_knocked_out_and_kept(serve: Serve, page: Page) -> None:
    """The address has the edge; Back returns to it after another page."""
    app = serve(ROOT / "streamlit_app.py")
    link = {"text": "She opened the door and walked in.", "masked": "3", "target": "4:door"}
    opened(page, app, "why", attributed="graph", graph_threshold="10", **link)
    node, edge = click_point(page, NODES, 0), click_point(page, EDGES, -1)
    assert node != edge and edge.startswith("0.")  # the last edge is one of the first layer
    page.get_by_role("button", name="Knock out this edge").click()
    expect(page.get_by_text("random edges with a similar share").first).to_be_visible()
    settled(page)
    page.get_by_role("link", name="The selected head and edge in Attention").click()
    page.wait_for_url("**/attention?**")
    settled(page)
    layer, query, key = edge.split(".")
    assert address_of(page)["head"].startswith(f"{layer}.") and address_of(page)["edge"] == f"{query}.{key}"
    page.go_back()
    page.wait_for_url("**/why?**")
    settled(page)
    assert address_of(page)["graph_edge"] == edge and address_of(page)["attributed"] == "graph"
    assert page.problems == []

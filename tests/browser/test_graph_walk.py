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


def test_on_a_phone_the_graph_opens_at_the_target(serve: Serve, page: Page) -> None:
    """The node of the target, at the right of the text, is in sight; a visitor scrolls away and a click stays there."""
    app = serve(ROOT / "streamlit_app.py")
    page.set_viewport_size({"width": 390, "height": 844})
    link = {"text": "The old man opened the door of the house and walked in.", "masked": "11", "target": "12:in"}
    opened(page, app, "why", attributed="graph", graph_threshold="5", **link)
    figure = page.locator(".st-key-graph")
    nodes = figure.locator(".scatterlayer .trace:has(path.point)").nth(NODES).locator("path.point")
    expect(nodes.first).to_be_attached()

    def is_in_sight() -> bool:
        boxes = [nodes.nth(number).bounding_box() for number in range(nodes.count())]
        top = min((box for box in boxes if box is not None), key=lambda box: box["y"])
        return top["x"] >= 0 and top["x"] + top["width"] <= 390

    page.wait_for_function("document.querySelector('.st-key-graph').scrollLeft > 0")
    assert is_in_sight()
    figure.evaluate("element => { element.scrollLeft = 0; }")
    assert not is_in_sight()
    page.get_by_role("button", name="Knock out this edge").click()
    settled(page)
    assert figure.evaluate("element => element.scrollLeft") == 0
    assert page.problems == []

"""The views on a static page whose script has the numbers: separate modules under a strict content security policy."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from viz_app import components
from viz_app.components.attention_view.packing import CODES
from viz_app.components.look import views_look
from viz_app.export.markup import variables

LAYERS, HEADS, WORDS = 2, 3, ["the", "cat", "sat", "down"]
POLICY = "default-src 'self'; img-src 'self' data:"
PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Views</title>
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,"><link rel="stylesheet" href="theme.css">
<script type="module" src="page.js"></script></head>
<body><div id="strip"></div><div id="maps"></div><div id="numbers"></div><div id="view"></div><p></p></body></html>
"""
SCRIPT = """
import { layerReader, thumbnails } from "./components/array_maps.js";
import { HeadView } from "./components/head_views.js";
import { fixedHeader, mountView, showHeadGrid, showTokenStrip } from "./components/run_views.js";

const { look, words, form, values } = await (await fetch("./input.json")).json();
const numbers = Float32Array.from(values);
const { layers, heads } = form;
const place = (id, name) => mountView(document.getElementById(id), look.views[name]);
const log = (...parts) => document.querySelector("p").append(`${parts.join(" ")};`);
const tokens = words.map((word, i) => [word, i, "A"]);

const chips = words.map((text, word) => ({ text, title: `position ${word}`, word, side: "A" }));
showTokenStrip(place("strip", "token_strip"), { look, chips, label: "Tokens" }, (word) => log("word", word));
const small = thumbnails(numbers, form, [], look.thumbnails.small, look.thumbnails);
const roots = [place("maps", "head_grid"), place("numbers", "head_grid")];

const view = new HeadView(place("view", "attention_view"), ({ layer, heads: chosen }) => {
  log("choice", layer, chosen);
  draw();
});
const content = {
  name: "run",
  fixed: fixedHeader(look, { ...form, queries: tokens, keys: tokens, unit: "attention" }),
  exact: true,
  mode: "curves",
  layer: layerReader(numbers, form, { listed: look.listed }),
  listed: look.listed,
  limit: 1,
};

function draw() {
  const selected = [view.choice.layer, view.choice.heads[0]];
  showHeadGrid(roots[0], { look, layers, heads, thumbnails: small, selected }, (layer, head) => {
    view.open(layer, head);
    draw();
  });
  const shares = numbers.filter((_, i) => i % (words.length * words.length) === 0);
  showHeadGrid(roots[1], { look, layers, heads, values: shares, limit: 1, mode: "switch" }, (layer, head) => {
    log("switch", layer, head);
  });
  view.show(content);
}
draw();
"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder without a log."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of a folder with the modules of the views and the numbers of a run."""
    source = Path(components.__file__).parent
    shutil.copytree(source, tmp_path / "components", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    values = np.random.default_rng(2).dirichlet(np.full(len(WORDS), 0.5), (LAYERS, HEADS, len(WORDS)))
    form = {"layers": LAYERS, "heads": HEADS, "rows": len(WORDS), "columns": len(WORDS), "signed": False}
    data = {"look": views_look(), "words": WORDS, "form": form | {"codes": CODES}, "values": values.ravel().tolist()}
    (tmp_path / "input.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "theme.css").write_text(variables(None), encoding="utf-8")
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "page.js").write_text(SCRIPT, encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_views_work_on_a_static_page_with_a_strict_policy(page: Page, site: str) -> None:
    """Every head can be opened from the grid and from the view, words and switches report clicks, and nothing fails."""
    page.goto(site)
    expect(page.locator("#view .note")).to_contain_text("of 16 edges")
    page.locator("#maps").get_by_role("button", name="L1 H2").click()
    expect(page.locator("#view .layer .name")).to_have_text("L1")
    expect(page.locator('#view .head[data-head="2"]')).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="the layer before").click()
    expect(page.locator("#view .layer .name")).to_have_text("L0")
    expect(page.locator("#maps .cell.selected")).to_have_attribute("data-layer", "0")
    page.locator('#view .head[data-head="0"]').click()
    expect(page.locator("p")).to_have_text("choice 0 2;choice 0 2,0;")
    expect(page.locator("#view .note")).to_contain_text("of 32 edges")
    page.locator("#strip").get_by_role("button", name="cat").click()
    page.locator("#numbers").get_by_role("button", name="L1: switch layer 1").click()
    page.locator("#numbers").get_by_role("button", name="L0 H1").click()
    expect(page.locator("p")).to_have_text("choice 0 2;choice 0 2,0;word 1;switch 1 ;switch 0 1;")
    digits = page.locator("#numbers .cell .number").all_inner_texts()
    assert len(digits) == LAYERS * HEADS and all(len(text) == 4 for text in digits)
    assert page.problems == []
    assert all(url.startswith((site, "data:")) for url in page.requested)

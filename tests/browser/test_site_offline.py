"""A site that was visited once: pages, stored runs and the model without a server, and a site that has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import bert_core
from tests.browser.conftest import opened_tab
from tests.browser.static_site import StaticSite, serve_site
from tests.conftest import built_once
from viz_app.site.build import build_site

IS_WAITING = "navigator.serviceWorker.getRegistration().then(({ waiting }) => Boolean(waiting))"
CACHES = """async () => Object.fromEntries(await Promise.all((await caches.keys()).map(
  async (name) => [name, (await (await caches.open(name)).keys()).map(({ url }) => url)])))"""
READ = "async ([cacheName, url]) => (await caches.match(url, { cacheName })).text()"
CHANGED = '<svg xmlns="http://www.w3.org/2000/svg"/>'
COMPUTED = "of this head's attention from"  # on Home, of a text that is computed
TEXT = "text=The+cat+sat+on+the+old+mat.&masked=5"  # not stored


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A site of the tiny model, which a test may change."""
    loaded = bert_core.load(str(tiny_model_folder), device="cpu")
    exported = built_once("tiny-onnx", lambda path: bert_core.export_onnx(loaded, path, gradients=True))
    site = built_once("tiny-site", lambda path: build_site(loaded, path, exported=exported))
    return Path(shutil.copytree(site, tmp_path / "site" / "headlight")).parent


def visit(browser: Browser, server: StaticSite) -> Page:
    """A tab in which the service worker has stored the site, and the engine the model."""
    tab = opened_tab(browser)
    tab.goto(f"{server.address}/headlight/?{TEXT}")
    expect(tab.get_by_text(COMPUTED)).to_be_visible()
    tab.evaluate("async () => { await navigator.serviceWorker.ready; }")
    return tab


def test_a_second_visit_needs_no_server(browser: Browser, folder: Path) -> None:
    """All pages, with any query string, without the slash of a folder, and by the name of their file; and the model.

    Nothing was requested from another host or folder.
    """
    with serve_site(folder) as server:
        tab, address = visit(browser, server), f"{server.address}/headlight"
        assert all(url.startswith(f"{address}/") for url in tab.requested)
    try:
        for path, url in (
            (f"attention/?{TEXT}", f"attention/?{TEXT}"), (f"predict?{TEXT}", f"predict/?{TEXT}"), ("learn/", "learn/"),
            (f"why/index.html?{TEXT}", f"why/index.html?{TEXT}"), (f"index.html?{TEXT}", f"index.html?{TEXT}"),
        ):  # fmt: skip
            tab.goto(f"{address}/{path}")
            assert tab.url == f"{address}/{url}"
            expect(tab.get_by_role("heading", level=1)).to_be_visible()
        expect(tab.get_by_text(COMPUTED)).to_be_visible()
    finally:
        tab.context.close()


def wait_for_caches(tab: Page, names: set[str]) -> dict[str, list[str]]:
    """Wait until the tab has caches of these names; return what they contain."""
    for _ in range(300):
        caches: dict[str, list[str]] = tab.evaluate(CACHES)
        if caches.keys() == names:
            break
        tab.wait_for_timeout(100)
    return caches


def test_a_changed_site_replaces_what_was_stored(browser: Browser, folder: Path) -> None:
    """The next visit downloads the changed files. When it is closed they replace the former ones; the model remains."""
    site = folder / "headlight"
    version = json.loads((site / "site.json").read_text("utf-8"))["version"]
    with serve_site(folder) as server:
        tab, scope = visit(browser, server), f"{server.address}/headlight/"
        before = tab.evaluate(CACHES)
        (model,) = before.keys() - {f"site {scope} {version}"}
        worker = site / "offline.js"
        worker.write_text(worker.read_text("utf-8").replace(version, "changed"), encoding="utf-8")
        (site / "icon.svg").write_text(CHANGED, encoding="utf-8")
        tab.reload()
        for _ in range(300):
            if tab.evaluate(IS_WAITING):
                break
            tab.wait_for_timeout(100)
        assert tab.evaluate(CACHES).keys() == {f"site {scope} {version}", f"site {scope} changed", model}
        former, tab = tab, tab.context.new_page()
        former.close()
        tab.wait_for_timeout(2000)  # in which the waiting worker starts
        tab.goto(scope)
        after = wait_for_caches(tab, {f"site {scope} changed", model})
        assert after.keys() == {f"site {scope} changed", model}
        assert after[model] == before[model]
        assert tab.evaluate(READ, [f"site {scope} changed", f"{scope}icon.svg"]) == CHANGED
        tab.context.close()

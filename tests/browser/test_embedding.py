"""A view in a frame of another site's page: its picture and reading alone, where the server allows it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Serve, free_port
from tests.browser.reader import opened, settled

VIEW = {"text": "The cat sat on the mat.", "masked": "1"}
FRAME = '<!doctype html><title>A course</title><iframe src="{address}" width="900" height="700"></iframe>'
AROUND = (
    "[data-testid=stSidebar], [data-testid=stHeader], .st-key-screen_text, .st-key-screen_controls, .st-key-lecture"
)


@contextmanager
def course(port: int, address: str) -> Iterator[str]:
    """Another site, with a page that shows an address in a frame; its own address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = FRAME.format(address=address.replace("&", "&amp;")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_named_site_shows_the_view_in_its_frame(serve: Serve, page: Page, tiny_model_folder: Path) -> None:
    """Text, picture and reading, which answer clicks without a cookie, and a link to the whole in a new window."""
    port = free_port()
    models = json.dumps([str(tiny_model_folder)])
    env = {"HEADLIGHT_EMBED_IN": f"http://127.0.0.1:{port}", "HEADLIGHT_MODELS": models}
    app = serve(ROOT / "streamlit_app.py", env)
    query = urlencode(VIEW | {"model": str(tiny_model_folder)})
    with course(port, f"{app}/attention?embed=1&{query}") as address:
        page.goto(address)
        inside = page.frame_locator("iframe")
        expect(inside.locator(".view .note")).to_contain_text("edges")
        expect(inside.locator(".st-key-screen_reading")).to_contain_text("How to read this")
        assert not [one["name"] for one in page.context.cookies() if "xsrf" in one["name"]]
        for one in inside.locator(AROUND).all():
            expect(one).to_be_hidden()
        inside.locator(".strip button").filter(has_text="sat").first.click()
        expect(inside.locator(".strip button.masked, .strip .masked")).to_have_count(2)
        expect(inside.get_by_role("link", name="Open in Headlight")).to_have_attribute(
            "href", re.compile("masked=1%2C2")
        )
        with page.context.expect_page() as whole:
            inside.get_by_role("link", name="Open in Headlight").click()
        expect(whole.value.get_by_label("Sentence", exact=True)).to_have_value(VIEW["text"])
        expect(whole.value.locator(".strip button.masked, .strip .masked")).to_have_count(2)
        assert "/attention?" in whole.value.url and "embed" not in whole.value.url


def test_no_other_site_shows_it(app: str, page: Page) -> None:
    """A page of a site that was not named has an empty frame, and the browser says why."""
    with course(free_port(), f"{app}/?{urlencode(VIEW)}&embed=1") as address:
        page.goto(address)
        page.wait_for_timeout(1000)
        assert any("frame-ancestors 'self'" in problem for problem in page.problems), page.problems
        assert page.frames[1].locator("[data-testid=stApp]").count() == 0
    page.problems.clear()


@pytest.mark.parametrize("embed", ["1", "true"])
@pytest.mark.parametrize("path", ["", "why", "images", "profiles"])
def test_the_frame_stays_away_after_a_reload(app: str, page: Page, path: str, embed: str) -> None:
    """By Streamlit's own word and by ours; in a small window the link is seen, and nothing reaches out of it."""
    page.set_viewport_size({"width": 480, "height": 360})
    opened_at = f"{app}/{path}?{urlencode(VIEW)}&embed={embed}"
    page.goto(opened_at)
    for _ in range(2):
        expect(page.locator(".st-key-screen_reading p").first).to_be_visible()
        settled(page)
        for one in page.locator(AROUND).all():
            expect(one).to_be_hidden()
        expect(page.get_by_role("link", name="Open in Headlight")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.reload()
    opened(page, app, path, **VIEW)
    expect(page.get_by_role("link", name="Open in Headlight")).to_have_count(0)

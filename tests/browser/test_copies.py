"""Several copies behind one load balancer: a proxy keeps a visitor with a copy, and others notice no loss of one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import ROOT, Serve, free_port, opened_tab
from tests.browser.reader import settled

LEAVING = """
from streamlit.starlette import App
from viz_app import access, server
app = App({script!r}, middleware=access.build_middleware(), lifespan=server.lifespan)
"""


TEACHERS_CODE = "abcd-efgh-jkmn"
WATCH = """() => {
  const name = "data-test-connection-state";
  let lost = false;
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      if (target.getAttribute(name) !== "CONNECTED") lost = true;
      else if (lost) window.backAgain = true;
    }
  }).observe(document.body, { attributes: true, attributeFilter: [name], subtree: true });
}"""


@dataclass
class Copy:
    """A running server, and the port on which it answers."""

    process: subprocess.Popen[bytes]
    port: int

    def processor_ticks(self) -> int:
        """The processor time that it has used, in the system's ticks."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


def got(url: str, **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    asked = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_for(address: str, status: int = 200) -> None:
    for _ in range(900):
        try:
            if got(address)[0] == status:
                return
        except OSError:
            pass
        time.sleep(0.1)
    pytest.fail(f"{address} did not answer with {status} in 90 s")


def started(*options: str, port: int, models: str = "[]") -> subprocess.Popen[bytes]:
    """A server, as `headlight app` starts it."""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HEADLIGHT_MODELS": models, "HEADLIGHT_CLASS": TEACHERS_CODE,
    }  # fmt: skip
    command = [sys.executable, "-m", "viz_app.cli", "app", "--port", str(port), *options]
    return subprocess.Popen(command, env=environment)


@pytest.fixture(scope="module")
def copies(tiny_model_folder: Path) -> Iterator[list[Copy]]:
    """Three, as `headlight app --shared` starts them."""
    running = []
    for _ in range(3):
        port = free_port()
        process = started("--shared", port=port, models=json.dumps([str(tiny_model_folder)]))
        running.append(Copy(process, port))
    for copy in running:
        wait_for(f"http://localhost:{copy.port}/_stcore/health")
    yield running
    for copy in running:
        copy.process.kill()
        copy.process.wait()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`proxy(*ports)` runs HAProxy, as deploy/haproxy.cfg sets it, before servers of this machine.

    asks=False: without asking them whether they are well.
    """
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if haproxy is None:
        pytest.fail("haproxy is not on the PATH: install it by hand, or run `make browser` as root on Debian")
    running = []

    def start(*ports: int, asks: bool = True) -> str:
        port = free_port()
        shipped = (ROOT / "deploy" / "haproxy.cfg").read_text(encoding="utf-8")
        template = re.search(r"^    server-template .*$", shipped, re.MULTILINE)
        assert template is not None
        servers = "\n".join(f"    server copy{number} 127.0.0.1:{each}" for number, each in enumerate(ports))
        if not asks:
            shipped = re.sub(r"^    (option httpchk|http-check|default-server) .*$", "", shipped, flags=re.MULTILINE)
        config = tmp_path_factory.mktemp("proxy") / "haproxy.cfg"
        config.write_text(shipped.replace(template[0], servers).replace("bind :8080", f"bind 127.0.0.1:{port}"))
        running.append(subprocess.Popen([haproxy, "-db", "-f", str(config)], stdout=subprocess.DEVNULL))
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        return f"http://localhost:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait()


def typed(page: Page, text: str) -> None:
    """Type a sentence with a gap, and wait for the words that belong in it."""
    page.get_by_label("Sentence", exact=True).fill(text)
    page.get_by_label("Sentence", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Predictions")).to_be_visible()
    expect(page.locator(".strip")).to_contain_text(re.findall(r"[a-z]+", text)[-1])
    settled(page)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()


@contextmanager
def another_server(page: Page) -> Iterator[None]:
    """Do what takes a page's server away, and wait until it has one again and has run there."""
    page.evaluate(WATCH)
    yield
    page.wait_for_function("window.backAgain")
    page.wait_for_timeout(500)  # it asks for its run in the next moment
    settled(page)


def test_a_copy_dies_and_its_visitors_go_on_elsewhere(copies: list[Copy], proxy: Serve, browser: Browser) -> None:
    """Killed at once: who was there is back at another copy, with the text; who was elsewhere notices nothing."""
    address = proxy(*(copy.port for copy in copies))
    wait_for(f"{address}/_stcore/health")
    visitors: dict[str, Page] = {}
    for _ in range(6):  # until two copies have a visitor
        page = opened_tab(browser)
        page.goto(f"{address}/?text=The+cat+%5BMASK%5D+on+the+mat.")
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        (cookie,) = (one["value"] for one in page.context.cookies() if one["name"] == "HEADLIGHT")
        if cookie in visitors:
            page.context.close()
        visitors.setdefault(cookie, page)
        if len(visitors) == 2:
            break
    (first, gone), (second, stays) = visitors.items()
    assert first != second
    typed(stays, "The dog [MASK] in the city.")
    before = [copy.processor_ticks() for copy in copies]
    for text in ("The old [MASK] sat by the river.", "The man [MASK] the city.", "The queen [MASK] the house."):
        typed(gone, text)  # so that its copy works most
    sockets: list[str] = []
    stays.on("websocket", lambda socket: sockets.append(socket.url))
    ticks = [copy.processor_ticks() - start for copy, start in zip(copies, before, strict=True)]
    newest = copies[ticks.index(max(ticks))]
    with another_server(gone):
        newest.process.send_signal(signal.SIGKILL)
        newest.process.wait()
    expect(gone.get_by_label("Sentence", exact=True)).to_have_value("The queen [MASK] the house.")
    typed(gone, "Two people [MASK] the river.")
    assert {one["value"] for one in gone.context.cookies() if one["name"] == "HEADLIGHT"} != {first}
    typed(stays, "A child [MASK] the door.")
    assert sockets == [], "the other visitor's page was never cut off"
    for page in visitors.values():
        expect(page.get_by_test_id("stException")).to_have_count(0)
        page.context.close()


def test_a_server_of_ones_own_answers_no_real_proxy(app: str, proxy: Serve) -> None:
    """Behind HAProxy it says that it is not for others, whatever Host and Origin claim; alone it answers."""
    port = int(app.rpartition(":")[2])
    address = proxy(port, asks=False)
    for headers in ({}, {"Host": "localhost"}, {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}):
        for path in ("", "_stcore/host-config", "_stcore/upload_file/a/b", "media/x.png", "component/x/y.js"):
            status, said = got(f"{address}/{path}", **headers)
            assert status == 403 and "headlight app --shared" in said, (path, headers, said)
    assert got(f"{app}/")[0] == 200
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert got(f"{app}/", **headers)[0] == 403


def test_a_server_that_is_to_stop_finishes_what_runs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    """Told to stop, it says 503 to whoever comes, gives the page that waits its result, and ends by itself."""
    gate, script = tmp_path / "done", tmp_path / "leaving.py"
    script.write_text(LEAVING.format(script=str(Path(__file__).with_name("slow_work.py"))), encoding="utf-8")
    port = free_port()
    flags = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
    flags += ["--server.address", "localhost"]
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", *flags, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GATE": str(gate)}, cwd=ROOT, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://localhost:{port}"
    try:
        wait_for(f"{address}/_stcore/health")
        page = opened_tab(browser)
        page.goto(address)
        page.get_by_role("button", name="Do it, about 60 s").click()
        expect(page.get_by_text("Slow work: running")).to_be_visible()
        server.send_signal(signal.SIGTERM)
        wait_for(f"{address}/_stcore/health", status=503)
        assert server.poll() is None
        gate.touch()
        expect(page.get_by_text("Beside it: ready, it is done")).to_be_visible()
        server.wait(timeout=90)
        page.context.close()
    finally:
        server.kill()
        server.wait()


def test_a_server_that_was_started_again_finds_the_page_as_it_was(browser: Browser) -> None:
    """Killed under an open page: text, hidden word and heads that are off stay, and what is typed next is answered.

    Also a text that is too long for the address, which only the page itself still has.
    """
    port = free_port()
    server = started(port=port)
    try:
        wait_for(f"http://localhost:{port}/_stcore/health")
        page = opened_tab(browser)
        page.goto(f"http://localhost:{port}/?text=The+cat+sat.&off=1.2")
        page.get_by_role("button", name=re.compile(r"\bcat\b")).first.click()
        settled(page)
        for text in ("The queen opened the door.", "many words " * 300):
            page.get_by_label("Sentence", exact=True).fill(text)
            page.get_by_label("Sentence", exact=True).press("Enter")
            expect(page.locator(".strip")).to_contain_text(
                re.findall(r"[a-z]+", text)[-1]
            )  # drawn late where it is busy
            settled(page)
            if "queen" in text:
                page.get_by_role("button", name=re.compile(r"\bqueen\b")).first.click()
                settled(page)
            strip = page.locator(".strip").inner_text()
            with another_server(page):
                server.kill()
                server.wait()
                server = started(port=port)
            expect(page.get_by_label("Sentence", exact=True)).to_have_value(text)
            expect(page.get_by_text("1 head is off: L1 H2").first).to_be_visible()
            assert page.locator(".strip").inner_text() == strip
        typed(page, "Two people [MASK] the river.")
        page.context.close()
    finally:
        server.kill()
        server.wait()

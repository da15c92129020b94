"""A running app and a real browser, for the tests that need them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect, sync_playwright

from tests.conftest import APP_SERVER, built_once

ROOT = Path(__file__).parents[2]
# The switches keep Chromium itself from asking anyone for anything.
SWITCHES = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WINDOW = {"width": 1400, "height": 1000}
# Sockets to anywhere but this machine raise, and leave a line in a file.
BLOCK = """
import os, socket
_connect, _connect_ex, _sendto = socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto
def _check(address):
    host = address[0] if isinstance(address, tuple) else None
    if host is not None and host not in ("127.0.0.1", "::1", "localhost", "0.0.0.0", ""):
        with open(os.environ["SOCKET_LOG"], "a") as log:
            log.write(f"{address}\\n")
        raise OSError("no network here")
def connect(self, address):
    _check(address); return _connect(self, address)
def connect_ex(self, address):
    _check(address); return _connect_ex(self, address)
def sendto(self, data, *rest):
    _check(rest[-1]); return _sendto(self, data, *rest)
socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto = connect, connect_ex, sendto
"""

RUN = "document.querySelector('[data-testid=stApp]')?.dataset.testScriptState"  # how the run of the script stands
# A busy machine is slow, not wrong.
PATIENCE = 90_000  # milliseconds
expect.set_options(timeout=PATIENCE)

Serve = Callable[..., str]
LOGS: dict[str, Path] = {}  # what each server has said, by its address


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in a browser takes seconds: `make test` runs those marked `smoke`, `make test-all` the others."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("smoke"):
            item.add_marker(pytest.mark.slow)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def start_server(
    script: Path | str, log: Path, env: Mapping[str, str] | None = None, args: Sequence[str] = ()
) -> tuple[subprocess.Popen[bytes], int]:
    """Run a Streamlit script, whose output goes to a file; its process and its port, once it answers."""
    port = free_port()
    flags = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", *flags, str(script), *args],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    LOGS[f"http://localhost:{port}"] = log
    for _ in range(600):
        if server.poll() is not None:
            pytest.fail(f"the server of {script} stopped:\n{log.read_text()}")
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5):
                return server, port
        except OSError:
            time.sleep(0.1)
    server.kill()
    pytest.fail(f"the server of {script} did not answer in a minute:\n{log.read_text()}")


@contextmanager
def servers(folders: pytest.TempPathFactory) -> Iterator[Serve]:
    """A function that runs a Streamlit script and returns its address; at the end all it started are ended."""
    started = []

    def serve(script: Path | str, env: Mapping[str, str] | None = None, args: Sequence[str] = ()) -> str:
        server, port = start_server(script, folders.mktemp("server") / "log.txt", env, args)
        started.append(server)
        return f"http://localhost:{port}"

    yield serve
    for server in started:
        server.terminate()
    for server in started:
        server.wait(timeout=30)


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve(script, env=None, args=())` runs a Streamlit script until the module ends, and returns its address.

    env is added to the environment; args follow the script on the command line (after "--", they are the script's own).
    """
    with servers(tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="session")
def attempts() -> Path:
    """A file with a line for each address outside this machine that the app tried to reach."""

    def build(folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
        (folder / "attempts.txt").touch()

    return built_once("blocked", build) / "attempts.txt"


@pytest.fixture(scope="session")
def app(attempts: Path, tiny_model_folder: Path, tiny_classifier_folder: Path) -> str:
    """The address of the app, with a tiny model and a tiny classifier beside its own and no network.

    One server serves all processes of a run: the first that needs it starts it, and `pytest_unconfigure` stops it.
    """
    folder = attempts.parents[1]
    record, log = folder / APP_SERVER, folder / "app.log"
    with FileLock(folder / "app.lock"):
        if not record.is_file():
            env = {
                "PYTHONPATH": f"{attempts.parent}:{ROOT}",
                "SOCKET_LOG": str(attempts),
                "HEADLIGHT_MODELS": json.dumps([str(tiny_model_folder), str(tiny_classifier_folder)]),
            }
            server, port = start_server(ROOT / "streamlit_app.py", log, env)
            record.write_text(json.dumps({"port": port, "pid": server.pid}), encoding="utf-8")
            server.returncode = 0  # it outlives this object, which else warns that nobody waited for it
        port = json.loads(record.read_text(encoding="utf-8"))["port"]
    LOGS[f"http://localhost:{port}"] = log
    return f"http://localhost:{port}"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("chromium is not on the PATH: install it by hand, or run `make browser` as root on Debian")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(SWITCHES))
        yield started
        started.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Where a test fails, also say what its page showed: a busy machine may show it once and never again."""
    report = yield
    tab = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and tab is not None:
        with suppress(Error):
            shown, state = tab.inner_text("body"), tab.evaluate(RUN)
            log = LOGS.get("/".join(tab.url.split("/")[:3]))
            said = log.read_text(errors="replace") if log is not None else ""
            report.sections += [
                ("page", f"{tab.url}\nrun: {state}\n{shown[:4_000]}"), ("errors of the page", "\n".join(tab.problems)),
                ("server", said[-4_000:]),
            ]  # fmt: skip
    return report


def is_problem(message: ConsoleMessage) -> bool:
    """Whether a line of the console is an error. Below the root, Streamlit first asks for its server there: 404."""
    return message.type == "error" and "/_stcore/" not in message.location["url"]


def opened_tab(browser: Browser) -> Page:
    """A tab of its own browser window, that lists every address asked for and every error it reported."""
    tab = browser.new_context(viewport=WINDOW, color_scheme="light", reduced_motion="reduce").new_page()
    tab.context.set_default_timeout(PATIENCE)
    tab.requested, tab.problems = [], []
    tab.on("request", lambda request: tab.requested.append(request.url))
    tab.on("websocket", lambda socket: tab.requested.append(socket.url))
    tab.on("console", lambda message: tab.problems.append(message.text) if is_problem(message) else None)
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    return tab


def empty(tab: Page) -> None:
    """Leave nothing of a test in its tab, but for the scripts that the browser has loaded and compiled."""
    for other in tab.context.pages:
        if other is not tab:
            other.close()
    tab.unroute_all()
    tab.context.set_offline(False)
    tab.mouse.move(0, 0)
    origins = {"/".join(url.split("/")[:3]) for url in tab.requested if url.startswith("http")}
    if tab.url.startswith("http"):
        tab.evaluate("sessionStorage.clear()")
    tab.goto("about:blank")
    devtools = tab.context.new_cdp_session(tab)
    for origin in origins:
        devtools.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "cookies,local_storage"})
    devtools.send("Page.resetNavigationHistory")
    devtools.detach()
    tab.context.clear_cookies()
    tab.set_viewport_size(WINDOW)
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.requested, tab.problems = [], []


@pytest.fixture(scope="session")
def _tabs() -> list[Page]:
    """The tab that the last test left, if it can be used again: there, a page opens in half the time."""
    return []


@pytest.fixture
def page(browser: Browser, _tabs: list[Page]) -> Iterator[Page]:
    """An empty tab; `page.requested` lists every address asked for, `page.problems` every error it reported."""
    tab = _tabs.pop() if _tabs else opened_tab(browser)
    yield tab
    try:
        empty(tab)
        _tabs.append(tab)
    except Error:  # it crashed, or the test closed it
        tab.context.close()

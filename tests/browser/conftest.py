"""A running app and a real browser, for the tests that need them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
# The switches keep Chromium itself from asking anyone for anything.
SWITCHES = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)

# A busy machine is slow, not wrong.
PATIENCE = 90_000  # milliseconds
expect.set_options(timeout=PATIENCE)

Serve = Callable[..., str]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve(script, env=None, args=())` runs a Streamlit script until the module ends, and returns its address.

    env is added to the environment; args follow the script on the command line (after "--", they are the script's own).
    """
    servers = []

    def start(script: Path | str, env: Mapping[str, str] | None = None, args: Sequence[str] = ()) -> str:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = probe.getsockname()[1]
        log = tmp_path_factory.mktemp("server") / "log.txt"
        flags = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
        with log.open("w") as out:
            server = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", *flags, str(script), *args],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        servers.append(server)
        address = f"http://localhost:{port}"
        for _ in range(600):
            if server.poll() is not None:
                pytest.fail(f"the server of {script} stopped:\n{log.read_text()}")
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                    return address
            except OSError:
                time.sleep(0.1)
        pytest.fail(f"the server of {script} did not answer in a minute:\n{log.read_text()}")

    yield start
    for server in servers:
        server.terminate()
    for server in servers:
        server.wait(timeout=30)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("there is no chromium on the path: `make test` installs it where it may, else install it by hand")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(SWITCHES))
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty tab; `page.requested` lists every address asked for, `page.problems` every error it reported."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    tab.requested, tab.problems = [], []
    tab.on("request", lambda request: tab.requested.append(request.url))
    tab.on("websocket", lambda socket: tab.requested.append(socket.url))
    tab.on("console", lambda message: tab.problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    yield tab
    context.close()

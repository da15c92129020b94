"""Each documented way to start the app serves the page Home: make, the command, Streamlit, and the wheel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, free_port
from tests.test_wheel import installed as installed
from tests.test_wheel import sources as sources
from tests.test_wheel import wheel as wheel

Command = Callable[[int], Sequence[object]]
SCRIPTS = Path(sysconfig.get_path("scripts"))


def check_start(page: Page, command: Sequence[object], port: int, folder: Path, log: Path, path: str = "") -> None:
    """Run a command, open the page Home in a browser, and end the command with Ctrl-C."""
    environment = {**os.environ, "BROWSER": "true", "PYTHONPATH": path}
    with log.open("w") as output:
        server = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
        page.goto(f"http://localhost:{port}/")
        expect(page.get_by_role("link", name="Attention").first).to_be_visible()
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        assert page.problems == []
    finally:
        os.killpg(server.pid, signal.SIGINT)
        try:
            server.wait(timeout=30)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)


WAYS: dict[str, Command] = {
    "make app": lambda port: ["make", "app", f"ARGS=--port {port}"],
    "headlight app": lambda port: [SCRIPTS / "headlight", "app", "--port", port],
    "streamlit run": lambda port: [
        sys.executable, "-m", "streamlit", "run", "streamlit_app.py", "--server.port", port,
        "--server.headless", "true",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_a_checkout_starts(page: Page, tmp_path: Path, name: str) -> None:
    """From a checkout the app starts by each of these commands, and its navigation is drawn."""
    port = free_port()
    check_start(page, WAYS[name](port), port, ROOT, tmp_path / "log.txt", str(ROOT))


def test_the_wheel_starts(page: Page, tmp_path: Path, installed: Path) -> None:
    """The installed command starts the app from a folder without a checkout."""
    port, folder = free_port(), tmp_path / "elsewhere"
    folder.mkdir()
    assert shutil.which("headlight", path=str(installed / "bin"))
    command = [installed / "bin" / "headlight", "app", "--port", port]
    check_start(page, command, port, folder, tmp_path / "log.txt", str(installed))

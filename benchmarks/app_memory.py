"""What the app holds in memory after nine pages of a long text: glibc's memory as `headlight` sets it, and by default.

python benchmarks/app_memory.py
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

TEXT = "She opened the door and walked in, and the old man looked up from his book. " * 22
PAGES = ("", "attention", "heads")
CHOICES = ({"masked": "3"}, {"masked": "5", "show": "product"}, {"masked": "7", "show": "product", "off": "1.1"})
# glibc's own defaults, so that the command leaves them as they are.
DEFAULT = {"MALLOC_MMAP_MAX_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_TOP_PAD_": "131072"}


def memory_after_use(environment: dict[str, str]) -> tuple[int, int]:
    """Resident memory of the server after nine pages, and its peak, in MiB."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "viz_app.cli", "app", "--port", str(port)],
        env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    base = f"http://localhost:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{base}/_stcore/health", timeout=2).close()
            break
        except OSError:
            time.sleep(0.2)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        for path in PAGES:
            for choice in CHOICES:
                page.goto(f"{base}/{path}?{urlencode({'text': TEXT, **choice})}")
                page.wait_for_selector("[data-testid=stPlotlyChart]", timeout=90_000)
        browser.close()
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    kib = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    server.terminate()
    server.wait()
    return int(kib["VmRSS"]) // 1024, int(kib["VmHWM"]) // 1024


if __name__ == "__main__":
    for name, environment in (("as headlight sets it", {}), ("glibc's default", DEFAULT)):
        held, peak = memory_after_use(environment)
        print(f"{name}: {held:,} MiB resident, {peak:,} MiB at the peak")

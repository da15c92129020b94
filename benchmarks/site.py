"""The browser edition: sizes, times and memory in Chromium, and the same runs in Python on the same machine.

    python benchmarks/site.py            print the tables
    python benchmarks/site.py --write    and put them between the markers of benchmarks/README.md
    python benchmarks/site.py --quick    the smallest size, to check that it works

The site is that of `headlight site` with the bundled model. A server in this process limits the rate of all its answers
together. Times are medians; memory is that of the process of the tab, the peak as Linux counts
it. The probabilities in the browser and in Python must agree before a clock starts.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright
from tables import QUICK, parse_arguments, write_table

import bert_core
from bert_core import Encoding, LoadedModel, Target
from viz_app.site.build import BuiltSite, build_site

LENGTHS = (12,) if QUICK else (12, 32, 64, 128)
REPEATS = 2 if QUICK else 15
VISITS = 1 if QUICK else 5
MBITS = (50,) if QUICK else (20, 50)
CPU_SLOWDOWN = 4
SECONDS_IDLE = 1 if QUICK else 8  # before the memory is read, in which the browser frees what it no longer needs
MASK, WORD = 4, 2341
OWN_SENTENCE = "Nobody was waiting there."

START = """async () => {
  const { Engine } = await import("/engine/engine.js");
  globalThis.engine = new Engine();
  await globalThis.engine.load({ folder: "/model/", runtime: "/runtime/" });
}"""
RUN = """async ([inputIds, position, token, gradients, repeats]) => {
  const target = { terms: [{ position, token, weight: 1 }] };
  const times = [];
  let result;
  for (let run = 0; run < repeats; run++) {
    const start = performance.now();
    result = await globalThis.engine.run({ inputIds, positions: [position], target, gradients });
    times.push(performance.now() - start);
  }
  return { times, value: result.targetValue.data[0] };
}"""


FIGURE = ".figure[aria-busy=false] .bars"
# When the figure was in the document, in ms since the navigation; and the bytes of the responses that ended before.
OBSERVE = f"""new MutationObserver(() => {{
  if (globalThis.figureTime === undefined && document.querySelector({FIGURE!r})) {{
    requestAnimationFrame(() => setTimeout(() => {{ globalThis.figureTime ??= performance.now(); }}));
  }}
}}).observe(document, {{ subtree: true, childList: true, attributes: true }});"""
RECEIVED = """() => {
  const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const earlier = entries.filter(({ responseEnd }) => responseEnd <= globalThis.figureTime);
  return [globalThis.figureTime, earlier.reduce((sum, { transferSize }) => sum + transferSize, 0)];
}"""


class Server(ThreadingHTTPServer):
    """A server of the files of a folder.

    mbit: the rate of all answers together, in Mbit/s; None for no limit.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.mbit: float | None = None
        self.lock = threading.Lock()
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(SimpleHTTPRequestHandler):
    server: Server

    def copyfile(self, source: Any, outputfile: Any) -> None:
        with suppress(ConnectionError):  # of a closed page
            while part := source.read(16384):
                with self.server.lock:  # one answer at a time, as on one line
                    outputfile.write(part)
                    if self.server.mbit is not None:
                        time.sleep(len(part) / (self.server.mbit * 1e6 / 8))

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder in a thread."""
    server = Server(folder)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Memory:
    """The memory of the process of a tab, in MB, sampled while this is entered."""

    def __init__(self, browser: Browser) -> None:
        session = browser.new_browser_cdp_session()
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        renderers = [process["id"] for process in processes if process["type"] == "renderer"]
        self.process = max(renderers, key=lambda process: _status(process)["VmRSS"])
        self.peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    @property
    def now(self) -> float:
        """The memory of the process now."""
        return _status(self.process)["VmRSS"]

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.is_set():
            self.peak = max(self.peak, self.now)
            time.sleep(0.02)


def _status(process: int) -> dict[str, float]:
    """The memory figures of a process, in MB."""
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return {name: int(value) / 1000 for name, value in re.findall(r"^(Vm\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def example(length: int) -> Encoding:
    """A text of a length, with a mask."""
    ids = (101, *(2000 + number for number in range(1, length - 1)), 102)
    ids = (*ids[:MASK], 103, *ids[MASK + 1 :])
    tokens = tuple(map(str, ids))
    words = (None, *range(length - 2), None)
    sides = (None, *("A",) * (length - 2), None)
    return Encoding("", None, tokens, ids, (0,) * length, ((0, 0),) * length, words, sides, length)


def launch(playwright: Playwright) -> Browser:
    """Start Chromium."""
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])


def run_times(page: Page, length: int, gradients: bool) -> float:
    """The median of the milliseconds of a run in the browser."""
    arguments = [list(example(length).input_ids), MASK, WORD, gradients, REPEATS]
    page.evaluate(RUN, arguments)  # the first runs compile
    return statistics.median(page.evaluate(RUN, arguments)["times"])


def python_times(length: int, loaded: LoadedModel, session: onnxruntime.InferenceSession) -> tuple[float, float]:
    """The medians of the milliseconds of `capture`, and of a run in native onnxruntime, both with gradients."""
    encoding, target = example(length), Target("mlm", MASK, WORD)
    ids = np.array(encoding.input_ids)
    feeds = {
        "input_ids": ids, "baseline_ids": ids, "token_type_ids": 0 * ids, "positions": np.array([MASK]),
        "target_rows": np.array([0]), "target_tokens": np.array([WORD]), "target_weights": np.ones(1, np.float32),
        "attention_mask": np.ones(length, np.float32), "interpolation": np.array(1, np.float32),
        "head_mask": np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32),
        "next_sentence_weights": np.zeros(2, np.float32), "compute_gradients": np.array(True),
    }  # fmt: skip
    medians = []
    for run in (partial(bert_core.capture, loaded, encoding, target=target), partial(session.run, None, feeds)):
        times = []
        for _ in range(2 * REPEATS):
            start = time.perf_counter()
            run()
            times.append(1000 * (time.perf_counter() - start))
        medians.append(statistics.median(times[REPEATS:]))
    return medians[0], medians[1]


def engine_tables(playwright: Playwright, server: Server, exported: Path) -> str:
    """The tables of runs and of memory."""
    loaded = bert_core.load("headlight-mini", device="cpu")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(exported / "model.onnx", options)
    torch.set_num_threads(1)
    browser = launch(playwright)
    page = browser.new_page()
    page.goto(f"{server.address}/icon.svg")
    memory = Memory(browser)
    empty = memory.now
    with memory:
        start = time.perf_counter()
        page.evaluate(START)
        started = time.perf_counter() - start
        loading_peak = memory.peak
        page.wait_for_timeout(1000 * SECONDS_IDLE)
        after_loading = memory.now
        run = bert_core.capture(loaded, example(12), target=Target("mlm", MASK, WORD))
        value = page.evaluate(RUN, [list(example(12).input_ids), MASK, WORD, True, 1])["value"]
        if run.target_value is None or abs(value - run.target_value) > 1e-4:
            raise SystemExit(f"the browser has the value {value}, and Python {run.target_value}")
        rows = []
        for length in LENGTHS:
            forward, both = run_times(page, length, False), run_times(page, length, True)
            captured, native = python_times(length, loaded, session)
            rows.append(
                f"| {length} | {forward:.0f} | {both:.0f} | {captured:.0f} | {native:.0f} | {both / captured:.2f} |"
            )
    browser.close()
    runs = (
        "| tokens | browser, forward, ms | browser, with gradients, ms | `capture`, ms | onnxruntime, ms "
        "| browser / `capture` |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: |\n" + "\n".join(rows) + "\n"
    )
    memories = (
        "| memory of the tab | MB |\n| --- | ---: |\n"
        f"| before the model is loaded | {empty:.0f} |\n| peak while it is loaded | {loading_peak:.0f} |\n"
        f"| {SECONDS_IDLE} s after loading | {after_loading:.0f} |\n"
        f"| peak with all runs of the table above | {memory.peak:.0f} |\n"
    )
    return f"{runs}\nThe model started {started:.1f} s after the request, from this machine.\n\n{memories}"


def size_table(built: BuiltSite, site: Path) -> str:
    """The table of sizes."""

    def total(pattern: str) -> int:
        return sum(path.stat().st_size for path in site.glob(pattern))

    rows = {
        "all files": built.total_bytes,
        "a first visit with the model": built.visit_bytes,
        "before the first figure": built.first_bytes,
        "weights": total("model/weights-*"),
        "graph": total("model/model.onnx"),
        "runtime": total("runtime/*"),
        "stored runs": total("stored/*"),
    }
    lines = [f"| {name} | {size / 1e6:.2f} |" for name, size in rows.items()]
    return "| files | MB |\n| --- | ---: |\n" + "\n".join(lines) + f"\n| number of files | {built.files} |\n"


def first_figure(context: BrowserContext, server: Server, slowdown: float) -> tuple[float, int]:
    """The seconds from the start of the navigation until the figure of Home is drawn, and the bytes received before."""
    page = context.new_page()
    page.add_init_script(OBSERVE)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    page.goto(f"{server.address}/", wait_until="commit")
    page.locator(FIGURE).first.wait_for(state="visible", timeout=60_000)
    milliseconds, received = page.evaluate(RECEIVED)
    page.close()
    return milliseconds / 1000, received


def own_sentence(context: BrowserContext, server: Server) -> float:
    """The seconds from opening the site until the prediction for an own sentence is visible."""
    page = context.new_page()
    start = time.perf_counter()
    page.goto(f"{server.address}/", wait_until="commit")
    field = page.locator("form.texts input[type=text], form.texts textarea").first
    field.wait_for(state="visible", timeout=60_000)
    field.fill(OWN_SENTENCE)
    field.press("Enter")
    expect(page.locator(".notices")).to_contain_text("waiting", timeout=120_000)
    page.locator(FIGURE).first.wait_for(state="visible", timeout=120_000)
    return time.perf_counter() - start


def visit_table(playwright: Playwright, server: Server) -> str:
    """The table of the times of visits over a line."""
    browser, rows = launch(playwright), []
    for mbit in MBITS:
        server.mbit = mbit
        figures, sentences = [], []
        for _ in range(VISITS):
            context = browser.new_context(viewport={"width": 1440, "height": 900}, service_workers="block")
            figures.append(first_figure(context, server, CPU_SLOWDOWN))
            context.close()
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            sentences.append(own_sentence(context, server))
            context.close()
        seconds = [figure[0] for figure in figures]
        sent = max(figure[1] for figure in figures)
        rows += [
            f"| first figure, {mbit} Mbit/s, CPU {CPU_SLOWDOWN} times slower | {statistics.median(seconds):.2f} s "
            f"| {max(seconds):.2f} s | {sent / 1000:.0f} kB before |",
            f"| own sentence, {mbit} Mbit/s | {statistics.median(sentences):.1f} s | {max(sentences):.1f} s | |",
        ]
    server.mbit = None
    browser.close()
    return "| visit | median | longest | |\n| --- | ---: | ---: | --- |\n" + "\n".join(rows) + "\n"


def second_visit_row(playwright: Playwright, folder: Path) -> str:
    """The time of a second visit without a network, until an own sentence is answered."""
    browser, seconds = launch(playwright), []
    for _ in range(VISITS):
        with ExitStack() as stack:
            server = stack.enter_context(serving(folder))
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            own_sentence(context, server)
            page = context.pages[-1]
            page.evaluate("navigator.serviceWorker.ready.then(() => undefined)")
            page.close()
            stack.close()  # the server is gone
            seconds.append(own_sentence(context, server))
            context.close()
    browser.close()
    times = f"{statistics.median(seconds):.1f} s | {max(seconds):.1f} s"
    return f"| second visit without a network, own sentence | {times} | |\n"


def measure() -> str:
    """Measure all, and return the tables."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        exported, site = Path(temporary) / "exported", Path(temporary) / "site"
        loaded = bert_core.load("headlight-mini", device="cpu")
        bert_core.export_onnx(loaded, exported, gradients=True)
        sizes = size_table(build_site(loaded, site, exported=exported), site)
        with serving(site) as server:
            engine = engine_tables(playwright, server, exported)
            visits = visit_table(playwright, server)
        visits += second_visit_row(playwright, site)
    header = (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Chromium, one thread; torch {torch.__version__}, onnxruntime "
        f"{onnxruntime.__version__}; medians of {REPEATS} runs and {VISITS} visits; load {os.getloadavg()[1]:.1f}; "
        f"{time.strftime('%Y-%m-%d')}."
    )
    return f"{header}\n\n{sizes}\n{engine}\n{visits}"


def main() -> None:
    """Print the tables, and write them with --write."""
    arguments = parse_arguments(argparse.ArgumentParser(description="The browser edition in Chromium."))
    text = measure()
    print(text)
    if arguments.write:
        write_table(__file__, text)


if __name__ == "__main__":
    main()

"""All heads of a text in a browser: BertViz's model view beside ours.

    python benchmarks/views.py              print the table
    python benchmarks/views.py --write      and put it between the markers of benchmarks/README.md
    python benchmarks/views.py --quick      the smallest size, to check that it works
    python benchmarks/views.py --clicks     only the time from a click to its picture

Both show the same maps: those of headlight-mini on real text, its 6 layers taken twice, so 12 x 12 heads. Real
Chromium, one tab at a time. BertViz asks a CDN for three libraries; they are answered here with the files of their
npm packages (`npm pack`), so its times are without a network.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import torch
from crowd import free_port
from playwright.sync_api import Browser, Page, Playwright, Route, sync_playwright
from playwright.sync_api import TimeoutError as TooLong
from tables import QUICK, parse_arguments, write_table

import bert_core
from bert_core.records import Target
from bert_core.run.capture import capture
from viz_app.components.attention_view.packing import deflated, quantise
from viz_app.figures.thumbnails import thumbnails

ROOT = Path(__file__).parents[1]
PATIENCE = 180  # seconds for BertViz to build, and as many to be drawn
LARGEST_FILE = 600 << 20  # bytes; Chromium has never opened a page of strings much longer
LENGTHS, CLICKED = ((16,), 16) if QUICK else ((16, 64, 128, 512), 128)  # tokens; of the text that is clicked
ROUNDS = 1 if QUICK else 15  # clicks
LIBRARIES = {"require": "requirejs@2.3.6", "d3": "d3@5.7.0", "jquery": "jquery@2.1.0"}
FILES = {"require": "package/require.js", "d3": "package/dist/d3.min.js", "jquery": "package/dist/jquery.min.js"}

OURS = """
import sys, time
sys.path[:0] = [{root!r}]
import numpy as np
import streamlit as st
from viz_app.components.attention_view import ViewChoice
from viz_app.components.attention_view.everywhere import pack_all_maps
from viz_app.components.attention_view.view import attention_view
from viz_app.tokens import Token
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.thumbnails import thumbnails

st.set_page_config(layout="wide")
stored = np.load({file!r})
maps, texts = stored["maps"], stored["tokens"].tolist()
tokens = [Token(text, place) for place, text in enumerate(texts)]
start = time.perf_counter()
left, right = st.columns([1, 2])
with left:
    head_grid(layers=12, heads=12, thumbnails=thumbnails(maps), selected=(0, 0), key="grid")
with right:
    there = np.ones((12, 12), bool)
    all_heads = pack_all_maps(maps, existing=there, off=~there, signed=False)
    attention_view(
        maps[0], tokens, tokens, choice=ViewChoice(0, (0,)), layers=12, preload=all_heads, grid="grid", key="large"
    )
st.text(f"built in {{time.perf_counter() - start:.6f}}")
"""
# The app itself, and an empty page on the same server: what a rerun costs where there is nothing to do.
APP = """
import runpy, sys
sys.path[:0] = [{root!r}]
import streamlit as st
if "empty" in st.query_params:
    st.button("again", key="again")
    st.session_state.runs = st.session_state.get("runs", 0) + 1
    st.text(f"runs: {{st.session_state.runs}}")
else:
    runpy.run_path({entry!r}, run_name="__main__")
"""


def tiled_run(tokens: int, *, gradients: bool = False, off: int | None = None) -> tuple[bert_core.ModelRun, str]:
    """A run of 12 x 12 heads, those of the bundled model twice, on the license's first words; and these words.

    gradients: of the second word's log-probability, where it is hidden. off: a layer whose heads are.
    """
    loaded = bert_core.load("headlight-mini", device="cpu")
    text = " ".join((ROOT / "LICENSE").read_text(encoding="utf-8").split())
    encoding = loaded.tokenizer.encode(text, max_length=tokens)
    gates, target = np.ones((loaded.config.num_hidden_layers, loaded.config.num_attention_heads), np.float32), None
    if off is not None:
        gates[off] = 0
    if gradients:
        target = Target("mlm", 2, encoding.input_ids[2])
        encoding = loaded.tokenizer.mask_words(encoding, [1])
    run = capture(loaded, encoding, target=target, head_mask=gates, positions=())
    names = ("attention", "head_mask", "gradient", "gate_gradient")
    repeated = {name: np.concatenate([part] * 2) for name in names if (part := getattr(run, name)) is not None}
    return dataclasses.replace(run, **repeated, windows=run.windows * 2), text[: encoding.offsets[-2][1]]


# ---------------------------------------------------------------------------- theirs


def libraries(folder: Path) -> dict[str, bytes]:
    """The scripts that BertViz asks its CDN for, from their npm packages.

    Raises SystemExit where npm cannot get them.
    """
    scripts = {}
    for name, package in LIBRARIES.items():
        try:
            process = subprocess.run(["npm", "pack", package], cwd=folder, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise SystemExit(f"npm, which gets {package} for BertViz, is not on the path") from error
        if process.returncode:
            raise SystemExit(f"npm cannot get {package}, which BertViz needs: {process.stderr.strip()[-500:]}")
        with tarfile.open(folder / process.stdout.split()[-1]) as packed:
            member = packed.extractfile(FILES[name])
            assert member is not None
            scripts[name] = member.read()
    return scripts


BUILD = """
import sys, time
import numpy as np, torch
from bertviz import model_view
stored = np.load(sys.argv[1])
attention = [torch.from_numpy(layer)[None] for layer in stored["maps"]]
start = time.perf_counter()
page = model_view(attention, stored["tokens"].tolist(), html_action="return").data
seconds = time.perf_counter() - start
open(sys.argv[2], "w", encoding="utf-8").write("<!doctype html><meta charset=utf-8><body>" + page)
print(seconds)
"""


def theirs(browser: Browser, stored: Path, folder: Path, scripts: dict[str, bytes]) -> dict[str, object]:
    """BertViz's model view: bytes, seconds to build and to be drawn, memory of the tab."""
    page_file = folder / "bertviz.html"
    try:
        built = subprocess.run(
            [sys.executable, "-c", BUILD, str(stored), str(page_file)],
            capture_output=True, text=True, timeout=PATIENCE, check=True,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        return {"failed": f"not built in {PATIENCE} s" if isinstance(error, subprocess.TimeoutExpired) else "failed"}
    row: dict[str, object] = {"bytes": page_file.stat().st_size, "build": float(built.stdout)}
    if page_file.stat().st_size > LARGEST_FILE:
        return row | {"failed": f"not opened: more than {LARGEST_FILE >> 20} MiB"}
    page = browser.new_page(viewport={"width": 1440, "height": 900})

    def answer(route: Route) -> None:
        name = next((name for name in scripts if name in route.request.url.lower()), None)
        route.fulfill(body=scripts[name], content_type="text/javascript") if name else route.abort()

    page.route(re.compile("^https?:"), answer)
    try:
        start = time.perf_counter()
        page.goto(page_file.as_uri(), timeout=PATIENCE * 1000)
        # They are drawn one after the other, in one go.
        page.wait_for_function(
            "() => document.querySelectorAll('.attn_background').length >= 144",
            timeout=PATIENCE * 1000,
        )
        settle(page)
        row |= {"paint": time.perf_counter() - start} | memory(browser, page)
    except TooLong:
        row["failed"] = f"not drawn in {PATIENCE} s"
    except Exception as error:  # a tab that ran out of memory says so in many ways
        row["failed"] = f"the tab broke: {str(error).splitlines()[0][:60]}"
    page.close()
    return row


# ---------------------------------------------------------------------------- ours


@contextmanager
def served(script: Path) -> Iterator[str]:
    """The address of a Streamlit server that runs a script."""
    port = free_port()
    flags = ["--server.port", str(port), "--server.headless", "true", "--server.fileWatcherType", "none"]
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", *flags, str(script)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=2).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://localhost:{port}"
    finally:
        server.terminate()
        server.wait()


def ours(browser: Browser, stored: Path, folder: Path) -> dict[str, object]:
    """Our grid of thumbnails with the first head large, on a page of their own."""
    script = folder / "ours.py"
    script.write_text(OURS.format(root=str(ROOT), file=str(stored)), encoding="utf-8")
    maps = np.load(stored)["maps"]
    layers = (deflated(b"".join(part.tobytes() for head in layer for part in quantise(head)[::-1])) for layer in maps)
    total_bytes = thumbnails(maps).nbytes + sum(map(len, layers))
    with served(script) as address:
        warm = browser.new_page()  # the server's first run imports everything; a visitor's does not
        warm.goto(address)
        warm.get_by_text("built in").wait_for(timeout=120_000)
        warm.close()
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        received: list[int] = []
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
        start = time.perf_counter()
        page.goto(address)
        page.wait_for_function(
            f"() => {{ {INSIDE} return all('.cell img[src]').length === 144 && "
            "all('.note')[0]?.textContent.includes('edges'); }",
            timeout=PATIENCE * 1000,
        )
        settle(page)
        paint = time.perf_counter() - start
        built = float(page.get_by_text("built in").inner_text().split()[-1])
        row = {"bytes": total_bytes, "first": sum(received), "build": built, "paint": paint} | memory(browser, page)
        page.close()
    return row


def settle(page: Page) -> None:
    """Return after two frames were drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def memory(browser: Browser, page: Page) -> dict[str, object]:
    """Resident memory of the browser's largest renderer, and the heap of the page's scripts."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    heap = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}[
        "JSHeapUsedSize"
    ]
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    resident = [
        int(line.split()[1]) << 10
        for process in processes
        if process["type"] == "renderer"
        for line in Path(f"/proc/{process['id']}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return {"heap": heap, "resident": max(resident)}


# A component stands in a shadow root of its own.
INSIDE = """
    const roots = [...document.querySelectorAll("*")].flatMap(node => node.shadowRoot ?? []);
    const all = (selector) => roots.flatMap(root => [...root.querySelectorAll(selector)]);
"""
CLICK = f"""
async ([layer, head]) => {{
    {INSIDE}
    const cell = all(`.cell[data-layer="${{layer}}"][data-head="${{head}}"]`)[0];
    const wanted = [".view .layer .name", `.view .head[data-head="${{head}}"]`, ".note"];
    const [name, button, note] = wanted.map(one => all(one)[0]);
    const start = performance.now();
    cell.click();
    const shown = () => name.textContent === `L${{layer}}` && button.getAttribute("aria-pressed") === "true"
        && note.textContent.includes("edges") && !note.textContent.includes("on the way");
    while (!shown()) await new Promise(requestAnimationFrame);
    // Drawn in the next frame, and that frame is on the screen when the one after it begins.
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
    return performance.now() - start;
}}
"""
EMPTY = """
async (wanted) => {
    const start = performance.now();
    [...document.querySelectorAll("button")].find(one => one.textContent.includes("again")).click();
    while (![...document.querySelectorAll("[data-testid=stText]")].some(one => one.textContent === `runs: ${wanted}`))
        await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - start;
}
"""


def clicks(browser: Browser, folder: Path, text: str, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds from a click on a thumbnail of the running app to its head drawn large; and of an empty rerun."""
    script = folder / "app.py"
    script.write_text(APP.format(root=str(ROOT), entry=str(ROOT / "streamlit_app.py")), encoding="utf-8")
    (folder / "viz_app").symlink_to(ROOT / "viz_app")  # pages are looked for beside the script
    with served(script) as address:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        app, empty = context.new_page(), context.new_page()
        app.goto(f"{address}/attention?{urlencode({'text': text})}")
        app.locator(".note", has_text="edges").wait_for(timeout=120_000)
        empty.goto(f"{address}/?empty=1")
        empty.get_by_text("runs: 1").wait_for(timeout=120_000)
        app.wait_for_timeout(1500)
        open_times, idle_times = [], []
        for turn in range(rounds):
            app.bring_to_front()
            open_times.append(app.evaluate(CLICK, [1 + turn % 5, (5 * turn + 1) % 12]))
            app.wait_for_timeout(400)
            empty.bring_to_front()
            idle_times.append(empty.evaluate(EMPTY, turn + 2))
            empty.wait_for_timeout(200)
        context.close()
    return open_times, idle_times


def click_line(playwright: Playwright, folder: Path, tokens: int, rounds: int) -> str:
    """What `clicks` finds for a text of so many tokens, in a sentence."""
    run, text = tiled_run(tokens)
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    open_times, idle_times = clicks(browser, folder, text, rounds)
    browser.close()
    ms, idle = statistics.median(open_times), statistics.median(idle_times)
    return (
        f"Click on a thumbnail of the running app to its head drawn large, {len(run.encoding.tokens)} tokens, 6 x 12 "
        f"heads: median of {len(open_times)} {ms:.0f} ms. An empty Streamlit rerun on the same server: {idle:.0f} ms; "
        f"ratio {ms / idle:.2f}, target 2 {'met' if ms <= 2 * idle else '**missed**'}; target 100 ms "
        f"{'met' if ms <= 100 else '**missed**'}.\n"
    )


# ---------------------------------------------------------------------------- the table


def size(number: object) -> str:
    return "" if number is None else f"{number / 1e6:,.2f} MB"  # type: ignore[operator]


def seconds(number: object) -> str:
    return "" if number is None else f"{number:,.2f} s"  # type: ignore[str-format]


def line(tokens: int, source: str, row: dict[str, object]) -> str:
    cells = [
        size(row.get("first", row.get("bytes"))), size(row.get("bytes")), seconds(row.get("build")),
        seconds(row.get("paint")), size(row.get("heap")), size(row.get("resident")), str(row.get("failed", "")),
    ]  # fmt: skip
    return f"| {tokens} | {source} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", action="store_true")
    options = parse_arguments(parser)
    if options.clicks:
        with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
            print(click_line(playwright, Path(name), CLICKED, ROUNDS), end="")
        return
    out = io.StringIO()
    print(
        f"{os.cpu_count()} CPUs; Python {sys.version.split()[0]}, streamlit {version('streamlit')}, "
        f"bertviz {version('bertviz')}, torch {torch.__version__}; {time.strftime('%Y-%m-%d')}.\n\n"
        "| tokens | | first picture | all heads | build | run to complete paint | script heap | tab | |\n"
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
        file=out,
    )
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        scripts = libraries(folder)
        chromium = shutil.which("chromium")
        for tokens in LENGTHS:
            run, _ = tiled_run(tokens)
            maps, pieces = run.attention, run.encoding.tokens
            np.savez(stored := folder / f"{tokens}.npz", maps=maps, tokens=np.array(pieces))
            for source in ("BertViz", "ours"):
                # A browser of its own, so that one tab's memory is not another's.
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                row = theirs(browser, stored, folder, scripts) if source == "BertViz" else ours(browser, stored, folder)
                print(line(len(pieces), source, row), file=out)
                if QUICK and "failed" in row:  # of long texts that is a result
                    raise SystemExit(f"{source}, {tokens} tokens: {row['failed']}")
                browser.close()
            if tokens == CLICKED:
                output = "\n" + click_line(playwright, folder, tokens, ROUNDS)
    print(output, end="", file=out)
    print(out.getvalue())
    if options.write:
        write_table(__file__, out.getvalue())


if __name__ == "__main__":
    main()

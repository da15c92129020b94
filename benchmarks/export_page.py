"""The page that Export writes: its size, how long it takes to make, and how long a browser takes to draw it from disk.

    python benchmarks/export_page.py            print the table
    python benchmarks/export_page.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/export_page.py --quick    the smallest size, to check that it works

The maps are those of views.py: headlight-mini on real text, its 6 layers taken twice, so 12 x 12 heads; of the longest
text also their gradients, and what changes when the heads of layer 0 are off.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from playwright.sync_api import sync_playwright
from tables import QUICK, parse_arguments, write_table
from views import tiled_run

from viz_app.comparison import Comparison
from viz_app.export.page import attention_page, change_page
from viz_app.maps import MapView

ROOT = Path(__file__).parents[1]
MOST_MB = 15  # at 512 tokens
LENGTHS = (16,) if QUICK else (16, 64, 128, 512)  # tokens
ROUNDS = 1 if QUICK else 3


def pages(lengths: Sequence[int]) -> Iterator[tuple[int, str, Callable[[], str]]]:
    """Of each length what the page shows, and what makes it: attention, and of the longest gradients and a change."""
    for tokens in lengths:
        yield tokens, "attention", partial(attention_page, tiled_run(tokens)[0])
    hidden, _ = tiled_run(tokens, gradients=True)
    yield tokens, "gradient", partial(attention_page, hidden, MapView("gradient"))
    comparison = Comparison(tiled_run(tokens)[0], tiled_run(tokens, off=0)[0])
    yield tokens, "change without layer 0", partial(change_page, comparison)


def main() -> None:
    arguments = parse_arguments(argparse.ArgumentParser(description=__doc__))
    out = io.StringIO()
    print(
        f"{os.cpu_count()} CPUs; medians of {ROUNDS}; {time.strftime('%Y-%m-%d')}.\n\n"
        "| tokens | shows | page | bytes a value | made in | opened and drawn in | |\n"
        "| ---: | --- | ---: | ---: | ---: | ---: | --- |",
        file=out,
    )
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for tokens, shows, build in pages(LENGTHS):
            file = Path(name) / "page.html"
            build_times, drawing_times = [], []
            for _ in range(ROUNDS):
                start = time.perf_counter()
                file.write_text(build(), encoding="utf-8")
                build_times.append(time.perf_counter() - start)
                page = browser.new_context(offline=True).new_page()
                start = time.perf_counter()
                page.goto(file.as_uri())
                page.wait_for_selector("body[data-ready]")
                page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                drawing_times.append(time.perf_counter() - start)
                page.context.close()
            size = file.stat().st_size
            target = f"target {MOST_MB} MB {'met' if size <= MOST_MB * 1e6 else '**missed**'}" if tokens == 512 else ""
            print(
                f"| {tokens} | {shows} | {size / 1e6:.2f} MB | {size / (144 * tokens**2):.2f} "
                f"| {statistics.median(build_times):.2f} s | {statistics.median(drawing_times):.2f} s | {target} |",
                file=out,
            )
        browser.close()
    print(out.getvalue())
    if arguments.write:
        write_table(__file__, out.getvalue())


if __name__ == "__main__":
    main()

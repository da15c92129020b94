"""Home: the time until its figure is seen, and until a click shows the effect of a head, in a real browser.

    python benchmarks/first_figure.py [--write | --quick]

The server is warm: the bundled model was loaded and the page opened once before. Each visit has a new browser context,
so its cache is empty. The table has medians, and the longest times.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

from crowd import Server
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tables import QUICK, parse_arguments, write_table

VISITS = 2 if QUICK else 15
SECONDS = 60.0  # for one step
FIGURE, GRID = ".js-plotly-plot .bars", ".st-key-home_grid"
OWN_SENTENCE = "Nobody was waiting there."


def seen(page: Page, selector: str) -> None:
    """Wait until an element is visible."""
    page.locator(selector).first.wait_for(state="visible", timeout=1000 * SECONDS)


def first_figure(page: Page, address: str) -> tuple[float, float]:
    """Open Home; return the seconds from the answer until the bars, and until the grid of heads, are visible."""
    page.goto(address, wait_until="commit")
    start = time.perf_counter()
    seen(page, FIGURE)
    bars = time.perf_counter() - start
    seen(page, GRID)
    return bars, time.perf_counter() - start


def timed(step: Callable[[], object]) -> float:
    """Return the seconds that a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def switch_off(page: Page) -> None:
    """Switch the head off and wait for the sentence with its effect."""
    page.get_by_role("button", name="Switch this head off").click()
    expect(page.get_by_text("Without this one head of 72")).to_be_visible(timeout=1000 * SECONDS)


def select_token(page: Page) -> None:
    """Click a key in the view of the head and wait until the heading of the grid names it."""
    page.locator(".column.key [role=option]").filter(has_text="book").click()
    expect(page.get_by_role("heading", name="All heads").filter(has_text="book")).to_be_visible(timeout=1000 * SECONDS)


def own_sentence(page: Page) -> None:
    """Type a sentence; wait for its mask and its first bars."""
    field = page.get_by_label("Sentence", exact=True)
    field.fill(OWN_SENTENCE)
    field.press("Enter")
    expect(page.get_by_text("“waiting” is masked")).to_be_visible(timeout=1000 * SECONDS)
    seen(page, FIGURE)


def begin_lesson(page: Page) -> None:
    """Begin the first lesson from Home."""
    page.locator(".st-key-start_learn button").click()
    seen(page, ".st-key-lesson")


# What is done on Home: name -> clicks and entries, and the function that does it.
STEPS: dict[str, tuple[int, Callable[[Page], None]]] = {
    "effect of a head: Switch this head off": (1, switch_off),
    "another pair of tokens: click a key": (1, select_token),
    "own sentence, masked": (1, own_sentence),
    "first lesson": (1, begin_lesson),
}


def visit(browser: Browser, address: str, step: Callable[[Page], None] | None) -> tuple[float, float, float]:
    """Open Home in a new context; return the seconds to its bars and grid, and those of a step."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    bars, grid = first_figure(page, address)
    page.wait_for_selector("[data-test-script-state=notRunning]", timeout=1000 * SECONDS)
    seconds = 0.0 if step is None else timed(lambda: step(page))
    context.close()
    return bars, grid, seconds


def measure() -> str:
    """Measure all steps, and return the table."""
    rows, opened = [], []
    server = Server()
    address = f"http://{server.address}/"
    with ExitStack() as stack:
        stack.callback(server.stop)
        playwright = stack.enter_context(sync_playwright())
        executable = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        visit(browser, address, None)
        for name, (clicks, step) in STEPS.items():
            visits = [visit(browser, address, step) for _ in range(VISITS)]
            opened += visits
            seconds = [step_seconds for _, _, step_seconds in visits]
            rows.append(f"| {name} | {clicks} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
        browser.close()
    names = ("bars of the prediction, from the server's answer", "grid of all heads, from the server's answer")
    figures = [
        f"| {name} | 0 | {statistics.median(times):.2f} | {max(times):.2f} |"
        for name, times in zip(names, ([row[0] for row in opened], [row[1] for row in opened]), strict=True)
    ]
    header = f"{platform.machine()}, {os.cpu_count()} CPUs; {VISITS} visits a row; {time.strftime('%Y-%m-%d')}."
    head = "| what is seen | clicks | s, median | s, longest |\n| --- | ---: | ---: | ---: |"
    return "\n".join((header, "", head, *figures, *rows)) + "\n"


def main() -> None:
    """Print the table, and with --write put it into README.md."""
    arguments = parse_arguments(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    table = measure()
    print(table)
    if arguments.write:
        write_table(__file__, table)


if __name__ == "__main__":
    main()

"""Record the animation of the README from the running app: `python docs/record_animation.py http://localhost:8501`.

Masks a word on the page Home, opens a head by a click, and switches it off. Writes docs/screenshots/headlight.gif.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Locator, Page, expect, sync_playwright
from take_screenshots import palette_of

FILE = Path(__file__).parent / "screenshots" / "headlight.gif"
SIZE = {"width": 1280, "height": 760}
SENTENCE = {"text": "She gave the book to her brother.", "masked": ""}
# The browser draws no pointer on a screenshot.
POINTER = """() => {
  const pointer = document.createElement("div");
  pointer.id = "pointer";
  pointer.innerHTML = '<svg width="22" height="30" viewBox="0 0 22 30"><path d="M2 2v21l5-4 4 9 4-2-4-8h7z" '
    + 'fill="#111" stroke="#fff" stroke-width="2"/></svg>';
  pointer.style.cssText = "position: fixed; z-index: 2000000; pointer-events: none; left: 640px; top: 600px";
  document.body.append(pointer);
}"""
MOVE = """([x, y]) => {
  const { style } = document.getElementById("pointer");
  [style.left, style.top] = [`${x}px`, `${y}px`];
}"""


class Recorder:
    """Frames of a page with their durations, in milliseconds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.position = (640.0, 600.0)
        self.frames: list[tuple[Image.Image, int]] = []

    def take(self, duration: int) -> None:
        """Add the page as it looks now."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        self.frames.append((picture, duration))

    def click(self, element: Locator, ready: Locator, duration: int = 2400) -> None:
        """Move the pointer to an element, click it, wait for the result, and show it for a duration."""
        element.scroll_into_view_if_needed()
        box = element.bounding_box()
        assert box is not None
        end = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        start = self.position
        for share in (0.35, 0.7, 0.9, 1):
            self.page.evaluate(MOVE, [a + share * (b - a) for a, b in zip(start, end, strict=True)])
            self.take(60 if share < 1 else 500)
        self.position = end
        element.click()
        expect(ready).to_be_visible(timeout=60_000)
        expect(self.page.get_by_test_id("stApp")).to_have_attribute(
            "data-test-script-state", "notRunning", timeout=60_000
        )
        self.page.wait_for_timeout(1500)
        self.take(duration)

    def write(self, path: Path) -> None:
        """Write the frames, in the colours of all of them together."""
        strip = Image.new("RGB", (SIZE["width"], SIZE["height"] * len(self.frames)))
        for number, (picture, _) in enumerate(self.frames):
            strip.paste(picture, (0, number * SIZE["height"]))
        palette = palette_of(strip)
        pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture, _ in self.frames]
        durations = [duration for _, duration in self.frames]
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True)


def record(address: str) -> None:
    """Record the three steps."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{address}/start?{urlencode(SENTENCE)}")
        word = page.get_by_role("button", name=re.compile("^her, sentence A"))
        expect(word.first).to_be_visible(timeout=60_000)
        page.get_by_test_id("stSidebar").hover()
        page.get_by_test_id("stSidebarCollapseButton").locator("button").click()
        page.wait_for_timeout(3000)
        page.evaluate(POINTER)
        recorder = Recorder(page)
        recorder.take(1500)
        recorder.click(word.first, page.get_by_role("button", name="Switch this head off"))
        cell = page.get_by_role("button", name=re.compile("^L5 H11"))
        recorder.click(cell, page.get_by_role("heading", name=re.compile("L5 H11")))
        cell = page.get_by_role("button", name=re.compile("^L5 H8"))
        recorder.click(cell, page.get_by_role("heading", name=re.compile("L5 H8")))
        switch = page.get_by_role("button", name="Switch this head off")
        recorder.click(switch, page.get_by_text(re.compile("Without this one head")), 4000)
        recorder.write(FILE)
        browser.close()
    print(f"{FILE.name}: {len(recorder.frames)} frames, {FILE.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    record(sys.argv[1])

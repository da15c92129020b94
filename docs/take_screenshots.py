"""Takes the pictures of the documentation: `python docs/take_screenshots.py http://localhost:8501`.

All are of the running app but `page`, a page that Export writes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

import bert_core
from viz_app.comparison import Comparison
from viz_app.export.page import change_page
from viz_app.maps import MapView

PAIR = {
    "text": "She opened the door and walked in.",
    "pair": "The room was dark and nobody was there.",
    "masked": "3",
}
HAT = {"text": "The man lost his hat.", "masked": "3", "target": "4:her", "contrast": "his"}
LONG = " ".join((Path(__file__).parents[1] / "LICENSE").read_text(encoding="utf-8").split())[:2800]
SHOTS = {
    "home": ("start", {}, "light", 900),
    "predict": ("predict", PAIR, "light", 900),
    "attention": ("attention", {**PAIR, "head": "1.8", "also": "4"}, "light", 1150),
    "inside": ("inside", {**PAIR, "head": "1.8", "stage": "scores"}, "light", 1250),
    "heads512": ("attention", {"text": LONG, "head": "2.0", "view": "heads"}, "light", 1450),
    "curves512": ("attention", {"text": LONG, "head": "2.0", "also": "9", "kept": "50"}, "dark", 1340),
    "matrix512": ("attention", {"text": LONG, "head": "2.0", "view": "matrix"}, "dark", 1420),
    "neuron512": ("attention", {"text": LONG, "head": "2.0", "view": "neuron", "tokens": "q40"}, "dark", 1340),
    "lecture": ("attention", {**PAIR, "head": "1.8", "also": "4", "lecture": "1"}, "dark", 1420),
    "neuron": ("attention", {**PAIR, "head": "1.8", "view": "neuron", "tokens": "q2"}, "light", 1180),
    "compare": ("compare", PAIR, "light", 1300),
    "compare_heads": ("compare", {**PAIR, "compare_view": "heads"}, "dark", 1080),
    "words_to_patches": ("images", {"text": PAIR["text"], "edges": "1", "look": "1.1"}, "dark", 1500),
    "images": ("images", {"text": PAIR["text"], "boxes": "1"}, "light", 1030),
    "roles": ("roles", {**PAIR, "head": "1.8"}, "light", 1400),
    "why": ("why", {"text": "He drank a cup of tea with milk.", "masked": "5", "target": "6:tea"}, "light", 1300),
    "layers": ("layers", {"text": "Paris is the capital of France.", "masked": "3"}, "light", 1000),
    "causes": ("causes", {**HAT, "source": "The woman lost his hat."}, "light", 1200),
    "profiles": ("profiles", {"head": "3.8"}, "light", 1250),
    "profiles_token": ("profiles", {"profile_of": "token", "piece": "like", "tenth": "1"}, "light", 1400),
    "probes": ("probes", {"label": "subject"}, "light", 1150),
    "dataset": ("dataset", {"expected": "is", "predicted": "was"}, "light", 1400),
    "score": ("score", {"text": PAIR["text"]}, "dark", 1000),
    "heads": ("heads", {**PAIR, "off": "1.9,2.8,5.10"}, "dark", 1100),
    "prune": ("prune", {**PAIR, "off": "1.0,2.5,3.6,3.7,5.2"}, "light", 1150),
}


def main(address: str, names: list[str]) -> None:
    """One picture a page, as a visitor sees it who follows a link; names: of which, none for all."""
    folder = Path(__file__).parent / "screenshots"
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, choices, scheme, height) in SHOTS.items():
            if names and name not in names:
                continue
            page = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme=scheme)
            page.goto(f"{address}/{path}?{urlencode(choices)}")
            picture = page.get_by_test_id("stPlotlyChart").or_(page.locator(".view .note:not(:empty), button.cell img"))
            expect(picture.first).to_be_visible(timeout=60_000)
            for unfinished in ("stProgress", "stSkeleton"):
                expect(page.get_by_test_id(unfinished)).to_have_count(0, timeout=60_000)
            page.wait_for_timeout(3000)
            page.screenshot(path=folder / f"{name}.png")
            page.close()
        if not names or "page" in names:
            _page(browser, folder)
        browser.close()
    for name in names or [*SHOTS, "page"]:
        _shrink(folder / f"{name}.png")


def _shrink(path: Path) -> None:
    """Write a picture in 256 of its colours, a third as large."""
    image = Image.open(path).convert("RGB")
    image.quantize(palette=palette_of(image), dither=Image.Dither.NONE).save(path, optimize=True)


def palette_of(image: Image.Image) -> Image.Image:
    """Return an image with 256 colours of this one as its palette: each next one is far from them and frequent."""
    counts = image.getcolors(image.width * image.height)
    weights = np.sqrt([count for count, _ in counts])
    colours = np.array([colour for _, colour in counts], np.float64)
    chosen, distances = [], np.full(len(colours), np.inf)
    for _ in range(min(256, len(colours))):
        chosen.append(colours[int((np.minimum(distances, 1e9) * weights).argmax())])
        distances = np.minimum(distances, ((colours - chosen[-1]) ** 2).sum(1))
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.array(chosen, np.uint8).ravel().tolist())
    return palette


def _page(browser: Browser, folder: Path) -> None:
    """Of what changes when two heads are off, opened from a file without a network."""
    loaded = bert_core.load("headlight-mini")
    encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.", PAIR["pair"])
    gates = np.ones((6, 12), np.float32)
    gates[[0, 1], [2, 3]] = 0
    before, after = (bert_core.capture(loaded, encoding, head_mask=mask) for mask in (None, gates))
    made = change_page(Comparison(before, after, ("all heads on", "L0 H2 and L1 H3 off")), MapView(layer=2, heads=(1,)))
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "page.html"
        file.write_text(made, encoding="utf-8")
        page = browser.new_context(viewport={"width": 1440, "height": 1150}, offline=True).new_page()
        page.goto(file.as_uri())
        expect(page.locator("body[data-ready]")).to_be_attached()
        page.wait_for_timeout(500)
        page.screenshot(path=folder / "page.png")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""What is drawn can be read, in both themes, and comes from this machine alone."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import settled
from tests.selection import mark_cases

TEXT = {"text": "The army crossed the river at night.", "pair": "It rained.", "masked": "4"}
# WCAG contrast (2.2, 1.4.3) of every text on the page, also in shadow roots: [ratio, text, where], the lowest first.
# Left out: icons, which are graphics, what is disabled, and what is there for screen readers alone.
CONTRASTS = """() => {
    const parts = (colour) => {
        const numbers = colour.match(/[\\d.]+/g).map(Number);
        const scale = colour.startsWith("color(srgb") ? 255 : 1;
        return [...numbers.slice(0, 3).map((x) => x * scale), numbers[3] ?? 1];
    };
    const over = (front, back) => front.slice(0, 3).map((x, i) => x * front[3] + back[i] * (1 - front[3]));
    const parent = (node) => node.parentElement ?? node.getRootNode().host;
    const luminance = (colour) => {
        const [r, g, b] = colour.map((x) => (x / 255 <= 0.04045 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    const visit = (root) => {
        for (const node of root.querySelectorAll("*")) {
            if (node.shadowRoot) visit(node.shadowRoot);
            const text = [...node.childNodes].map((one) => (one.nodeType === 3 ? one.textContent : "")).join("");
            const style = getComputedStyle(node);
            const seen = node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
            if (!text.trim() || !seen || node.localName === "style" || node.clientWidth === 1) continue;
            if (node.closest("svg, .unseen, :disabled, [disabled], [data-testid=stIconMaterial]")) continue;
            const grounds = [];
            let opacity = 1;
            for (let one = node; one; one = parent(one)) {
                grounds.push(parts(getComputedStyle(one).backgroundColor));
                opacity *= Number(getComputedStyle(one).opacity);
            }
            const ground = grounds.reverse().reduce((back, front) => over(front, back), [255, 255, 255]);
            const colour = parts(style.color);
            const drawn = over([...colour.slice(0, 3), colour[3] * opacity], ground);
            const [high, low] = [luminance(drawn), luminance(ground)].sort((a, b) => b - a);
            const ratio = (high + 0.05) / (low + 0.05);
            const where = node.closest("[data-testid]")?.dataset.testid ?? node.className;
            found.push([ratio, text.trim().slice(0, 40), where]);
        }
    };
    visit(document.querySelector("[data-testid=stApp]"));
    return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize(
    ("path", "scheme"),
    mark_cases(
        product(["", "attention", "heads", "inside?stage=heads&"], ["light", "dark"]),
        pytest.mark.smoke,
        lambda path, scheme: (path, scheme) in {("attention", "light"), ("heads", "dark")},
    ),
)
def test_every_page_draws_in_both_themes_in_colours_that_can_be_read_and_asks_nobody(
    app: str, attempts: Path, page: Page, path: str, scheme: str
) -> None:
    """On a light and on a dark screen the picture is there, without an error in the console; of everything written
    at least 4.5 of contrast to what it stands on, explanations and code among it; and neither the page nor the server
    asks any other machine for anything.
    """
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{app}/{path}{'' if '?' in path else '?'}{urlencode(TEXT)}")
    expect(page.get_by_text("How it can mislead").first).to_be_visible()
    if "inside" in path:
        expect(page.locator("[data-testid=stCaptionContainer] code")).to_be_visible()
    settled(page)
    picture = page.locator(".view .token") if path == "attention" else page.get_by_test_id("stPlotlyChart")
    expect(picture.first).to_be_visible()
    background = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    brightness = sum(int(part) for part in re.findall(r"\d+", background)[:3])
    assert (brightness > 380) == (scheme == "light"), background

    for _ in range(50):  # while a page is drawn again, what goes is faded
        found = page.evaluate(CONTRASTS)
        if all(ratio >= 4.5 for ratio, *_ in found):
            break
        page.wait_for_timeout(200)
    assert len(found) > 20
    assert any(where == "stCaptionContainer" for _, _, where in found)
    assert [one for one in found if one[0] < 4.5] == []

    outside = [url for url in page.requested if urlsplit(url).hostname not in ("localhost", "127.0.0.1", None)]
    outside = [url for url in outside if not url.startswith(("data:", "blob:"))]
    assert page.requested and not outside
    assert attempts.read_text(encoding="utf-8") == "", "the server asked another machine"
    assert not page.problems

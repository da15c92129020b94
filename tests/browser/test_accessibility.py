"""Pages for screen readers, for the keyboard and with the settings of a system: findings of axe, and announcements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import opened, settled
from viz_app.pages import PAGES

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")
RUN_AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.map(({ id, impact, nodes }) => ({
    id, impact, nodes: nodes.slice(0, 5).map(({ target, failureSummary }) => [target.join(" "), failureSummary]),
  }));
}"""

BACKGROUND = "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"


def findings(page: Page) -> list[dict[str, Any]]:
    """Findings of axe on an open page that are serious or critical, with at most five elements each."""
    page.add_script_tag(path=AXE)
    violations: list[dict[str, Any]] = page.evaluate(RUN_AXE)
    return [violation for violation in violations if violation["impact"] in SERIOUS]


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_axe_finds_nothing_serious(path: str, app: str, page: Page) -> None:
    """Names, roles, contrast and order of every page as a new visitor sees it, in light and then in dark colours."""
    page.emulate_media(color_scheme="light")
    opened(page, app, path, model="headlight-mini")
    expect(page.locator("h1")).to_be_visible()
    settled(page)
    assert findings(page) == []
    light = page.evaluate(BACKGROUND)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"color => ({BACKGROUND})() !== color", arg=light)
    settled(page)
    assert findings(page) == []


def test_a_result_is_announced_when_it_changes(app: str, page: Page) -> None:
    """Masking another word announces the new prediction; opening the page announces nothing."""
    opened(page, app, "predict", model="headlight-mini", text="She opened the door.", masked="3")
    status = page.locator(".st-key-screen_announcer [role=status]")
    expect(status).to_have_text("")
    page.get_by_role("button", name="opened", exact=False).first.click()
    expect(status).not_to_have_text("")


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_tokens_appear_one_by_one_only_where_motion_is_wanted(motion: str, app: str, page: Page) -> None:
    """The only animation of the app, that of a caption, is left out with reduced motion."""
    page.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]
    opened(page, app, "images")
    token = page.locator(".st-key-caption [role=toolbar] button").first
    expect(token).to_be_visible()
    animation = token.evaluate("(node) => getComputedStyle(node).animationName")
    assert (animation == "none") == (motion == "reduce")


@pytest.mark.parametrize("path", ["predict", "attention", "heads", "why", "learn"])
def test_a_page_at_200_percent_needs_no_horizontal_scrolling(path: str, app: str, page: Page) -> None:
    """A window of 1280 pixels, enlarged twice, is one of 640: text and controls are inside of it (WCAG 1.4.10)."""
    page.set_viewport_size({"width": 640, "height": 450})
    opened(page, app, path, model="headlight-mini")
    expect(page.locator("h1")).to_be_visible()
    settled(page)
    assert page.evaluate("() => document.querySelector('[data-testid=\"stMain\"]').scrollWidth") <= 640

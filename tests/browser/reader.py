"""What a reader does: opens a page of the app, waits until it is drawn, reads its address."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Locator, Page, expect


def opened(page: Page, base: str, path: str = "", **address: str) -> Page:
    """A page of the app, once it has drawn its heading."""
    page.goto(f"{base}/{path}?{urlencode(address)}")
    expect(page.get_by_test_id("stHeading").first).to_be_visible()
    settled(page)
    return page


def opened_from_disk(page: Page, folder: Path, made: str) -> Page:
    """A page that was made, as `page.html` in a folder, with the network off, once it has drawn itself."""
    file = folder / "page.html"
    file.write_text(made, encoding="utf-8")
    page.context.set_offline(True)
    page.goto(file.as_uri())
    expect(page.locator("body[data-ready]")).to_be_attached()
    return page


STILL = 0.25  # seconds without a run after which a page is taken to stand still

LOOKS = 5  # at it, in that time

# Whether the browser was idle several times in a row while no run of the script was under way, and all was drawn.
IS_SETTLED = """(looks) => {
    const isRunning = () =>
        document.querySelector("[data-testid=stApp]")?.dataset.testScriptState !== "notRunning" ||
        document.querySelector("[data-testid=stSkeleton]") !== null; // in place of what is still being loaded
    if (isRunning()) window.idleLooks = 0;
    if (!window.idleIsAwaited) {
        window.idleIsAwaited = true;
        requestIdleCallback(() => {
            window.idleIsAwaited = false;
            window.idleLooks = isRunning() ? 0 : (window.idleLooks || 0) + 1;
        }, { timeout: 1000 }); // a page that never rests is looked at all the same
    }
    return window.idleLooks > looks;
}"""


def settled(page: Page) -> None:
    """Wait until the page has shown what the script sent, and no run of it has been under way for a while.

    The run that a click starts begins later, so a page is looked at several times. A run ends before the browser has
    loaded the code of every control and drawn what the run sent: on a busy machine keys and clicks are lost until then.
    So nothing may be a placeholder any more, and looks are taken in idle callbacks, which wait for the drawing. Looks
    are counted and no time: where the browser is held up, what it will do next is held up with them.
    """
    page.evaluate("window.idleLooks = 0")
    page.wait_for_function(IS_SETTLED, arg=LOOKS, polling=STILL * 1000 / LOOKS)


def start_slow_work(page: Page) -> None:
    """Press the button in place of the figure with which a slow machine asks before it computes, if there is one."""
    button = page.locator(".st-key-screen_figure").get_by_role("button", name=re.compile(r", about \d+ (s|min)$"))
    if button.count():
        button.click()
        settled(page)


def click_at(part: Locator, right: float, down: float) -> None:
    """Click a place in something, in shares of its width and height, once it stands there and nothing covers it."""
    part.scroll_into_view_if_needed()
    box = part.bounding_box()
    assert box is not None
    part.click(position={"x": box["width"] * right, "y": box["height"] * down})


def address_of(page: Page) -> dict[str, str]:
    """The parameters in the address bar."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query, keep_blank_values=True).items()}


def reaches_address(page: Page, holds: Callable[[dict[str, str]], bool]) -> bool:
    """Whether the address bar, which follows the page with some delay, comes to say what it should."""
    for _ in range(300):
        if holds(address_of(page)):
            return True
        page.wait_for_timeout(100)
    return False

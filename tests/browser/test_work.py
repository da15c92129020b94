"""How a page waits for slow work: it says so, can be stopped, answers meanwhile, and comes back without asking."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from tests.browser.conftest import Serve

SCRIPT = Path(__file__).with_name("slow_work.py")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets the work of this test end."""
    return tmp_path / "done"


@pytest.fixture
def opened(serve: Serve, gate: Path, page: Page) -> Page:
    """A page of its own server, so that no work of another test is known."""
    page.goto(serve(SCRIPT, env={"GATE": str(gate)}))
    return page


def stop_of(page: Page) -> Locator:
    """The page's own button: while a run takes long, Streamlit shows another one above it."""
    return page.get_by_test_id("stMain").get_by_role("button", name="Stop")


def test_a_page_goes_on_without_what_is_slow_and_gets_it(opened: Page, gate: Path) -> None:
    """The button names the time; the rest of the page is there, answers a visitor, and the result comes by itself."""
    opened.get_by_role("button", name="Do it, about 60 s").click()
    expect(opened.get_by_text("Slow work: running")).to_be_visible()
    expect(opened.get_by_text("Beside it: waiting, None")).to_be_visible()
    expect(opened.get_by_text("The end of the page")).to_be_visible()
    opened.get_by_label("Typed").fill("something else")
    opened.get_by_label("Typed").press("Enter")
    expect(opened.get_by_text("Typed: something else")).to_be_visible()
    expect(opened.get_by_text("Slow work: running")).to_be_visible()
    gate.touch()
    expect(opened.get_by_text("Beside it: ready, it is done")).to_be_visible()
    expect(opened.get_by_text("Slow work: running")).to_have_count(0)
    assert opened.problems == []  # type: ignore[attr-defined]


def test_what_is_beside_the_page_is_stopped(opened: Page, gate: Path) -> None:
    """Stopped, the button that asked for it is there again."""
    opened.get_by_role("button", name="Do it").click()
    stop_of(opened).click()
    expect(opened.get_by_role("button", name="Do it")).to_be_visible()
    expect(opened.get_by_text("Slow work: running")).to_have_count(0)
    assert not gate.exists()


@pytest.mark.smoke
def test_a_page_waits_for_what_it_needs(opened: Page, gate: Path) -> None:
    """It shows the place in the queue, lets one go on at once, is stopped in a sentence, and ends with the result."""
    typed = opened.get_by_label("Typed")
    typed.fill("need")
    typed.press("Enter")
    expect(opened.get_by_text("Needed work: running")).to_be_visible()
    typed.fill("not so")
    typed.press("Enter")
    expect(opened.get_by_text("The end of the page")).to_be_visible()
    expect(opened.get_by_text("Needed work: running")).to_have_count(0)
    typed.fill("need")
    typed.press("Enter")
    stop_of(opened).click()
    expect(opened.get_by_text("Needed work was stopped. Change anything, or reload the page")).to_be_visible()
    opened.reload()
    typed.fill("need")
    typed.press("Enter")
    expect(opened.get_by_text("Needed work: running")).to_be_visible()
    gate.touch()
    expect(opened.get_by_text("More work: running")).to_be_visible()
    expect(opened.get_by_text("Needed: it is done, it is done")).to_be_visible()
    expect(stop_of(opened)).to_have_count(0)


def test_a_connection_that_breaks_while_a_page_waits_comes_back(page: Page, serve: Serve, gate: Path) -> None:
    """What is typed stays, the work is neither stopped nor begun again, and its result comes to the same page."""
    sockets: list[tuple[WebSocketRoute, WebSocketRoute]] = []
    page.route_web_socket("**/*", lambda socket: sockets.append((socket, socket.connect_to_server())))

    def drop() -> None:
        number = len(sockets)
        for side in sockets[-1]:
            side.close(code=4000, reason="the network went away")
        while len(sockets) == number:
            page.wait_for_timeout(50)

    page.goto(serve(SCRIPT, env={"GATE": str(gate)}))
    typed = page.get_by_label("Typed")
    typed.fill("something")
    typed.press("Enter")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_text("Slow work: running")).to_be_visible()
    drop()
    gate.touch()
    expect(page.get_by_text("Beside it: ready, it is done")).to_be_visible()
    expect(page.get_by_text("Typed: something")).to_be_visible()
    gate.unlink()
    typed.fill("need")
    typed.press("Enter")
    expect(page.get_by_text("Needed work: running")).to_be_visible()
    drop()
    gate.touch()
    expect(page.get_by_text("Needed: it is done, it is done")).to_be_visible()
    expect(typed).to_have_value("need")
    assert gate.with_name("begun").read_text(encoding="utf-8").count("begun") == 3

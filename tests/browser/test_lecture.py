"""What a window shows: in a lecture every page's question, picture and reading; in a narrow one the picture first."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import settled
from tests.selection import mark_cases

PAGES = (
    "predict",
    "attention",
    "compare",
    "why",
    "layers",
    "causes",
    "neurons",
    "heads",
    "roles",
    "prune",
    "score",
    "images",
    "inside",
)
PROJECTORS = ((1280, 720), (1920, 1080))
FIGURES = "[data-testid=stPlotlyChart], [data-testid^=stBidiComponentIsolated]"
# Boxes that a reader sees; a figure is not smaller than can be read, nor wider or higher than its place.
SEEN = """
(figures) => {
    const main = document.querySelector("[data-testid=stMain]");
    const box = (node) => {
        const { left, top, right, bottom } = node.getBoundingClientRect();
        return [left, top, right, bottom].map(Math.round);
    };
    const seen = (node) => node.checkVisibility() && node.getBoundingClientRect().height > 30;
    const all = (selector) => [...document.querySelectorAll(selector)].filter(seen).map(box);
    return {
        title: [...document.querySelectorAll(".st-key-screen_title :is(h1, h2)")].map((node) => {
            const words = document.createRange(); // without the room that a heading keeps below itself
            words.selectNodeContents(node);
            return box(words);
        }),
        picture: all(".st-key-screen_figure"),
        figures: all(figures.split(", ").map((one) => `.st-key-screen_figure ${one}`).join(", ")),
        reading: [...document.querySelectorAll(".st-key-screen_reading p")].map(box),
        width: [main.scrollWidth, main.clientWidth],
        scrolled: main.scrollTop,
    };
}
"""


def opened(page: Page, base: str, path: str, size: tuple[int, int], query: str = "") -> dict[str, list]:
    """A page whose work is done, in a window of a size: the boxes (left, top, right, bottom) of what it shows."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{base}/{path}{query}")
    expect(page.locator(".st-key-screen_reading p").first).to_be_attached()
    expect(page.locator("[class*='st-key-stop_'], [data-testid=stSkeleton]")).to_have_count(0)
    expect(page.locator(FIGURES).first).to_be_visible()
    return at_rest(page)


def resized(page: Page, size: tuple[int, int]) -> dict[str, list]:
    """The boxes of the same page when its window has another size."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    return at_rest(page)


def at_rest(page: Page) -> dict[str, list]:
    """The boxes when no run is under way and nothing moves any more."""
    settled(page)
    before: dict[str, list] = {}
    for _ in range(200):
        page.wait_for_timeout(150)
        after: dict[str, list] = page.evaluate(SEEN, FIGURES)
        if after == before and after["figures"]:
            break
        before = after
    return after


@pytest.mark.parametrize("path", mark_cases(PAGES, pytest.mark.smoke, lambda path: path == "predict"))
def test_a_projector_shows_question_picture_and_reading_together(app: str, page: Page, path: str) -> None:
    """In lecture mode title, figures and reading of every page lie in the window, one under the other."""
    for size in PROJECTORS:
        seen = resized(page, size) if size != PROJECTORS[0] else opened(page, app, path, size, "?lecture=1")
        ((_, _, right, title),) = seen["title"]
        ((_, top, _, bottom),) = seen["picture"]
        assert seen["scrolled"] == 0 and 0 < right <= size[0], size
        assert title <= top, size
        readings = [line[1] for line in seen["reading"]], [line[3] for line in seen["reading"]]
        assert bottom <= min(readings[0]) and max(readings[1]) <= size[1], (size, readings)
        assert bottom - top >= 0.45 * size[1], ("the picture has the larger part of the window", size)
        # The first figure is whole; those behind it in a column may be scrolled to.
        for left, first, end, last in seen["figures"][:1]:
            assert top - 1 <= first and last <= bottom + 1 and left >= 0 and end <= size[0], (size, seen["figures"])


def test_after_the_switch_to_a_lecture_no_side_bar_is_left(app: str, page: Page) -> None:
    """Lecture mode, switched on in the side bar, leaves no empty bar beside the picture, and the text a click away."""
    opened(page, app, "predict", (1280, 720))
    page.get_by_test_id("stSidebar").get_by_text("Lecture mode").click()
    expect(page.locator(".st-key-fold_settings")).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    assert page.locator(".st-key-screen_title :is(h1, h2)").bounding_box()["x"] < 100
    page.locator(".st-key-fold_text button").click()
    expect(page.get_by_label("Sentence", exact=True)).to_have_value("She opened the door and walked in.")


@pytest.mark.parametrize("path", mark_cases(PAGES, pytest.mark.smoke, lambda path: path == "attention"))
def test_a_narrow_window_shows_the_picture_first_and_nothing_beside_it(app: str, page: Page, path: str) -> None:
    """At 800 and 390 pixels the side bar is closed, nothing reaches out of the window, controls follow the picture."""
    widths = (390, 800) if PAGES.index(path) % 2 else (800, 390)  # opened in either
    for width in widths:
        seen = resized(page, (width, 844)) if width != widths[0] else opened(page, app, path, (width, 844))
        expect(page.locator('[data-testid=stSidebar][aria-expanded="true"]')).to_have_count(0)
        assert seen["width"][0] == seen["width"][1], width
        ((left, top, right, bottom),) = seen["picture"]
        assert left >= 0 and right <= width
        for place in ("controls", "text", "target"):
            for box in page.locator(f".st-key-screen_{place}").all():
                assert box.bounding_box()["y"] >= bottom - 1, (width, place)
        assert top < 600, ("the picture begins on the first screen", width)


@pytest.mark.parametrize("size", PROJECTORS)
def test_a_lecture_shows_the_lessons(app: str, page: Page, size: tuple[int, int]) -> None:
    """In lecture mode the page of all lessons is not blank: each lesson has its height, the next one is in sight."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{app}/learn?lecture=1")
    cards = page.locator("[class*=st-key-lesson_card_]")
    expect(cards).to_have_count(13)
    settled(page)
    heights = cards.evaluate_all("cards => cards.map((card) => card.getBoundingClientRect().height)")
    assert min(heights) >= 60, heights
    following = page.locator(".st-key-next_lesson button").bounding_box()
    assert following is not None and following["y"] + following["height"] <= size[1]


def test_type_of_figures_grows_with_the_type_of_a_lecture(app: str, page: Page) -> None:
    """A larger projector shows the labels of a figure as much larger as the text beside it."""
    sizes = {}
    for size in PROJECTORS:
        opened(page, app, "predict", size, "?lecture=1")
        label = page.locator(".st-key-screen_figure .js-plotly-plot text").first
        root = float(page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)"))
        sizes[size] = (root, label.evaluate("node => node.getBoundingClientRect().height"))
    small, large = (sizes[size] for size in PROJECTORS)
    assert large[1] / small[1] == pytest.approx(large[0] / small[0], rel=0.12), sizes

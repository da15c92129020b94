"""The token strip, the grid of heads and the figures, in a real browser on a page of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Serve
from tests.hostile import HOSTILE
from viz_app.figures.style import DIVERGING, SEQUENTIAL

SCRIPT = """
import json
import time

import numpy as np
import streamlit as st

from viz_app.components.head_grid.view import head_grid
from viz_app.components.token_strip import Chip
from viz_app.components.token_strip.view import token_strip
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import Look, use_look

HOSTILE = json.loads({hostile!r})

st.set_page_config(layout="wide")
state = st.session_state
seen = state.setdefault("seen", {{"called": [], "returned": [], "runs": 0}})
seen["runs"] += 1
show = st.query_params.get("show")
signed = "signed" in st.query_params
look = Look(dark=st.context.theme.type == "dark")


def called(click):
    seen["called"].append(str(click))


def sentence():
    words = ["The", "un", "##believ", "##able", "cat", "sat"]
    numbers = [0, 1, 1, 1, 2, 3]
    masked = state.setdefault("masked", [])
    chips = [Chip("[CLS]", special=True)]
    chips += [
        Chip(word, title=f"piece {{i}}", word=n, side="A", masked=n in masked, target=i == 4)
        for i, (word, n) in enumerate(zip(words, numbers))
    ]
    return [*chips, Chip("[SEP]", special=True), Chip("Yes", word=4, side="B")]


def mask(click):
    called(click)
    state.masked.append(click.word)


st.button("again")
if show == "strip":
    clicked = token_strip(sentence(), key="strip", on_click=mask, disabled="disabled" in st.query_params)
    if clicked:
        seen["returned"].append(str(clicked))
    time.sleep(float(st.query_params.get("sleep", 0)))
if show == "hostile":
    token_strip([Chip(text, title=text, word=i) for i, text in enumerate(HOSTILE)], key="strip")
    grid = [HOSTILE]
    head_grid(layers=1, heads=len(HOSTILE), titles=grid, values=np.ones((1, len(HOSTILE))), key="grid")
    n = len(HOSTILE)
    with use_look(look):
        figure = attention_heatmap(np.eye(n), HOSTILE, HOSTILE, signed=False, title=HOSTILE[0])
        st.plotly_chart(figure, theme=None, key="map")
        st.plotly_chart(prediction_bars(HOSTILE, [0.1] * n), theme=None, key="bars")
if show == "numbers":
    shades = (("#112233", "#ffffff"), ("#ddeeff", "#000000"))
    door = Chip("door", word=0, number="−0.42", shades=shades)
    token_strip([door, Chip("[SEP]", special=True, number="0.1")], key="n")
if show == "long":
    target = int(st.query_params.get("target", -1))
    chips = [Chip(f"w{{i}}", word=i, side="A", target=i == target) for i in range(512)]
    token_strip(chips, key="strip", on_click=called)
if show == "select":
    pictures = np.zeros((2, 3, 2, 2), np.uint8)
    pictures[0, 0] = [[0, 255], [128, 128]]
    clicked = head_grid(
        layers=2, heads=3, thumbnails=pictures, signed=signed, selected=state.get("chosen", (0, 1)), off=[(1, 2)],
        titles=[["zero", "one", "two"]] * 2, key="grid",
        order=np.array([[2, 0, 1], [1, 2, 0]]) if "ordered" in st.query_params else None,
    )
    if clicked:
        seen["returned"].append(str(clicked))
        state.chosen = (clicked.layer, clicked.head)
        st.rerun()
if show == "line":
    line = np.broadcast_to(255 * np.eye(28, dtype=np.uint8), (2, 3, 28, 28))
    with st.container(width=100):
        head_grid(layers=2, heads=3, thumbnails=line, key="grid")
if show == "switch":
    off = state.setdefault("off", [])

    def flip(click):
        called(click)
        off.append((click.layer, click.head)) if click.head is not None and click.layer is not None else None

    values = np.array([[0.5, 0.25, 0.0], [0.1, np.nan, 1.0]])
    head_grid(layers=2, heads=3, values=values, mode="switch", off=off, key="grid", on_click=flip)
if show == "pruned":
    there = np.array([[False, True, True], [True, False, True]])
    head_grid(layers=2, heads=3, thumbnails=np.full((2, 3, 4, 4), 200, np.uint8), existing=there, key="grid")
st.text(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def address(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    script: Path = tmp_path_factory.mktemp("scratch") / "scratch.py"
    script.write_text(SCRIPT.format(hostile=json.dumps(HOSTILE)), encoding="utf-8")
    return serve(script)


def seen(page: Page) -> dict:
    return json.loads(page.get_by_test_id("stText").inner_text())


def until(page: Page, part: str) -> None:
    """Wait until the page reports `part`, a piece of its JSON."""
    expect(page.get_by_test_id("stText")).to_contain_text(part)


def rerun(page: Page) -> None:
    runs = seen(page)["runs"]
    page.get_by_role("button", name="again").click()
    until(page, f'"runs": {runs + 1}')


def words(page: Page) -> Locator:
    return page.locator(".strip button")


def test_a_pruned_head_has_no_picture_and_cannot_be_chosen(page: Page, address: str) -> None:
    """Its cell is empty, disabled and called pruned; the keyboard starts beside it and steps over it."""
    page.goto(f"{address}/?show=pruned")
    cells = page.locator(".grid button.cell")
    expect(cells).to_have_count(6)
    for number in range(6):
        gone = number in (0, 4)
        expect(cells.nth(number)).to_be_disabled() if gone else expect(cells.nth(number)).to_be_enabled()
        expect(cells.nth(number).locator("img")).to_be_visible(visible=not gone)
        expect(cells.nth(number)).to_have_attribute("aria-label", re.compile(r"pruned$" if gone else r"H\d$"))
    expect(cells.nth(1)).to_have_attribute("tabindex", "0")
    cells.nth(3).focus()
    page.keyboard.press("ArrowRight")
    expect(cells.nth(5)).to_be_focused()


@pytest.mark.smoke
def test_a_click_reaches_python_once(page: Page, address: str) -> None:
    """A click on any piece gives its word, once by callback and once by return, and a rerun does not repeat it."""
    page.goto(f"{address}/?show=strip")
    page.get_by_text("##able", exact=True).click()
    until(page, "TokenClick(word=1)")
    rerun(page)
    rerun(page)
    assert seen(page)["called"] == seen(page)["returned"] == ["TokenClick(word=1)"]
    expect(page.get_by_role("button", name="un ##believ ##able")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="cat").click()
    until(page, "TokenClick(word=2)")
    rerun(page)
    assert seen(page)["called"] == ["TokenClick(word=1)", "TokenClick(word=2)"]


def test_clicks_during_a_run_are_not_lost(page: Page, address: str) -> None:
    """Clicks that come faster than the page can run are all delivered, each once and in order."""
    page.goto(f"{address}/?show=strip&sleep=0.6")
    expect(words(page)).to_have_count(5)
    # From inside the page: the test's own clicks would wait for one another.
    page.locator(".strip").evaluate(
        """(strip, order) => order.forEach(
            (n, i) => setTimeout(() => strip.querySelectorAll("button")[n].click(), 40 * i)
        )""",
        order := [0, 2, 3, 4, 0],
    )
    expected = [f"TokenClick(word={word})" for word in order]
    until(page, json.dumps(expected))
    rerun(page)
    assert seen(page)["called"] == expected


def test_pieces_of_one_word_are_one_button(page: Page, address: str) -> None:
    """One button a word, however many pieces; special tokens are no buttons; the sides and the target are marked."""
    page.goto(f"{address}/?show=strip")
    expect(words(page)).to_have_count(5)
    assert [words(page).nth(i).locator(".piece").count() for i in range(5)] == [1, 3, 1, 1, 1]
    expect(page.locator(".strip > .piece.special")).to_have_text(["[CLS]", "[SEP]"])
    expect(page.locator(".strip > .side")).to_have_text(["A", "B"])
    expect(page.get_by_role("button", name="cat, sentence A, target")).to_have_count(1)
    tints = [
        page.get_by_text(t, exact=True).evaluate("e => getComputedStyle(e).backgroundColor") for t in ("sat", "Yes")
    ]
    assert tints[0] != tints[1]


def test_the_strip_by_keyboard(page: Page, address: str) -> None:
    """Arrows move, Home and End jump, Enter and Space click, a key held down clicks once, and the focus stays."""
    page.goto(f"{address}/?show=strip")
    words(page).first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="cat")).to_be_focused()
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    until(page, "TokenClick(word=2)")
    expect(page.get_by_role("button", name="cat")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="cat")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("Space")
    until(page, "TokenClick(word=4)")
    page.keyboard.press("Home")
    expect(words(page).first).to_be_focused()
    assert seen(page)["called"] == ["TokenClick(word=2)", "TokenClick(word=4)"]
    assert page.locator('.strip [tabindex="0"]').count() == 1


def test_a_disabled_strip_takes_no_click(page: Page, address: str) -> None:
    """No word of a disabled strip can be pressed."""
    page.goto(f"{address}/?show=strip&disabled=1")
    expect(words(page)).to_have_count(5)
    assert all(words(page).nth(i).is_disabled() for i in range(5))


def test_the_tooltip_of_a_piece(page: Page, address: str) -> None:
    """Hovering a piece shows its title; leaving hides it."""
    page.goto(f"{address}/?show=strip")
    page.get_by_text("##believ", exact=True).hover()
    expect(page.get_by_role("tooltip")).to_have_text("piece 2")
    page.mouse.move(5, 600)
    expect(page.locator(".tip")).to_be_hidden()


def test_hostile_tokens_are_only_text(page: Page, address: str) -> None:
    """Tags, scripts, terminators, bidi marks and 10,000 characters show as they are written, and nothing runs."""
    page.goto(f"{address}/?show=hostile")
    expect(words(page)).to_have_count(len(HOSTILE))
    expect(page.locator(".js-plotly-plot .hm").first).to_be_visible()
    assert [words(page).nth(i).text_content() for i in range(len(HOSTILE))] == HOSTILE
    # The strip holds nothing but its own kinds of elements.
    kinds = page.locator(".strip").evaluate(
        "e => [...new Set([...e.querySelectorAll('*')].map(x => x.localName))].sort()"
    )
    assert kinds == ["button", "span"]
    widths = page.locator(".strip .piece").evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
    assert max(widths) < 400
    for i in (0, 4, -1):
        words(page).nth(i).hover()
        expect(page.get_by_role("tooltip").first).to_contain_text(HOSTILE[i][:20])
    page.get_by_role("button", name="L0 H1,").hover()
    expect(page.locator(".tip").last).to_have_text(HOSTILE[1])

    drawn = page.locator(".js-plotly-plot .ytick text, .js-plotly-plot .y2tick text").all_text_contents()
    for label in ("<b>bold</b>", "&lt;i&gt;"):
        assert sum(label in text for text in drawn) == 2, drawn
    assert page.locator(".js-plotly-plot svg a").count() == 0
    assert page.evaluate("window.ran") is None
    assert page.problems == []


@pytest.mark.parametrize(("scheme", "colour"), [("light", "rgb(17, 34, 51)"), ("dark", "rgb(221, 238, 255)")])
def test_numbers_stand_under_the_tokens(page: Page, address: str, scheme: str, colour: str) -> None:
    """A chip shows its number, is heard with it, and has the ground of the page's own theme."""
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/?show=numbers")
    expect(page.locator(".number")).to_have_text(["−0.42", "0.1"])
    expect(page.locator(".piece").first).to_have_css("background-color", colour)
    expect(words(page).first).to_have_attribute("aria-label", "door −0.42")


def test_512_chips(page: Page, address: str) -> None:
    """The longest input is all there, in a few lines that scroll; its words are reached by mouse and by keyboard."""
    page.goto(f"{address}/?show=long")
    expect(words(page)).to_have_count(512)
    line = words(page).first.evaluate("e => e.getBoundingClientRect().height")
    size = page.locator(".strip").evaluate("e => [e.clientHeight, e.scrollHeight]")
    assert size[0] < 3.5 * line < 10 * line < size[1]
    words(page).last.click()
    until(page, "TokenClick(word=511)")
    assert page.locator(".strip").evaluate("e => e.scrollTop") > 0
    words(page).last.press("Home")
    expect(words(page).first).to_be_focused()
    assert page.locator(".strip").evaluate("e => e.scrollTop") == 0
    words(page).first.press("End")
    expect(words(page).last).to_be_focused()
    expect(words(page).last).to_be_in_viewport(ratio=0.9)


def test_a_long_text_opens_at_its_target(page: Page, address: str) -> None:
    """The word that is being explained is in sight, wherever it is; without one the text begins at its beginning."""
    page.goto(f"{address}/?show=long&target=400")
    expect(page.locator(".target")).to_be_in_viewport(ratio=0.9)
    page.goto(f"{address}/?show=long")
    expect(words(page).first).to_be_in_viewport(ratio=0.9)


def test_a_head_is_chosen(page: Page, address: str) -> None:
    """A click chooses a head, once, also where the page reruns itself; its state is said in words."""
    page.goto(f"{address}/?show=select")
    expect(page.get_by_role("button", name="L0 H1")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="L1 H2, off")).to_have_class("cell picture off")
    page.get_by_role("button", name="L1 H0").click()
    until(page, "HeadClick(layer=1, head=0)")
    expect(page.get_by_role("button", name="L1 H0")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="L0 H1")).to_have_attribute("aria-pressed", "false")
    rerun(page)
    assert seen(page)["returned"] == ["HeadClick(layer=1, head=0)"]
    page.get_by_role("button", name="L0 H2").hover()
    expect(page.get_by_role("tooltip")).to_have_text("two")


def test_heads_in_an_order_of_their_own(page: Page, address: str) -> None:
    """Cells stand, and arrows walk, in the order given for each layer; a click still gives the head's number."""
    page.goto(f"{address}/?show=select&ordered=1")
    cells = page.locator("button.cell")
    expect(cells).to_have_count(6)
    assert [cells.nth(i).get_attribute("data-head") for i in range(6)] == ["2", "0", "1", "1", "2", "0"]
    page.get_by_role("button", name="L0 H2").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="L0 H0")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="L1 H2")).to_be_focused()
    page.keyboard.press("Enter")
    until(page, "HeadClick(layer=1, head=2)")


# The bytes of a picture as it is drawn: red, green, blue and cover of each pixel.
PIXELS = """
async (image) => {
    await image.decode();
    const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return [...context.getImageData(0, 0, canvas.width, canvas.height).data];
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("signed", [False, True])
def test_thumbnails_have_the_colours_of_the_figures(page: Page, address: str, scheme: str, signed: bool) -> None:
    """The lowest, highest and middle byte are painted in the first, last and middle colour of the one colour rule."""
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/?show=select{'&signed=1' if signed else ''}")
    expect(page.get_by_role("button", name="L0 H0")).to_be_visible()
    pixels = page.locator(".cell img").first.evaluate(PIXELS)
    colours = (DIVERGING if signed else SEQUENTIAL)[scheme == "dark"]

    def rgb(colour: str) -> list[int]:
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]

    assert pixels[0:3] == rgb(colours[0])
    assert pixels[4:7] == rgb(colours[-1])
    # Byte 128 lies half a step above the middle stop.
    assert all(abs(a - b) <= 8 for a, b in zip(pixels[8:11], rgb(colours[len(colours) // 2]), strict=True))


def test_a_thumbnail_smaller_than_its_map_loses_no_line(page: Page, address: str) -> None:
    """On fewer pixels than the map has rows, its diagonal is still in every row of them, in its full colour."""
    page.goto(f"{address}/?show=line")
    picture = page.locator(".cell img").first
    expect(picture).to_be_visible()
    width, height = picture.evaluate("async i => { await i.decode(); return [i.naturalWidth, i.naturalHeight]; }")
    shown = picture.bounding_box()
    assert shown is not None and width == height == round(shown["width"]) < 28
    pixels = picture.evaluate(PIXELS)
    last = SEQUENTIAL.light[-1]
    assert all(
        pixels[4 * (row * width + row) :][:3] == [int(last[i : i + 2], 16) for i in (1, 3, 5)] for row in range(height)
    )


def test_heads_layers_and_columns_are_switched(page: Page, address: str) -> None:
    """A cell switches a head, the label of a row its layer, the label of a column that head in every layer."""
    page.goto(f"{address}/?show=switch")
    page.get_by_role("button", name="L0 H1").click()
    until(page, "HeadClick(layer=0, head=1)")
    expect(page.get_by_role("button", name="L0 H1, 0.25, off")).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="switch layer 1").click()
    until(page, "HeadClick(layer=1, head=None)")
    page.get_by_role("button", name="switch head 2 in every layer").click()
    until(page, "HeadClick(layer=None, head=2)")
    assert len(seen(page)["called"]) == 3
    expect(page.get_by_role("button", name="L1 H1, pruned")).to_be_disabled()


def test_the_grid_by_keyboard(page: Page, address: str) -> None:
    """Arrows move over cells and labels and past a pruned head; Enter and Space click once; the focus stays."""
    page.goto(f"{address}/?show=switch")
    page.get_by_role("button", name="L1 H0").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="L1 H2")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    until(page, "HeadClick(layer=0, head=2)")
    expect(page.get_by_role("button", name=re.compile(r"^L0 H2, .*off$"))).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    until(page, "HeadClick(layer=0, head=None)")
    assert len(seen(page)["called"]) == 2
    assert page.locator('.grid [tabindex="0"]').count() == 1


def test_no_request_leaves_this_machine(page: Page, address: str) -> None:
    """Every address the page asks for is the app's own, and the page reports no error."""
    for show in ("strip", "hostile", "select", "switch"):
        page.goto(f"{address}/?show={show}")
        expect(page.get_by_test_id("stText")).to_be_visible()
        expect(page.locator(".strip, .grid").first).to_be_visible()
    outside = [url for url in page.requested if urlsplit(url).hostname not in ("localhost", None)]
    assert outside == []
    assert page.problems == []

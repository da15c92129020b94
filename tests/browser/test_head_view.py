"""The heads of a layer as curves and as a matrix, in a real browser on a page of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Serve
from tests.hostile import HOSTILE

SCRIPT = """
import json
from pathlib import Path

import numpy as np
import streamlit as st

from viz_app.components.attention_view import Vectors, ViewChoice
from viz_app.components.attention_view.everywhere import pack_all_maps
from viz_app.components.attention_view.view import attention_view
from viz_app.components.head_grid.view import head_grid
from viz_app.tokens import Combined, Token

st.set_page_config(layout="wide")
state, asked = st.session_state, st.query_params
seen = state.setdefault("seen", [])
texts = json.loads(Path(__file__).with_name("texts.json").read_text())[asked.get("texts", "plain")]
n, heads = len(texts), int(asked.get("heads", 3))
maps = np.random.default_rng(0).dirichlet(np.full(n, 0.3), (heads, n)).astype(np.float32)
if "line" in asked:
    maps[0] = np.eye(n) * 0.999 + 0.001 / n
if "previous" in asked:  # every row looks at the one before it, the later ones more surely
    sure = np.linspace(0.2, 0.98, n)[:, None]
    maps[0] = sure * np.eye(n, k=-1) + (1 - sure) / n * 0.1
    maps[0, 0, 0] = 0.9
    maps[0, 1] = 1 / n
if "holes" in asked:
    maps[0, 1, :2] = np.nan
    maps[2] = np.nan


def called(choice):
    seen.append(str(choice))
    state.choice = choice


tokens = [Token(text, 10 + i, "A") for i, text in enumerate(texts)]
keys, vectors, combined = tokens, None, None
if "patches" in asked:  # queries and keys need not be the same sequence
    keys = [Token(f"row {i // 4}, column {i % 4}", i) for i in range(16)]
    maps = np.random.default_rng(1).dirichlet(np.full(16, 0.3), (heads, n)).astype(np.float32)
if asked.get("mode") == "neuron":
    draw = np.random.default_rng(2)
    q, k = draw.normal(size=(n, 32)).astype(np.float32), draw.normal(size=(len(keys), 32)).astype(np.float32)
    far = draw.normal(size=(n, len(keys))).astype(np.float32) if "far" in asked else None
    scores = q @ k.T / np.sqrt(32) + (0 if far is None else far)
    maps[0] = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    vectors = None if "gone" in asked else Vectors(q, k, far)
if "gone" in asked:
    maps[0] = np.nan
if "combined" in asked:
    combined = Combined("average of all", maps.mean(0))
choice, everyone = state.get("choice", ViewChoice(1, (0,))), None
if "grid" in asked:
    of_all = np.random.default_rng(3).dirichlet(np.full(n, 0.3), (4, heads, n)).astype(np.float32)
    there, off = np.ones((4, heads), bool), np.arange(heads) == np.ones((4, 1))
    everyone, maps = pack_all_maps(of_all, existing=there, off=off, signed=False), of_all[choice.layer]
    head_grid(
        layers=4, heads=heads, values=of_all.max((-2, -1)), key="grid", selected=(choice.layer, choice.heads[0]),
        on_click=lambda click: called(ViewChoice(click.layer, (click.head,))),
    )
attention_view(
    maps, tokens, keys, choice=state.get("choice", choice), layers=4, off=[1], preload=everyone, grid="grid",
    mode=asked.get("mode", "curves"), signed="signed" in asked, combined=combined,
    vectors=vectors, notes=["a note of the page"] if "notes" in asked else [], key="view", on_change=called,
)
st.text(json.dumps(seen))
row = maps[0, min(2, n - 1)]
st.html(f"<p id='exact'>{' '.join(repr(float(x)) for x in np.sort(row)[::-1][:3])}</p>")
st.html(f"<p id='cap'>{float(np.sort(maps[0], None)[::-1][maps[0].size // 1000])}</p>")
st.html(f"<p id='row'>{' '.join(repr(float(x)) for x in row)}</p>")
"""
TEXTS = {
    "plain": ["The", "cat", "sat", "##s", "on", "it"],
    "hostile": HOSTILE,
    "one": ["alone"],
    "same": ["buffalo"] * 512,
    "strange": ["שלום", "\u202eevil", "漢字", "\u200b", "\u200d\u200d", "", "é" * 40, "🏳️‍🌈"],
}


@pytest.fixture(scope="module")
def address(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("view")
    (folder / "view.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    return serve(folder / "view.py")


def opened(page: Page, address: str, query: str = "") -> None:
    page.goto(f"{address}/?{query}")
    expect(page.get_by_test_id("stText")).to_be_visible()
    said = "zoom" if "matrix" in query else "pruned" if "gone" in query else "exact" if "neuron" in query else "edges"
    expect(page.locator(".note")).to_contain_text(said)


def until(page: Page, part: str) -> None:
    """Wait until Python has heard `part`."""
    expect(page.get_by_test_id("stText")).to_contain_text(part)


def painted(page: Page) -> int:
    """How many pixels of the canvas hold something."""
    return page.locator(".columns canvas").evaluate(
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v).length"
    )


def head(page: Page, number: int) -> Locator:
    return page.locator(f'.head[data-head="{number}"]')


def query(page: Page, number: int) -> Locator:
    return page.locator(".column.query .token").nth(number)


@pytest.mark.smoke
def test_a_click_adds_a_head_and_a_double_click_shows_it_alone(page: Page, address: str) -> None:
    """Python hears which heads are drawn, the opened one first; the last one cannot be taken away."""
    opened(page, address)
    alone = painted(page)
    head(page, 2).click()
    until(page, "heads=(0, 2)")
    expect(head(page, 2)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".note")).to_contain_text("of 72 edges")
    assert painted(page) > alone > 0
    head(page, 1).dblclick()
    until(page, "heads=(1,)")
    expect(page.locator(".note")).to_contain_text("H1 is switched off")
    head(page, 1).click()
    expect(head(page, 1)).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="the next layer").click()
    until(page, "layer=2, heads=(1,)")


def test_a_token_shows_its_row_in_exact_numbers(page: Page, address: str) -> None:
    """Hovering a query lists what it looks at, in float32 and not in bytes; hovering a key, who looks at it."""
    opened(page, address)
    query(page, 2).hover()
    expect(page.locator(".numbers .title")).to_have_text("Attention from sat (12)")
    exact = page.locator("#exact").inner_text().split()
    numbers = page.locator(".numbers td.number")
    expect(numbers.first).not_to_contain_text("≈")
    assert [float(numbers.nth(i).get_attribute("title")) for i in range(3)] == pytest.approx(
        [float(x) for x in exact], rel=1e-8
    )
    assert float(numbers.last.get_attribute("title")) == pytest.approx(1, abs=1e-6)
    page.locator(".column.key .token").nth(1).hover()
    expect(page.locator(".numbers .title")).to_have_text("Attention to cat (11)")
    expect(numbers.first).not_to_contain_text("≈")
    page.mouse.move(5, 5)
    expect(page.locator(".numbers .title")).to_have_text("Strongest edges")


def test_selected_tokens_are_added_up(page: Page, address: str) -> None:
    """Two queries together give 2, Python hears their positions, and Escape lets go of them."""
    opened(page, address)
    query(page, 1).click()
    query(page, 4).click()
    page.mouse.move(5, 5)
    until(page, "positions=(11, 14)")
    expect(page.locator(".numbers .title")).to_have_text("Attention from 2 tokens, added up")
    expect(page.locator(".numbers .number").last).to_have_text("2.0000")
    expect(query(page, 4)).to_have_attribute("aria-selected", "true")
    query(page, 4).press("Escape")
    until(page, "positions=()")


def test_many_heads_are_averaged(page: Page, address: str) -> None:
    """Four heads have no room beside each other: their mean is listed, and each one's number on hover."""
    opened(page, address, "heads=24")
    for number in (3, 5, 23):
        head(page, number).click()
    until(page, "heads=(0, 3, 5, 23)")
    query(page, 2).hover()
    expect(page.locator(".numbers th.number")).to_have_text("mean of 4 heads")
    numbers = page.locator(".numbers td.number")
    expect(numbers.last).to_have_text("1.0000")
    each = [float(one.split()[1]) for one in numbers.first.get_attribute("title").splitlines()]
    assert len(each) == 4 and float(numbers.first.inner_text()) == pytest.approx(sum(each) / 4, abs=5e-5)


def test_the_view_by_keyboard(page: Page, address: str) -> None:
    """Heads and tokens are reached with arrows and chosen with Enter or Space; the slider with arrows."""
    opened(page, address)
    head(page, 0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, "heads=(0, 1)")
    page.keyboard.press("Shift+Enter")
    until(page, "heads=(1,)")
    query(page, 0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".numbers .title")).to_have_text("Attention to cat (11)")
    page.keyboard.press("Space")
    until(page, "side='key', positions=(11,)")
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    until(page, "kept_share=0.75")
    assert page.locator('.view [tabindex="0"]:visible').count() == 3


def test_the_kept_share_counts_edges(page: Page, address: str) -> None:
    """All edges of a map that has no zeros hold 100 %, fewer hold 5 %."""
    opened(page, address)

    def shown() -> int:
        return int(page.locator(".note").inner_text().split()[0])

    some = shown()
    for key, more in (("End", True), ("Home", False)):
        page.get_by_role("slider").press(key)
        # The view draws a frame later: what stands there at once may still be the last count.
        for _ in range(200):
            if shown() != some and (shown() > some) == more:
                break
            page.wait_for_timeout(50)
        assert shown() != some and (shown() > some) == more


def test_every_row_has_its_strongest_line(page: Page, address: str) -> None:
    """A head that looks at the token before has a line from every token, and a row without a favourite all of its."""
    opened(page, address, "previous=1")
    expect(page.get_by_text("strongest 70% of each row")).to_be_visible()
    expect(page.locator(".note")).to_contain_text("11 of 36 edges")
    inked = """c => {
        const { width, height } = c, rows = 6, data = c.getContext("2d").getImageData(2, 0, 1, height).data;
        return Array.from({ length: rows }, (_, row) => {
            const from = Math.round((row * height) / rows), to = Math.round(((row + 1) * height) / rows);
            return Array.from({ length: to - from }, (_, y) => data[4 * (from + y) + 3]).some((alpha) => alpha > 0);
        });
    }"""
    assert page.locator(".columns canvas").evaluate(inked) == [True] * 6
    page.get_by_role("slider").press("Home")
    until(page, "kept_share=0.05")
    expect(page.locator(".note")).to_contain_text("11 of 36 edges")
    assert page.locator(".columns canvas").evaluate(inked) == [True] * 6
    query(page, 1).hover()
    expect(page.locator(".note")).to_contain_text("all edges of this token (threshold ignored)")


def test_hostile_tokens_are_only_text(page: Page, address: str) -> None:
    """Tags, terminators, bidi marks and 10,000 characters show as written, and nothing runs."""
    opened(page, address, "texts=hostile")
    kinds = page.locator(".view").evaluate("e => [...new Set([...e.querySelectorAll('*')].map(x => x.localName))]")
    assert set(kinds) <= {
        "div", "span", "button", "label", "input", "canvas", "table", "caption", "tr", "td", "th", "b",
    }  # fmt: skip
    for i, text in enumerate(HOSTILE[:-1]):
        assert query(page, i).text_content() == text[:60]
    query(page, len(HOSTILE) - 1).hover()
    expect(page.get_by_role("tooltip")).to_contain_text("xxx")
    assert page.locator(".column.query").evaluate("e => e.clientWidth") < 300
    query(page, 0).hover()
    expect(page.locator(".numbers .title b")).to_have_text(HOSTILE[0])
    assert page.evaluate("window.ran") is None
    assert page.problems == []


@pytest.mark.parametrize(
    ("query_string", "tokens", "note"),
    [
        ("texts=one", 2, "1 of 1 edges"),
        ("texts=strange", 16, "of 64 edges"),
        ("heads=24", 12, "of 36 edges"),
        ("heads=1", 12, "of 36 edges"),
        ("signed=1", 12, "of 36 edges"),
        ("holes=1", 12, "2 values of H0 are not numbers (NaN) and are not drawn"),
    ],
)
def test_unusual_maps_are_drawn(page: Page, address: str, query_string: str, tokens: int, note: str) -> None:
    """One token, strange scripts, many heads or one, signs and holes: all are there, and nothing breaks."""
    opened(page, address, query_string)
    expect(page.locator(".token")).to_have_count(tokens)
    expect(page.locator(".note")).to_contain_text(note)
    assert painted(page) > 0
    if "holes" in query_string:
        expect(page.get_by_role("button", name="H2, pruned")).to_be_disabled()
    assert page.problems == []


def test_512_tokens_stay_quick_to_draw(page: Page, address: str) -> None:
    """512 equal words are all there, in a canvas no larger than the screen, and the last one can be chosen."""
    opened(page, address, "texts=same")
    expect(page.locator(".token")).to_have_count(1024)
    height = page.locator(".columns canvas").evaluate("c => c.height")
    assert height < 2000 and painted(page) > 0
    query(page, 511).click()
    until(page, "positions=(521,)")


def test_the_wheel_scrolls_the_page_over_the_curves_and_the_text_over_its_tokens(page: Page, address: str) -> None:
    """Of a long text, too: the curves swallow no wheel, and the tokens can still be gone through."""
    page.set_viewport_size({"width": 1000, "height": 400})
    opened(page, address, "texts=same")
    scrolled = "document.querySelector('[data-testid=stMain]').scrollTop"
    page.locator(".columns canvas").hover()
    page.mouse.wheel(0, 60)
    page.wait_for_function(f"{scrolled} > 0")
    stage = page.locator(".stage")
    assert stage.evaluate("e => e.scrollTop") == 0
    before = page.evaluate(scrolled)
    query(page, 2).hover()
    page.mouse.wheel(0, 90)
    for _ in range(100):
        if stage.evaluate("e => e.scrollTop") > 0:
            break
        page.wait_for_timeout(50)
    assert stage.evaluate("e => e.scrollTop") > 0 and page.evaluate(scrolled) == before


def test_the_strongest_edges_are_a_table(page: Page, address: str) -> None:
    """Who cannot see the curves finds the strongest edges as a table, in order, in exact numbers."""
    opened(page, address)
    rows = page.locator("table.unseen tr")
    expect(rows).to_have_count(13)
    numbers = [float(rows.nth(i).locator("td").last.inner_text()) for i in range(1, 13)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] > 0.5


# ---------------------------------------------------------------------------- the matrix


def cell_shown(page: Page) -> str:
    """What the view says of the cell pointed at, once it is exact."""
    expect(page.locator(".reading")).not_to_be_empty()
    return page.locator(".reading").inner_text()


def drawn_again(page: Page) -> None:
    """Return after the next frame: the view draws once a frame, not within a click."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def lit(page: Page) -> int:
    """How many rows of the picture hold a strong colour, dark on a light page."""
    return page.locator("canvas.matrix").evaluate(
        """c => {
            const { width, height } = c, d = c.getContext('2d').getImageData(0, 0, width, height).data;
            let rows = 0;
            for (let y = 4; y < height * 0.6; y++) {
                for (let x = 90; x < 600; x++) {
                    const i = 4 * (y * width + x);
                    if (d[i + 3] && d[i] < 60 && d[i + 1] < 60 && d[i + 2] < 100) { rows++; break; }
                }
            }
            return rows / (height * 0.6);
        }"""
    )


def test_a_cell_says_its_exact_number(page: Page, address: str) -> None:
    """By pointer and by keyboard: the tokens of the cell and its float32; the row stands below."""
    opened(page, address, "mode=matrix")
    page.locator("canvas.matrix").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Home"):
        page.keyboard.press(key)
    expect(page.locator(".reading")).to_contain_text("sat (12) → The (10)")
    largest = page.locator("#exact").inner_text().split()[0]
    numbers = page.locator(".numbers td.number")
    expect(numbers.first).to_have_attribute("title", re.compile(rf"^{re.escape(f'{float(largest):.7g}'[:7])}"))
    expect(page.get_by_role("tooltip")).to_contain_text("attention 0.")
    page.keyboard.press("Escape")
    expect(page.locator(".tip")).to_be_hidden()
    box = page.locator("canvas.matrix").bounding_box()
    page.mouse.move(box["x"] + 150, box["y"] + 30)
    expect(page.get_by_role("tooltip")).to_contain_text("The (10) →")
    assert page.problems == []


def test_a_map_of_512_tokens_loses_no_line_and_can_be_zoomed(page: Page, address: str) -> None:
    """A diagonal one cell wide is seen whole; zoomed in, dragging brings other rows, and there is a way back."""
    opened(page, address, "mode=matrix&texts=same&line=1")
    assert lit(page) > 0.9
    expect(page.locator(".legend")).to_have_text("01.0")
    matrix = page.locator("canvas.matrix")
    matrix.focus()
    for _ in range(6):
        page.keyboard.press("+")
    matrix.hover(position={"x": 300, "y": 40})
    expect(page.locator(".tip")).to_contain_text("buffalo (")
    first = page.locator(".tip").inner_text()
    page.mouse.down()
    page.mouse.move(matrix.bounding_box()["x"] + 150, matrix.bounding_box()["y"] + 10, steps=4)
    page.mouse.up()
    matrix.hover(position={"x": 300, "y": 40})
    expect(page.locator(".tip")).not_to_have_text(first)
    page.get_by_role("button", name="show the whole map").click()
    drawn_again(page)
    assert lit(page) > 0.9
    assert page.problems == []


def test_a_few_large_values_do_not_make_a_long_map_pale(page: Page, address: str) -> None:
    """Where one value in a thousand is larger the colours end, and the legend says that there is more."""
    opened(page, address, "mode=matrix&texts=same")
    cap = float(page.locator("#cap").inner_text())
    expect(page.locator(".legend")).to_have_text(f"0≥ {cap:#.2g}")


@pytest.mark.parametrize("query_string", ["texts=one", "texts=hostile", "texts=strange", "holes=1", "signed=1"])
def test_unusual_matrices_are_drawn(page: Page, address: str, query_string: str) -> None:
    """One token, hostile and strange texts, holes and signs: the map is there, holes are named, nothing runs."""
    opened(page, address, f"mode=matrix&{query_string}")
    if query_string == "holes=1":
        expect(page.locator(".note")).to_contain_text("2 values of H0 are not numbers (NaN) and are crossed out")
    page.locator("canvas.matrix").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip")).to_contain_text("attention")
    assert page.evaluate("window.ran") is None
    assert page.problems == []


def test_in_a_matrix_a_head_replaces_the_other(page: Page, address: str) -> None:
    """One map at a time: a click on another head opens that one."""
    opened(page, address, "mode=matrix")
    head(page, 2).click()
    until(page, "heads=(2,)")
    expect(head(page, 0)).to_have_attribute("aria-pressed", "false")


# ---------------------------------------------------------------------------- the vectors of a head


def row_of_the_third_query(page: Page) -> list[float]:
    return [float(number) for number in page.locator("#row").text_content().split()]


@pytest.mark.parametrize(
    "query_string", ["", "&far=1", "&patches=1", "&texts=same", "&texts=hostile", "&texts=strange"]
)
def test_the_vectors_of_a_head_give_its_attention(page: Page, address: str, query_string: str) -> None:
    """The softmax that the view reckons from q and k is the map's own number, for every key that is read."""
    opened(page, address, f"mode=neuron{query_string}")
    query(page, 2).hover()
    row = row_of_the_third_query(page)
    expect(page.locator(".numbers .title")).to_contain_text("(12) →")
    for key in (0, 5):
        page.locator(".column.key .token").nth(key).hover()
        expect(page.locator(".numbers .title")).to_contain_text("(12) →")
        softmax = page.locator(".numbers td.number").last
        assert float(softmax.get_attribute("title")) == pytest.approx(row[key], rel=1e-4)
    foot = page.locator(".numbers .foot").all_inner_texts()
    assert any("divided by √32" in line for line in foot)
    assert any("distance" in line for line in foot) == ("far" in query_string)
    assert page.evaluate("window.ran") is None
    assert page.problems == []


def test_a_product_is_read_number_by_number(page: Page, address: str) -> None:
    """Pointing at a cell names its dimension, and its q times its k is its product; the dimensions add up to q · k."""
    opened(page, address, "mode=neuron")
    canvas = page.locator(".columns canvas")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 40)
    expect(page.get_by_role("tooltip")).to_contain_text("dimension")
    q, k, product = (
        float(number.replace("−", "-"))
        for number in re.search(r"q (\S+) × k (\S+) = (\S+)", page.get_by_role("tooltip").inner_text()).groups()
    )
    assert q * k == pytest.approx(product, rel=1e-6)

    def numbers_of(rows: str) -> list[float]:
        cells = page.locator(f".numbers {rows} td.number:last-child")
        return [float(cells.nth(i).get_attribute("title").replace("−", "-")) for i in range(cells.count())]

    listed, feet = numbers_of("tr:not(.foot)"), numbers_of("tr.foot")
    assert len(listed) == 8 and sum(listed) + feet[0] == pytest.approx(feet[1], abs=1e-5)
    assert feet[2] == pytest.approx(feet[1] / 32**0.5, rel=1e-6)
    assert painted(page) > 0


def test_the_vectors_by_keyboard(page: Page, address: str) -> None:
    """Arrows go from query to query and over to the keys; Enter holds a query, and Python hears of it."""
    opened(page, address, "mode=neuron")
    query(page, 0).focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".numbers .title")).to_contain_text("cat (11) →")
    page.keyboard.press("Enter")
    until(page, "positions=(11,)")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".numbers .title")).to_have_text("cat (11) → sat (12)")
    page.mouse.move(5, 5)


def seen(page: Page) -> list[object]:
    """What the view shows: the layer, the line above the picture, the numbers, the table, and the picture's bytes."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    parts = (".view .layer .name", ".note", ".numbers", "table.unseen")
    picture = page.locator(".columns canvas, canvas.matrix").locator("visible=true").first
    return [*(page.locator(part).inner_html() for part in parts), picture.evaluate("c => c.toDataURL()")]


@pytest.mark.parametrize("mode", ["curves", "matrix"])
def test_a_clicked_head_is_shown_before_the_server_answers(page: Page, address: str, mode: str) -> None:
    """With a server that hears nothing a click in the grid, and a step of the layer, show what it would have said."""
    opened(page, address, f"grid=1&mode={mode}")
    page.get_by_role("button", name="L3 H1").click()
    until(page, "layer=3")
    page.get_by_role("button", name="the layer before").click()
    until(page, "layer=2")
    answered = seen(page)

    opened(page, address, f"grid=1&mode={mode}")
    before = seen(page)
    page.evaluate("WebSocket.prototype.send = () => {}")
    page.get_by_role("button", name="L3 H1").click()
    expect(page.get_by_role("button", name="L3 H1")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".view .layer .name")).to_have_text("L3")
    clicked = seen(page)
    page.get_by_role("button", name="the layer before").click()
    expect(page.locator(".view .layer .name")).to_have_text("L2")
    assert seen(page) == answered and clicked not in (before, answered)


def test_a_pruned_head_has_no_vectors(page: Page, address: str) -> None:
    """It is named, its button cannot be pressed, and the others can be opened."""
    opened(page, address, "mode=neuron&gone=1")
    expect(page.locator(".note")).to_contain_text("H0 does not exist (pruned)")
    expect(page.get_by_role("button", name="H0, pruned")).to_be_disabled()
    head(page, 2).click()
    until(page, "heads=(2,)")
    assert page.problems == []


# ---------------------------------------------------------------------------- one map of several, other keys, notes


@pytest.mark.parametrize("mode", ["curves", "matrix"])
def test_heads_together_are_one_map_with_a_name(page: Page, address: str, mode: str) -> None:
    """The combined map is drawn, its numbers are its own, and the heads can still be chosen."""
    opened(page, address, f"combined=1&mode={mode}")
    expect(page.locator(".note")).to_contain_text("average of all")
    if mode == "curves":
        query(page, 2).hover()
        expect(page.locator(".numbers .title")).to_have_text("Attention from sat (12)")
        numbers = page.locator(".numbers td.number")
        expect(numbers.first).not_to_contain_text("≈")
        assert float(numbers.last.get_attribute("title")) == pytest.approx(1, abs=1e-6)
        expect(page.locator("table.unseen caption")).to_contain_text("average of all")
    head(page, 2).click()
    until(page, "heads=(0, 2)")
    assert page.problems == []


def test_queries_and_keys_need_not_be_the_same(page: Page, address: str) -> None:
    """Six words over sixteen patches, as curves and as a matrix: each side has its own names."""
    opened(page, address, "patches=1")
    expect(page.locator(".column.query .token")).to_have_count(6)
    expect(page.locator(".column.key .token")).to_have_count(16)
    page.locator(".column.key .token").nth(15).click()
    until(page, "side='key', positions=(15,)")
    expect(page.locator(".numbers .title")).to_have_text("Attention to row 3, column 3 (15)")
    opened(page, address, "patches=1&mode=matrix")
    page.locator("canvas.matrix").focus()
    for key in ("ArrowRight", "End", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".reading")).to_contain_text("cat (11) → row 3, column 3 (15)")
    assert page.problems == []


def test_what_the_page_says_of_rows_stands_in_the_view(page: Page, address: str) -> None:
    """A note of the page follows the view's own."""
    opened(page, address, "notes=1")
    expect(page.locator(".note")).to_contain_text("edges · a note of the page")

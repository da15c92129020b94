"""The whole app in a real browser: what is chosen survives, nothing runs that was typed, nothing leaves the machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.reader import address_of, click_at, opened, reaches_address, settled
from viz_app.pages import PAGES
from viz_app.pages.inside.stages import STAGES

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "streamlit_app.py"
TEXT, PAIR = "The army crossed the river at night.", "In the morning the soldiers attacked the city."
PATHS = ("predict", "attention", "compare", "why", "layers", "roles", "prune", "inside", "heads")
TITLES = {page.path: page.title for page in PAGES}


def test_what_is_chosen_survives_every_page_and_a_reload(app: str, page: Page) -> None:
    """Text, target and head mask stay as they were through all pages, a reload, and in a second visitor's link."""
    opened(page, app, "predict")
    page.get_by_label("Sentence", exact=True).fill(TEXT)
    page.get_by_label("Sentence", exact=True).press("Enter")
    settled(page)
    page.get_by_label("Second sentence").fill(PAIR)
    page.get_by_label("Second sentence").press("Enter")
    settled(page)
    page.get_by_role("button", name=re.compile(r"\briver\b")).first.click()
    settled(page)
    page.get_by_role("combobox", name="Explain").click()
    page.get_by_role("option", name="B follows A").click()
    settled(page)
    page.get_by_role("link", name="Head ablation").click()
    expect(page.get_by_role("heading", name="Head ablation")).to_be_visible()
    settled(page)
    page.get_by_role("button", name=re.compile(r"^L2 H4\b")).click()
    expect(page.get_by_text("1 head is off: L2 H4").first).to_be_visible()
    settled(page)

    chosen = {"text": TEXT, "pair": PAIR, "masked": "4", "target": "nsp", "off": "2.4"}
    assert reaches_address(page, lambda address: address == chosen), address_of(page)
    for path in PATHS:
        name = TITLES[path]
        page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        settled(page)
        assert reaches_address(page, lambda address: address == chosen), (name, address_of(page))
        assert page.get_by_label("Sentence", exact=True).input_value() == TEXT
        expect(page.get_by_text("1 head is off: L2 H4").first).to_be_visible()
    link = page.url
    page.reload()
    expect(page.get_by_role("heading", name="Head ablation")).to_be_visible()
    settled(page)
    assert reaches_address(page, lambda address: address == chosen) and page.url == link
    expect(page.get_by_label("Sentence", exact=True)).to_have_value(TEXT)
    expect(page.get_by_label("Second sentence")).to_have_value(PAIR)
    expect(page.get_by_text("1 head is off: L2 H4").first).to_be_visible()
    expect(page.get_by_role("combobox", name="Explain")).to_have_value("Explain “B follows A”")


def test_a_page_that_stops_early_has_its_address(app: str, page: Page) -> None:
    """Why, without anything to explain, draws no figure; the address bar says the text all the same."""
    opened(page, app, text=TEXT)
    page.get_by_role("link", name="Attribution").click()
    expect(page.get_by_text("There is no prediction to explain yet")).to_be_visible()
    assert reaches_address(page, lambda address: address == {"text": TEXT}), address_of(page)


@pytest.mark.smoke
def test_switching_a_head_off_changes_the_bars_and_restoring_brings_them_back(app: str, page: Page) -> None:
    """Before and after stand side by side, and Restore undoes the switches."""
    opened(page, app, "heads", text=TEXT, pair=PAIR, masked="4")
    page.get_by_role("button", name=re.compile(r"^L0 H0\b")).click()
    expect(page.get_by_text("1 head is off: L0 H0").first).to_be_visible()
    page.get_by_role("button", name="Switch all on").click()
    expect(page.get_by_text("All heads are on").first).to_be_visible()
    settled(page)
    assert reaches_address(page, lambda address: "off" not in address)


@pytest.mark.smoke
def test_attention_opens_the_head_that_is_clicked(app: str, page: Page) -> None:
    """A click in the grid chooses a head, and the address says which."""
    opened(page, app, "attention", text=TEXT, masked="4")
    page.get_by_role("button", name=re.compile(r"^L3 H5\b")).click()
    page.wait_for_url(re.compile(r"head=3\.5"))
    settled(page)
    expect(page.locator(".head[aria-pressed=true]")).to_have_text("H5")
    page.get_by_role("button", name="H7", exact=True).click()
    page.wait_for_url(re.compile(r"other_heads=7"))
    page.get_by_role("button", name="the next layer").click()
    page.wait_for_url(re.compile(r"head=4\.5"))
    expect(page.get_by_role("button", name=re.compile(r"^L4 H5\b"))).to_have_attribute("aria-pressed", "true")
    page.get_by_text("Gradient", exact=True).click()
    page.wait_for_url(re.compile(r"show=gradient"))
    settled(page)
    expect(page.get_by_test_id("stException")).to_have_count(0)


@pytest.mark.parametrize("path", ["attention", "compare"])
def test_a_head_is_opened_from_all_heads(app: str, page: Page, path: str) -> None:
    """The view of all heads has the page for itself; a click opens that head as curves, and the address says so."""
    view = "view" if path == "attention" else "compare_view"
    opened(page, app, path, **{"text": TEXT, "masked": "4", view: "heads"})
    cell = page.get_by_role("button", name=re.compile(r"^L3 H5\b"))
    expect(cell).to_be_visible()
    assert cell.bounding_box()["width"] > 50 and page.locator(".view").count() == 0
    cell.click()
    expect(page.locator(".head[aria-pressed=true]")).to_have_text("H5")
    expect(page.locator(".view .layer .name")).to_have_text("L3")
    assert reaches_address(page, lambda address: address.get("head") == "3.5" and view not in address)


def test_inside_bert_is_walked_stage_by_stage_with_the_keyboard(app: str, page: Page) -> None:
    """N goes on and P goes back, every stage draws its picture, the address says which; typing in the text does not."""
    opened(page, app, "inside", text=TEXT, pair=PAIR, masked="4")
    for number, name in enumerate(STAGES, start=1):
        expect(page.get_by_role("heading", name=re.compile(rf"^{number}\. "))).to_be_visible()
        settled(page)
        expect(page.get_by_test_id("stPlotlyChart").first).to_be_visible()
        expect(page.locator(".katex-error")).to_have_count(0)
        assert reaches_address(page, lambda address, name=name: address.get("stage", "pieces") == name)
        page.keyboard.press("n")
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name=re.compile(r"^12\. "))).to_be_visible()
    settled(page)
    page.get_by_label("Sentence", exact=True).press("End")
    page.get_by_label("Sentence", exact=True).press_sequentially(" pn")
    page.get_by_role("button", name="Options").click()
    page.get_by_text("NumPy", exact=True).click()
    settled(page)
    page.keyboard.press("Escape")
    assert reaches_address(page, lambda address: address["text"] == f"{TEXT} pn" and address["engine"] == "numpy")
    expect(page.get_by_role("heading", name=re.compile(r"^12\. "))).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name=re.compile(r"^12\. "))).to_be_visible()
    settled(page)
    page.keyboard.press("n")
    expect(page.get_by_text("All stages are computed with NumPy")).to_be_visible()


@pytest.mark.smoke
def test_enter_loads_a_model_and_what_is_wrong_stands_on_the_page(app: str, page: Page) -> None:
    """Enter in the name is enough; the page, not the side bar, says why not, and keeps what was typed."""
    opened(page, app, text=TEXT, masked="3")
    page.get_by_role("button", name="Another model").click()
    name = page.get_by_role("textbox", name="Checkpoint folder or hub id")
    name.fill("/no/such/model.zip")
    name.press("Enter")
    problem = page.get_by_test_id("stMain").get_by_test_id("stAlert").filter(has_text="cannot be unpacked")
    expect(problem).to_contain_text("/no/such/model.zip cannot be unpacked: No such file")
    expect(page.get_by_test_id("stSidebar").get_by_test_id("stAlert")).to_have_count(0)
    settled(page)
    expect(page.get_by_role("heading", name="Predictions")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(problem).to_have_count(0)


def test_the_list_of_examples_closes_when_one_is_taken(app: str, page: Page) -> None:
    """Each has a title; a click puts it on the page and the list away, and the list opens again."""
    opened(page, app, text=TEXT)
    for hidden, text in (
        ("capital (masked); B follows", "Paris is the capital of France."),
        ("pocket (masked)", "He put"),
    ):
        page.get_by_role("button", name="Examples").click()
        listed = page.get_by_test_id("stPopoverBody")
        listed.get_by_role("button", name=re.compile(re.escape(hidden))).click()
        expect(listed).to_have_count(0)
        assert reaches_address(page, lambda address, text=text: address["text"].startswith(text))
        settled(page)


def test_the_overview_of_a_pass_leads_to_its_stages(app: str, page: Page) -> None:
    """A click on a cell selects its token and opens the stage of its column, and so does the list of stages."""
    opened(page, app, "inside", text=TEXT, masked="4")
    overview = page.locator(".st-key-forward_pass .nsewdrag").first
    expect(overview).to_be_visible()
    box = overview.bounding_box()

    def click(column: float, row: int, rows: int = 10) -> None:
        """Click a cell; columns from -1, the ids, to 7, the output."""
        width, height = box["width"], box["height"]
        x, y = (column + 1.5) / (7 + 2.1 - 0.45 + 1.5) * width, (row + 0.5) / (rows + 2.2) * height
        page.mouse.click(box["x"] + x, box["y"] + y)
        settled(page)

    click(3, 2)
    expect(page.get_by_role("heading", name="4. Query, key and value")).to_be_visible()
    assert reaches_address(
        page, lambda address: (address["stage"], address["head"][0], address["token"]) == ("qkv", "2", "2")
    )
    click(0, 5)
    expect(page.get_by_role("heading", name="2. Embeddings")).to_be_visible()
    click(7, 5)
    expect(page.get_by_role("heading", name="13. Outputs")).to_be_visible()
    page.get_by_role("combobox", name="Stage").click()
    page.get_by_role("option", name="7. Softmax").click()
    expect(page.get_by_role("heading", name="7. Softmax")).to_be_visible()
    page.get_by_role("tab", name="Values").click()
    expect(page.locator(".st-key-stage_1 .nsewdrag").first).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page fits a narrow window"


@pytest.mark.smoke
def test_the_numbers_of_a_stage_can_be_taken_along(app: str, page: Page) -> None:
    """The CSV has one line a number, and the NPZ all values by name."""
    opened(page, app, "inside", text=TEXT, stage="softmax", head="1.3")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as table:
        page.get_by_role("button", name="This stage (CSV)").click()
    lines = Path(table.value.path()).read_text(encoding="utf-8").splitlines()
    assert table.value.suggested_filename == "softmax-L1-H3.csv"
    assert lines[0] == "name,row,label,column,value" and len(lines) == 1 + 10 * 10
    with page.expect_download() as arrays:
        page.get_by_role("button", name="All values of this layer (NPZ)").click()
    with np.load(arrays.value.path()) as file:
        assert file["layer.1.probabilities"].shape == (12, 10, 10) and file["tokens"][0] == "[CLS]"


def test_long_text_stays_out_of_the_address_with_a_notice(app: str, page: Page) -> None:
    """Over 2,000 characters the address bar does not hold the text, and the page says so."""
    opened(page, app, text="short.")
    page.get_by_label("Sentence", exact=True).fill("many words " * 300)
    page.get_by_label("Sentence", exact=True).press("Enter")
    expect(page.get_by_text("does not contain it")).to_be_visible()
    settled(page)
    assert reaches_address(page, lambda address: "text" not in address)
    assert page.get_by_label("Sentence", exact=True).input_value().startswith("many words many")


def test_a_long_text_leaves_the_window_to_the_picture(app: str, page: Page) -> None:
    """With 512 tokens the text, cut off with a notice, takes less than half of a window of 900 lines."""
    page.set_viewport_size({"width": 1440, "height": 900})
    opened(page, app, "attention", text="many words and many more " * 110, masked="300")
    expect(page.get_by_text("are left out")).to_be_visible()
    heading = page.get_by_role("heading", name=TITLES["attention"]).bounding_box()
    token = page.locator(".view .token").first.bounding_box()
    assert heading is not None and heading["y"] < 450
    assert token is not None and token["y"] < 750


@pytest.mark.parametrize("path", ["", pytest.param("attention", marks=pytest.mark.smoke), "heads", "inside"])
def test_hostile_text_is_text(app: str, page: Page, path: str) -> None:
    """Nothing that was typed runs, whichever page shows it."""
    hostile = (
        '</script><script>window.hit=1</script><img src=x onerror="window.hit=1"> ]]> \u2028 \u202egnp.exe **b** $x$'
    )
    opened(page, app, path, text=hostile, pair='"><svg onload=window.hit=1> [MASK]', show="attention")
    assert page.evaluate("window.hit") is None
    assert page.locator("img[src=x]").count() == 0
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_a_line_of_the_largest_changes_opens_its_head(app: str, page: Page) -> None:
    """Compare: clicking the first line of its list chooses the head that changed most, which the large view draws."""
    opened(page, app, "compare", text=TEXT, masked="4", head="0.0")
    table = page.get_by_test_id("stDataFrame").locator(".dvn-scroller")
    table.scroll_into_view_if_needed()
    table.click(position={"x": 16, "y": 54})  # the box before the first line
    assert reaches_address(page, lambda address: address.get("head", "0.0") != "0.0"), address_of(page)
    settled(page)
    layer, head = address_of(page)["head"].split(".")
    expect(page.locator(".view .layer .name")).to_have_text(f"L{layer}")
    expect(page.locator(".view .head[aria-pressed=true]")).to_have_text(f"H{head}")


@pytest.mark.smoke
def test_a_class_is_chosen_and_linked(app: str, tiny_classifier_folder: Path, page: Page) -> None:
    """The classes of a fine-tuned model are targets; one stays through a reload, and its name is text on every page."""
    opened(page, app, "attention", text="the cat sat", model=str(tiny_classifier_folder), show="gradient")
    page.get_by_role("combobox", name="Explain").click()
    page.get_by_role("option", name="http://e.org").click()
    settled(page)
    assert reaches_address(page, lambda address: address.get("target") == "class:2"), address_of(page)
    page.reload()
    expect(page.locator(".view .token").first).to_be_visible()
    expect(page.get_by_role("combobox", name="Explain")).to_have_value("Explain class “**b** <i>[x](http://e.org)”")
    for name in (TITLES["heads"], TITLES["predict"]):
        page.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        settled(page)
        assert page.locator("a[href*='e.org']").count() == 0
    assert reaches_address(page, lambda address: address.get("target") == "class:2")


@pytest.mark.smoke
def test_a_click_on_a_word_between_the_layers_shows_its_distribution(app: str, page: Page) -> None:
    """The cell under the pointer is drawn and named in the address, whatever the colour of its word."""
    opened(page, app, "layers", text="The ship sailed from England to America.", masked="5")
    grid = page.locator(".js-plotly-plot").first
    expect(page.get_by_role("figure", name="The most likely word at each of 10 tokens and 7 depths")).to_be_visible()
    for depth, position, token in ((3, 2, "ship"), (6, 4, "from")):  # a pale cell and a strong one
        click_at(grid.locator(".nsewdrag").first, (depth + 0.5) / 7, (position + 0.5) / 10)
        assert reaches_address(page, lambda address, cell=f"{depth}.{position}": address.get("cell") == cell)
        settled(page)
        name = f"The most likely words at {token} after L{depth - 1}"
        expect(page.get_by_role("figure", name=name)).to_be_visible()

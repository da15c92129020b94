"""The browser edition in Chromium: Home and Predictions, the address, the loading of the model, and its failures."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import bert_core
from bert_core import LoadedModel, ModelRun
from tests.browser.site.test_site_lessons import axe_findings
from tests.browser.static_site import StaticSite
from tests.hostile import HOSTILE
from viz_app.figures.style import two_digits

pytestmark = pytest.mark.slow
SENTENCE = "The king saw the big house."
PAIR = "text=The king saw the big house.&pair=The dog ran.&masked=1,6"
FIRST_BAR = ".bars tbody tr >> nth=0"
MODEL_FILES = "**/model/*"


@pytest.fixture
def site_page(page: Page, server: StaticSite) -> Iterator[Page]:
    """An empty tab without a model in its storage. Tests end without errors and requests elsewhere."""
    yield page
    assert page.problems == []
    assert all(url.startswith((server.address, "blob:", "data:")) for url in page.requested)
    page.evaluate(
        """async () => {
          for (const name of await caches.keys()) await caches.delete(name);
          for (const worker of await navigator.serviceWorker.getRegistrations()) await worker.unregister();
        }"""
    )


def open_page(page: Page, server: StaticSite, path: str = "") -> None:
    """Open a page of the site and wait for its figure."""
    page.goto(f"{server.address}/{path}")
    wait_for_figure(page)


def wait_for_figure(page: Page) -> None:
    """Wait until the figure of the state is drawn."""
    expect(page.locator(".figure")).to_have_attribute("aria-busy", "false")


def wait_for_model(page: Page) -> None:
    """Wait until the model is loaded."""
    expect(page.locator(".loading")).to_be_hidden()


def enter(page: Page, text: str) -> None:
    """Type a text and press Enter."""
    field = page.get_by_role("textbox", name="Sentence", exact=True)
    field.fill(text)
    field.press("Enter")


def words(page: Page) -> Locator:
    """The words of the text, which are the buttons of the token strip."""
    return page.locator(".strip button.word")


def run_of(loaded: LoadedModel, text: str, masked: list[int], pair: str = "") -> ModelRun:
    """The run of the library, for comparison."""
    encoding = loaded.tokenizer.mask_words(loaded.tokenizer.encode(text, pair or None), masked)
    return bert_core.capture(loaded, encoding, top_k=5)


def expect_first_bar(page: Page, loaded: LoadedModel, run: ModelRun) -> None:
    """The first bar is the most probable token of a run at the first mask."""
    piece, probability = run.predictions[0].top[0]
    bar = page.locator(FIRST_BAR)
    expect(bar.locator("th")).to_have_text(loaded.tokenizer.token_of(piece))
    expect(bar.locator(".number").last).to_have_text(two_digits(probability))


def state_of(page: Page) -> dict[str, str]:
    """The parameters of the address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_home_is_drawn_from_stored_runs_alone(site_page: Page, server: StaticSite) -> None:
    """The figure and every example need no file of the model; a figure in a frame never loads it."""
    open_page(site_page, server, "?embed=true")
    expect(site_page.locator("section h2").first).to_have_text("What the model predicts")
    expect(site_page.locator(".bars tbody tr")).not_to_have_count(0)
    expect(site_page.locator("nav")).to_be_hidden()
    site_page.goto("about:blank")
    site_page.route(MODEL_FILES, lambda route: None)  # no answer
    open_page(site_page, server)
    for example in site_page.locator(".controls .example").all():
        example.click()
        wait_for_figure(site_page)
        expect(example).to_have_attribute("aria-pressed", "true")
    expect(site_page.locator(".loading progress")).to_be_visible()
    expect(site_page.locator(".head-table").first).to_be_visible()
    site_page.unroute_all()


def test_an_own_sentence_has_the_predictions_of_the_library(
    site_page: Page, server: StaticSite, tiny_loaded: LoadedModel
) -> None:
    """A typed text has its longest word masked; its bars, with heads off too, are those of the library."""
    open_page(site_page, server)
    enter(site_page, SENTENCE)
    expect(site_page.locator(".notices")).to_contain_text("“house” is masked")
    expect_first_bar(site_page, tiny_loaded, run_of(tiny_loaded, SENTENCE, [5]))
    assert state_of(site_page)["masked"] == "5"
    site_page.get_by_role("button", name="Switch this head off").click()
    expect(site_page.locator(".home .result")).to_contain_text("the prediction")
    layer, head = map(int, state_of(site_page)["off"].split("."))
    gates = bert_core.head_mask_without(tiny_loaded.config, [(layer, head)])
    full = run_of(tiny_loaded, SENTENCE, [5])
    off = bert_core.capture(tiny_loaded, full.encoding, head_mask=gates)
    piece = full.predictions[0].top[0][0]
    numbers = site_page.locator(FIRST_BAR).locator(".number")
    expected = [run.predictions[0].probabilities[piece] for run in (full, off)]
    expect(numbers).to_have_text([two_digits(float(number)) for number in expected])


def test_a_visit_as_a_person_makes_it(site_page: Page, server: StaticSite, tiny_loaded: LoadedModel) -> None:
    """Clicks on words, a bar and links, then Back, Forward and reload: the address and the figure agree."""
    open_page(site_page, server)
    enter(site_page, SENTENCE)
    expect(site_page.locator(".notices")).to_contain_text("masked")
    words(site_page).nth(1).click()  # it moves the mask that the visitor did not choose
    expect_first_bar(site_page, tiny_loaded, run_of(tiny_loaded, SENTENCE, [1]))
    words(site_page).nth(2).click()
    expect(words(site_page).nth(2)).to_have_attribute("aria-pressed", "true")
    assert state_of(site_page)["masked"] == "1,2"
    site_page.get_by_role("link", name="Predictions").first.click()
    expect(site_page.locator("h1")).to_have_text("Predictions")
    expect(site_page.locator(".mask")).to_have_count(2)
    assert urlsplit(site_page.url).path == "/predict/"
    bar = site_page.locator(".mask").nth(1).locator(".bars button").nth(1)
    word = bar.text_content()
    bar.click()
    expect(site_page.locator(".bars .selected")).to_have_text(word or "")
    assert state_of(site_page)["target"] == f"3:{word}"
    site_page.go_back()
    expect(site_page.locator(".bars .selected")).not_to_have_text(word or "")
    site_page.go_forward()
    expect(site_page.locator(".bars .selected")).to_have_text(word or "")
    site_page.reload()
    expect(site_page.locator(".bars .selected")).to_have_text(word or "")
    site_page.go_back()
    site_page.go_back()
    expect(site_page.locator("h1")).to_have_text("Home")
    expect(words(site_page).nth(2)).to_have_attribute("aria-pressed", "true")
    words(site_page).nth(2).click()
    site_page.get_by_role("button", name="Put").wait_for(state="hidden")
    expect(words(site_page).nth(2)).to_have_attribute("aria-pressed", "false")


def test_a_pair_has_the_probability_that_the_second_sentence_follows(
    site_page: Page, server: StaticSite, tiny_loaded: LoadedModel
) -> None:
    """The sentence, the bars of both masks, and the exchange of the sentences."""
    open_page(site_page, server, f"predict/?{PAIR}")
    run = run_of(tiny_loaded, "The king saw the big house.", [1, 6], "The dog ran.")
    assert run.nsp is not None
    expect(site_page.locator(".verdict .result")).to_contain_text(f"probability {two_digits(run.nsp)}")
    expect(site_page.locator(".mask")).to_have_count(2)
    site_page.get_by_role("button", name="Swap A and B").click()
    expect(site_page.get_by_role("textbox", name="Sentence", exact=True)).to_have_value("The dog ran.")
    assert state_of(site_page)["pair"] == "The king saw the big house."


def test_what_is_typed_is_kept_until_it_is_applied(site_page: Page, server: StaticSite) -> None:
    """A click elsewhere loses nothing; an empty text has one sentence and a way on."""
    open_page(site_page, server)
    field = site_page.get_by_role("textbox", name="Sentence", exact=True)
    field.fill("The queen")
    site_page.get_by_role("link", name="Predictions").first.click()
    expect(site_page.locator("h1")).to_have_text("Predictions")
    expect(field).to_have_value("The queen")
    site_page.get_by_role("button", name="Apply").click()
    expect(words(site_page)).to_have_count(2)
    enter(site_page, "")
    expect(site_page.get_by_role("alert")).to_contain_text("There is no text: type at least one word.")
    site_page.locator(".problem .example").first.click()
    wait_for_figure(site_page)
    expect(site_page.locator(".bars").first).to_be_visible()


def test_a_model_that_cannot_be_loaded_leaves_the_examples(
    site_page: Page, server: StaticSite, tiny_loaded: LoadedModel
) -> None:
    """A failure is one sentence with a button, stored runs stay usable, and the model can be loaded again."""

    def refuse(route: Route) -> None:
        route.fulfill(status=503, body="")

    site_page.route(MODEL_FILES, refuse)
    open_page(site_page, server)
    expect(site_page.locator(".loading")).to_contain_text("The model could not be downloaded")
    enter(site_page, SENTENCE)
    expect(site_page.get_by_role("alert")).to_contain_text("check the connection")
    site_page.locator(".problem .example").nth(1).click()
    wait_for_figure(site_page)
    expect(site_page.locator(".bars").first).to_be_visible()
    expect(site_page.locator(".problem")).to_be_empty()
    site_page.go_back()
    expect(site_page.get_by_role("alert")).to_contain_text("check the connection")
    site_page.unroute_all()
    site_page.problems[:] = [problem for problem in site_page.problems if "503" not in problem]
    site_page.locator(".problem").get_by_role("button", name="Load again").click()
    expect(site_page.locator(".problem")).to_be_empty()
    run = run_of(tiny_loaded, SENTENCE, [int(state_of(site_page).get("masked", "5"))])
    expect_first_bar(site_page, tiny_loaded, run)


def test_loading_can_be_cancelled_and_asks_first_where_data_is_saved(site_page: Page, server: StaticSite) -> None:
    """Cancel ends the download, and the browser's data saver makes the model wait for a click."""
    site_page.route("**/model/*.bin*", lambda route: None)  # no answer
    open_page(site_page, server)
    loading = site_page.locator(".loading")
    loading.get_by_role("button", name="Cancel").click()
    expect(loading).to_contain_text("The model is not loaded")
    site_page.unroute_all()
    loading.get_by_role("button", name="Load again").click()
    wait_for_model(site_page)
    tab = site_page.context.new_page()
    tab.add_init_script('Object.defineProperty(navigator, "connection", { value: { saveData: true } });')
    open_page(tab, server)
    button = tab.locator(".loading").get_by_role("button", name="Load the model")
    expect(button).to_be_visible()
    enter(tab, SENTENCE)
    button.click()
    expect(tab.locator(".notices")).to_contain_text("masked")
    wait_for_figure(tab)
    tab.close()


def test_a_full_storage_is_said_and_the_model_works(
    site_page: Page, server: StaticSite, tiny_loaded: LoadedModel
) -> None:
    """The sentence can be hidden, and an own sentence is answered."""
    devtools = site_page.context.new_cdp_session(site_page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": server.address, "quotaSize": 1000})
    open_page(site_page, server)
    expect(site_page.locator(".loading")).to_contain_text("this browser cannot keep it")
    enter(site_page, SENTENCE)
    expect_first_bar(site_page, tiny_loaded, run_of(tiny_loaded, SENTENCE, [5]))
    site_page.get_by_role("button", name="Hide", exact=True).click()
    expect(site_page.locator(".loading")).to_be_hidden()
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": server.address})


@pytest.mark.parametrize("texts", [HOSTILE[:6], HOSTILE[6:12], HOSTILE[12:17]])
def test_a_hostile_text_is_shown_as_it_is(site_page: Page, server: StaticSite, texts: list[str]) -> None:
    """No text runs, in the field, the tokens, the notices and the bars."""
    text = " ".join(texts)
    query = quote(text)
    open_page(site_page, server, f"predict/?text={query}&masked=0&target=1:{query}&lesson={query}&head={query}")
    expect(site_page.locator(".notices")).to_contain_text("The link says head=")
    assert site_page.get_by_role("textbox", name="Sentence", exact=True).input_value().strip() != ""
    expect(site_page.locator(".bars").first).to_be_visible()
    assert site_page.evaluate("window.ran") is None
    assert site_page.locator("img, script:not([src])").count() == 0


def test_the_keyboard_alone_is_sufficient(site_page: Page, server: StaticSite) -> None:
    """Tab reaches the text, the words, the examples and the button of the head, and the focus stays where it was."""
    open_page(site_page, server)
    wait_for_model(site_page)
    site_page.get_by_role("textbox", name="Sentence", exact=True).focus()
    site_page.keyboard.press("Tab")
    expect(site_page.get_by_role("button", name="+ second sentence")).to_be_focused()
    site_page.keyboard.press("Enter")
    expect(site_page.get_by_role("textbox", name="Second sentence")).to_be_focused()
    site_page.keyboard.press("Tab")
    site_page.keyboard.press("ArrowRight")
    site_page.keyboard.press("Enter")
    expect(site_page.locator(".strip button.word[aria-pressed=true]")).to_have_count(2)
    expect(site_page.locator(".strip button.word:focus")).to_have_count(1)
    site_page.keyboard.press("Tab")
    expect(site_page.locator(".controls .example").first).to_be_focused()
    site_page.keyboard.press("Tab")
    site_page.keyboard.press("Enter")
    expect(site_page.locator(".controls .example").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(site_page.locator(".controls .example").nth(1)).to_be_focused()
    switch = site_page.get_by_role("button", name="Switch this head off")
    switch.focus()
    site_page.keyboard.press("Enter")
    expect(site_page.get_by_role("button", name="Switch it on again")).to_be_focused()
    site_page.keyboard.press("Enter")
    expect(switch).to_be_focused()


def test_a_long_text_is_truncated_and_kept_out_of_the_address(site_page: Page, server: StaticSite) -> None:
    """Notices say so, and a reload keeps the text."""
    open_page(site_page, server, "predict/")
    enter(site_page, "the dog sat on a mat . " * 100)
    expect(site_page.locator(".notices")).to_contain_text("are left out")
    expect(site_page.locator(".notices")).to_contain_text("longer than 2,000 characters")
    assert "text" not in state_of(site_page)
    site_page.reload()
    expect(site_page.locator(".notices")).to_contain_text("are left out")
    assert site_page.get_by_role("textbox", name="Sentence", exact=True).input_value().startswith("the dog sat")


def test_languages_and_links(site_page: Page, server: StaticSite) -> None:
    """The language switch translates the frame, links of the app work, and impossible values are named."""
    open_page(site_page, server, "predict?text=The king saw.&masked=1&view=neuron")
    assert urlsplit(site_page.url).path == "/predict/"
    expect(site_page.locator(".notices")).to_contain_text("The link says view='neuron', which is not possible")
    site_page.get_by_role("link", name="Deutsch").click()
    expect(site_page.locator("h1")).to_have_text("Vorhersagen")
    assert site_page.locator("html").get_attribute("lang") == "de"
    expect(site_page.locator(".mask .result")).to_contain_text("Maskiertes Wort „king“")


@pytest.mark.parametrize("path", ["", f"predict/?{PAIR}&off=0.1"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(site_page: Page, server: StaticSite, scheme: str, path: str) -> None:
    """Names, roles, contrast and order of the frame, Home and Predictions, with the bar of the loading model."""
    site_page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    open_page(site_page, server, path)
    assert axe_findings(site_page) == []


@pytest.mark.parametrize("path", ["", "?lang=de&lecture=1", f"predict/?{PAIR}&off=0.1,1.2"])
def test_a_narrow_window_needs_no_horizontal_scrolling(site_page: Page, server: StaticSite, path: str) -> None:
    """The frame, Home and Predictions in a window of 390 pixels; the figure comes before the fields."""
    site_page.set_viewport_size({"width": 390, "height": 844})
    open_page(site_page, server, path)
    wait_for_model(site_page)
    assert site_page.evaluate("document.documentElement.scrollWidth") <= 390
    figure, texts = (site_page.locator(name).bounding_box() for name in (".figure", ".texts"))
    assert figure and texts and figure["y"] < 450 < texts["y"]


def test_the_figure_is_in_the_first_screen(site_page: Page, server: StaticSite) -> None:
    """In a window of 1440 x 900, the figure is below the tokens and the controls, and fills much of the window."""
    site_page.set_viewport_size({"width": 1440, "height": 900})
    for path in ("", f"predict/?{PAIR}"):
        open_page(site_page, server, path)
        figure = site_page.locator(".figure").bounding_box()
        assert figure and figure["y"] <= 290 and figure["height"] >= 330

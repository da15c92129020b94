"""The pages Attention, Head ablation and Attribution in a browser: what they show is what the library computes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

import bert_core
from bert_core import Attribution, Encoding, LoadedModel, ModelRun, Target, ablate_heads, capture, find_heads
from bert_core.analysis.heads import most_relevant_head
from bert_core.methods import METHODS
from bert_core.run.perturbation import input_x_gradient, integrated_gradients, occlusion
from tests.browser.conftest import PATIENCE, WINDOW
from tests.browser.static_site import StaticSite, serve_site
from tests.conftest import built_once, exported_mini
from viz_app.pages.start import EXAMPLES
from viz_app.site.build import build_site
from viz_app.site.lessons import METHODS as SITE_METHODS

pytestmark = pytest.mark.slow
STORED = next(iter(EXAMPLES.values()))
OWN = "The old farmer carried a heavy basket to the market."
OWN_MASKED = 7  # "market", the number of its word
NUMBER = re.compile(r"−?\d+(?:\.\d+)?(?:e−?\d+)?")
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def mini() -> LoadedModel:
    """The bundled model, which the site runs."""
    return bert_core.load("headlight-mini", device="cpu")


@pytest.fixture(scope="module")
def server(mini: LoadedModel) -> Iterator[StaticSite]:
    """A server of the site of the bundled model."""
    with serve_site(built_once("site", lambda folder: build_site(mini, folder, exported=exported_mini()))) as started:
        yield started


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[BrowserContext]:
    """A window of the browser, which stores the model."""
    context = browser.new_context(viewport=WINDOW, reduced_motion="reduce", accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture
def open_page(server: StaticSite, window: BrowserContext) -> Iterator[Open]:
    """Opens a page of the site in a new tab; there must be no error on its console at the end."""
    tabs: list[Page] = []
    problems: list[str] = []

    def open_tab(path: str, **parameters: str) -> Page:
        tab = window.new_page()
        tabs.append(tab)
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.goto(f"{server.address}/{path}/?{urlencode(parameters)}")
        drawn(tab)
        return tab

    yield open_tab
    for tab in tabs:
        tab.close()
    assert problems == []


def drawn(tab: Page) -> None:
    """Wait until the figure of the state is drawn."""
    expect(tab.locator(".figure")).to_have_attribute("aria-busy", "false")


def without_model(tab: Page) -> None:
    """Let no file of the model arrive, so that everything that is shown is stored."""
    tab.route("**/model/**", lambda route: None)


def number(text: str) -> float:
    """A number as the pages write it."""
    return float(text.replace("−", "-"))


def assert_shown(text: str, value: float) -> None:
    """A text is a number rounded to its last digit, up to the differences between the browser and the library."""
    mantissa, _, exponent = text.replace("−", "-").replace("+", "").partition("e")
    decimals = len(mantissa.partition(".")[2])
    assert abs(number(text) - value) <= 0.51 * 10 ** (int(exponent or 0) - decimals) + 2e-4, f"{text}: {value}"


def cell(tab: Page, layer: int, head: int) -> Locator:
    """The cell of a head in the grid."""
    return tab.locator(f'[data-layer="{layer}"][data-head="{head}"]')


def grid_numbers(tab: Page, shape: tuple[int, int]) -> list[str]:
    """The numbers in the cells of the grid, head by head."""
    return [cell(tab, layer, head).inner_text() for layer in range(shape[0]) for head in range(shape[1])]


def rows(table: Locator) -> list[list[str]]:
    """The cells of a table, without its heading."""
    return [line.locator("th, td").all_inner_texts() for line in table.locator("tbody tr").all()]


def first_guess(mini: LoadedModel, text: str, word: int) -> tuple[Encoding, Target, str]:
    """A text with a masked word, the first guess there as the target, and its token."""
    encoding = mini.tokenizer.mask_words(mini.tokenizer.encode(text), [word])
    prediction = capture(mini, encoding).predictions[0]
    token = prediction.top[0][0]
    return encoding, Target("mlm", prediction.position, token), mini.tokenizer.token_of(token)


@pytest.fixture(scope="module")
def stored(mini: LoadedModel) -> ModelRun:
    """The first example of Home, with gradients of its first guess."""
    encoding, target, _ = first_guess(mini, STORED.text, STORED.masked[0])
    return capture(mini, encoding, target=target)


@pytest.fixture(scope="module")
def own(mini: LoadedModel) -> ModelRun:
    """A sentence that is not stored, with gradients of its first guess."""
    encoding, target, _ = first_guess(mini, OWN, OWN_MASKED)
    return capture(mini, encoding, target=target)


@pytest.fixture(params=["stored", "own"])
def shown(request: pytest.FixtureRequest) -> tuple[ModelRun, dict[str, str]]:
    """A run of the library, and the parameters of the same text in the address."""
    run = request.getfixturevalue(request.param)
    (word,) = STORED.masked if request.param == "stored" else (OWN_MASKED,)
    return run, {"text": run.encoding.text, "masked": str(word)}


def opening_head(run: ModelRun) -> tuple[int, int]:
    """The head that a page opens."""
    is_word = ~np.array(run.encoding.special)
    head = most_relevant_head(run.attention, run.encoding.mask_positions, is_word, run.gate_gradient)
    assert head is not None
    return head


# ----------------------------------------------------------------------------------------------------- Attention


@pytest.mark.parametrize(("quantity", "name"), [("attention", "attention"), ("gradient", "gradient"), ("product", "×")])
def test_the_opened_head_is_that_of_the_library(
    open_page: Open, shown: tuple[ModelRun, dict[str, str]], quantity: str, name: str
) -> None:
    """The head, the strongest value from the mask in it, and the table of its strongest edges."""
    run, parameters = shown
    tab = open_page("attention", show=quantity, **parameters)
    layer, head = opening_head(run)
    values = run.select_map(quantity)[layer, head]
    position = run.encoding.mask_positions[0]
    key = int(np.abs(values[position]).argmax())
    sentence = tab.locator(".result").inner_text()
    assert sentence.startswith(f"L{layer} H{head}:") and f"({position})" in sentence and name in sentence
    token, value = re.findall(r"“([^”]*)” \((\d+)\)", sentence)[1], NUMBER.findall(sentence)[-1]
    assert token == (run.encoding.labels[key], str(key))
    assert_shown(value, float(values[position, key]))
    expect(cell(tab, layer, head)).to_have_attribute("aria-pressed", "true")
    edges = tab.locator(".head-view .numbers tr")
    largest = float(values.ravel()[np.abs(values).argmax()])
    expect(edges.first).to_be_visible()
    assert_shown(edges.first.locator("td").last.inner_text(), largest)


def test_heads_are_found_for_two_tokens(
    open_page: Open, mini: LoadedModel, shown: tuple[ModelRun, dict[str, str]]
) -> None:
    """The grid has the weight of each head, and the list the strongest heads with the effects of their ablation."""
    run, parameters = shown
    query, key = run.encoding.mask_positions[0], 1
    tab = open_page("attention", edge=f"{query}.{key}", view="heads", **parameters)
    for text, weight in zip(grid_numbers(tab, run.head_mask.shape), run.attention[:, :, query, key].flat, strict=True):
        assert_shown(text, float(weight))
    if run.encoding.text == OWN:
        tab.get_by_role("button", name="Measure the effect of each head").click()
    table = tab.locator(".found table")
    expect(table.locator("thead th")).to_have_text(["head", "weight", "percentile", "effect"])
    effect = ablate_heads(mini, run.encoding, target=run.target).effect
    assert effect is not None
    for cells, expected in zip(rows(table), find_heads(run, query, key), strict=False):
        assert cells[0] == f"L{expected.layer} H{expected.head}"
        for text, value in zip(
            cells[1:], (expected.weight, expected.percentile, effect[expected.layer, expected.head]), strict=True
        ):
            assert_shown(text, float(value))


def test_one_walks_through_attention(open_page: Open, stored: ModelRun) -> None:
    """A click opens a head, two tokens rank the heads, and Back, Reload and the keyboard keep what is selected."""
    tab = open_page("attention", text=STORED.text, masked=str(STORED.masked[0]))
    cell(tab, 2, 3).click()
    expect(tab.locator(".result")).to_contain_text("L2 H3")
    assert "head=2.3" in tab.url
    tokens = {side: tab.locator(f'.head-view .column.{side} [role="option"]') for side in ("query", "key")}
    tokens["query"].nth(4).click()
    expect(tab.locator(".result")).to_contain_text("(4)")
    assert "tokens=q4" in tab.url and tab.locator(".found").is_hidden()
    tokens["key"].nth(1).click()
    expect(tab.locator(".found h2")).to_contain_text("“book” to “she”")
    assert "edge=4.1" in tab.url
    tab.get_by_label("From (query)").select_option(index=6)
    expect(tab.locator(".found h2")).to_contain_text("to “she”")
    assert "edge=6.1" in tab.url
    strongest = find_heads(stored, 6, 1)[0]
    tab.locator(".found tbody button").first.press("Enter")
    expect(tab.locator(".result")).to_contain_text(f"L{strongest.layer} H{strongest.head}")
    expect(tab.locator(".found tbody button").first).to_be_focused()
    tab.reload()
    drawn(tab)
    expect(tab.locator(".result")).to_contain_text(f"L{strongest.layer} H{strongest.head}")
    for _ in range(3):
        tab.go_back()
    drawn(tab)
    expect(tab.locator(".found")).to_be_hidden()
    expect(tab.locator(".result")).to_contain_text("L2 H3")
    tab.get_by_role("button", name="Compare one pair of tokens").click()
    expect(tab.locator(".found")).to_be_visible()
    tab.get_by_role("button", name="Show whole maps").click()
    expect(tab.locator(".found")).to_be_hidden()
    matrix = tab.get_by_role("button", name="Matrix")
    matrix.press("Enter")
    expect(matrix).to_have_attribute("aria-pressed", "true")
    expect(matrix).to_be_focused()
    tab.get_by_role("link", name="Head ablation").click()
    expect(tab.locator("h1")).to_have_text("Head ablation")
    tab.go_back()
    expect(tab.locator("h1")).to_have_text("Attention")
    expect(matrix).to_have_attribute("aria-pressed", "true")


# ------------------------------------------------------------------------------------------------- Head ablation


def test_heads_have_the_contributions_of_the_library(
    open_page: Open, mini: LoadedModel, shown: tuple[ModelRun, dict[str, str]]
) -> None:
    """The gradient estimates, then each head switched off alone: contributions, flips and the file."""
    run, parameters = shown
    tab = open_page("heads", **parameters)
    assert run.gate_gradient is not None
    for text, value in zip(grid_numbers(tab, run.head_mask.shape), run.gate_gradient.flat, strict=True):
        assert_shown(text, float(value))
    tab.get_by_role("button", name="Ablate each of the 72 heads").click()
    summary = tab.locator(".measured h2")
    expect(summary).to_be_visible()
    assert "colour=removal" in tab.url
    sweep = ablate_heads(mini, run.encoding, target=run.target, positions=run.encoding.mask_positions[:1])
    assert sweep.effect is not None and sweep.flips is not None and sweep.values is not None
    for text, value in zip(grid_numbers(tab, run.head_mask.shape), -sweep.effect.ravel(), strict=True):
        assert_shown(text, float(value))
    changed = int((sweep.flips > 0).sum())
    assert summary.inner_text().startswith("None of the 72" if changed == 0 else f"{changed} of 72 head")
    order = np.argsort(-np.abs(sweep.effect), axis=None)
    cells = rows(tab.locator(".measured table"))
    for row, index in zip(cells, order, strict=False):
        layer, head = divmod(int(index), run.head_mask.shape[1])
        assert row[0] == f"L{layer} H{head}" and ("(changed)" in row[3]) == bool(sweep.flips[layer, head])
        assert_shown(row[1], -float(sweep.effect[layer, head]))
        assert_shown(row[2], float(np.exp(sweep.values[layer, head])))
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Heads (CSV)").click()
    table = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
    assert len(table) == 72
    for name, expected in (("gradient_estimate", run.gate_gradient), ("ablation_contribution", -sweep.effect)):
        assert np.allclose([float(line[name]) for line in table], expected.ravel(), atol=2e-4)


def test_switched_heads_change_the_prediction_as_in_the_library(
    open_page: Open, mini: LoadedModel, shown: tuple[ModelRun, dict[str, str]]
) -> None:
    """A click, and a click on the name of a layer: the sentence and the bars, and all heads on again."""
    run, parameters = shown
    tab = open_page("heads", **parameters)
    layer, head = opening_head(run)
    cell(tab, layer, head).click()
    assert_change(tab, mini, run, [(layer, head)])
    expect(cell(tab, layer, head)).to_have_attribute("aria-pressed", "false")
    tab.locator('[data-layer="4"][data-head=""]').click()
    off = sorted({(4, number) for number in range(12)} | {(layer, head)})
    assert_change(tab, mini, run, off)
    tab.reload()
    drawn(tab)
    assert_change(tab, mini, run, off)
    tab.get_by_role("button", name="Switch all on").click()
    expect(tab.locator(".results .result")).to_contain_text("All heads are on")
    tab.go_back()
    assert_change(tab, mini, run, off)


def assert_change(tab: Page, mini: LoadedModel, run: ModelRun, off: list[tuple[int, int]]) -> None:
    """The page shows the prediction without some heads as the library predicts it."""
    mask = np.ones_like(run.head_mask)
    for layer, head in off:
        mask[layer, head] = 0
    now = capture(mini, run.encoding, head_mask=mask)
    names = f"{len(off)} heads" if len(off) > 2 else " and ".join(f"L{layer} H{head}" for layer, head in off)
    (before, p), (after, q) = (record.predictions[0].top[0] for record in (run, now))
    result = tab.locator(".results .result")
    change = "stays" if before == after else "changes from"
    expect(result).to_contain_text(f"With {names} off, the prediction {change} “{mini.tokenizer.token_of(before)}”")
    shown_p, shown_q = NUMBER.findall(result.inner_text())[-2:]
    assert_shown(shown_p, p)
    assert_shown(shown_q, q)
    for token, first, second in rows_of_bars(tab):
        number = mini.tokenizer.id_of(token)
        assert_shown(first, float(run.predictions[0].probabilities[number]))
        assert_shown(second, float(now.predictions[0].probabilities[number]))


def rows_of_bars(tab: Page) -> list[tuple[str, str, str]]:
    """The token of each row of bars, with its probability before and now."""
    lines = []
    for line in tab.locator(".results .bars tbody tr").all():
        first, second = line.locator(".number").all_inner_texts()
        lines.append((line.locator("th").inner_text(), first, second))
    return lines


def test_results_that_follow_the_figure_are_announced(open_page: Open) -> None:
    """Screen readers read the changed prediction, the summary of all ablations, and what a method found."""
    announced = 'p.heard[role="status"]'
    tab = open_page("heads", text=STORED.text, masked=str(STORED.masked[0]))
    cell(tab, 2, 3).click()
    result = tab.locator(".results .result").first
    expect(result).to_contain_text("L2 H3")
    expect(tab.locator('.results [aria-busy="true"]')).to_have_count(0)
    expect(tab.locator(announced)).to_contain_text(result.inner_text())
    tab.get_by_role("button", name="Ablate each of the 72 heads").click()
    expect(tab.locator(".measured h2")).to_be_visible()
    expect(tab.locator(announced)).to_contain_text(tab.locator(".measured h2").inner_text())
    tab = open_page("why", text=OWN, masked=str(OWN_MASKED), method="occlusion")
    sentence = tab.locator(".lines p").last
    expect(sentence).to_contain_text("occlusion")
    expect(tab.locator(announced)).to_contain_text(sentence.inner_text())


def test_ablations_are_cancelled(open_page: Open) -> None:
    """While the heads are switched off one by one, the progress is counted, and Cancel returns to the estimates."""
    tab = open_page("heads", text=f"{OWN} {OWN} {OWN} {OWN} {OWN}", masked="3")
    tab.get_by_role("button", name="Ablate each of the 72 heads").click()
    expect(tab.locator(".work .note")).to_contain_text(re.compile(r"\d+ of 72, about \d+ s left"))
    tab.get_by_role("button", name="Cancel").click()
    expect(tab.get_by_role("button", name="Gradient estimate")).to_have_attribute("aria-pressed", "true")
    expect(tab.locator(".work")).to_have_count(0)
    assert "colour" not in tab.url and tab.locator(".measured").is_hidden()


# --------------------------------------------------------------------------------------------------- Attribution


def scores_of(mini: LoadedModel, run: ModelRun) -> dict[str, np.ndarray]:
    """The scores of the four methods, (token,)."""
    assert run.target is not None
    encoding, target = run.encoding, run.target
    product = run.select_map("product").sum((0, 1, 2))
    others = [method(mini, encoding, target).scores for method in (input_x_gradient, integrated_gradients, occlusion)]
    return dict(zip(SITE_METHODS, [product, *others], strict=True))


def test_scores_are_those_of_the_library(
    open_page: Open, mini: LoadedModel, shown: tuple[ModelRun, dict[str, str]]
) -> None:
    """Bars of four methods, the strip and the sentences of the selected one, its gap, and the file."""
    run, parameters = shown
    tab = open_page("why", **parameters)
    scores = scores_of(mini, run)
    target = run.target
    assert target is not None and run.target_value is not None
    expect(tab.locator(".scores .score")).to_have_count(len(scores) * len(run.encoding))
    for line, (name, values) in zip(tab.locator(".scores tbody tr").all(), scores.items(), strict=True):
        assert line.locator("th").inner_text() == name
        for text, value in zip(line.locator(".score-number").all_inner_texts(), values, strict=True):
            assert_shown(text, float(value))
    heading = tab.locator(".figure h2").inner_text()
    assert heading.startswith(f"Which words does “{mini.tokenizer.token_of(target.token_id)}” (")
    assert_shown(heading.partition("(")[2].partition(")")[0], float(np.exp(run.target_value)))
    removable = list(target.removable(run.encoding))
    for name, values in scores.items():
        tab.get_by_role("group", name="Method").get_by_role("button", name=name).click()
        drawn(tab)
        sentence = tab.locator(".lines p").filter(has_text=f"By {name}").inner_text()
        top = removable[int(values[removable].argmax())]
        assert f"“{run.encoding.labels[top]}”" in sentence
        for text, value in zip(tab.locator(".scores thead .number").all_inner_texts(), values, strict=True):
            assert_shown(text, float(value))
        claims = next(method.claims for method in METHODS if method.name == name)
        expect(tab.locator(".reading")).to_contain_text(claims)
        if name == "integrated gradients":
            assert_gap(tab.locator(".lines p").last.inner_text(), integrated_gradients(mini, run.encoding, target))
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Scores (CSV)").click()
    table = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
    for name, values in scores.items():
        written = [float(line["score"]) for line in table if line["method"] == name]
        assert np.allclose(written, values, atol=2e-4)


def assert_gap(sentence: str, path: Attribution) -> None:
    """A sentence has the sum of the scores, the change of the target from the baseline, and their small difference."""
    assert path.gap is not None
    total, change, gap = NUMBER.findall(sentence)
    assert_shown(total, float(path.scores.sum()))
    assert_shown(change, float(path.scores.sum() - path.gap))
    assert number(gap) < 0.01


def test_integrated_gradients_are_cancelled_and_computed(open_page: Open) -> None:
    """The other methods are there at once; the slow one has a progress bar, and a button after Cancel."""
    tab = open_page("why", text=f"{OWN} {OWN} {OWN}", masked="3")
    expect(tab.locator(".work .note")).to_contain_text(re.compile(r"\d+ of 52, about \d+ s left"))
    tab.get_by_role("button", name="Cancel").click()
    compute = tab.get_by_role("button", name="Compute integrated gradients")
    expect(compute).to_be_visible()
    tokens = tab.locator(".scores thead th").count()
    compute.click()
    expect(tab.locator(".scores .score")).to_have_count(4 * tokens)


# ----------------------------------------------------------------------------------------------- all three pages


@pytest.mark.parametrize("path", ["attention", "heads", "why"])
def test_stored_runs_need_no_model(path: str, window: BrowserContext, server: StaticSite) -> None:
    """Before any file of the model has arrived, the page is drawn, with all its numbers."""
    tab = window.new_page()
    without_model(tab)
    parameters = {"text": STORED.text, "masked": str(STORED.masked[0]), "show": "product", "colour": "removal"}
    tab.goto(f"{server.address}/{path}/?{urlencode(parameters)}")
    drawn(tab)
    figures = {"attention": ".head-view .numbers tr", "heads": ".measured table", "why": ".scores .score >> nth=20"}
    expect(tab.locator(figures[path]).first).to_be_visible()
    tab.unroute_all(behavior="ignoreErrors")
    tab.close()


@pytest.mark.parametrize(
    ("path", "note"), [("attention", "attention is shown"), ("heads", "nothing"), ("why", "no prediction")]
)
def test_a_sentence_without_a_mask_has_a_way_out(path: str, note: str, open_page: Open) -> None:
    """The page says what is missing, and a button masks a word."""
    tab = open_page(path, text=OWN, show="gradient", colour="removal", method="integrated gradients")
    expect(tab.locator(".figure .notice")).to_contain_text(note)
    tab.locator(".figure").get_by_role("button", name="Mask “").click()
    expect(tab.locator(".figure .notice")).to_have_count(0)
    assert "masked=" in tab.url


@pytest.mark.parametrize("path", ["heads", "why"])
def test_the_next_sentence_is_explained(path: str, mini: LoadedModel, open_page: Open) -> None:
    """Of two sentences without a mask: its probability and its contributions, or its scores."""
    encoding = mini.tokenizer.encode(OWN, "It was full of apples.")
    run = capture(mini, encoding, target=Target("nsp"))
    assert run.nsp is not None and run.gate_gradient is not None
    tab = open_page(path, text=OWN, pair="It was full of apples.")
    if path == "heads":
        expect(tab.locator(".results .result")).to_contain_text("All heads are on: the probability that B follows A is")
        assert_shown(tab.locator(".results .result").inner_text().split()[-1].rstrip("."), run.nsp)
        for text, value in zip(grid_numbers(tab, run.head_mask.shape), run.gate_gradient.flat, strict=True):
            assert_shown(text, float(value))
        return
    expect(tab.locator(".scores .score")).to_have_count(4 * len(encoding))
    texts = tab.locator(".score-number").all_inner_texts()
    for text, value in zip(texts, np.concatenate([*scores_of(mini, run).values()]), strict=True):
        assert_shown(text, float(value))

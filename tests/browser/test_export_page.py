"""The page that an export writes, opened from disk in a real browser without a network; and the same in a notebook."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import bert_core
from bert_core import BertConfig, BertLMHeadModel, LoadedModel, ModelRun, Target
from bert_core.analysis.patterns import role_figures, sort_heads, sort_layers
from bert_core.analysis.roles import describe_roles, role_ranks, role_scores, roles_of_heads
from bert_core.recording import record
from bert_core.records import DecoderRun, HeadVectors
from tests.browser.conftest import Serve
from tests.browser.reader import opened_from_disk, settled
from tests.hostile import HOSTILE, run_of
from viz_app.comparison import Comparison
from viz_app.export.markup import Theme
from viz_app.export.page import attention_page, caption_page, change_page, neuron_page
from viz_app.figures.thumbnails import LARGE, blocks, common_limit
from viz_app.maps import Combination, MapView
from viz_app.notebook import view, view_caption, view_maps

WORDS = ["The", "cat", "sat", "##s", "on", "it"]


def opened(page: Page, folder: Path, run: ModelRun, asked: MapView | None = None, **options: Any) -> Page:
    """The page of a run, from a file, with the network off."""
    return opened_from_disk(page, folder, attention_page(run, asked, **options))


def head(page: Page, number: int) -> Locator:
    return page.locator(f'.head[data-head="{number}"]')


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.smoke
def test_a_page_needs_nothing_but_itself(page: Page, tmp_path: Path) -> None:
    """Every head of every layer can be opened, in curves and as a matrix, and nothing else is asked for."""
    opened(page, tmp_path, run_of(WORDS, layers=3, heads=4, second=3), MapView(layer=1, heads=(0, 2)))
    expect(head(page, 2)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".note")).to_contain_text("of 128 edges")
    expect(page.locator("#text .a")).to_contain_text("sat")
    page.get_by_role("button", name="L2 H3").click()
    expect(page.locator(".layer .name")).to_have_text("L2")
    expect(head(page, 3)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".cell.selected")).to_have_attribute("data-layer", "2")
    page.get_by_role("button", name="the layer before").click()
    expect(page.locator(".layer .name")).to_have_text("L1")
    expect(page.locator(".cell.selected")).to_have_attribute("data-layer", "1")
    head(page, 1).click()
    expect(page.locator(".note")).to_contain_text("of 128 edges")
    page.get_by_role("button", name="All heads").click()
    expect(page.locator(".note")).to_be_hidden()
    assert page.locator(".cell").first.bounding_box()["width"] > 90
    page.get_by_role("button", name="L0 H3").click()
    expect(page.locator(".layer .name")).to_have_text("L0")
    page.get_by_role("button", name="Matrix").click()
    expect(page.locator(".note")).to_contain_text("8 × 8")
    page.locator("canvas.matrix").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip").last).to_contain_text(re.compile(r"attention 0\.\d{6,}"))
    assert page.requested == [page.url] and page.problems == []


def numbers_of(page: Page) -> list[Locator]:
    """The cells of the panel that hold numbers."""
    return page.locator(".numbers tr:not(.foot) td.number").all()


def test_of_a_short_text_every_number_is_exact(page: Page, tmp_path: Path) -> None:
    """A row and a column as the page lists them, and a cell of the matrix: those of the run, to nine digits."""
    run = run_of(WORDS)
    opened(page, tmp_path, run, MapView(layer=1, heads=(2,)))
    expect(page.locator("body")).to_contain_text("Every value is exact, in float32.")
    for side, exact in (("query", run.attention[1, 2, 3]), ("key", run.attention[1, 2, :, 3])):
        page.locator(f".column.{side} .token").nth(3).hover()
        expect(page.locator(".numbers .title")).to_contain_text("sat (3)")
        listed = [float(cell.get_attribute("title")) for cell in numbers_of(page)]
        assert listed == pytest.approx(np.sort(exact)[::-1].tolist(), rel=1e-8)
    page.get_by_role("button", name="Matrix").click()
    page.locator("canvas.matrix").focus()
    page.keyboard.press("ArrowDown")
    tip = page.get_by_role("tooltip").last
    expect(tip).to_contain_text("attention")
    assert float(tip.inner_text().split()[-1].replace("−", "-")) == pytest.approx(
        float(run.attention[1, 2, 0, 0]), rel=1e-8
    )


def test_the_numbers_of_a_long_text_are_within_the_stated_precision(page: Page, tmp_path: Path) -> None:
    """A row as the page lists it: each number within 1/256 of the row's largest, and the strongest edge exact."""
    run = run_of(WORDS * 60)
    opened(page, tmp_path, run, MapView(layer=1, heads=(2,)))
    expect(page.locator("body")).to_contain_text("off by at most 1/256 of the largest in their row")
    strongest = page.locator(".numbers td.number").first
    assert float(strongest.get_attribute("title")) == pytest.approx(float(run.attention[1, 2].max()), rel=1e-8)
    page.locator(".column.query .token").nth(3).hover()
    expect(page.locator(".numbers .title")).to_have_text("Attention from sat (3)")
    row = np.sort(run.attention[1, 2, 3])[::-1]
    listed = [cell.inner_text() for cell in numbers_of(page)]
    assert len(listed) == 10 and all(text.startswith("≈") for text in listed)
    for text, exact in zip(listed, row, strict=False):
        assert float(text.lstrip("≈< ")) == pytest.approx(float(exact), abs=float(row[0]) / 256 + 0.005)


def test_a_gradient_of_a_long_text_is_within_the_stated_precision(
    page: Page, tmp_path: Path, tiny_loaded: LoadedModel
) -> None:
    """Kept in thin matrices: a row as it is drawn is within 1/160 of its largest, and the page is much smaller."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat on the mat and the dog saw it " * 30, "it was red")
    run = bert_core.capture(tiny_loaded, encoding, target=Target("nsp"))
    opened(page, tmp_path, run, MapView("gradient", layer=0, heads=(2,)))
    expect(page.locator("body")).to_contain_text("off by at most 1/160 of the largest magnitude in their row")
    assert (tmp_path / "page.html").stat().st_size < run.attention.nbytes / 6
    page.locator(".column.query .token").nth(3).hover()
    expect(page.locator(".numbers .title")).to_have_text("Gradient from sat (3)")
    row = run.gradient[0, 2, 3]
    row = row[np.argsort(-np.abs(row))]
    listed = [float(cell.inner_text().lstrip("≈ ").replace("−", "-")) for cell in numbers_of(page)]
    assert len(listed) == 10
    for number, exact in zip(listed, row, strict=False):
        rounding = 0.5 * 10 ** (np.floor(np.log10(abs(number))) - 1)
        assert number == pytest.approx(float(exact), abs=float(np.abs(row[0])) / 160 + rounding)
    page.get_by_role("button", name="L1 H3").click()
    expect(page.locator(".layer .name")).to_have_text("L1")
    expect(head(page, 3)).to_have_attribute("aria-pressed", "true")
    head(page, 1).click()
    expect(page.locator(".note")).not_to_contain_text("on the way")
    assert page.problems == []


@pytest.mark.parametrize(("scheme", "theme", "colour"), [
    ("light", None, "rgb(255, 255, 255)"), ("dark", None, "rgb(20, 22, 26)"), ("light", "dark", "rgb(20, 22, 26)"),
])  # fmt: skip
def test_light_and_dark(page: Page, tmp_path: Path, scheme: str, theme: Theme | None, colour: str) -> None:
    """The page follows the system, also when that changes, unless one of the two was asked for."""
    page.emulate_media(color_scheme=scheme)
    opened(page, tmp_path, run_of(WORDS), theme=theme)
    assert background(page) == colour
    tint = page.locator(".view").evaluate("e => e.style.getPropertyValue('--tint-a')")
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    if theme is None:
        expect(page.locator(".view")).not_to_have_attribute("style", re.compile(re.escape(f"--tint-a: {tint}")))
        assert background(page) != colour
    else:
        assert background(page) == colour


@pytest.mark.parametrize("mode", [pytest.param("curves", marks=pytest.mark.smoke), "matrix", "one map", "neuron"])
def test_hostile_texts_are_only_text(page: Page, tmp_path: Path, mode: str) -> None:
    """Nothing runs, nothing is asked for, no element comes from a text, and every token reads as it was written."""
    run = run_of(HOSTILE, second=9)
    view = {"matrix": MapView(mode="matrix"), "one map": MapView(combination=Combination("maximum", "all"))}.get(mode)
    made = neuron_page(run, vectors_of(run), 3) if mode == "neuron" else attention_page(run, view)
    opened_from_disk(page, tmp_path, made)
    for place, text in enumerate(HOSTILE[:-1]):
        assert page.locator(".column.query .token").nth(place + 1).text_content() == text[:60]
    assert page.locator("#text .a").text_content() == "\n".join(HOSTILE[:9])
    assert page.locator("#text *").count() == 3
    assert page.locator("img:not(.cell img), a, b:not(.faint b, .title b), svg, i").count() == 0
    more = {"one map": 1, "neuron": 1}.get(mode, 0)
    assert page.locator("script").count() == 2 + 2 + 1 + more, "what is shown, its grid, two layers, and the script"
    assert page.evaluate("window.ran") is None
    assert page.requested == [page.url] and page.problems == []


def vectors_of(run: ModelRun, *, distances: bool = False) -> HeadVectors:
    """Vectors of L1 H2 from a seed, with what distances add (and three terms) or without; no model reads them."""
    rng = np.random.default_rng(4)
    n = len(run.encoding)
    queries, keys = rng.normal(size=(2, n, 4)).astype(np.float32)
    if not distances:
        return HeadVectors(run.encoding, 1, 2, queries, keys)
    return HeadVectors(run.encoding, 1, 2, queries, keys, rng.normal(size=(n, n)), root_terms=3)


def pressed(page: Page) -> list[str]:
    """The names of the ways to look that are chosen."""
    return page.locator(".modes [aria-pressed=true]").all_inner_texts()


def test_several_heads_as_one_map_and_apart(page: Page, tmp_path: Path) -> None:
    """The page opens with the one map under its name, shows its exact numbers, and the heads apart after a click."""
    run, together = run_of(WORDS), Combination("average")
    opened(page, tmp_path, run, MapView(layer=1, heads=(0, 2), combination=together))
    assert pressed(page) == ["Head", "average of L1 H0, H2"]
    expect(page.locator(".note")).to_contain_text("average of L1 H0, H2")
    page.locator(".column.query .token").nth(2).hover()
    expect(page.locator(".numbers .title")).to_contain_text("cat (2)")
    listed = [float(cell.get_attribute("title")) for cell in numbers_of(page)]
    expected = np.sort(run.attention[1, [0, 2], 2].mean(0))[::-1]
    assert listed == pytest.approx(expected.tolist(), rel=1e-6)
    page.get_by_role("button", name="heads apart").click()
    expect(page.locator(".note")).to_contain_text("of 128 edges")
    expect(page.locator(".note")).not_to_contain_text("average")
    page.get_by_role("button", name="average of L1 H0, H2").click()
    expect(page.locator(".note")).to_contain_text("average of L1 H0, H2")
    page.get_by_role("button", name="L0 H1").click()
    expect(page.locator(".note")).not_to_contain_text("average")
    assert pressed(page) == ["Head", "heads apart"] and page.problems == []


@pytest.mark.parametrize("distances", [False, True])
def test_a_head_down_to_its_vectors(page: Page, tmp_path: Path, distances: bool) -> None:
    """Opened at the query that was asked for, with its numbers; other heads are curves, and a click leads back."""
    run = run_of(WORDS)
    vectors = vectors_of(run, distances=distances)
    opened_from_disk(page, tmp_path, neuron_page(run, vectors, 3))
    assert pressed(page) == ["Query-key L1 H2"]
    best = int(vectors.attention[3].argmax())
    expect(page.locator(".numbers .title")).to_contain_text(f"sat (3) → {run.encoding.tokens[best]} ({best})")
    shares = page.locator(".numbers tr.foot").last.locator("td.number")
    assert float(shares.get_attribute("title")) == pytest.approx(float(vectors.attention[3, best]), rel=1e-5)
    page.get_by_role("button", name="L0 H1").click()
    expect(page.locator(".numbers .title")).to_have_text("Attention from sat (3)")
    assert pressed(page) == ["Head"]
    page.get_by_role("button", name="Query-key L1 H2").click()
    expect(page.locator(".numbers .title")).to_contain_text("sat (3)")
    assert page.problems == [] and page.requested == [page.url]


def test_the_difference_of_two_runs(page: Page, tmp_path: Path) -> None:
    """On one scale for all heads, with the list of the largest; its lines open their heads; hostile names stay text."""
    before, after = run_of(HOSTILE, second=9), run_of(HOSTILE[::-1])
    pair = Comparison(before, dataclasses.replace(after, encoding=before.encoding), ("<b>one</b>", HOSTILE[10]))
    pair = dataclasses.replace(pair, after=dataclasses.replace(pair.after, attention=after.attention[:, ::-1]))
    opened_from_disk(page, tmp_path, change_page(pair, MapView(layer=1, mode="matrix")))
    lines = pair.change_rows(pair.largest())
    table = page.locator("#changes tr")
    expect(table).to_have_count(1 + len(lines))
    assert table.first.locator("th").all_text_contents() == list(lines[0])
    assert table.nth(1).locator("td").all_text_contents()[:3] == [
        str(lines[0][name]) for name in ("head", "query", "key")
    ]
    table.nth(1).get_by_role("button").click()
    layer, number = (int(part[1:]) for part in str(lines[0]["head"]).split())
    expect(page.locator(".layer .name")).to_have_text(f"L{layer}")
    expect(head(page, number)).to_have_attribute("aria-pressed", "true")
    cap = common_limit(blocks(pair.difference_maps().values, LARGE, signed=True))
    for legend in (page.locator(".legend").first, page.locator(".legend").last):
        expect(legend).to_contain_text(f"≥ {cap:.2g}")
    assert page.locator("img:not(.cell img), a, b:not(.faint b, .title b), svg, i").count() == 0
    assert page.evaluate("window.ran") is None and page.requested == [page.url] and page.problems == []


def caption_of(words: list[str]) -> DecoderRun:
    """These words about a picture of 3 x 3 patches, from a seed; no model looks at it."""
    rng = np.random.default_rng(2)
    maps = rng.dirichlet(np.full(9, 0.3), (len(words), 2, 3)).astype(np.float32)
    image = rng.integers(0, 255, (12, 12, 3), np.uint8)
    others = (((words[0], 1.0),),) * len(words)
    certain, lengths = np.ones(len(words)), 1 + maps[0]
    return DecoderRun(image, (3, 3), tuple(words), certain, others, maps, maps - np.float32(0.1), lengths)


def test_where_a_captioner_looks(page: Page, tmp_path: Path) -> None:
    """The average of all heads for a word, over the picture; clicks show another word and a head; all is only text."""
    run = caption_of([*HOSTILE[:6], "blue", "[SEP]"])
    maps = run.cross_attention
    opened_from_disk(page, tmp_path, caption_page(run, word=6))
    assert pressed(page) == ["Head", "average of all 2 × 3 heads"]
    picture = page.locator("#seen canvas")
    expect(picture).to_have_attribute("aria-label", "attention over the picture for “blue”, average of all 2 × 3 heads")
    strongest = int(maps.mean((1, 2))[6].argmax())
    expect(page.locator(".numbers td.word").first).to_have_text(f"row {strongest // 3}, column {strongest % 3}")
    before = picture.screenshot()
    page.get_by_role("button", name="L1 H2").click()
    page.locator(".column.query .token").first.click()
    expect(page.locator("#seen figcaption")).to_contain_text("L1 H2")
    expect(page.locator("#seen figcaption")).to_contain_text(HOSTILE[0])
    assert picture.screenshot() != before
    assert page.locator("img:not(.cell img), a, svg, i").count() == 0
    assert page.evaluate("window.ran") is None and page.requested == [page.url] and page.problems == []


def test_heads_and_layers_stand_in_another_order(page: Page, tmp_path: Path) -> None:
    """By any of the role figures, the largest first, and back by number; a click still opens the head that it shows."""
    run = run_of(WORDS, layers=3, heads=4)
    opened(page, tmp_path, run)
    figures = role_figures(run.attention, run.encoding)
    page.get_by_label("Heads of a layer").select_option("by mean distance")
    page.get_by_label("Layers").select_option("by entropy")

    def order() -> list[tuple[int, int]]:
        cells = page.locator(".cell").all()
        return [(int(cell.get_attribute("data-layer")), int(cell.get_attribute("data-head"))) for cell in cells]

    heads, rows = sort_heads(figures.distance), sort_layers(figures.entropy)
    assert order() == [(int(layer), int(number)) for layer in rows for number in heads[layer]]
    page.get_by_label("Heads of a layer").select_option("by role")
    assert page.get_by_label("Layers").locator("option").all_text_contents()[-1] == "by mean distance"
    roles = roles_of_heads(role_scores(run.attention, run.encoding))
    heads = sort_heads(role_ranks(roles))
    assert order() == [(int(layer), int(number)) for layer in rows for number in heads[layer]]
    layer, number = order()[1]
    page.locator(".cell").nth(1).hover()
    expect(page.locator(".tip").first).to_contain_text(f"L{layer} H{number}: {describe_roles(roles)[layer][number]}")
    page.locator(".cell").nth(1).click()
    expect(page.locator(".layer .name")).to_have_text(f"L{layer}")
    expect(head(page, number)).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Heads of a layer").select_option("by number")
    page.get_by_label("Layers").select_option("by number")
    assert order() == [(layer, number) for layer in range(3) for number in range(4)] and page.problems == []


def test_larger_type_for_a_lecture(page: Page, tmp_path: Path) -> None:
    """By its button, or from the address of the file: every part of the page grows."""
    opened(page, tmp_path, run_of(WORDS))
    before = page.locator(".token").first.bounding_box()["height"]
    page.get_by_role("button", name="Larger type").click()
    expect(page.locator(".view.lecture")).to_be_attached()
    assert page.locator(".token").first.bounding_box()["height"] > before
    page.get_by_role("button", name="All heads").click()
    page.get_by_role("button", name="Larger type").click()
    assert pressed(page) == ["All heads"]
    page.goto(f"{page.url}?lecture=1")
    expect(page.get_by_role("button", name="Larger type")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".view.lecture")).to_be_attached()


def test_what_a_text_would_run_is_forbidden_too(page: Page, tmp_path: Path) -> None:
    """Should a text ever become markup, the page's own policy still lets no script but its own run."""
    opened(page, tmp_path, run_of(WORDS))
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.ran=1>')")
    page.evaluate(
        "{ const s = document.createElement('script'); s.textContent = 'window.ran=1'; document.body.append(s); }"
    )
    expect(page.locator("img[src=x]")).to_be_attached()
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None and any("Content Security Policy" in said for said in page.problems)


def test_holes_pruned_heads_and_heads_that_are_off(page: Page, tmp_path: Path) -> None:
    """What is no number is named, what does not exist cannot be chosen, what is off is said to be."""
    run = run_of(WORDS)
    attention = run.attention.copy()
    attention[0, 0, 1, :2] = np.nan
    attention[0, 2] = np.nan
    gates = run.head_mask.copy()
    gates[0, 1] = 0
    opened(page, tmp_path, dataclasses.replace(run, attention=attention, head_mask=gates), MapView(heads=(0, 1)))
    expect(page.locator(".note")).to_contain_text("2 values of H0 are not numbers")
    expect(page.locator(".note")).to_contain_text("H1 is switched off")
    expect(page.get_by_role("button", name="H2, pruned", exact=True)).to_be_disabled()
    assert page.problems == []


@pytest.mark.parametrize(("words", "layers", "heads"), [([], 1, 1), (["a"], 24, 16)])
def test_unusual_models_and_texts(page: Page, tmp_path: Path, words: list[str], layers: int, heads: int) -> None:
    """No word at all and one head, and twice as many layers as usual: the last head opens, as a matrix too."""
    opened(page, tmp_path, run_of(words, layers=layers, heads=heads))
    expect(page.locator(".cell")).to_have_count(layers * heads)
    page.get_by_role("button", name=re.compile(rf"^L{layers - 1} H{heads - 1}\b")).click()
    expect(page.locator(".layer .name")).to_have_text(f"L{layers - 1}")
    page.get_by_role("button", name="Matrix").click()
    expect(page.locator(".note")).to_contain_text(f"{len(words) + 2} × {len(words) + 2}")
    assert page.problems == []


def test_512_tokens_open(page: Page, tmp_path: Path) -> None:
    """The longest text: all tokens are there, another layer's head opens, and the file is smaller than the maps."""
    run = run_of(["buffalo"] * 510, layers=2, heads=2)
    opened(page, tmp_path, run)
    expect(page.locator(".token")).to_have_count(1024)
    page.get_by_role("button", name="L1 H1").click()
    expect(page.locator(".layer .name")).to_have_text("L1")
    expect(page.locator(".note")).to_contain_text("of 262,144 edges")
    assert (tmp_path / "page.html").stat().st_size < run.attention.nbytes


def test_the_same_in_a_notebook(browser: Browser, tmp_path: Path) -> None:
    """What Jupyter would put into its page: a frame with no rights but scripts, in which the view works offline."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    cell = view(run_of(HOSTILE), layer=1, heads=[1], height=700)
    assert html.escape(cell.page) in cell._repr_html_() and repr(cell).startswith("AttentionDisplay of ")
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{cell._repr_html_()}</body>", encoding="utf-8")
    page.goto((tmp_path / "cell.html").as_uri())
    frame = page.frame_locator("iframe")
    expect(frame.locator(".layer .name")).to_have_text("L1")
    frame.get_by_role("button", name="L0 H2").click()
    expect(frame.locator(".layer .name")).to_have_text("L0")
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    assert page.evaluate("window.ran") is None
    context.close()


def test_every_view_can_be_shown_in_a_notebook() -> None:
    """One map of several heads, a head's vectors, and the difference to another run are the pages of the exports."""
    run, other = run_of(WORDS), run_of(WORDS, layers=2)
    vectors = vectors_of(run)
    together = Combination("average")
    asked = MapView(layer=1, heads=(0, 2), combination=together, words=True)
    assert view(run, layer=1, heads=[0, 2], combination=together, words=True).page == attention_page(run, asked)
    assert view(run, vectors=vectors, query=2, theme="dark").page == neuron_page(run, vectors, 2, theme="dark")
    pair = Comparison(run, other, ("this run", "the other run"))
    assert view(run, compared_run=other, layer=1, mode="matrix").page == change_page(
        pair, MapView(layer=1, mode="matrix")
    )
    with pytest.raises(ValueError, match="choose one of the two"):
        view(run, vectors=vectors, compared_run=other)
    said = caption_of(["a", "blue", "star"])
    assert view_caption(said, "gradient", head=(1, 2), word=1).page == caption_page(said, "gradient", (1, 2), 1)


def test_a_decoder_over_another_text(page: Page, tmp_path: Path, tiny_loaded: LoadedModel) -> None:
    """Its cross-attention in the same view: a row for each of its tokens, a column for each of the other text's."""
    read = tiny_loaded.tokenizer.encode("the room was dark")
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 24, "intermediate_size": 48}
    config = BertConfig(
        vocab_size=50, is_decoder=True, add_cross_attention=True, encoder_width=tiny_loaded.config.hidden_size, **sizes
    )
    with torch.no_grad(), record() as recording:
        states = tiny_loaded.model.bert(torch.tensor([read.input_ids])).last_hidden_state
        BertLMHeadModel(config).eval()(torch.arange(6)[None], encoder_hidden_states=states)
    across = np.stack([maps[0].numpy() for _, maps in sorted(recording.cross_attention.items())])
    queries = [*HOSTILE[:5], "said"]
    cell = view_maps(across, queries, read.tokens, layer=1, heads=[2])
    opened_from_disk(page, tmp_path, cell.page)
    expect(page.locator(".column.query .token")).to_have_count(6)
    expect(page.locator(".column.key .token")).to_have_count(len(read))
    page.locator(".column.query .token").nth(5).hover()
    expect(page.locator(".numbers .title")).to_contain_text("said (5)")
    listed = [float(cell.get_attribute("title")) for cell in numbers_of(page)]
    assert listed == pytest.approx(np.sort(across[1, 2, 5])[::-1][: len(listed)].tolist(), rel=1e-8)
    assert page.evaluate("window.ran") is None and page.problems == []
    with pytest.raises(ValueError, match="with 6 queries and 2 keys"):
        view_maps(across, queries, ["one", "two"])
    with pytest.raises(ValueError, match="leave out words"):
        view_maps(across, queries, read.tokens, words=True)


CONTROL = """
import numpy as np
import streamlit as st

import bert_core
from bert_core.records import HeadVectors
from tests.hostile import HOSTILE, run_of
from functools import partial

from viz_app.shell import downloads
from viz_app.shell.view import make_view
from viz_app.maps import MapView

run = run_of(HOSTILE, second=9)
heads = [(layer, head) for layer in range(run.attention.shape[0]) for head in range(run.attention.shape[1])]
rows = np.ones((len(run.encoding), 8), np.float32)
vectors = [HeadVectors(run.encoding, layer, head, rows, rows) for layer, head in heads]
model = bert_core.load("headlight-mini", device="cpu")
view = make_view()
view.exports.append(
    partial(downloads.attention, lambda: run, lambda: vectors, MapView(layer=1, heads=(0, 2)), model)
)
downloads.heads(run, [(0, 1)], np.ones((2, 3)), None)
downloads.page_export(view)
"""


def test_every_file_of_the_control_comes_down(serve: Serve, page: Page, tmp_path: Path) -> None:
    """A click on each kind gives that file, of hostile texts, made after the click; nothing runs on the page."""
    (tmp_path / "control.py").write_text(CONTROL, encoding="utf-8")
    page.goto(serve(tmp_path / "control.py"))
    starts = {
        "PNG": b"\x89PNG", "SVG": b"<?xml", "PDF": b"%PDF", "CSV": b"layer,head,query_position", "NPZ": b"PK",
        "Python": b"from pathlib", "HTML": b"<!doctype html>", "BertViz head view": b"<!doctype html>",
        "BertViz model view": b"<!doctype html>", "BertViz neuron view": b"<!doctype html>",
    }  # fmt: skip
    page.get_by_role("button", name="Export").click()
    popover = page.get_by_test_id("stPopoverBody")
    expect(popover.get_by_role("button", name="PNG", exact=True)).to_be_visible()
    settled(page)  # what is in it is drawn when it is opened
    for label, start in starts.items():
        with page.expect_download() as download:
            popover.get_by_role("button", name=label, exact=True).click()
        assert Path(download.value.path()).read_bytes().startswith(start), label
    popover.get_by_text("All heads", exact=True).click()
    expect(popover.get_by_role("radio", name="All heads")).to_be_checked()
    settled(page)
    with page.expect_download() as download:
        popover.get_by_role("button", name="SVG", exact=True).click()
    assert download.value.suggested_filename == "attention-all.svg"
    with page.expect_download() as download:
        popover.get_by_role("button", name="Heads (CSV)").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[:3] == ["layer,head,on,gradient_estimate", "0,0,1,1.0", "0,1,0,1.0"] and len(lines) == 7
    assert page.evaluate("window.ran") is None


def test_what_no_page_can_be_is_refused() -> None:
    """An unknown theme, a head that does not exist, a gradient that was not captured."""
    run = run_of(WORDS)
    with pytest.raises(ValueError, match="'light', 'dark' or None"):
        attention_page(run, theme="blue")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="head 9 does not exist"):
        view(run, heads=(9,))
    with pytest.raises(ValueError, match="needs a capture with a target"):
        view(run, "gradient")
    with pytest.raises(ValueError, match=r"a comparison is of attention.*leave out words"):
        view(run, compared_run=run, words=True)
    with pytest.raises(ValueError, match="query 99 does not exist"):
        neuron_page(run, vectors_of(run), 99)
    with pytest.raises(ValueError, match="of another text"):
        neuron_page(run_of(["a"]), vectors_of(run))

"""BertViz's own views of our maps, in a real browser whose CDN is blocked or answered by a stand-in."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from bert_core.loading import LoadedModel
from bert_core.records import HeadVectors
from bert_core.run.capture import capture
from bert_core.run.vectors import all_head_vectors
from tests.hostile import HOSTILE, run_of
from viz_app import cli
from viz_app.export.bertviz import CDN, NOTE, View, bertviz_page, escaped, estimate, layers_that_fit
from viz_app.maps import MapView
from viz_app.notebook import view_bertviz

# BertViz reads its own script and leaves the file to be closed by chance.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
LINE_VIEWS: tuple[View, ...] = ("head", "model")  # the views that need nothing but the attention
# What stands in for require.js: it keeps the function that BertViz hands to it, and does not run it.
STAND_IN = "window.require = { config() {} }; window.requirejs = (names, draw) => { window.handed = draw.toString(); };"


def opened(page: Page, folder: Path, html: str, answer: Callable[[Route], None]) -> None:
    page.route(re.compile(rf"^{re.escape(CDN)}/"), answer)
    (folder / "bertviz.html").write_text(html, encoding="utf-8")
    page.goto((folder / "bertviz.html").as_uri())


def handed_over(page: Page) -> list[dict]:
    """The data that BertViz's script would draw, as the browser read it."""
    found = re.search(r"const params = (\{.*\});$", page.evaluate("window.handed"), re.MULTILINE)
    assert found is not None
    return json.loads(found[1])["attention"]


@pytest.mark.parametrize("kind", LINE_VIEWS)
def test_no_text_runs_and_every_text_arrives(page: Page, tmp_path: Path, kind: View) -> None:
    """Hostile tokens leave BertViz's script whole: it is handed over with every token as it was written."""
    run = run_of(HOSTILE)
    opened(page, tmp_path, bertviz_page(MapView().maps(run), kind), lambda r: r.fulfill(body=STAND_IN))
    (data,) = handed_over(page)
    assert data["left_text"] == data["right_text"] == ["[CLS]", *HOSTILE, "[SEP]"]
    assert np.allclose(data["attn"], run.attention, atol=5.1e-5)
    assert page.evaluate("window.ran") is None and page.locator("img, svg, a").count() == 0
    assert page.locator("body").inner_text().count("x" * 50) == 0
    assert [url for url in page.requested if not url.startswith((CDN, "file:"))] == []
    assert page.problems == []


@pytest.mark.parametrize("kind", LINE_VIEWS)
def test_without_its_cdn_a_sentence_says_why_nothing_is_drawn(page: Page, tmp_path: Path, kind: View) -> None:
    """Blocked, the page asks the CDN alone, nothing runs, and it names what is missing and the way out."""
    opened(page, tmp_path, bertviz_page(MapView().maps(run_of(HOSTILE)), kind), lambda r: r.abort())
    expect(page.get_by_role("alert")).to_contain_text("cdnjs.cloudflare.com cannot be reached")
    expect(page.locator("body")).to_contain_text(NOTE)
    assert page.evaluate("window.ran") is None
    assert {url.split("/")[2] for url in page.requested if not url.startswith("file:")} == {"cdnjs.cloudflare.com"}


def test_its_layers_keep_their_numbers(page: Page, tmp_path: Path) -> None:
    """Of three layers the last two: BertViz is told their own numbers, and their own maps."""
    run = run_of(["a", "b"], layers=3)
    opened(page, tmp_path, bertviz_page(MapView().maps(run), "head", [2, 1]), lambda r: r.fulfill(body=STAND_IN))
    (data,) = handed_over(page)
    assert np.allclose(data["attn"], run.attention[1:], atol=5.1e-5)
    assert '"include_layers": [1, 2]' in page.evaluate("window.handed")


@pytest.mark.parametrize("kind", LINE_VIEWS)
def test_the_estimate_is_near_the_file(kind: View) -> None:
    """What is said of the size before the page is built is within a third of what it then has."""
    run = run_of(["word"] * 62, layers=4)
    assert len(bertviz_page(MapView().maps(run), kind, [0, 2, 3])) == pytest.approx(
        estimate(64, 3, 3, kind)[0], rel=0.33
    )


def test_what_no_browser_can_draw_is_refused_before_it_is_built() -> None:
    """The sentence gives the size, and the layers that would fit; where none fits, another way."""
    shown = MapView().maps(run_of(["word"] * 254, layers=12, heads=4))
    assert layers_that_fit(256, 4, 12, "model", 5) == [5, 6]
    with pytest.raises(ValueError, match=r"25 MB with 3,145,728 lines .* choose at most 2, as L0, L1"):
        bertviz_page(shown, "model")
    assert layers_that_fit(256, 4, 12, "head") == list(range(12))
    assert layers_that_fit(512, 12, 12, "head") == layers_that_fit(512, 12, 12, "model") == []


def test_what_bertviz_cannot_draw_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a map, no layer, a layer that is not there; and BertViz itself, if it is not there."""
    run = run_of(["a", "b"], second=1)
    for problem, call in {
        "not one part of it": lambda: bertviz_page(MapView(part="A to B").maps(run)),
        "at least one": lambda: bertviz_page(MapView().maps(run), layers=[]),
        "layer 7 does not exist": lambda: bertviz_page(MapView().maps(run), layers=[7]),
        "has the views head, model, neuron": lambda: bertviz_page(MapView().maps(run), "tree"),  # type: ignore[arg-type]
        "needs the query and key vectors of L0 H0": lambda: bertviz_page(MapView().maps(run), "neuron"),
    }.items():
        with pytest.raises(ValueError, match=problem):
            call()
    monkeypatch.setitem(sys.modules, "bertviz", None)
    with pytest.raises(ModuleNotFoundError, match="pip install bertviz"):
        bertviz_page(MapView().maps(run))


def test_the_command_writes_bertvizs_pages(
    tiny_model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--bertviz` as .html, of all layers or of one; without BertViz one sentence, and no file."""

    def headlight(*options: object) -> tuple[int, str]:
        asked = [
            "The cat sat.",
            "--model",
            tiny_model_folder,
            "--device",
            "cpu",
            "--out",
            tmp_path / "a.html",
            *options,
        ]
        with pytest.raises(SystemExit) as ended:
            cli.main(["attention", *map(str, asked)])
        return int(ended.value.code or 0), capsys.readouterr().err

    assert headlight("--bertviz", "neuron") == (0, "")
    assert '"queries": [[[[' in (tmp_path / "a.html").read_text()
    for kind, layers in (("model", "[0, 1]"), ("head", "[1]")):
        assert headlight("--bertviz", kind, *(["--layer", 1] if kind == "head" else [])) == (0, "")
        assert f'"include_layers": {layers}' in (tmp_path / "a.html").read_text()
        (tmp_path / "a.html").unlink()
    monkeypatch.setitem(sys.modules, "bertviz", None)
    code, err = headlight("--bertviz", "head")
    assert code == 2 and err == "BertViz is not installed: pip install bertviz\n"
    assert not (tmp_path / "a.html").exists()


def test_the_neuron_view_has_the_recorded_vectors(page: Page, tmp_path: Path, tiny_loaded: LoadedModel) -> None:
    """BertViz gets the attention, queries and keys of every head, whose softmax is the attention; no text runs."""
    encoding = tiny_loaded.tokenizer.encode("the cat </script><img src=x onerror=window.ran=1> sat.", "it was red.")
    run, vectors = capture(tiny_loaded, encoding), all_head_vectors(tiny_loaded, encoding)
    html = bertviz_page(MapView().maps(run), "neuron", vectors=vectors)
    opened(page, tmp_path, html, lambda r: r.fulfill(body=STAND_IN))
    params = page.evaluate("window.bertviz_params")
    assert params["bidirectional"] is True
    data = params["attention"]["all"]
    assert data["left_text"] == data["right_text"] == list(encoding.tokens)
    queries, keys, attention = (np.array(data[name]) for name in ("queries", "keys", "attn"))
    assert np.allclose(attention, run.attention, atol=5.1e-5)
    scores = np.exp(queries @ keys.swapaxes(-1, -2) / np.sqrt(queries.shape[-1]))
    assert np.allclose(scores / scores.sum(-1, keepdims=True), run.attention, atol=2e-3)
    assert page.evaluate("window.ran") is None and page.locator("img, a").count() == 0 and page.problems == []
    layers, heads, tokens, _ = run.attention.shape
    size, lines = estimate(tokens, heads, layers, "neuron", queries.shape[-1])
    assert lines == tokens**2 and size / 2 < len(html) - 45_000 < 2 * size  # its script has 45 kB


def test_what_the_neuron_view_cannot_show_is_refused(tiny_loaded: LoadedModel) -> None:
    """Vectors of another text or of some heads, layers, relative positions and pages that are too large."""
    encoding = tiny_loaded.tokenizer.encode("the cat sat.")
    run, vectors = capture(tiny_loaded, encoding), all_head_vectors(tiny_loaded, encoding)
    longer = all_head_vectors(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat on the mat."))
    relative = [dataclasses.replace(vector, distances=np.zeros((6, 6))) for vector in vectors]
    long_run = run_of(["word"] * 510, layers=4, heads=4)
    long_vectors = [
        HeadVectors(long_run.encoding, layer, head, *2 * (np.zeros((512, 64), np.float32),))
        for layer in range(4) for head in range(4)
    ]  # fmt: skip
    pruned_run = dataclasses.replace(run, attention=np.full_like(run.attention, np.nan))
    for problem, call in {
        "head 0 does not exist in layer 0": lambda: bertviz_page(MapView().maps(pruned_run), "neuron"),
        "vectors of L1 H3: give those of all heads": lambda: bertviz_page(
            MapView().maps(run), "neuron", vectors=vectors[:-1]
        ),
        "not those of this text": lambda: bertviz_page(MapView().maps(run), "neuron", vectors=longer),
        "has all layers: give no layers": lambda: bertviz_page(MapView().maps(run), "neuron", [0], vectors),
        "relative positions": lambda: bertviz_page(MapView().maps(run), "neuron", vectors=relative),
        "choose a shorter text": lambda: bertviz_page(MapView().maps(long_run), "neuron", vectors=long_vectors),
    }.items():
        with pytest.raises(ValueError, match=problem):
            call()


def test_the_notebook_shows_the_page(tiny_loaded: LoadedModel) -> None:
    """`view_bertviz` returns the same page, in a frame that can run scripts and nothing else."""
    run = capture(tiny_loaded, tiny_loaded.tokenizer.encode("the cat sat."))
    display = view_bertviz(run, "head", layers=[1])
    assert '"include_layers": [1]' in display.page
    assert 'sandbox="allow-scripts"' in display._repr_html_()


@pytest.mark.parametrize("text", [*HOSTILE, "é", "\ud800", "\x00"])
def test_an_escaped_text_is_ascii_and_reads_back(text: str) -> None:
    """JSON that no parser of HTML or of scripts sees anything in, and that is the same text again."""
    written = escaped(text)
    assert written.isascii() and not set(written) & set("<>&'\n") and json.loads(written) == text

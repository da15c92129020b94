"""Every view as every kind of file: heads, one map of several, a head down to its vectors, what two runs differ in."""

from __future__ import annotations

import ast
import csv
import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bert_core
from bert_core import LoadedModel, ModelRun, Target, scenes
from bert_core.vision import BUNDLED_CAPTIONER
from tests.hostile import HOSTILE, run_of
from tests.near import assert_near
from tests.visit import settled, visited
from viz_app.comparison import Comparison
from viz_app.export import FILE_KINDS
from viz_app.export.captions import caption_maps
from viz_app.export.files import AttentionFiles, CaptionFiles, ChangeFiles, Files, NeuronFiles, file_of
from viz_app.export.page import attention_page, caption_page
from viz_app.export.snippet import change_snippet
from viz_app.figures.style import Look, use_look
from viz_app.maps import Combination, MapView
from viz_app.shell import downloads

SEED = np.random.default_rng(3)
TEXT, OTHER, PAIR = "the cat sat on the mat", "the old cat ran to the mat", "it was red"
STARTS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!doctype html>", "npz": b"PK"}


def captured(loaded: LoadedModel, text: str, off: tuple[tuple[int, int], ...] = ()) -> ModelRun:
    """A run of a pair with some heads off."""
    gates = np.ones((2, 4), np.float32)
    for place in off:
        gates[place] = 0
    return bert_core.capture(loaded, loaded.tokenizer.encode(text, PAIR), head_mask=gates)


@pytest.fixture(scope="module")
def comparison(tiny_loaded: LoadedModel, tiny_model_folder: Path) -> Comparison:
    """Two texts of other lengths, the second with a head off."""
    models = (str(tiny_model_folder),) * 2
    return Comparison(
        captured(tiny_loaded, TEXT), captured(tiny_loaded, OTHER, ((0, 2),)), ("this text", "the other text"), models
    )


@pytest.fixture(scope="module")
def views(tiny_loaded: LoadedModel, tiny_model_folder: Path, comparison: Comparison) -> dict[str, Files]:
    """Each view, as a page would hand it over."""
    run, model = captured(tiny_loaded, TEXT, ((1, 1),)), str(tiny_model_folder)
    caption = bert_core.describe(bert_core.load_captioner(), scenes.draw(scenes.random_scene(SEED, count=1), 96))
    vectors = bert_core.head_vectors(tiny_loaded, run.encoding, 1, 3, head_mask=run.head_mask)
    return {
        "all heads": AttentionFiles(run, MapView(heads=()), model),
        "curves": AttentionFiles(run, MapView(layer=1, heads=(0, 2)), model),
        "matrix": AttentionFiles(run, MapView(layer=1, heads=(2,), mode="matrix", words=True), model),
        "one map": AttentionFiles(run, MapView(heads=(0, 1), combination=Combination("average")), model),
        "neuron": NeuronFiles(run, vectors, 4, model),
        "change": ChangeFiles(comparison, MapView(layer=1, heads=(2,))),
        "all changes": ChangeFiles(comparison, MapView(heads=())),
        "words on a picture": CaptionFiles(caption, "attention", None, 2, BUNDLED_CAPTIONER),
        "a head on a picture": CaptionFiles(caption, "product", (1, 2), 0, BUNDLED_CAPTIONER),
    }


VIEWS = (
    *("all heads", "curves", "matrix", "one map", "neuron", "change", "all changes"),
    *("words on a picture", "a head on a picture"),
)


def test_a_picture_of_a_head_carries_its_head(views: dict[str, Files]) -> None:
    """In the name of the file and in the picture, whatever it is drawn as; of many heads only their layer."""
    expected = {
        "curves": ("L1-H0-H2", ["L1 H0", "L1 H2"]),
        "matrix": ("L1-H2", ["L1 H2"]),
        "change": ("L1-H2", ["L1 H2"]),
        "neuron": ("-H", []),
        "a head on a picture": ("L1-H2", ["L1 H2"]),
    }
    for name, (part, heads) in expected.items():
        for kind in ("svg", "png", "csv", "py"):
            assert part in views[name].name(kind)
        drawn = file_of(views[name], "svg").decode()
        assert all(head in drawn for head in heads)
    assert MapView(layer=3, heads=(0, 1, 2, 3, 4)).named_heads == "L3"


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_leaves_as_every_kind(views: dict[str, Files], name: str) -> None:
    """Each file begins as its kind does, is called by it, and pictures open; dark ones are dark."""
    for kind in FILE_KINDS:
        made = file_of(views[name], kind)
        assert made.startswith(STARTS.get(kind, b"")) and views[name].name(kind).endswith(f".{kind}")
    assert len(list(csv.reader(io.StringIO(file_of(views[name], "csv").decode())))) > 1
    with use_look(Look(dark=True)):
        picture = Image.open(io.BytesIO(file_of(views[name], "png"))).convert("RGB")
    assert picture.getpixel((0, 0)) == (20, 22, 26)
    with pytest.raises(ValueError, match="a file of kind 'gif' is unknown: one of png, svg"):
        file_of(views[name], "gif")


@pytest.mark.parametrize("name", VIEWS)
def test_every_snippet_gives_the_numbers_and_the_picture(
    views: dict[str, Files], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as a script from its text alone: the arrays of the NPZ, and the bytes of the SVG."""
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(compile(file_of(views[name], "py"), "snippet", "exec"), scope)
    (picture,) = tmp_path.glob("*.svg")
    assert picture.read_bytes() == file_of(views[name], "svg")
    with np.load(io.BytesIO(file_of(views[name], "npz")), allow_pickle=False) as file:
        found = {"q": file["q"], "softmax": file["softmax"]} if "q" in file else {"maps": file[file.files[0]]}
    for variable, numbers in found.items():
        assert_near(np.squeeze(scope[variable]), np.squeeze(numbers), 1e-6)


# ---------------------------------------------------------------------------- where a captioner looks


def test_the_maps_of_a_caption_are_those_of_the_run(views: dict[str, Files]) -> None:
    """Word by word and head by head, the product only above zero, and the average of all heads."""
    files = views["words on a picture"]
    assert isinstance(files, CaptionFiles)
    run = files.run
    shown, clipped = caption_maps(run), caption_maps(run, "product")
    for word in range(len(run.words)):
        assert np.array_equal(shown.values[1, 2, word], run.cross_attention[word, 1, 2])
        assert np.array_equal(clipped.values[0, 3, word], run.select_map("product")[word, 0, 3].clip(min=0))
    assert shown.keys[9].text == "row 1, column 1" and [token.text for token in shown.queries] == list(run.words)
    average = caption_maps(run, as_one=True)
    assert average.values.shape[:2] == (1, 1) and average.combined_name == "average of all 2 × 4 heads"
    assert_near(average.values[0, 0], run.cross_attention.mean((1, 2)), 1e-7)
    with pytest.raises(ValueError, match="word 99 does not exist: this sentence has words 0 to"):
        caption_page(run, word=99)
    with pytest.raises(ValueError, match="head 7 does not exist in layer 0"):
        file_of(dataclasses.replace(files, head=(0, 7)), "svg")


# ---------------------------------------------------------------------------- the difference of two runs


def test_a_comparison_is_worked_by_hand(comparison: Comparison) -> None:
    """After minus before at each pair of equal tokens, its list in falling size, and what has no partner named."""
    before, after = comparison.before, comparison.after
    shown = comparison.difference_maps()
    assert [token.text for token in shown.queries] == [
        *("[CLS]", "the", "cat", "the", "mat", "[SEP]", "it", "was", "red", "[SEP]"),
    ]
    ours = [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]
    theirs = [0, 1, 3, 6, 7, 8, 9, 10, 11, 12]
    for q, (i, j) in enumerate(zip(ours, theirs, strict=True)):
        by_hand = after.attention[:, :, j, theirs] - before.attention[:, :, i, ours]
        assert np.array_equal(shown.values[:, :, q], by_hand)
    assert shown.off == ((0, 2),) and shown.notes == ("the other text minus this text",)
    listed = comparison.change_rows(comparison.largest())
    sizes = [abs(float(line["change"])) for line in listed]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == pytest.approx(np.abs(shown.values).max())
    assert comparison.left_out is not None
    assert "Left out of this text: sat (3), on (4); of the other text: old (2), ran (4), to (5)." in comparison.left_out


def test_lengths_that_are_brought_are_compared(tiny_loaded: LoadedModel, comparison: Comparison) -> None:
    """Their difference is that of the two runs, under a name of its own in every file; the script asks for norms."""
    encoding = tiny_loaded.tokenizer.encode(TEXT)
    gates = np.ones((2, 4))
    gates[0, 2] = 0
    before, after = (bert_core.capture(tiny_loaded, encoding, head_mask=m, norms=True) for m in (None, gates))
    pair = Comparison(before, after, ("all heads on", "some off"), quantity="brought")
    assert np.array_equal(pair.difference_maps().values, after.select_map("brought") - before.select_map("brought"))
    assert pair.difference_maps().unit == "change in value-weighted attention (norm)" and pair.reading.startswith(
        "Value-weighted attention (norm) with some off"
    )
    assert (pair.difference_maps().values[0, 2] <= 0).all()  # a head that is off brings nothing
    files = ChangeFiles(pair, MapView("brought", layer=0, heads=(2,)))
    assert files.csv().splitlines()[0].endswith(b",change_norm")
    assert "norms=True" in files.python() and "'brought').difference_maps()" in files.python()
    assert "minus value-weighted attention (norm) with all heads on; orange is more" in files.page()
    with pytest.raises(ValueError, match="a comparison of 'gradient': it is of one of attention, brought"):
        Comparison(before, after, quantity="gradient")
    with pytest.raises(ValueError, match=r"a comparison is of attention.*leave out quantity"):
        ChangeFiles(comparison, MapView("brought"))


def test_what_cannot_be_compared_is_named(comparison: Comparison) -> None:
    """Models of other shapes, heads that do not exist, and choices that a comparison does not know."""
    with pytest.raises(ValueError, match="2 layers of 4 heads before and 2 of 3 after"):
        Comparison(comparison.before, run_of(["a"]))
    with pytest.raises(ValueError, match="head 4 does not exist in layer 1"):
        ChangeFiles(comparison, MapView(layer=1, heads=(4,)))
    with pytest.raises(ValueError, match=r"a comparison is of attention.*leave out quantity, words"):
        ChangeFiles(comparison, MapView("gradient", words=True))


def test_a_head_that_one_of_them_lost_is_not_there(comparison: Comparison) -> None:
    """It is a gap in the picture and cannot be opened, and its change is no number."""
    attention = comparison.after.attention.copy()
    attention[1, 0] = np.nan
    lost = dataclasses.replace(comparison, after=dataclasses.replace(comparison.after, attention=attention))
    assert (
        not lost.existing_heads[1, 0]
        and lost.existing_heads.sum() == 7
        and np.isnan(lost.difference_maps().values[1, 0]).all()
    )
    with pytest.raises(ValueError, match=r"head 0 does not exist in layer 1: .* \(0 pruned\)"):
        ChangeFiles(lost, MapView(layer=1, heads=(0,)))


def test_nothing_that_was_typed_runs_in_a_change() -> None:
    """Hostile texts, models and names stand in the script as quoted strings and in the page as data."""
    names = (HOSTILE[10], HOSTILE[16])
    pair = Comparison(run_of(HOSTILE, second=9), run_of(HOSTILE[:5]), names, (HOSTILE[0], HOSTILE[15]))
    tree = ast.parse(change_snippet(pair, MapView()))
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    typed = {*names, *pair.models, pair.before.encoding.text, pair.before.encoding.pair, pair.after.encoding.text}
    assert typed <= set(constants)
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert calls == {
        "bert_core.load", "loaded.tokenizer.encode", "loaded.tokenizer.mask_words", "np.ones", "bert_core.capture",
        "Comparison", f"Comparison(before, after, {names!r}, {pair.models!r}).difference_maps", "Path",
        "Path('change.svg').write_bytes", "picture_bytes", "maps_picture", "MapView",
    }  # fmt: skip
    page = ChangeFiles(pair, MapView()).page()
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert HOSTILE[16].replace('"', "&#34;") in markup and not re.search("<(script|img|svg|b>bold)", markup)


# ---------------------------------------------------------------------------- before the page is made


def test_export_says_how_large_a_page_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long text about as much as the page of gradients then has; of a short text, or a small page, nothing."""
    run, rng = run_of(["word"] * 510, heads=8), np.random.default_rng(0)
    gradient = rng.normal(size=(2, 8, 512, 64)) @ rng.normal(size=(2, 8, 64, 512))
    run = dataclasses.replace(run, target=Target("nsp"), gradient=gradient.astype(np.float32))
    assert downloads._size_note(run, "gradient") == "" and downloads._size_note(run_of(["a"]), "gradient") == ""
    monkeypatch.setattr(downloads, "LARGE_PAGE_MEGABYTES", 0)
    said = re.fullmatch(r"; about (\d+) MB or less", downloads._size_note(run, "gradient"))
    assert said is not None
    assert len(attention_page(run, MapView("gradient"))) / 1e6 == pytest.approx(int(said[1]), rel=0.3)
    assert downloads._size_note(run, "attention") == "; about 1 MB"


def test_packing_says_how_far_it_is_and_can_be_stopped() -> None:
    """Every head is told once, of exact values as of thin matrices, and what the listener raises ends it."""
    run, rng = run_of(["word"] * 510, heads=8), np.random.default_rng(0)
    gradient = rng.normal(size=(2, 8, 512, 8)) @ rng.normal(size=(2, 8, 8, 512))
    run = dataclasses.replace(run, target=Target("nsp"), gradient=gradient.astype(np.float32))
    for one, view in ((run, MapView("gradient")), (run_of(["a"], heads=8), MapView())):
        told: list[float] = []
        page = attention_page(one, view, report=lambda done, what="", told=told: told.append(done))
        assert sorted(told) == [done / 16 for done in range(1, 17)]
        assert page == attention_page(one, view)

    def stop(done: float | None, what: str = "") -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        file_of(AttentionFiles(run, MapView("gradient"), "none"), "html", report=stop)


def test_a_large_page_is_made_by_the_queue(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its button is there once it was asked for and packed; another head opened in it is another page."""
    monkeypatch.setattr(downloads, "LARGE_PAGE_MEGABYTES", 0)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    address = {"text": "a cat sat. " * 100, "masked": "3", "show": "gradient", "model": str(tiny_model_folder)}
    app = settled(visited("attention", **address))
    assert not app.get("download_button"), "what is closed is not drawn"
    app.session_state[downloads.OPEN_KEY] = True
    settled(app.run())
    assert not app.exception and "HTML" not in [button.label for button in app.get("download_button")]
    (button,) = (button for button in app.button if button.label == "Make the HTML page")
    settled(button.click().run(), "stop_here")
    assert not app.exception and "HTML" in [button.label for button in app.get("download_button")]
    app.session_state["head"] = (1, 2)
    settled(app.run(), "stop_here")
    assert "HTML" not in [button.label for button in app.get("download_button")]

"""How similar two texts are: the page Sentence similarity, a target of all pages, the command line and files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import LoadedModel, Pooling
from tests.near import assert_near
from tests.visit import ENTRY, at, key_of, settled, words
from viz_app import cli
from viz_app.export.drawing import picture_bytes
from viz_app.export.similarity import parts_csv, parts_picture
from viz_app.export.snippet import snippet
from viz_app.figures.style import Look, two_digits, use_look
from viz_app.maps import MapView
from viz_app.shell import selection

ONE, TWO = "the old cat sat on a mat", "a dog ran"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def headlight(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def trained(tiny_loaded: LoadedModel, tmp_path: Path) -> Path:
    """A folder of sentence-transformers that is the tiny model without its heads for words and next sentences."""
    folder = bert_core.save(
        dataclasses.replace(tiny_loaded, pooling=Pooling(normalize=True, max_length=40)), tmp_path / "sentences"
    )
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "cls." not in name}, folder / "model.safetensors")
    return folder


@pytest.fixture
def opened(tiny_model_folder: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Opens a page with the tiny model, or the one that was trained for vectors, by a link."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder), str(trained)]))

    def page(name: str, model: Path = tiny_model_folder, **address: str) -> AppTest:
        app = AppTest.from_file(ENTRY, default_timeout=60)
        app.query_params.update({"model": str(model), **address})
        return settled(at(app.run(), name).run(), "stop_here")

    return page


def alike(opened: Callable[..., AppTest], **more: object) -> AppTest:
    return opened("similarity", sentence_a=ONE, sentence_b=TWO, **more)


def both(loaded: LoadedModel) -> bert_core.Similarity:
    return bert_core.sentence_similarity(loaded, *(bert_core.read_sentence(loaded, text) for text in (ONE, TWO)))


# ---------------------------------------------------------------------------- the page Sentence similarity


def test_the_page_says_the_cosine_beside_those_of_unrelated_sentences(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel
) -> None:
    """The cosine and its place among unrelated ones; of a model that was not trained for it, that too."""
    app = alike(opened)
    assert not app.exception and not app.error
    found, others = both(tiny_loaded), bert_core.unrelated_cosines(tiny_loaded)
    assert f"Cosine {two_digits(found.cosine)}: " in words(app)
    below = int((others < found.cosine).sum())
    assert (f"higher than {below} of 120" if 0 < below < 120 else "all 120") in words(app)
    assert "was not trained for sentence vectors" in words(app)
    assert "How to read this" in words(app) and "How it can mislead" in words(app)
    table = app.dataframe[0].value
    strongest = np.unravel_index(np.abs(found.parts).argmax(), found.parts.shape)
    assert table["first sentence"][0] == found.first.tokens[strongest[0]]
    assert_near(table["part of the cosine"][0], found.parts[strongest])


def test_the_caution_goes_where_the_model_was_trained_for_it(opened: Callable[..., AppTest], trained: Path) -> None:
    """A folder of sentence-transformers has no warning, and says how it makes the vector."""
    app = alike(opened, model=trained)
    assert not app.exception and not app.error
    assert "was not trained for sentence vectors" not in words(app)
    assert "The vector of each sentence is the mean of all hidden states" in words(app)


def test_words_are_the_sums_of_their_pieces(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """With words, a word of several pieces is one row, and all parts still sum to the cosine."""
    app = opened("similarity", sentence_a="the catdog sat", sentence_b="a dog", words="1")
    table = app.dataframe[0].value
    assert not app.exception and "catdog" in set(table["first sentence"])


@pytest.mark.parametrize(("one", "two"), [("", TWO), (ONE, " ")])
def test_an_empty_sentence_is_said(opened: Callable[..., AppTest], one: str, two: str) -> None:
    """Without one of both there is one sentence and a way out."""
    app = opened("similarity", sentence_a=one, sentence_b=two)
    assert not app.exception and "type at least one word" in app.info[0].value


def test_a_head_that_is_off_is_off_in_both(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """The page's heads are switched off in both texts."""
    app = alike(opened, off="0.1,1.2")
    gates = bert_core.head_mask_without(tiny_loaded.config, [(0, 1), (1, 2)])
    texts = (bert_core.read_sentence(tiny_loaded, text) for text in (ONE, TWO))
    found = bert_core.sentence_similarity(tiny_loaded, *texts, head_mask=gates)
    assert f"Cosine {two_digits(found.cosine)}: " in words(app)


# ---------------------------------------------------------------------------- as a target


def asked(app: AppTest) -> selection.Selection:
    found: selection.Selection = app.session_state[selection.SELECTION]
    return found


@pytest.mark.parametrize(("side", "own", "other"), [("A", ONE, TWO), ("B", TWO, ONE)])
def test_one_text_is_read_by_itself(
    opened: Callable[..., AppTest], tiny_loaded: LoadedModel, side: str, own: str, other: str
) -> None:
    """With “A like B” the pages are about A alone, B stays as it is, and the page says so; and the other way round."""
    app = opened("why", text=ONE, pair=TWO, masked="", target=f"alike:{side}")
    assert not app.exception and not app.error
    current = asked(app)
    assert current.encoding == bert_core.read_sentence(tiny_loaded, own)
    assert current.target == bert_core.similarity_target(
        tiny_loaded, current.encoding, bert_core.read_sentence(tiny_loaded, other)
    )
    assert f"The two sentences are encoded separately. Pages show {side};" in words(app)
    assert "Which words does the similarity of the two sentences (cosine" in words(app)


def test_hidden_words_are_hidden_in_their_own_text(opened: Callable[..., AppTest], tiny_loaded: LoadedModel) -> None:
    """Words that are hidden in the pair are hidden in each text by itself, where they stand there."""
    app = opened("why", text=ONE, pair=TWO, masked="1,8", target="alike:B")  # “old” and “dog”
    current = asked(app)
    assert current.encoding.tokens == ("[CLS]", "a", "[MASK]", "ran", "[SEP]")
    assert current.target is not None and current.target.other is not None
    assert current.target.other.tokens[1:4] == ("the", "[MASK]", "cat")
    assert current.first_word == 7


def test_a_model_without_pooling_is_not_asked_by_itself(opened: Callable[..., AppTest], trained: Path) -> None:
    """One that was trained for it explains A like B at once; another explains its own answers first."""
    assert asked(opened("why", text=ONE, pair=TWO, masked="")).target == bert_core.Target("nsp")
    app = opened("why", model=trained, text=ONE, pair=TWO, masked="")
    target = asked(app).target
    assert target is not None and target.kind == "similarity"
    app = opened("why", model=trained, text=ONE, pair="", masked="")
    assert asked(app).target is None and "add a second sentence" in words(app)


@pytest.mark.parametrize("page", ["attention", "heads", "layers", "causes", "neurons", "inside", "compare", "predict"])
def test_every_page_opens_with_it(opened: Callable[..., AppTest], page: str) -> None:
    """No page breaks where it is explained what makes two texts alike."""
    app = opened(page, text=ONE, pair=TWO, masked="", target="alike:B", off="0.1")
    assert not app.exception and not app.error, [error.value for error in app.error]
    assert key_of(app, "target")


def test_the_script_makes_the_run_again(tiny_loaded: LoadedModel) -> None:
    """The Python of an export has the other text, its hidden words too, and gives the same gradients."""
    one = bert_core.read_sentence(tiny_loaded, ONE)
    other = tiny_loaded.tokenizer.mask_words(bert_core.read_sentence(tiny_loaded, TWO), [1])
    run = bert_core.capture(tiny_loaded, one, target=bert_core.similarity_target(tiny_loaded, one, other))
    script = snippet(run, MapView("gradient", layer=1, heads=(0,)), tiny_loaded.name)
    names: dict[str, object] = {}
    exec(script[: script.index("\nview = ")], names)
    again = names["run"]
    assert isinstance(again, bert_core.ModelRun) and again.target == run.target
    assert_near(again.gradient, run.gradient)


# ---------------------------------------------------------------------------- the command, and files


def test_the_command_says_the_cosine_and_its_parts(headlight: Run, tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """Two texts: the cosine, its place, the largest parts; all parts as a file, and a picture."""
    model = ("--model", tiny_loaded.name, "--device", "cpu")
    code, out, err = headlight("similarity", ONE, TWO, "--out", tmp_path / "parts.csv", *model)
    found = both(tiny_loaded)
    assert code == 0 and out.startswith(f"cosine {found.cosine:.4f}\nabove ")
    assert "was not trained for sentence vectors" in err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "parts.csv").read_text(encoding="utf-8"))))
    assert len(rows) == found.parts.size
    assert_near(sum(float(row["part"]) for row in rows), found.cosine)
    code, _, _ = headlight("similarity", ONE, TWO, "--out", tmp_path / "parts.svg", *model)
    assert code == 0 and "<svg" in (tmp_path / "parts.svg").read_text(encoding="utf-8")


def test_the_command_reads_a_table(headlight: Run, tiny_loaded: LoadedModel, trained: Path, tmp_path: Path) -> None:
    """Each row of a table has its cosine, as CSV; a text that a spreadsheet would run has an apostrophe."""
    table = tmp_path / "pairs.csv"
    table.write_text(f"a,b,c\n{ONE},x,{TWO}\n=1+1,x,{ONE}\n", encoding="utf-8")
    code, out, err = headlight(
        "similarity", "--pairs", table, "--text", "a", "--pair", "c", "--model", trained, "--device", "cpu"
    )
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and not err
    assert [row["row"] for row in rows] == ["2", "3"] and rows[1]["first"] == "'=1+1"
    assert_near(float(rows[0]["cosine"]), both(tiny_loaded).cosine)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "give two texts, or --pairs and a table of them"),
        ((ONE,), "give two texts, or --pairs and a table of them"),
        ((ONE, " "), "there is no text: type at least one word"),
        ((ONE, TWO, "--out", "parts.xyz"), "--out is 'parts.xyz': its ending must be one of csv, png, svg, pdf"),
        (("--pairs", "TABLE"), "name the column of the first texts (--text) and that of the second (--pair)"),
        (("--pairs", "TABLE", "--text", "a", "--pair", "z"), "the column 'z' is not in table.csv"),
        ((ONE, TWO, "--pairs", "TABLE"), "--pairs is a table instead of two texts"),
    ],
)
def test_what_the_command_refuses(
    headlight: Run, tiny_model_folder: Path, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    """Bad input is one sentence and code 2."""
    table = tmp_path / "table.csv"
    table.write_text("a,b\nx,y\n", encoding="utf-8")
    options = [table if one == "TABLE" else one for one in given]
    code, out, err = headlight("similarity", *options, "--model", tiny_model_folder, "--device", "cpu")
    assert (code, out) == (2, "") and said in err, err


def test_other_commands_take_it_as_a_target(headlight: Run, tiny_model_folder: Path, tmp_path: Path) -> None:
    """`--target like:TEXT` is what a gradient explains, and what a patch follows."""
    model = ("--model", tiny_model_folder, "--device", "cpu")
    out = tmp_path / "maps.csv"
    code, _, err = headlight("attention", ONE, "--show", "gradient", "--target", f"like:{TWO}", "--out", out, *model)
    assert code == 0 and out.is_file(), err
    code, printed, err = headlight(
        "patch", "--source", "the old dog sat on a mat", ONE, "--target", f"like:{TWO}", *model
    )
    assert code == 0 and f"being like “{TWO}”: cosine" in printed, err


def test_commands_read_one_text_of_a_pair_by_itself(
    headlight: Run, tiny_loaded: LoadedModel, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """`--target alike:A` draws and patches A alone, held against B: the pair is never read as one text."""
    model, out = ("--model", tiny_model_folder, "--device", "cpu"), tmp_path / "maps.npz"
    source = ONE.replace("cat", "dog")
    assert source != ONE
    one, two, other = (bert_core.read_sentence(tiny_loaded, text) for text in (ONE, TWO, source))
    for side, text, held in (("A", one, two), ("B", two, one)):
        run = bert_core.capture(tiny_loaded, text, target=bert_core.similarity_target(tiny_loaded, text, held))
        given = (ONE, "--pair", TWO, "--show", "gradient", "--target", f"alike:{side}", "--out", out, *model)
        assert headlight("attention", *given) == (0, "", "")
        with np.load(out, allow_pickle=False) as file:
            assert np.array_equal(file["gradient"], run.gradient)
    places = ((one, "text"), (other, "source"))
    code, printed, err = headlight("patch", "--source", source, ONE, "--pair", TWO, "--target", "alike:A", *model)
    texts = [
        f"{bert_core.sentence_similarity(tiny_loaded, text, two).cosine:.3g} in the {where}" for text, where in places
    ]
    assert code == 0 and printed.startswith(f"being like “{TWO}”: cosine {', '.join(texts)}\n"), (printed, err)
    code, printed, err = headlight("patch", ONE, "--noise", 3, "--pair", TWO, "--target", "alike:A", *model)
    assert code == 0 and printed.startswith(f"being like “{TWO}”: cosine {texts[0]}"), err


def test_files_hold_what_is_drawn(tiny_loaded: LoadedModel) -> None:
    """The CSV has every pair, and a picture of a long text and of a short one is written in both themes."""
    found = both(tiny_loaded)
    rows = list(csv.reader(io.StringIO(parts_csv(found).decode())))
    assert rows[0] == ["a_position", "a_token", "b_position", "b_token", "part"]
    assert len(rows) == 1 + found.parts.size
    long = bert_core.read_sentence(tiny_loaded, "the $x$ cat sat " * 40)
    for one in (found, bert_core.sentence_similarity(tiny_loaded, long, long)):
        for dark in (False, True):
            with use_look(Look(dark)):
                assert picture_bytes(parts_picture(one), "png").startswith(b"\x89PNG")

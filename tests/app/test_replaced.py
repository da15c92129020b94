"""Which token was replaced: on Predict, on the pages about its answer, and on the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bert_core
from bert_core import LoadedModel, capture
from bert_core.modeling import BertForReplacedTokenDetection
from bert_core.task_heads import rank_typed_tokens
from tests.app.test_cli import Run, headlight
from tests.families import save_family
from tests.near import assert_near
from tests.visit import settled, visited, words
from viz_app.components.token_strip import TokenClick
from viz_app.export import tables
from viz_app.figures.style import two_digits
from viz_app.pages.predict import replaced_tokens as page
from viz_app.shell import downloads

__all__ = ["headlight"]  # a fixture
TEXT = "The old man sat along the river."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("electra", tmp_path_factory.mktemp("replaced") / "electra", "ForPreTraining")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedModel:
    return bert_core.load(folder, device="cpu")


@pytest.fixture(autouse=True)
def offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))


def shares_of(loaded: LoadedModel, text: str = TEXT) -> np.ndarray:
    found = capture(loaded, loaded.tokenizer.encode(text)).replaced
    assert found is not None
    return found


def test_predict_names_the_likeliest_token_and_offers_the_first_few(folder: Path, loaded: LoadedModel) -> None:
    """The likeliest token and its probability are said; the likeliest ones can be explained, the first of them is."""
    encoding, shares = loaded.tokenizer.encode(TEXT), shares_of(loaded)
    order = rank_typed_tokens(shares, encoding)
    assert sorted(order) == [at for at, special in enumerate(encoding.special) if not special]
    assert (np.diff(shares[order]) <= 0).all()
    app = settled(visited("predict", model=str(folder), text=TEXT))
    assert not app.exception and not app.error
    first = encoding.labels[order[0]]
    assert f"“{first}”" in words(app) and two_digits(float(shares[order[0]])) in words(app)
    assert app.session_state.target == f"replaced:{order[0]}" == app.query_params["target"]
    assert [option for box in app.selectbox if box.label == "Explain" for option in box.options] == [
        f"Explain “{encoding.labels[at]}” at {at} replaced" for at in order[:5]
    ]


def test_a_link_asks_for_any_token_and_for_no_other_thing(folder: Path, loaded: LoadedModel) -> None:
    """A token of the text that is not likely is asked for by its position; a place beyond, or [CLS], is not."""
    unlikely = rank_typed_tokens(shares_of(loaded), loaded.tokenizer.encode(TEXT))[-1]
    app = settled(visited("why", model=str(folder), text=TEXT, target=f"replaced:{unlikely}"))
    label = loaded.tokenizer.encode(TEXT).labels[unlikely]
    assert not app.exception and f"Which words does “{label}” being replaced (" in words(app)
    for wrong in ("replaced:0", "replaced:99", "replaced:", "replaced:-1", "replaced:x"):
        app = settled(visited("predict", model=str(folder), text=TEXT, target=wrong))
        assert not app.exception and not app.error and app.session_state.target != wrong


def test_a_click_explains_the_likeliest_piece_of_a_word(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a word in pieces, the one that looks replaced most."""
    encoding, shares = loaded.tokenizer.encode(TEXT), shares_of(loaded)
    word = next(n for n in range(encoding.word_count) if len(encoding.pieces_of(n)) > 1)
    state = SimpleNamespace(target="", contrast="x")
    monkeypatch.setattr(page.st, "session_state", _Like(state))
    page._explain(SimpleNamespace(encoding=encoding, loaded=loaded), shares, TokenClick(word))  # type: ignore[arg-type]
    assert state.target == f"replaced:{max(encoding.pieces_of(word), key=lambda at: shares[at])}"
    assert state.contrast == ""


class _Like:
    """A session whose entries are set as attributes, or as items."""

    def __init__(self, state: SimpleNamespace) -> None:
        object.__setattr__(self, "_state", state)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._state, name, value)

    __setitem__ = __setattr__


def test_a_hidden_word_is_said_to_be_none_for_this_model(folder: Path) -> None:
    """A [MASK] is something that it never read: a button shows the words again, or the text must change."""
    app = settled(visited("predict", model=str(folder), text=TEXT, masked="2"))
    assert "was trained without [MASK]" in words(app)
    next(button for button in app.button if button.label == "Show the words").click().run()
    app = settled(app)
    assert not app.exception and "was trained without [MASK]" not in words(app)
    app = settled(visited("predict", model=str(folder), text="The old [MASK] sat."))
    assert "Type a word instead" in words(app)
    assert not [button for button in app.button if button.label == "Show the words"]


def test_another_text_has_other_tokens(folder: Path) -> None:
    """What was asked of a token is not asked of whatever stands at its place in another text."""
    app = settled(visited("predict", model=str(folder), text=TEXT, target="replaced:4"))
    assert app.session_state.target == "replaced:4"
    app.text_input[0].set_value("A dog sat.").run()
    app = settled(app)
    assert not app.exception and not app.error
    loaded = bert_core.load(folder, device="cpu")
    encoding = loaded.tokenizer.encode("A dog sat.")
    first = rank_typed_tokens(shares_of(loaded, "A dog sat."), encoding)[0]
    assert first < len(encoding) and app.session_state.target == f"replaced:{first}"


def test_heads_and_causes_show_it_before_and_now(folder: Path) -> None:
    """With a head off, and with a part of another text, the tokens' probabilities stand side by side."""
    app = settled(visited("heads", model=str(folder), text=TEXT, off="0.1"))
    assert not app.exception and not app.error and "Which token was replaced?" in words(app)
    source = TEXT.replace("sat", "man")
    app = settled(visited("causes", model=str(folder), text=TEXT, source=source, target="replaced:4", place="1.4"))
    assert not app.exception and not app.error and "“sat” being replaced" in words(app)


def test_the_csv_has_every_token(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each token in full precision, also for those that the model added."""
    kept: list[dict[str, object]] = []
    monkeypatch.setattr(downloads, "add_table", lambda name, label, **columns: kept.append(columns))
    encoding, shares = loaded.tokenizer.encode(TEXT), shares_of(loaded)
    downloads.replaced(encoding, shares)
    rows = list(csv.DictReader(io.StringIO(tables.labelled_csv(kept[0]).decode())))  # type: ignore[arg-type]
    assert [row["token"] for row in rows] == list(encoding.labels)
    assert [int(row["added"]) for row in rows] == [int(added) for added in encoding.special]
    assert np.array_equal(np.array([row["probability"] for row in rows], np.float32), shares)


def test_the_command_prints_what_the_library_says(
    headlight: Run,
    folder: Path,
    loaded: LoadedModel,
    tiny_model_folder: Path,
) -> None:
    """A line for each typed token; models without a detector, and words asked of a detector, are refused."""
    code, out, err = headlight("replaced", TEXT, "--model", folder, "--device", "cpu")
    encoding, shares = loaded.tokenizer.encode(TEXT), shares_of(loaded)
    typed = [at for at, special in enumerate(encoding.special) if not special]
    assert (code, err, len(out.splitlines())) == (0, "", len(typed))
    for line, at in zip(out.splitlines(), typed, strict=True):
        position, token, share, *verdict = line.split()
        assert (int(position), token, share) == (at, encoding.tokens[at], f"{shares[at]:.3f}")
        assert verdict == ["replaced"] * bool(shares[at] >= 0.5)
    code, _, err = headlight("replaced", "The [MASK] sat.", "--model", folder)
    assert code == 0 and "has never read a [MASK]" in err
    code, out, err = headlight("replaced", TEXT, "--model", tiny_model_folder)
    assert (code, out) == (2, "") and "has no trained replaced-token detection head" in err
    given = (TEXT, "--model", folder, "--device", "cpu")
    assert headlight("predict", *given) == headlight("replaced", *given)
    code, out, err = headlight("predict", "The [MASK] sat.", *given[1:], "--json")
    assert code == 0 and list(json.loads(out)) == ["detector"]
    assert err == f"{folder} has no trained masked-word head: it cannot guess words\n"


def test_commands_that_take_a_target_take_this_one(
    headlight: Run,
    folder: Path,
    loaded: LoadedModel,
    tmp_path: Path,
) -> None:
    """Gradients of one token's logit are written, parts of another text are put in; a place beyond it is refused."""
    place = tmp_path / "maps.npz"
    asked = ("--target", "replaced:4", "--model", folder)
    code, _, err = headlight("attention", TEXT, "--show", "gradient", "--out", place, *asked)
    assert (code, err) == (0, "")
    expected = capture(loaded, loaded.tokenizer.encode(TEXT), target=bert_core.Target("replaced", 4)).gradient
    with np.load(place) as found:
        assert_near(found["gradient"], expected)
    code, out, _ = headlight("patch", "--source", TEXT.replace("sat", "man"), TEXT, *asked)
    share = shares_of(loaded)[4]
    assert code == 0 and out.startswith(f"“sat” being replaced: probability {share:.3g} in the text")
    code, _, err = headlight(
        "attention",
        TEXT,
        "--show",
        "gradient",
        "--out",
        tmp_path / "x.npz",
        "--target",
        "replaced:99",
        "--model",
        folder,
    )
    assert code == 2 and "position 99 does not exist" in err
    code, _, err = headlight("attention", TEXT, "--show", "gradient", "--out", place, "--model", folder)
    likeliest = bert_core.Target("replaced", rank_typed_tokens(shares_of(loaded), loaded.tokenizer.encode(TEXT))[0])
    with np.load(place) as found:
        assert_near(found["gradient"], capture(loaded, loaded.tokenizer.encode(TEXT), target=likeliest).gradient)


def test_a_model_without_a_detector_has_no_such_question(
    tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page speaks of replaced tokens, and a link to one asks for something else."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(tiny_model_folder)]))
    for path in ("predict", "heads", "why"):
        app = settled(visited(path, model=str(tiny_model_folder), text="the cat sat", target="replaced:2"))
        assert not app.exception and not app.error and "replaced" not in words(app)
        assert app.session_state.target != "replaced:2"


def test_the_class_is_public() -> None:
    """The discriminator's class is a name of the library."""
    assert bert_core.BertForReplacedTokenDetection is BertForReplacedTokenDetection

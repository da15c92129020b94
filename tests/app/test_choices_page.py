"""Choices on Predict, Why and Heads: which a chooser takes, why, and what a model without one shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bert_core import ChoicePrediction, Target, capture, checkpoint, choose, load
from bert_core.run.inputs import head_mask_without
from bert_core.run.multiple_choice import score_choices
from tests.app.test_pages import PAGES, at, settled, start, target_of, words
from tests.visit import exported_files
from viz_app.figures.style import two_digits
from viz_app.pages.predict.multiple_choice import MAX_CHOICE_CHARACTERS
from viz_app.shell.markdown import escape_markdown

QUESTION = "who sat on the mat"
CHOICES = ("the  *king*", "[an](http://e.org) old cat", "a dog ran to the red door")


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, page: str = "predict", **address: str) -> AppTest:
    """A page of the app that was started with this model and opened by a link that names it."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    given = {"text": QUESTION, "pair": "", "choices": "\n".join(CHOICES), **address}
    return settled(at(start(model=str(folder), **given), page).run())


def found_by(folder: Path, off: tuple[tuple[int, int], ...] = ()) -> ChoicePrediction:
    loaded = load(str(folder), device="cpu")
    return choose(loaded, QUESTION, CHOICES, head_mask=head_mask_without(loaded.config, off))


def alone(folder: Path, space: Path) -> Path:
    """The same chooser without the other heads, as published ones are."""
    weights = {n: t for n, t in checkpoint.read_weights(folder).items() if not n.startswith("cls.")}
    checkpoint.write_tensors(weights, checkpoint.read_config(folder), space)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (space / name).write_bytes((folder / name).read_bytes())
    return space


def said(found: ChoicePrediction) -> str:
    """The heading of the likeliest choice."""
    best = found.order[0]
    line = escape_markdown(" ".join(found.choices[best].split()))
    return f"#### “{line}”: {two_digits(float(found.probabilities[best]))}"


@pytest.mark.parametrize("off", [(), ((0, 1), (1, 2))], ids=["all heads", "some off"])
def test_predict_shows_which_choice_is_taken(
    off: tuple[tuple[int, int], ...], tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likeliest with its probability as it was typed, all of them to be asked about, and a file of them."""
    app = opened(tiny_chooser_folder, monkeypatch, off=",".join(f"{layer}.{head}" for layer, head in off))
    assert not app.exception and not app.error and not app.warning
    assert "Which answer does the model choose?" in words(app)
    found = found_by(tiny_chooser_folder, off)
    assert [one.value for one in app.markdown if one.value.startswith("#### “")] == [said(found)]
    (pills,) = [one for one in app.button_group if one.label == "Explain"]
    assert pills.options == [escape_markdown(" ".join(found.choices[number].split())) for number in found.order]
    assert exported_files(app) == ["Choices (CSV)"]


def test_a_choice_becomes_the_second_text_and_is_asked_about(
    tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pill takes any of them, the button the likeliest; then it is the pair of every page, and the target."""
    app, found = opened(tiny_chooser_folder, monkeypatch, masked="1"), found_by(tiny_chooser_folder)
    last = found.order[-1]
    (pills,) = [one for one in app.button_group if one.label == "Explain"]
    pills.select(escape_markdown(" ".join(found.choices[last].split()))).run()
    assert not app.exception and not app.error
    state = app.session_state
    assert (state.pair, state.target, state.text) == (found.choices[last], "choice", QUESTION)
    (pills,) = [one for one in app.button_group if one.label == "Explain"]
    assert pills.value == last or pills.value == [last]
    app = opened(tiny_chooser_folder, monkeypatch)
    app.button(key="why_choice").click().run()
    assert (app.session_state.pair, app.session_state.target) == (found.choices[found.order[0]], "choice")
    assert "Which words does the choice “" in words(settled(app))


def test_a_choice_is_a_target_and_stays_in_the_link(tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked first where the second text is one, with its logit; a link that names it opens so."""
    app = opened(tiny_chooser_folder, monkeypatch, "why", pair=CHOICES[1], target="choice")
    value, options = target_of(app)
    assert not app.exception and not app.error and value == "choice"
    assert {f"Explain choice “{CHOICES[1]}”", "Explain “B follows A”"} <= set(options)
    loaded = load(str(tiny_chooser_folder), device="cpu")
    run = capture(loaded, loaded.tokenizer.encode(QUESTION, CHOICES[1]), target=Target("choice"))
    assert run.target_value is not None
    assert f"Which words does the choice “{CHOICES[1]}” (logit {two_digits(run.target_value)}) depend on?" in words(app)
    next(button for button in app.button if button.label.startswith("Test the methods")).click().run()
    said = words(settled(app))
    assert "how far the logit falls" in said and "how far the probability falls" not in said
    first = opened(tiny_chooser_folder, monkeypatch, "why", pair=CHOICES[1])
    assert target_of(first)[0] == "choice"


def test_hidden_words_are_hidden_beside_every_choice(
    tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the question in all pairs, those of the second text in its own."""
    loaded = load(str(tiny_chooser_folder), device="cpu")
    pairs = [loaded.tokenizer.encode(QUESTION, choice) for choice in CHOICES]
    first_of_b = next(word for word, side in zip(pairs[2].words, pairs[2].sides, strict=True) if side == "B")
    assert first_of_b == 5
    hidden = [loaded.tokenizer.mask_words(pair, [1]) for pair in pairs[:2]]
    hidden.append(loaded.tokenizer.mask_words(pairs[2], [1, 6]))
    app = opened(tiny_chooser_folder, monkeypatch, pair=CHOICES[2], masked="1,6")
    found = score_choices(loaded, hidden)
    assert not app.exception and said(found) in [one.value for one in app.markdown]
    assert np.abs(found.probabilities - found_by(tiny_chooser_folder).probabilities).max() > 1e-4


def test_an_edit_belongs_to_the_pair_and_not_to_the_choices(
    tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a neuron off the bars are those of the unmodified model, and a line says so."""
    app = opened(tiny_chooser_folder, monkeypatch, pair=CHOICES[1], cut="1:q2>k3:r", masked="")
    assert not app.exception and not app.error
    assert said(found_by(tiny_chooser_folder)) in [one.value for one in app.markdown]
    assert "the options are compared by the unmodified model with the same heads on" in words(app)


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ("the king", "1 choice was given: give from 2 to 26 choices."),
        ("\n".join(["the king"] * 27), "27 choices were given: give from 2 to 26 choices."),
        ("the king\n" + "a cat " * 300, "Choice 2 with its question has"),
        (
            "the king\n" + "a" * (MAX_CHOICE_CHARACTERS + 1),
            "The longest option has 2,001 characters: at most 2,000 can be read.",
        ),
    ],
)
def test_what_cannot_be_chosen_from_is_one_sentence(
    choices: str, sentence: str, tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few, too many, too long; the rest of the page stays."""
    app = opened(tiny_chooser_folder, monkeypatch, choices=choices)
    assert not app.exception and not app.error
    assert any(one.value.replace("\\", "").startswith(sentence) for one in app.warning)
    assert not any(one.value.startswith("#### “") for one in app.markdown)


@pytest.mark.parametrize("published", [False, True], ids=["with the other heads", "by itself"])
def test_without_choices_they_are_asked_for(
    published: bool, tiny_chooser_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says what is missing, and a click fills it in."""
    folder = alone(tiny_chooser_folder, tmp_path) if published else tiny_chooser_folder
    app = opened(folder, monkeypatch, choices=" \n ")
    assert not app.exception and not app.error
    assert "This model chooses among options: type a question as the text, and some options here." in words(app)
    (button,) = [one for one in app.button if one.label == "Add an example" and "chooses among" in str(one.key)]
    button.click().run()
    assert "#### “A " in words(settled(app))
    assert app.session_state.text.endswith("What does Tom have?")


def test_heads_says_the_logit_with_all_heads_and_without_some(
    tiny_chooser_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the pair at hand, beside the switches."""
    app = opened(tiny_chooser_folder, monkeypatch, "heads", pair=CHOICES[1], off="0.1")
    logits = [two_digits(float(found_by(tiny_chooser_folder, off).logits[1])) for off in ((), ((0, 1),))]
    assert not app.exception and logits[0] != logits[1]
    assert f"With L0 H1 off, the logit of B as an answer changes from {logits[0]} to {logits[1]}." in words(app)


def test_a_published_chooser_is_asked_nothing_else(
    tiny_chooser_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the other heads every page opens, with a choice as the second text and without, and Predict asks it."""
    folder = alone(tiny_chooser_folder, tmp_path)
    for page in PAGES:
        app = opened(folder, monkeypatch, page, pair=CHOICES[1], show="gradient")
        assert not app.exception and not app.error, page
        assert target_of(app)[0] == "choice"
        if page == "predict":
            assert "Which answer does the model choose?" in words(app)
    app = opened(folder, monkeypatch, "why")
    assert not app.exception and "add one of the options as the second text" in words(app)


def test_a_model_without_a_chooser_chooses_nothing(tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is on the page."""
    app = opened(tiny_model_folder, monkeypatch, pair=CHOICES[1])
    assert not app.exception and "Which answer does the model choose?" not in words(app) and not app.text_area
    assert all("choice" not in option for option in target_of(app)[1])

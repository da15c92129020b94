"""`headlight choose`: what it prints of a question and its choices, and how it says no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bert_core
from bert_core import Target, capture
from tests.app.test_cli import Run, headlight

__all__ = ["headlight"]  # a fixture
QUESTION, CHOICES = "who sat?", ("The  Old cats", "a king", "a dog ran")


def test_each_choice_has_its_line(headlight: Run, tiny_chooser_folder: Path) -> None:
    """The likeliest first, with its probability; as JSON in the order given, with the logits."""
    given = ("choose", QUESTION, *CHOICES, "--model", tiny_chooser_folder, "--device", "cpu")
    found = bert_core.choose(bert_core.load(str(tiny_chooser_folder), device="cpu"), QUESTION, CHOICES)
    expected = [f"{found.probabilities[n]:.3f}  {' '.join(CHOICES[n].split())}" for n in found.order]
    code, out, err = headlight(*given)
    assert (code, out.splitlines(), err) == (0, expected, "")
    assert [float(line[:5]) for line in expected] == sorted((float(line[:5]) for line in expected), reverse=True)
    code, out, _ = headlight(*given, "--json")
    said = json.loads(out)
    assert code == 0 and said["question"] == QUESTION
    assert [one["choice"] for one in said["choices"]] == list(CHOICES)
    assert [one["logit"] for one in said["choices"]] == pytest.approx(found.logits.tolist())
    assert sum(one["probability"] for one in said["choices"]) == pytest.approx(1)


def test_what_cannot_be_chosen_from_is_one_sentence(headlight: Run, tiny_chooser_folder: Path) -> None:
    """One choice, an empty one, or a model that was not trained for it; and `predict` says whom to ask."""
    model = ("--model", tiny_chooser_folder, "--device", "cpu")
    for arguments, sentence in (
        ((QUESTION, "a king", *model), "1 choice is given: it takes from 2 to 26"),
        ((QUESTION, "a king", " ", *model), "choice 2 is empty: write something"),
        ((QUESTION, "a", "b", "--model", "headlight-mini"), "was not trained to choose among answers: load a model"),
    ):
        code, out, err = headlight("choose", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1) and sentence in err


def test_a_choice_can_be_drawn_and_patched(headlight: Run, tiny_chooser_folder: Path, tmp_path: Path) -> None:
    """It is what a gradient explains where nothing else is said, and `--target choice` names it to `patch`."""
    model = ("--model", tiny_chooser_folder, "--device", "cpu")
    code, _, err = headlight(
        "attention", QUESTION, "--pair", "a king", "--show", "gradient", "--out", tmp_path / "g.csv", *model
    )
    assert (code, err) == (0, "")
    loaded = bert_core.load(str(tiny_chooser_folder), device="cpu")
    run = capture(loaded, loaded.tokenizer.encode(QUESTION, "a king"), target=Target("choice"))
    assert run.target_value is not None
    code, out, err = headlight("patch", QUESTION, "what sat?", "--pair", "a king", "--target", "choice", *model)
    assert code == 0, err
    assert f"the choice “a king”: logit {run.target_value:.3g} in the text that is read" in out

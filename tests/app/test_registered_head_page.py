"""A task head that a program registered, in the app: its targets are offered, explained and linked to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bert_core
from bert_core import LoadedModel, capture
from bert_core.run.target_grammar import format_target
from bert_core.task_heads import head_of
from tests.core.test_registered_head import KINDS, NAME, OFFERED, TEXT, PairScore, registered, save_pair_model
from tests.visit import said, settled, visited, words

__all__ = ["registered"]  # a fixture


@pytest.fixture
def folder(registered: PairScore, tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = save_pair_model(tiny_loaded, tmp_path / "pairs")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    return folder


def test_its_targets_are_offered_and_the_page_why_explains_one(registered: PairScore, folder: Path) -> None:
    """The options of "Explain" are the offered targets in their words; a link to another pair asks for it, and Why has
    a score for each word."""
    loaded = bert_core.load(folder, device="cpu")
    encoding = loaded.tokenizer.encode(TEXT)
    offered = registered.suggested_targets(loaded, capture(loaded, encoding), encoding, None)
    app = settled(visited("why", model=str(folder), text=TEXT))
    assert not app.exception and not app.error
    options = [option for box in app.selectbox if box.label == "Explain" for option in box.options]
    said = [
        KINDS["pair"].title.format(**head_of(target).template_values(loaded, encoding, target)) for target in offered
    ]
    assert len(said) == OFFERED
    assert [option for option in options if option in {f"Explain {offer}" for offer in said}] == [
        f"Explain {offer}" for offer in said
    ]
    assert app.session_state.target == app.query_params["target"] == format_target(loaded, offered[0])
    app = settled(visited("why", model=str(folder), text=TEXT, target="pair:1:2"))
    assert not app.exception and not app.error and app.session_state.target == "pair:1:2"
    answer = KINDS["pair"].supports.format(word=encoding.labels[1], other=encoding.labels[2])
    assert f"Which words does {answer} (" in words(app) and "By DecompX," in words(app)


def test_a_link_to_a_pair_that_is_not_there_asks_for_another(registered: PairScore, folder: Path) -> None:
    """A place beyond the text, and a target with a value too few, are not asked for; the page stands."""
    for wrong in ("pair:1:99", "pair:1", "pair:x:2"):
        app = settled(visited("predict", model=str(folder), text=TEXT, target=wrong))
        assert not app.exception and not app.error and app.session_state.target != wrong


def test_predict_shows_its_prediction(registered: PairScore, folder: Path) -> None:
    """The section has the title of the head and the numbers of its readouts."""
    app = settled(visited("predict", model=str(folder), text=TEXT))
    assert not app.exception and not app.error and registered.title in words(app)


def test_a_head_for_two_texts_asks_for_the_second(
    registered: PairScore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, its section states what is missing in place of the prediction."""
    monkeypatch.setattr(PairScore, "needs_pair", "two texts are <needed>", raising=False)
    monkeypatch.setattr(PairScore, "prediction_of", lambda *_: None)
    app = settled(visited("predict", model=str(folder), text=TEXT))
    assert not app.exception and "Two texts are <needed>." in [said(info) for info in app.info]


def test_without_registration_nothing_is_offered(
    tiny_loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights are named as not used, and a link to the target asks for something else."""
    folder = save_pair_model(tiny_loaded, tmp_path / "unknown")
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    app = settled(visited("predict", model=str(folder), text=TEXT, target="pair:3:7"))
    assert not app.exception and not app.error and app.session_state.target != "pair:3:7"
    assert "pair_score" in words(app) and NAME not in words(app)

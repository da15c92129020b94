"""Models of the app: opened from their files as they are now, and kept in memory up to a limit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import BertConfig, BertForPreTraining
from bert_core.records import ModelRun
from bert_core.run.capture import capture
from tests.visit import settled, visited
from viz_app.shell.question import ASKED, TOP, Question

TEXT = "the cat sat on the [MASK]"


def model_in(folder: Path, of: Path, seed: int) -> Path:
    """A folder with a model of the same sizes and vocabulary as another one, and weights drawn from a seed."""
    torch.manual_seed(seed)
    BertForPreTraining(BertConfig.from_json(of / "config.json")).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(of / name, folder / name)
    return folder


def likeliest(run: ModelRun) -> list[tuple[int, float]]:
    """The words for the gap of the text and their probabilities."""
    return list(run.predictions[0].top)


def drawn(app: AppTest) -> ModelRun:
    """What the page drew of its text."""
    assert not app.exception and not app.error
    question: Question = app.session_state[ASKED]
    return question.run()


def test_the_app_opens_the_weights_that_lie_in_the_folder_now(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the files of a folder are replaced, the next click answers with the new weights, not with kept results."""
    first, second = (model_in(tmp_path / str(seed), tiny_model_folder, seed) for seed in (1, 2))
    right = {}
    for folder in (first, second):
        loaded = bert_core.load(folder, device="cpu")
        right[folder] = likeliest(capture(loaded, loaded.tokenizer.encode(TEXT), top_k=TOP))
    assert right[first][0] != right[second][0]
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(first)]))
    app = settled(visited("predict", text=TEXT, model=str(first)))
    assert likeliest(drawn(app)) == right[first]
    for file in second.iterdir():
        shutil.copy(file, first / file.name)
    assert likeliest(drawn(settled(app.run()))) == right[second]

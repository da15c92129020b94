"""The pages and `headlight predict` with the vocabulary of mmBERT, whose rare characters are pieces of one byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import bert_core
from bert_core.run.capture import capture
from tests.families import save_family
from tests.visit import settled, visited, words
from viz_app import cli

TEXT = "The old man 😀 walked  along the [MASK].\n</b><table>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family("mmbert", tmp_path_factory.mktemp("bytes") / "mmbert", cased=True)


@pytest.mark.parametrize("page", ["start", "predict", "attention", "why", "inside", "causes", "neurons"])
def test_a_page_opens(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an error, and without the notation of the vocabulary."""
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(folder)]))
    source = {"source": TEXT.replace("old", "young")} if page == "causes" else {}
    app = settled(visited(page, model=str(folder), text=TEXT, **source))
    assert [one.value for one in (*app.exception, *app.error)] == []
    assert app.session_state.model == str(folder)
    assert not re.search(r"\[(CLS|SEP|PAD|UNK)\]|▁", words(app))


def test_predict_prints_the_models_own_probabilities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The typed [MASK] is the model's own, and each piece is printed by its readable name."""
    loaded = bert_core.load(str(folder), device="cpu")
    (prediction,) = capture(loaded, loaded.tokenizer.encode(TEXT), top_k=3).predictions
    with pytest.raises(SystemExit) as ended:
        cli.main(["predict", TEXT, "--model", str(folder), "--top-k", "3", "--device", "cpu"])
    assert not ended.value.code
    assert capsys.readouterr().out.splitlines() == [
        f"<mask> at {prediction.position}",
        *(f"  {probability:.3f}  {loaded.tokenizer.token_of(number)}" for number, probability in prediction.top),
    ]

"""viz_app/shell/models: which model a name stands for while its files change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import bert_core
from bert_core.fingerprint import fingerprint
from tests.visit import settled, visited, words
from viz_app.shell.models import added_models, loaded_model

TEXT = "the cat sat on the [MASK]"


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the tiny model that is on offer."""
    place = tmp_path / "runs" / "mine"
    shutil.copytree(tiny_model_folder, place)
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(place)]))
    monkeypatch.setenv("HEADLIGHT_DEVICE", "cpu")
    offered = added_models()[:]
    yield place
    added_models()[:] = offered


def made_again(folder: Path) -> bert_core.LoadedModel:
    """Another model of the same sizes in the place of the one that was there, which is deleted first."""
    other = bert_core.load(folder, device="cpu")
    with torch.no_grad():
        other.model.bert.embeddings.word_embeddings.weight.mul_(-1)
    shutil.rmtree(folder)
    bert_core.save(other, folder)
    return other


def test_a_model_that_is_made_again_under_its_name_is_loaded_again(folder: Path) -> None:
    """And results are kept apart by its identity; as long as its files stay, one model is for everybody."""
    first = loaded_model(str(folder))
    assert loaded_model(str(folder)) is first
    made_again(folder)
    second = loaded_model(str(folder))
    assert second is not first and fingerprint(second) != fingerprint(first) and second.name == first.name
    assert second.identity != first.identity and bert_core.edited(second, []).identity == second.identity
    (folder / "notes.txt").write_text("of no model", encoding="utf-8")
    assert loaded_model(str(folder)) is second


def test_a_zip_file_that_is_written_again_is_loaded_again(folder: Path, tmp_path: Path) -> None:
    """By its size and time, as a folder by those of its files."""
    packed = tmp_path / "model.zip"
    bert_core.save(bert_core.load(folder, device="cpu"), packed)
    first = loaded_model(str(packed))
    assert loaded_model(str(packed)) is first
    packed.unlink()
    bert_core.save(made_again(folder), packed)
    assert fingerprint(loaded_model(str(packed))) != fingerprint(first)


def test_pages_show_the_new_weights(folder: Path) -> None:
    """What is on Predict, Roles and Score, in sessions that were there before and in new ones, is of the new model."""
    pages = {"predict": {"text": TEXT}, "roles": {"text": TEXT}, "score": {"text": "the cat sat", "pair": "a dog ran"}}

    def drawn() -> dict[str, str]:
        shown = {}
        for page, address in pages.items():
            app = settled(visited(page, model=str(folder), **address))
            assert not app.exception and not app.error, words(app)
            shown[page] = words(app) + "".join(chart.proto.spec for chart in app.get("plotly_chart"))
        return shown

    there = settled(visited("predict", model=str(folder), text=TEXT))
    before = drawn()
    assert drawn() == before
    made_again(folder)
    after = drawn()
    assert all(after[page] != before[page] for page in pages)
    settled(there.run())
    shown = words(there) + "".join(chart.proto.spec for chart in there.get("plotly_chart"))
    assert shown == after["predict"]

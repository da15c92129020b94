"""Models of the app: opened from their files as they are now, and kept in memory up to a limit."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

import bert_core
from bert_core import BertConfig, BertForPreTraining, Refused, ScaledNeuron, edited
from bert_core.fingerprint import fingerprint
from bert_core.progress import Progress
from bert_core.records import ModelRun
from bert_core.run.capture import capture
from tests.visit import settled, visited, words
from viz_app.shell import jobs, memory, models, work
from viz_app.shell.model_cache import begin_use, end_use
from viz_app.shell.model_names import added_models
from viz_app.shell.models import loaded_model
from viz_app.shell.selection import KEPT_PREDICTIONS, SELECTION, Selection

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
    question: Selection = app.session_state[SELECTION]
    return question.run()


def test_the_app_opens_the_weights_that_lie_in_the_folder_now(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the files of a folder are replaced, the next click answers with the new weights, not with kept results."""
    first, second = (model_in(tmp_path / str(seed), tiny_model_folder, seed) for seed in (1, 2))
    right = {}
    for folder in (first, second):
        loaded = bert_core.load(folder, device="cpu")
        right[folder] = likeliest(capture(loaded, loaded.tokenizer.encode(TEXT), top_k=KEPT_PREDICTIONS))
    assert right[first][0] != right[second][0]
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps([str(first)]))
    app = settled(visited("predict", text=TEXT, model=str(first)))
    assert likeliest(drawn(app)) == right[first]
    for file in second.iterdir():
        shutil.copy(file, first / file.name)
    assert likeliest(drawn(settled(app.run()))) == right[second]


class Reads:
    """What the app reads: the names of the folders in order, and whether the weights of each are in memory."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._weights: dict[str, list[weakref.ref[torch.Tensor]]] = {}

    def load(self, name: str, *, device: str | None = None) -> bert_core.LoadedModel:
        """As `bert_core.load`."""
        loaded = bert_core.load(name, device=device)
        self.names.append(Path(name).name)
        self._weights.setdefault(Path(name).name, []).extend(map(weakref.ref, loaded.model.parameters()))
        return loaded

    def in_memory(self) -> str:
        """The names of the folders of which any weight is in memory."""
        gc.collect()
        return "".join(name for name, seen in sorted(self._weights.items()) if any(ref() is not None for ref in seen))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """What the app reads in this test, in which kept results have no room at all."""
    counted = Reads()
    monkeypatch.setattr(models, "load", counted.load)
    monkeypatch.setattr(jobs, "MAX_RESULT_BYTES", 1)
    return counted


@pytest.fixture
def offered(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two models on offer."""
    folders = [str(model_in(tmp_path / name, tiny_model_folder, seed)) for seed, name in enumerate("ab")]
    monkeypatch.setenv("HEADLIGHT_MODELS", json.dumps(folders))
    monkeypatch.setenv("HEADLIGHT_DEVICE", "cpu")
    return folders


def limited_to(nbytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the models of the app to so many bytes."""
    monkeypatch.setenv(memory.MODEL_SETTING, str(nbytes / 2**30))


def typed(app: AppTest, text: str) -> AppTest:
    """The page after another text was typed."""
    app.session_state.text = text
    app = settled(app.run())
    assert not app.exception and not app.error
    return app


def test_a_model_larger_than_every_limit_is_read_once(
    offered: list[str], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every click on every page works on the model that is in memory."""
    limited_to(1, monkeypatch)
    app = settled(visited("predict", text=TEXT, model=offered[0]))
    for text in ("a cat sat", "the mat", TEXT):
        typed(app, text)
    for page in ("attention", "heads", "compare"):
        assert not settled(visited(page, text=TEXT, model=offered[0])).exception
    assert reads.names == ["a"] and reads.in_memory() == "a"


@pytest.mark.parametrize(("models_that_fit", "read"), [(2, ["a", "b"]), (1, ["a", "b", "a", "b"])])
def test_two_visitors_with_two_models(
    offered: list[str], reads: Reads, monkeypatch: pytest.MonkeyPatch, models_that_fit: int, read: list[str]
) -> None:
    """Where the limit has room for both models each is read once; else the model of the visitor who waits goes."""
    limited_to((models_that_fit + 0.5) * bert_core.load(offered[0], device="cpu").nbytes, monkeypatch)
    visitors = [settled(visited("attention", text=TEXT, model=name)) for name in offered]
    assert reads.in_memory() == ("ab" if models_that_fit == 2 else "b")
    for visitor in visitors:
        typed(visitor, "a cat sat")
    assert reads.names == read
    assert reads.in_memory() == ("ab" if models_that_fit == 2 else "b")


def test_a_visitor_who_changes_the_model_has_one_in_memory(
    offered: list[str], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first model is gone before the second is read; results of it that are kept do not hold it."""
    limited_to(1, monkeypatch)
    monkeypatch.setattr(jobs, "MAX_RESULT_BYTES", 1 << 30)
    app = settled(visited("compare", text=TEXT, model=offered[0], against="masked", masked="2"))
    assert not app.exception and reads.in_memory() == "a"
    counts: list[str] = []
    load = models.load

    def counting(name: str, *, device: str | None = None) -> bert_core.LoadedModel:
        counts.append(reads.in_memory())
        return load(name, device=device)

    monkeypatch.setattr(models, "load", counting)
    app.session_state.model = offered[1]
    settled(app.run())
    assert not app.exception and counts == [""]
    assert reads.names == ["a", "b"] and reads.in_memory() == "b"


def test_a_job_over_a_model_that_is_displaced_ends(
    offered: list[str], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits or runs keeps its model in memory; it ends rightly, and then the model goes."""
    limited_to(1, monkeypatch)
    started, go = threading.Event(), threading.Event()
    loaded = models.loaded_model(offered[0])
    encoding = loaded.tokenizer.encode(TEXT)
    right = likeliest(capture(loaded, encoding))

    def work_on(number: int, model: models.ModelReference) -> work.Work[ModelRun]:
        def do(report: Progress) -> ModelRun:
            started.set()
            go.wait(30)
            report(0.5)
            return capture(model.get(), encoding)

        return work.Work(("displaced", number), "a job", do)

    begin_use()
    reference = models.ModelReference(loaded)
    submitted = [work._job_of(work_on(number, reference), None, is_lasting=True) for number in range(2)]
    end_use()
    del loaded
    assert started.wait(10)
    memory.MODELS.load((offered[1], ""), lambda: models.load(offered[1], device="cpu"), 1)
    assert reads.in_memory() == "ab"
    go.set()
    assert all(job.wait(10) for job in submitted) and work.queue().wait_until_idle(10)
    assert [likeliest(job.result) for job in submitted] == [right, right] and reads.names == ["a", "b"]
    memory.MODELS.shrink()
    assert len(reads.in_memory()) == 1


def test_a_page_at_rest_reads_its_model_again_with_its_edits(
    offered: list[str], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page offers after its model went is made of the model as it was; of files that changed it is refused."""
    limited_to(1, monkeypatch)
    base = models.loaded_model(offered[0])
    encoding, edits = base.tokenizer.encode(TEXT), [ScaledNeuron(1, 3, 0.0)]
    right = likeliest(capture(edited(base, edits), encoding))
    assert right != likeliest(capture(base, encoding))
    references = [models.ModelReference(edited(base, edits)), models.ModelReference(base)]
    del base
    models.loaded_model(offered[1])
    assert reads.in_memory() == "b"
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: likeliest(capture(references[0].get(), encoding))).result() == right
    assert reads.names == ["a", "b", "a"]
    models.loaded_model(offered[1])
    os.utime(Path(offered[0], "config.json"))
    with pytest.raises(Refused, match="the files of a were changed: draw the page again"):
        references[1].get()


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
    pages = {
        "predict": {"text": TEXT, "target": "6:cat"},
        "roles": {"text": TEXT},
        "score": {"text": "the cat sat", "pair": "a dog ran"},
    }

    def drawn() -> dict[str, str]:
        shown = {}
        for page, address in pages.items():
            app = settled(visited(page, model=str(folder), **address))
            assert not app.exception and not app.error, words(app)
            shown[page] = words(app) + "".join(chart.proto.spec for chart in app.get("plotly_chart"))
        return shown

    there = settled(visited("predict", model=str(folder), text=TEXT, target="6:cat"))
    before = drawn()
    assert drawn() == before
    made_again(folder)
    after = drawn()
    assert all(after[page] != before[page] for page in pages)
    settled(there.run())
    shown = words(there) + "".join(chart.proto.spec for chart in there.get("plotly_chart"))
    assert shown == after["predict"]

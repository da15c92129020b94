"""Kept steps: evenly over what is done, bounded, each a model; a stopped run goes on to the same bits."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import bert_core
from bert_core import Refused
from bert_core.training import runs, tuning
from bert_core.training.finetune import finetune
from bert_core.training.runs import TuningLog, kept_steps, kept_stride, read_log
from bert_core.training.settings import FinetuneSettings
from tests.core.test_finetune import sentences, write_csv

SETTINGS = FinetuneSettings(epochs=3, learning_rate=1e-3, batch=8, max_length=32, patience=3)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("rows") / "train.csv", sentences(48, seed=1))


def run(table: Path, folder: Path, start: Path, **more: Any) -> Any:
    return finetune(
        table, folder, SETTINGS, text="text", label="class", start=str(start), device="cpu",
        **{"held_out": 0.25, "report": lambda done, what="": None, **more},
    )  # fmt: skip


class Stop:
    """A report that stops the run at its n-th share."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, done: float | None, what: str = "") -> None:
        self.after -= done is not None
        if not self.after:
            raise KeyboardInterrupt


def test_steps_are_thinned_evenly() -> None:
    """Whatever number is done, the kept ones lie at equal distances, the start among them, and one place is left."""
    for most in (2, 3, 8, 20):
        for step in range(200):
            stride = kept_stride(step, most)
            kept = range(0, step + 1, stride)
            assert len(kept) <= max(most - 1, 1) and stride & (stride - 1) == 0
            if stride > 1 and most > 2:
                assert len(range(0, step + 1, stride // 2)) > most - 1  # no more would have fitted
    assert [kept_stride(step, 8) for step in (0, 6, 7, 13, 14, 27, 28)] == [1, 1, 2, 2, 4, 4, 8]


def test_each_kept_step_opens_as_a_model(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """The start, the end and steps between: each loads with its classifier and tokenizer, the first as it began."""
    folder = tmp_path / "run"
    run(table, folder, tiny_model_folder, keep=5)
    steps = kept_steps(folder)
    assert list(steps) == [0, 4, 8, 12, 15]  # 36 rows by 8 are 5 steps an epoch
    before = load_file(tiny_model_folder / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert torch.equal(load_file(steps[0] / "model.safetensors")["bert.embeddings.word_embeddings.weight"], before)
    weights = []
    for path in steps.values():
        loaded = bert_core.load(str(path), device="cpu")
        assert loaded.labels == ("home", "realm", "river") and loaded.has_classifier
        assert loaded.tokenizer.encode("the cat").tokens == ("[CLS]", "the", "cat", "[SEP]")
        weights.append(loaded.model.bert.encoder.layer[0].attention.self.query.weight)
    assert all(not torch.equal(one, other) for one, other in pairwise(weights))


def test_keeping_steps_changes_no_weight(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """With kept steps and without, the same bits come out; without, no folder of steps is there."""
    run(table, tmp_path / "plain", tiny_model_folder)
    run(table, tmp_path / "kept", tiny_model_folder, keep=3)
    assert not (tmp_path / "plain" / "steps").exists()
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "kept"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("after", [1, 5, 7, 13])
def test_a_stopped_run_goes_on_to_the_same_bits(
    table: Path, tiny_model_folder: Path, tmp_path: Path, after: int
) -> None:
    """Stopped in the first epoch, at its end, or later, the same call ends with the same weights, steps and log."""
    whole = run(table, tmp_path / "whole", tiny_model_folder, keep=5)
    with pytest.raises(KeyboardInterrupt):
        run(table, tmp_path / "halted", tiny_model_folder, keep=5, report=Stop(after))
    assert (tmp_path / "halted" / "state.pt").is_file()
    said: list[str] = []
    again = run(table, tmp_path / "halted", tiny_model_folder, keep=5, report=lambda done, what="": said.append(what))
    assert any(line.endswith(f"; resuming at step {after} of 15") for line in said)
    assert again.metrics == whole.metrics
    for name in ("model.safetensors", *(f"steps/{step}/model.safetensors" for step in (0, 4, 8, 12, 15))):
        one, other = (load_file(tmp_path / run / name) for run in ("whole", "halted"))
        assert all(torch.equal(one[weight], other[weight]) for weight in one), name
    logs = [(tmp_path / run / "log.jsonl").read_text(encoding="utf-8") for run in ("whole", "halted")]
    assert logs[0] == logs[1]
    left = {path.name for path in (tmp_path / "halted").iterdir()}
    assert left == {"config.json", "model.safetensors", "steps", "log.jsonl", "vocab.txt", "tokenizer_config.json"}


def test_an_update_is_never_half_done(
    table: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C in the middle of an update is answered after it: the run goes on to the same bits."""
    run(table, tmp_path / "whole", tiny_model_folder)
    plain, left = runs.apply_gradients, [7]

    def interrupted(optimizer: Any, *given: Any) -> None:
        left[0] -= 1
        if not left[0]:
            signal.raise_signal(signal.SIGINT)
        plain(optimizer, *given)

    monkeypatch.setattr(runs, "apply_gradients", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(table, tmp_path / "halted", tiny_model_folder)
    said: list[str] = []
    run(table, tmp_path / "halted", tiny_model_folder, report=lambda done, what="": said.append(what))
    assert any(line.endswith("; resuming at step 7 of 15") for line in said)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "halted"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_another_run_is_not_gone_on_with(table: Path, tiny_model_folder: Path, tmp_path: Path) -> None:
    """A stopped run of other rows, or a state that is broken, is refused; nothing of it is lost."""
    with pytest.raises(KeyboardInterrupt):
        run(table, tmp_path / "run", tiny_model_folder, report=Stop(2))
    other = write_csv(tmp_path / "other.csv", sentences(40, seed=9))
    with pytest.raises(Refused, match="holds a run with other settings"):
        run(other, tmp_path / "run", tiny_model_folder)
    (tmp_path / "run" / "state.pt").write_bytes(b"broken")
    with pytest.raises(
        Refused, match=r"state\.pt is damaged, or is not the state of a training run: delete it to start a new run"
    ):
        run(table, tmp_path / "run", tiny_model_folder)


def test_what_is_kept_is_bounded(
    table: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as fit the bound in bytes; one step, or no room for two, is refused."""
    nbytes = (tiny_model_folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(runs, "MAX_KEPT_BYTES", int(3.5 * nbytes))
    run(table, tmp_path / "few", tiny_model_folder, keep=9)
    assert list(kept_steps(tmp_path / "few")) == [0, 8, 15]
    with pytest.raises(Refused, match="the number of saved steps is 1: it must be 0 for none, or at least 2"):
        run(table, tmp_path / "one", tiny_model_folder, keep=1)
    monkeypatch.setattr(runs, "MAX_KEPT_BYTES", nbytes)
    with pytest.raises(Refused, match="save no steps"):
        run(table, tmp_path / "none", tiny_model_folder, keep=2)


def test_the_log_can_be_read_at_any_moment(
    table: Path, tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, losses and looks at held-out rows as they come; a line that is half written is passed over."""
    assert read_log(tmp_path) == TuningLog(0, (), (), ())
    seen: list[TuningLog] = []
    run(
        table, tmp_path / "run", tiny_model_folder, report=lambda done, what="": seen.append(read_log(tmp_path / "run"))
    )
    assert seen[-1].steps == 15 and seen[-1].step == 15
    assert [step for step, _ in seen[-1].losses] == list(range(1, 16))
    assert [step for step, _ in seen[-1].held_out] == [5, 10, 15]
    assert "macro_f1" in seen[-1].held_out[0][1] and set(seen[-1].best_steps) <= {5, 10, 15}
    assert [log.step for log in seen] == sorted(log.step for log in seen)
    log = tmp_path / "run" / "log.jsonl"
    log.write_text(log.read_text(encoding="utf-8") + '{"epoch": 4, "st', encoding="utf-8")
    assert read_log(tmp_path / "run") == seen[-1]
    monkeypatch.setattr(tuning, "SAVE_EVERY", 0.0)  # a note after each update changes nothing
    run(table, tmp_path / "noted", tiny_model_folder)
    lines = [json.loads(line) for line in (tmp_path / "noted" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == runs.read_log_lines(tmp_path / "run")

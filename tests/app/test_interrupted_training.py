"""Trainings that are stopped at any moment and called again: the bytes of an unbroken run, or a refusal in a sentence.

What is on the disk changes by writes alone, so that a process that is killed before its n-th write leaves what it
leaves at any moment since the write before.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.app.test_cli import text_file
from tests.faults import Ended, Faults

__all__ = ["text_file"]  # a fixture
STEPS = ("--steps", 5, "--warmup", 1, "--decay", 2, "--save-every", 0)
COMMANDS: dict[str, tuple[object, ...]] = {
    "pretrain": ("pretrain", "TEXT", "--held-out", "HELD", "--init", "MODEL", *STEPS, "--tokens", 64, "--lengths",
                 "16:1", "--evaluate-every", 2, "--optimizer", "muon", "--average", 0.9, "--dropout", 0.1),
    "finetune": ("finetune", "TEXT", "--held-out", "HELD", "--text", "text", "--label", "topic", "--init", "MODEL",
                 "--epochs", 3, "--batch", 8, "--learning-rate", 0.003, "--keep", 3),
    "tune-lens": ("tune-lens", "TEXT", "--held-out", "HELD", "--model", "MODEL", *STEPS, "--examples", 2,
                  "--length", 16),
    "train-captioner": ("train-captioner", *STEPS, "--batch", 2, "--evaluate-every", 2),
}  # fmt: skip
every_training = pytest.mark.parametrize("name", COMMANDS)
reads_texts = pytest.mark.parametrize("name", ["pretrain", "finetune", "tune-lens"])


class Trainings:
    """The commands on files of their own, each into a folder."""

    def __init__(self, faults: Faults, space: Path, text: Path, table: str, model: Path) -> None:
        self.faults, self.space, self.text, self.table, self.model = faults, space, text, table, model
        self._unbroken: dict[str, tuple[Ended, dict[str, bytes]]] = {}

    def given(self, name: str, space: Path) -> dict[str, Path]:
        """A folder with the files that a command reads, which may be changed; the same for every such folder."""
        space.mkdir(exist_ok=True)
        table = name == "finetune"
        places = {"TEXT": space / ("text.csv" if table else "text.txt"),
                  "HELD": space / ("held.csv" if table else "held.txt"), "MODEL": space / "model"}  # fmt: skip
        for place in (places["TEXT"], places["HELD"]):
            place.write_text(self.table if table else self.text.read_text(encoding="utf-8"), encoding="utf-8")
        shutil.copytree(self.model, places["MODEL"])
        return places

    def run(self, name: str, given: dict[str, Path], folder: Path, **fault: object) -> Ended:
        """The command, which meets a fault at a change of its folder."""
        folder.mkdir(exist_ok=True)
        arguments = [str(given.get(str(part), part)) for part in COMMANDS[name]]
        return self.faults.run([*arguments, "--folder", folder, "--device", "cpu"], folder, **fault)

    def unbroken(self, name: str) -> tuple[Ended, dict[str, bytes]]:
        """How the command ends where nothing goes wrong, and what it leaves."""
        if name not in self._unbroken:
            folder = self.space / f"unbroken {name}"
            ended = self.run(name, self.given(name, self.space / name), folder)
            assert ended.code == 0, ended.err
            self._unbroken[name] = ended, left_in(folder)
        return self._unbroken[name]

    def stopped(self, name: str, space: Path) -> tuple[dict[str, Path], Path]:
        """The files that a command reads, and the folder of its run, which was killed after its first states."""
        given, folder = self.given(name, space / "given"), space / "run"
        at = 2 * self.unbroken(name)[0].writes // 3
        assert self.run(name, given, folder, at=at, what="kill").code == -signal.SIGKILL
        assert (folder / "state.pt").is_file()
        return given, folder


@pytest.fixture(scope="module")
def trainings(
    tiny_model_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trainings]:
    """Commands in processes that one process forks."""
    rows = [f"the {pet} sat,pet\nthe {ruler} went,ruler" for pet in ("cat", "dog") for ruler in ("king", "queen")] * 3
    faults = Faults()
    space = tmp_path_factory.mktemp("trainings")
    yield Trainings(faults, space, text_file, "text,topic\n" + "\n".join(rows) + "\n", tiny_model_folder)
    faults.close()


def left_in(folder: Path) -> dict[str, bytes]:
    """What a run left but for its state and what is temporary; of the log what is no speed, of cards no path."""
    left = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name == "state.pt" or any(part.startswith(".") for part in Path(name).parts):
            continue
        if path.name == "log.jsonl":
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            timeless = [{key: value for key, value in line.items() if key != "tokens_per_s"} for line in lines]
            left[name] = json.dumps(timeless).encode()
        elif path.name == "TUNED_LENS.md":
            left[name] = b"".join(path.read_bytes().splitlines()[1:])  # the first has the path of the model
        else:
            left[name] = path.read_bytes()
    return left


def state_of(folder: Path) -> bytes:
    return (folder / "state.pt").read_bytes()


def assert_refused(ended: Ended, *parts: str) -> None:
    """Status 2 and one sentence, which has these parts."""
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    assert all(part in ended.err.splitlines()[-1] for part in parts), ended.err


def assert_ends_as_unbroken(trainings: Trainings, name: str, given: dict[str, Path], folder: Path) -> None:
    """The same command again ends with the bytes of a run that was never stopped, or says that it is done."""
    again = trainings.run(name, given, folder)
    assert again.code == 0 or (again.code == 2 and "already holds a model" in again.err), again.err
    assert left_in(folder) == trainings.unbroken(name)[1]


@every_training
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_bytes(
    trainings: Trainings, tmp_path: Path, name: str, seed: int
) -> None:
    """Killed at up to three moments of a seed, each after what the run before left, it ends as if never stopped."""
    draw, given = random.Random(f"{name} {seed}"), trainings.given(name, tmp_path / "given")
    writes, kills = trainings.unbroken(name)[0].writes, 0
    for _ in range(3):
        ended = trainings.run(name, given, tmp_path / "run", at=draw.randint(1, writes), what="kill")
        if ended.code != -signal.SIGKILL:  # it was done before
            break
        kills += 1
    assert kills
    assert_ends_as_unbroken(trainings, name, given, tmp_path / "run")


@every_training
@pytest.mark.slow
def test_a_training_on_a_disk_that_was_full_ends_with_the_same_bytes(
    trainings: Trainings, tmp_path: Path, name: str
) -> None:
    """The disk is full from a write in the middle on; with room again the run continues."""
    given, folder = trainings.given(name, tmp_path / "given"), tmp_path / "run"
    for share in (0.4, 0.8):
        ended = trainings.run(name, given, folder, at=int(share * trainings.unbroken(name)[0].writes), what="ENOSPC")
        if ended.code:
            assert_refused(ended, os.strerror(errno.ENOSPC), "choose another place")
    assert_ends_as_unbroken(trainings, name, given, folder)


@every_training
def test_two_runs_of_one_folder_are_one_run_and_a_refusal(trainings: Trainings, tmp_path: Path, name: str) -> None:
    """While a continued run stands still, a second one is refused; the first ends with the bytes of an unbroken run."""
    given, folder = trainings.stopped(name, tmp_path)
    # The changes before the 16th are those of the tokenized texts, which all runs share, and the lock.
    assert trainings.run(name, given, folder, at=16, what="pause").code is None
    second = trainings.run(name, given, folder)
    first = trainings.faults.go_on()
    assert_refused(second, f"another run writes to {folder} now")
    assert first.code == 0, first.err
    assert left_in(folder) == trainings.unbroken(name)[1]


def edit_in_place(path: Path) -> None:
    """Another text of the same size and times."""
    before, stat = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(before.replace("cat", "dog", 1), encoding="utf-8")
    assert path.stat().st_size == stat.st_size and path.read_text(encoding="utf-8") != before
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def edit_longer(path: Path) -> None:
    """A longer text: what is there twice."""
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, *lines[1:]]) + "\n", encoding="utf-8")


@reads_texts
@pytest.mark.parametrize("edited", ["TEXT", "HELD"])
@pytest.mark.parametrize("edit", [edit_in_place, edit_longer])
def test_a_run_is_not_continued_with_an_edited_text(
    trainings: Trainings, tmp_path: Path, name: str, edited: str, edit: Callable[[Path], None]
) -> None:
    """Of the same size and times, or longer: one sentence says which text it is, and nothing in the folder changes.
    With the text as it was the run continues.
    """
    given, folder = trainings.stopped(name, tmp_path)
    original, left, state = given[edited].read_bytes(), left_in(folder), state_of(folder)
    edit(given[edited])
    refused = trainings.run(name, given, folder)
    assert_refused(refused, str(folder), "other settings", "held-out text" if edited == "HELD" else "(text)")
    assert left_in(folder) == left and state_of(folder) == state
    given[edited].write_bytes(original)
    assert_ends_as_unbroken(trainings, name, given, folder)


@reads_texts
def test_a_touched_text_is_the_same_text(trainings: Trainings, tmp_path: Path, name: str) -> None:
    """Another time of change, without a change of the content, does not end a run."""
    given, folder = trainings.stopped(name, tmp_path)
    for text in ("TEXT", "HELD"):
        os.utime(given[text], ns=(1, 1))
    assert_ends_as_unbroken(trainings, name, given, folder)


@reads_texts
def test_a_run_is_not_continued_from_other_weights_under_the_same_name(
    trainings: Trainings, tmp_path: Path, name: str
) -> None:
    """One number of the start's weights is another, or one of its settings: a sentence says so; the run stays."""
    given, folder = trainings.stopped(name, tmp_path)
    left, state = left_in(folder), state_of(folder)
    weights, config = given["MODEL"] / "model.safetensors", given["MODEL"] / "config.json"
    before = weights.read_bytes(), config.read_text(encoding="utf-8")
    tensors = load_file(weights)
    tensors["bert.encoder.layer.1.output.dense.weight"][3, 2] += 1
    save_file(tensors, weights, {"format": "pt"})
    assert_refused(trainings.run(name, given, folder), "other settings", "weights: ")
    weights.write_bytes(before[0])
    config.write_text(json.dumps({**json.loads(before[1]), "layer_norm_eps": 1e-5}), encoding="utf-8")
    assert_refused(
        trainings.run(name, given, folder),
        "other settings",
        "weights: " if name == "tune-lens" else "configuration: ",  # the fingerprint of a model has both
    )
    assert left_in(folder) == left and state_of(folder) == state
    config.write_text(before[1], encoding="utf-8")
    assert_ends_as_unbroken(trainings, name, given, folder)


def damage(path: Path, how: str) -> None:
    """Make a state file one that cannot be used."""
    whole = path.read_bytes()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif how == "flipped":
        flipped = bytearray(whole)
        for place in range(len(whole) // 2, len(whole) // 2 + 100):  # more than lies between two tensors
            flipped[place] ^= 0xFF
        path.write_bytes(flipped)
    elif how == "noise":
        path.write_bytes(np.random.default_rng(0).bytes(5000))
    elif how == "another file":
        torch.save([1, 2, 3], path)
    else:
        state = torch.load(path, weights_only=True)
        old = {name: state[name] for name in ("model", "optimizer")}
        torch.save({**old, "step": 3, "settings": {}, "steps": 5, "smooth": {}}, path)


@every_training
@pytest.mark.parametrize("how", ["empty", "cut", "flipped", "noise", "another file", "version 0.2"])
def test_a_state_that_cannot_be_read_is_refused(trainings: Trainings, tmp_path: Path, name: str, how: str) -> None:
    """One sentence names the file to delete; without it the same command begins anew and ends as if never stopped."""
    given, folder = trainings.stopped(name, tmp_path)
    state = folder / "state.pt"
    damage(state, how)
    left = left_in(folder)
    why = "was written by version 0.2" if how == "version 0.2" else "is damaged, or is not the state of a training run"
    assert_refused(trainings.run(name, given, folder), f"{state} {why}", "delete it to start a new run")
    assert left_in(folder) == left
    state.unlink()
    assert_ends_as_unbroken(trainings, name, given, folder)

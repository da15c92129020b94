"""Every command that writes, killed, without room, without rights, interrupted, or beside another one."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.app.test_cli import text_file
from tests.faults import Ended, Faults
from viz_app import cli
from viz_app.cli.serve import MALLOC

__all__ = ["text_file"]  # a fixture
RUN = ("--steps", 2, "--warmup", 1, "--decay", 0, "--save-every", 0, "--folder", "OUT/run")
COMMANDS: dict[str, tuple[object, ...]] = {
    "pretrain": ("pretrain", "TEXT", "--init", "MODEL", *RUN, "--tokens", 64, "--lengths", "16:1"),
    "finetune": ("finetune", "TABLE", "--text", "text", "--label", "topic", "--init", "MODEL", "--epochs", 2,
                 "--held-out", 0.25, "--batch", 8, "--learning-rate", 0.003, "--folder", "OUT/run"),
    "tune-lens": ("tune-lens", "TEXT", "--model", "MODEL", *RUN, "--held-out", "TEXT", "--examples", 2, "--length", 16),
    "train-captioner": ("train-captioner", *RUN, "--batch", 2),
    "heads": ("heads", "TEXT", "--importance", "--model", "MODEL", "--out", "OUT/t.csv"),
    "faithfulness": ("faithfulness", "TEXT", "--model", "MODEL", "--methods", "rollout,occlusion", "--kinds", "content",
                     "--questions", 2, "--lengths", "6:16", "--least", 0, "--random-rankings", 2, "--out", "OUT/t.csv"),
    "explain": ("explain", "HIDDEN", "--guess", "--methods", "occlusion", "--model", "MODEL", "--out", "OUT/t.csv"),
    "index": ("index", "TEXT", "--model", "MODEL", "--max-length", 16, "--out", "OUT/index"),
    "probe": ("probe", "WORDS", "--label", "kind", "--layers", "0,2", "--seeds", 1, "--least", 1, "--model", "MODEL",
              "--out", "OUT/p.csv"),
    "neurons": ("neurons", "TEXT", "--model", "MODEL", "--out", "OUT/t.csv", "--examples", "OUT/e.json"),
    "prune": ("prune", "--model", "MODEL", "--heads", "0.1", "--out", "OUT/smaller"),
    "prune to .zip": ("prune", "--model", "MODEL", "--heads", "0.1", "--out", "OUT/smaller.zip"),
    "prune-curve": ("prune-curve", "TEXT", "--model", "MODEL", "--examples", 6, "--length", 16, "--points", 2,
                    "--orders", "importance", "--out", "OUT/c.csv"),
}  # fmt: skip
every_command = pytest.mark.parametrize("name", COMMANDS)
# Studies of a file: which file each reads.
STUDIES = {
    "heads": "TEXT", "explain": "HIDDEN", "faithfulness": "TEXT", "probe": "WORDS", "neurons": "TEXT", "index": "TEXT",
    "prune-curve": "TEXT",
}  # fmt: skip
every_study = pytest.mark.parametrize("name", STUDIES)
KILLED_IN_CI = ("explain", "index")  # of the studies that are killed often, which takes half a minute for each
every_killed_study = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow if name in KILLED_IN_CI else pytest.mark.release]) for name in STUDIES],
)
MOMENTS = 20


class Bench:
    """The commands on tiny files, and what each leaves where nothing goes wrong."""

    def __init__(self, faults: Faults, space: Path, given: dict[str, Path]) -> None:
        self.faults, self.space, self.given = faults, space, given
        self._undisturbed: dict[str, tuple[Ended, dict[str, bytes]]] = {}

    def run(self, name: str, out: Path, given: dict[str, Path] | None = None, **fault: object) -> Ended:
        """The command of this name, into a folder. given: other files in the place of the usual ones."""
        out.mkdir(exist_ok=True)
        paths = self.given | (given or {})
        names = {"OUT": str(out), **{name: str(path) for name, path in paths.items()}}
        asked = [str(one) for one in (*COMMANDS[name], "--device", "cpu")]
        for short, path in names.items():
            asked = [one.replace(short, path) for one in asked]
        return self.faults.run(asked, out, **fault)

    def undisturbed(self, name: str) -> tuple[Ended, dict[str, bytes]]:
        """How the command ends where nothing goes wrong, and what it leaves."""
        if name not in self._undisturbed:
            out = self.space / f"undisturbed {name}"
            ended = self.run(name, out)
            assert ended.code == 0, ended.err
            self._undisturbed[name] = ended, left_in(out)
        return self._undisturbed[name]


@pytest.fixture(scope="module")
def bench(tiny_model_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Commands in processes that one process forks."""
    space = tmp_path_factory.mktemp("faults")
    rows = [f"the {pet} sat,pet\nthe {ruler} went,ruler" for pet in ("cat", "dog") for ruler in ("king", "queen")] * 2
    (space / "table.csv").write_text("text,topic\n" + "\n".join(rows) + "\n", encoding="utf-8")
    pets = {"cat": "pet", "dog": "pet", "king": "other", "queen": "other", "old": "other"}
    words = [f"{at},{word},{pets[word]}" for at, order in enumerate(islice(permutations(pets), 40)) for word in order]
    (space / "words.csv").write_text("sentence,word,kind\n" + "\n".join(words) + "\n", encoding="utf-8")
    hidden = [f"the {pet} [MASK] on the {place}" for pet in pets for place in ("mat", "bed", "rug")] * 6
    (space / "hidden.txt").write_text("\n".join(hidden) + "\n", encoding="utf-8")
    faults = Faults()
    given = {
        "TEXT": text_file, "TABLE": space / "table.csv", "WORDS": space / "words.csv", "HIDDEN": space / "hidden.txt",
    }  # fmt: skip
    yield Bench(faults, space, {"MODEL": tiny_model_folder, **given})
    faults.close()


def left_in(folder: Path) -> dict[str, bytes]:
    """What a command left, hidden files too; without what differs from run to run: times, and a state's order."""
    left = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("log.jsonl", "state.pt"):
            left[str(path.relative_to(folder))] = timeless(path)
    return left


def timeless(path: Path) -> bytes:
    """What a file holds but for measured speeds, and for the times in a .zip."""
    written = path.read_bytes()
    if path.suffix == ".zip" and path.name[0] != ".":
        with zipfile.ZipFile(path) as archive:
            return b"".join(name.encode() + archive.read(name) for name in archive.namelist())
    if b"tokens_per_second" not in written.partition(b"\n")[0]:
        return written
    rows = list(csv.DictReader(written.decode().splitlines()))
    return repr([{name: value for name, value in row.items() if "second" not in name} for row in rows]).encode()


def shown(left: dict[str, bytes]) -> dict[str, bytes]:
    """Of what is left, what has no hidden name."""
    return {name: content for name, content in left.items() if not any(p.startswith(".") for p in Path(name).parts)}


def assert_whole(folder: Path, *, but_tables: bool = False) -> None:
    """Every file that stands under its own name can be read to its end."""
    for path in folder.rglob("*"):
        if path.is_dir() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".pt":
            torch.load(path, weights_only=True)
        elif path.suffix in (".npy", ".npz", ".part"):
            np.load(io.BytesIO(path.read_bytes()))
        elif path.suffix == ".parquet":
            pyarrow.parquet.read_table(path)
        elif path.suffix == ".zip":
            assert zipfile.ZipFile(path).testzip() is None
        elif path.suffix in (".csv", ".jsonl", ".txt", ".md"):
            assert but_tables or path.read_bytes().endswith(b"\n"), path
        else:
            assert path.stat().st_size == 0 and path.name in ("done", "lock"), path


def assert_goes_on(bench: Bench, name: str, out: Path) -> None:
    """The same command again ends as if nothing had happened; what has a hidden name says that it is temporary."""
    left = bench.undisturbed(name)[1]
    again = bench.run(name, out)
    if shown(left_in(out)) == shown(left) and again.code == 2:  # it was killed when all was done
        assert "already exists" in again.err or "already holds a model" in again.err
    else:
        assert again.code == 0, again.err
    there = left_in(out)
    assert shown(there) == shown(left)
    assert all(any(part.endswith((".tmp", ".lock")) for part in Path(one).parts) for one in there.keys() - left.keys())


def assert_one_sentence(ended: Ended, number: int, place: Path) -> None:
    """The last line names the place, what the system says of it, and what to do; there is no traceback."""
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    last = ended.err.splitlines()[-1]
    assert all(one in last for one in (str(place), os.strerror(number), "choose another place")), ended.err


@every_command
@pytest.mark.slow
def test_a_killed_command_goes_on(bench: Bench, tmp_path: Path, name: str) -> None:
    """Killed at a change on the disk in its middle, or at the last, it leaves whole files, and ends well later."""
    writes = bench.undisturbed(name)[0].writes
    for at in (writes // 2, writes):
        out = tmp_path / str(at)
        assert bench.run(name, out, at=at, what="kill").code == -signal.SIGKILL
        assert_whole(out)
        assert_goes_on(bench, name, out)


@every_command
@pytest.mark.slow
def test_a_command_that_is_killed_inside_a_file_goes_on(bench: Bench, tmp_path: Path, name: str) -> None:
    """Half of its largest file is written when it is killed: no name but a table's stands for half a file."""
    half = max(map(len, bench.undisturbed(name)[1].values())) // 2
    assert bench.run(name, tmp_path, bytes=half, killed=True).code == -signal.SIGXFSZ
    assert_whole(tmp_path, but_tables=True)
    assert_goes_on(bench, name, tmp_path)


@every_killed_study
def test_a_study_that_is_killed_at_any_moment_goes_on(bench: Bench, tmp_path: Path, name: str) -> None:
    """Killed again and again at seeded changes on the disk, it ends with the bytes of an unbroken run."""
    writes = bench.undisturbed(name)[0].writes
    draw = np.random.default_rng(40)
    for moment in range(MOMENTS):
        out = tmp_path / str(moment // 5)
        bench.run(name, out, at=int(draw.integers(1, writes + 1)), what="kill")
        assert_whole(out, but_tables=True)
        if moment % 5 == 4:  # after five kills of one run
            assert_goes_on(bench, name, out)


@every_killed_study
def test_a_study_does_not_mix_two_models_or_two_texts(bench: Bench, tmp_path: Path, name: str) -> None:
    """Killed at several moments, it refuses weights or a text that changed under their names, or begins anew."""
    source, model = tmp_path / bench.given[STUDIES[name]].name, tmp_path / "model"
    shutil.copy(bench.given[STUDIES[name]], source)
    shutil.copytree(bench.given["MODEL"], model)
    given = {STUDIES[name]: source, "MODEL": model}
    text, file = source.read_bytes(), model / "model.safetensors"
    weights, tensors = file.read_bytes(), load_file(file)
    tensors["bert.embeddings.word_embeddings.weight"][5:] *= 1.5
    writes, refusals = bench.undisturbed(name)[0].writes, Counter[str]()
    for number, change in enumerate(("weights", "text") * 4):
        at, out = writes * (1 + number // 2) // 4, tmp_path / str(number)
        assert bench.run(name, out, given, at=at, what="kill").code == -signal.SIGKILL
        before = left_in(out)
        if change == "weights":
            save_file(tensors, file, {"format": "pt"})
        else:
            source.write_bytes(text.replace(b"a", b"e", 50))  # of the same size
        again = bench.run(name, out, given)
        if again.code == 2:
            refusals[change] += 1
            assert "Traceback" not in again.err and shown(left_in(out)) == shown(before), again.err
        else:  # nothing was done yet
            fresh = tmp_path / f"fresh {number}"
            assert again.code == 0 == bench.run(name, fresh, given).code, again.err
            assert shown(left_in(out)) == shown(left_in(fresh))
        file.write_bytes(weights)
        source.write_bytes(text)
    assert refusals["weights"] and refusals["text"]


@every_study
def test_a_touched_text_is_the_same_text(bench: Bench, tmp_path: Path, name: str) -> None:
    """A study that was killed goes on where only the time of its file changed."""
    source = tmp_path / bench.given[STUDIES[name]].name
    shutil.copy(bench.given[STUDIES[name]], source)
    given, out, writes = {STUDIES[name]: source}, tmp_path / "out", bench.undisturbed(name)[0].writes
    bench.run(name, out, given, at=3 * writes // 4, what="kill")
    os.utime(source, (1, 1))
    ended = bench.run(name, out, given)
    assert ended.code == 0, ended.err
    assert shown(left_in(out)) == shown(bench.undisturbed(name)[1])


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "prune-curve"])
def test_a_text_that_changes_while_it_is_read_is_refused(bench: Bench, tmp_path: Path, name: str) -> None:
    """Edited while the study stands still, it ends the study with one sentence that names the file."""
    whole, _ = bench.undisturbed(name)
    source = tmp_path / bench.given[STUDIES[name]].name
    shutil.copy(bench.given[STUDIES[name]], source)
    assert bench.run(name, tmp_path / "out", {STUDIES[name]: source}, at=whole.writes // 2, what="pause").code is None
    source.write_bytes(source.read_bytes().replace(b"a", b"e", 5))
    ended = bench.faults.go_on()
    assert ended.code == 2 and f"{source.name} changed while it was read" in ended.err, ended.err


@every_command
def test_a_full_disk_is_one_sentence(bench: Bench, tmp_path: Path, name: str) -> None:
    """The file that does not fit is named, with what to do; the rest is whole."""
    whole, left = bench.undisturbed(name)
    half = max(map(len, left.values())) // 2
    small, full = tmp_path / "small", tmp_path / "full"
    assert_one_sentence(bench.run(name, small, bytes=half), errno.EFBIG, small)
    assert_whole(small)
    assert_one_sentence(bench.run(name, full, at=whole.writes // 2, what="ENOSPC"), errno.ENOSPC, full)
    assert_whole(full)


@every_command
def test_a_disk_that_can_only_be_read_is_one_sentence(bench: Bench, tmp_path: Path, name: str) -> None:
    """Nothing is written, and what to do is said."""
    ended = bench.run(name, tmp_path, at=1, what="EROFS")
    assert_one_sentence(ended, errno.EROFS, tmp_path)
    assert left_in(tmp_path) == {}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.split()[0] != "prune"])
def test_two_runs_do_not_write_to_one_place(bench: Bench, tmp_path: Path, name: str) -> None:
    """The second is told that there is another, and the first ends as if it had been alone."""
    whole, left = bench.undisturbed(name)
    assert bench.run(name, tmp_path, at=whole.writes // 2, what="pause").code is None
    second = bench.run(name, tmp_path)
    first = bench.faults.go_on()
    assert second.code == 2 and f"another run writes to {tmp_path}" in second.err, second.err
    assert second.err.endswith(" now: wait until it is done, or choose another name\n")
    assert first.code == 0, first.err
    assert left_in(tmp_path) == left


@pytest.mark.parametrize("name", ["prune", "prune to .zip"])
def test_two_pruned_models_of_one_name_are_one_whole_model(bench: Bench, tmp_path: Path, name: str) -> None:
    """The one that ends first is there; the other takes its place as a .zip, or says that there is a folder."""
    whole, left = bench.undisturbed(name)
    assert bench.run(name, tmp_path, at=whole.writes // 2, what="pause").code is None
    second, first = bench.run(name, tmp_path), bench.faults.go_on()
    assert second.code == 0, second.err
    if name == "prune":
        assert_one_sentence(first, errno.ENOTEMPTY, tmp_path)
    else:
        assert first.code == 0, first.err
    assert left_in(tmp_path) == left


@every_command
def test_an_interrupted_command_says_one_word(bench: Bench, tmp_path: Path, name: str) -> None:
    """Ctrl-C in the middle: status 130, no traceback, whole files, and nothing temporary is left."""
    whole, _ = bench.undisturbed(name)
    ended = bench.run(name, tmp_path, at=whole.writes // 2, what="interrupt")
    assert ended.code == 130 and "Traceback" not in ended.err and ended.err.splitlines()[-1] == "stopped"
    assert_whole(tmp_path)
    assert not any(part.endswith(".tmp") for one in left_in(tmp_path) for part in Path(one).parts)


IMPORTING = """
import os, signal, sys
at, count = int(sys.argv.pop(1)), 0

def heard(event, _):
    global count
    count += event == "import"
    if event == "import" and count == at:
        os.kill(os.getpid(), signal.SIGINT)

from viz_app.cli import main
sys.addaudithook(heard)
main()
"""


@pytest.mark.parametrize("at", [1, 300, 1000])
def test_an_interrupt_while_python_imports_says_one_word(text_file: Path, tmp_path: Path, at: int) -> None:
    """Ctrl-C before the command has begun ends it like one that came later."""
    command = ["tune-lens", str(text_file), "--folder", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, str(at), *command], capture_output=True, text=True, check=False,
        env={**os.environ, **MALLOC, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stderr, [*tmp_path.iterdir()]) == (130, "stopped\n", [])

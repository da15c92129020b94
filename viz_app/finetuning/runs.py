"""Fine-tuning runs of this machine, each with a folder and, while it runs, a process of its own.

Jobs of the queue take minutes and end with the page that needs them, but a run takes hours. It therefore runs
`headlight finetune` in a separate process, independent of the open pages, on all cores but one.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bert_core import checkpoint
from bert_core.refused import Refused
from bert_core.studies.runner import is_locked, read_json
from bert_core.training.runs import TuningLog, kept_steps, read_log
from bert_core.training.tuning import UNFINISHED_FILE
from viz_app.access import is_local_server, shutting_down
from viz_app.finetuning.material import KINDS, FinetuneRequest, TrainingTexts, read_upload
from viz_app.shell.controls import Upload

RUNS = Path("runs")  # in the folder in which the server was started
TABLE, REQUEST_FILE, OUTPUT_FILE = "table", "run.json", "said.txt"  # TABLE has the extension of the upload
NICENESS = 10
MAX_STOP_SECONDS = 30.0  # for which a stopped run may write its checkpoint
MAX_TABLE_MEGABYTES = 50
_NAME = re.compile(r"\w[\w. -]{0,59}")


@dataclass(frozen=True)
class TuningRun:
    """A fine-tuning run, identified by its folder."""

    folder: Path

    @property
    def name(self) -> str:
        """Name of the run, which is that of its folder."""
        return self.folder.name

    @property
    def request(self) -> FinetuneRequest:
        """Settings of the run. Raises Refused if its file has other fields."""
        try:
            return FinetuneRequest(**read_json(self.folder / REQUEST_FILE))
        except TypeError as error:
            raise Refused(f"{self.folder / REQUEST_FILE} is not what this page writes: choose another run") from error

    @property
    def table_file(self) -> Path:
        """Path of the training file, part of which is used for evaluation."""
        return table_path(self.folder, self.request)

    @property
    def texts(self) -> TrainingTexts:
        """Texts of the training file."""
        request = self.request
        return request.kind.read_file(self.table_file, request)

    @property
    def log(self) -> TuningLog:
        """Log of the run so far."""
        return read_log(self.folder)

    @property
    def steps(self) -> dict[int, Path]:
        """Number of each step whose weights are kept -> their folder."""
        return kept_steps(self.folder)

    @property
    def is_running(self) -> bool:
        """Whether a process of this or another server executes the run."""
        process = _processes.get(self.folder.resolve())
        if process is not None and process.poll() is None:
            return True
        return (self.folder / UNFINISHED_FILE).is_file() and is_locked(self.folder)

    @property
    def is_done(self) -> bool:
        """Whether the run is complete."""
        return (self.folder / checkpoint.CONFIG_FILE).is_file() and not (self.folder / UNFINISHED_FILE).is_file()

    @property
    def last_line(self) -> str:
        """The last line of the output of the process; empty if there is none."""
        with suppress(OSError):
            lines = (self.folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    @property
    def failure(self) -> str:
        """Last line of the output of a process that failed; empty if it did not fail, or was stopped."""
        process = _processes.get(self.folder.resolve())
        code = None if process is None else process.poll()
        return "" if code in (None, 0, 130, -signal.SIGINT) or self.is_done else self.last_line

    def start(self) -> None:
        """Start the run, or resume a stopped one.

        Raises Refused on a shared server, and while any run is in progress.
        """
        if not is_local_server():
            raise Refused("only a page that this machine alone can open may train a model")
        request = self.request
        with _start_lock:
            busy = next((place for place, process in _processes.items() if process.poll() is None), None)
            if busy is not None or self.is_running:
                name = self.name if busy is None else busy.name
                raise Refused(f"the run {name!r} is in progress, and only one runs at a time: stop it first")
            if not _processes:
                threading.Thread(target=_stop_runs_with_server, name="headlight-runs-leave", daemon=True).start()
            _processes[self.folder.resolve()] = _start_process(self.folder, request)

    def stop(self) -> None:
        """Interrupt the process of the run, which writes a checkpoint before it ends."""
        process = _processes.get(self.folder.resolve())
        if process is not None and process.poll() is None:
            _interrupt(process)

    def delete(self) -> None:
        """Delete the folder of the run, with the model, the kept steps and the training file.

        Raises Refused on a shared server, while the run is in progress, and for a folder that is not in `RUNS`.
        """
        if not is_local_server():
            raise Refused("only a page that this machine alone can open may delete from its disk")
        with _start_lock:
            if self.folder.is_symlink() or self not in list_runs():
                raise Refused(f"{self.folder} is no run of this page: it stays as it is")
            _ = self.request  # raises Refused for a folder that is not that of a run
            if self.is_running or is_locked(self.folder):
                raise Refused(f"the run {self.name!r} is in progress: stop it before it is deleted")
            _processes.pop(self.folder.resolve(), None)
            shutil.rmtree(self.folder)


def list_runs() -> list[TuningRun]:
    """Return the runs of this machine, the newest first."""
    request_files = RUNS.absolute().glob(f"*/{REQUEST_FILE}")
    return [TuningRun(path.parent) for path in sorted(request_files, key=lambda path: -path.stat().st_mtime)]


def run_folder(name: str) -> Path:
    """Return the folder of a run with this name."""
    return RUNS.absolute() / name.strip()


def create_run(name: str, request: FinetuneRequest, table: bytes) -> TuningRun:
    """Create the folder of a run, and return the run, which is not started.

    Raises Refused on a shared server, for an invalid or used name, and for a file that cannot be used.
    """
    if not is_local_server():
        raise Refused("only a page that this machine alone can open may write to its disk")
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise Refused(
            f"the name is {name[:80]!r}: 60 letters, digits, spaces, points and dashes at most, a letter or digit first"
        )
    folder = run_folder(name)
    if folder.exists():
        raise Refused(f"there is a folder {str(folder)!r} already: choose another name")
    read_upload(Upload(request.table, table), request)
    folder.mkdir(parents=True)
    checkpoint.write_atomically(table_path(folder, request), table)
    checkpoint.write_atomically(folder / REQUEST_FILE, json.dumps(asdict(request), indent=1) + "\n")
    return TuningRun(folder)


def table_path(folder: Path, request: FinetuneRequest) -> Path:
    """Return the path of the training file in the folder of a run."""
    return folder / f"{TABLE}{Path(request.table).suffix.lower()}"


# ---------------------------------------------------------------------------- processes

_start_lock = threading.Lock()
_processes: dict[Path, subprocess.Popen[bytes]] = {}


def core_count() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_process(folder: Path, request: FinetuneRequest) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    settings = {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(max(1, core_count() - 1)),
    }  # fmt: skip
    with (folder / OUTPUT_FILE).open("ab", buffering=0) as output:
        output.write(b"starting\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "viz_app.cli", *command_arguments(folder, request)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env={**os.environ,
            **settings},
        )  # fmt: skip
    if hasattr(os, "setpriority"):
        with suppress(OSError):  # the process has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    return process


def command_arguments(folder: Path, request: FinetuneRequest) -> list[str]:
    """Return the arguments of the `headlight` command that executes a run."""
    word_options = {"--word": request.word} if request.kind is KINDS["tags"] else {}
    settings = {
        "--text": request.text, "--label": request.label, "--pair": request.pair, **word_options, "--folder": folder,
        "--init": request.start, "--held-out": request.held_out, "--epochs": request.epochs,
        "--learning-rate": request.learning_rate, "--batch": request.batch, "--max-length": request.max_length,
        "--seed": request.seed, "--keep": request.keep, "--device": os.environ.get("HEADLIGHT_DEVICE"),
    }  # fmt: skip
    # One argument each, with "=", because the name of a column may begin with "-".
    options = [f"{name}={value}" for name, value in settings.items() if value is not None]
    return ["finetune", str(table_path(folder, request)), *options, *["--skip-broken"] * request.skip_broken]


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.terminate()
    else:
        process.send_signal(signal.SIGINT)


def stop_all_runs() -> None:
    """Stop all runs of this server, and wait up to `MAX_STOP_SECONDS` for each to write its checkpoint."""
    running = [process for process in _processes.values() if process.poll() is None]
    for process in running:
        _interrupt(process)
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(MAX_STOP_SECONDS)


def _stop_runs_with_server() -> None:
    """Stop all runs when the server begins to stop; a signal may end it before `atexit` functions are called."""
    shutting_down.wait()
    stop_all_runs()


atexit.register(stop_all_runs)

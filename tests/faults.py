"""One process that has imported everything, and forks itself for each command that is to meet a fault.

`python tests/faults.py` reads a request a line, and answers with how the command ended: its exit status, below zero
the signal that ended it, or None where it stands still until it is told to go on. `Faults` is the other end.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from viz_app.cli.serve import MALLOC

WRITES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate")
ENDS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "interrupt": signal.SIGINT}


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said; writes: how often it changed something in its folder."""

    code: int | None
    out: str
    err: str
    writes: int


@dataclass
class Faults:
    """Commands one after the other, each in a process of its own, with its fault."""

    _process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        root = Path(__file__).parents[1]
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(root), **MALLOC}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **alone},
        )  # fmt: skip

    def run(self, arguments: Sequence[object], folder: Path, **fault: Any) -> Ended:
        """A command whose changes in a folder are counted.

        fault: `at`, the number of the change, from 1, and `what` happens there: kill, pause, interrupt, or the name of
        an error, which every change from there on gives; or `bytes`, more than which no file may have, and with
        `killed` whether that ends the process.
        """
        asked = {"arguments": [*map(str, arguments)], "folder": str(folder), **fault}
        return self._ask(asked)

    def go_on(self) -> Ended:
        """Let the command that stands still go on to its end."""
        return self._ask({"go on": True})

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, asked: dict[str, Any]) -> Ended:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def serve() -> None:
    """Answer requests until there are no more."""
    import pyarrow.parquet
    import torch
    import torch._dynamo  # by optimizers

    from bert_core import vision
    from bert_core.loading import load
    from bert_core.scenes import VOCABULARY
    from bert_core.studies import curve, explain, faithfulness, head_tables, heads, index
    from bert_core.training import captioner, finetune, launch, lens, tuning
    from viz_app.cli import command

    # They are there for the processes to come.
    del pyarrow, curve, explain, faithfulness, head_tables, heads, index, finetune, launch, lens
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        load("headlight-mini", device="cpu")
        command.run(["models"])
    # A captioner as small as the tiny model of the other commands.
    tiny = vision.CaptionerConfig.small(len(VOCABULARY), image_size=32, patch_size=8, hidden=16, heads=2)
    vision.CaptionerConfig.small = lambda *_: tiny  # type: ignore[method-assign, assignment]
    captioner.correct_share = lambda *_, **__: 0.0  # type: ignore[assignment]
    tuning.SAVE_EVERY = 0.0  # the other trainings have an option for it
    waiting: list[tuple[int, list[tuple[int, int]]]] = []
    for line in sys.stdin:
        asked = json.loads(line)
        if "go on" in asked:
            child, pipes = waiting.pop()
            os.kill(child, signal.SIGCONT)
        else:
            pipes = [os.pipe() for _ in range(3)]  # no files: they would be as bounded as those of the command
            child = os.fork()
            if not child:
                _command(asked, [pipe[1] for pipe in pipes])
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            waiting.append((child, pipes))
            ended = Ended(None, "", "", 0)
        else:
            out, err, writes = map(_read, pipes)
            ended = Ended(os.waitstatus_to_exitcode(status), out, err, len(writes))
        print(json.dumps(asdict(ended)), flush=True)


def _read(pipe: tuple[int, int]) -> str:
    os.close(pipe[1])
    with open(pipe[0], encoding="utf-8") as said:
        return said.read()


def _command(asked: dict[str, Any], pipes: Sequence[int]) -> None:
    """In a process of its own: the command, which meets its fault; what it says goes into pipes."""
    for number, pipe in enumerate((os.open(os.devnull, os.O_RDONLY), *pipes[:2])):
        os.dup2(pipe, number)
    _meet(asked, pipes[2])
    from viz_app.cli import main

    sys.argv = ["headlight", *asked["arguments"]]
    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(ended.code or 0))
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(70)


def _meet(asked: dict[str, Any], writes: int) -> None:
    what, at, folder, count = asked.get("what", ""), asked.get("at", 0), asked["folder"], 0

    def heard(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in WRITES or not isinstance(given[0], str) or not os.path.abspath(given[0]).startswith(folder):
            return
        if event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR):
            return
        count += 1
        os.write(writes, b".")
        if "bytes" in asked and count == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if asked.get("killed") else signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (asked["bytes"], asked["bytes"]))
        if count == at and what in ENDS:
            os.kill(os.getpid(), ENDS[what])
        elif at and count >= at and what not in ENDS:
            number = getattr(errno, what)
            raise OSError(number, os.strerror(number), given[0])

    sys.addaudithook(heard)


if __name__ == "__main__":
    serve()

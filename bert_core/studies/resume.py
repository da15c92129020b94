"""Going on where a long study stopped: what it was begun with, and a table that is whole whenever one looks."""

from __future__ import annotations

import csv
import dataclasses
import glob
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from bert_core import checkpoint
from bert_core.refused import Refused


def as_kept(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a study as JSON gives them back: tuples are lists, and keys are strings."""
    return json.loads(json.dumps(asked))  # type: ignore[no-any-return]


def identity(path: Path, model: str, weights: str, settings: Any) -> dict[str, Any]:
    """What a study of a file is known by: the file as it is now, the model and the settings, a dataclass.

    model: its name. weights: its fingerprint.
    """
    stat = path.stat()
    text = [path.name, stat.st_size, stat.st_mtime_ns]
    return as_kept({"text": text, "model": model, "weights": weights, **dataclasses.asdict(settings)})


def read_kept(path: Path) -> dict[str, Any]:
    """The settings that a study left in a file; none where it holds something else."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def check_same(kept: Mapping[str, Any], asked: Mapping[str, Any], place: Path | str) -> None:
    """Raise Refused, naming what differs, unless the study in a place was begun with what is asked for now."""
    differ = []
    for name, now in asked.items():
        before = kept.get(name)
        if before != now:
            short = all(isinstance(value, str | int | float) and len(str(value)) <= 60 for value in (before, now))
            differ.append(f"{name}: {before}, not {now}" if short else name)
    if differ:
        raise Refused(
            f"{place} holds a run with other settings ({'; '.join(differ)}): "
            "give the same again, or choose another name"
        )


def keep_arrays(state: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write all that a study needs to go on from here; the file is there whole, or not at all."""
    packed = io.BytesIO()  # NumPy 1 leaves its archive open where a disk is full
    np.savez(packed, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
    checkpoint.write_whole(state, packed.getvalue())


def kept_arrays(state: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `keep_arrays` wrote. Raises Refused for a file that is something else."""
    try:
        with np.load(io.BytesIO(state.read_bytes()), allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            arrays = {name: file[name] for name in file.files if name != "header"}
            return dict(header), arrays
    except Exception as error:  # of a file that is no archive, is cut off, or holds something else
        raise Refused(f"{state} is not what an earlier run left: delete it to begin anew") from error


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """While this is open, no other run writes to a place: a file, or a folder that is there, with what is in it.

    What a killed run left half written there is cleared away; a run that is gone holds nothing.
    Raises Refused if another run writes there now.
    """
    inside = place.is_dir()
    lock = place / ".lock" if inside else place.with_name(f".{place.name}.lock")
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except (IsADirectoryError, Timeout) as error:
        if lock.is_file():
            raise Refused(
                f"another run writes to {place} now: wait until it is done, or choose another name"
            ) from error
        raise Refused(
            f"{lock} must be a file that can be written, which keeps other runs away from {place.name} meanwhile: "
            "choose another place, or remove what stands there"
        ) from error
    try:
        if inside:
            names = (checkpoint.unfinished(), checkpoint.OF_SAFETENSORS)
            left = [path for deep in ("", "*/", "*/*/") for name in names for path in place.glob(deep + name)]
        else:
            left = [*place.parent.glob(checkpoint.unfinished(glob.escape(place.name) + "*"))]
        for path in left:
            path.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        held.release()


def is_written_to(folder: Path) -> bool:
    """Whether a run writes to a folder now, as `alone` has it."""
    held = FileLock(folder / ".lock")
    try:
        held.acquire(timeout=0)
    except Timeout:
        return True
    held.release()
    return False


@dataclass(frozen=True)
class GrowingTable:
    """A CSV file that grows by some lines at a time, and may be left in the middle of one.

    header: the names of its columns. what: it is, in words.
    """

    path: Path
    header: tuple[str, ...]
    what: str

    def lines(self) -> list[list[str]]:
        """The lines that are whole; none where there is no file, or one without its first line.

        Raises Refused for a file with other columns.
        """
        written = self._written()
        whole = written[: written.rfind("\n") + 1]  # the last may be cut off
        try:
            rows = list(csv.reader(io.StringIO(whole, newline="")))
        except csv.Error:
            rows = [[]]
        if not rows:
            return []
        if tuple(rows[0]) != self.header:
            raise Refused(f"{self.path} is there already and holds no {self.what}: choose another name")
        return [line for line in rows[1:] if len(line) == len(self.header)]

    def keep(self, lines: Iterable[Sequence[object]]) -> None:
        """Make the file one of these lines, whole or not at all; where there is no file, none is made."""
        wanted = as_csv([self.header, *lines])
        if self.path.is_file() and self._written() != wanted:
            checkpoint.write_whole(self.path, wanted.encode())

    def add(self, lines: Iterable[Sequence[object]]) -> None:
        """Add some lines, and see them to the disk."""
        begun = self.path.is_file() and self.path.stat().st_size > 0
        checkpoint.append_whole(self.path, as_csv([*([] if begun else [self.header]), *lines]))

    def _written(self) -> str:
        return self.path.read_bytes().decode(errors="replace") if self.path.is_file() else ""


def as_csv(lines: Iterable[Sequence[object]]) -> str:
    """Some lines as CSV, the first with the names of the columns."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()

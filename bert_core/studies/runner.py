"""How every study of a file runs: its identity, its shards, its state on disk, the engine that measures, and its lock.

A study is a function of a file, the weights of a model and some settings. It may be stopped at any moment: the same
call goes on where it stopped, and ends with the same bytes. Anything else than the same call is refused.
"""

from __future__ import annotations

import dataclasses
import glob
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from filelock import FileLock, Timeout

from bert_core import checkpoint
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel, load, stat_model_files
from bert_core.refused import Refused
from bert_core.studies.engines import check_engine, ray_worker_device, run_on_ray
from bert_core.studies.files import check_file
from bert_core.studies.lines import Shard

STATE_VERSION = 1  # version 0.2 wrote none
HASH_BLOCK_BYTES = 1 << 20  # bytes
Settings = TypeVar("Settings")
Part = TypeVar("Part")
Result = TypeVar("Result")

# ---------------------------------------------------------------------------- identity


class SourceFile:
    """A file that a study reads, known by a digest of its content, which is computed once.

    Raises Refused if there is no such file.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self._stat = self._stated()
        self.digest = self._digest()
        self.size = max(self._stat[0], 1)

    def check_unchanged(self) -> None:
        """Raise Refused if the content of the file is not what it was when the study began."""
        try:
            stated = self._stated()
            if stated == self._stat:
                return
            self._stat = stated
            if self._digest() == self.digest:  # it was only touched, or written again as it was
                return
        except OSError as error:
            raise Refused(f"{self.path.name} cannot be read any more: {error.strerror}") from error
        raise Refused(
            f"{self.path.name} was changed while it was read: put it back as it was and give the same again, or choose "
            "another name for the result"
        )

    def _stated(self) -> tuple[int, int]:
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns

    def _digest(self) -> str:
        digest = sha256()
        with self.path.open("rb") as file:
            while part := file.read(HASH_BLOCK_BYTES):
                digest.update(part)
        return digest.hexdigest()


def as_json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON gives them back: tuples are lists, and keys are strings."""
    return json.loads(json.dumps(values))  # type: ignore[no-any-return]


def study_identity(source: SourceFile, weights: str, settings: Any, **more: Any) -> dict[str, Any]:
    """What a study is known by: the content of its file, the fingerprint of the weights, and its settings.

    settings: a dataclass. more: what else must be the same.
    """
    values = {"version": STATE_VERSION, "text": source.digest, "weights": weights, **dataclasses.asdict(settings)}
    return as_json_values(values | more)


def check_same_study(kept: Mapping[str, Any], wanted: Mapping[str, Any], place: Path | str) -> None:
    """Raise Refused, naming what differs, unless the study in a place was begun with what is wanted now."""
    if "version" in wanted and "version" not in kept:
        raise Refused(f"{place} was left by an earlier version of Headlight: delete it to begin anew")
    differing = []
    for name, now in wanted.items():
        before = kept.get(name)
        if before != now:
            short = all(isinstance(value, str | int | float) and len(str(value)) <= 40 for value in (before, now))
            differing.append(f"{name}: {before}, not {now}" if short else name)
    if differing:
        raise Refused(
            f"{place} holds a run with other settings ({'; '.join(differing)}): "
            "give the same again, or choose another name"
        )


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where it holds something else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


# ---------------------------------------------------------------------------- shards


@dataclass(frozen=True)
class ResumePoint:
    """Where a study goes on: number, first byte and first line of the next shard, and the bytes of the file read."""

    number: int = 0
    start: int = 0
    line: int = 0
    read: int = 0

    @classmethod
    def after(cls, shard: Shard) -> ResumePoint:
        """Behind a shard."""
        return cls(shard.number + 1, shard.end, shard.next_line, shard.read)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ResumePoint:
        """From JSON. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(**{entry.name: int(values[entry.name]) for entry in dataclasses.fields(cls)})

    @property
    def shard_arguments(self) -> dict[str, int]:
        """The arguments with which functions such as `text_shards` begin here."""
        return {"number": self.number, "start": self.start, "line": self.line}


@dataclass(frozen=True)
class ShardStudy(Generic[Settings, Part]):
    """A study that measures a file shard by shard, here or on another machine.

    measure: (model, shard, settings) to what the shard gives. check: raises Refused for a model that cannot be asked.
    Both are functions of a module, so that another process finds them by name.
    """

    measure: Callable[[LoadedModel, Any, Settings], Part]
    check: Callable[[LoadedModel, Settings], None]


class ShardRun(Generic[Settings, Part]):
    """A study of one file with one model, in the order of the file.

    model: as for `load`, or a loaded model, which the engine "local" uses as it is. engine: "local", or "ray", which
    measures many shards at once on a Ray cluster (that of RAY_ADDRESS, or one on this machine). device: as for `load`.
    Raises Refused for an unknown engine, Ray missing, a file that is not there, and a model that cannot be asked.
    """

    def __init__(
        self, study: ShardStudy[Settings, Part], path: Path, model: str | LoadedModel, settings: Settings,
        *, engine: str = "local", device: str | None = None,
    ) -> None:  # fmt: skip
        check_engine(engine)
        self.study, self.settings, self.engine = study, settings, engine
        self.source = SourceFile(path)
        if isinstance(model, LoadedModel):
            study.check(model, settings)
            self.loaded, self.model = model, model.name
        else:
            self.device = ray_worker_device(device) if engine == "ray" else device
            on = self.device if engine == "local" else "cpu"
            self.loaded, self.model = _opened(study, model, stat_model_files(model).version, on, settings), model
        self.weights = fingerprint(self.loaded)

    def identity(self, **more: Any) -> dict[str, Any]:
        """What the study is known by, as `study_identity` has it."""
        return study_identity(self.source, self.weights, self.settings, **more)

    def measure_shards(self, rest: Iterator[Any]) -> Iterator[tuple[Any, Part]]:
        """Each shard and what it gives, in order. Raises Refused if the file or the weights change meanwhile."""
        parts: Iterator[tuple[Any, tuple[str, Part]]]
        if self.engine == "local":
            parts = ((shard, (self.weights, self.study.measure(self.loaded, shard, self.settings))) for shard in rest)
        else:
            parts = run_on_ray(
                _measured_by_name, (self.study, self.model, self.device, self.settings), rest, self.device
            )
        for shard, (weights, part) in parts:
            if weights != self.weights:
                raise Refused(
                    f"the model {self.model} had the fingerprint {self.weights} when the study began, and now has "
                    f"{weights}: measure all texts with one"
                )
            self.source.check_unchanged()
            yield shard, part
        self.source.check_unchanged()


def run_to_end(
    steps: Iterator[tuple[Result, float]], on_progress: Callable[[Result, float], None] | None, nothing: Result
) -> Result:
    """The result after the last step of a lazy study; of no step `nothing`.

    steps: results so far, and the share of the file. on_progress: called with both after each step.
    """
    result = nothing
    for result, share in steps:
        if on_progress is not None:
            on_progress(result, share)
    return result


@lru_cache(maxsize=1)
def _opened(
    study: ShardStudy[Any, Any], model: str, version: str, device: str | None, settings: Any
) -> LoadedModel:  # fmt: skip
    """The model, once in a process while its files stay the same. Raises Refused if it cannot be asked."""
    loaded = load(model, device=device)
    study.check(loaded, settings)
    return loaded


def _measured_by_name(
    study: ShardStudy[Settings, Part], model: str, device: str | None, settings: Settings, shard: Any
) -> tuple[str, Part]:
    loaded = _opened(study, model, stat_model_files(model).version, device, settings)
    return fingerprint(loaded), study.measure(loaded, shard, settings)


# ---------------------------------------------------------------------------- state on disk


@dataclass(frozen=True)
class StateFile:
    """A file with the identity of a study, its place, and arrays; it is there whole, or not at all.

    path: None keeps nothing.
    """

    path: Path | None
    identity: Mapping[str, Any] = field(repr=False)

    def read(self) -> tuple[ResumePoint, dict[str, Any], dict[str, np.ndarray]] | None:
        """Place, values and arrays that the same study left; None if there is no file.

        Raises Refused for a file of another study, or one that is no state.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as file:
                header = dict(json.loads(str(file["header"])))
                arrays = {name: file[name] for name in file.files if name != "header"}
            kept, values = dict(header["asked"]), dict(header.get("values", {}))
            place = ResumePoint.from_json(header["place"]) if "version" in kept else ResumePoint()
        except Exception as error:  # of a file that is no archive, is cut off, or holds something else
            raise Refused(f"{self.path} is not what an earlier run left: delete it to begin anew") from error
        check_same_study(kept, self.identity, self.path)
        return place, values, arrays

    def write(self, place: ResumePoint, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Keep all that the study needs to go on from a place."""
        if self.path is None:
            return
        header = {"asked": self.identity, "place": dataclasses.asdict(place), "values": values}
        packed = io.BytesIO()  # NumPy 1 leaves its archive open where a disk is full
        np.savez(packed, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
        checkpoint.write_atomically(self.path, packed.getvalue())


def settings_path(result: Path) -> Path:
    """The file beside a result that holds the identity of the study that made it."""
    return Path(f"{result}.settings.json")


def write_settings(result: Path, identity: Mapping[str, Any]) -> None:
    """Write the identity of a study beside its result."""
    checkpoint.write_atomically(settings_path(result), json.dumps(identity, indent=1) + "\n")


def is_complete(result: Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> bool:
    """Whether a result is there already, made by the same study; False if there is none, or it may be overwritten.

    Raises Refused for a result that another study made.
    """
    if not result.exists() or overwrite:
        return False
    place = settings_path(result)
    kept = read_json(place) if place.is_file() else {}
    if as_json_values(identity).items() <= kept.items():
        return True
    raise Refused(
        f"{result} is there already and holds another result: choose another name, or overwrite it (--overwrite)"
    )


# ---------------------------------------------------------------------------- lock


@contextmanager
def exclusive_lock(place: Path) -> Iterator[None]:
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
            names = (checkpoint.temporary_pattern(), checkpoint.SAFETENSORS_TEMPORARY_PATTERN)
            left = [path for deep in ("", "*/", "*/*/") for name in names for path in place.glob(deep + name)]
        else:
            left = [*place.parent.glob(checkpoint.temporary_pattern(glob.escape(place.name) + "*"))]
        for path in left:
            path.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        held.release()


def is_locked(folder: Path) -> bool:
    """Whether a run writes to a folder now, as `exclusive_lock` has it."""
    held = FileLock(folder / ".lock")
    try:
        held.acquire(timeout=0)
    except Timeout:
        return True
    held.release()
    return False

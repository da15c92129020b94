"""How every study of a file runs: its identity, shards, engine, state on disk and lock.

A study is a function of a file, the weights of a model and some settings. It can be interrupted at any time: the same
call resumes it and produces identical bytes. A call with different inputs is refused.
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
from bert_core.fingerprint import fingerprint, function_digest
from bert_core.loading import LoadedModel, load, stat_model_files
from bert_core.refused import Refused
from bert_core.studies.engines import check_engine, ray_worker_device, run_on_ray
from bert_core.studies.files import check_file
from bert_core.studies.lines import Shard

STATE_VERSION = 1  # version 0.2 of Headlight wrote no version
HASH_BLOCK_BYTES = 1 << 20
Settings = TypeVar("Settings")
Part = TypeVar("Part")
Result = TypeVar("Result")

# ---------------------------------------------------------------------------- identity


class SourceFile:
    """A file that a study reads, with the SHA-256 digest of its content, which is computed once.

    path: the file.
    digest: the digest, hexadecimal.
    size: size in bytes, at least 1.

    Raises Refused if the file does not exist.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self._stat = self._read_stat()
        self.digest = self._compute_digest()
        self.size = max(self._stat[0], 1)

    def check_unchanged(self) -> None:
        """Raise Refused if the content of the file has changed since the study began."""
        try:
            stat = self._read_stat()
            if stat == self._stat:
                return
            self._stat = stat
            if self._compute_digest() == self.digest:  # only the time changed
                return
        except OSError as error:
            raise Refused(f"{self.path.name} cannot be read any more: {error.strerror}") from error
        raise Refused(
            f"{self.path.name} changed while it was read: restore its content and run the same again, or choose "
            "another name for the result"
        )

    def _read_stat(self) -> tuple[int, int]:
        """Return the size in bytes and the time of modification in nanoseconds."""
        stat = self.path.stat()
        return stat.st_size, stat.st_mtime_ns

    def _compute_digest(self) -> str:
        """Return the SHA-256 digest of the content."""
        digest = sha256()
        with self.path.open("rb") as file:
            while block := file.read(HASH_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()


def as_json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as they are after writing and reading JSON: tuples become lists, and keys become strings."""
    return json.loads(json.dumps(values))  # type: ignore[no-any-return]


def study_identity(source: SourceFile, weights: str, settings: Any, **values: Any) -> dict[str, Any]:
    """Return what identifies a study: the digest of its file, the fingerprint of the weights, and its settings.

    source: the file.
    weights: the fingerprint of the model.
    settings: a dataclass. A custom target in its field `target` counts with its name, its positions and the digest of
        its function, because a function cannot be stored.
    values: further values that must be equal for the study to be the same.
    """
    target = getattr(settings, "target", None)
    fields = dataclasses.asdict(settings if target is None else dataclasses.replace(settings, target=None))
    fields.pop("target", None)  # without a target, as in states of earlier versions
    standard = {"version": STATE_VERSION, "text": source.digest, "weights": weights, **fields}
    if target is not None:
        digest = function_digest(target.function)
        standard["target"] = {"name": target.name, "positions": target.positions, "function": digest}
    return as_json_values(standard | values)


def check_same_study(stored: Mapping[str, Any], identity: Mapping[str, Any], path: Path | str) -> None:
    """Raise Refused, naming the differences, unless the study stored at a path has the given identity.

    stored: the identity that was read from the disk.
    identity: the identity of the current study. Values that only `stored` has are ignored.
    path: where the study is stored, for the message.
    """
    if "version" in identity and "version" not in stored:
        raise Refused(f"{path} was written by an earlier version of Headlight: delete it to start again")
    differences = []
    for name, new in identity.items():
        old = stored.get(name)
        if old != new:
            short = all(isinstance(value, str | int | float) and len(str(value)) <= 40 for value in (old, new))
            differences.append(f"{name}: {old}, not {new}" if short else name)
    if differences:
        raise Refused(
            f"{path} holds a run with other settings ({'; '.join(differences)}): "
            "use the same settings, or choose another name"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty dictionary if the file contains anything else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


# ---------------------------------------------------------------------------- shards


@dataclass(frozen=True)
class ResumePoint:
    """The place in a file at which a study resumes.

    number: number of the next shard.
    start: byte at which it starts in the decompressed text.
    line: number of its first line.
    read: number of bytes read so far from the file on disk.
    """

    number: int = 0
    start: int = 0
    line: int = 0
    read: int = 0

    @classmethod
    def after(cls, shard: Shard) -> ResumePoint:
        """Return the point after a shard."""
        return cls(shard.number + 1, shard.end, shard.next_line, shard.read)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ResumePoint:
        """Return the point with these values. Raises KeyError, TypeError or ValueError for invalid values."""
        return cls(**{entry.name: int(values[entry.name]) for entry in dataclasses.fields(cls)})

    @property
    def shard_arguments(self) -> dict[str, int]:
        """The keyword arguments with which functions such as `text_shards` start here."""
        return {"number": self.number, "start": self.start, "line": self.line}


@dataclass(frozen=True)
class ShardStudy(Generic[Settings, Part]):
    """A study that measures a file shard by shard, in this process or on other machines.

    Both functions must be defined at the top level of a module, so that other processes can import them.
    measure: computes the result of one shard from (model, shard, settings).
    check: raises Refused for a (model, settings) pair that cannot be measured.
    complete: returns the settings with the defaults that depend on the model; None if there are no such.
    """

    measure: Callable[[LoadedModel, Any, Settings], Part]
    check: Callable[[LoadedModel, Settings], None]
    complete: Callable[[LoadedModel, Settings], Settings] | None = None

    def checked_settings(self, loaded: LoadedModel, settings: Settings) -> Settings:
        """Return the complete settings for a model. Raises Refused if it cannot be measured with them."""
        if self.complete is not None:
            settings = self.complete(loaded, settings)
        self.check(loaded, settings)
        return settings


class ShardRun(Generic[Settings, Part]):
    """A study of one file with one model, which measures the shards in the order of the file.

    study: the study.
    path: the file.
    model: a name or folder as for `load`, or a loaded model, which the engine "local" uses directly.
    settings: the settings of the study.
    engine: "local", or "ray" to measure many shards at the same time on a Ray cluster. The cluster is that of
        RAY_ADDRESS, or a new one on this machine.
    device: as for `load`.

    Raises Refused for an unknown engine, if Ray is not installed, if the file does not exist, and if the study cannot
    measure the model.
    """

    def __init__(
        self,
        study: ShardStudy[Settings, Part],
        path: Path,
        model: str | LoadedModel,
        settings: Settings,
        *,
        engine: str = "local",
        device: str | None = None,
    ) -> None:
        check_engine(engine)
        if engine != "local" and getattr(settings, "target", None) is not None:
            raise Refused(f"the engine {engine!r} cannot send the function of a target: choose the engine 'local'")
        self.study, self.engine = study, engine
        self.source = SourceFile(path)
        if isinstance(model, LoadedModel):
            self.loaded, self.model = model, model.name
        else:
            self.device = ray_worker_device(device) if engine == "ray" else device
            local_device = self.device if engine == "local" else "cpu"
            version = stat_model_files(model).version
            self.loaded, self.model = _load_checked(study, model, version, local_device, settings), model
        self.settings = study.checked_settings(self.loaded, settings)
        self.weights = fingerprint(self.loaded)

    def identity(self, **values: Any) -> dict[str, Any]:
        """Return what identifies the study, see `study_identity`."""
        return study_identity(self.source, self.weights, self.settings, **values)

    def measure_shards(self, shards: Iterator[Any]) -> Iterator[tuple[Any, Part]]:
        """Yield each shard with its result, in order.

        shards: the shards that are left to measure.

        Raises Refused if the file or the weights of the model change during the run.
        """
        results: Iterator[tuple[Any, tuple[str, Part]]]
        if self.engine == "local":
            results = (
                (shard, (self.weights, self.study.measure(self.loaded, shard, self.settings))) for shard in shards
            )
        else:
            arguments = (self.study, self.model, self.device, self.settings)
            results = run_on_ray(_load_and_measure, arguments, shards, self.device)
        for shard, (weights, part) in results:
            if weights != self.weights:
                raise Refused(
                    f"the model {self.model} had the fingerprint {self.weights} when the study began, and now has "
                    f"{weights}: all texts must be measured with the same weights"
                )
            self.source.check_unchanged()
            yield shard, part
        self.source.check_unchanged()


def run_to_end(
    steps: Iterator[tuple[Result, float]], on_progress: Callable[[Result, float], None] | None, initial: Result
) -> Result:
    """Run a lazy study to its end and return its last result.

    steps: pairs of the result so far and the share of the file that is done, from 0 to 1.
    on_progress: called with both after each step, or None.
    initial: the result if there are no steps.
    """
    result = initial
    for result, share in steps:
        if on_progress is not None:
            on_progress(result, share)
    return result


@lru_cache(maxsize=1)
def _load_checked(
    study: ShardStudy[Any, Any], model: str, version: str, device: str | None, settings: Any
) -> LoadedModel:
    """Load and check a model, once in a process as long as its files (`version`) stay the same.

    Raises Refused if the study cannot measure the model.
    """
    loaded = load(model, device=device)
    study.checked_settings(loaded, settings)
    return loaded


def _load_and_measure(
    study: ShardStudy[Settings, Part], model: str, device: str | None, settings: Settings, shard: Any
) -> tuple[str, Part]:
    """Measure a shard in a worker process. Returns the fingerprint of the model and the result."""
    loaded = _load_checked(study, model, stat_model_files(model).version, device, settings)
    return fingerprint(loaded), study.measure(loaded, shard, settings)


# ---------------------------------------------------------------------------- state on disk


@dataclass(frozen=True)
class StateFile:
    """A file with the identity of a study, its resume point and its arrays, which is written atomically.

    path: the file, or None to store nothing.
    identity: the identity of the study.
    """

    path: Path | None
    identity: Mapping[str, Any] = field(repr=False)

    def read(self) -> tuple[ResumePoint, dict[str, Any], dict[str, np.ndarray]] | None:
        """Return the resume point, values and arrays that the same study stored, or None if there is no file.

        Raises Refused for the state of another study, and for a file that is no state.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as file:
                header = dict(json.loads(str(file["header"])))
                arrays = {name: file[name] for name in file.files if name != "header"}
            stored, values = dict(header["asked"]), dict(header.get("values", {}))
            resume_point = ResumePoint.from_json(header["place"]) if "version" in stored else ResumePoint()
        except Exception as error:  # a file that is no archive, is cut off, or has other content
            raise Refused(f"{self.path} is not the state of a study: delete it to start again") from error
        check_same_study(stored, self.identity, self.path)
        return resume_point, values, arrays

    def write(self, resume_point: ResumePoint, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Store all that the study needs to continue from a resume point."""
        if self.path is None:
            return
        header = {"asked": self.identity, "place": dataclasses.asdict(resume_point), "values": values}
        archive = io.BytesIO()  # in memory first, because NumPy 1 does not close its file if the disk is full
        np.savez(archive, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
        checkpoint.write_atomically(self.path, archive.getvalue())


def settings_path(result: Path) -> Path:
    """Return the path of the file next to a result that holds the identity of its study."""
    return Path(f"{result}.settings.json")


def write_settings(result: Path, identity: Mapping[str, Any]) -> None:
    """Write the identity of a study next to its result."""
    checkpoint.write_atomically(settings_path(result), json.dumps(identity, indent=1) + "\n")


def is_complete(result: Path, identity: Mapping[str, Any], *, overwrite: bool = False) -> bool:
    """Return whether a result of the same study exists already. False if there is none, or if it may be overwritten.

    result: the file of the result.
    identity: the identity of the study.
    overwrite: whether an existing result is ignored.

    Raises Refused if the file is the result of another study.
    """
    if not result.exists() or overwrite:
        return False
    path = settings_path(result)
    stored = read_json(path) if path.is_file() else {}
    if as_json_values(identity).items() <= stored.items():
        return True
    raise Refused(f"{result} exists and holds another result: choose another name, or overwrite it (--overwrite)")


# ---------------------------------------------------------------------------- lock


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Keep other runs from writing to a file, or to an existing folder and its content, while the context is open.

    Temporary files of interrupted runs are deleted. The lock of a process that has ended is released.
    path: the file or folder.

    Raises Refused if another run writes there now.
    """
    is_folder = path.is_dir()
    lock_path = path / ".lock" if is_folder else path.with_name(f".{path.name}.lock")
    lock = FileLock(lock_path)
    try:
        lock.acquire(timeout=0)
    except (IsADirectoryError, Timeout) as error:
        if lock_path.is_file():
            raise Refused(f"another run writes to {path} now: wait until it is done, or choose another name") from error
        raise Refused(
            f"{lock_path} must be a writable file, because it locks {path.name} for other runs: "
            "choose another place, or remove what has this name"
        ) from error
    try:
        if is_folder:
            patterns = (checkpoint.temporary_pattern(), checkpoint.SAFETENSORS_TEMPORARY_PATTERN)
            leftovers = [
                file for depth in ("", "*/", "*/*/") for pattern in patterns for file in path.glob(depth + pattern)
            ]
        else:
            leftovers = [*path.parent.glob(checkpoint.temporary_pattern(glob.escape(path.name) + "*"))]
        for file in leftovers:
            file.unlink(missing_ok=True)
        yield
    finally:
        with suppress(OSError):
            lock_path.unlink()
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether a run writes to a folder now, see `exclusive_lock`."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False

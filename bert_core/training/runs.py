"""Training runs: the identity of one, its state on disk, its log, the steps it keeps, and the loop of all trainings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from zipfile import ZipFile

import torch
import torch.distributed as dist
from torch import nn

from bert_core import checkpoint
from bert_core.fingerprint import tensor_digest, tokenizer_digest
from bert_core.progress import Progress
from bert_core.refused import Refused
from bert_core.studies.runner import as_json_values, check_same_study
from bert_core.tokenizer import Tokenizer
from bert_core.training.optimization import (
    Metric,
    WeightAverage,
    apply_gradients,
    describe_precision,
    read_metrics,
    release_memory,
)

STATE_FILE = "state.pt"
STATE_FORMAT = 1  # version 0.2 wrote states without a number
STATE_KEYS = {"identity", "steps", "progress", "model", "optimizer", "average"}
LOG_FILE = "log.jsonl"
EVALUATION_KEYS = ("held_out", "correct")  # keys of those lines of the log that are evaluations
STEPS_FOLDER = "steps"
MAX_KEPT_BYTES = 4 * 2**30  # of all kept steps of a run together
MIN_KEPT_STEPS = 2  # the start and the end


# ---------------------------------------------------------------------------- identity


def file_digest(path: Path) -> str:
    """SHA-256 of the content of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run_identity(
    training: str, settings: Any, start: Mapping[str, str], texts: Mapping[str, str | None], **given: Any
) -> dict[str, Any]:
    """What decides the weights that a run ends with, as JSON has it: a run continues only where all of it is equal.

    training: the kind of the run. settings: a dataclass; its `steps` are left out, since a run can be lengthened.
    start: what the run starts from, as `start_digests` has it. texts: the digest of the content of each text; None
    where there is none. given: further arguments.
    """
    values = {name: value for name, value in dataclasses.asdict(settings).items() if name != "steps"}
    return as_json_values({"training": training, **texts, **start, **given, **values})


def start_digests(*models: nn.Module, config: Mapping[str, Any], tokenizer: Tokenizer | None = None) -> dict[str, str]:
    """16 hexadecimal digits each for what a run starts from: all weights, new heads included, and what goes with them.

    config: the configuration of the models, with what only training depends on, as dropout.
    """
    digests = {"weights": weights_digest(*models), "configuration": _short_digest(json.dumps(config, sort_keys=True))}
    return digests if tokenizer is None else {**digests, "tokenizer": tokenizer_digest(tokenizer)[:16]}


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights_digest(*models: nn.Module) -> str:
    """16 hexadecimal digits that are equal where the names, shapes and bytes of all weights are equal."""
    tensors = {f"{number}.{name}": t for number, model in enumerate(models) for name, t in model.state_dict().items()}
    described = [
        [name, list(tensor.shape), str(tensor.dtype), tensor_digest(tensor, tensor.dtype)]
        for name, tensor in checkpoint.unique_tensors(tensors).items()
    ]
    return _short_digest(json.dumps(described))


# ---------------------------------------------------------------------------- state


@dataclass
class RunState:
    """How far a run is: what its state file holds besides weights and optimizer.

    step: updates done. evaluated: updates that were done at the last evaluation. best_step, best_rank: of the best
    evaluation so far; 0 and None before the first, and for a training that does not rank its evaluations.
    means: running means of the figures that steps measure.
    """

    step: int = 0
    evaluated: int = 0
    best_step: int = 0
    best_rank: tuple[float, ...] | None = None
    means: dict[str, float] = field(default_factory=dict)


def read_state(path: Path) -> dict[str, Any]:
    """The content of a state file. Raises Refused if it is damaged, or was written by version 0.2."""
    with path.open("rb") as file:
        try:
            with ZipFile(file) as archive:
                broken = archive.testzip()  # torch does not compare checksums
            file.seek(0)
            state = None if broken else torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # both raise many kinds for a file that is cut off or holds something else
            if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch raises a RuntimeError
                raise
            raise _damaged(path) from error
    if not isinstance(state, dict):
        raise _damaged(path)
    if "format" not in state and {"model", "optimizer"} <= state.keys():
        raise Refused(f"{path} was written by version 0.2, whose runs cannot be continued: delete it to begin anew")
    if state.get("format") != STATE_FORMAT or not state.keys() >= STATE_KEYS or not isinstance(state["identity"], dict):
        raise _damaged(path)
    return state


def _damaged(path: Path) -> Refused:
    return Refused(f"{path} is damaged, or is no state of a training run: delete it to begin anew")


def save_state(folder: Path, training: Training, identity: Mapping[str, Any], state: RunState) -> None:
    """Write the state of a run, whole or not at all."""
    content = {
        "format": STATE_FORMAT, "identity": dict(identity), "steps": training.steps, "progress": vars(state),
        "model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(),
        "average": training.average.state_dict() if training.average else None,
    }  # fmt: skip
    checkpoint.write_atomically(folder / STATE_FILE, lambda path: torch.save(content, path))


def load_state(folder: Path, training: Training, identity: Mapping[str, Any]) -> RunState:
    """Put the saved state of a run into its model and optimizer; where there is none, the state of a new run.

    Raises Refused as `read_state`, for a run of another identity, and for another number of steps once the learning
    rate of the saved run falls.
    """
    path = folder / STATE_FILE
    if not path.is_file():
        return RunState()
    content = read_state(path)
    check_same_study(content["identity"], identity, folder)
    try:
        steps, state = int(content["steps"]), RunState(**content["progress"])
    except (TypeError, ValueError) as error:
        raise _damaged(path) from error
    if training.steps != steps and state.step > min(training.steps, steps) - training.decay:
        raise Refused(
            f"the run in {folder} is at step {state.step}, where its learning rate already falls: it must end at "
            f"{steps} steps"
        )
    try:
        training.model.load_state_dict(content["model"])
        training.optimizer.load_state_dict(content["optimizer"])
        if training.average:
            training.average.load_state_dict(content["average"])
    except Exception as error:  # tensors of other shapes
        raise _damaged(path) from error
    return state


def check_same_texts(folder: Path, texts: Mapping[str, str | None]) -> None:
    """Raise Refused if a folder holds the state of a run with other texts, or one that cannot be read.

    texts: as `run_identity` takes them. `train` checks them too, but after they were tokenized, which takes long.
    """
    path = folder / STATE_FILE
    if path.is_file():
        check_same_study(read_state(path)["identity"], texts, folder)


# ---------------------------------------------------------------------------- loop


@dataclass(frozen=True)
class Workers:
    """Which of how many processes this is; `torchrun` says so in the environment."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Workers:
        """Join the group that `torchrun` started, or work alone."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(int(os.environ.get("RANK", "0")), world)

    def average_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the workers."""
        if self.world > 1:
            gradients = [p.grad for p in parameters if p.grad is not None]
            flat = torch.cat([g.flatten() for g in gradients])
            dist.all_reduce(flat)
            parts = torch.split(flat.div_(self.world), [g.numel() for g in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found: its line for the log and a sentence; rank: larger is better, None if not compared."""

    line: Mapping[str, Any]
    sentence: str
    rank: tuple[float, ...] | None = None


class Training(ABC):
    """One kind of training: what the loop `train` asks of it.

    model: all that is updated and saved. steps: updates in all; the learning rate falls over the last `decay` of them.
    units: what of the examples is counted, in the plural; done_units: how many of them were read so far.
    log_every, smoothing: steps between two lines of the log, and the weight of the past in a running mean.
    """

    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None = None
    workers: Workers = Workers()
    steps: int
    decay: int
    done_units: int = 0
    units: ClassVar[str]
    log_every: int = 20
    smoothing: ClassVar[float] = 0.98

    @abstractmethod
    def learning_rate(self, step: int) -> float:
        """Learning rate of a step, counted from zero."""

    @abstractmethod
    def add_gradients(self, step: int) -> Mapping[str, Metric]:
        """Add the gradients of the batch of a step to the model; the figures that were measured on the way."""

    @abstractmethod
    def log_line(self, state: RunState, learning_rate: float, speed: float) -> dict[str, Any]:
        """The line of the log after so many steps. speed: units a second."""

    @abstractmethod
    def progress(self, state: RunState) -> str:
        """The same in words, for the progress report."""

    def begin(self, state: RunState) -> None:  # noqa: B027, most trainings prepare nothing
        """Prepare the folder, after the state was loaded and the log cut; only the first worker calls it."""

    def after_update(self, step: int) -> None:  # noqa: B027, most trainings do nothing then
        """Do what is due after so many updates; only the first worker calls it."""

    def is_logged(self, step: int) -> bool:
        """Whether the log gets a line after so many updates."""
        return step % self.log_every == 0 or step == self.steps

    def is_evaluated(self, step: int) -> bool:
        """Whether the weights are evaluated after so many updates."""
        return False

    def evaluate(self, state: RunState) -> Evaluation:
        """Evaluate the weights as they are; only the first worker calls it."""
        raise NotImplementedError

    def stop_reason(self, state: RunState) -> str:
        """Why the run ends before its last step; empty if it does not."""
        return ""


def train(
    training: Training,
    folder: Path,
    identity: Mapping[str, Any],
    *,
    save_every: float,
    report: Progress,
    keep_state: bool = True,
) -> RunState:
    """The loop of every training: updates, log, evaluations and states, until the last step or until it stops early.

    Where `folder` holds the state of a run with this identity, it continues there: each batch follows from the seed
    and its step, so that a run on the CPU of one machine ends with the same bits however often it was stopped. A run
    that is interrupted saves its state first, unless an update was half done; a process that is killed continues from
    the last state, and the log is cut to it.
    save_every: seconds between two states. keep_state: whether the state of the last step is saved, too.
    Raises Refused as `load_state`, and what `report` raises.
    """
    parameters = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    is_first = training.workers.rank == 0
    state = load_state(folder, training, identity)
    first = saved_at = state.step
    if is_first:
        _cut_log(folder, state)
        training.begin(state)
    resuming = f"; resuming at step {first} of {training.steps}" if first else ""
    report(None, describe_precision(training.device) + resuming)
    pending: list[Mapping[str, Metric]] = []  # of steps that are not yet in the means: reading waits for the device

    def read_pending() -> None:
        for figures in read_metrics(pending):
            for name, value in figures.items():
                past = training.smoothing if name in state.means else 0.0
                state.means[name] = past * state.means.get(name, 0.0) + (1 - past) * value
        pending.clear()

    def save() -> None:
        with defer_sigint():  # torchrun passes on a Ctrl-C that the terminal has already sent
            read_pending()
        save_state(folder, training, identity, state)

    def evaluate_if_due() -> None:
        if not (is_first and training.is_evaluated(state.step) and state.evaluated < state.step):
            return
        evaluation = training.evaluate(state)
        with defer_sigint():
            if evaluation.rank is not None and (state.best_rank is None or evaluation.rank > state.best_rank):
                state.best_step, state.best_rank = state.step, evaluation.rank
            append_to_log(folder, evaluation.line)
            state.evaluated = state.step
        report(None, evaluation.sentence)

    training.model.train()
    started = saved = time.monotonic()
    consistent = True  # whether weights, optimizer and average are those after `state.step` updates
    try:
        if first:
            evaluate_if_due()  # the run was stopped during this evaluation
        while state.step < training.steps and not (stopped := training.stop_reason(state)):
            rate = training.learning_rate(state.step)
            figures = training.add_gradients(state.step)
            training.workers.average_gradients(parameters)
            is_logged = is_first and training.is_logged(state.step + 1)
            with defer_sigint():
                consistent = False
                apply_gradients(training.optimizer, parameters, rate)
                if training.average:
                    training.average.add(training.model)
                state.step, consistent = state.step + 1, True
                if is_first:
                    pending.append(figures)
                if is_logged:
                    read_pending()
                    seconds = time.monotonic() - started
                    speed = training.done_units * training.workers.world / seconds
                    append_to_log(folder, training.log_line(state, rate, speed))
            if is_logged:
                remaining = (training.steps - state.step) * seconds / (state.step - first)
                report(
                    state.step / training.steps,
                    f"{training.progress(state)}  {speed:,.{0 if speed >= 100 else 1}f} {training.units}/s  "
                    f"{_duration(remaining)} left",
                )
            release_memory(state.step)
            if is_first:
                training.after_update(state.step)
            evaluate_if_due()
            is_last = state.step == training.steps
            if is_first and (time.monotonic() - saved > save_every or (is_last and keep_state)):
                save()
                saved, saved_at = time.monotonic(), state.step
        if state.step < training.steps:
            report(None, stopped)
    except BaseException as error:  # whatever stops it: a Ctrl-C, or another worker that was stopped
        if is_first and consistent and state.step > saved_at and not isinstance(error, Refused | OSError):
            save()
        raise
    if training.average:
        training.average.copy_to(training.model)
    training.model.eval()
    return state


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# ---------------------------------------------------------------------------- log


def append_to_log(folder: Path, line: Mapping[str, Any]) -> None:
    """Add one JSON object to the run's log."""
    checkpoint.append_atomically(folder / LOG_FILE, json.dumps(line) + "\n")


def read_log_lines(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log; the last may be cut off while it is written."""
    path, lines = folder / LOG_FILE, []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def _cut_log(folder: Path, state: RunState) -> None:
    """Drop what a killed run logged after its last state: the run that continues logs it again."""
    path = folder / LOG_FILE
    if not state.step:
        path.unlink(missing_ok=True)
    elif path.is_file():
        lines = [line for line in read_log_lines(folder) if _is_before(line, state)]
        checkpoint.write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))


def _is_before(line: Mapping[str, Any], state: RunState) -> bool:
    is_evaluation = any(name in line for name in EVALUATION_KEYS)
    return bool(line.get("step", 0) <= (state.evaluated if is_evaluation else state.step))


def round_finite(values: Mapping[str, float]) -> dict[str, float]:
    """What is finite, to five places."""
    return {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}


@dataclass(frozen=True)
class TuningLog:
    """What a fine-tuning run has logged so far.

    steps: how many updates there are in all, 0 while it has not begun. losses: step and running mean of the loss.
    held_out: step and figures of each evaluation. kept: the steps of those that were the best yet.
    """

    steps: int
    losses: tuple[tuple[int, float], ...]
    held_out: tuple[tuple[int, Mapping[str, Any]], ...]
    best_steps: tuple[int, ...]

    @property
    def step(self) -> int:
        """How many updates are done."""
        return max((step for step, _ in self.losses), default=0)


def read_log(folder: Path) -> TuningLog:
    """The log of a fine-tuning run in a folder; an empty one where there is none yet."""
    lines = read_log_lines(folder)
    evaluations = [(int(line["step"]), line) for line in lines if "held_out" in line and "step" in line]
    return TuningLog(
        max((int(line["steps"]) for line in lines if "steps" in line), default=0),
        tuple((int(line["step"]), float(line["loss"])) for line in lines if "loss" in line and "step" in line),
        tuple((step, line["held_out"]) for step, line in evaluations),
        tuple(step for step, line in evaluations if line.get("kept")),
    )


# ---------------------------------------------------------------------------- kept steps


def kept_stride(step: int, max_kept: int) -> int:
    """Every how many steps weights are kept when so many are done: a power of 2, so that all up to here fit.

    most: how many are kept in all; one place is left for the last step of the run. Step 0, the start, is always kept.
    """
    stride = 1
    while step // stride + 1 > max_kept - 1 and stride <= step:
        stride *= 2
    return stride


def kept_steps(folder: Path) -> dict[int, Path]:
    """The steps whose weights a run has kept so far, rising, each with the folder that `load` opens."""
    kept = (path for path in (folder / STEPS_FOLDER).glob("*") if path.name.isdecimal() and path.is_dir())
    return {int(path.name): path for path in sorted(kept, key=lambda path: int(path.name))}


class StepKeeper:
    """Writes the weights of some steps of a run: many at first, fewer as it continues, evenly over what is done.

    folder: of the run. most: how many are kept; 0 for none. write: the weights as they now are, as a checkpoint, to a
    folder. nbytes: of one checkpoint.
    Raises Refused for fewer than two, or where two do not fit `MOST_BYTES`.
    """

    def __init__(self, folder: Path, most: int, write: Callable[[Path], None], nbytes: int) -> None:
        if most and most < MIN_KEPT_STEPS:
            raise Refused(
                f"{most} step is to be kept: {MIN_KEPT_STEPS} are the least, the start and the end, or 0 for none"
            )
        fit = MAX_KEPT_BYTES // max(nbytes, 1)
        if most and fit < MIN_KEPT_STEPS:
            raise Refused(
                f"the weights of a step take {nbytes / 2**30:.1f} GiB, and all that are kept "
                f"{MAX_KEPT_BYTES >> 30} at most: keep none"
            )
        self.folder, self.max_steps, self._write = folder, min(most, fit), write

    def begin(self, step: int) -> None:
        """Remove what a killed run kept of later steps; keep the start of a run that begins."""
        for other, path in kept_steps(self.folder).items():
            if other > step or not step or not self.max_steps:
                shutil.rmtree(path)
        if not step:
            self.add(0)

    def add(self, step: int, *, last: bool = False) -> None:
        """Keep the weights if it is their turn, and remove those whose turn it no longer is. last: of the run."""
        if not self.max_steps:
            return
        stride = kept_stride(step, self.max_steps)
        kept = kept_steps(self.folder)
        if step not in kept and (last or step % stride == 0):
            unfinished = self.folder / STEPS_FOLDER / f".{step}"
            shutil.rmtree(unfinished, ignore_errors=True)
            self._write(unfinished)
            unfinished.rename(unfinished.with_name(str(step)))
        for other, path in kept.items():
            if other % stride and not (last and other == step):
                shutil.rmtree(path)


# ---------------------------------------------------------------------------- interrupts


@contextmanager
def defer_sigint() -> Iterator[None]:
    """A Ctrl-C inside this block raises KeyboardInterrupt at its end: the block runs whole, or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if received:
        raise KeyboardInterrupt

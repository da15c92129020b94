"""Training runs: their identity, saved state, training loop, log and saved steps."""

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
from bert_core.progress import Progress, format_duration
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
EVALUATION_KEYS = ("held_out", "correct")  # a log line with one of these keys is an evaluation
STEPS_FOLDER = "steps"
MAX_KEPT_BYTES = 4 * 2**30  # of all saved steps of a run together
MIN_KEPT_STEPS = 2  # the first and the last


# ---------------------------------------------------------------------------- identity


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of the content of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run_identity(
    training: str, settings: Any, start: Mapping[str, str], texts: Mapping[str, str | None], **arguments: Any
) -> dict[str, Any]:
    """Return everything that determines the final weights of a run, as JSON values.

    A stopped run is resumed only if its identity is unchanged.
    training: kind of training. settings: dataclass of settings; its field `steps` is left out, since the number of
        steps of a run may change.
    start: digests of what the run starts from, as of `start_digests`. texts: digest of each text, None for a text that
        is not given. arguments: further arguments of the run.
    """
    values = {name: value for name, value in dataclasses.asdict(settings).items() if name != "steps"}
    return as_json_values({"training": training, **texts, **start, **arguments, **values})


def start_digests(*models: nn.Module, config: Mapping[str, Any], tokenizer: Tokenizer | None = None) -> dict[str, str]:
    """Return digests of what a run starts from: its weights, configuration and, where given, tokenizer.

    models: all models whose weights are trained, new heads included. config: their configuration, including values that
    only training uses, such as dropout.
    Each digest has 16 hexadecimal digits.
    """
    digests = {"weights": weights_digest(*models), "configuration": _short_digest(json.dumps(config, sort_keys=True))}
    return digests if tokenizer is None else {**digests, "tokenizer": tokenizer_digest(tokenizer)[:16]}


def _short_digest(text: str) -> str:
    """Return 16 hexadecimal digits of the SHA-256 digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights_digest(*models: nn.Module) -> str:
    """Return a digest of the names, shapes, types and values of all weights, in 16 hexadecimal digits."""
    tensors = {f"{number}.{name}": t for number, model in enumerate(models) for name, t in model.state_dict().items()}
    descriptions = [
        [name, list(tensor.shape), str(tensor.dtype), tensor_digest(tensor, tensor.dtype)]
        for name, tensor in checkpoint.unique_tensors(tensors).items()
    ]
    return _short_digest(json.dumps(descriptions))


# ---------------------------------------------------------------------------- state


@dataclass
class RunState:
    """Progress of a run, which its state file holds in addition to the weights and the optimizer state.

    step: number of updates so far. evaluated: number of updates before the last evaluation.
    best_step, best_rank: step and rank of the best evaluation so far. They are 0 and None before the first evaluation,
        and in a training that does not rank its evaluations.
    means: running mean of each training metric.
    """

    step: int = 0
    evaluated: int = 0
    best_step: int = 0
    best_rank: tuple[float, ...] | None = None
    means: dict[str, float] = field(default_factory=dict)


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of a state file.

    Raises Refused if the file is damaged or not a state, or was written by version 0.2.
    """
    with path.open("rb") as file:
        try:
            with ZipFile(file) as archive:
                broken = archive.testzip()  # torch does not verify checksums
            file.seek(0)
            state = None if broken else torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # for a damaged file, both raise exceptions of many types
            # torch reports a lack of memory as a RuntimeError.
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                raise
            raise _damaged(path) from error
    if not isinstance(state, dict):
        raise _damaged(path)
    if "format" not in state and {"model", "optimizer"} <= state.keys():
        raise Refused(f"{path} was written by version 0.2, whose runs cannot be resumed: delete it to start a new run")
    if state.get("format") != STATE_FORMAT or not state.keys() >= STATE_KEYS or not isinstance(state["identity"], dict):
        raise _damaged(path)
    return state


def _damaged(path: Path) -> Refused:
    """Return the error for a state file that cannot be read."""
    return Refused(f"{path} is damaged, or is not the state of a training run: delete it to start a new run")


def save_state(folder: Path, training: Training, identity: Mapping[str, Any], state: RunState) -> None:
    """Write the state of a run atomically to its folder."""
    content = {
        "format": STATE_FORMAT, "identity": dict(identity), "steps": training.steps, "progress": vars(state),
        "model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(),
        "average": training.average.state_dict() if training.average else None,
    }  # fmt: skip
    checkpoint.write_atomically(folder / STATE_FILE, lambda path: torch.save(content, path))


def load_state(folder: Path, training: Training, identity: Mapping[str, Any]) -> RunState:
    """Load the saved state of a run into its model, optimizer and weight average, and return its progress.

    Without a state file, return the progress of a new run and change nothing.
    Raises Refused as `read_state` does, for a run with another identity, and for another number of steps once the
    learning rate of the saved run has begun to fall.
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
            f"the run in {folder} is at step {state.step}, where its learning rate is already falling: it must end at "
            f"{steps} steps"
        )
    try:
        training.model.load_state_dict(content["model"])
        training.optimizer.load_state_dict(content["optimizer"])
        if training.average:
            training.average.load_state_dict(content["average"])
    except Exception as error:  # for tensors of other shapes, torch raises exceptions of many types
        raise _damaged(path) from error
    return state


def check_same_texts(folder: Path, texts: Mapping[str, str | None]) -> None:
    """Raise Refused if a folder holds the state of a run with other texts, or a state that cannot be read.

    texts: as for `run_identity`. `train` checks them too, but only after they have been tokenized, which takes long.
    """
    path = folder / STATE_FILE
    if path.is_file():
        check_same_study(read_state(path)["identity"], texts, folder)


# ---------------------------------------------------------------------------- loop


@dataclass(frozen=True)
class Workers:
    """Rank of this process among all training processes, as `torchrun` sets it in the environment.

    rank: from 0. world: number of processes.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Workers:
        """Join the process group that `torchrun` started; without `torchrun`, return a single worker."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(int(os.environ.get("RANK", "0")), world)

    def average_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Replace each gradient by its mean over all workers."""
        if self.world > 1:
            gradients = [p.grad for p in parameters if p.grad is not None]
            flat = torch.cat([g.flatten() for g in gradients])
            dist.all_reduce(flat)
            parts = torch.split(flat.div_(self.world), [g.numel() for g in gradients])
            for gradient, mean in zip(gradients, parts, strict=True):
                gradient.copy_(mean.view_as(gradient))


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation.

    line: entry for the log. sentence: text for the progress report. rank: values that are compared in order, larger is
    better; None if evaluations are not compared.
    """

    line: Mapping[str, Any]
    sentence: str
    rank: tuple[float, ...] | None = None


class Training(ABC):
    """Interface of one kind of training, which the loop `train` calls.

    model: all parameters that are updated and saved. steps: total number of updates. decay: number of last updates over
        which the learning rate falls.
    units: plural name of what is counted for the speed, such as tokens. done_units: number of them processed so far.
    log_every: number of steps between log lines. smoothing: weight of the previous value in a running mean.
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
        """Return the learning rate of a step, counted from zero."""

    @abstractmethod
    def add_gradients(self, step: int) -> Mapping[str, Metric]:
        """Add the gradients of a step's batch to the model, and return the metrics of the batch."""

    @abstractmethod
    def log_line(self, state: RunState, learning_rate: float, speed: float) -> dict[str, Any]:
        """Return the log line after `state.step` updates. speed: units per second."""

    @abstractmethod
    def progress(self, state: RunState) -> str:
        """Return the content of the log line as text for the progress report."""

    def begin(self, state: RunState) -> None:  # noqa: B027, most trainings prepare nothing
        """Prepare the folder, once the state is loaded and the log is truncated; called on the first worker only."""

    def after_update(self, step: int) -> None:  # noqa: B027, most trainings do nothing here
        """Run tasks that are due after `step` updates; called on the first worker only."""

    def is_logged(self, step: int) -> bool:
        """Return whether a log line is written after `step` updates."""
        return step % self.log_every == 0 or step == self.steps

    def is_evaluated(self, step: int) -> bool:
        """Return whether the weights are evaluated after `step` updates."""
        return False

    def evaluate(self, state: RunState) -> Evaluation:
        """Evaluate the current weights; called on the first worker only."""
        raise NotImplementedError

    def stop_reason(self, state: RunState) -> str:
        """Return why the run ends before its last step, or an empty text if it continues."""
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
    """Run a training to its last step or until it stops early: updates, log, evaluations and saved states.

    A run is resumed if `folder` holds the state of a run with this identity. Each batch depends only on the seed and
    the step, so on the CPU of one machine a run ends with the same bits however often it was stopped.
    An interrupted run first saves its state, unless the interrupt left an update incomplete. A killed run is resumed
    from its last saved state, and its log is truncated to that state.
    identity: as of `run_identity`. save_every: seconds between two saved states. keep_state: whether the state of the
        last step is saved, too.
    Returns the progress of the finished run; the model has its final weights and is in evaluation mode.
    Raises Refused as `load_state` does, and any exception of `report`.
    """
    parameters = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    is_first = training.workers.rank == 0
    state = load_state(folder, training, identity)
    first = saved_at = state.step
    if is_first:
        _truncate_log(folder, state)
        training.begin(state)
    resuming = f"; resuming at step {first} of {training.steps}" if first else ""
    report(None, describe_precision(training.device) + resuming)
    # Metrics of steps that are not yet in the running means, since reading them waits for the device.
    pending: list[Mapping[str, Metric]] = []

    def read_pending() -> None:
        for values in read_metrics(pending):
            for name, value in values.items():
                weight = training.smoothing if name in state.means else 0.0
                state.means[name] = weight * state.means.get(name, 0.0) + (1 - weight) * value
        pending.clear()

    def save() -> None:
        with defer_sigint():  # torchrun sends a second SIGINT after that of the terminal
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
            evaluate_if_due()  # in case the run was stopped during this evaluation
        while state.step < training.steps and not (stop_reason := training.stop_reason(state)):
            rate = training.learning_rate(state.step)
            metrics = training.add_gradients(state.step)
            training.workers.average_gradients(parameters)
            is_logged = is_first and training.is_logged(state.step + 1)
            with defer_sigint():
                consistent = False
                apply_gradients(training.optimizer, parameters, rate)
                if training.average:
                    training.average.add(training.model)
                state.step, consistent = state.step + 1, True
                if is_first:
                    pending.append(metrics)
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
                    f"{format_duration(remaining)} left",
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
            report(None, stop_reason)
    except BaseException as error:  # for example a KeyboardInterrupt, or the failure of another worker
        if is_first and consistent and state.step > saved_at and not isinstance(error, Refused | OSError):
            save()
        raise
    if training.average:
        training.average.copy_to(training.model)
    training.model.eval()
    return state


# ---------------------------------------------------------------------------- log


def append_to_log(folder: Path, line: Mapping[str, Any]) -> None:
    """Append one JSON object as a line to the log of a run."""
    checkpoint.append_atomically(folder / LOG_FILE, json.dumps(line) + "\n")


def read_log_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the log lines of a run; lines that are not a JSON object, such as one still being written, are skipped."""
    path, lines = folder / LOG_FILE, []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def _truncate_log(folder: Path, state: RunState) -> None:
    """Remove log lines that a killed run wrote after its last saved state; the resumed run writes them again."""
    path = folder / LOG_FILE
    if not state.step:
        path.unlink(missing_ok=True)
    elif path.is_file():
        lines = [line for line in read_log_lines(folder) if _is_before(line, state)]
        checkpoint.write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))


def _is_before(line: Mapping[str, Any], state: RunState) -> bool:
    """Return whether a log line was written before a state was saved."""
    is_evaluation = any(name in line for name in EVALUATION_KEYS)
    return bool(line.get("step", 0) <= (state.evaluated if is_evaluation else state.step))


def round_finite(values: Mapping[str, float]) -> dict[str, float]:
    """Return the finite values, rounded to five decimal places."""
    return {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}


@dataclass(frozen=True)
class TuningLog:
    """Content of the log of a fine-tuning run.

    steps: total number of updates, 0 before the run has started. losses: step and running mean of the loss, for each
        logged step. held_out: step and metrics of each evaluation. best_steps: steps whose evaluation was better than
        all before.
    """

    steps: int
    losses: tuple[tuple[int, float], ...]
    held_out: tuple[tuple[int, Mapping[str, Any]], ...]
    best_steps: tuple[int, ...]

    @property
    def step(self) -> int:
        """Number of the last logged update, 0 if there is none."""
        return max((step for step, _ in self.losses), default=0)


def read_log(folder: Path) -> TuningLog:
    """Return the log of a fine-tuning run in a folder, which is empty if there is no log file yet."""
    lines = read_log_lines(folder)
    evaluations = [(int(line["step"]), line) for line in lines if "held_out" in line and "step" in line]
    return TuningLog(
        max((int(line["steps"]) for line in lines if "steps" in line), default=0),
        tuple((int(line["step"]), float(line["loss"])) for line in lines if "loss" in line and "step" in line),
        tuple((step, line["held_out"]) for step, line in evaluations),
        tuple(step for step, line in evaluations if line.get("kept")),
    )


# ---------------------------------------------------------------------------- saved steps


def kept_stride(step: int, max_kept: int) -> int:
    """Return the number of steps between two saved steps after `step` updates, a power of 2.

    max_kept: maximum number of saved steps. One of them is reserved for the last step of the run, and one is step 0.
    """
    stride = 1
    while step // stride + 1 > max_kept - 1 and stride <= step:
        stride *= 2
    return stride


def kept_steps(folder: Path) -> dict[int, Path]:
    """Return the steps whose weights a run has saved, in rising order, each with its checkpoint folder."""
    paths = (path for path in (folder / STEPS_FOLDER).glob("*") if path.name.isdecimal() and path.is_dir())
    return {int(path.name): path for path in sorted(paths, key=lambda path: int(path.name))}


class StepKeeper:
    """Saves checkpoints of a bounded number of steps of a run, evenly spaced over the steps so far.

    The longer the run, the larger the distance between saved steps; checkpoints in between are then deleted.
    folder: folder of the run. max_steps: maximum number of saved steps, 0 for none; fewer are saved if `MAX_KEPT_BYTES`
        are exceeded. write: function that writes the current weights as a checkpoint to a folder. nbytes: size of one
        checkpoint.
    Raises Refused for a maximum of 1, or if two checkpoints exceed `MAX_KEPT_BYTES`.
    """

    def __init__(self, folder: Path, max_steps: int, write: Callable[[Path], None], nbytes: int) -> None:
        if max_steps and max_steps < MIN_KEPT_STEPS:
            raise Refused(
                f"the number of saved steps is {max_steps}: it must be 0 for none, or at least {MIN_KEPT_STEPS}, since "
                "the first and the last step are always saved"
            )
        fitting_steps = MAX_KEPT_BYTES // max(nbytes, 1)
        if max_steps and fitting_steps < MIN_KEPT_STEPS:
            raise Refused(
                f"the weights of a step take {nbytes / 2**30:.1f} GiB, and all saved steps of a run may take "
                f"{MAX_KEPT_BYTES >> 30} GiB: save no steps"
            )
        self.folder, self.max_steps, self._write = folder, min(max_steps, fitting_steps), write

    def begin(self, step: int) -> None:
        """Delete checkpoints that a killed run saved after `step`; save step 0 of a new run."""
        for saved_step, path in kept_steps(self.folder).items():
            if saved_step > step or not step or not self.max_steps:
                shutil.rmtree(path)
        if not step:
            self.add(0)

    def add(self, step: int, *, last: bool = False) -> None:
        """Save the weights of a step that is due, and delete checkpoints that are no longer due.

        last: whether this is the last step of the run, which is always saved.
        """
        if not self.max_steps:
            return
        stride = kept_stride(step, self.max_steps)
        saved_steps = kept_steps(self.folder)
        if step not in saved_steps and (last or step % stride == 0):
            unfinished = self.folder / STEPS_FOLDER / f".{step}"
            shutil.rmtree(unfinished, ignore_errors=True)
            self._write(unfinished)
            unfinished.rename(unfinished.with_name(str(step)))
        for saved_step, path in saved_steps.items():
            if saved_step % stride and not (last and saved_step == step):
                shutil.rmtree(path)


# ---------------------------------------------------------------------------- interrupts


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Context manager that delays a Ctrl-C until its end, so that the block is never interrupted half-way."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    received: list[int] = []
    previous_handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if previous_handler is None else previous_handler)
    if received:
        raise KeyboardInterrupt

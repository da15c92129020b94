"""What every training run shares: optimizer, rate and steps; and on disk, the state that it resumes from, its log."""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from bert_core import checkpoint
from bert_core.heap import release_freed_memory
from bert_core.recording import record
from bert_core.refused import Refused
from bert_core.run.arrays import on_cpu

STATE_FILE = "state.pt"
LOG_FILE = "log.jsonl"
RELEASE_EVERY = 50  # steps
CPUINFO = Path("/proc/cpuinfo")
BETAS, EPSILON = (0.9, 0.98), 1e-6


class Settings(Protocol):
    """A frozen dataclass that decides the weights which come out; its rate falls over the last `decay` steps."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def steps(self) -> int:
        """How many updates there are in all."""

    @property
    def decay(self) -> int:
        """Over how many of the last the rate falls."""


def trapezoid(step: int, *, steps: int, warmup: int, decay: int) -> float:
    """Share of the full rate at a step, counted from zero: up over `warmup`, level, down to 0 over `decay`."""
    return min(1.0, (step + 1) / max(warmup, 1), (steps - step) / max(decay, 1))


def adamw(parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """The optimizer of every run that names no other: matrices decay, biases and layer norms do not."""
    return torch.optim.AdamW(
        _decaying(parameters, weight_decay), lr=learning_rate, betas=BETAS, eps=EPSILON,
        fused=parameters[0].device.type != "mps",
    )  # fmt: skip


class Muon(torch.optim.AdamW):
    """Muon for the hidden matrices and AdamW for all else, with one rate: its steps are as long as AdamW's mostly are.

    A matrix moves along the orthogonal matrix nearest to its momentum, so that no direction of it is left behind
    (Jordan 2024, kellerjordan.github.io/posts/muon; the length of a step as in Liu 2025, arXiv:2502.16982).
    `torch.optim.Muon` takes the same steps one matrix after another, and always in bfloat16, which is slow where a
    processor has none; here matrices of one shape go together, in the precision that the device is quick in.
    """

    def __init__(
        self,
        hidden: Sequence[nn.Parameter],
        others: Sequence[nn.Parameter],
        learning_rate: float,
        weight_decay: float,
        *,
        momentum: float = 0.95,
    ) -> None:
        """hidden: matrices that Muon moves; others: what AdamW does, the word table too."""
        super().__init__(
            [*_decaying(others, weight_decay), {"params": list(hidden), "weight_decay": weight_decay}],
            lr=learning_rate, betas=BETAS, eps=EPSILON, fused=others[0].device.type != "mps",
        )  # fmt: skip
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update; the gradients of the hidden matrices are used up by it."""
        group = self.param_groups[-1]
        shapes: dict[torch.Size, list[nn.Parameter]] = {}
        for matrix in group["params"]:
            if matrix.grad is not None:
                shapes.setdefault(matrix.shape, []).append(matrix)
        for (rows, columns), matrices in shapes.items():
            moved = []
            for matrix in matrices:
                state = self.state[matrix]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(matrix)
                    state["step"] = torch.zeros(())  # AdamW, when it is loaded, wants one of every parameter
                state["step"] += 1
                assert matrix.grad is not None  # it was chosen by that
                state["momentum"].lerp_(matrix.grad, 1 - self.momentum)
                moved.append(matrix.grad.lerp(state["momentum"], self.momentum))  # Nesterov's
            length = group["lr"] * 0.2 * max(rows, columns) ** 0.5
            for matrix, direction in zip(matrices, orthogonal(torch.stack(moved)), strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-length)
                matrix.grad = None  # so that AdamW passes it over
        return super().step(closure)


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Of each matrix U S V' about U V': all its directions with a length of 0.7 to 1.2, (matrix, row, column).

    By Newton-Schulz steps with the coefficients of Jordan 2024, which come near 1 soon rather than in the end.
    """
    x = matrices.to(quick_precision(matrices.device))
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    found: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return found


def _decaying(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def quick_precision(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies in it, else float32: emulated, bfloat16 is many times slower."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float32
    if device.type != "cpu":
        return torch.float32
    # The processor may have more than torch was told to take (`ATEN_CPU_CAPABILITY`), and torch then stops half-way.
    allowed = torch.backends.cpu.get_cpu_capability()
    here = {"avx512_bf16", "amx_bf16"} if allowed.startswith("AVX512") else {"bf16"}  # the second is ARM's name
    return torch.bfloat16 if _processor_flags() & here else torch.float32


@cache
def _processor_flags() -> frozenset[str]:
    """What Linux says that the first processor can do; nothing on other systems."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split() for line in lines if line.lower().startswith(("flags", "features"))), ()))


def in_words(device: torch.device) -> str:
    """The precision that a run takes on a device, as a sentence for its log."""
    if quick_precision(device) == torch.bfloat16:
        return "multiplying in bfloat16, which this device has"
    return "multiplying in float32: this device has no bfloat16 that would be quicker"


def padded_size(count: int, device: torch.device) -> int:
    """The number of rows to compute for `count` rows that differ from step to step: one of a small set of sizes.

    For each shape of a matrix product in bfloat16 on a CPU, oneDNN keeps a kernel with its own copy of the weights, up
    to 1,024 of them (`ONEDNN_PRIMITIVE_CACHE_CAPACITY`). Sizes are therefore rounded up to four per power of two, and
    to multiples of 8: at most a quarter, or 7 rows, are added. Elsewhere nothing is kept by shape and nothing is added.
    """
    if device.type != "cpu" or quick_precision(device) != torch.bfloat16:
        return count
    multiple = max(8, 1 << max((count - 1).bit_length() - 3, 0))
    return -(-count // multiple) * multiple


@contextmanager
def fast_forward(device: torch.device) -> Iterator[None]:
    """A forward pass that is quick to go back through: bfloat16 where the device has it, and on a CPU explicit maps.

    There the backward pass of fused attention costs more than that of the maps, so they are watched.
    """
    watched = record() if device.type == "cpu" and torch.is_grad_enabled() else nullcontext()
    quick = quick_precision(device)
    with watched, torch.autocast(device.type, torch.bfloat16, enabled=quick == torch.bfloat16):
        yield


class Figure(NamedTuple):
    """A number that a step measured: a total, which may still be computed on the device, over a divisor."""

    total: Tensor
    divisor: int = 1


def read_figures(steps: Sequence[Mapping[str, Figure]]) -> list[dict[str, float]]:
    """The figures of some steps as numbers, for which the device is waited for once for each number type."""
    totals = iter(on_cpu([figure.total for step in steps for figure in step.values()]))
    return [{name: next(totals).item() / figure.divisor for name, figure in step.items()} for step in steps]


class Average:
    """The running mean of a model's weights over about 1 / (1 - keep) steps, in which the noise of each cancels out.

    At first over fewer: the weights of the beginning are soon forgotten (Polyak & Juditsky 1992).
    """

    def __init__(self, model: nn.Module, keep: float) -> None:
        self.keep = keep
        self.steps = 0
        self.weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Add the weights after one more step to the mean."""
        self.steps += 1
        share = 1 - min(self.keep, self.steps / (self.steps + 10))
        for name, tensor in model.named_parameters():
            self.weights[name].lerp_(tensor, share)

    @contextmanager
    def instead(self, model: nn.Module) -> Iterator[None]:
        """Inside this block the model has the mean for its weights; after it, its own again."""
        own = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        self.put_into(model)
        try:
            yield
        finally:
            model.load_state_dict(own, strict=False)

    def put_into(self, model: nn.Module) -> None:
        """Replace the model's weights by the mean, for good."""
        model.load_state_dict(self.weights, strict=False)

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes, to go on later."""
        return {"steps": self.steps, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.steps = state["steps"]
        for name, tensor in state["weights"].items():
            self.weights[name].copy_(tensor)


def update(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], rate: float) -> None:
    """One step along the gradient, which is cut to length 1 where it is longer, and then forgotten."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def release_fragments(step: int) -> None:
    """Give freed memory back to the system after every `RELEASE_EVERY` steps.

    glibc is told to keep it (`MALLOC_*`), since a step that faults its memory in again takes three times as long. But
    batches of different lengths leave fragments of it that no other length fits, more with every new order of them.
    """
    if step % RELEASE_EVERY == 0:
        release_freed_memory()


def save_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Settings,
    step: int,
    folder: Path,
    average: Average | None = None,
    smooth: Mapping[str, float] | None = None,
) -> None:
    """Write what `resume_state` goes on from, whole or not at all. smooth: running means of the figures in the log."""
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
        "settings": _fixed(settings), "steps": settings.steps, "smooth": dict(smooth or {}),
        **({"average": average.state_dict()} if average else {}),
    }  # fmt: skip
    checkpoint.write_whole(folder / STATE_FILE, lambda path: torch.save(state, path))


def resume_state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: Settings,
    folder: Path,
    average: Average | None = None,
    smooth: dict[str, float] | None = None,
) -> int:
    """Put a saved state back and return the step to go on with; 0 if there is none.

    smooth: receives the running means that were saved; earlier versions saved none.

    Raises Refused if the folder holds a run with other settings, or one whose rate already falls to another end.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    fixed = _fixed(settings)
    changed = [k for k in fixed if fixed[k] != state["settings"].get(k)]
    if changed:
        raise Refused(
            f"{folder} holds a run with other settings ({', '.join(changed)}): "
            "choose another folder, or the same settings"
        )
    step = int(state["step"])
    if settings.steps != state["steps"] and step > min(settings.steps, state["steps"]) - settings.decay:
        raise Refused(
            f"the run in {folder} is at step {step}, where its rate already falls: "
            f"it must end at {state['steps']} steps"
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if average:
        average.load_state_dict(state["average"])
    if smooth is not None:
        smooth.update(state.get("smooth", {}))
    return step


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


def log(folder: Path, line: Mapping[str, Any]) -> None:
    """Add one JSON object to the run's log."""
    checkpoint.append_whole(folder / LOG_FILE, json.dumps(line) + "\n")


def read_lines(folder: Path) -> list[dict[str, Any]]:
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


def keep_lines(folder: Path, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
    """Rewrite the run's log with the lines that are wanted; does nothing where there is no log."""
    if (folder / LOG_FILE).is_file():
        kept = [line for line in read_lines(folder) if wanted(line)]
        checkpoint.write_whole(folder / LOG_FILE, "".join(json.dumps(line) + "\n" for line in kept))


def cut_log(folder: Path, step: int) -> None:
    """Drop the lines of steps after `step`, which a run that resumes there logs again."""
    keep_lines(folder, lambda line: line.get("step", 0) <= step)


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """What is finite, to five places."""
    return {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}


def _fixed(settings: Settings) -> dict[str, Any]:
    """The settings that a resumed run must share, as plain values."""
    values = dataclasses.asdict(settings)
    return json.loads(json.dumps({k: v for k, v in values.items() if k != "steps"}))  # type: ignore[no-any-return]

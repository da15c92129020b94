"""One update of any training: learning rate, optimizers, precision, measured figures, and the mean of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bert_core.heap import release_freed_memory
from bert_core.recording import record
from bert_core.run.arrays import to_cpu

RELEASE_INTERVAL = 50  # steps
CPUINFO = Path("/proc/cpuinfo")
BETAS, EPSILON = (0.9, 0.98), 1e-6


def trapezoid(step: int, *, steps: int, warmup: int, decay: int) -> float:
    """Share of the full rate at a step, counted from zero: up over `warmup`, level, down to 0 over `decay`."""
    return min(1.0, (step + 1) / max(warmup, 1), (steps - step) / max(decay, 1))


def adamw(parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """The optimizer of every run that names no other: matrices decay, biases and layer norms do not."""
    return torch.optim.AdamW(
        _decay_groups(parameters, weight_decay), lr=learning_rate, betas=BETAS, eps=EPSILON,
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
            [*_decay_groups(others, weight_decay), {"params": list(hidden), "weight_decay": weight_decay}],
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
            for matrix, direction in zip(matrices, orthogonalize(torch.stack(moved)), strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-length)
                matrix.grad = None  # so that AdamW passes it over
        return super().step(closure)


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """Of each matrix U S V' about U V': all its directions with a length of 0.7 to 1.2, (matrix, row, column).

    By Newton-Schulz steps with the coefficients of Jordan 2024, which come near 1 soon rather than in the end.
    """
    x = matrices.to(fast_dtype(matrices.device))
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    found: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return found


def _decay_groups(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def fast_dtype(device: torch.device) -> torch.dtype:
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


def describe_precision(device: torch.device) -> str:
    """The number type in which a run multiplies on a device, as a sentence for its progress report."""
    if fast_dtype(device) == torch.bfloat16:
        return "multiplying in bfloat16, which this device has"
    return "multiplying in float32: this device has no bfloat16 that would be quicker"


def padded_size(count: int, device: torch.device) -> int:
    """The number of rows to compute for `count` rows that differ from step to step: one of a small set of sizes.

    For each shape of a matrix product in bfloat16 on a CPU, oneDNN keeps a kernel with its own copy of the weights, up
    to 1,024 of them (`ONEDNN_PRIMITIVE_CACHE_CAPACITY`). Sizes are therefore rounded up to four per power of two, and
    to multiples of 8: at most a quarter, or 7 rows, are added. Elsewhere nothing is kept by shape and nothing is added.
    """
    if device.type != "cpu" or fast_dtype(device) != torch.bfloat16:
        return count
    multiple = max(8, 1 << max((count - 1).bit_length() - 3, 0))
    return -(-count // multiple) * multiple


@contextmanager
def training_autocast(device: torch.device) -> Iterator[None]:
    """A forward pass with a fast backward pass: bfloat16 where the device has it, and explicit attention on a CPU.

    On a CPU the backward pass of fused attention costs more than that of explicit attention, so maps are recorded.
    """
    watched = record() if device.type == "cpu" and torch.is_grad_enabled() else nullcontext()
    quick = fast_dtype(device)
    with watched, torch.autocast(device.type, torch.bfloat16, enabled=quick == torch.bfloat16):
        yield


class Metric(NamedTuple):
    """A number that a step measured: a total, which may still be computed on the device, over a divisor."""

    total: Tensor
    divisor: int = 1


def read_metrics(steps: Sequence[Mapping[str, Metric]]) -> list[dict[str, float]]:
    """The figures of some steps as numbers, for which the device is waited for once for each number type."""
    totals = iter(to_cpu([figure.total for step in steps for figure in step.values()]))
    return [{name: next(totals).item() / figure.divisor for name, figure in step.items()} for step in steps]


class WeightAverage:
    """The running mean of a model's weights over about 1 / (1 - keep) steps, in which the noise of each cancels out.

    At first over fewer: the weights of the beginning are soon forgotten (Polyak & Juditsky 1992).
    """

    def __init__(self, model: nn.Module, keep: float) -> None:
        self.decay = keep
        self.steps = 0
        self.weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Add the weights after one more step to the mean."""
        self.steps += 1
        share = 1 - min(self.decay, self.steps / (self.steps + 10))
        for name, tensor in model.named_parameters():
            self.weights[name].lerp_(tensor, share)

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """Inside this block the model has the mean for its weights; after it, its own again."""
        own = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        self.copy_to(model)
        try:
            yield
        finally:
            model.load_state_dict(own, strict=False)

    def copy_to(self, model: nn.Module) -> None:
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


def apply_gradients(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], rate: float) -> None:
    """One step along the gradient, which is cut to length 1 where it is longer, and then forgotten."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def release_memory(step: int) -> None:
    """Give freed memory back to the system after every `RELEASE_EVERY` steps.

    glibc is told to keep it (`MALLOC_*`), since a step that faults its memory in again takes three times as long. But
    batches of different lengths leave fragments of it that no other length fits, more with every new order of them.
    """
    if step % RELEASE_INTERVAL == 0:
        release_freed_memory()

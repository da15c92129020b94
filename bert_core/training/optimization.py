"""One update of a training run: learning rates, optimizers, precision, training metrics and averaged weights."""

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
    """Return the learning rate of a step as a share of the peak rate, from 0 to 1.

    The rate rises linearly over the first `warmup` steps, stays constant, and falls linearly to 0 over the last
    `decay` of `steps` steps.
    step: number of the step, from 0.
    """
    return min(1.0, (step + 1) / max(warmup, 1), (steps - step) / max(decay, 1))


def adamw(parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Return AdamW with weight decay on matrices, and none on biases and layer norms."""
    return torch.optim.AdamW(
        _decay_groups(parameters, weight_decay), lr=learning_rate, betas=BETAS, eps=EPSILON,
        fused=parameters[0].device.type != "mps",
    )  # fmt: skip


class Muon(torch.optim.AdamW):
    """Muon optimizer for hidden matrices, combined with AdamW for all other parameters at the same learning rate.

    The update of a hidden matrix is the orthogonal matrix nearest to its momentum, so that all its singular directions
    are updated equally. It is scaled to the typical length of an AdamW update.
    `torch.optim.Muon` updates one matrix after another, always in bfloat16, which is slow on processors without it.
    Here matrices of equal shape are updated together, in the precision that is fast on the device.
    Source: Jordan 2024 (kellerjordan.github.io/posts/muon); length of an update: Liu 2025 (arXiv:2502.16982).
    """

    def __init__(
        self,
        hidden: Sequence[nn.Parameter],
        other_parameters: Sequence[nn.Parameter],
        learning_rate: float,
        weight_decay: float,
        *,
        momentum: float = 0.95,
    ) -> None:
        """Create the optimizer.

        hidden: matrices that Muon updates. other_parameters: parameters that AdamW updates, embeddings included.
        """
        super().__init__(
            [*_decay_groups(other_parameters, weight_decay), {"params": list(hidden), "weight_decay": weight_decay}],
            lr=learning_rate, betas=BETAS, eps=EPSILON, fused=other_parameters[0].device.type != "mps",
        )  # fmt: skip
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters; the gradients of the hidden matrices are modified and then set to None."""
        group = self.param_groups[-1]
        matrices_by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        for matrix in group["params"]:
            if matrix.grad is not None:
                matrices_by_shape.setdefault(matrix.shape, []).append(matrix)
        for (rows, columns), matrices in matrices_by_shape.items():
            directions = []
            for matrix in matrices:
                state = self.state[matrix]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(matrix)
                    state["step"] = torch.zeros(())  # AdamW.load_state_dict needs one for every parameter
                state["step"] += 1
                assert matrix.grad is not None  # matrices without a gradient are left out above
                state["momentum"].lerp_(matrix.grad, 1 - self.momentum)
                directions.append(matrix.grad.lerp(state["momentum"], self.momentum))  # Nesterov momentum
            length = group["lr"] * 0.2 * max(rows, columns) ** 0.5
            for matrix, direction in zip(matrices, orthogonalize(torch.stack(directions)), strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-length)
                matrix.grad = None  # AdamW then skips this matrix
        return super().step(closure)


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """Return approximately U V' for each matrix U S V', with singular values from 0.7 to 1.2.

    matrices: (matrix, row, column), as is the result. steps: number of Newton-Schulz iterations.
    The coefficients are chosen to come near 1 in few iterations, and do not converge to 1 exactly.
    Source: Jordan 2024 (kellerjordan.github.io/posts/muon).
    """
    x = matrices.to(fast_dtype(matrices.device))
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    result: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return result


def _decay_groups(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Return two parameter groups: matrices with weight decay, and all other parameters without."""
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def fast_dtype(device: torch.device) -> torch.dtype:
    """Return the number type for matrix products: bfloat16 where the device supports it natively, else float32.

    Emulated bfloat16 is many times slower than float32.
    """
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float32
    if device.type != "cpu":
        return torch.float32
    # torch may be limited to fewer instructions than the processor has (`ATEN_CPU_CAPABILITY`). It then fails in the
    # middle of a product in bfloat16.
    capability = torch.backends.cpu.get_cpu_capability()
    # "bf16" is the flag of ARM processors.
    bfloat16_flags = {"avx512_bf16", "amx_bf16"} if capability.startswith("AVX512") else {"bf16"}
    return torch.bfloat16 if _processor_flags() & bfloat16_flags else torch.float32


@cache
def _processor_flags() -> frozenset[str]:
    """Return the feature flags that Linux lists for the first processor; empty on other systems."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split() for line in lines if line.lower().startswith(("flags", "features"))), ()))


def describe_precision(device: torch.device) -> str:
    """Return a phrase for the progress report: the number type of matrix products on a device, and why."""
    if fast_dtype(device) == torch.bfloat16:
        return "matrix products in bfloat16, which this device supports natively"
    return "matrix products in float32, since this device does not support bfloat16 natively"


def padded_size(count: int, device: torch.device) -> int:
    """Return the number of rows to compute for `count` rows: `count`, or the next of a small set of sizes.

    For each shape of a bfloat16 matrix product on a CPU, oneDNN caches a kernel with its own copy of the weights, up to
    1,024 of them (`ONEDNN_PRIMITIVE_CACHE_CAPACITY`). There sizes are rounded up to a multiple of 8 and to one of four
    sizes per power of two, which adds at most a quarter, or 7 rows. On other devices `count` is returned unchanged.
    """
    if device.type != "cpu" or fast_dtype(device) != torch.bfloat16:
        return count
    multiple = max(8, 1 << max((count - 1).bit_length() - 3, 0))
    return -(-count // multiple) * multiple


@contextmanager
def training_autocast(device: torch.device) -> Iterator[None]:
    """Context manager for forward passes in training: autocast to bfloat16 where it is fast, and a fast backward pass.

    On a CPU the backward pass of fused attention is slower than that of explicit attention. Recording the attention
    maps makes the model use explicit attention.
    """
    recording = record() if device.type == "cpu" and torch.is_grad_enabled() else nullcontext()
    dtype = fast_dtype(device)
    with recording, torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        yield


class Metric(NamedTuple):
    """Value that a training step measured: a total, which may still be being computed on the device, over a divisor."""

    total: Tensor
    divisor: int = 1


def read_metrics(steps: Sequence[Mapping[str, Metric]]) -> list[dict[str, float]]:
    """Return the metrics of each step as numbers, with one wait for the device per number type."""
    totals = iter(to_cpu([metric.total for step in steps for metric in step.values()]))
    return [{name: next(totals).item() / metric.divisor for name, metric in step.items()} for step in steps]


class WeightAverage:
    """Exponential moving average of a model's weights, which reduces the noise of single steps.

    decay: weight of the previous average in each update; the average covers about 1 / (1 - decay) steps. It is smaller
    in the first steps, so that the initial weights are soon forgotten.
    Source: Polyak & Juditsky 1992.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Update the average with the weights after one more step."""
        self.steps += 1
        share = 1 - min(self.decay, self.steps / (self.steps + 10))
        for name, tensor in model.named_parameters():
            self.weights[name].lerp_(tensor, share)

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """Context manager in which the model has the averaged weights; its own weights are restored at the end."""
        original = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        self.copy_to(model)
        try:
            yield
        finally:
            model.load_state_dict(original, strict=False)

    def copy_to(self, model: nn.Module) -> None:
        """Replace the model's weights permanently by the averaged weights."""
        model.load_state_dict(self.weights, strict=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`."""
        return {"steps": self.steps, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.steps = state["steps"]
        for name, tensor in state["weights"].items():
            self.weights[name].copy_(tensor)


def apply_gradients(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], rate: float) -> None:
    """Update the parameters once and clear their gradients, which are first clipped to a norm of 1.

    rate: learning rate of this step.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def release_memory(step: int) -> None:
    """Return freed memory to the operating system, every `RELEASE_INTERVAL` steps.

    glibc is configured to keep freed memory (`MALLOC_*`), since page faults make a step three times as long. But
    batches of different lengths fragment that memory, and each new sequence of lengths leaves more unusable pieces.
    """
    if step % RELEASE_INTERVAL == 0:
        release_freed_memory()

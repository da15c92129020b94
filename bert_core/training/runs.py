"""What every training run shares: optimizer, rate and steps; and on disk, the state that it resumes from, its log."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from bert_core import checkpoint
from bert_core.recording import record

STATE_FILE = "state.pt"
LOG_FILE = "log.jsonl"


class Settings(Protocol):
    """A frozen dataclass that decides the weights which come out; its rate falls over the last `decay` steps."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def steps(self) -> int: ...

    @property
    def decay(self) -> int: ...


def trapezoid(step: int, *, steps: int, warmup: int, decay: int) -> float:
    """Share of the full rate at a step, counted from zero: up over `warmup`, level, down to 0 over `decay`."""
    return min(1.0, (step + 1) / max(warmup, 1), (steps - step) / max(decay, 1))


def adamw(parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """The optimizer of every run: matrices decay, biases and layer norms do not."""
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=parameters[0].device.type != "mps",
    )  # fmt: skip


@contextmanager
def fast_forward(device: torch.device) -> Iterator[None]:
    """A forward pass that is quick to go back through: bfloat16 where the device has it, and on a CPU explicit maps.

    There the backward pass of fused attention costs more than that of the maps, so they are watched.
    """
    watched = record() if device.type == "cpu" and torch.is_grad_enabled() else nullcontext()
    with watched, torch.autocast(device.type, torch.bfloat16, enabled=device.type != "mps"):
        yield


def update(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], rate: float) -> None:
    """One step along the gradient, which is cut to length 1 where it is longer, and then forgotten."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def save_state(model: nn.Module, optimizer: torch.optim.Optimizer, settings: Settings, step: int, folder: Path) -> None:
    """Write what `resume_state` goes on from, whole or not at all."""
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
        "settings": _fixed(settings), "steps": settings.steps,
    }  # fmt: skip
    checkpoint.write_whole(folder / STATE_FILE, lambda path: torch.save(state, path))


def resume_state(model: nn.Module, optimizer: torch.optim.Optimizer, settings: Settings, folder: Path) -> int:
    """Put a saved state back and return the step to go on with; 0 if there is none.

    Raises ValueError if the folder holds a run with other settings, or one whose rate already falls to another end.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    fixed = _fixed(settings)
    changed = [k for k in fixed if fixed[k] != state["settings"].get(k)]
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings ({', '.join(changed)}): "
            "choose another folder, or the same settings"
        )
    step = int(state["step"])
    if settings.steps != state["steps"] and step > min(settings.steps, state["steps"]) - settings.decay:
        raise ValueError(
            f"the run in {folder} is at step {step}, where its rate already falls: "
            f"it must end at {state['steps']} steps"
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return step


def log(folder: Path, line: Mapping[str, Any]) -> None:
    """Add one JSON object to the run's log."""
    with open(folder / LOG_FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """What is finite, to five places."""
    return {name: round(value, 5) for name, value in values.items() if math.isfinite(value)}


def _fixed(settings: Settings) -> dict[str, Any]:
    """The settings that a resumed run must share, as plain values."""
    values = dataclasses.asdict(settings)
    return json.loads(json.dumps({k: v for k, v in values.items() if k != "steps"}))  # type: ignore[no-any-return]

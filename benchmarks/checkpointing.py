"""What gradient checkpointing saves: peak memory and time of a training step, with and without, at base size.

    python benchmarks/checkpointing.py            print the table
    python benchmarks/checkpointing.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/checkpointing.py --quick    the smallest size, to check that it works

Each side has a process of its own. Both must find the same gradients.
"""

from __future__ import annotations

import ctypes
import platform
import statistics
import time
from pathlib import Path

import torch
from tables import QUICK, SIZES, command, in_own_process

from bert_core.config import BertConfig
from bert_core.modeling import BertForPreTraining

SHAPES = ((2, 16),) if QUICK else ((8, 128), (2, 512))  # examples, tokens
STEPS = 1 if QUICK else 3


def resident(field: str) -> float:
    """MiB of this process's memory: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def trimmed_memory() -> float:
    """MiB that this process holds, what is free given back first, where a run could hide; forgets the peak so far."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def measure(examples: int, tokens: int, checkpointing: bool) -> dict[str, object]:
    """Peak MiB above model and gradients, median seconds of a step, and two numbers that the gradients give."""
    torch.manual_seed(0)
    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES)
    model = BertForPreTraining(config).train()
    model.bert.encoder.gradient_checkpointing = checkpointing
    ids = torch.randint(1000, 30000, (examples, tokens), generator=torch.Generator().manual_seed(1))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    base_memory, seconds = trimmed_memory(), []
    for _ in range(STEPS):
        model.zero_grad(set_to_none=False)
        start = time.perf_counter()
        # 15% of the positions have a label: the scores of all words everywhere would hide what the layers hold.
        hidden = model.bert(ids).last_hidden_state[:, ::7]
        loss = torch.nn.functional.cross_entropy(model.cls.predictions(hidden).flatten(0, 1), ids[:, ::7].flatten())
        loss.backward()
        seconds.append(time.perf_counter() - start)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return {
        "MiB": resident("VmHWM") - base_memory,
        "seconds": statistics.median(seconds),
        "gradients": [float(sum(g.double().abs().sum() for g in gradients)), float(gradients[0][ids[0, 0]].sum())],
    }


def table() -> str:
    """The whole measurement as Markdown."""
    lines = [
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, default malloc; medians of {STEPS} steps.\n",
        "| examples x tokens | kept, MiB | checkpointed, MiB | ratio | kept, s | checkpointed, s | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for examples, tokens in SHAPES:
        plain, saved = (in_own_process(__file__, examples, tokens, saving, malloc={}) for saving in (False, True))
        for gradient, recomputed in zip(plain["gradients"], saved["gradients"], strict=True):
            if abs(gradient - recomputed) > 1e-4 * abs(gradient):
                raise SystemExit(f"{examples} x {tokens}: the gradients differ, {gradient} and {recomputed}")
        lines.append(
            f"| {examples} x {tokens} | {plain['MiB']:.0f} | {saved['MiB']:.0f} | {saved['MiB'] / plain['MiB']:.2f} "
            f"| {plain['seconds']:.2f} | {saved['seconds']:.2f} | {saved['seconds'] / plain['seconds']:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Gradient checkpointing: memory and time.", table, measure)

"""What `headlight neurons` costs beside plain passes of the same texts through the encoder.

    python benchmarks/firing.py            print the table
    python benchmarks/firing.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/firing.py --quick    the smallest size, to check that it works

headlight-mini over a file of sentences, read from the file, with a state that is written as it goes: one neuron, one
layer's, and all. The plain passes have the same texts in the same batches, and keep nothing. Each study's deciles must
be those of NumPy over the plain activations of its neurons (to 1e-4 of the largest) before a clock starts.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from encoder import KEPT, SEED, in_turns
from heads import WORDS, check
from tables import QUICK, command, in_own_process
from torch import Tensor

import bert_core
from bert_core import Encoding, LoadedModel, NeuronSettings
from bert_core.run.states import iter_activations

SENTENCES, ROUNDS = (64, 1) if QUICK else (768, 3)
MODEL = "headlight-mini"
ASKED: dict[str, tuple[tuple[int, int | None], ...] | None] = {
    "one neuron": ((5, 120),), "all of the last layer": ((5, None),), "all": None,
}  # fmt: skip


def plain(loaded: LoadedModel, shards: Sequence[Sequence[Encoding]]) -> None:
    """The texts through all layers, as many together as the study takes."""
    last = [loaded.config.num_hidden_layers - 1]
    for texts in shards:
        for _ in iter_activations(loaded, texts, last):
            pass


def study(path: Path, sampled_neurons: tuple[tuple[int, int | None], ...] | None) -> float:
    """The whole study, with loading the model; the seconds that it took after its file was read."""
    report_times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        bert_core.measure_neurons(
            path, MODEL, NeuronSettings(sampled_neurons), state=Path(folder, "state"), device="cpu",
            report=lambda done, what="": report_times.append(time.perf_counter()),
        )  # fmt: skip
    return time.perf_counter() - report_times[-1]


def measure(count: int, repeats: int) -> dict[str, object]:
    """Medians in milliseconds of each side, and of what follows the reading."""
    rng = np.random.default_rng(SEED)
    lines = [" ".join(rng.choice(WORDS, rng.integers(8, 41))) for _ in range(count)]
    loaded = bert_core.load(MODEL, device="cpu")
    texts = [loaded.tokenizer.encode(line) for line in lines]
    shards = [texts[first : first + 32] for first in range(0, count, 32)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sentences.txt")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        short = Path(folder, "short.txt")
        short.write_text("\n".join(lines[:64]) + "\n", encoding="utf-8")
        studies = [
            values[~np.concatenate([texts[first + n].special for n in numbers])]
            for first in (0, 32)
            for numbers, _, values in iter_activations(loaded, texts[first : first + 32], [5])
        ]
        expected = np.quantile(np.concatenate(studies), np.linspace(0, 1, 11), axis=0).T
        table = bert_core.measure_neurons(short, MODEL, NeuronSettings(((5, None),)), device="cpu")
        check("deciles", expected, table.deciles)
        ends: dict[str, list[float]] = {name: [] for name in ASKED}

        def side(name: str) -> Callable[[Tensor], object]:
            def over(_: Tensor) -> None:
                ends[name].append(study(path, ASKED[name]))

            return over

        sides = {"plain": lambda _: plain(loaded, shards), **{name: side(name) for name in ASKED}}
        ms, machine = in_turns(sides, torch.empty(0), repeats)
    return {
        "ms": ms, "ending": {name: float(np.median(round_times)) for name, round_times in ends.items()},
        "tokens": sum(map(len, texts)), "machine": machine,
    }  # fmt: skip


def table() -> str:
    """The whole measurement as Markdown."""
    result = in_own_process(__file__, SENTENCES, ROUNDS, malloc=KEPT)
    tokens, ms = result["tokens"], result["ms"]
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads; torch {torch.__version__}; "
        f"malloc as `headlight` sets it; {SENTENCES:,} sentences, {tokens:,} tokens; medians of {ROUNDS} runs a side; "
        f"load and others' CPUs {result['machine']}.\n",
        "| headlight-mini over a file | tokens/s | of plain passes | of it after the reading, s |",
        "| --- | ---: | ---: | ---: |",
        f"| plain passes | {1000 * tokens / ms['plain']:,.0f} | 1 |  |",
    ]
    lines += [
        f"| the study, {name} | {1000 * tokens / ms[name]:,.0f} | {ms['plain'] / ms[name]:.2f} | "
        f"{result['ending'][name]:.1f} |"
        for name in ASKED
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Neurons over a file.", table, measure)

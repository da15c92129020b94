"""A model of transformers in memory: `from_transformers` beside `save_pretrained` and `load`, time and memory.

    python benchmarks/own_models.py            print the table
    python benchmarks/own_models.py --write    and put it between the markers of benchmarks/README.md
    python benchmarks/own_models.py --quick    the smallest size, to check that it works

The model has random weights. Each side has a process of its own, which makes the same model and tokenizer first. Memory
is the difference between the peak of resident memory of the first run and the memory before it. Both sides must find
the same attention maps, to 1e-5 of the largest.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from checkpointing import resident, trimmed_memory
from tables import QUICK, SIZES, command, in_own_process

import bert_core
from bert_core import LoadedModel

REPEATS = 1 if QUICK else 7
SIDES = ("from_transformers", "save_pretrained and load")
TEXT = "She opened the door and walked in."


def own_model(folder: Path) -> tuple[transformers.BertForMaskedLM, transformers.PreTrainedTokenizerBase]:
    """A model from a seed and the tokenizer of the bundled model, which is read from a folder."""
    bundled = Path(bert_core.__file__).parent / "assets" / "headlight-mini"
    for name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled / name, folder / name)
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(initializer_range=0.05, **SIZES)).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def through_a_folder(model: Any, tokenizer: Any) -> LoadedModel:
    """Save a model and its tokenizer, and load them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return bert_core.load(folder, device="cpu")


def measure(side: str) -> dict[str, Any]:
    """Median seconds of a side, MiB of its peak above the memory before it, parameters, and maps of a text."""
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = own_model(Path(folder))
    run = bert_core.from_transformers if side == SIDES[0] else through_a_folder
    memory_before, start = trimmed_memory(), time.perf_counter()
    loaded = run(model, tokenizer)
    seconds, memory = [time.perf_counter() - start], resident("VmHWM") - memory_before
    for _ in range(REPEATS):
        start = time.perf_counter()
        loaded = run(model, tokenizer)
        seconds.append(time.perf_counter() - start)
    attention = bert_core.capture(loaded, loaded.tokenizer.encode(TEXT)).attention
    return {
        "first": seconds[0], "seconds": statistics.median(seconds[1:]), "memory": memory,
        "parameters": sum(parameter.numel() for parameter in model.parameters()), "attention": attention.tolist(),
    }  # fmt: skip


def table() -> str:
    """The whole measurement as Markdown."""
    results = {side: in_own_process(__file__, side, malloc={}) for side in SIDES}
    maps = [np.array(result["attention"]) for result in results.values()]
    difference = float(np.abs(maps[0] - maps[1]).max() / maps[1].max())
    if difference > 1e-5:
        raise SystemExit(f"the attention maps differ by {difference} of the largest")
    lines = [
        f"{platform.machine()}, {os.cpu_count()} CPUs; torch {torch.__version__}, transformers "
        f"{transformers.__version__}; BertForMaskedLM with {results[SIDES[0]]['parameters'] / 1e6:.1f} M parameters; "
        f"medians of {REPEATS} runs after the first; {time.strftime('%Y-%m-%d')}.\n",
        "| | first run, ms | next runs, ms | ratio | peak of memory above that before, MiB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for side, result in results.items():
        ratio = result["seconds"] / results[SIDES[1]]["seconds"]
        lines.append(
            f"| {side} | {1000 * result['first']:.0f} | {1000 * result['seconds']:.0f} | {ratio:.2f} | "
            f"{result['memory']:.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command(__file__, "Models of transformers in memory.", table, measure)

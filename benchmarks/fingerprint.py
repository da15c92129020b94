"""What the fingerprint of a model takes when it is first asked for, and again; beside loading and a digest of the file.

Times of the processor, a process of its own for each model and round. The second model has random weights in float32.

python benchmarks/fingerprint.py [--rounds 7] [--write | --quick]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tables import QUICK, SIZES, parse_arguments, write_table

import bert_core
from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS

MINI = ASSETS / "headlight-mini"
ROWS = (
    ("loaded", "loading", "ms"), ("first", "fingerprint, first", "ms"), ("again", "fingerprint, again", "ms"),
    ("file", "SHA-256 of the file", "ms"), ("above", "peak of memory above that of loading", "MB"),
)  # fmt: skip


def measure(folder: Path) -> dict[str, float]:
    """Milliseconds and megabytes of one model in this process."""
    start = time.process_time()
    loaded = bert_core.load(folder, device="cpu")
    times = {"loaded": 1000 * (time.process_time() - start)}
    before = peak_memory()
    times["first"] = milliseconds(lambda: fingerprint(loaded))
    times["above"] = peak_memory() - before
    times["again"] = milliseconds(lambda: fingerprint(loaded))
    with (folder / "model.safetensors").open("rb") as file:
        times["file"] = milliseconds(lambda: hashlib.file_digest(file, "sha256"))
    return times


def milliseconds(work: Callable[[], object]) -> float:
    """Of the processor, that a piece of work takes."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


def peak_memory() -> float:
    """Megabytes that were resident at most so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def random_model(folder: Path) -> Path:
    """A BERT of base size with the tokenizer of headlight-mini."""
    torch.manual_seed(0)
    config = bert_core.BertConfig(**SIZES)
    bert_core.BertForPreTraining(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((MINI / name).read_bytes())
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1 if QUICK else 7)
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    options = parse_arguments(parser)
    if options.of is not None:
        print(json.dumps(measure(options.of)))
        return
    lines = [
        f"{os.cpu_count()} CPUs; torch {torch.__version__}; medians of {options.rounds}; "
        f"{time.strftime('%Y-%m-%d')}.\n",
        "| model | parameters | file | " + " | ".join(f"{name}, {unit}" for _, name, unit in ROWS) + " |",
        "| --- |" + " ---: |" * (2 + len(ROWS)),
    ]
    with tempfile.TemporaryDirectory() as space:
        for name, folder in (("headlight-mini", MINI), ("12 layers", random_model(Path(space) / "base"))):
            command = [sys.executable, __file__, "--of", str(folder)]
            rounds = [
                json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                for _ in range(options.rounds)
            ]
            parameters = sum(
                tensor.numel() for tensor in bert_core.load(folder, device="cpu").trained_parameters.values()
            )
            size = (folder / "model.safetensors").stat().st_size
            cells = [f"{statistics.median(round_times[key] for round_times in rounds):,.1f}" for key, *_ in ROWS]
            lines.append(f"| {name} | {parameters / 1e6:,.1f} M | {size / 1e6:,.0f} MB | {' | '.join(cells)} |")
    print(text := "\n".join(lines) + "\n")
    if options.write:
        write_table(__file__, text)


if __name__ == "__main__":
    main()

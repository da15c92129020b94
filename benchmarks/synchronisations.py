"""How often the host waits for a GPU: counted on an emulated CUDA device, with headlight-mini.

    python benchmarks/synchronisations.py                     print the table
    python benchmarks/synchronisations.py --before FOLDER     and the counts of the bert_core in another checkout
    python benchmarks/synchronisations.py --before FOLDER --write    and put it into benchmarks/README.md
    python benchmarks/synchronisations.py --quick             the first row alone, to check that it works

A host that asks a GPU for a value (`.item()`, `.cpu()`, `.tolist()`, the truth of a tensor, a mask as an index) waits
until the GPU has finished all that it was given, and the GPU then waits for the host. Copies to the GPU and the files
that are written at the end are not counted. Needs what tests/emulated_device.py needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tables import QUICK, parse_arguments, write_table

ROOT = Path(__file__).parents[1]
MODEL = "headlight-mini"
WRITING = ("checkpoint.py", "translators.py")  # the modules that write weights
# What is counted, and the path of tests/device_paths.py; of two paths the second has 40 steps of training more.
ROWS: dict[str, tuple[str, ...]] = {
    "`capture`, with norms": ("capture",),
    "`capture`, with a target": ("capture_with_gradients",),
    "`captures`, 3 texts": ("captures",),
    "`word_states`, 6 texts": ("word_states_of_texts",),
    "`attention_maps`, 6 texts": ("attention_maps_of_texts",),
    "`states_of`, 6 texts, 7 depths": ("states_of_texts",),
    "`logit_lens`, 7 depths": ("logit_lens",),
    "`estimate_patches`, 9 kinds": ("estimate_patches",),
    "`compare_models`, 4 texts": ("compare_models",),
    "`iter_heads`, 48 lines": ("iter_heads",),
    "`generate`, 24 tokens": ("greedy_decoding",),
    "pre-training, a step": ("pretrain_20_steps", "pretrain_60_steps"),
    "tuned lens, a step": ("tune_lens_20_steps", "tune_lens_60_steps"),
}
MORE_STEPS = 40


def count(checkout: Path) -> dict[str, int]:
    """The synchronisations of every path, with the bert_core of a checkout and the paths of this one."""
    sys.path.insert(0, str(checkout))
    import bert_core

    sys.path[0] = str(ROOT)
    from tests import device_paths, emulated_device

    assert Path(bert_core.__file__).parents[1] == checkout
    emulated_device.install("cuda")
    names = ["capture"] if QUICK else [name for row in ROWS.values() for name in row]
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        side = device_paths.Side("cuda", {"tiny": MODEL}, Path(folder))
        for name in names:
            _ = side.tiny, side.pruned, side.text, side.target  # loading is not counted
            emulated_device.synchronisations.clear()
            device_paths.PATHS[name](side)
            counts[name] = sum(
                number
                for location, number in emulated_device.synchronisations.items()
                if not location.startswith(WRITING)
            )
    return counts


def counts_of(checkout: Path) -> dict[str, str]:
    """The cell of every row, counted in a process of its own: the emulator changes torch."""
    command = [sys.executable, __file__, "--count", str(checkout), *["--quick"] * QUICK]
    counts = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    cells = {}
    for label, names in ROWS.items():
        if names[0] in counts:
            first, *remaining = (counts[name] for name in names)
            cells[label] = f"{(remaining[0] - first) / MORE_STEPS:g}" if remaining else str(first)
    return cells


def table(before: Path | None) -> str:
    """The whole count as Markdown."""
    columns = {"before": before, "now": ROOT} if before else {"now": ROOT}
    cells = {name: counts_of(checkout) for name, checkout in columns.items()}
    lines = [
        f"Emulated CUDA device, torch {torch.__version__}, {MODEL}.",
        "",
        f"| what | {' | '.join(columns)} |",
        f"| --- |{' ---: |' * len(columns)}",
        *(f"| {label} | {' | '.join(cells[name][label] for name in columns)} |" for label in cells["now"]),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="How often the host waits for a GPU.")
    parser.add_argument("--before", type=Path, help="the checkout of another commit")
    parser.add_argument("--count", type=Path, help=argparse.SUPPRESS)
    arguments = parse_arguments(parser)
    if arguments.count:
        print(json.dumps(count(arguments.count)))
        from tests import emulated_device

        emulated_device.leave()
    sys.path.insert(0, str(ROOT))
    from tests.emulated_device import unavailable

    if reason := unavailable():
        print(reason)
        return
    text = table(arguments.before and arguments.before.resolve())
    print(text)
    if arguments.write:
        write_table(__file__, text)


if __name__ == "__main__":
    main()

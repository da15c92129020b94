"""What loading a model takes: a process with its first one, and the next; ours and transformers', on the same files.

A process of its own for every number, in turns; seconds of the processor. What Python itself takes to start is in the
first number.

python benchmarks/loading.py [--rounds 9] [--write | --quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import transformers
from tables import QUICK, parse_arguments, write_table

ROOT = Path(__file__).parents[1]
LOADS = {
    "ours": "import bert_core\nload = lambda: bert_core.load('headlight-mini', device='cpu')",
    "transformers": (
        "from transformers import BertForPreTraining, BertTokenizerFast\n"
        "from pathlib import Path\nimport bert_core\n"
        "folder = Path(bert_core.__file__).parent / 'assets' / 'headlight-mini'\n"
        "load = lambda: (BertForPreTraining.from_pretrained(folder).eval(), BertTokenizerFast.from_pretrained(folder))"
    ),
}
TIMED = """
import time, sys
load()
print(first := time.process_time())
load()
print(time.process_time() - first)
print(int("torch._dynamo" in sys.modules))
"""


def measured(name: str) -> list[float]:
    """Seconds of a process that loads one and of its next, and whether torch's compiler was imported."""
    process = subprocess.run(
        [sys.executable, "-c", LOADS[name] + TIMED], cwd=ROOT, text=True, capture_output=True, check=True
    )
    return [float(line) for line in process.stdout.splitlines()[-3:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1 if QUICK else 9)
    options = parse_arguments(parser)
    rounds = [{name: measured(name) for name in LOADS} for _ in range(options.rounds)]
    lines = [
        f"{os.cpu_count()} CPUs; torch {torch.__version__}, transformers {transformers.__version__}; medians of "
        f"{options.rounds}; {time.strftime('%Y-%m-%d')}.\n",
        "| | a process with one model | the next model | imports torch's compiler |",
        "| --- | ---: | ---: | --- |",
    ]
    for name in LOADS:
        first, second, compiler = (statistics.median(round_times[name][n] for round_times in rounds) for n in range(3))
        lines.append(f"| {name} | {first:.2f} s | {second:.2f} s | {'yes' if compiler else 'no'} |")
    print(text := "\n".join(lines))
    if options.write:
        write_table(__file__, text + "\n")


if __name__ == "__main__":
    main()

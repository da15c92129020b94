"""What the benchmarks share: their command line, and README.md beside this file, where the tables stand."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

README = Path(__file__).with_name("README.md")
QUICK = "--quick" in sys.argv  # read before `parse_arguments` is called: the sizes are constants of the scripts
# Of a model with random weights, which has base size otherwise.
SIZES: dict[str, Any] = (
    {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if QUICK else {}
)


def parse_arguments(parser: argparse.ArgumentParser, *, table: bool = True) -> argparse.Namespace:
    """The command line of a benchmark: the options of its parser, --quick, and --write if it has a table in README.md.

    Raises SystemExit for --quick together with --write.
    """
    if table:
        parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--quick", action="store_true", help="the smallest size, to check that the script works")
    parser.allow_abbrev = False  # `QUICK` knows the whole name only
    arguments = parser.parse_args()
    if table and arguments.quick and arguments.write:
        raise SystemExit("--write with --quick: README.md takes tables of the full size only, so give one of the two")
    return arguments


def command(script: str, description: str, table: Callable[[], str], measure: Callable[..., object]) -> None:
    """Print a script's table, and with --write put it into README.md; or be the process of `in_own_process`.

    measure: what such a process finds.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    arguments = parse_arguments(parser)
    if arguments.measure is not None:
        print(json.dumps(measure(*arguments.measure)))
        return
    text = table()
    print(text)
    if arguments.write:
        write_table(script, text)


def in_own_process(script: str, *arguments: object, malloc: dict[str, str]) -> dict:
    """What a script's `measure` finds of these in a process of its own, with these settings of malloc and no others.

    With --quick in this process, which saves most of the time; the arguments and the result still pass through JSON.
    """
    if QUICK:
        measure = sys.modules["__main__"].measure
        result: dict = json.loads(json.dumps(measure(*json.loads(json.dumps(arguments)))))
        return result
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | malloc
    started = [sys.executable, script, "--measure", json.dumps(arguments)]
    output: dict = json.loads(subprocess.run(started, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    return output


def write_table(script: str, table: str) -> None:
    """Put a script's table (Markdown, ends with a line break) between its markers."""
    start, end = f"<!-- table of {Path(script).name} -->\n", f"<!-- end of {Path(script).name} -->\n"
    before, start_marker, remainder = README.read_text(encoding="utf-8").partition(start)
    _, closed, after = remainder.partition(end)
    if not (start_marker and closed):
        raise SystemExit(f"{README} has no place for the table of {Path(script).name}")
    README.write_text(before + start + table + end + after, encoding="utf-8")

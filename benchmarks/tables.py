"""What the benchmarks with a table share: their command, and README.md beside this file, where the tables stand."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

README = Path(__file__).with_name("README.md")


def command(
    script: str, about: str, table: Callable[..., str], measure: Callable[..., object], quick: str = ""
) -> None:
    """Print a script's table, and with --write put it into README.md; or be the process of `in_own_process`.

    measure: what such a process finds. quick: what --quick does, by which `table` is then told of it.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(json.dumps(measure(*asked.measure)))
        return
    found = table(asked.quick) if quick else table()
    print(found)
    if asked.write:
        write_table(script, found)


def in_own_process(script: str, *given: object, malloc: dict[str, str]) -> dict:
    """What a script's `measure` finds of these in a process of its own, with these settings of malloc and no others."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | malloc
    started = [sys.executable, script, "--measure", json.dumps(given)]
    found: dict = json.loads(subprocess.run(started, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    return found


def write_table(script: str, table: str) -> None:
    """Put a script's table (Markdown, ends with a line break) between its markers."""
    start, end = f"<!-- table of {Path(script).name} -->\n", f"<!-- end of {Path(script).name} -->\n"
    before, opened, rest = README.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise SystemExit(f"{README} has no place for the table of {Path(script).name}")
    README.write_text(before + start + table + end + after, encoding="utf-8")

"""Where the tables of the benchmarks stand: README.md beside this file."""

from __future__ import annotations

from pathlib import Path

README = Path(__file__).with_name("README.md")


def write_table(script: str, table: str) -> None:
    """Put a script's table (Markdown, ends with a line break) between its markers."""
    start, end = f"<!-- table of {Path(script).name} -->\n", f"<!-- end of {Path(script).name} -->\n"
    before, opened, rest = README.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise SystemExit(f"{README} has no place for the table of {Path(script).name}")
    README.write_text(before + start + table + end + after, encoding="utf-8")

"""Tables and values that a command prints or writes: as aligned text, CSV or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from viz_app.cli.shared import write_file


def text_table(columns: Mapping[str, str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines of aligned text below the headings.

    columns: heading -> format specification of its values, such as ".1%". A column of numbers is aligned to the right,
        one of texts, whose specification is empty, to the left.
    rows: one value per column; texts are printed unchanged, and None as "-".
    """
    formats = list(columns.values())
    table = [list(columns), *([_cell(value, spec) for value, spec in zip(row, formats, strict=True)] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if spec else cell.ljust(width)
            for cell, width, spec in zip(row, widths, formats, strict=True)
        )
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def print_table(columns: Mapping[str, str], rows: Iterable[Sequence[object]]) -> None:
    """Print the lines of `text_table`."""
    typer.echo(text_table(columns, rows))


def print_csv(headings: Sequence[str], rows: Iterable[Sequence[object]], *, line_end: str = "\r\n") -> None:
    """Print rows below their headings as CSV, with a question mark for half of a surrogate pair, which has no UTF-8."""
    from bert_core.csv_cells import as_csv

    typer.echo(as_csv([headings, *rows], line_end).encode("utf-8", "replace").decode(), nl=False)


def write_csv(headings: Sequence[str], rows: Iterable[Sequence[object]], path: Path) -> None:
    """Write rows below their headings to a file as CSV, atomically."""
    from bert_core.csv_cells import as_csv

    write_file(path, as_csv([headings, *rows]))


def json_line(value: object) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def write_json(value: object, path: Path) -> None:
    """Write a value to a file as JSON, atomically, with null for NaN."""
    write_file(path, json.dumps(_without_nan(value), ensure_ascii=False, indent=1) + "\n")


def _cell(value: object, spec: str) -> str:
    """Return the text of a cell."""
    return "-" if value is None else value if isinstance(value, str) else format(value, spec)


def _without_nan(value: Any) -> Any:
    """Return a value of dicts, lists and numbers with None in place of NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value

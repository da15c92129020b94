"""Text in the cells of CSV files, protected from being read as a formula by spreadsheets.

A cell that begins with a formula character gets an apostrophe in front, which spreadsheets take as the mark of a text.
So does a cell that begins with apostrophes and then a formula character. Removing one apostrophe restores either text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

# Characters that begin a formula, their full-width forms, and whitespace that spreadsheets skip before a formula.
FORMULA_CHARACTERS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NEEDS_APOSTROPHE = re.compile(f"'*[{re.escape(''.join(FORMULA_CHARACTERS))}]")
_HAS_APOSTROPHE = re.compile(f"'+[{re.escape(''.join(FORMULA_CHARACTERS))}]")
Value = TypeVar("Value")


def safe_cell(value: Value) -> Value | str:
    """Return a value for a CSV cell, with an apostrophe in front of a text that could be read as a formula."""
    return f"'{value}" if isinstance(value, str) and _NEEDS_APOSTROPHE.match(value) else value


def original_text(cell: str) -> str:
    """Return the text from which `safe_cell` made a cell."""
    return cell[1:] if _HAS_APOSTROPHE.match(cell) else cell


def as_csv(rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """Return rows as CSV text with safe cells, numbers in full precision, and an empty cell for None."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=line_end).writerows([safe_cell(value) for value in row] for row in rows)
    return out.getvalue()

"""Text in the cells of CSV files: no spreadsheet takes it for a formula, and it is read back as it was.

A cell that begins with a formula sign gets an apostrophe in front, which spreadsheets take for the mark of a text. So
does a cell that begins with apostrophes and then such a sign, so that taking one apostrophe off gives the text back.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

# Signs with which spreadsheets begin a formula, their full-width forms, and blanks that they skip before one.
FORMULA_CHARACTERS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NEEDS_APOSTROPHE = re.compile(f"'*[{re.escape(''.join(FORMULA_CHARACTERS))}]")
_HAS_APOSTROPHE = re.compile(f"'+[{re.escape(''.join(FORMULA_CHARACTERS))}]")
Value = TypeVar("Value")


def safe_cell(value: Value) -> Value | str:
    """A value for a cell; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and _NEEDS_APOSTROPHE.match(value) else value


def original_text(cell: str) -> str:
    """The text of which `safe_cell` made a cell."""
    return cell[1:] if _HAS_APOSTROPHE.match(cell) else cell


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, with safe cells; numbers in full precision, and nothing for None."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows([safe_cell(value) for value in row] for row in rows)
    return out.getvalue()

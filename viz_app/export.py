"""What is on a page as a file: numbers as CSV or NPZ."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import numpy as np


def tidy_csv(tables: Mapping[str, np.ndarray], row_labels: Sequence[str]) -> bytes:
    """Tables (row, column) as one CSV in UTF-8, one number a line: name, row, label, column, value.

    Values are in full precision. A label that a spreadsheet would take for a formula gets an apostrophe in front.
    Raises ValueError if a table has another number of rows than there are labels.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["name", "row", "label", "column", "value"])
    safe = [f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) else label for label in row_labels]
    for name, table in tables.items():
        if len(table) != len(safe):
            raise ValueError(f"{name} has {len(table)} rows for {len(safe)} labels: one for each")
        for row, (label, values) in enumerate(zip(safe, table, strict=True)):
            # The shortest text that reads back as the same float32.
            writer.writerows([name, row, label, column, str(value)] for column, value in enumerate(values))
    return out.getvalue().encode("utf-8")


def npz(arrays: Mapping[str, np.ndarray], **texts: Sequence[str]) -> bytes:
    """Arrays by name, and texts beside them, as a compressed NPZ that `numpy.load` reads without pickle."""
    out = io.BytesIO()
    np.savez_compressed(out, **arrays, **{name: np.array(list(words)) for name, words in texts.items()})  # type: ignore[arg-type]
    return out.getvalue()

"""Tables of attention heads as CSV or Parquet files with one row per head: writing, and reading with checks."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.records import HeadTable
from bert_core.refused import Refused, validate_arguments
from bert_core.run.ablation import REPLACEMENTS
from bert_core.studies.rows import detect_separator
from bert_core.studies.tables import check_table_suffix, write_columns
from bert_core.target_kinds import CUSTOM, FILE_QUESTIONS

MAX_MEGABYTES = 8  # size of a file; the table of a model with 96 layers of 96 heads is smaller
MAX_LAYERS = MAX_HEADS = 256
MAX_COLUMNS = 64
_DECIMAL_COMMA = re.compile(r"^\s*([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$")
_FIXED = ("model", "layer", "head", "texts", "tokens", "loss")
_WEIGHTS = "weights"  # column with the fingerprint of the model; tables of version 0.2 lack it
# Columns with one value for all heads, and its allowed values; tables without them have the first value.
_NAMED_VALUES = {"loss_of": FILE_QUESTIONS, "method": REPLACEMENTS}


@validate_arguments
def write_table(table: HeadTable, path: Path) -> None:
    """Write a table with one row per existing head.

    path: a `.csv` file, with numbers in full precision and empty cells for None, or a `.parquet` file. The file is
        complete or not written at all.
    Raises Refused for another suffix.
    """
    write_columns(_columns(table), path)


@validate_arguments
def read_table(data: bytes, name: str) -> HeadTable:
    """Read a table of `write_table`.

    data: content of the file. name: name of the file, whose suffix gives its format.
    A CSV file saved by a spreadsheet may separate fields by semicolons, and may then have decimal commas.
    Raises Refused for a file that is not such a table, is too large, or has rows that do not fit each other.
    """
    check_table_suffix(Path(name))
    if len(data) > MAX_MEGABYTES * 1_000_000:
        raise Refused(f"the file {name} has {len(data) / 1e6:.1f} MB: a table of heads has at most {MAX_MEGABYTES} MB")
    columns = _parquet(data, name) if name.lower().endswith(".parquet") else _csv(data, name)
    missing = [column for column in _FIXED if column not in columns]
    if len(columns) > MAX_COLUMNS:
        raise Refused(f"the file {name} has {len(columns)} columns: a table of heads has at most {MAX_COLUMNS}")
    if missing or len(columns.keys() - {*_NAMED_VALUES, _WEIGHTS}) == len(_FIXED):
        missing_part = f"the column {missing[0]!r}" if missing else "a column of figures"
        raise Refused(f"the file {name} lacks {missing_part}: a table of heads comes from `headlight heads`")
    weights = {str(value) for value in columns.pop(_WEIGHTS, [""])}
    models = set(columns["model"])
    if len(weights) != 1:
        raise Refused(f"the file {name} has the fingerprints of {len(weights)} models: a table describes one model")
    if len(models) != 1 or not isinstance(model := next(iter(models)), str):
        raise Refused(f"the file {name} has the names of {len(models)} models: a table describes one model")
    layers, heads = (_integers(columns[column], column, name) for column in ("layer", "head"))
    if len(set(zip(layers, heads, strict=True))) < len(layers):
        raise Refused(f"the file {name} has a head twice")
    figures = {}
    named_values = {}
    for column, (default, *alternatives) in _NAMED_VALUES.items():
        if column == "loss_of":
            alternatives.append(CUSTOM)
        values = {str(value) for value in columns.pop(column, [default])}
        if len(values) != 1 or not values <= {default, *alternatives}:
            raise Refused(
                f"the column {column!r} of {name} must be one of {', '.join((default, *alternatives))}, the same for "
                "every head"
            )
        named_values[column] = values.pop()
    for column in columns.keys() - set(_FIXED):
        figure = np.full((max(layers) + 1, max(heads) + 1), np.nan)
        figure[layers, heads] = _numbers(columns[column], column, name)
        figures[column] = figure
    loss = _numbers(columns["loss"], "loss", name)[0]
    return HeadTable(
        model,
        _integers(columns["texts"], "texts", name)[0],
        _integers(columns["tokens"], "tokens", name)[0],
        figures,
        None if math.isnan(loss) else float(loss),
        weights=weights.pop(),
        **named_values,
    )


def check_fits(table: HeadTable, model: str, layers: int, heads: int, weights: str) -> None:
    """Raise Refused unless a table belongs to a model with this name, these sizes and these weights.

    model: name of the model. layers, heads: its numbers of layers and of heads per layer.
    weights: fingerprint of the model. A table of version 0.2 has none, and only its name and sizes are compared.
    """
    rows, columns = table.shape
    if table.model != Path(model).name or rows > layers or columns > heads:
        raise Refused(
            f"the table was made with {table.model[:60]} ({rows} layers of {columns} heads), but the model here is "
            f"{Path(model).name} ({layers} layers of {heads} heads): choose the model of the table"
        )
    check_weights(table, weights, f"the model {Path(model).name} here")


def check_weights(table: HeadTable, weights: str, owner: str) -> None:
    """Raise Refused if a table has a fingerprint and it is not `weights`.

    weights: fingerprint of a model. owner: description of the model or index with this fingerprint, for the error.
    """
    if table.weights and table.weights != weights:
        raise Refused(
            f"the table was measured with {table.model[:60]} of fingerprint {table.weights[:60]}, but {owner} has "
            f"fingerprint {weights}: measure it again with `headlight heads`"
        )


def _columns(table: HeadTable) -> dict[str, list[Any]]:
    """Return the columns of a table, with one row for each head that has a finite figure."""
    existing = np.argwhere(np.any([np.isfinite(values) for values in table.figures.values()], axis=0))  # (row, 2)
    fixed: dict[str, list[Any]] = {
        "model": [table.model] * len(existing),
        "layer": existing[:, 0].tolist(),
        "head": existing[:, 1].tolist(),
        "texts": [table.texts] * len(existing),
        "tokens": [table.tokens] * len(existing),
        "loss": [table.loss] * len(existing),
        **{column: [getattr(table, column)] * len(existing) for column in _NAMED_VALUES},
        **({_WEIGHTS: [table.weights] * len(existing)} if table.weights else {}),
    }
    return fixed | {name: values[existing[:, 0], existing[:, 1]].tolist() for name, values in table.figures.items()}


def _csv(data: bytes, name: str) -> dict[str, list[Any]]:
    """Return the columns of a CSV file as texts. Raises Refused for a file that is not a table."""
    try:
        text = data.decode("utf-8-sig")
        separator = detect_separator(text.partition("\n")[0])
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"the file {name} is not a table in UTF-8: {str(error)[:80]}") from error
    if len(rows) < 2 or len(set(rows[0])) < len(rows[0]) or any(len(row) != len(rows[0]) for row in rows):
        raise Refused(f"the file {name} is not a table of heads: every row needs as many fields as the header")
    if separator == ";":  # spreadsheets use semicolons where the comma is the decimal separator
        rows[1:] = [[_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] for row in rows[1:]]
    return {column: [row[n] for row in rows[1:]] for n, column in enumerate(rows[0])}


def _parquet(data: bytes, name: str) -> dict[str, list[Any]]:
    """Return the columns of a Parquet file. Raises Refused for a damaged, empty or too large file."""
    import pyarrow
    from pyarrow import parquet

    try:
        source = parquet.ParquetFile(pyarrow.BufferReader(data))
        row_count = source.metadata.num_rows
        unpacked = sum(source.metadata.row_group(n).total_byte_size for n in range(source.metadata.num_row_groups))
        if row_count > MAX_LAYERS * MAX_HEADS or unpacked > 8_000_000 * MAX_MEGABYTES:
            raise Refused(
                f"the file {name} has {row_count:,} rows and unpacks to {unpacked / 1e6:,.0f} MB: a table of heads has "
                f"one row per head, at most {MAX_LAYERS * MAX_HEADS:,}"
            )
        rows: Mapping[str, list[Any]] = source.read().to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"the file {name} is not a whole Parquet file: {' '.join(str(error).split())[:80]}") from error
    if not rows or not next(iter(rows.values())):
        raise Refused(f"the file {name} is not a table of heads: it has no rows")
    return dict(rows)


def _numbers(values: Sequence[Any], column: str, name: str) -> np.ndarray:
    """Return the values of a column as float64, with NaN for empty cells. Raises Refused for other texts."""
    try:
        return np.array([float("nan") if value in ("", None) else float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise Refused(f"the column {column!r} of {name} contains a value that is not a number") from error


def _integers(values: Sequence[Any], column: str, name: str) -> list[int]:
    """Return the values of a column as integers. Raises Refused for other numbers, and for too large ones."""
    numbers = _numbers(values, column, name)
    limit = {"layer": MAX_LAYERS, "head": MAX_HEADS}.get(column, 1e15)
    if not ((numbers >= 0) & (numbers < limit) & (numbers == np.floor(numbers))).all():
        raise Refused(f"the column {column!r} of {name} must hold whole numbers from 0 and below {limit:.0f}")
    return [int(number) for number in numbers]

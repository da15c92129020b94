"""Tables of heads as files: one row a head, CSV or Parquet, and back with every doubt said."""

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
from bert_core.target_kinds import FILE_QUESTIONS

MAX_MEGABYTES = 8  # megabytes: a model of 96 layers of 96 heads has less
MAX_LAYERS = MAX_HEADS = 256
MAX_COLUMNS = 64
_DECIMAL_COMMA = re.compile(r"^\s*([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$")
_FIXED = ("model", "layer", "head", "texts", "tokens", "loss")
_WEIGHTS = "weights"  # the fingerprint of the model; tables of version 0.2 have no such column
_SAID = {"loss_of": FILE_QUESTIONS, "method": REPLACEMENTS}  # older tables do not say it, and mean the first


@validate_arguments
def write_table(table: HeadTable, path: Path) -> None:
    """One row a head that is there, whole or not at all; in `.csv` numbers in full precision, and nothing for None.

    Raises Refused for another kind of file.
    """
    write_columns(_columns(table), path)


@validate_arguments
def read_table(data: bytes, name: str) -> HeadTable:
    """A table that `write_table` wrote; name: of the file, whose end says its kind.

    A CSV that went through a spreadsheet may have semicolons between fields, and then decimal commas.

    Raises Refused, in one sentence, for a file that is none, is too large, or whose rows do not fit each other.
    """
    check_table_suffix(Path(name))
    if len(data) > MAX_MEGABYTES * 1_000_000:
        raise Refused(f"the file {name} has {len(data) / 1e6:.1f} MB: a table of heads has {MAX_MEGABYTES} at most")
    columns = _parquet(data, name) if name.endswith(".parquet") else _csv(data, name)
    missing = [column for column in _FIXED if column not in columns]
    if len(columns) > MAX_COLUMNS:
        raise Refused(f"the file {name} has {len(columns)} columns: a table of heads has {MAX_COLUMNS} at most")
    if missing or len(columns.keys() - {*_SAID, _WEIGHTS}) == len(_FIXED):
        what = f"the column {missing[0]!r}" if missing else "a figure"
        raise Refused(f"the file {name} lacks {what}: a table of heads comes from `headlight heads`")
    weights = {str(value) for value in columns.pop(_WEIGHTS, [""])}
    models = set(columns["model"])
    if len(weights) != 1:
        raise Refused(f"the file {name} is of {len(weights)} models with other weights: a table is of one")
    if len(models) != 1 or not isinstance(model := next(iter(models)), str):
        raise Refused(f"the file {name} is of {len(models)} models: a table is of one")
    layers, heads = (_whole_numbers(columns[column], column, name) for column in ("layer", "head"))
    if len(set(zip(layers, heads, strict=True))) < len(layers):
        raise Refused(f"the file {name} has a head twice")
    figures = {}
    said = {}
    for column, (default, *others) in _SAID.items():
        words = {str(value) for value in columns.pop(column, [default])}
        if len(words) != 1 or not words <= {default, *others}:
            raise Refused(
                f"the column {column!r} of {name} is one of {', '.join((default, *others))}, the same for every head"
            )
        said[column] = words.pop()
    for column in columns.keys() - set(_FIXED):
        values = np.full((max(layers) + 1, max(heads) + 1), np.nan)
        values[layers, heads] = _numbers(columns[column], column, name)
        figures[column] = values
    loss = _numbers(columns["loss"], "loss", name)[0]
    return HeadTable(
        model,
        _whole_numbers(columns["texts"], "texts", name)[0],
        _whole_numbers(columns["tokens"], "tokens", name)[0],
        figures,
        None if math.isnan(loss) else float(loss),
        weights=weights.pop(),
        **said,
    )


def check_fits(table: HeadTable, model: str, layers: int, heads: int, weights: str) -> None:
    """Raise Refused for a table of another model than this one.

    weights: the fingerprint of this one. A table of version 0.2 has none, and is taken by its name and sizes.
    """
    rows, columns = table.shape
    if table.model != Path(model).name or rows > layers or columns > heads:
        raise Refused(
            f"the table was made with {table.model[:60]} ({rows} layers of {columns} heads), but the model here is "
            f"{Path(model).name} ({layers} of {heads}): choose the model it was made with"
        )
    check_weights(table, weights, f"the model {Path(model).name} here")


def check_weights(table: HeadTable, weights: str, what: str) -> None:
    """Raise Refused for a table of other weights than these; none for a table that does not say of which it is.

    weights: a fingerprint. what: whose it is, in words.
    """
    if table.weights and table.weights != weights:
        raise Refused(
            f"the table was measured with {table.model[:60]} of fingerprint {table.weights[:60]}, but {what} has "
            f"fingerprint {weights}: measure it again with `headlight heads`"
        )


def _columns(table: HeadTable) -> dict[str, list[Any]]:
    there = np.argwhere(np.any([np.isfinite(values) for values in table.figures.values()], axis=0))
    fixed: dict[str, list[Any]] = {
        "model": [table.model] * len(there),
        "layer": there[:, 0].tolist(),
        "head": there[:, 1].tolist(),
        "texts": [table.texts] * len(there),
        "tokens": [table.tokens] * len(there),
        "loss": [table.loss] * len(there),
        **{column: [getattr(table, column)] * len(there) for column in _SAID},
        **({_WEIGHTS: [table.weights] * len(there)} if table.weights else {}),
    }
    return fixed | {name: values[there[:, 0], there[:, 1]].tolist() for name, values in table.figures.items()}


def _csv(data: bytes, name: str) -> dict[str, list[Any]]:
    try:
        text = data.decode("utf-8-sig")
        separator = detect_separator(text.partition("\n")[0])
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"the file {name} is not a table in UTF-8: {str(error)[:80]}") from error
    if len(rows) < 2 or len(set(rows[0])) < len(rows[0]) or any(len(row) != len(rows[0]) for row in rows):
        raise Refused(f"the file {name} is not a table of heads: every row needs as many fields as the header")
    if separator == ";":  # from a spreadsheet whose decimal point is the comma
        rows[1:] = [[_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] for row in rows[1:]]
    return {column: [row[n] for row in rows[1:]] for n, column in enumerate(rows[0])}


def _parquet(data: bytes, name: str) -> dict[str, list[Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        source = parquet.ParquetFile(pyarrow.BufferReader(data))
        rows_of = source.metadata.num_rows
        unpacked = sum(source.metadata.row_group(n).total_byte_size for n in range(source.metadata.num_row_groups))
        if rows_of > MAX_LAYERS * MAX_HEADS or unpacked > 8_000_000 * MAX_MEGABYTES:
            raise Refused(
                f"the file {name} has {rows_of:,} rows and unpacks to {unpacked / 1e6:,.0f} MB: one row a head"
            )
        rows: Mapping[str, list[Any]] = source.read().to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"the file {name} is not a whole Parquet file: {' '.join(str(error).split())[:80]}") from error
    if not rows or not next(iter(rows.values())):
        raise Refused(f"the file {name} is not a table of heads: it has no rows")
    return dict(rows)


def _numbers(values: Sequence[Any], column: str, name: str) -> np.ndarray:
    """The values of a column as float64; NaN where a cell is empty. Raises Refused for what is no number."""
    try:
        return np.array([float("nan") if value in ("", None) else float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise Refused(f"the column {column!r} of {name} holds something else than numbers") from error


def _whole_numbers(values: Sequence[Any], column: str, name: str) -> list[int]:
    numbers = _numbers(values, column, name)
    limit = {"layer": MAX_LAYERS, "head": MAX_HEADS}.get(column, 1e15)
    if not ((numbers >= 0) & (numbers < limit) & (numbers == np.floor(numbers))).all():
        raise Refused(f"the column {column!r} of {name} counts from zero, in whole numbers below {limit:.0f}")
    return [int(number) for number in numbers]

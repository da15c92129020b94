"""Tables in .csv and .parquet files: written atomically, extended row by row, concatenated, and read in batches."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core import checkpoint
from bert_core.csv_cells import as_csv, original_text
from bert_core.refused import Refused

TABLE_SUFFIXES = (".csv", ".parquet")
ROWS_AT_ONCE = 4096


def check_table_suffix(path: Path) -> None:
    """Raise Refused unless the name of a file ends in .csv or .parquet, in any case."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise Refused(f"the name of the table {path.name} must end in {' or '.join(TABLE_SUFFIXES)}")


def write_columns(
    columns: Mapping[str, Sequence[Any]],
    path: Path,
    types: Mapping[str, str] | None = None,
    compression: str = "snappy",
) -> None:
    """Write a table atomically: the file contains the whole table, or is not changed.

    In a .csv file numbers have full precision, None is an empty cell, and texts are escaped for spreadsheets.
    columns: the values of each column, by its name.
    path: a file whose name ends in .csv or .parquet.
    types: names of Arrow types of columns in a .parquet file, for columns whose type must not depend on the values.
    compression: compression of a .parquet file.

    Raises Refused for another suffix.
    """
    check_table_suffix(path)
    if path.suffix.lower() == ".csv":
        checkpoint.write_atomically(path, as_csv([tuple(columns), *zip(*columns.values(), strict=True)]))
        return
    import pyarrow
    from pyarrow import parquet

    type_names = types or {}
    rows = pyarrow.table({
        name: pyarrow.array(values, pyarrow.type_for_alias(type_names[name]) if name in type_names else None)
        for name, values in columns.items()
    })  # fmt: skip
    checkpoint.write_atomically(path, lambda temporary: parquet.write_table(rows, temporary, compression=compression))


def concatenate_tables(parts: Sequence[Path], path: Path) -> None:
    """Write the rows of several tables with the same columns into one file. At most one part is held in memory.

    parts: the files in the order of their rows, all of the kind of `path`.
    path: the file to write, atomically.
    """

    def write_parquet(temporary: str) -> None:
        from pyarrow import parquet

        with parquet.ParquetWriter(temporary, parquet.read_schema(parts[0])) as writer:
            for part in parts:
                writer.write_table(parquet.read_table(part))

    def write_csv(temporary: str) -> None:
        with Path(temporary).open("wb") as target:
            for number, part in enumerate(parts):
                with part.open("rb") as rows:
                    header = rows.readline()
                    target.write(b"" if number else header)
                    shutil.copyfileobj(rows, target)

    checkpoint.write_atomically(path, write_parquet if path.suffix.lower() == ".parquet" else write_csv)


def read_column_names(path: Path) -> list[str]:
    """Return the column names of a table. Only the beginning of a .csv file is read.

    Raises Refused for a .parquet file that is damaged.
    """
    if path.suffix.lower() == ".parquet":
        import pyarrow
        from pyarrow import parquet

        try:
            return list(parquet.read_schema(path).names)
        except (pyarrow.ArrowException, OSError) as error:
            raise Refused(f"the file {path.name} is not a whole Parquet file") from error
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        header = lines.readline(1 << 16)
    return next(csv.reader([header]), [])


def read_batches(path: Path) -> Iterator[dict[str, list[Any]]]:
    """Yield the rows of a table in batches of some thousands, as a mapping of column names to values.

    The values of a .csv file are texts. A .csv file without rows gives one batch of empty columns.

    Raises Refused for a file that is damaged or is no table.
    """
    if path.suffix.lower() == ".parquet":
        import pyarrow
        from pyarrow import parquet

        try:
            for batch in parquet.ParquetFile(path).iter_batches():
                yield batch.to_pydict()
        except (pyarrow.ArrowException, OSError) as error:
            raise Refused(f"{path.name} is not a whole Parquet file: {' '.join(str(error).split())[:80]}") from error
        return
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            header, rows = next(reader, []), []
            for row in reader:
                if len(row) != len(header):
                    raise Refused(f"a row of {path.name} has {len(row)} fields and the header {len(header)}")
                rows.append([original_text(cell) for cell in row])
                if len(rows) == ROWS_AT_ONCE:
                    yield dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
                    rows = []
            columns = map(list, zip(*rows, strict=True)) if rows else ([] for _ in header)
            yield dict(zip(header, columns, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{path.name} is not a table in UTF-8: {str(error)[:80]}") from error


@dataclass(frozen=True)
class GrowingTable:
    """A CSV file to which a study appends rows, and whose last row may be incomplete after an interruption.

    path: the file.
    header: the names of the columns.
    kind: name of the kind of table, for error messages.
    """

    path: Path
    header: tuple[str, ...]
    kind: str

    def read_rows(self) -> list[list[str]]:
        """Return the complete rows without the header, or an empty list if there is no file or no header.

        Raises Refused if the file has other columns.
        """
        content = self._read_text()
        complete = content[: content.rfind("\n") + 1]  # the last line may be cut off
        try:
            rows = list(csv.reader(io.StringIO(complete, newline="")))
        except csv.Error:
            rows = [[]]
        if not rows:
            return []
        if tuple(rows[0]) != self.header:
            raise Refused(f"{self.path} exists and is no {self.kind}: choose another name")
        return [[original_text(cell) for cell in row] for row in rows[1:] if len(row) == len(self.header)]

    def replace_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Replace the rows of an existing file atomically. Do nothing if there is no file."""
        content = as_csv([self.header, *rows])
        if self.path.is_file() and self._read_text() != content:
            checkpoint.write_atomically(self.path, content.encode())

    def append_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Append rows, after the header in a new file, and flush them to the disk."""
        has_header = self.path.is_file() and self.path.stat().st_size > 0
        checkpoint.append_atomically(self.path, as_csv([*([] if has_header else [self.header]), *rows]))

    def _read_text(self) -> str:
        """Return the content of the file, or an empty text if there is none."""
        return self.path.read_bytes().decode(errors="replace") if self.path.is_file() else ""

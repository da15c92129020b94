"""Tables as files, .csv or .parquet: written whole or not at all, grown by rows, put together, read in batches."""

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
    """Raise Refused unless the name says CSV or Parquet."""
    if path.suffix not in TABLE_SUFFIXES:
        raise Refused(
            f"the file {path.name} is neither {' nor '.join(TABLE_SUFFIXES)}: the name of a table says which it is"
        )


def write_columns(
    columns: Mapping[str, Sequence[Any]],
    path: Path,
    types: Mapping[str, str] | None = None,
    compression: str = "snappy",
) -> None:
    """Write a table by the names of its columns, whole or not at all.

    In `.csv` numbers are in full precision, None is empty, and texts are safe in spreadsheets.
    types: names of Arrow types of columns, for `.parquet`, where they must not depend on the values. compression: of
    `.parquet`.
    Raises Refused for another kind of file.
    """
    check_table_suffix(path)
    if path.suffix == ".csv":
        checkpoint.write_atomically(path, as_csv([tuple(columns), *zip(*columns.values(), strict=True)]))
        return
    import pyarrow
    from pyarrow import parquet

    wanted = types or {}
    rows = pyarrow.table({
        name: pyarrow.array(values, pyarrow.type_for_alias(wanted[name]) if name in wanted else None)
        for name, values in columns.items()
    })  # fmt: skip
    checkpoint.write_atomically(path, lambda temporary: parquet.write_table(rows, temporary, compression=compression))


def concatenate_tables(parts: Sequence[Path], path: Path) -> None:
    """Write one table of the rows of several, which have the same columns; the memory is that of one part."""

    def as_parquet(temporary: str) -> None:
        from pyarrow import parquet

        with parquet.ParquetWriter(temporary, parquet.read_schema(parts[0])) as writer:
            for part in parts:
                writer.write_table(parquet.read_table(part))

    def as_lines(temporary: str) -> None:
        with Path(temporary).open("wb") as whole:
            for number, part in enumerate(parts):
                with part.open("rb") as rows:
                    header = rows.readline()
                    whole.write(b"" if number else header)
                    shutil.copyfileobj(rows, whole)

    checkpoint.write_atomically(path, as_parquet if path.suffix == ".parquet" else as_lines)


def read_column_names(path: Path) -> list[str]:
    """Of a table, read off its beginning. Raises Refused for a file that is none."""
    if path.suffix == ".parquet":
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
    """The rows of a table, some thousands at a time, as columns; of `.csv` every value as text.

    Raises Refused for a file that is cut off, or no table.
    """
    if path.suffix == ".parquet":
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
    """A CSV file that grows by some rows at a time, and may be left in the middle of one.

    header: the names of its columns. what: the kind of table, for errors.
    """

    path: Path
    header: tuple[str, ...]
    kind: str

    def read_rows(self) -> list[list[str]]:
        """The rows that are whole; none where there is no file, or one without its first row.

        Raises Refused for a file with other columns.
        """
        written = self._written()
        whole = written[: written.rfind("\n") + 1]  # the last may be cut off
        try:
            rows = list(csv.reader(io.StringIO(whole, newline="")))
        except csv.Error:
            rows = [[]]
        if not rows:
            return []
        if tuple(rows[0]) != self.header:
            raise Refused(f"{self.path} is there already and holds no {self.kind}: choose another name")
        return [[original_text(cell) for cell in row] for row in rows[1:] if len(row) == len(self.header)]

    def replace_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Make the file one of these rows, whole or not at all; where there is no file, none is made."""
        wanted = as_csv([self.header, *rows])
        if self.path.is_file() and self._written() != wanted:
            checkpoint.write_atomically(self.path, wanted.encode())

    def append_rows(self, rows: Iterable[Sequence[object]]) -> None:
        """Add some rows, and see them to the disk."""
        begun = self.path.is_file() and self.path.stat().st_size > 0
        checkpoint.append_atomically(self.path, as_csv([*([] if begun else [self.header]), *rows]))

    def _written(self) -> str:
        return self.path.read_bytes().decode(errors="replace") if self.path.is_file() else ""

"""Rows of a table of texts in .csv, .tsv, JSON Lines or JSON, with one clear error message for any invalid row."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core.refused import Refused, short_repr
from bert_core.studies.files import Format, InputFile, identify, utf8_error
from bert_core.studies.lines import MAX_LINE_BYTES, SHARD_LINES, Line, Shard

MAX_FIELD_CHARACTERS = 10_000_000
_limit_lock = threading.Lock()
MAX_JSON_BYTES = 2_000_000_000  # a .json file is read as a whole; this is some fifty times the size of SQuAD's
_RECORDS_FOR_FIELDS = 100  # records whose fields are listed
_MAX_LISTED_ROWS = 5
MAX_LISTED_NAMES = 10
MAX_OTHER_COLUMNS, MAX_VALUE_CHARACTERS = 50, 200  # of the columns that a study keeps without reading them
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
_RECORDS = (Format.JSON_LINES, Format.JSON)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table that a study reads.

    text: the column of the text.
    pair: the column of a second text, or None.
    answer: the column of the answer, which is a class or a word, or None.
    """

    text: str
    pair: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class LabelledText:
    """A text or a pair of texts with its class.

    text: the text.
    pair: the second text, or None.
    label: the class.
    row: number of the row in its file, counted from 1. The header of a .csv or .tsv is row 1. JSON Lines count lines,
        and a .json counts records.
    """

    text: str
    pair: str | None
    label: str
    row: int


def read_labelled(path: Path, text: str, label: str, pair: str | None = None) -> list[LabelledText]:
    """Read the texts of a table with their classes.

    path: a `.csv` separated by commas or semicolons (see `detect_separator`), a `.tsv` without quoting, JSON Lines, or
        a `.json` with a list of objects.
    text, label, pair: names of the columns of the text, its class, and the second text.

    Returns the rows in order, without empty lines.
    Raises Refused as `read_rows`, if a text or a class is empty, and if there are no rows.
    """
    examples = [example for example, _, _ in _read_examples(path, Columns(text, pair, label))]
    if not examples:
        raise Refused(f"{path.name} has no rows: there is nothing to learn from")
    return examples


def check_rows(path: Path, columns: Columns, classes: Collection[str] = (), *, pairs: bool = False) -> None:
    """Read a whole table, so that any invalid row is reported before work begins.

    path: the table.
    columns: names of the columns.
    classes: the answers that are allowed. Empty allows any.
    pairs: whether each row must have a second text.

    Raises Refused as `read_labelled`, and for an answer that is not in `classes`.
    """
    unknown_classes: dict[str, list[int]] = defaultdict(list)
    count = 0
    for example, _, _ in _read_examples(path, columns, pairs=pairs):
        count += 1
        if classes and example.label not in classes:
            unknown_classes[example.label].append(example.row)
    if not count:
        raise Refused(f"{path.name} has no rows: there is nothing to read")
    if unknown_classes:
        names = [f"{name!r:.60} ({format_rows(rows)})" for name, rows in unknown_classes.items()]
        raise Refused(
            f"{path.name} has the class{'es' if len(names) > 1 else ''} {join_names(names)}, which the model does not "
            f"have: its classes are {', '.join(classes)}"
        )


def table_lines(path: Path, columns: Columns) -> Iterator[Line]:
    """Yield the rows of a table, after `check_rows`, with a second text in each row if `columns` has one."""
    check_rows(path, columns, pairs=columns.pair is not None)
    for shard in row_shards(path, columns):
        yield from shard.lines


def row_shards(
    path: Path,
    columns: Columns,
    *,
    number: int = 0,
    start: int = 0,
    line: int = 0,
    size: int = SHARD_LINES,
    other_columns: Mapping[str, str] | None = None,
) -> Iterator[Shard]:
    """Yield the rows of a table in shards, as `line_shards` does for plain text. Only one shard is held in memory.

    A text longer than `MAX_LINE_BYTES` characters is truncated.
    path: the table.
    columns: names of the columns.
    number: number of the first shard.
    start: accepted for the signature of `line_shards`; the table is always read from its beginning.
    line: number of the first row, counted from 1.
    size: rows per shard.
    other_columns: other columns whose values are kept in the lines -> their names there; see `other_columns_of`.

    Raises Refused as `read_rows`.
    """
    counts: Counter[str] = Counter()
    rows: list[Line] = []
    end = start
    for example, fields, end in _read_examples(path, columns):
        if example.row < line:
            continue
        if len(rows) == size:
            yield Shard(number, tuple(rows), end, example.row, counts, end)
            number, rows, counts = number + 1, [], Counter()
        counts["lines"] += 1
        counts["overlong"] += max(len(example.text), len(example.pair or "")) > MAX_LINE_BYTES
        pair = None if example.pair is None else example.pair[:MAX_LINE_BYTES]
        values = None
        if other_columns:
            values = {name: fields.get(column, "") for column, name in other_columns.items()}
            counts["shortened values"] += sum(len(value) > MAX_VALUE_CHARACTERS for value in values.values())
            values = {name: _shorten(value) for name, value in values.items()}
        rows.append(Line(example.row, example.text[:MAX_LINE_BYTES], pair, example.label, columns=values))
    if rows:
        yield Shard(number, tuple(rows), end, rows[-1].number + 1, counts, end)


def other_columns_of(path: Path, columns: Columns, reserved_names: Collection[str] = ()) -> dict[str, str]:
    """Return the columns of a table that `columns` does not name -> their names in a result; at most 50.

    reserved_names: names that the result uses itself. A column with such a name gets " (file)" behind its name, and a
        column without a name is called "unnamed".
    Raises Refused as `read_rows`.
    """
    own_columns = (columns.text, columns.pair, columns.answer)
    names: dict[str, str] = {}
    for column in input_columns(identify(path)):
        if column in own_columns or column in names or len(names) == MAX_OTHER_COLUMNS:
            continue
        name = column or "unnamed"
        while name in reserved_names or name in names.values():
            name += " (file)"
        names[column] = name
    return names


def _shorten(value: str) -> str:
    """Return a value of at most `MAX_VALUE_CHARACTERS` characters, which ends in "…" if it was longer."""
    return value if len(value) <= MAX_VALUE_CHARACTERS else value[: MAX_VALUE_CHARACTERS - 1] + "…"


def detect_separator(header: str) -> str:
    """Return the separator of a table with this first line: "," or ";", whichever is more frequent outside quotes.

    Spreadsheets write semicolons where the comma is the decimal separator. If both are equally frequent, it is ",".
    """
    return max(",;", key=re.sub(r'"[^"]*"', "", header).count)


def join_names(names: Sequence[str]) -> str:
    """Return names as text, such as "a, b and c", with the number of the others if there are more than ten."""
    if len(names) > MAX_LISTED_NAMES:
        return f"{', '.join(names[:MAX_LISTED_NAMES])} and {len(names) - MAX_LISTED_NAMES} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def format_rows(rows: Sequence[int]) -> str:
    """Return the first row numbers as text, such as "rows 2, 3 and 4 more"."""
    numbers = ", ".join(map(str, rows[:_MAX_LISTED_ROWS]))
    suffix = f" and {len(rows) - _MAX_LISTED_ROWS} more" if len(rows) > _MAX_LISTED_ROWS else ""
    return f"row{'' if len(rows) == 1 else 's'} {numbers}{suffix}"


def _read_examples(
    path: Path, columns: Columns, *, pairs: bool = False
) -> Iterator[tuple[LabelledText, dict[str, str], int]]:
    """Yield the rows, each with all its fields by column and the number of bytes read so far.

    pairs: whether each row must have a second text.
    Raises Refused as `read_rows`, and after the last row if a required field was empty.
    """
    text, pair, label = columns.text, columns.pair, columns.answer
    names = [name for name in (text, pair, label) if name is not None]
    required = [name for name in (text, pair if pairs else None, label) if name is not None]
    empty: dict[str, list[int]] = defaultdict(list)
    count = 0
    for row, fields, end in read_rows(path, names):
        for name in required:
            if not fields[name].strip():
                empty[name].append(row)
        count += 1
        second = None if pair is None else fields[pair]
        yield LabelledText(fields[text], second, "" if label is None else fields[label].strip(), row), fields, end
    for name, rows in empty.items():
        header = "" if identify(path).format in _RECORDS else "; the header is row 1"
        raise Refused(
            f"{len(rows)} of {count} rows of {path.name} have an empty field in the column {name!r} "
            f"({format_rows(rows)}{header}): fill them in or remove them"
        )


def read_rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str], int]]:
    """Yield the rows of a table as (row number from 1, fields by column name, bytes read so far).

    JSON numbers and truth values become their JSON text, null becomes an empty text, and lists and objects are omitted.
    path: the table.
    names: columns that must exist. The other columns are returned too.

    Raises Refused if a column is missing or named twice, or if a row has another number of fields than the header.
    Raises Refused also if the file is not UTF-8 or no table, if a required JSON field is a list or an object, or if the
    name or text of a JSON field has half of a surrogate pair.
    """
    if len(set(names)) < len(names):
        raise Refused(f"the columns {', '.join(names)} must be different")
    source = identify(path)
    if source.format in _RECORDS:
        yield from _read_record_fields(source, names)
        return
    rows = _read_delimited(source)
    header = [name.strip() for name in next(rows, (1, [], 0))[1]]
    for name in names:
        if header.count(name) != 1:
            raise _missing_column(source, name, header)
    for row, values, end in rows:
        if len(values) != len(header):
            raise Refused(
                f"row {row} of {path.name} has {len(values)} fields and the header {len(header)}: "
                f"put a text that contains a {_SEPARATORS[_separator(source)]}, a quote or a new line in quotes"
            )
        yield row, dict(zip(header, values, strict=True)), end


def input_columns(source: InputFile) -> list[str]:
    """Return the columns of a table in order: the header, or all fields of the first 100 JSON objects.

    Raises Refused as `read_rows`.
    """
    if source.format in _RECORDS:
        records = itertools.islice(_read_records(source), _RECORDS_FOR_FIELDS)
        return list(dict.fromkeys(name for _, record, _ in records for name in record))
    return [name.strip() for name in next(_read_delimited(source), (1, [], 0))[1]]


def _missing_column(source: InputFile, name: str, columns: Sequence[str]) -> Refused:
    """Return the error for a column that does not occur exactly once."""
    occurrence = "twice" if name in columns else "not"
    column_list = ", ".join(columns) or "none: it is empty"
    if source.format in _RECORDS:
        return Refused(f"no object of {source.name} has the field {name!r}: its fields are {column_list}")
    return Refused(f"the column {name!r} is {occurrence} in {source.name}: its columns are {column_list}")


def _read_record_fields(source: InputFile, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str], int]]:
    """Yield the fields of JSON objects as texts, in the form of `read_rows`."""
    for number, record, end in _read_records(source):
        for name in names:
            if name not in record and name not in (columns := input_columns(source)):
                raise _missing_column(source, name, columns)
            if name not in record:
                raise Refused(
                    f"{_location(source, number)} has no field {name!r}: its fields are {', '.join(record) or 'none'}"
                )
            if isinstance(record[name], list | dict):
                raise Refused(
                    f"the field {name!r} of {_location(source, number)} is {short_repr(record[name])}: "
                    "it must be a text, a number or a truth value"
                )
        texts = {name: _as_text(value) for name, value in record.items() if not isinstance(value, list | dict)}
        yield number, texts, end


def _as_text(value: object) -> str:
    """Return a JSON value as text, where null is empty."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_records(source: InputFile) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Yield the objects of JSON Lines or of a JSON list as (number from 1, object, bytes read so far)."""
    if source.format is Format.JSON:
        end = source.path.stat().st_size
        items = ((number, value, end) for number, value in enumerate(_read_json_list(source), 1))
    else:
        items = (
            (number, _parse_json(source, line, number), end)
            for number, (line, end) in enumerate(source.lines(), 1)
            if line.strip()
        )
    for number, value, end in items:
        if not isinstance(value, dict):
            raise Refused(f"{_location(source, number)} is {short_repr(value)}: it must be an object with named fields")
        _check_characters(source, number, value)
        yield number, value, end


def _check_characters(source: InputFile, number: int, record: Mapping[str, object]) -> None:
    """Raise Refused if a name or text of a record has half of a surrogate pair, which JSON can write but UTF-8 not."""
    for text in (*record, *record.values()):
        if isinstance(text, str) and (surrogate := _SURROGATE.search(text)) is not None:
            raise Refused(
                f"{_location(source, number)} contains {ascii(surrogate[0])[1:-1]}, which is half of a surrogate pair "
                "and no character: write both halves or remove it"
            )


def _read_json_list(source: InputFile) -> list[Any]:
    """Return the list in a JSON document. Raises Refused for any other value."""
    values = _parse_json(source, source.read_text(MAX_JSON_BYTES))
    if not isinstance(values, list):
        raise Refused(
            f"{source.name} contains a JSON {'object' if isinstance(values, dict) else 'value'} and no list of "
            "objects: only questions in SQuAD's form are read from such a file"
        )
    return values


def _parse_json(source: InputFile, text: str, number: int | None = None) -> Any:
    """Parse a JSON text. Raises Refused, with the number of the line if there is one, for invalid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        location = source.name if number is None else _location(source, number)
        raise Refused(f"{location} is not valid JSON: {error}") from error


def _location(source: InputFile, number: int) -> str:
    """Return the text that names a record or line in an error message."""
    return f"{'record' if source.format is Format.JSON else 'line'} {number} of {source.name}"


def _separator(source: InputFile) -> str:
    """Return the separator of a .csv or .tsv."""
    if source.format is Format.TSV:
        return "\t"
    with source.open() as (content, _), io.TextIOWrapper(content, encoding="utf-8-sig", errors="replace") as lines:
        return detect_separator(next(filter(str.strip, lines), ""))


def _read_delimited(source: InputFile) -> Iterator[tuple[int, list[str], int]]:
    """Yield the non-empty rows of a .csv or .tsv as (number from 1, values, bytes read so far).

    Raises Refused for a file without named columns, a damaged table, and a file that is not UTF-8.
    """
    if source.format not in (Format.CSV, Format.TSV):
        raise Refused(
            f"{source.name} contains {source.format.value}, which has no named columns: give a table, .csv, .tsv or "
            ".jsonl, or name no columns"
        )
    separator = _separator(source)
    try:
        with source.open() as (content, disk), io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as lines:
            # In tab-separated values a quote is an ordinary character.
            quoting: Any = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
            rows = csv.reader(lines, strict=True, delimiter=separator, quoting=quoting)
            number = 0
            while (values := _next_row(rows)) is not None:
                number += 1
                if values:
                    yield number, values, disk.tell()
    except UnicodeDecodeError as error:
        raise utf8_error(source.path, error) from error
    except csv.Error as error:
        raise Refused(f"{source.name} is not a valid table: {error}") from error


def _next_row(rows: Iterator[list[str]]) -> list[str] | None:
    """Return the next row of a CSV reader, with fields of up to `MAX_FIELD_CHARACTERS`, or None at the end."""
    with _limit_lock:
        before = csv.field_size_limit(MAX_FIELD_CHARACTERS)  # a limit of the whole process, restored after each row
        try:
            return next(rows, None)
        finally:
            csv.field_size_limit(before)

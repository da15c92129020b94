"""A table of texts, .csv, .tsv, JSON lines or JSON, row by row; whatever is wrong with it is one sentence."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core.refused import Refused, short_repr
from bert_core.studies.files import Format, InputFile, identify, utf8_error
from bert_core.studies.lines import MAX_LINE_BYTES, SHARD_LINES, Line, Shard

MAX_FIELD_CHARACTERS = 10_000_000  # characters
_limit_lock = threading.Lock()
MAX_JSON_BYTES = 2_000_000_000  # bytes of a .json file, which is read as a whole: some fifty times SQuAD's
_RECORDS_FOR_FIELDS = 100  # records whose fields are listed
_NAMED_ROWS = 5
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
_RECORDS = (Format.JSON_LINES, Format.JSON)


@dataclass(frozen=True)
class Columns:
    """The columns of a table: of the text, of a second text, and of the answer, which is a class or a word."""

    text: str
    pair: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class LabelledText:
    """One text, or a pair, and its class.

    row: where it stands in its file: in a .csv or .tsv the header is row 1, of JSON lines the first line, in a .json
    the first record.
    """

    text: str
    pair: str | None
    label: str
    row: int


def read_labelled(path: Path, text: str, label: str, pair: str | None = None) -> list[LabelledText]:
    """The rows of a table by the names of its columns; without empty lines.

    path: a `.csv`, whose fields are separated by commas or semicolons, as `separator_of` finds; a `.tsv`, in which
    quotes are characters like others; JSON lines; or a `.json` with a list of objects.
    Raises Refused as `rows_of`, if a text or a label is empty, or there are no rows.
    """
    examples = [example for example, _ in _labelled(path, Columns(text, pair, label))]
    if not examples:
        raise Refused(f"{path.name} has no rows: there is nothing to learn from")
    return examples


def check_rows(path: Path, columns: Columns, classes: Collection[str] = (), *, pairs: bool = False) -> None:
    """Read a table to its end, so that what is wrong with any row is said before work begins.

    classes: what an answer may be; none allows any. pairs: whether every row must have a second text.
    Raises Refused as `read_labelled`, and for an answer that is no class.
    """
    strange: dict[str, list[int]] = defaultdict(list)
    rows = 0
    for example, _ in _labelled(path, columns, pairs=pairs):
        rows += 1
        if classes and example.label not in classes:
            strange[example.label].append(example.row)
    if not rows:
        raise Refused(f"{path.name} has no rows: there is nothing to ask")
    for name, where in strange.items():
        raise Refused(
            f"{path.name} has the class {name!r:.60} ({format_rows(where)}), which the model does not have: "
            f"its classes are {', '.join(classes)}"
        )


def row_shards(
    path: Path, columns: Columns, *, number: int = 0, start: int = 0, line: int = 0, size: int = SHARD_LINES
) -> Iterator[Shard]:
    """The rows of a table as `lines.shards` gives the lines of a text, from one shard on; the memory is that of one.

    number, line: of the first shard, and of its first row; start is told, and not needed. Of a long text the beginning
    is read. Raises Refused as `rows_of`.
    """
    counts: Counter[str] = Counter()
    rows: list[Line] = []
    end = start
    for example, end in _labelled(path, columns):
        if example.row < line:
            continue
        if len(rows) == size:
            yield Shard(number, tuple(rows), end, example.row, counts, end)
            number, rows, counts = number + 1, [], Counter()
        counts["lines"] += 1
        counts["overlong"] += max(len(example.text), len(example.pair or "")) > MAX_LINE_BYTES
        pair = None if example.pair is None else example.pair[:MAX_LINE_BYTES]
        rows.append(Line(example.row, example.text[:MAX_LINE_BYTES], pair, example.label))
    if rows:
        yield Shard(number, tuple(rows), end, rows[-1].number + 1, counts, end)


def detect_separator(header: str) -> str:
    """What parts the fields of a table with this first line: "," or ";", whichever stands more often outside quotes.

    Spreadsheets write semicolons where the comma is the decimal point. Where both stand alike it is the comma.
    """
    return max(",;", key=re.sub(r'"[^"]*"', "", header).count)


def format_rows(rows: Sequence[int]) -> str:
    """The first of some rows, in words."""
    named = ", ".join(map(str, rows[:_NAMED_ROWS]))
    more = f" and {len(rows) - _NAMED_ROWS} more" if len(rows) > _NAMED_ROWS else ""
    return f"row{'' if len(rows) == 1 else 's'} {named}{more}"


def _labelled(path: Path, columns: Columns, *, pairs: bool = False) -> Iterator[tuple[LabelledText, int]]:
    """The rows one after another, and the byte up to which the file was read.

    pairs: whether a second text may be missing no more than a first. Raises Refused as `read_labelled`, for what is
    empty at the end.
    """
    text, pair, label = columns.text, columns.pair, columns.answer
    names = [name for name in (text, pair, label) if name is not None]
    needed = [name for name in (text, pair if pairs else None, label) if name is not None]
    empty: dict[str, list[int]] = defaultdict(list)
    count = 0
    for row, fields, end in read_rows(path, names):
        for name in needed:
            if not fields[name].strip():
                empty[name].append(row)
        count += 1
        second = None if pair is None else fields[pair]
        yield LabelledText(fields[text], second, "" if label is None else fields[label].strip(), row), end
    for name, where in empty.items():
        header = "" if identify(path).format in _RECORDS else "; the header is row 1"
        raise Refused(
            f"{len(where)} of {count} rows of {path.name} have nothing in the column {name!r} "
            f"({format_rows(where)}{header}): fill them in or take them out"
        )


def read_rows(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str], int]]:
    """The rows of a table by the names of its columns: the row's number from 1, its fields, and the bytes read so far.

    names: columns that must exist; others are given too. Numbers and truth values of JSON are written as in JSON, null
    as an empty text; lists and objects are left out.
    Raises Refused if a column is missing, a row has another number of fields, the file is not UTF-8 or not a table, or
    a required field of a JSON object is a list or an object.
    """
    if len(set(names)) < len(names):
        raise Refused(f"the columns {', '.join(names)} are not all different: each has its own part")
    source = identify(path)
    if source.format in _RECORDS:
        yield from _fields_of_records(source, names)
        return
    rows = _rows(source)
    header = [name.strip() for name in next(rows, (1, [], 0))[1]]
    for name in names:
        if header.count(name) != 1:
            raise _no_column(source, name, header)
    for row, values, end in rows:
        if len(values) != len(header):
            raise Refused(
                f"row {row} of {path.name} has {len(values)} fields and the header {len(header)}: "
                f"a text with a {_SEPARATORS[_separator(source)]}, a quote or a new line in it stands in quotes"
            )
        yield row, dict(zip(header, values, strict=True)), end


def input_columns(source: InputFile) -> list[str]:
    """The columns of a table in their order: those of its header, or all fields of the first JSON objects.

    Raises Refused as `rows_of`.
    """
    if source.format in _RECORDS:
        records = itertools.islice(_records(source), _RECORDS_FOR_FIELDS)
        return list(dict.fromkeys(name for _, record, _ in records for name in record))
    return [name.strip() for name in next(_rows(source), (1, [], 0))[1]]


def _no_column(source: InputFile, name: str, columns: Sequence[str]) -> Refused:
    how_often = "twice" if name in columns else "not"
    listed = ", ".join(columns) or "none: it is empty"
    if source.format in _RECORDS:
        return Refused(f"no object of {source.name} has the field {name!r}: its fields are {listed}")
    return Refused(f"the column {name!r} is {how_often} in {source.name}: its columns are {listed}")


def _fields_of_records(source: InputFile, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str], int]]:
    for number, record, end in _records(source):
        for name in names:
            if name not in record and name not in (columns := input_columns(source)):
                raise _no_column(source, name, columns)
            if name not in record:
                raise Refused(
                    f"{_place(source, number)} has no field {name!r}: its fields are {', '.join(record) or 'none'}"
                )
            if isinstance(record[name], list | dict):
                raise Refused(
                    f"the field {name!r} of {_place(source, number)} is {short_repr(record[name])}: "
                    "it must be a text, a number or a truth value"
                )
        texts = {name: _as_text(value) for name, value in record.items() if not isinstance(value, list | dict)}
        yield number, texts, end


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _records(source: InputFile) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The objects of JSON lines or of a JSON document, with their numbers from 1, and the bytes read so far."""
    if source.format is Format.JSON:
        end = source.path.stat().st_size
        items = ((number, value, end) for number, value in enumerate(_list_of(source), 1))
    else:
        items = (
            (number, _parsed(source, line, number), end)
            for number, (line, end) in enumerate(source.lines(), 1)
            if line.strip()
        )
    for number, value, end in items:
        if not isinstance(value, dict):
            raise Refused(f"{_place(source, number)} is {short_repr(value)}: it must be an object with named fields")
        yield number, value, end


def _list_of(source: InputFile) -> list[Any]:
    values = _parsed(source, source.read_text(MAX_JSON_BYTES))
    if not isinstance(values, list):
        raise Refused(
            f"{source.name} contains a JSON {'object' if isinstance(values, dict) else 'value'} and no list of "
            "objects: only questions in SQuAD's form are read from such a file"
        )
    return values


def _parsed(source: InputFile, text: str, number: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = source.name if number is None else _place(source, number)
        raise Refused(f"{where} is not valid JSON: {error}") from error


def _place(source: InputFile, number: int) -> str:
    return f"{'record' if source.format is Format.JSON else 'line'} {number} of {source.name}"


def _separator(source: InputFile) -> str:
    if source.format is Format.TSV:
        return "\t"
    with source.open() as (content, _), io.TextIOWrapper(content, encoding="utf-8-sig", errors="replace") as lines:
        return detect_separator(next(filter(str.strip, lines), ""))


def _rows(source: InputFile) -> Iterator[tuple[int, list[str], int]]:
    """The rows of a .csv or .tsv that are not empty, with their numbers from 1, and the bytes read so far.

    Raises Refused for a file that has no columns.
    """
    if source.format not in (Format.CSV, Format.TSV):
        raise Refused(
            f"{source.name} contains {source.format.value}, which has no named columns: give a table, .csv, .tsv or "
            ".jsonl, or name no columns"
        )
    separator = _separator(source)
    try:
        with source.open() as (content, disk), io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as lines:
            # Between tabs a quote is a character like others.
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
        raise Refused(f"{source.name} is not a whole table: {error}") from error


def _next_row(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row of a reader, with fields as long as a text may be; None at the end."""
    with _limit_lock:
        before = csv.field_size_limit(MAX_FIELD_CHARACTERS)  # of the whole process: only while a row is read
        try:
            return next(rows, None)
        finally:
            csv.field_size_limit(before)

"""A table of texts row by row, at once or in shards; whatever is wrong with it is one sentence."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core.refused import Refused
from bert_core.studies.lines import LONGEST_LINE, SHARD_LINES, Line, Shard, check_ending

LONGEST_FIELD = 10_000_000  # characters
_NAMED_ROWS = 5
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}


@dataclass(frozen=True)
class Columns:
    """The columns of a table: of the text, of a second text, and of the answer, which is a class or a word."""

    text: str
    pair: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class LabelledText:
    """One text, or a pair, and its class; row: where it stands in its file, the header being row 1."""

    text: str
    pair: str | None
    label: str
    row: int


def read_labelled(path: Path, text: str, label: str, pair: str | None = None) -> list[LabelledText]:
    """The rows of a UTF-8 table, `.csv` or `.tsv`, by the names of its columns in its header; without empty lines.

    Commas or semicolons part the fields, as `separator_of` finds; of a `.tsv` tabs, and quotes are signs like others.

    Raises Refused if a column is missing, a row has another number of fields, a text or a label is empty, the file
    is not UTF-8 or not a table, or there are no rows.
    """
    examples = [example for example, _ in _labelled(path, Columns(text, pair, label))]
    if not examples:
        raise Refused(f"{path.name} has a header and no rows: there is nothing to learn from")
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
        raise Refused(f"{path.name} has a header and no rows: there is nothing to ask")
    for name, where in strange.items():
        raise Refused(
            f"{path.name} has the class {name!r:.60} ({some_rows(where)}), which the model does not have: "
            f"its classes are {', '.join(classes)}"
        )


def row_shards(
    path: Path, columns: Columns, *, number: int = 0, start: int = 0, line: int = 0, size: int = SHARD_LINES
) -> Iterator[Shard]:
    """The rows of a table as `lines.shards` gives the lines of a text, from one shard on; the memory is that of one.

    number, line: of the first shard, and of its first row; start is told, and not needed. Of a long text the beginning
    is read. Raises Refused as `read_labelled`.
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
        counts["overlong"] += max(len(example.text), len(example.pair or "")) > LONGEST_LINE
        pair = None if example.pair is None else example.pair[:LONGEST_LINE]
        rows.append(Line(example.row, example.text[:LONGEST_LINE], pair, example.label))
    if rows:
        yield Shard(number, tuple(rows), end, rows[-1].number + 1, counts, end)


def separator_of(header: str) -> str:
    """What parts the fields of a table with this first line: "," or ";", whichever stands more often outside quotes.

    Spreadsheets write semicolons where the comma is the decimal point. Where both stand alike it is the comma.
    """
    return max(",;", key=re.sub(r'"[^"]*"', "", header).count)


def some_rows(rows: Sequence[int]) -> str:
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
    for row, fields, end in rows_of(path, names):
        for name in needed:
            if not fields[name].strip():
                empty[name].append(row)
        count += 1
        second = None if pair is None else fields[pair]
        yield LabelledText(fields[text], second, "" if label is None else fields[label].strip(), row), end
    for name, where in empty.items():
        raise Refused(
            f"{len(where)} of {count} rows of {path.name} have nothing in the column {name!r} "
            f"({some_rows(where)}; the header is row 1): fill them in or take them out"
        )


def rows_of(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str], int]]:
    """The rows of a table by the names of its columns: the row's number from 1, its fields, and the byte read up to.

    names: columns that must be there; others are given too. Raises Refused as `read_labelled`, but for empty fields.
    """
    if len(set(names)) < len(names):
        raise Refused(f"the columns {', '.join(names)} are not all different: each has its own part")
    check_ending(path)
    separator = "\t"
    if path.suffix.lower() != ".tsv":
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            separator = separator_of(next(filter(str.strip, lines), ""))
    rows = _rows(path, separator)
    header = [name.strip() for name in next(rows, (1, [], 0))[1]]
    for name in names:
        if header.count(name) != 1:
            how_often = "twice" if name in header else "not"
            columns_there = ", ".join(header) or "none: it is empty"
            raise Refused(f"the column {name!r} is {how_often} in {path.name}: its columns are {columns_there}")
    for row, values, end in rows:
        if len(values) != len(header):
            raise Refused(
                f"row {row} of {path.name} has {len(values)} fields and the header {len(header)}: "
                f"a text with a {_SEPARATORS[separator]}, a quote or a new line in it stands in quotes"
            )
        yield row, dict(zip(header, values, strict=True)), end


def _rows(path: Path, separator: str) -> Iterator[tuple[int, list[str], int]]:
    """The rows that are not empty, with their numbers from 1, and the byte up to which the file was read."""
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open("rb") as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as lines:
            # Between tabs a quote is a sign like others.
            quoting: Any = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
            rows = csv.reader(lines, strict=True, delimiter=separator, quoting=quoting)
            for number, values in enumerate(rows, start=1):
                if values:
                    yield number, values, file.tell()
    except UnicodeDecodeError as error:
        raise Refused(f"{path.name} is not UTF-8 (byte {error.start} of a part of it): save it as CSV UTF-8") from error
    except csv.Error as error:
        raise Refused(f"{path.name} is not a whole CSV table: {error}") from error
    finally:
        csv.field_size_limit(before)

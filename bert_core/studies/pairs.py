"""Tables of sentence pairs: reading of typed or uploaded text, and scored pairs as CSV."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from bert_core.csv_cells import as_csv
from bert_core.records import PairRow, PairScore
from bert_core.refused import Refused, require_instances, validate_arguments
from bert_core.studies.files import Format, identify
from bert_core.studies.rows import MAX_JSON_BYTES, read_rows
from bert_core.studies.texts import missing_columns_message

MAX_PAIRS = 2_000
MAX_SENTENCE_CHARACTERS = 2_000
_QUOTING_ADVICE = "put a sentence with a comma or semicolon in quotes"


@validate_arguments
def read_pairs(text: str | bytes) -> list[PairRow]:
    """Read sentence pairs from a text, one pair per line.

    The sentences are separated by a tab, by " | ", or as CSV by commas or semicolons. Empty lines are skipped. The
    first line is a header if exactly two of its fields are names of sentence columns, such as "sentence1" or "good".
    If it has more fields, it determines which two columns are read. A line that is not a pair is returned with its
    problem, so that no line is lost.

    text: bytes are decoded as UTF-8.
    Raises Refused if the text is not UTF-8 or not a table, or has no pairs or too many.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise Refused(f"the pairs are not UTF-8 (byte {error.start}): save them as CSV UTF-8") from error
    lines = _split_lines(text.removeprefix("\ufeff"))
    header = lines[0][1] if lines else []
    columns = [index for index, field in enumerate(header) if _is_heading(field)]
    if len(columns) == 2:
        lines = lines[1:]
    if not lines:
        raise Refused("there are no pairs: give two sentences per line, separated by a tab, |, a comma or a semicolon")
    if len(columns) == 2 < len(header):
        _check_count(len(lines))
        return [_pair_from_columns(number, fields, header, columns) for number, fields in lines]
    return pair_rows(lines)


def read_pair_file(path: Path, text: str | None = None, pair: str | None = None) -> list[PairRow]:
    """Read sentence pairs from the columns of a table, or as `read_pairs` from plain text or a table without a header.

    text, pair: columns of the first and of the second sentences; both or neither.
    Raises Refused as `read_pairs`, for a missing column, and for another kind of file.
    """
    source = identify(path, tabs_in_text=True)
    if text is not None and pair is not None:
        return pair_rows((row, [fields[text], fields[pair]]) for row, fields, _ in read_rows(path, [text, pair]))
    if text is not None or pair is not None or source.format in (Format.JSON_LINES, Format.JSON):
        raise Refused(missing_columns_message(source, "the first sentences (--text) and that of the second (--pair)"))
    if source.format not in (Format.TEXT, Format.CSV, Format.TSV):
        raise Refused(f"{path.name} contains {source.format.value}: two sentences per line are needed")
    return read_pairs(source.read_text(MAX_JSON_BYTES))


def pair_rows(rows: Iterable[tuple[int, Sequence[str]]]) -> list[PairRow]:
    """Convert rows of a table to pairs. A row that is not a pair of sentences is returned with its problem.

    rows: number of each row and its fields.
    Raises Refused if there are too many rows, without reading all of them.
    """
    pairs = [_pair_from_fields(number, fields) for number, fields in itertools.islice(rows, MAX_PAIRS + 1)]
    _check_count(len(pairs))
    return pairs


def _check_count(count: int) -> None:
    """Raise Refused if there are more than `MAX_PAIRS` pairs."""
    if count > MAX_PAIRS:
        raise Refused(f"there are more than {MAX_PAIRS:,} pairs, the most that are scored at once")


_HEADINGS = {
    "a", "b", "bad", "first", "good", "one", "other", "second", "sentence", "sentence_good", "sentence_bad", "text",
    "two", "sentence1", "sentence2", "sentence_a", "sentence_b", "first sentence", "second sentence", "pair",
}  # fmt: skip


def _is_heading(field: str) -> bool:
    """Return whether a field of the first line is the name of a column of sentences."""
    return field.strip().lower() in _HEADINGS


def _split_lines(text: str) -> list[tuple[int, list[str]]]:
    """Return number and fields of each line that is not empty. Raises ValueError if the text is not a table."""
    lines = text.splitlines()
    for separator in ("\t", " | "):
        if any(separator in line for line in lines):
            rows = ((number, line.split(separator)) for number, line in enumerate(lines, start=1) if line.strip())
            return [(number, [field.strip() for field in fields]) for number, fields in rows]
    by_comma, by_semicolon = (_read_csv(text, separator) for separator in ",;")
    best = max(by_comma, by_semicolon, key=_fit)  # sentences contain both, so choose the one that gives more pairs
    if isinstance(best, ValueError):
        raise best
    return best


def _read_csv(text: str, separator: str) -> list[tuple[int, list[str]]] | ValueError:
    """Return number and fields of each CSV row that is not empty, or the error if the text is not CSV."""
    rows = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True, delimiter=separator)
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                rows.append((reader.line_num, [field.strip() for field in fields]))
    except csv.Error as error:
        return ValueError(f"line {reader.line_num} is not a row of a CSV table: {error}")
    return rows


def _fit(lines: list[tuple[int, list[str]]] | ValueError) -> tuple[bool, int]:
    """Return whether the first line is a header with two sentence columns, and the number of lines with two fields."""
    if isinstance(lines, ValueError) or not lines:
        return False, 0
    return sum(map(_is_heading, lines[0][1])) == 2, sum(len(fields) == 2 for _, fields in lines)


def _pair_from_columns(number: int, fields: Sequence[str], header: Sequence[str], columns: Sequence[int]) -> PairRow:
    """Return the pair in two columns of a row, with a problem if the row has more fields than the header."""
    if len(fields) > len(header):
        problem = f"{len(fields)} parts where the header has {len(header)}: {_QUOTING_ADVICE}"
        return PairRow(number, fields[0], ", ".join(fields[1:]), problem)
    return _pair_from_fields(number, [fields[column] if column < len(fields) else "" for column in columns])


def _pair_from_fields(number: int, fields: Sequence[str]) -> PairRow:
    """Return the pair in the fields of a row, with a problem if these are not two sentences."""
    first, second = fields[0], ", ".join(fields[1:])  # a row that is not a pair keeps all of its text
    problem = None
    if len(fields) > 2 and any(fields[2:]):
        problem = f"{len(fields)} parts instead of two sentences: {_QUOTING_ADVICE}"
    elif not first or not second:
        problem = "only one sentence: two are needed"
    elif max(len(first), len(second)) > MAX_SENTENCE_CHARACTERS:
        longest = max(len(first), len(second))
        problem = f"a sentence of {longest:,} characters: at most {MAX_SENTENCE_CHARACTERS:,} are read"
    return PairRow(number, first, second, problem)


def pairs_csv(scores: Sequence[PairScore]) -> str:
    """Format scored pairs as CSV with a header and one row for each pair, in the given order.

    Numbers have full precision. Pairs that were not scored are included with their problem. A sentence that a
    spreadsheet would read as a formula gets an apostrophe in front.

    Raises Refused if an item is not a `PairScore`.
    """
    return as_csv([PAIR_COLUMNS, *(pair_values(score) for score in require_instances("scores", scores, PairScore))])


PAIR_COLUMNS = (
    "row", "first", "second", "first_nats", "second_nats", "difference", "first_perplexity", "second_perplexity",
    "believed", "problem",
)  # fmt: skip


def pair_values(score: PairScore) -> tuple[int | float | str | None, ...]:
    """Return the cells of a scored pair in the order of `PAIR_COLUMNS`, None for missing numbers."""
    return tuple(score.cells[name] for name in PAIR_COLUMNS)

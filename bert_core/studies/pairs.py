"""Tables of sentence pairs: typed or uploaded text to rows, and scored pairs to CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from bert_core.csv_cells import as_csv
from bert_core.records import PairRow, PairScore
from bert_core.refused import Refused, require_instances, validate_arguments

MAX_PAIRS = 1_000
MAX_SENTENCE_CHARACTERS = 2_000  # characters
_QUOTED = "put a sentence with a comma or semicolon in quotes"


@validate_arguments
def read_pairs(text: str | bytes) -> list[PairRow]:
    """Two sentences a line, parted by a tab, by " | ", or as CSV with commas or semicolons; empty lines are left out.

    A first line that says "sentence", "first", "good" or the like twice and no sentence is a header; of more columns
    it says which two are read. A line that is not two sentences stays in the result with what is wrong with it, so that
    nothing is lost.
    text: bytes are UTF-8.
    Raises Refused if there are no pairs, too many to be scored at once, or the text is not UTF-8 or no table.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise Refused(f"the pairs are not UTF-8 (byte {error.start}): save them as CSV UTF-8") from error
    lines = _fields(text.removeprefix("\ufeff"))
    header = lines[0][1] if lines else []
    columns = [place for place, field in enumerate(header) if _is_heading(field)]
    if len(columns) == 2:
        lines = lines[1:]
    if not lines:
        raise Refused("there are no pairs: give two sentences per line, separated by a tab, |, a comma or a semicolon")
    if len(columns) == 2 < len(header):
        _check_count(len(lines))
        return [_of_columns(number, fields, header, columns) for number, fields in lines]
    return pair_rows(lines)


def pair_rows(rows: Iterable[tuple[int, Sequence[str]]]) -> list[PairRow]:
    """Rows of a table, each with its number and its two sentences, as pairs; a row of another kind says what is wrong.

    Raises Refused for more rows than are scored at once.
    """
    pairs = [_checked(number, fields) for number, fields in rows]
    _check_count(len(pairs))
    return pairs


def _check_count(count: int) -> None:
    if count > MAX_PAIRS:
        raise Refused(f"there are {count:,} pairs: at most {MAX_PAIRS:,} are scored at once")


_HEADINGS = {
    "a", "b", "bad", "first", "good", "one", "other", "second", "sentence", "sentence_good", "sentence_bad", "text",
    "two", "sentence1", "sentence2", "sentence_a", "sentence_b", "first sentence", "second sentence", "pair",
}  # fmt: skip


def _is_heading(field: str) -> bool:
    return field.strip().lower() in _HEADINGS


def _fields(text: str) -> list[tuple[int, list[str]]]:
    """The lines of a table that are not empty, each with its number and its fields."""
    lines = text.splitlines()
    for mark in ("\t", " | "):
        if any(mark in line for line in lines):
            parted = ((number, line.split(mark)) for number, line in enumerate(lines, start=1) if line.strip())
            return [(number, [field.strip() for field in fields]) for number, fields in parted]
    by_comma, by_semicolon = (_separated(text, mark) for mark in ",;")
    found = max(by_comma, by_semicolon, key=_fit)  # sentences hold both: the one that makes more of them pairs
    if isinstance(found, ValueError):
        raise found
    return found


def _separated(text: str, mark: str) -> list[tuple[int, list[str]]] | ValueError:
    """The rows of a text that is read as CSV with this sign between fields, or the error that says why it is none."""
    found, reader = [], csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True, delimiter=mark)
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                found.append((reader.line_num, [field.strip() for field in fields]))
    except csv.Error as error:
        return ValueError(f"line {reader.line_num} is not a row of a CSV table: {error}")
    return found


def _fit(lines: list[tuple[int, list[str]]] | ValueError) -> tuple[bool, int]:
    """How well lines were parted: whether the first names two columns, then how many are two fields."""
    if isinstance(lines, ValueError) or not lines:
        return False, 0
    return sum(map(_is_heading, lines[0][1])) == 2, sum(len(fields) == 2 for _, fields in lines)


def _of_columns(number: int, fields: Sequence[str], header: Sequence[str], columns: Sequence[int]) -> PairRow:
    """The pair in two columns of a row; a pair with a problem where the row has more fields than the header."""
    if len(fields) > len(header):
        problem = f"{len(fields)} parts where the header has {len(header)}: {_QUOTED}"
        return PairRow(number, fields[0], ", ".join(fields[1:]), problem)
    return _checked(number, [fields[place] if place < len(fields) else "" for place in columns])


def _checked(number: int, fields: Sequence[str]) -> PairRow:
    first, second = fields[0], ", ".join(fields[1:])  # a row that is none keeps all that was in it
    problem = None
    if len(fields) > 2 and any(fields[2:]):
        problem = f"{len(fields)} parts instead of two sentences: {_QUOTED}"
    elif not first or not second:
        problem = "only one sentence: two are needed"
    elif max(len(first), len(second)) > MAX_SENTENCE_CHARACTERS:
        longest = max(len(first), len(second))
        problem = f"a sentence of {longest:,} characters: at most {MAX_SENTENCE_CHARACTERS:,} are read"
    return PairRow(number, first, second, problem)


def pairs_csv(scores: Sequence[PairScore]) -> str:
    """Scored pairs as CSV with a header, a row each in the order given; numbers in full, rows with a problem too.

    A sentence that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    return as_csv([PAIR_COLUMNS, *(pair_values(score) for score in require_instances("scores", scores, PairScore))])


PAIR_COLUMNS = (
    "row", "first", "second", "first_nats", "second_nats", "difference", "first_perplexity", "second_perplexity",
    "believed", "problem",
)  # fmt: skip


def pair_values(score: PairScore) -> tuple[int | float | str | None, ...]:
    """The cells of a scored pair, in the order of PAIR_COLUMNS; None where there is no number."""
    if score.problem is not None:
        return (score.row, *score.sentences, *(None,) * 5, "", score.problem)
    one, other = score.both
    return (
        score.row, *score.sentences, one.total, other.total, score.difference, one.perplexity,
        other.perplexity, score.preferred or "", "",
    )  # fmt: skip

"""Documents, paragraphs and sentences of an input file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

from bert_core.refused import Refused
from bert_core.studies.files import Format, identify
from bert_core.studies.rows import read_rows
from bert_core.studies.texts import missing_columns_message

# A sentence ends at . ! or ? with its closing quotes, before white space and a capital letter or a digit.
_CLOSING = r"[\"'”’)]"
_SENTENCE_END = re.compile(
    rf"(?:(?<=[.!?])|(?<=[.!?]{_CLOSING})|(?<=[.!?]{_CLOSING}{_CLOSING}))\s+(?=[\"'“‘(]*[A-Z0-9])"
)


def check_documents(path: Path, column: str | None = None) -> None:
    """Raise Refused for a file that `read_documents` cannot read, by its format and the header of a table."""
    source = identify(path)
    if column is None and source.is_table:
        raise Refused(missing_columns_message(source))
    if column is None and source.format is not Format.TEXT:
        raise Refused(
            f"{path.name} contains {source.format.value}: plain text is needed, one paragraph per line, or a table"
        )
    if column is not None:
        next(read_rows(path, [column]), None)


def read_documents(path: Path, column: str | None = None) -> Iterator[list[str]]:
    """Yield the documents of a file as lists of paragraphs.

    path: plain text with one paragraph per line and an empty line between documents, or a table with one document per
        row and one paragraph per line of its text. Bytes of plain text that are not UTF-8 are replaced.
    column: column of the texts in a table; None for plain text.
    Raises Refused for another format, a table without a column name, or a damaged file.
    """
    check_documents(path, column)
    if column is not None:
        for _, fields, _ in read_rows(path, [column]):
            if paragraphs := [line.strip() for line in fields[column].splitlines() if line.strip()]:
                yield paragraphs
        return
    paragraphs = []
    with (
        identify(path).open() as (content, _),
        io.TextIOWrapper(content, encoding="utf-8-sig", errors="replace") as lines,
    ):
        for line in lines:
            if line.strip():
                paragraphs.append(line.strip())
            elif paragraphs:
                yield paragraphs
                paragraphs = []
    if paragraphs:
        yield paragraphs


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences at their final punctuation."""
    return [sentence for part in _SENTENCE_END.split(paragraph) if (sentence := part.strip())]

"""A text file line by line, in shards of bounded size, whatever the file holds."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from bert_core.refused import Refused
from bert_core.studies.files import Format, identify

SHARD_LINES = 32
MAX_LINE_BYTES = 1 << 16  # bytes of a line that are read: far more than a model reads


class Line(NamedTuple):
    """A line that is not empty, and its number in the file, from zero; of a table a row, the header being row 1.

    pair, answer: what a table says besides. marks: (start, end, name) of the words of its first text that have a tag,
    or of the answer in its second one; None where the file says nothing of the kind. comments: lines of comments before
    it in a file of words.
    """

    number: int
    text: str
    pair: str | None = None
    answer: str = ""
    marks: tuple[tuple[int, int, str], ...] | None = None
    comments: int = 0


@dataclass(frozen=True)
class Shard:
    """Some lines that follow each other.

    number: of the shard, from zero. end: the byte of the text where the next one begins.
    next_line: the number of the line that begins there. read: bytes of the file that were read, packed as they may be.
    counts: of "lines" read and, among them, "empty" ones; "overlong" ones, of which the beginning was read; and those
        "not UTF-8", in which the broken bytes were replaced; and of "comments" between sentences of words.
    """

    number: int
    lines: tuple[Line, ...]
    end: int
    next_line: int
    counts: Counter[str] = field(default_factory=Counter)
    read: int = 0


def line_shards(
    path: Path, *, number: int = 0, start: int = 0, line: int = 0, size: int = SHARD_LINES
) -> Iterator[Shard]:
    """The shards of plain text from one on, one text per line; the memory is that of one shard.

    number, start, line: of the first shard, its first byte and its first line, as an earlier one told them.
    Raises Refused for a file that is not plain text, or broken, as `identify`.
    """
    source = identify(path)
    if source.format is not Format.TEXT:
        raise Refused(f"{path.name} contains {source.format.value}: plain text is needed, one text per line")
    with source.open() as (file, disk):
        file.seek(start)
        while True:
            counts: Counter[str] = Counter()
            lines: list[Line] = []
            while counts["lines"] < size and (raw := _read_line(file, counts)) is not None:
                if text := _decoded(raw, counts).strip():
                    lines.append(Line(line + counts["lines"] - 1, text))
                else:
                    counts["empty"] += 1
            if not counts["lines"]:
                return
            line += counts["lines"]
            yield Shard(number, tuple(lines), file.tell(), line, counts, disk.tell())
            number += 1


def _read_line(file: IO[bytes], counts: Counter[str]) -> bytes | None:
    """The next line, of an overlong one the beginning; None at the end of the file."""
    raw = file.readline(MAX_LINE_BYTES)
    if not raw:
        return None
    counts["lines"] += 1
    if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
        rest = file.readline(MAX_LINE_BYTES)
        counts["overlong"] += bool(rest.strip())
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)
        return _whole_characters(raw)
    return raw


def _whole_characters(raw: bytes) -> bytes:
    """The bytes without a UTF-8 character that is cut off at their end."""
    for cut in range(1, 4):
        if raw[-cut] & 0xC0 == 0xC0:  # this byte begins a character of more bytes than one
            return raw[:-cut]
        if raw[-cut] < 0x80:
            break
    return raw


def _decoded(raw: bytes, counts: Counter[str]) -> str:
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        counts["not UTF-8"] += 1
        return raw.decode(errors="replace")

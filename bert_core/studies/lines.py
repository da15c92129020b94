"""Lines of a text file, read in shards of bounded size."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from bert_core.refused import Refused
from bert_core.studies.files import Format, identify

SHARD_LINES = 32
MAX_LINE_BYTES = 1 << 16  # far more than a model reads of one text


class Line(NamedTuple):
    """A non-empty text of a file.

    number: zero-based number of the line. For a table, the number of the row, where the header is row 1.
    text: the text.
    pair: the second text of a row, or None.
    answer: the answer of a row, or an empty string.
    marks: labelled spans as (start, end, name), in characters. They are the tagged words of `text`, or the answer in
        `pair`. None if the file has no such labels.
    comments: number of comment lines before this sentence, for a file with one word per line.
    columns: values of other columns of the row, by name; None if they were not read.
    """

    number: int
    text: str
    pair: str | None = None
    answer: str = ""
    marks: tuple[tuple[int, int, str], ...] | None = None
    comments: int = 0
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Shard:
    """Consecutive lines of a file.

    number: zero-based number of the shard.
    lines: the non-empty lines.
    end: offset in the decompressed text, in bytes, at which the next shard starts.
    next_line: zero-based number of the first line of the next shard.
    counts: number of "lines" read, and of these the "empty" lines, the "overlong" lines (truncated), the lines that are
        "not UTF-8" (invalid bytes are replaced) and the "comments" between sentences.
    read: number of bytes read so far from the file on disk, which may be compressed.
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
    """Yield the shards of a plain text file with one text per line. Only one shard is held in memory.

    path: the file.
    number: number of the first shard.
    start, line: byte offset and line number at which to begin. An earlier shard gives them as `end` and `next_line`.
    size: lines per shard.

    Raises Refused if the file is not plain text or is broken, see `identify`.
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
                if text := _decode(raw, counts).strip():
                    lines.append(Line(line + counts["lines"] - 1, text))
                else:
                    counts["empty"] += 1
            if not counts["lines"]:
                return
            line += counts["lines"]
            yield Shard(number, tuple(lines), file.tell(), line, counts, disk.tell())
            number += 1


def _read_line(file: IO[bytes], counts: Counter[str]) -> bytes | None:
    """Return the next line, truncated to `MAX_LINE_BYTES`, or None at the end of the file."""
    raw = file.readline(MAX_LINE_BYTES)
    if not raw:
        return None
    counts["lines"] += 1
    if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
        remainder = file.readline(MAX_LINE_BYTES)
        counts["overlong"] += bool(remainder.strip())
        while remainder and not remainder.endswith(b"\n"):
            remainder = file.readline(MAX_LINE_BYTES)
        return _strip_partial_character(raw)
    return raw


def _strip_partial_character(raw: bytes) -> bytes:
    """Remove an incomplete UTF-8 character from the end of the bytes."""
    for length in range(1, 4):
        if raw[-length] & 0xC0 == 0xC0:  # the first byte of a character of several bytes
            return raw[:-length]
        if raw[-length] < 0x80:
            break
    return raw


def _decode(raw: bytes, counts: Counter[str]) -> str:
    """Decode UTF-8, replace invalid bytes, and count the lines that have any."""
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        counts["not UTF-8"] += 1
        return raw.decode(errors="replace")

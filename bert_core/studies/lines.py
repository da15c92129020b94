"""A text file line by line, in shards of bounded size, whatever the file holds."""

from __future__ import annotations

import codecs
import csv
import lzma
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

from bert_core.refused import Refused, shown

SHARD_LINES = 32
LINES_OF_A_TABLE = 10  # of a .csv file, by which a table is told from texts
OTHER_FILES = (
    ".json", ".jsonl", ".ndjson", ".gz", ".bz2", ".zip", ".zst", ".7z", ".parquet", ".arrow", ".feather", ".pdf",
    ".doc", ".docx", ".odt", ".rtf", ".xls", ".xlsx", ".html", ".xml", ".pkl", ".npy", ".npz", ".safetensors", ".bin",
)  # fmt: skip
LONGEST_LINE = 1 << 16  # bytes of a line that are read: far more than a model reads


class Line(NamedTuple):
    """A line that is not empty, and its number in the file, from zero; of a table a row, the header being row 1.

    pair, answer: what a table says besides. marks: (start, end, name) of the words of its first text that have a tag,
    or of the answer in its second one; None where the file says nothing of the kind.
    """

    number: int
    text: str
    pair: str | None = None
    answer: str = ""
    marks: tuple[tuple[int, int, str], ...] | None = None


@dataclass(frozen=True)
class Shard:
    """Some lines that follow each other.

    number: of the shard, from zero. end: the byte of the text where the next one begins.
    next_line: the number of the line that begins there. read: bytes of the file that were read, packed as they may be.
    counts: of "lines" read and, among them, "empty" ones; "overlong" ones, of which the beginning was read; and those
        "not UTF-8", in which the broken bytes were replaced.
    """

    number: int
    lines: tuple[Line, ...]
    end: int
    next_line: int
    counts: Counter[str] = field(default_factory=Counter)
    read: int = 0


def check_file(path: Path) -> None:
    """Raise Refused unless there is a file to read, with something in it."""
    if not path.is_file():
        raise Refused(f"there is no file {shown(str(path))}: name one that holds a text")
    if not path.stat().st_size:
        raise Refused(f"{path.name} is empty: there is no text in it")


def check_kind_of_text(path: Path) -> None:
    """Raise Refused for a file that is no plain text by its ending or its first bytes: its lines are no texts."""
    ending = path.suffix.lower()
    if ending == ".tsv" or (ending == ".csv" and _has_columns(path)):
        raise Refused(f"{path.name} is a table: say which of its columns holds the texts")
    check_ending(path)
    with path.open("rb") as file:
        begin = file.read(4)
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Refused(f"{path.name} is not UTF-8 but UTF-16: save it as UTF-8")


def _has_columns(path: Path) -> bool:
    """Whether the first lines of a file have the same number of fields, and more than one."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = [line for line in (file.readline(LONGEST_LINE) for _ in range(LINES_OF_A_TABLE)) if line.strip()]
    try:
        counts = [{len(fields) for fields in csv.reader(lines, delimiter=separator)} for separator in ",;"]
    except csv.Error:
        return False
    return any(len(of_lines) == 1 and max(of_lines) > 1 for of_lines in counts)


def check_ending(path: Path) -> None:
    """Raise Refused for a file that is neither a text nor a table by its ending."""
    if path.suffix.lower() in OTHER_FILES:
        raise Refused(
            f"{path.name} is read neither as a text nor as a table: write one text a line to a .txt, or a .csv table"
        )


def shards(path: Path, *, number: int = 0, start: int = 0, line: int = 0, size: int = SHARD_LINES) -> Iterator[Shard]:
    """The shards of a file from one on, unpacked if it is an `.xz`; the memory is that of one shard.

    number, start, line: of the first shard, its first byte and its first line, as an earlier one told them.
    Raises Refused for an `.xz` that is broken, and a file that is no plain text.
    """
    check_kind_of_text(path)
    with path.open("rb") as disk, _unpacked(disk, path) as file:
        try:
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
        except (lzma.LZMAError, EOFError) as error:
            raise Refused(f"{path.name} is not a whole .xz file: {error}") from error


def _unpacked(disk: IO[bytes], path: Path) -> IO[bytes]:
    return cast("IO[bytes]", lzma.LZMAFile(disk)) if path.suffix == ".xz" else disk


def _read_line(file: IO[bytes], counts: Counter[str]) -> bytes | None:
    """The next line, of an overlong one the beginning; None at the end of the file."""
    raw = file.readline(LONGEST_LINE)
    if not raw:
        return None
    counts["lines"] += 1
    if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
        rest = file.readline(LONGEST_LINE)
        counts["overlong"] += bool(rest.strip())
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE)
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

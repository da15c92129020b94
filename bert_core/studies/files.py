"""Input files: detection of the format, compression and encoding of a file, and reading of its lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, cast

from bert_core.refused import Refused, short_repr

_HEAD = 1 << 16  # bytes of the decompressed file from which its content is identified
_HEAD_LINES = 10  # number of these lines that identify the format
_CHUNK = 1 << 16
_MAX_ZERO_SHARE = 0.05  # share of zero bytes at the beginning of a text


class Format(Enum):
    """What an input file contains; the value completes the sentence "the file contains ..."."""

    TEXT = "plain text"
    CSV = "a table of comma-separated values"
    TSV = "a table of tab-separated values"
    JSON_LINES = "JSON lines"
    JSON = "a JSON document"
    TREEBANK = "a treebank in CoNLL-U"
    COLUMNS = "words in columns"


TABLE_FORMATS = (Format.CSV, Format.TSV, Format.JSON_LINES, Format.JSON)
_EXTENSIONS = {
    ".txt": Format.TEXT, ".csv": Format.CSV, ".tsv": Format.TSV, ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES, ".json": Format.JSON, ".conllu": Format.TREEBANK, ".conll": Format.COLUMNS,
    ".iob2": Format.COLUMNS,
}  # fmt: skip
_COMPRESSIONS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}
_EXTENSION_OF = {file_format: extension for extension, file_format in reversed(_EXTENSIONS.items())}
_ARROW_NAMES = {".gz": "gzip", ".zst": "zstd"}

# Unsupported formats by their first bytes and by their extensions.
_SIGNATURES = {
    b"PAR1": "a Parquet file", b"%PDF-": "a PDF document", b"ARROW1": "an Arrow file", b"BZh91AY&SY": "a bzip2 file",
    b"PK\x03\x04": "a ZIP archive", b"7z\xbc\xaf": "a 7z archive", b"\xd0\xcf\x11\xe0": "an Office document",
    b"{\\rtf": "an RTF document", b"\x93NUMPY": "a NumPy array", b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "a SQLite database", b"\x80\x02": "a pickle", b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle", b"\x80\x05": "a pickle",
}  # fmt: skip
_OTHER_EXTENSIONS = {
    ".parquet": "a Parquet file", ".arrow": "an Arrow file", ".feather": "an Arrow file", ".pdf": "a PDF document",
    ".doc": "a Word document", ".docx": "a Word document", ".odt": "a text document", ".rtf": "an RTF document",
    ".xls": "an Excel workbook", ".xlsx": "an Excel workbook", ".ods": "a spreadsheet", ".html": "an HTML page",
    ".htm": "an HTML page", ".xml": "an XML document", ".pkl": "a pickle", ".pickle": "a pickle",
    ".npy": "a NumPy array", ".npz": "an archive of NumPy arrays", ".safetensors": "a file of tensors",
    ".bin": "a binary file", ".pt": "a file of tensors", ".bz2": "a bzip2 file", ".zip": "a ZIP archive",
    ".7z": "a 7z archive", ".tar": "a tar archive", ".tgz": "a tar archive",
}  # fmt: skip
_ADVICE = "save it as plain text (.txt), a table (.csv, .tsv) or JSON lines (.jsonl)"


@dataclass(frozen=True)
class InputFile:
    """A file of texts, with the properties that `identify` detects.

    format: format of the decompressed content.
    compression: ".gz", ".xz", ".zst", or "" for none.
    encoding: "utf-8" or "utf-16".
    carriage_returns: whether single carriage returns end the lines, as on early Macintosh systems.
    """

    path: Path
    format: Format
    compression: str = ""
    encoding: str = "utf-8"
    carriage_returns: bool = False

    @property
    def name(self) -> str:
        """Name of the file without its folder."""
        return self.path.name

    @property
    def is_table(self) -> bool:
        """Whether the texts are in named columns or fields."""
        return self.format in TABLE_FORMATS

    @contextmanager
    def open(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open the file and return two streams: its content, and the file on disk.

        The content is UTF-8 with line feeds between the lines, and supports forward seeks. The position in the file on
        disk shows the progress.
        Reading raises Refused for damaged compression or UTF-16.
        """
        with self.path.open("rb") as disk:
            if not self.compression and self.encoding == "utf-8" and not self.carriage_returns:
                yield disk, disk
            else:
                source = _decompressed(disk, self.compression)  # keep a reference: deleting it closes the file on disk
                with io.BufferedReader(_Converted(self._converted(source)), _CHUNK) as content:
                    yield content, disk

    def lines(self) -> Iterator[tuple[str, int]]:
        """Yield each line without its line end, with the number of bytes of the file on disk that were read.

        Raises Refused for content that is not UTF-8, and as `open`.
        """
        with self.open() as (content, disk), io.TextIOWrapper(content, encoding="utf-8-sig", newline="\n") as text:
            try:
                for line in text:
                    yield line.rstrip("\r\n"), disk.tell()
            except UnicodeDecodeError as error:
                raise utf8_error(self.path, error) from error

    def read_text(self, max_bytes: int) -> str:
        """Read the whole text. Raises Refused for more than `max_bytes` bytes, and as `lines`."""
        with self.open() as (content, _):
            data = content.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise Refused(f"{self.name} contains more than {max_bytes:,} bytes, the maximum that is read")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise utf8_error(self.path, error) from error

    def _converted(self, source: IO[bytes]) -> Iterator[bytes]:
        """Yield the content in chunks, as UTF-8 with a line feed for each carriage return."""
        decoder = codecs.getincrementaldecoder("utf-16")() if self.encoding == "utf-16" else None
        try:
            while True:
                chunk = source.read(_CHUNK)
                is_last = not chunk
                if decoder is not None:
                    chunk = decoder.decode(chunk, final=is_last).encode()
                yield chunk.replace(b"\r", b"\n") if self.carriage_returns else chunk
                if is_last:
                    return
        except (OSError, EOFError, lzma.LZMAError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk failed, and not the compression
            raise Refused(f"{self.name} is not a whole {self.compression} file: {error}") from error
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise Refused(f"{self.name} is not whole UTF-16: {error.reason}") from error


class _Converted(io.RawIOBase):
    """Readable stream over chunks of bytes, with forward seeks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks, self._buffer, self._position = chunks, b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._buffer:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._buffer = chunk
        count = min(len(buffer), len(self._buffer))
        buffer[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        self._position += count
        return count

    def seek(self, offset: int, origin: int = io.SEEK_SET) -> int:
        target = offset + (self._position if origin == io.SEEK_CUR else 0)
        if origin == io.SEEK_END or target < self._position:
            raise io.UnsupportedOperation("a converted file supports only forward seeks")
        while self._position < target and self.readinto(bytearray(min(target - self._position, _CHUNK))):
            pass
        return self._position

    def tell(self) -> int:
        return self._position


def _decompressed(disk: IO[bytes], compression: str) -> IO[bytes]:
    if compression == ".xz":
        return cast("IO[bytes]", lzma.LZMAFile(disk))
    if compression:
        import pyarrow

        stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(disk, "r"), _ARROW_NAMES[compression])
        return cast("IO[bytes]", stream)
    return disk


def utf8_error(path: Path, error: UnicodeDecodeError) -> Refused:
    """Return the error for a file that is not UTF-8."""
    byte = f"invalid byte 0x{error.object[error.start]:02X}, as in files in Latin-1 or Windows-1252"
    return Refused(f"{path.name} is not UTF-8 ({byte}): save it as UTF-8")


def check_file(path: Path) -> None:
    """Raise Refused unless a path is that of a file that is not empty."""
    if not path.is_file():
        raise Refused(f"there is no file {short_repr(str(path))}: give the path of a file with text")
    if not path.stat().st_size:
        raise Refused(f"{path.name} is empty: there is no text in it")


def identify(path: Path, *, tabs_in_text: bool = False) -> InputFile:
    """Detect the format, compression and encoding of a file from its extension and its first bytes.

    The extension of a compressed file is the one before `.gz`, `.xz` or `.zst`. The content decides if the extension is
    unknown or missing. It also decides between CoNLL-U and other columns for `.conll` and `.iob2`.
    tabs_in_text: whether plain text may have the same number of tabs in each line, which otherwise makes it a table.
    Raises Refused for a file that is missing or empty, has an unsupported format, or does not match its extension.
    """
    check_file(path)
    compression = _compression(path)
    extension = Path(path.stem).suffix.lower() if compression else path.suffix.lower()
    if extension in _OTHER_EXTENSIONS:
        raise Refused(f"{path.name} is {_OTHER_EXTENSIONS[extension]}, which is not read: {_ADVICE}")
    declared = _EXTENSIONS.get(extension)
    with InputFile(path, Format.TEXT, compression).open() as (content, _):
        head = content.read(_HEAD)
    encoding = _encoding(path, head)
    text = head.decode(encoding, errors="replace").removeprefix("\ufeff")
    carriage_returns = "\r" in text and "\n" not in text
    lines = text.replace("\r", "\n" if carriage_returns else "").split("\n")
    if len(head) == _HEAD and len(lines) > 1:
        del lines[-1]  # it may be incomplete
    formats = _possible_formats(lines)
    if declared is None:
        text_formats = (Format.CSV, Format.TSV) if tabs_in_text else (Format.CSV,)
        declared = Format.TEXT if formats[0] in text_formats else formats[0]
    elif declared is Format.COLUMNS and Format.TREEBANK in formats[:1]:
        declared = Format.TREEBANK
    elif declared not in formats and not (tabs_in_text and declared is Format.TEXT and formats[0] is Format.TSV):
        stem = path.name.removesuffix(path.suffix if not compression else "".join(path.suffixes[-2:]))
        raise Refused(
            f"{path.name} has the extension {extension} for {declared.value} but contains {formats[0].value}: "
            f"rename it to {stem}{_EXTENSION_OF[formats[0]]}{compression}, or save it as {declared.value}"
        )
    return InputFile(path, declared, compression, encoding, carriage_returns)


def _compression(path: Path) -> str:
    """Return the compression of a file: ".gz", ".xz", ".zst" or "". Raises Refused for another extension."""
    with path.open("rb") as file:
        start = file.read(16)
    for signature, name in _SIGNATURES.items():
        if start.startswith(signature):
            by_extension = _OTHER_EXTENSIONS.get(path.suffix.lower(), name)
            raise Refused(f"{path.name} is {by_extension}, which is not read: {_ADVICE}")
    extension = path.suffix.lower()
    compression = next((name for name, signature in _COMPRESSIONS.items() if start.startswith(signature)), "")
    if extension in _COMPRESSIONS and compression != extension:
        raise Refused(
            f"{path.name} has the extension {extension} but is not compressed that way: "
            + (f"its content is that of a {compression} file" if compression else f"rename it to {path.stem}")
        )
    if compression != extension and compression:
        raise Refused(
            f"{path.name} has the extension {extension or '(none)'} but contains compressed data: "
            f"rename it to {path.name}{compression}"
        )
    return compression


def _encoding(path: Path, head: bytes) -> str:
    """Return "utf-8" or "utf-16". Raises Refused for UTF-32, UTF-16 without a byte order mark, and binary files."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise Refused(f"{path.name} is in UTF-32, which is not read: save it as UTF-8")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [half.count(0) / max(len(half), 1) for half in (head[::2], head[1::2])]
    if max(zeros) > 0.5 and min(zeros) < 0.1:  # one byte of each pair is zero
        raise Refused(f"{path.name} looks like UTF-16 without a byte order mark: save it as UTF-8")
    if max(zeros) > _MAX_ZERO_SHARE:
        raise Refused(f"{path.name} is a binary file, which is not read: {_ADVICE}")
    return "utf-8"


def _possible_formats(lines: list[str]) -> tuple[Format, ...]:
    """Return the formats that the first lines of a file may have, the most likely first."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return tuple(Format)
    sample = filled[:_HEAD_LINES]
    if _is_object(sample[0]):
        return (Format.JSON_LINES, Format.JSON) if len(filled) == 1 else (Format.JSON_LINES,)
    start = "\n".join(sample).lstrip()
    if re.match(r'\{\s*"|\[\s*\{', start):
        return (Format.JSON, Format.JSON_LINES) if len(filled) == 1 or sample[0].endswith("}") else (Format.JSON,)
    data = [line for line in sample if not line.startswith("#")]
    if data and all(re.match(r"\d+(-\d+|\.\d+)?\t", line) and line.count("\t") == 9 for line in data):
        return Format.TREEBANK, Format.COLUMNS, Format.TSV
    words = (Format.COLUMNS, Format.TREEBANK)
    end = len(lines) - next(place for place, line in enumerate(reversed(lines)) if line.strip())
    if len(filled) > 1 and len(filled) == end:  # no empty line lies between the others
        if len({line.count("\t") for line in sample}) == 1 and "\t" in sample[0]:
            return Format.TSV, *words
        if "\t" not in start and any(_same_fields(sample, separator) for separator in ",;"):
            return Format.CSV, Format.TEXT, *words
    json = (Format.JSON, Format.JSON_LINES) if start[0] in "{[" else ()
    return Format.TEXT, Format.CSV, Format.TSV, *words, *json


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _same_fields(lines: list[str], separator: str) -> bool:
    """Return whether each line has the same number of fields, and more than one."""
    try:
        counts = {len(fields) for fields in csv.reader(lines, delimiter=separator)}
    except csv.Error:
        return False
    return len(counts) == 1 and max(counts) > 1

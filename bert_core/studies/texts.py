"""The texts of an input file in shards: lines of plain text, rows of a table, or sentences of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from bert_core.refused import Refused
from bert_core.studies.files import Format, InputFile, identify
from bert_core.studies.lines import MAX_LINE_BYTES, SHARD_LINES, Line, Shard, line_shards
from bert_core.studies.rows import Columns, check_rows, input_columns, row_shards
from bert_core.studies.treebank import TreeSentence, read_treebank


def check_texts(path: Path, columns: Columns | None = None) -> InputFile:
    """Identify a file and check that texts can be read from it.

    path: the file.
    columns: the columns of a table. The whole table is read, so that an invalid row is reported before work begins.
        None for plain text and treebanks.

    Returns the identified file.
    Raises Refused if the file cannot be identified, if it is a table and `columns` is None, if it is no table and
    `columns` is given, or if it contains words in columns and is no treebank.
    """
    source = identify(path)
    if columns is not None:
        check_rows(path, columns)
    elif source.is_table:
        raise Refused(missing_columns_message(source))
    elif source.format is Format.COLUMNS:
        raise Refused(
            f"{path.name} contains words in columns, from which only labels of words can be read: choose a treebank in "
            "CoNLL-U, or plain text with one text per line"
        )
    return source


def missing_columns_message(source: InputFile, contents: str = "the texts (--text)") -> str:
    """Return the error message for a file whose columns were not named. The message lists the columns.

    source: the file.
    contents: what the columns contain, and the option that names each.
    """
    if not source.is_table:
        return f"{source.name} contains {source.format.value}: a table is needed, .csv, .tsv, .jsonl or .json"
    is_json = source.format in (Format.JSON_LINES, Format.JSON)
    singular, plural = ("field", "fields") if is_json else ("column", "columns")
    return (
        f"{source.name} contains {source.format.value}: name the {singular} of {contents}; its {plural} are "
        f"{', '.join(input_columns(source)) or 'none'}"
    )


def text_shards(
    path: Path,
    columns: Columns | None = None,
    *,
    number: int = 0,
    start: int = 0,
    line: int = 0,
    size: int = SHARD_LINES,
    other_columns: Mapping[str, str] | None = None,
) -> Iterator[Shard]:
    """Return the shards of a file, as `line_shards` for plain text and as `row_shards` for a table.

    A sentence of a treebank is one text, whose number is the zero-based number of its first line.
    path: the file.
    columns: the columns of a table, or None for plain text and treebanks.
    number, start, line: number, first byte and first line of the first shard.
    size: texts per shard.
    other_columns: as for `row_shards`, for a table.

    Raises Refused as `check_texts`. An invalid row of a table is reported only when it is reached.
    """
    if columns is not None:
        return row_shards(path, columns, number=number, start=start, line=line, size=size, other_columns=other_columns)
    if check_texts(path).format is Format.TREEBANK:
        return _tree_shards(path, number, line, size)
    return line_shards(path, number=number, start=start, line=line, size=size)


def read_trees(path: Path, line: int = 0) -> Iterator[tuple[TreeSentence, int]]:
    """Yield the sentences of a treebank, each with the number of bytes read so far from the file on disk.

    path: the file.
    line: zero-based number of the line from which sentences are returned.

    Raises Refused if the file is no treebank or is not UTF-8, and as `read_treebank`.
    """
    source = identify(path)
    if source.format not in (Format.TREEBANK, Format.COLUMNS):
        raise Refused(f"{path.name} contains {source.format.value}: a treebank in CoNLL-U is needed")
    bytes_read = 0

    def lines() -> Iterator[str]:
        nonlocal bytes_read
        for text, bytes_read in source.lines():  # noqa: B007
            yield text

    for tree in read_treebank(lines(), path.name):
        if tree.line - 1 >= line:
            yield tree, bytes_read


def _tree_shards(path: Path, number: int, line: int, size: int) -> Iterator[Shard]:
    """Yield the shards of a treebank from a line on."""
    rows: list[Line] = []
    counts: Counter[str] = Counter()
    end = 0
    for tree, bytes_read in read_trees(path, line):
        if len(rows) == size:
            yield Shard(number, tuple(rows), end, tree.line - 1, counts, end)
            number, rows, counts = number + 1, [], Counter()
        counts["lines"] += 1
        counts["comments"] += tree.comments
        counts["overlong"] += len(tree.text) > MAX_LINE_BYTES
        rows.append(Line(tree.line - 1, tree.text[:MAX_LINE_BYTES]))
        end = bytes_read
    if rows:
        size_on_disk = path.stat().st_size
        yield Shard(number, tuple(rows), size_on_disk, rows[-1].number + 1, counts, size_on_disk)

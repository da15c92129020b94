"""The texts of an input file in shards: one per line, one per row of a table, or the sentences of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert_core.refused import Refused
from bert_core.studies.files import Format, InputFile, identify
from bert_core.studies.lines import MAX_LINE_BYTES, SHARD_LINES, Line, Shard, line_shards
from bert_core.studies.rows import Columns, check_rows, input_columns, row_shards
from bert_core.studies.treebank import TreeSentence, read_treebank


def check_texts(path: Path, columns: Columns | None = None) -> InputFile:
    """The file, if texts can be read from it.

    columns: of a table, which is read to its end, so that what is wrong with any row is said before work begins.
    Raises Refused as `identify`, for a table without `columns`, other files with them, and words in columns that are
    no treebank.
    """
    source = identify(path)
    if columns is not None:
        check_rows(path, columns)
    elif source.is_table:
        raise Refused(missing_columns_message(source))
    elif source.format is Format.COLUMNS:
        raise Refused(
            f"{path.name} contains words in columns, from which only labels of words are read: give a treebank in "
            "CoNLL-U, or plain text with one text per line"
        )
    return source


def missing_columns_message(source: InputFile, needed: str = "the texts (--text)") -> str:
    """The sentence on a file of which columns must be named and are not; it lists them.

    needed: what the columns hold, and how each is named.
    """
    if not source.is_table:
        return f"{source.name} contains {source.format.value}: a table is needed, .csv, .tsv, .jsonl or .json"
    what, columns = ("field", "fields") if source.format in (Format.JSON_LINES, Format.JSON) else ("column", "columns")
    return (
        f"{source.name} contains {source.format.value}: name the {what} of {needed}; its {columns} are "
        f"{', '.join(input_columns(source)) or 'none'}"
    )


def text_shards(
    path: Path, columns: Columns | None = None, *, number: int = 0, start: int = 0, line: int = 0,
    size: int = SHARD_LINES,
) -> Iterator[Shard]:  # fmt: skip
    """The shards of a file from one on, as `shards`, `row_shards` or, of a treebank, one sentence after the other.

    A sentence's number is that of the line on which it begins, from zero. Raises Refused as `check_texts`, but that
    what is wrong with a row is said when it is reached.
    """
    if columns is not None:
        return row_shards(path, columns, number=number, start=start, line=line, size=size)
    if check_texts(path).format is Format.TREEBANK:
        return _tree_shards(path, number, line, size)
    return line_shards(path, number=number, start=start, line=line, size=size)


def read_trees(path: Path, line: int = 0) -> Iterator[tuple[TreeSentence, int]]:
    """The sentences of a treebank from a line on, counted from zero, each with the bytes of the file read so far.

    Raises Refused as `read_treebank`, for a file that is no treebank, and one that is not UTF-8.
    """
    source = identify(path)
    if source.format not in (Format.TREEBANK, Format.COLUMNS):
        raise Refused(f"{path.name} contains {source.format.value}: a treebank in CoNLL-U is needed")
    read = 0

    def counted() -> Iterator[str]:
        nonlocal read
        for text, read in source.lines():  # noqa: B007
            yield text

    for tree in read_treebank(counted(), path.name):
        if tree.line - 1 >= line:
            yield tree, read


def _tree_shards(path: Path, number: int, line: int, size: int) -> Iterator[Shard]:
    rows: list[Line] = []
    counts: Counter[str] = Counter()
    end = 0
    for tree, read in read_trees(path, line):
        if len(rows) == size:
            yield Shard(number, tuple(rows), end, tree.line - 1, counts, end)
            number, rows, counts = number + 1, [], Counter()
        counts["lines"] += 1
        counts["comments"] += tree.comments
        counts["overlong"] += len(tree.text) > MAX_LINE_BYTES
        rows.append(Line(tree.line - 1, tree.text[:MAX_LINE_BYTES]))
        end = read
    if rows:
        size_on_disk = path.stat().st_size
        yield Shard(number, tuple(rows), size_on_disk, rows[-1].number + 1, counts, size_on_disk)

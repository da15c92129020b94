"""The texts of a file in shards, whatever kind it is: one a line, one a row, or the sentences of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert_core.refused import Refused
from bert_core.studies.lines import LONGEST_LINE, SHARD_LINES, Line, Shard, check_file, check_kind_of_text, shards
from bert_core.studies.rows import Columns, check_rows, row_shards
from bert_core.studies.treebank import TreeSentence, read_treebank

TREEBANKS = (".conllu", ".conll")


def check_texts(path: Path, columns: Columns | None) -> None:
    """Raise Refused for a file that is not there, and a table whose columns are not named, or that is broken."""
    check_file(path)
    if columns is not None:
        check_rows(path, columns)
    elif path.suffix.lower() == ".csv":
        raise Refused(f"{path.name} is a table: say which of its columns holds the texts")
    elif path.suffix.lower() not in TREEBANKS:
        check_kind_of_text(path)


def text_shards(
    path: Path, columns: Columns | None = None, *, number: int = 0, start: int = 0, line: int = 0,
    size: int = SHARD_LINES,
) -> Iterator[Shard]:  # fmt: skip
    """The shards of a file from one on, as `shards`, `row_shards` or, of a `.conllu`, one sentence after the other.

    A sentence's number is that of the line on which it begins, from zero. Raises Refused for a file that is broken.
    """
    if columns is not None:
        return row_shards(path, columns, number=number, start=start, line=line, size=size)
    if path.suffix.lower() in TREEBANKS:
        return _tree_shards(path, number, line, size)
    return shards(path, number=number, start=start, line=line, size=size)


def trees_from(path: Path, line: int) -> Iterator[tuple[TreeSentence | None, int]]:
    """The sentences of a treebank from a line on, each with how many bytes were read; None and all bytes at the end.

    Raises Refused as `read_treebank`, and for a file that is not UTF-8.
    """
    read = 0

    def counted(lines: Iterator[str]) -> Iterator[str]:
        nonlocal read
        for one in lines:
            read += len(one.encode())
            yield one

    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            for tree in read_treebank(counted(lines), path.name):
                if tree.line - 1 >= line:
                    yield tree, read
    except UnicodeDecodeError as error:
        raise Refused(f"{path.name} is not UTF-8: {error.reason}") from error
    yield None, read


def _tree_shards(path: Path, number: int, line: int, size: int) -> Iterator[Shard]:
    rows: list[Line] = []
    counts: Counter[str] = Counter()
    for tree, read in trees_from(path, line):
        if rows and (tree is None or len(rows) == size):
            following = rows[-1].number + 1 if tree is None else tree.line - 1
            yield Shard(number, tuple(rows), read, following, counts, read)
            number, rows, counts = number + 1, [], Counter()
        if tree is not None:
            counts["lines"] += 1
            counts["overlong"] += len(tree.text) > LONGEST_LINE
            rows.append(Line(tree.line - 1, tree.text[:LONGEST_LINE]))

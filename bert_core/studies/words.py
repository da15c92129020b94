"""Sentences with a label of each of their words: from a treebank, a table of words, or columns as in CoNLL-2003.

A line of columns that starts with # and has another number of columns than the words is a comment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bert_core.refused import Refused, require_int, validate_arguments
from bert_core.studies.files import Format, InputFile, identify
from bert_core.studies.rows import read_rows
from bert_core.studies.treebank import MAX_SENTENCE_LINES, TreeSentence, read_treebank

LAST_COLUMN = "last"  # of the columns of a file that has no header
DOCUMENT_MARKER = "-DOCSTART-"  # in the place of a word: a new document begins (Tjong Kim Sang & De Meulder 2003)
_OF_WORDS = ("sentence", "word")  # columns of a table that say what the words are
_HOW = "a treebank has parts of speech, relations or features; a table a column beside sentence and word"


@dataclass(frozen=True)
class LabelledSentence:
    """A sentence, where its words stand in it, and the label of each; both (word,), None for a word that has none.

    line: of its file, or the row, where it begins, counted from 1. comments: how many lines of comments stand before it
    or in it, and behind it if it is the last one.
    """

    text: str
    spans: tuple[tuple[int, int] | None, ...]
    labels: tuple[str | None, ...]
    line: int = field(default=0, compare=False)
    comments: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if len(self.spans) != len(self.labels):
            raise Refused(f"{len(self.spans)} words have a place and {len(self.labels)} a label: each needs both")


@validate_arguments
def read_labelled_words(path: Path, label: str, *, word: int = 1) -> list[LabelledSentence]:
    """The sentences of a file and a label of their words.

    path: CoNLL-U; a table of one row a word, with columns `sentence`, which is the same for the words of one, `word`,
    and the labels; or columns without a header, as in CoNLL-2003, a word a line and an empty line behind each
    sentence. label: of CoNLL-U "upos", "relation", or a feature such as "number"; of a table a column; of columns
    without a header the number of one, as "4", or "last". word: there, the number of the column of the words.
    A word without the label, or with an empty one, is read and not asked.
    Raises Refused for a label that no word has, a line with fewer columns, or a file that is none of these.
    """
    source = identify(path, tabs_in_text=True)
    if source.is_table:
        found = _of_table(path, label)
    elif is_column_label(source, label):
        found = _of_columns(source, label, word)
    else:
        found = _of_treebank(source, label)
    if not any(one is not None for sentence in found for one in sentence.labels):
        raise Refused(f"no word of {path.name} has the label {label!r:.60}: {_labels_in(source, label)}")
    return found


def skipped_comments_note(sentences: Iterable[LabelledSentence]) -> str:
    """How many lines of comments were left out, as the end of a sentence; empty where there are none."""
    count = sum(sentence.comments for sentence in sentences)
    return f"; {count:,} lines of comments were left out" if count else ""


@validate_arguments
def label_names(path: Path) -> list[str]:
    """The labels that words of a file have, as `read_labelled_words` takes them.

    path: as for `read_labelled_words`. Raises Refused for a file that is neither, or none of whose words has a label.
    """
    source = identify(path, tabs_in_text=True)
    if source.is_table:
        there: dict[str, bool] = {}
        for _, fields, _ in read_rows(path, _OF_WORDS):
            there = {name: there.get(name, False) or bool(label.strip()) for name, label in fields.items()}
        names = [name for name, any_label in there.items() if any_label and name not in _OF_WORDS]
    else:
        features: set[str] = set()
        whole_file = dict.fromkeys(("upos", "relation"), False)
        for tree in _trees(source):
            features |= tree.feature_names
            whole_file = {name: there or any(tree.labels(name)) for name, there in whole_file.items()}
        names = [*(name for name, there in whole_file.items() if there), *sorted(features)]
    if not names:
        raise Refused(f"no word of {path.name} has a label: {_HOW}")
    return names


def _of_treebank(source: InputFile, label: str) -> list[LabelledSentence]:
    return [
        LabelledSentence(tree.text, tree.spans, tree.labels(label), tree.line, tree.comments) for tree in _trees(source)
    ]


def _trees(source: InputFile) -> Iterator[TreeSentence]:
    if source.format is Format.COLUMNS:
        raise Refused(
            f"{source.name} contains words in columns without a header: the label is the number of a column, as 4, or "
            f"{LAST_COLUMN}"
        )
    return read_treebank((line for line, _ in source.lines()), source.name)


def _of_table(path: Path, label: str) -> list[LabelledSentence]:
    if label in _OF_WORDS:
        raise Refused(f"the label is {label!r}, a column that says what the words are: name another")
    found: list[LabelledSentence] = []
    words: list[str] = []
    labels: list[str | None] = []
    current: str | None = None
    begun = 0

    def ended() -> None:
        if words:
            found.append(_spaced(words, labels, begun))

    for row, fields, _ in read_rows(path, [*_OF_WORDS, label]):
        word = " ".join(fields["word"].split())
        if not word:
            raise Refused(f"row {row} of {path.name} has no word (the header is row 1): take it out")
        if fields["sentence"] != current:
            ended()
            current, words, labels, begun = fields["sentence"], [], [], row
        words.append(word)
        labels.append(fields[label].strip() or None)
    ended()
    return found


def is_column_label(source: InputFile, label: str) -> bool:
    """Whether such a label of such a file is a column without a header."""
    named = Path(source.name.removesuffix(source.compression)).suffix.lower() == ".conllu"
    return not source.is_table and not named and (label.isdecimal() or label == LAST_COLUMN)


def _labels_in(source: InputFile, label: str) -> str:
    if source.is_table or is_column_label(source, label):
        return "its column is empty"
    names = sorted({name for tree in _trees(source) for name in tree.feature_names})
    return f"give upos, relation{', or a feature: ' if names else ''}{', '.join(names)}"


def _of_columns(source: InputFile, label: str, word: int) -> list[LabelledSentence]:
    word = require_int("the column of the words", word, 1)
    column = -1 if label == LAST_COLUMN else require_int("the column of the labels", int(label), 1) - 1
    width = max(word, column + 1, 2 if label == LAST_COLUMN else 1)
    found: list[LabelledSentence] = []
    comments = 0
    for block, of_block in _blocks(source):
        comments += of_block
        if not block or block[0][1][0] == DOCUMENT_MARKER:
            continue
        for number, fields in block:
            if len(fields) < width:
                raise Refused(
                    f"line {number} of {source.name} has {len(fields)} column{'s' * (len(fields) > 1)}: the word is in "
                    f"column {word} and its label in {'the last' if label == LAST_COLUMN else f'column {label}'}, so at least "
                    f"{width} are needed"
                )
        words = [" ".join(fields[word - 1].split()) for _, fields in block]
        if not all(words):
            raise Refused(f"line {block[words.index('')][0]} of {source.name} has no word in column {word}")
        labels = [fields[column].strip() or None for _, fields in block]
        found.append(replace(_spaced(words, labels, block[0][0]), comments=comments))
        comments = 0
    if not found:
        raise Refused(f"{source.name} has no sentence: a word a line with its label, and an empty line behind each")
    return [*found[:-1], replace(found[-1], comments=found[-1].comments + comments)]


def _blocks(source: InputFile) -> Iterator[tuple[list[tuple[int, list[str]]], int]]:
    """The words between empty lines, each with its line's number and its columns, and how many comments are there."""
    widths, tabs = set[int](), False
    for line, _ in source.lines():
        if line.strip() and not line.startswith("#"):
            widths.add(len(split_columns(line)))
            tabs = tabs or "\t" in line
    block: list[tuple[int, list[str]]] = []
    comments = 0
    for number, (line, _) in enumerate(source.lines(), 1):
        if not line.strip():
            if block or comments:
                yield block, comments
            block, comments = [], 0
        elif line.startswith("#") and _is_comment(line, widths, tabs=tabs, begins=not block):
            comments += 1
        else:
            block.append((number, split_columns(line)))
            if len(block) > MAX_SENTENCE_LINES:
                raise Refused(
                    f"line {block[0][0]} of {source.name} begins a sentence of more than {MAX_SENTENCE_LINES:,} lines: "
                    "an empty line ends a sentence"
                )
    if block or comments:
        yield block, comments


def split_columns(line: str) -> list[str]:
    """The columns of a line: separated by tabs where it has some, else by spaces."""
    return line.split("\t" if "\t" in line else None)


def _is_comment(line: str, widths: Collection[int], *, tabs: bool, begins: bool) -> bool:
    """Whether a line that starts with # is a comment and no word.

    widths: numbers of columns that words have. tabs: whether tabs separate these. begins: whether no word of its
    sentence stands before it, where "# name = value" is a comment whatever the number of its columns.
    """
    columns = line.split("\t" if tabs else None)
    return len(columns) not in widths or (begins and columns[0] == "#" and columns[2:3] == ["="])


def _spaced(words: Sequence[str], labels: Sequence[str | None], line: int) -> LabelledSentence:
    """A sentence of words with a space between any two."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    spans = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
    return LabelledSentence(" ".join(words), spans, tuple(labels), line)

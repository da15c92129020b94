"""Sentences with a label of each of their words: from a treebank, a table of words, or columns as in CoNLL-2003."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert_core.refused import Refused, checked, whole
from bert_core.studies.lines import check_file
from bert_core.studies.rows import rows_of
from bert_core.studies.treebank import LONGEST_SENTENCE, TreeSentence, read_treebank

LAST = "last"  # of the columns of a file that has no header
DOCUMENT = "-DOCSTART-"  # in the place of a word: a new document begins (Tjong Kim Sang & De Meulder 2003)
_OF_WORDS = ("sentence", "word")  # columns of a table that say what the words are
_HOW = "a treebank has parts of speech, relations or features; a table a column beside sentence and word"


@dataclass(frozen=True)
class LabelledSentence:
    """A sentence, where its words stand in it, and the label of each; both (word,), None for a word that has none.

    line: of its file, or the row, where it begins, counted from 1.
    """

    text: str
    spans: tuple[tuple[int, int] | None, ...]
    labels: tuple[str | None, ...]
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if len(self.spans) != len(self.labels):
            raise Refused(f"{len(self.spans)} words have a place and {len(self.labels)} a label: each needs both")


@checked
def read_labelled_words(path: Path, label: str, *, word: int = 1) -> list[LabelledSentence]:
    """The sentences of a file and a label of their words.

    path: CoNLL-U; a `.csv` file of one row a word, with columns `sentence`, which is the same for the words of one,
    `word`, and the labels; or columns without a header, as in CoNLL-2003, a word a line and an empty line behind each
    sentence. label: of CoNLL-U "upos", "relation", or a feature such as "number"; of a `.csv` file a column; of columns
    without a header the number of one, as "4", or "last". word: there, the number of the column of the words.
    A word without the label, or with an empty one, is read and not asked.
    Raises Refused for a label that no word has, a line with fewer columns, or a file that is none of these.
    """
    check_file(path)
    if path.suffix.lower() == ".csv":
        found = _of_table(path, label)
    elif in_columns(path, label):
        found = _of_columns(path, label, word)
    else:
        found = _of_treebank(path, label)
    if not any(one is not None for sentence in found for one in sentence.labels):
        raise Refused(f"no word of {path.name} has the label {label!r:.60}: {_labels_in(path, label)}")
    return found


@checked
def label_names(path: Path) -> list[str]:
    """The labels that words of a file have, as `read_labelled_words` takes them.

    path: as for `read_labelled_words`. Raises Refused for a file that is neither, or none of whose words has a label.
    """
    check_file(path)
    if path.suffix.lower() == ".csv":
        there: dict[str, bool] = {}
        for _, fields, _ in rows_of(path, _OF_WORDS):
            there = {name: there.get(name, False) or bool(label.strip()) for name, label in fields.items()}
        names = [name for name, any_label in there.items() if any_label and name not in _OF_WORDS]
    else:
        features: set[str] = set()
        whole_file = dict.fromkeys(("upos", "relation"), False)
        for tree in _trees(path):
            features |= tree.feature_names
            whole_file = {name: there or any(tree.labels(name)) for name, there in whole_file.items()}
        names = [*(name for name, there in whole_file.items() if there), *sorted(features)]
    if not names:
        raise Refused(f"no word of {path.name} has a label: {_HOW}")
    return names


def _of_treebank(path: Path, label: str) -> list[LabelledSentence]:
    return [LabelledSentence(tree.text, tree.spans, tree.labels(label), tree.line) for tree in _trees(path)]


def _trees(path: Path) -> Iterator[TreeSentence]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from read_treebank(lines, path.name)
    except UnicodeDecodeError as error:
        raise Refused(f"{path.name} is not UTF-8: {error.reason}") from error


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

    for row, fields, _ in rows_of(path, [*_OF_WORDS, label]):
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


def in_columns(path: Path, label: str) -> bool:
    """Whether such a label of such a file is a column without a header."""
    return path.suffix.lower() not in (".csv", ".conllu") and (label.isdecimal() or label == LAST)


def _labels_in(path: Path, label: str) -> str:
    if path.suffix.lower() == ".csv" or in_columns(path, label):
        return "its column is empty"
    names = sorted({name for tree in _trees(path) for name in tree.feature_names})
    return f"give upos, relation{', or a feature: ' if names else ''}{', '.join(names)}"


def _of_columns(path: Path, label: str, word: int) -> list[LabelledSentence]:
    word = whole("the column of the words", word, 1)
    column = -1 if label == LAST else whole("the column of the labels", int(label), 1) - 1
    width = max(word, column + 1, 2 if label == LAST else 1)
    found: list[LabelledSentence] = []
    for block in _blocks(path):
        block = block[_comments(block) :]
        if not block or block[0][1][0] == DOCUMENT:
            continue
        for number, fields in block:
            if len(fields) < width:
                raise Refused(
                    f"line {number} of {path.name} has {len(fields)} column{'s' * (len(fields) > 1)}: the word stands "
                    f"in column {word} and its label in {'the last' if label == LAST else f'column {label}'}, so at "
                    f"least {width} are needed"
                )
        words = [" ".join(fields[word - 1].split()) for _, fields in block]
        if not all(words):
            raise Refused(f"line {block[words.index('')][0]} of {path.name} has no word in column {word}")
        found.append(_spaced(words, [fields[column].strip() or None for _, fields in block], block[0][0]))
    if not found:
        raise Refused(f"{path.name} has no sentence: a word a line with its label, and an empty line behind each")
    return found


def _comments(block: list[tuple[int, list[str]]]) -> int:
    """How many lines at the beginning of a block say something of the sentence and are no words.

    They begin with a #. A word that does has as many columns as the others, and is not "# name = value".
    """
    first_word = next((fields for _, fields in block if not fields[0].startswith("#")), None)
    for place, (_, fields) in enumerate(block):
        if not fields[0].startswith("#"):
            return place
        states = fields[0] == "#" and (first_word is None or "=" in fields)
        if not states and (first_word is None or len(fields) == len(first_word)):
            return place
    return len(block)


def _blocks(path: Path) -> Iterator[list[tuple[int, list[str]]]]:
    """The lines between empty ones, with their numbers, as columns: parted by tabs where a line has some."""
    block: list[tuple[int, list[str]]] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    fields = line.rstrip("\r\n").split("\t" if "\t" in line else None)
                    block.append((number, fields))
                    if len(block) > LONGEST_SENTENCE:
                        raise Refused(
                            f"line {block[0][0]} of {path.name} begins a sentence of more than {LONGEST_SENTENCE:,} "
                            "lines: an empty line ends a sentence"
                        )
                elif block:
                    yield block
                    block = []
    except UnicodeDecodeError as error:
        raise Refused(f"{path.name} is not UTF-8: {error.reason}") from error
    if block:
        yield block


def _spaced(words: Sequence[str], labels: Sequence[str | None], line: int) -> LabelledSentence:
    """A sentence of words with a space between any two."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    spans = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
    return LabelledSentence(" ".join(words), spans, tuple(labels), line)

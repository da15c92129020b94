"""Sentences whose words have labels, read from a treebank, a table of words, or columns as in CoNLL-2003.

In a file of columns, a line that starts with # and has another number of columns than the words is a comment.
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

LAST_COLUMN = "last"  # name of the last column of a file without a header
DOCUMENT_MARKER = "-DOCSTART-"  # the "word" that begins a new document (Tjong Kim Sang & De Meulder 2003)
WORD_COLUMNS = ("sentence", "word")  # required columns of a table of words; all others may be labels
_LABEL_SOURCES = "a treebank has parts of speech, relations or features; a table a column next to sentence and word"


@dataclass(frozen=True)
class LabelledSentence:
    """A sentence with a label for each word.

    text: the text.
    spans: (start, end) of each word in `text`, in characters. None for a word without its own span.
    labels: label of each word, or None. It has the length of `spans`.
    line: number of the line or row at which the sentence begins in its file, counted from 1.
    comments: number of comment lines before or in the sentence. The last sentence also counts the comments after it.

    Raises Refused if `spans` and `labels` have different lengths.
    """

    text: str
    spans: tuple[tuple[int, int] | None, ...]
    labels: tuple[str | None, ...]
    line: int = field(default=0, compare=False)
    comments: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if len(self.spans) != len(self.labels):
            raise Refused(f"there are {len(self.spans)} spans and {len(self.labels)} labels: each word needs both")


@validate_arguments
def read_labelled_words(path: Path, label: str, *, word: int = 1) -> list[LabelledSentence]:
    r"""Read the sentences of a file with one label per word.

    path: one of three kinds of file. (1) A treebank in CoNLL-U. (2) A table with one row per word and the columns
        `sentence` (equal for the words of one sentence), `word`, and one per kind of label. (3) Columns without a
        header as in CoNLL-2003, with one word per line and an empty line after each sentence.
    label: for CoNLL-U "upos", "relation", or a feature such as "number". For a table the name of a column. For columns
        without a header the number of a column counted from 1, such as "4", or "last".
    word: number of the column that contains the words, counted from 1. Only for columns without a header.

    Returns the sentences in the order of the file. The label of a word is None if it is missing or empty.
    Raises Refused if no word has the label, if a line has too few columns, or for any other kind of file.

    >>> from pathlib import Path
    >>> import bert_core
    >>> _ = Path("words.csv").write_text("sentence,word,tag\n1,Dogs,NOUN\n1,bark,VERB\n")
    >>> [sentence] = bert_core.read_labelled_words(Path("words.csv"), "tag")
    >>> sentence.text, sentence.labels
    ('Dogs bark', ('NOUN', 'VERB'))
    """
    source = identify(path, tabs_in_text=True)
    if source.is_table:
        sentences = _read_table(path, label)
    elif is_column_label(source, label):
        sentences = _read_columns(source, label, word)
    else:
        sentences = _read_treebank(source, label)
    if not any(word_label is not None for sentence in sentences for word_label in sentence.labels):
        raise Refused(f"no word of {path.name} has the label {label!r:.60}: {_available_labels(source, label)}")
    return sentences


def skipped_comments_note(sentences: Iterable[LabelledSentence]) -> str:
    """Return how many comment lines were skipped, as the end of a sentence, or an empty text if there were none."""
    count = sum(sentence.comments for sentence in sentences)
    return f"; {count:,} lines of comments were left out" if count else ""


@validate_arguments
def label_names(path: Path) -> list[str]:
    """Return the names of the labels that occur in a file, as `read_labelled_words` accepts them.

    path: a treebank in CoNLL-U or a table of words.

    Raises Refused for any other file, and if no word has a label.
    """
    source = identify(path, tabs_in_text=True)
    if source.is_table:
        has_values: dict[str, bool] = {}
        for _, fields, _ in read_rows(path, WORD_COLUMNS):
            has_values = {name: has_values.get(name, False) or bool(value.strip()) for name, value in fields.items()}
        names = [name for name, has_value in has_values.items() if has_value and name not in WORD_COLUMNS]
    else:
        features: set[str] = set()
        occurs = dict.fromkeys(("upos", "relation"), False)
        for tree in _read_trees(source):
            features |= tree.feature_names
            occurs = {name: has_label or any(tree.labels(name)) for name, has_label in occurs.items()}
        names = [*(name for name, has_label in occurs.items() if has_label), *sorted(features)]
    if not names:
        raise Refused(f"no word of {path.name} has a label: {_LABEL_SOURCES}")
    return names


def _read_treebank(source: InputFile, label: str) -> list[LabelledSentence]:
    """Read the sentences of a treebank with one of its labels."""
    return [
        LabelledSentence(tree.text, tree.spans, tree.labels(label), tree.line, tree.comments)
        for tree in _read_trees(source)
    ]


def _read_trees(source: InputFile) -> Iterator[TreeSentence]:
    """Read the sentences of a treebank. Raises Refused for columns without a header."""
    if source.format is Format.COLUMNS:
        raise Refused(
            f"{source.name} contains words in columns without a header: the label must be the number of a column, such "
            f"as 4, or {LAST_COLUMN}"
        )
    return read_treebank((line for line, _ in source.lines()), source.name)


def _read_table(path: Path, label: str) -> list[LabelledSentence]:
    """Read a table with one row per word. Raises Refused for a row without a word."""
    if label in WORD_COLUMNS:
        raise Refused(f"the label is {label!r}, which is the column of the {label}s: name a column of labels")
    sentences: list[LabelledSentence] = []
    words: list[str] = []
    labels: list[str | None] = []
    sentence_id: str | None = None
    first_row = 0

    def finish_sentence() -> None:
        if words:
            sentences.append(_join_words(words, labels, first_row))

    for row, fields, _ in read_rows(path, [*WORD_COLUMNS, label]):
        word = " ".join(fields["word"].split())
        if not word:
            raise Refused(f"row {row} of {path.name} has no word (the header is row 1): remove the row")
        if fields["sentence"] != sentence_id:
            finish_sentence()
            sentence_id, words, labels, first_row = fields["sentence"], [], [], row
        words.append(word)
        labels.append(fields[label].strip() or None)
    finish_sentence()
    return sentences


def is_column_label(source: InputFile, label: str) -> bool:
    """Return whether a label is the number of a column of a file without a header, or "last"."""
    is_conllu = Path(source.name.removesuffix(source.compression)).suffix.lower() == ".conllu"
    return not source.is_table and not is_conllu and (label.isdecimal() or label == LAST_COLUMN)


def _available_labels(source: InputFile, label: str) -> str:
    """Return the part of an error message that says which labels a file has."""
    if source.is_table or is_column_label(source, label):
        return "its column is empty"
    names = sorted({name for tree in _read_trees(source) for name in tree.feature_names})
    return f"give upos, relation{', or a feature: ' if names else ''}{', '.join(names)}"


def _read_columns(source: InputFile, label: str, word: int) -> list[LabelledSentence]:
    """Read columns without a header.

    label: number of the column of the labels, counted from 1, or "last". word: number of the column of the words.
    Raises Refused for a line with too few columns, a line without a word, and a file without sentences.
    """
    word = require_int("the column of the words", word, 1)
    column = -1 if label == LAST_COLUMN else require_int("the column of the labels", int(label), 1) - 1
    min_columns = max(word, column + 1, 2 if label == LAST_COLUMN else 1)
    sentences: list[LabelledSentence] = []
    comments = 0
    for block, block_comments in _read_blocks(source):
        comments += block_comments
        if not block or block[0][1][0] == DOCUMENT_MARKER:
            continue
        for number, fields in block:
            if len(fields) < min_columns:
                label_column = "the last" if label == LAST_COLUMN else f"column {label}"
                raise Refused(
                    f"line {number} of {source.name} has {len(fields)} column{'s' * (len(fields) > 1)}: the word is in "
                    f"column {word} and its label in {label_column}, so at least {min_columns} are needed"
                )
        words = [" ".join(fields[word - 1].split()) for _, fields in block]
        if not all(words):
            raise Refused(f"line {block[words.index('')][0]} of {source.name} has no word in column {word}")
        labels = [fields[column].strip() or None for _, fields in block]
        sentences.append(replace(_join_words(words, labels, block[0][0]), comments=comments))
        comments = 0
    if not sentences:
        raise Refused(
            f"{source.name} has no sentence: each line must have a word and its label, with an empty line after each "
            "sentence"
        )
    return [*sentences[:-1], replace(sentences[-1], comments=sentences[-1].comments + comments)]


def _read_blocks(source: InputFile) -> Iterator[tuple[list[tuple[int, list[str]]], int]]:
    """Yield the (line number, columns) pairs between two empty lines, and the number of comments among them."""
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
        elif line.startswith("#") and _is_comment(line, widths, tabs=tabs, is_first=not block):
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
    """Split a line at tabs, or at whitespace if it has no tab."""
    return line.split("\t" if "\t" in line else None)


def _is_comment(line: str, widths: Collection[int], *, tabs: bool, is_first: bool) -> bool:
    """Return whether a line that starts with # is a comment rather than a word.

    widths: numbers of columns that the words of the file have. tabs: whether tabs separate the columns.
    is_first: whether the line is the first of its sentence. There "# name = value" is always a comment.
    """
    columns = line.split("\t" if tabs else None)
    return len(columns) not in widths or (is_first and columns[0] == "#" and columns[2:3] == ["="])


def _join_words(words: Sequence[str], labels: Sequence[str | None], line: int) -> LabelledSentence:
    """Return a sentence of words separated by spaces."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    spans = tuple((start, start + len(word)) for start, word in zip(starts, words, strict=False))
    return LabelledSentence(" ".join(words), spans, tuple(labels), line)

"""Kinds of training files for fine-tuning: classes of texts, tags of words, and answers to questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bert_core.refused import Refused
from bert_core.studies.files import Format, identify
from bert_core.studies.rows import input_columns, read_labelled
from bert_core.studies.squad import read_squad
from bert_core.studies.words import LAST_COLUMN, label_names, read_labelled_words, split_columns
from bert_core.training.answers import split_contexts
from bert_core.training.class_labels import sorted_classes, stratified_split
from bert_core.training.tagging import sorted_tags, split_sentences
from viz_app.shell.controls import Upload

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")  # extensions of texts with their classes


@dataclass(frozen=True)
class FinetuneRequest:
    """Settings of a fine-tuning run.

    start: the model to start from. table: name of the file, whose extension determines its kind. text, label, pair:
    columns of a table. label, word: columns of a file of tagged words, as for `read_labelled_words`. skip_broken: as
    for `read_squad`. held_out: share of each class, of the sentences or of the contexts that is used for evaluation.
    keep: number of steps whose weights are kept. The other fields are those of `FinetuneSettings`.
    """

    start: str
    table: str
    text: str | None = None
    label: str | None = None
    pair: str | None = None
    word: int = 1
    skip_broken: bool = False
    held_out: float = 0.1
    epochs: int = 3
    learning_rate: float = 5e-5
    batch: int = 16
    max_length: int = 128
    seed: int = 0
    keep: int = 8

    @property
    def kind(self) -> Kind:
        """The kind of the file."""
        return kind_of(self.table)


@dataclass(frozen=True)
class TrainingTexts:
    """The texts of a training file.

    texts: texts or pairs of texts, in their order. labels: the class of each text; empty for the other kinds.
    """

    texts: tuple[str | tuple[str, str], ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of training file.

    name: what is learned. unit: unit of the file, in the plural. held_out_note: which units are used for evaluation.
    read_file: reads and checks a file. default_length: tokens of a text by default. length_note: how longer texts are
    treated. scores: key in the log -> title of each plotted score. example_file: name of an example file.
    """

    name: str
    unit: str
    held_out_note: str
    read_file: Callable[[Path, FinetuneRequest], TrainingTexts]
    default_length: int
    length_note: str
    scores: Mapping[str, str]
    example_file: str


def kind_of(name: str) -> Kind:
    """Return the kind of a file with this name, by the same rule as `headlight finetune`."""
    ending = Path(name).suffix.lower()
    return KINDS["classes" if ending in TABLES else "answers" if ending == ".json" else "tags"]


def read_upload(upload: Upload, request: FinetuneRequest) -> TrainingTexts:
    """Return the texts of an uploaded file. Raises Refused as `headlight finetune` does."""
    with upload.on_disk() as path:
        return kind_of(upload.name).read_file(path, request)


def column_names(upload: Upload) -> list[str]:
    """Return the names of the columns of a table. Raises Refused for fewer than two, or equal ones."""
    with upload.on_disk() as path:
        names = input_columns(identify(path))
    if len(set(names)) < 2 or len(set(names)) < len(names) or "" in names:
        raise Refused(f"{upload.name} has the columns {', '.join(names) or 'none'}: a text and its class are needed")
    return names


def label_choices(upload: Upload) -> list[str]:
    """Return the labels of words that a file has: names of a treebank, otherwise column numbers, the last column first.

    Raises Refused for a file without labels.
    """
    with upload.on_disk() as path:
        source = identify(path, tabs_in_text=True)
        if source.format is Format.TREEBANK:
            return label_names(path)
        line = next((line for line, _ in source.lines() if line.strip() and not line.startswith("#")), "")
    width = len(split_columns(line))
    if width < 2:
        raise Refused(f"{upload.name} begins with the line {line[:60]!r}: a word and its tag are needed in each")
    return [LAST_COLUMN, *(str(number) for number in range(1, width + 1))]


# ---------------------------------------------------------------------------- the three kinds


def _read_classes(path: Path, request: FinetuneRequest) -> TrainingTexts:
    examples = read_labelled(path, request.text or "", request.label or "", request.pair)
    sorted_classes(examples, request.label or "")
    stratified_split(examples, request.held_out, request.seed)
    return TrainingTexts(
        tuple(example.text if example.pair is None else (example.text, example.pair) for example in examples),
        tuple(example.label for example in examples),
    )


def _read_tags(path: Path, request: FinetuneRequest) -> TrainingTexts:
    sentences = read_labelled_words(path, request.label or LAST_COLUMN, word=request.word)
    sorted_tags(sentences, path)
    split_sentences(sentences, request.held_out, request.seed)
    return TrainingTexts(tuple(sentence.text for sentence in sentences))


def _read_answers(path: Path, request: FinetuneRequest) -> TrainingTexts:
    questions, _ = read_squad(path, skip_broken=request.skip_broken)
    split_contexts(questions, request.held_out, request.seed)
    return TrainingTexts(tuple((question.question, question.context) for question in questions))


KINDS: Mapping[str, Kind] = {
    "classes": Kind(
        "classes", "rows", "a tenth of each class", _read_classes, 128, "Longer texts are cut.",
        {"accuracy": "accuracy", "macro_f1": "macro-F1"}, "reviews.csv",
    ),
    "tags": Kind(
        "tags of words", "sentences", "a tenth of them", _read_tags, 128, "Longer sentences are cut.",
        {"f1": "F1 of spans", "accuracy": "accuracy of words"}, "names.conll",
    ),
    "answers": Kind(
        "answers", "questions", "those of a tenth of the contexts", _read_answers, 384,
        "A longer context is read in several windows.", {"exact": "exact match", "f1": "F1"}, "questions.json",
    ),
}  # fmt: skip

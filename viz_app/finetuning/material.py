"""What a file teaches: the classes of its texts, tags of its words, or answers to its questions."""

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
    """What a run is to do.

    start: the model that it begins from. table: the name of the file, whose ending says what is learned. text, label,
    pair: columns of a table; label and word: of words with their tags, as `read_labelled_words` takes them.
    skip_broken: of questions, as `read_squad` takes it. held_out: the share of each class, of sentences or of contexts
    that is asked on. keep: of how many steps the weights are kept. All else: `FinetuneSettings`.
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
        """What is learned."""
        return kind_of(self.table)


@dataclass(frozen=True)
class TrainingTexts:
    """What is learned from a file, read whole.

    texts: each a text, or a pair of two, in their order. labels: the class of each; none where something else is
    learned.
    """

    texts: tuple[str | tuple[str, str], ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of task that can be learned.

    name: on buttons. unit: of the examples in a file, in the plural. held_out_note: which of them are held out.
    read_file: reads a file as a request says. default_length: tokens of a text; length_note: what becomes of longer
    texts. scores: names of the scores by their keys in the log. example_file: the name of the example file.
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
    """What a file of such a name teaches, as `headlight finetune` sees it."""
    ending = Path(name).suffix.lower()
    return KINDS["classes" if ending in TABLES else "answers" if ending == ".json" else "tags"]


def read_upload(upload: Upload, request: FinetuneRequest) -> TrainingTexts:
    """What a file holds, if it can be learned from. Raises Refused as `headlight finetune` does."""
    with upload.on_disk() as path:
        return kind_of(upload.name).read_file(path, request)


def column_names(upload: Upload) -> list[str]:
    """The names of a table's columns. Raises Refused for a file without any."""
    with upload.on_disk() as path:
        names = input_columns(identify(path))
    if len(set(names)) < 2 or len(set(names)) < len(names) or "" in names:
        raise Refused(f"{upload.name} has the columns {', '.join(names) or 'none'}: a text and its class are needed")
    return names


def label_choices(upload: Upload) -> list[str]:
    """Which labels of words there are to learn: of a treebank by name, else the columns by number, the last one first.

    Raises Refused for a file without any.
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

"""The sources of the page: bundled examples, tables that were evaluated before, and texts that are evaluated now."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.agreement import sentences
from bert_core.loading import ASSETS, LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import EvaluatedTexts
from bert_core.refused import Refused
from bert_core.studies.evaluation import evaluate_in_memory, evaluate_texts
from bert_core.studies.evaluation_tables import is_evaluation, read_evaluation
from bert_core.studies.files import Format, identify
from bert_core.studies.lines import Line
from bert_core.studies.rows import Columns, input_columns
from bert_core.studies.settings import EvaluationSettings
from bert_core.studies.squad import read_squad
from bert_core.studies.words import LAST_COLUMN, WORD_COLUMNS, label_names, read_labelled_words
from bert_core.target_kinds import FILE_QUESTIONS
from viz_app.pages.dataset import TEXTS, answer_column, example, pair_column, question, text_column
from viz_app.pages.dataset.rows import clear_filters
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.results import Results, confirmed_results
from viz_app.shell.view import write_note
from viz_app.shell.work import Work, cached, estimate_seconds, wait_for, work

MAX_MEGABYTES = 64
MAX_ROWS = 100_000
UPLOAD = "dataset_upload"  # session key of the visitor's file
TYPES = ("csv", "tsv", "jsonl", "json", "txt", "conllu", "conll", "iob2", "parquet")
NO_COLUMN = ""
_COLUMNS_OF = "_dataset_columns_of"  # session key: identity of the file whose columns were proposed
SURPRISE = "surprise"  # the question about texts without answers
MARKED = ("tag", "span")  # questions whose answers are marked in a file, and not in a column of a table
VERBS = ("is", "are", "was", "were")
SENTENCES_PER_CONDITION = 40
LETTERS_PER_TOKEN = 4  # typical
EXAMPLE_SECONDS = 15.0  # estimated, within which an example is evaluated without a click
BYTES_PER_SECOND = 5e6  # of a table that is read
# Names of columns that are proposed, the most likely first.
TEXT_NAMES = ("text", "sentence", "sentence1", "premise", "statement", "review", "question")
PAIR_NAMES = ("pair", "sentence2", "hypothesis", "second", "context")
ANSWER_NAMES = ("answer", "label", "class", "category", "gold", "target", "sentiment", "word")


@dataclass(frozen=True)
class TextSource:
    """Texts that the selected model evaluates.

    upload: their file. question: key of `FILE_QUESTIONS`, or `SURPRISE`. columns: of a table; None for other files.
    tags: label of a file of words with the expected tags, as for `EvaluationSettings`; empty for none.
    """

    upload: Upload
    question: str
    columns: Columns | None
    tags: str = ""

    @property
    def settings(self) -> EvaluationSettings:
        """The settings of the evaluation."""
        return EvaluationSettings(self.question, columns=self.columns, tags=self.tags)

    def __str__(self) -> str:
        return self.upload.name


@dataclass(frozen=True)
class EvaluatedTable:
    """A table that was evaluated before, which needs no model. upload: its file."""

    upload: Upload

    def __str__(self) -> str:
        return self.upload.name


Source = TextSource | EvaluatedTable


class Evaluation(NamedTuple):
    """The evaluated texts of a source.

    counts: those of `evaluate_shard`; empty for a table that was evaluated before.
    """

    table: EvaluatedTexts
    counts: Mapping[str, int]


# ---------------------------------------------------------------------------- examples


def _as_csv(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Upload:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return Upload(name, file.getvalue().encode())


@cached
def agreement_example() -> Upload:
    """Return random sentences of bert-agreement with a form of "be" at the mask, as many of each condition."""
    conditions: dict[str, list[tuple[str, ...]]] = {}
    for item in sentences():
        if item.right in VERBS:
            fields = (item.text, item.right, item.condition, item.subject, item.attractor or "none")
            conditions.setdefault(item.condition, []).append(fields)
    generator = np.random.default_rng(0)
    rows = [
        items[number]
        for items in conditions.values()
        for number in sorted(generator.choice(len(items), SENTENCES_PER_CONDITION, replace=False))
    ]
    return _as_csv("agreement.csv", ("text", "answer", "condition", "subject", "attractor"), rows)


@cached
def everyday_example() -> Upload:
    """Return the everyday sentences with the first of the accepted words of each as its answer."""
    with (ASSETS / "everyday.csv").open(newline="", encoding="utf-8") as file:
        rows = [
            (row["statement"], row["answers"].partition("|")[0], row["kind"], row["answers"])
            for row in csv.DictReader(file)
        ]
    return _as_csv("everyday.csv", ("text", "answer", "kind", "accepted"), rows)


EXAMPLES = {"agreement": agreement_example, "everyday": everyday_example}


# ---------------------------------------------------------------------------- controls


def select_source(row: DeltaGenerator, model: LoadedModel) -> Source | None:
    """Draw the control of the source, and return the texts to evaluate, or a table that was evaluated before.

    None if no text can be evaluated by the model without a file. row: the container of the control.
    """
    current: Upload | None = st.session_state.get(UPLOAD)
    label = (
        TEXTS.options("controls.dataset.options")[example.value] if current is None else escape_markdown(current.name)
    )
    with row.popover(label, icon=":material/upload_file:", key="dataset_source", width="content"):
        if current is None:
            example(on_change=clear_filters)
        upload = file_control(st, TEXTS["upload"], UPLOAD, types=TYPES, megabytes=MAX_MEGABYTES)
        write_note(TEXTS["upload_hint"].format(most=MAX_ROWS))
        if upload is None:
            if not model.has_head("words"):
                return None
            return TextSource(EXAMPLES[example.value](), "word", Columns("text", answer="answer"))
        if is_evaluated(upload):
            return EvaluatedTable(upload)
        source = _select_columns(upload, model)
        write_note(TEXTS["needs"])
        return source


def _select_columns(upload: Upload, model: LoadedModel) -> TextSource | None:
    """Draw the controls of the columns and of the question; None if the model answers no question about the file."""
    if is_squad(upload):
        return TextSource(upload, "span", None)
    names = columns_of(upload)
    is_new = st.session_state.get(_COLUMNS_OF) != upload.identity
    if is_new:
        st.session_state[_COLUMNS_OF] = upload.identity
        clear_filters()
    if labels := labels_of_words(upload, has_tags=model.has_head(FILE_QUESTIONS["tag"].head)):
        if is_new:
            answer_column.set(labels[0])
        return TextSource(upload, "tag", None, answer_column(options=labels))
    if names:
        if is_new:
            _propose(names)
        text = text_column(options=names)
        further_columns = [NO_COLUMN, *(name for name in names if name != text)]
        answer = answer_column(options=further_columns) or None
        pair = pair_column(options=[name for name in further_columns if name != answer]) or None
        columns = Columns(text, pair, answer)
    else:
        columns = None
    questions = possible_questions(model, columns)
    if not questions:
        return None
    if is_new:
        question.set(questions[0])
    question_name = question(options=questions, format_func=TEXTS.options("questions").__getitem__)
    if columns is not None and question_name in (SURPRISE, *MARKED):
        columns = Columns(text, pair)
    return TextSource(upload, question_name, columns)


def possible_questions(model: LoadedModel, columns: Columns | None) -> list[str]:
    """Return the questions that a model answers about texts of a file, the most useful first.

    columns: selected columns of a table; None for plain texts. Without a column of answers, texts with a class, tags or
    an answer span have predictions only, and other questions come last.
    """
    has_answers = columns is not None and columns.answer is not None
    has_pairs = columns is not None and columns.pair is not None
    names = (
        ("class", "word", "next", *MARKED, SURPRISE) if has_answers else ("class", *MARKED, SURPRISE, "word", "next")
    )
    return [
        name
        for name in names
        if model.has_head("words" if name == SURPRISE else FILE_QUESTIONS[name].head)
        and (has_pairs or name == SURPRISE or not FILE_QUESTIONS[name].pairs)
    ]


def _propose(names: Sequence[str]) -> None:
    """Select the columns of a new file by their names."""
    columns: Mapping[str, str] = {name.casefold(): name for name in reversed(names)}
    for param, proposals, default in (
        (text_column, TEXT_NAMES, names[0]),
        (answer_column, ANSWER_NAMES, NO_COLUMN),
        (pair_column, PAIR_NAMES, NO_COLUMN),
    ):
        param.set(next((columns[name] for name in proposals if name in columns), default))


@cached
def columns_of(upload: Upload) -> list[str]:
    """Return the columns of a table; none for another file. Raises Refused for a file that is not read."""
    with upload.on_disk() as path:
        source = identify(path)
        return input_columns(source) if source.is_table else []


@cached
def is_squad(upload: Upload) -> bool:
    """Return whether a file is a JSON object, which holds questions in SQuAD's form, and not a list of rows."""
    with upload.on_disk() as path:
        source = identify(path)
        first_lines = (line.strip() for line, _ in source.lines())
        return source.format is Format.JSON and next(filter(None, first_lines), "").startswith("{")


@cached
def labels_of_words(upload: Upload, *, has_tags: bool) -> list[str]:
    """Return the labels of a file of words that can be expected tags, the most likely first; none for other files.

    Such a file is a treebank, words in columns without a header, or a table with the columns of `WORD_COLUMNS` and
    others, which is a table of texts to a model without tags.
    has_tags: whether the model predicts tags.
    """
    with upload.on_disk() as path:
        source = identify(path)
        if source.format is Format.COLUMNS:
            columns = max((len(line.split()) for line, _ in source.lines()), default=0)
            return [LAST_COLUMN, *map(str, range(2, columns))]
        is_table = has_tags and source.is_table and set(WORD_COLUMNS) < set(columns_of(upload))
        return label_names(path) if is_table or source.format is Format.TREEBANK else []


def is_evaluated(upload: Upload) -> bool:
    """Return whether a file is a table that `headlight evaluate-file` or `headlight explain` wrote."""
    if upload.name.lower().endswith(".parquet"):
        return True
    return upload.name.lower().endswith(".csv") and is_evaluation(columns_of(upload))


# ---------------------------------------------------------------------------- work


def table_work(model: LoadedModel, source: Source) -> Work[Evaluation]:
    """Return the work that reads or computes the evaluated texts of a source."""
    return _read_table(source) if isinstance(source, EvaluatedTable) else _evaluate(model, source)


def evaluated_texts(model: LoadedModel, source: Source) -> Results:
    """Return the `Evaluation` of a source, once the work is confirmed; until then the one before, or the run ends."""
    if isinstance(source, EvaluatedTable):
        return Results([wait_for(table_work(model, source))], are_stale=False)
    count = count_texts(source)
    if count > MAX_ROWS:
        raise Refused(
            f"the file {source.upload.name} has {count:,} texts, and the page evaluates at most {MAX_ROWS:,}: use "
            "`headlight evaluate-file`, and upload its table"
        )
    quick = EXAMPLE_SECONDS if st.session_state.get(UPLOAD) is None else None
    label = TEXTS["evaluate"].format(count=count)
    return confirmed_results(UPLOAD, label, [table_work(model, source)], quick=quick)


@cached
def count_texts(source: TextSource) -> int:
    """Return the number of texts of a file, at least 1: questions, sentences of words, or lines without a header.

    Raises Refused for questions or words that cannot be read.
    """
    upload = source.upload
    with upload.on_disk() as path:
        if source.tags:
            return len(read_labelled_words(path, source.tags))
        if source.question == "span" and source.columns is None:
            return len(read_squad(path)[0])
    lines = sum(1 for line in upload.data.splitlines() if line.strip())
    return max(lines - (upload.name.lower().endswith((".csv", ".tsv"))), 1)


def _evaluation_seconds(model: LoadedModel, source: TextSource) -> float:
    count = count_texts(source)
    tokens = max(len(source.upload.data) / count / LETTERS_PER_TOKEN, 3)
    passes = count * (tokens if source.question == SURPRISE else 1)
    return estimate_seconds(model, round(min(tokens, model.config.max_position_embeddings)), passes)


@work("{model} evaluates {source}", seconds=_evaluation_seconds)
def _evaluate(model: LoadedModel, source: TextSource, report: Progress = ignore_progress) -> Evaluation:
    """Evaluate the model on all texts of a source."""
    with source.upload.on_disk() as path:
        return Evaluation(*evaluate_in_memory(path, model, source.settings, report))


@work("Reading {source}", seconds=lambda source: len(source.upload.data) / BYTES_PER_SECOND)
def _read_table(source: EvaluatedTable) -> Evaluation:
    """Read a table that was evaluated before. Raises Refused for any other file."""
    with source.upload.on_disk() as path:
        table = read_evaluation(path)
    if len(table) > MAX_ROWS:
        raise Refused(
            f"the file {source} has {len(table):,} rows, and the page shows at most {MAX_ROWS:,}: split the table"
        )
    return Evaluation(table, {})


@work("{model} reads an edited text")
def evaluate_text(model: LoadedModel, question: str, text: str, pair: str, answer: str) -> EvaluatedTexts:
    """Evaluate the model on one text. Raises Refused if the question does not apply to it."""
    settings = EvaluationSettings(question, columns=Columns("text", "pair") if pair else None)
    return evaluate_texts(model, [Line(1, text, pair or None, answer)], settings)

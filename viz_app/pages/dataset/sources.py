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
TYPES = ("csv", "tsv", "jsonl", "txt", "parquet")
NO_COLUMN = ""
SURPRISE = "surprise"  # the question about texts without answers
VERBS = ("is", "are", "was", "were")
SENTENCES_PER_CONDITION = 40
LETTERS_PER_TOKEN = 4  # typical
EXAMPLE_SECONDS = 15.0  # estimated, within which an example is evaluated without a click
BYTES_PER_SECOND = 5e6  # of a table that is read
# Names of columns that are proposed, the most likely first.
TEXT_NAMES = ("text", "sentence", "sentence1", "premise", "statement", "review", "question")
PAIR_NAMES = ("pair", "sentence2", "hypothesis", "second", "context")
ANSWER_NAMES = ("answer", "label", "class", "category", "gold", "target", "sentiment")


@dataclass(frozen=True)
class TextSource:
    """Texts that the selected model evaluates.

    upload: their file. question: key of `FILE_QUESTIONS`, or `SURPRISE`. columns: of a table; None for plain texts.
    """

    upload: Upload
    question: str
    columns: Columns | None

    @property
    def settings(self) -> EvaluationSettings:
        """The settings of the evaluation."""
        return EvaluationSettings(self.question, columns=self.columns)

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
        return _select_columns(upload, model)


def _select_columns(upload: Upload, model: LoadedModel) -> TextSource | None:
    """Draw the controls of the columns and of the question; None if the model answers no question about texts."""
    names = columns_of(upload)
    questions = possible_questions(model, has_columns=bool(names))
    if not questions:
        return None
    if not names:
        return TextSource(upload, question(options=questions), None)
    _propose(upload, names)
    text = text_column(options=names)
    further_columns = [NO_COLUMN, *(name for name in names if name != text)]
    answer = answer_column(options=further_columns) or None
    pair = pair_column(options=[name for name in further_columns if name != answer]) or None
    question_name = question(options=[name for name in questions if fits(name, answer=answer, pair=pair)])
    return TextSource(upload, question_name, Columns(text, pair, answer if question_name != SURPRISE else None))


def possible_questions(model: LoadedModel, *, has_columns: bool) -> list[str]:
    """Return the questions that a model answers about texts of a file. has_columns: whether it is a table."""
    names = [name for name in ("class", "word", "next") if model.has_head(FILE_QUESTIONS[name].head)]
    if not has_columns:
        names = []
    return [*names, *[SURPRISE] * model.has_head("words")]


def fits(name: str, *, answer: str | None, pair: str | None) -> bool:
    """Return whether a question can be evaluated with these columns."""
    if name == SURPRISE:
        return True
    file_question = FILE_QUESTIONS[name]
    return (pair is not None or not file_question.pairs) and (answer is not None or not file_question.takes_answer)


def _propose(upload: Upload, names: Sequence[str]) -> None:
    """Select the columns of a new file by their names."""
    if st.session_state.get(_COLUMNS_OF) == upload.identity:
        return
    st.session_state[_COLUMNS_OF] = upload.identity
    columns: Mapping[str, str] = {name.casefold(): name for name in reversed(names)}
    for param, proposals, default in (
        (text_column, TEXT_NAMES, names[0]),
        (answer_column, ANSWER_NAMES, NO_COLUMN),
        (pair_column, PAIR_NAMES, NO_COLUMN),
    ):
        param.set(next((columns[name] for name in proposals if name in columns), default))
    clear_filters()


_COLUMNS_OF = "_dataset_columns_of"  # session key: identity of the file whose columns were proposed


@cached
def columns_of(upload: Upload) -> list[str]:
    """Return the columns of a table; none for a file of plain texts. Raises Refused for any other file."""
    with upload.on_disk() as path:
        source = identify(path)
        return [] if source.format is Format.TEXT else input_columns(source)


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
    count = count_rows(source.upload)
    if count > MAX_ROWS:
        raise Refused(
            f"{source.upload.name} has {count:,} rows, and the page evaluates at most {MAX_ROWS:,}: use "
            "`headlight evaluate-file`, and upload its table"
        )
    quick = EXAMPLE_SECONDS if st.session_state.get(UPLOAD) is None else None
    label = TEXTS["evaluate"].format(count=count)
    return confirmed_results(UPLOAD, label, [table_work(model, source)], quick=quick)


@cached
def count_rows(upload: Upload) -> int:
    """Return the number of lines with content, without a header."""
    lines = sum(1 for line in upload.data.splitlines() if line.strip())
    return max(lines - (upload.name.lower().endswith((".csv", ".tsv"))), 1)


def _evaluation_seconds(model: LoadedModel, source: TextSource) -> float:
    count = count_rows(source.upload)
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
        raise Refused(f"{source} has {len(table):,} rows, and the page shows at most {MAX_ROWS:,}: split the table")
    return Evaluation(table, {})


@work("{model} reads an edited text")
def evaluate_text(model: LoadedModel, question: str, text: str, pair: str, answer: str) -> EvaluatedTexts:
    """Evaluate the model on one text. Raises Refused if the question does not apply to it."""
    settings = EvaluationSettings(question, columns=Columns("text", "pair") if pair else None)
    return evaluate_texts(model, [Line(1, text, pair or None, answer)], settings)

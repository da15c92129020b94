"""Predictions of a task head for every row of a table, as a table of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.refused import Refused
from bert_core.run.capture import capture
from bert_core.run.multiple_choice import encode_choices, score_choices
from bert_core.studies.files import identify
from bert_core.studies.rows import Columns, read_rows, table_lines
from bert_core.studies.texts import missing_columns_message
from bert_core.task_heads import TaskHead
from bert_core.tokenizer import Encoding


class PredictionTable(NamedTuple):
    """The predictions for the rows of a table, and a sentence about them: what was truncated, or how many are correct.

    columns: names of the columns. rows: one value per column, None for an empty cell. note: empty if there is none.
    """

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    note: str


def predict_rows(
    loaded: LoadedModel,
    head: TaskHead,
    path: Path,
    columns: Columns,
    *,
    max_rows: int = 5,
    report: Progress = ignore_progress,
) -> PredictionTable:
    """Predict with one task head for every row of a table; see `TaskHead.table_rows`.

    columns: those of the texts and of the second texts. max_rows: maximum number of rows of each readout of the head.
    Raises Refused for a row that cannot be encoded, as `check_rows`, and if the head predicts nothing for any row.
    """
    rows, count, truncated = list[tuple[object, ...]](), 0, 0
    for line in table_lines(path, columns):
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair)
        except Refused as error:
            raise Refused(f"row {line.number} of {path.name}: {error}") from error
        run = capture(loaded, encoding, top_k=max_rows)
        rows += [(line.number, line.text, *row) for row in head.table_rows(loaded, run, max_rows)]
        count += 1
        truncated += encoding.truncated_count > 0
        report(None, f"{count:,} {head.text_name}s")
    if not rows:
        raise Refused(f"{loaded.name} predicts nothing of {path.name} with the head {head.name}")
    note = ""
    if truncated:
        texts = f"{truncated:,} of {count:,} {head.long_text_name}s"
        note = f"{texts} did not fit: what stands behind their beginning was not read"
    return PredictionTable(("row", head.text_name, *head.table_columns), rows, note)


def choose_rows(
    loaded: LoadedModel,
    path: Path,
    text: str | None,
    choices: Sequence[str],
    label: str | None = None,
    *,
    report: Progress = ignore_progress,
) -> PredictionTable:
    """Choose among the answers to the question in every row of a table.

    text, choices: columns of the questions and of the answers; an empty answer is no choice.
    label: column of the correct choice, which is its number from 0 or the name of its column; None for none.
    Raises Refused, before the model runs, if columns are missing or a row has no question or fewer than two choices.
    """
    if text is None or len(choices) < 2:
        columns = "the questions (--text) and each that holds an answer (--choice, two or more)"
        raise Refused(missing_columns_message(identify(path), columns))
    questions = _read_questions(loaded, path, text, choices, label)
    rows, correct = list[tuple[object, ...]](), 0
    for number, (row, pairs, answer) in enumerate(questions, 1):
        scores, names = score_choices(loaded, tuple(pairs.values())), list(pairs)
        best = scores.order[0]
        is_correct = names[best] == answer
        correct += is_correct
        shares = dict(zip(names, scores.probabilities.tolist(), strict=True))
        values = (row, scores.question, names[best], scores.choices[best], *(shares.get(name) for name in choices))
        rows.append(values if label is None else (*values, int(is_correct)))
        report_count(report, number, len(questions), "questions")
    headings = ("row", "question", "chosen", "choice", *(f"p({name})" for name in choices))
    if label is None:
        return PredictionTable(headings, rows, "")
    return PredictionTable(
        (*headings, "right"), rows, f"{correct:,} of {len(rows):,} right ({correct / len(rows):.1%})"
    )


def _read_questions(
    loaded: LoadedModel, path: Path, text: str, choices: Sequence[str], label: str | None
) -> list[tuple[int, dict[str, Encoding], str]]:
    """Return the number of each row, its encoded pairs by the columns of the choices, and the correct column.

    Raises Refused for a row that has no question or choices, before the model runs.
    """
    loaded.require_head("chooser", "load a model for multiple choice")
    rows = []
    for row, fields, _ in read_rows(path, [text, *choices, *([] if label is None else [label])]):
        names = [name for name in choices if fields[name].strip()]
        try:
            pairs = encode_choices(loaded, fields[text], [fields[name] for name in names])
            answer = "" if label is None else _correct_column(fields[label].strip(), choices, names)
        except Refused as error:
            raise Refused(f"row {row} of {path.name}: {error}") from error
        rows.append((row, dict(zip(names, pairs, strict=True)), answer))
    if not rows:
        raise Refused(f"{path.name} has no rows: there is nothing to ask")
    return rows


def _correct_column(label: str, choices: Sequence[str], names: Sequence[str]) -> str:
    """Return the column that a label names, or numbers from 0. names: columns whose choice is not empty."""
    name = choices[int(label)] if label.isascii() and label.isdigit() and int(label) < len(choices) else label
    if name not in names:
        raise Refused(f"{label!r:.60} is none of its choices: they are {', '.join(names)}, or their numbers from 0")
    return name

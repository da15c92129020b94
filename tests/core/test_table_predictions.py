"""bert_core.studies.predictions: the predictions of a head, and choices, for the rows of a table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import bert_core
from bert_core import LoadedModel, Refused
from bert_core.studies.predictions import choose_rows, predict_rows
from bert_core.studies.rows import Columns
from bert_core.task_heads import TASK_HEADS


def write_table(folder: Path, *rows: tuple[str, ...]) -> Path:
    """Write rows, of which the first has the names of the columns, as CSV."""
    table = folder / "table.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return table


def test_every_number_of_a_head_has_a_row(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """The rows are the readouts of each text with the number of its row; a text without a prediction has none."""
    texts = ("The [MASK] sat.", "a dog ran", "a [MASK] ran to the [MASK]")
    table, reports = write_table(tmp_path, ("text",), *((text,) for text in texts)), list[str]()
    result = predict_rows(
        tiny_loaded, TASK_HEADS["words"], table, Columns("text"), max_rows=2,
        report=lambda share, message="": reports.append(message),
    )  # fmt: skip
    expected = [
        (number, text, readout.title, name, value)
        for number, text in enumerate(texts, 2)
        for readout in TASK_HEADS["words"].readouts(
            tiny_loaded, bert_core.capture(tiny_loaded, tiny_loaded.tokenizer.encode(text), top_k=2), 2
        )
        for name, value in readout.rows
    ]
    assert result.columns == ("row", "text", "title", "name", "number") and result.note == ""
    assert result.rows == expected and len(expected) == 6
    assert reports == ["1 texts", "2 texts", "3 texts"]


def test_truncated_texts_are_counted(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """The note says how many of the rows did not fit."""
    table = write_table(tmp_path, ("text",), ("a [MASK]",), ("a [MASK] " * 600,))
    note = predict_rows(tiny_loaded, TASK_HEADS["words"], table, Columns("text"), max_rows=1).note
    assert note == "1 of 2 texts did not fit: what stands behind their beginning was not read"


def test_a_table_without_predictions_is_refused(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """A head that predicts nothing for any row, and a row without text, are named."""
    table = write_table(tmp_path, ("text",), ("a dog ran",))
    with pytest.raises(Refused, match=r"predicts nothing of table\.csv with the head words"):
        predict_rows(tiny_loaded, TASK_HEADS["words"], table, Columns("text"))
    with pytest.raises(Refused, match="an empty field in the column 'text'"):
        predict_rows(tiny_loaded, TASK_HEADS["words"], write_table(tmp_path, ("text", "a"), ("", "b")), Columns("text"))


def test_choices_need_two_columns_and_a_trained_head(tiny_loaded: LoadedModel, tmp_path: Path) -> None:
    """One column of choices, and a model without the head, are refused before anything is computed."""
    table = write_table(tmp_path, ("q", "a", "b"), ("who?", "a cat", "a dog"))
    with pytest.raises(Refused, match="its columns are q, a, b"):
        choose_rows(tiny_loaded, table, "q", ["a"])
    with pytest.raises(Refused, match="has no trained multiple-choice head"):
        choose_rows(tiny_loaded, table, "q", ["a", "b"])

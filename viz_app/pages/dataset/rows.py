"""The rows of the evaluated texts: filters, order, and one page of the list."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import streamlit as st

from bert_core.analysis.evaluation import Confusion, order, rows_in_cell, rows_in_slice
from bert_core.records import EvaluatedTexts
from viz_app.figures.style import one_line
from viz_app.pages.dataset import (
    FILTERS,
    TEXTS,
    answer,
    outcome,
    page_number,
    prediction,
    row,
    search,
    slice_value,
    sort_by,
)
from viz_app.shell.markdown import escape_markdown, quoted, with_help
from viz_app.shell.pager import draw_pager, rows_of_page
from viz_app.shell.work import cached

PAGE_ROWS = 50  # rows of one page of the list
HEIGHT, ROWS_THAT_FIT = 460, 12  # pixels of the list, and rows that need less
MAX_CHARACTERS = 300  # of a text in the list
MAX_SLICES = 20
# Option of the order -> the value by which rows are sorted, and whether the largest comes first.
ORDERS = {
    "loss": ("loss", True),
    "loss_up": ("loss", False),
    "confidence": ("confidence", True),
    "confidence_up": ("confidence", False),
    "row": ("row", False),
}


def draw_filters(table: EvaluatedTexts, column: str, values: Sequence[str], matrix: Confusion | None) -> None:
    """Draw the controls of the list above it. column, values: the slices. matrix: the confusion matrix, if any."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if table.has_answers:
            outcome(on_change=show_first_page)
        names = [name for name in ORDERS if name != "row"] if np.isfinite(table.loss).any() else []
        if not np.isfinite(table.confidence).any():
            names = [name for name in names if not name.startswith("confidence")]
        sort_by(options=[*names, "row"], on_change=show_first_page)
        search(on_change=show_first_page, width=230)
        with st.popover(TEXTS["filters"], icon=":material/filter_alt:", key="filters", width="content"):
            slice_value(
                label=TEXTS["in_slice"].format(column=column_title(column)),
                options=[None, *values],
                format_func=lambda value: TEXTS["any"] if value is None else value or TEXTS["empty"],
                on_change=show_first_page,
            )
            if matrix is not None:
                labels: dict[str, Any] = {
                    "options": ["", *matrix.labels],
                    "format_func": lambda label: label or TEXTS["any"],
                }
                answer(**labels, on_change=show_first_page)
                prediction(**labels, on_change=show_first_page)
        if any(param.value != param.first(with_text=False) for param in FILTERS):
            st.button(TEXTS["clear"], icon=":material/filter_alt_off:", on_click=clear_filters, key="clear_filters")


def show_first_page() -> None:
    """Show the first rows of the list; for callbacks that change its filter or its order."""
    page_number.set(1)
    row.set(None)


def clear_filters() -> None:
    """Remove all filters; callback of a button."""
    for param in FILTERS:
        param.set(param.first(with_text=False))
    show_first_page()


@dataclass(frozen=True)
class Filter:
    """Which rows are listed, and in which order.

    column, value: of the slice; None for any. answer, prediction: of the cell of the confusion matrix; "" for any.
    outcome: an option of the control. text: a case-folded part of a text. order: key of `ORDERS`.
    """

    column: str
    value: str | None
    answer: str
    prediction: str
    outcome: str
    text: str
    order: str


def current_filter(column: str) -> Filter:
    """Return the filter of the session. column: that of the slices."""
    text = search.value.strip().casefold()
    return Filter(column, slice_value.value, answer.value, prediction.value, outcome.value, text, sort_by.value)


@cached
def filtered_rows(table: EvaluatedTexts, matrix: Confusion | None, row_filter: Filter) -> np.ndarray:
    """Return the indices of the rows that pass a filter, in its order, (n,) int64. matrix: None without answers."""
    count = len(table)
    passes = np.ones(count, bool)
    if row_filter.value is not None:
        passes &= _mask(rows_in_slice(table, row_filter.column, row_filter.value, MAX_SLICES), count)
    if matrix is not None and (row_filter.answer or row_filter.prediction):
        answers, predictions = (
            (label,) if label else matrix.labels for label in (row_filter.answer, row_filter.prediction)
        )
        cells = [rows_in_cell(table, matrix, *cell) for cell in itertools.product(answers, predictions)]
        passes &= _mask(np.concatenate(cells), count)
    if matrix is not None and row_filter.outcome != "all":
        passes &= table.is_correct if row_filter.outcome == "correct" else table.is_scored & ~table.is_correct
    if row_filter.text:
        texts = zip(table.text, table.pair, strict=True)
        passes &= np.fromiter((any(row_filter.text in text.casefold() for text in pair) for pair in texts), bool, count)
    indices = _ordered(table, row_filter.order)
    passing: np.ndarray = indices[passes[indices]]
    return passing


@cached
def _ordered(table: EvaluatedTexts, name: str) -> np.ndarray:
    return order(table, *ORDERS[name])


def _mask(indices: np.ndarray, length: int) -> np.ndarray:
    mask = np.zeros(length, bool)
    mask[indices] = True
    return mask


def draw_list(table: EvaluatedTexts, indices: np.ndarray, column: str) -> int | None:
    """Draw one page of the rows, and return the index of the selected one; None without any row.

    indices: of the rows that pass the filters, in order. column: that of the slices, which the list shows too.
    """
    if not len(indices):
        st.info(with_help(TEXTS["no_rows"]), icon=":material/filter_alt_off:")
        return None
    places = rows_of_page(page_number, len(indices), PAGE_ROWS)
    page_rows = indices[places.start : places.stop].tolist()
    selected = row.value if row.value in page_rows else page_rows[0]
    key = f"dataset_rows_{crc32(repr(page_rows).encode())}"
    st.dataframe(
        list_columns(table, page_rows, column),
        hide_index=True,
        key=key,
        height=HEIGHT if len(page_rows) > ROWS_THAT_FIT else "content",
        on_select=partial(_select_row, key, page_rows),
        selection_mode="single-row-required",
        selection_default={"selection": {"rows": [page_rows.index(selected)], "columns": [], "cells": []}},
        column_config=_column_config(table),
        alt=TEXTS["list_alt"].format(first=places.start + 1, last=places.stop),
    )
    note = TEXTS["shown"].format(first=places.start + 1, last=places.stop, count=len(indices))
    note = " · ".join([note, *filter_names(column)])
    draw_pager(page_number, len(indices), PAGE_ROWS, key="dataset_pager", note=note, on_open=partial(row.set, None))
    return selected


def filter_names(column: str) -> list[str]:
    """Return the filters of the session in Markdown, without that of the outcome. column: that of the slices."""
    names = {TEXTS["expected"]: answer.value, TEXTS["predicted"]: prediction.value, TEXTS["contains"]: search.value}
    if slice_value.value is not None:
        names[escape_markdown(column_title(column))] = slice_value.value or TEXTS["empty"]
    return [f"{name} {quoted(value)}" for name, value in names.items() if value]


def column_title(column: str) -> str:
    """Return the name of a column of slices as the page shows it."""
    return TEXTS.options("columns").get(column, column)


def list_columns(table: EvaluatedTexts, indices: Sequence[int], column: str) -> dict[str, list[Any]]:
    """Return some rows as the columns of the list, with short texts. column: that of the slices."""
    rows = np.asarray(indices, np.int64)
    columns: dict[str, list[Any]] = {}
    if table.has_answers:
        marks = {(True, True): "✓", (True, False): "✗"}
        columns[""] = [
            marks.get((bool(scored), bool(correct)), "")
            for scored, correct in zip(table.is_scored[rows], table.is_correct[rows], strict=True)
        ]
    columns["text"] = [one_line(text, MAX_CHARACTERS) for text in table.text[rows]]
    if any(table.pair[rows]):
        columns["second text"] = [one_line(text, MAX_CHARACTERS) for text in table.pair[rows]]
    for name in ("answer", "prediction"):
        if any(getattr(table, name)[rows]):
            columns[name] = getattr(table, name)[rows].tolist()
    for name in ("loss", "confidence"):
        if np.isfinite(getattr(table, name)[rows]).any():
            columns[name] = [None if value != value else value for value in getattr(table, name)[rows].tolist()]
    if column in table.columns:
        columns[column] = [one_line(value, MAX_CHARACTERS) for value in table.columns[column][rows]]
    columns["row"] = table.row[rows].tolist()
    return columns


def _column_config(table: EvaluatedTexts) -> Mapping[str, Any]:
    text, digits = st.column_config.TextColumn, st.column_config.NumberColumn
    width = 240 if table.has_answers else 560
    return {
        "": text(width=32),
        "text": text(width=width),
        "answer": text(width=92),
        "prediction": text(width=92),
        "loss": digits(format="%.2f", width=62),
        "confidence": digits(format="%.2f", width=88),
        "row": digits(format="%d", width=62),
    }


def _select_row(key: str, page_rows: Sequence[int]) -> None:
    """Select the clicked row. key: of the list. page_rows: indices of its rows."""
    if rows := st.session_state[key].selection.rows:
        row.set(page_rows[rows[0]])

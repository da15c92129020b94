"""Draws the page Dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.evaluation import (
    Confusion,
    EvaluationSummary,
    Slice,
    confusion,
    select,
    slice_columns,
    slices,
    summary,
)
from bert_core.analysis.intervals import wilson_interval
from bert_core.records import EvaluatedTexts
from bert_core.records.evaluation import INTEGER_FIELDS, NUMBER_FIELDS, TEXT_FIELDS
from viz_app.export import tables
from viz_app.figures.evaluation import confusion_map, slice_bars
from viz_app.pages.dataset import FIRST_COLUMN, TEXTS, answer, measure, prediction, slice_column, slice_value
from viz_app.pages.dataset.rows import (
    MAX_SLICES,
    Filter,
    column_title,
    current_filter,
    draw_filters,
    draw_list,
    filtered_rows,
    show_first_page,
)
from viz_app.pages.dataset.selected_row import draw_row
from viz_app.pages.dataset.sources import SURPRISE, UPLOAD, Source, evaluated_texts, select_source, table_work
from viz_app.shell.address import end_run
from viz_app.shell.edits import NO_EDITS
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference, selected_model
from viz_app.shell.view import View, add_file, chart, write_heading, write_note, write_result
from viz_app.shell.work import cached, wait_for

MAX_LABELS = 20  # of the confusion matrix
LABELS_OF_MANY = 8  # of the matrix, if there are more than `MAX_LABELS` answers
MAX_COLUMN_VALUES = 50  # of a column by which the page opens


def draw(page: View) -> None:
    """Draw the confusion matrix, the slices, the list of texts and the selected one."""
    model = selected_model()
    if model is None:
        end_run()
    controls = page.controls()
    source = select_source(controls, model)
    with page.figure():
        if source is None:
            sentence = TEXTS["no_question" if st.session_state.get(UPLOAD) is None else "no_question_about_file"]
            st.info(with_help(sentence.format(model=escape_markdown(shown_name(model.name)))))
            end_run()
        results = evaluated_texts(model, source)
    ((table, counts),) = results.values
    column = _select_column(controls, table)
    parts = slices_of(table, column)
    matrix = confusion_of(table) if table.has_answers else None
    _forget_impossible(parts, matrix)
    with page.figure().container(key=results.key("evaluated")):
        _write_summary(table, matrix)
        if note := left_out_note(counts):
            write_note(note)
        _draw_figures(table, matrix, parts, column)
    _write_reading(page, table)
    if st.session_state.off or any(st.session_state[name] != value for name, value in NO_EDITS.items()):
        write_note(TEXTS["no_edits"])
    row_filter = current_filter(column)
    indices = filtered_rows(table, matrix, row_filter)
    with st.container(key=results.key("evaluated_rows")):
        write_heading(TEXTS["rows"])
        draw_filters(table, column, [part.value for part in parts], matrix)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            selected = draw_list(table, indices, column)
        if selected is not None:
            with right:
                draw_row(model, table, selected, is_from_table=not counts)
    make_file = partial(_filtered_csv, ModelReference(model), source, row_filter)
    add_file(TEXTS["file"], make_file, "texts.csv", disabled=results.are_stale)


def _filtered_csv(model: ModelReference, source: Source, row_filter: Filter) -> bytes:
    """Return the rows that pass a filter as CSV, with all columns of the file."""
    table, _ = wait_for(table_work(model.get(), source))
    rows = select(table, filtered_rows(table, confusion_of(table) if table.has_answers else None, row_filter))
    fields = {name: getattr(rows, name) for name in (*INTEGER_FIELDS, *TEXT_FIELDS, *NUMBER_FIELDS)}
    return tables.labelled_csv({name: values.tolist() for name, values in (fields | dict(rows.columns)).items()})


# ---------------------------------------------------------------------------- figures


def _select_column(row: DeltaGenerator, table: EvaluatedTexts) -> str:
    """Draw the controls of the slices, and return the column. row: the container of the controls."""
    fields = {name: any(getattr(table, name)) for name in ("answer", "prediction")} | {"correct": table.has_answers}
    options = [name for name in slice_columns(table) if fields.get(name, True)]
    options = [*table.columns, *(name for name in options if name not in table.columns)]
    st.session_state[FIRST_COLUMN] = first_column(table)
    column = slice_column(row, options=options, format_func=column_title, on_change=_forget_slice)
    if table.has_answers:
        measure(row)
    return column


@cached
def first_column(table: EvaluatedTexts) -> str:
    """Return the column by which the page opens: the first one with few values, or else the length of the texts.

    For texts with nothing but predictions it is the prediction.
    """
    if slice_measure_of(table) == "share":
        return "prediction"
    candidates = (name for name, values in table.columns.items() if 1 < len(set(values.tolist())) <= MAX_COLUMN_VALUES)
    return next(candidates, "length")


def slice_measure_of(table: EvaluatedTexts) -> str:
    """Return what the bars of the slices show: "accuracy", "loss", or "share" (of the texts) without either."""
    if table.has_answers:
        return measure.value
    return "loss" if np.isfinite(table.loss).any() else "share"


def _forget_slice() -> None:
    slice_value.set(None)
    show_first_page()


@cached
def slices_of(table: EvaluatedTexts, column: str) -> tuple[Slice, ...]:
    """Return the slices of a column."""
    return slices(table, column, MAX_SLICES)


@cached
def confusion_of(table: EvaluatedTexts) -> Confusion:
    """Return the confusion matrix: of all answers, or of the most frequent of many; other predictions are grouped."""
    answers = len(set(table.answer[table.is_scored].tolist()))
    return confusion(table, max(answers, 2) if answers <= MAX_LABELS else LABELS_OF_MANY)


@cached
def _summary_of(table: EvaluatedTexts) -> EvaluationSummary:
    return summary(table)


def _forget_impossible(parts: Sequence[Slice], matrix: Confusion | None) -> None:
    """Remove filters that the evaluated texts do not have, as after another model or another file."""
    if slice_value.value not in {part.value for part in parts}:
        slice_value.set(None)
    for param in (answer, prediction):
        if matrix is None or param.value not in matrix.labels:
            param.set("")


def _write_summary(table: EvaluatedTexts, matrix: Confusion | None) -> None:
    totals = _summary_of(table)
    loss = f"{totals.mean_loss:.2f}"
    if slice_measure_of(table) == "share":
        write_result(TEXTS["result_predictions"].format(count=totals.count), TEXTS["no_answers"])
        return
    if not table.has_answers:
        line = TEXTS["result_surprise"] if table.question == SURPRISE else ""
        write_result(TEXTS["result_loss"].format(count=totals.count, loss=loss, unit=table.loss_unit), line)
        return
    low, high = totals.interval
    numbers = {
        "correct": totals.correct,
        "scored": totals.scored,
        "accuracy": totals.accuracy,
        "low": low,
        "high": high,
    }
    lines = [TEXTS["result_line"].format(f1=totals.macro_f1, loss=loss, unit=table.loss_unit, **numbers)]
    if totals.scored < totals.count:
        lines.append(TEXTS["not_scored"].format(count=totals.count - totals.scored))
    if matrix is not None and matrix.groups_rare_labels:
        names = {"count": len(matrix.labels) - 1, "labels": len(table.labels), "other": matrix.labels[-1]}
        lines.append(TEXTS["other_note"].format(**names))
    write_result(TEXTS["result_answers"].format(**numbers), " ".join(lines))


def left_out_note(counts: Mapping[str, int]) -> str:
    """Return one sentence about the rows that were left out or changed; empty if there are none.

    counts: those of `evaluate_shard`; empty for a table that was evaluated before.
    """
    reasons = {name: reason for name, reason in TEXTS.options("left_out").items() if counts.get(name)}
    if not reasons:
        return ""
    phrases = ", ".join(f"{counts[name]:,} {reason}" for name, reason in reasons.items())
    return TEXTS["read"].format(texts=counts.get("texts", 0), lines=counts.get("lines", 0), reasons=phrases)


def _draw_figures(table: EvaluatedTexts, matrix: Confusion | None, parts: Sequence[Slice], column: str) -> None:
    """Draw the confusion matrix beside the slices; of many words, of which it shows few, the slices come first."""
    if matrix is None:
        _draw_slices(table, parts, column)
        return
    draw_parts = [partial(_draw_matrix, matrix), partial(_draw_slices, table, parts, column)]
    if matrix.counts[-1].sum() * matrix.groups_rare_labels > matrix.counts.sum() / 2:
        draw_parts.reverse()
    for place, draw_part in zip(st.columns(2, gap="large"), draw_parts, strict=True):
        with place:
            draw_part()


def _draw_matrix(matrix: Confusion) -> None:
    counts = matrix.counts[matrix.counts.any(1)]  # labels that are never an answer are the last ones
    selected = None
    if answer.value in matrix.labels[: len(counts)] and prediction.value:
        selected = matrix.labels.index(answer.value), matrix.labels.index(prediction.value)
    figure = confusion_map(counts, matrix.labels, selected=selected)
    key = f"confusion_{selected}"  # a new figure has no selected point
    alt = TEXTS["matrix_alt"].format(labels=", ".join(matrix.labels))
    select_cell = partial(_select_cell, key, matrix.labels)
    chart(figure, key=key, alt=alt, on_select=select_cell, selection_mode="points")


def _select_cell(key: str, labels: Sequence[str]) -> None:
    """List the rows of the clicked cell, or all again after a second click."""
    if points := st.session_state[key].selection.points:
        cell = labels[int(points[0]["y"])], labels[int(points[0]["x"])]
        is_second = cell == (answer.value, prediction.value)
        for param, label in zip((answer, prediction), ("", "") if is_second else cell, strict=True):
            param.set(label)
        show_first_page()


def _draw_slices(table: EvaluatedTexts, parts: Sequence[Slice], column: str) -> None:
    name = slice_measure_of(table)
    estimates = [_estimate(part, name, len(table)) for part in parts]
    plotted = [(part.value, part.count, *estimate) for part, estimate in zip(parts, estimates, strict=True)]
    plotted = [entry for entry in plotted if math.isfinite(entry[2])]
    if not plotted:
        st.info(with_help(TEXTS["no_slices"]))
        return
    values, counts, numbers, low, high = map(list, zip(*plotted, strict=True))
    measured = TEXTS["share"] if name == "share" else TEXTS.options("controls.slice_measure.options")[name]
    figure = slice_bars(
        values, counts, numbers, low, high,
        title=f"{measured} ({table.loss_unit})" if name == "loss" else measured, is_share=name != "loss",
        selected=values.index(slice_value.value) if slice_value.value in values else None,
    )  # fmt: skip
    key = f"slices_{column}_{slice_value.value}_{measured}"
    alt = TEXTS["slices_alt"].format(measure=measured, column=column_title(column), values=", ".join(values[:5]))
    chart(figure, key=key, alt=alt, on_select=partial(_select_slice, key, values), selection_mode="points")


def _estimate(part: Slice, measure_name: str, total: int) -> tuple[float, float, float]:
    """Return a measure of a slice and the bounds of its 95% interval. total: number of rows of all slices."""
    if measure_name == "accuracy":
        return part.accuracy, *part.interval
    if measure_name == "share":
        return part.count / total, *wilson_interval(part.count, total)
    return part.mean_loss, part.mean_loss - 1.96 * part.loss_error, part.mean_loss + 1.96 * part.loss_error


def _select_slice(key: str, values: Sequence[str]) -> None:
    """List the rows of the clicked slice, or all again after a second click."""
    if points := st.session_state[key].selection.points:
        value = values[int(points[0]["y"])]
        slice_value.set(None if value == slice_value.value else value)
        show_first_page()


def _write_reading(page: View, table: EvaluatedTexts) -> None:
    misleads = TEXTS["misleads"] if table.question != "word" else f"{TEXTS['misleads_words']} {TEXTS['misleads']}"
    reading = "reading" if table.has_answers else f"reading_{slice_measure_of(table)}"
    page.read(TEXTS[reading], misleads)

"""The selected text: its prediction, links to other pages, and an edited copy beside the original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.evaluation import select
from bert_core.loading import LoadedModel
from bert_core.records import EvaluatedTexts
from bert_core.refused import Refused
from viz_app.figures.style import two_digits
from viz_app.pages.dataset import TEXTS, edited_answer, edited_pair, edited_text
from viz_app.pages.dataset.sources import evaluate_text
from viz_app.shell import frame
from viz_app.shell.examples import Example
from viz_app.shell.markdown import error_sentence, escape_markdown, quoted, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import open_example_text
from viz_app.shell.view import write_note
from viz_app.shell.work import wait_for

PAGES = ("predict", "attention", "why", "layers", "heads")
FURTHER_PAGES = ("inside", "neurons", "causes", "compare", "roles", "search")
EDITED_ROW = "_edited_row"  # session key: the row of which the fields have a copy
MAX_CHARACTERS = 2000  # of a text that is shown


QUESTIONS_OF_MARKS = ("tag", "span")  # whose answers are marked in a file, so that an edited copy has none


def draw_row(model: LoadedModel, table: EvaluatedTexts, index: int, *, is_from_table: bool) -> None:
    """Draw a row of the evaluated texts. index: of the row. is_from_table: whether they were evaluated before."""
    row = select(table, [index])
    key = "unknown" if not row.is_scored[0] else "correct" if row.is_correct[0] else "wrong"
    with st.container(border=True, key="dataset_row", gap="small"):
        st.markdown(f"###### {TEXTS[f'row.{key}'].format(row=int(row.row[0]))}")
        st.markdown("  \n".join(quoted(text[:MAX_CHARACTERS]) for text in (row.text[0], row.pair[0]) if text))
        values = row_values(row, 0).items()
        st.markdown(" · ".join(f"{name} **{escape_markdown(str(value))}**" for name, value in values))
        if row.columns:
            fields = (
                f"{escape_markdown(name)}: {escape_markdown(values[0][:100])}" for name, values in row.columns.items()
            )
            write_note(" · ".join(fields))
        _draw_links(row)
        st.markdown(f"**{TEXTS['row.edit']}**")
        _draw_edit(model, row, is_from_table=is_from_table)


def row_values(row: EvaluatedTexts, index: int) -> dict[str, str]:
    """Return what is known about the prediction of a row, by the name that the page shows."""
    values: dict[str, str] = {}
    if row.answer[index]:
        values[TEXTS["row.answer"]] = row.answer[index]
    if row.prediction[index]:
        values[TEXTS["row.prediction"]] = row.prediction[index]
    for name in ("probability", "confidence", "loss"):
        if np.isfinite(number := float(getattr(row, name)[index])):
            values[TEXTS[f"row.{name}"]] = two_digits(number)
    return values


# ---------------------------------------------------------------------------- links to other pages


def _draw_links(row: EvaluatedTexts) -> None:
    """Draw a button for each page on which the text can be opened."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(TEXTS["row.open"], width="content")
        for path in PAGES:
            _draw_link(row, path)
        with st.popover(TEXTS["row.more"], key="dataset_more", width="content"):
            for path in FURTHER_PAGES:
                _draw_link(row, path)


def _draw_link(row: EvaluatedTexts, path: str) -> None:
    page = frame.streamlit_page(path)
    if st.button(page.title, key=f"open_{path}", icon=page.icon, type="tertiary"):
        open_example_text(example_of(row))
        frame.go_to(path)


def example_of(row: EvaluatedTexts) -> Example:
    """Return a row as the text that all pages show: the target is the prediction, rather than another answer."""
    answer, prediction, position = row.answer[0], row.prediction[0], int(row.position[0])
    label = prediction or answer
    targets = {
        "word": f"{position}:{label}",
        "tag": f"tag:{position}:{label}",
        "class": f"class:{label}",
        "next": "nsp",
    }
    target = targets.get(row.question, "") if label else ""
    contrast = answer if row.question == "word" and answer != label else ""
    return Example(row.text[0], row.pair[0], target=target, contrast=contrast)


# ---------------------------------------------------------------------------- an edited copy


def _draw_edit(model: LoadedModel, row: EvaluatedTexts, *, is_from_table: bool) -> None:
    """Draw fields with a copy of the texts, and what the model predicts for it beside the original."""
    text, pair = row.text[0], row.pair[0]
    answer = "" if row.question in QUESTIONS_OF_MARKS else row.answer[0]
    if st.session_state.get(EDITED_ROW) != (text, pair, answer):
        st.session_state[EDITED_ROW] = text, pair, answer
        _take_copy(text, pair, answer)
    edited_text(label_visibility="collapsed", height="content")
    if pair:
        edited_pair(height="content")
    if answer:
        edited_answer()
    copy = edited_text.value, edited_pair.value if pair else "", edited_answer.value.strip() if answer else ""
    if copy == (text, pair, answer):
        write_note(TEXTS["row.edit_hint"])
        return
    try:
        edited = wait_for(evaluate_text(model, row.question, *copy))
    except Refused as error:
        st.warning(with_help(error_sentence(error)))
        return
    same_place = np.flatnonzero(edited.position == row.position[0])
    index = int(same_place[0]) if len(same_place) else 0
    st.dataframe(compared_rows(row_values(row, 0), row_values(edited, index)), hide_index=True, key="edited_values")
    if is_from_table:
        write_note(TEXTS["row.from_table"].format(model=escape_markdown(shown_name(model.name))))
    with st.container(horizontal=True, gap="small"):
        label = TEXTS["row.compare"]
        if copy[0] != text and st.button(label, icon=":material/difference:", key="compare_edited", type="primary"):
            open_example_text(example_of(row))
            st.session_state.update(against="text", other=copy[0])
            frame.go_to("compare")
        st.button(TEXTS["row.reset"], on_click=_take_copy, args=(text, pair, answer), icon=":material/undo:")


def _take_copy(text: str, pair: str, answer: str) -> None:
    for param, value in ((edited_text, text), (edited_pair, pair), (edited_answer, answer)):
        param.set(value)


def compared_rows(original: Mapping[str, str], edited: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return the values of a text and of its edited copy as columns of a table."""
    names = list(dict.fromkeys([*original, *edited]))
    return {
        "": names,
        TEXTS["row.original"]: [original.get(name, "") for name in names],
        TEXTS["row.edited"]: [edited.get(name, "") for name in names],
    }

"""The page Dataset: predictions for all texts of a file, their confusion matrix, slices and rows."""

from __future__ import annotations

from typing import Any

import streamlit as st

from viz_app.shell.params import Page, Param, number, parse_index, select
from viz_app.texts import page_texts

TEXTS = page_texts("dataset")

# Shown while there is no file of the visitor.
example = select("dataset", **TEXTS.control("dataset"))
# The columns of a table of the visitor; without a place in the address, which does not contain the table.
text_column: Param[str] = Param("dataset_text", "", widget="selectbox", **TEXTS.control("dataset_text"))
answer_column: Param[str] = Param("dataset_answer", "", widget="selectbox", **TEXTS.control("dataset_answer"))
pair_column: Param[str] = Param("dataset_pair", "", widget="selectbox", **TEXTS.control("dataset_pair"))
question: Param[str] = Param("dataset_question", "", widget="selectbox", **TEXTS.control("dataset_question"))
measure = select("slice_measure", **TEXTS.control("slice_measure"))
FIRST_COLUMN = "_dataset_first_column"  # session key: the column by which the evaluated texts open


def _first_column() -> str:
    column: str = st.session_state.get(FIRST_COLUMN, "")
    return column


# The default depends on the evaluated texts, so that the address has no column before one is selected.
slice_column: Param[str] = Param(
    "slices", _first_column, widget="selectbox", **TEXTS.control("slices"), arguments={"width": 280}
)
# Filters of the rows; None and "" are no filter. The value of a slice may be empty.
slice_value: Param[str | None] = Param("slice", None, widget="selectbox", step=True, **TEXTS.control("slice"))
answer: Param[str] = Param("expected", "", widget="selectbox", step=True, **TEXTS.control("expected"))
prediction: Param[str] = Param("predicted", "", widget="selectbox", step=True, **TEXTS.control("predicted"))
outcome = select("outcome", **TEXTS.control("outcome"), step=True)
search: Param[str] = Param(
    "row_text", "", widget="text_input", **TEXTS.control("row_text"), arguments={"max_chars": 200}
)
sort_by = select("row_order", **TEXTS.control("row_order"), widget="selectbox", width=250)
page_number = number("row_page", **TEXTS.control("row_page"), default=1, minimum=1, maximum=2000, step=True)
# The index of a row of the evaluated texts; None: the first one of the list.
row: Param[int | None] = Param("data_row", None, parse_index, step=True)
# The edited texts and the expected answer of the selected row; without a place in the address.
edited_text: Param[str] = Param("edited_text", "", widget="text_area", **TEXTS.control("edited_text"))
edited_pair: Param[str] = Param("edited_pair", "", widget="text_area", **TEXTS.control("edited_pair"))
edited_answer: Param[str] = Param("edited_answer", "", widget="text_input", **TEXTS.control("edited_answer"))
FILTERS: tuple[Param[Any], ...] = (slice_value, answer, prediction, outcome, search)

PAGE = Page(
    TEXTS,
    ":material/table_rows:",
    group="Corpus",
    params=(example, slice_column, measure, *FILTERS, sort_by, page_number, row),
    text=False,
)

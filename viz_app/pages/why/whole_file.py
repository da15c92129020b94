"""The mean scores of words over a whole file, from the totals that `headlight explain` writes."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.studies.explanation_tables import WordTotal, read_totals
from bert_core.studies.tables import TABLE_SUFFIXES
from viz_app.figures.why import totals_chart
from viz_app.pages.why import TEXTS, totals_answer, totals_least, totals_method
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import chart, write_note
from viz_app.shell.work import poll, work

MAX_MEGABYTES = 64
MAX_WORDS = 12  # with the largest means, and as many with the smallest
BYTES_PER_SECOND = 20e6  # of a table that is read


def draw() -> None:
    """Draw the controls of the file, and the words with the largest and the smallest mean scores."""
    types = [suffix.removeprefix(".") for suffix in TABLE_SUFFIXES]
    upload = file_control(st, TEXTS["file.label"], "totals_upload", types=types, megabytes=MAX_MEGABYTES)
    if upload is None:
        write_note(TEXTS["file.hint"])
        return
    totals = poll(_read_upload(upload)).value
    if totals is None:
        return
    if not totals:
        st.info(with_help(TEXTS["file.empty"].format(name=escape_markdown(upload.name))), icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        answer = totals_answer(options=list(dict.fromkeys(total.asked for total in totals)))
        methods = dict.fromkeys(total.method for total in totals if total.asked == answer)
        method, minimum = totals_method(options=list(methods)), totals_least()
    selected = [total for total in totals if (total.asked, total.method) == (answer, method) and total.texts >= minimum]
    if not selected:
        st.info(with_help(TEXTS["file.rare"].format(minimum=minimum)), icon=":material/info:")
        return
    extremes = selected if len(selected) <= 2 * MAX_WORDS else selected[:MAX_WORDS] + selected[-MAX_WORDS:]
    means, errors = (np.array([getattr(total, name) for total in extremes]) for name in ("mean", "error"))
    words, texts = [total.word for total in extremes], [total.texts for total in extremes]
    figure = totals_chart(words, means, errors, texts, unit=f"mean score by {method}")
    alt = f"Mean scores of {len(words)} of {len(selected)} words, from {words[0]} to {words[-1]}"
    chart(figure, key="totals_chart", grows=False, alt=alt)
    write_note(TEXTS["file.reading"].format(shown=len(words), count=len(selected)))


@work("Reading {upload}", seconds=lambda upload: len(upload.data) / BYTES_PER_SECOND)
def _read_upload(upload: Upload) -> list[WordTotal]:
    """Read the totals of an uploaded file. Raises Refused for any other file."""
    with upload.on_disk() as path:
        return read_totals(path)

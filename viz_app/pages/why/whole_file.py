"""What every word says of an answer over a whole file: the totals that `headlight explain` writes, opened again."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import streamlit as st

from bert_core.studies.explanation_tables import WordTotal, read_totals
from bert_core.studies.tables import TABLE_SUFFIXES
from viz_app.figures.why import totals_chart
from viz_app.shell.controls import Upload, control, file_control
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_note
from viz_app.shell.work import Work, poll

LARGEST_TABLE = 64  # megabytes
SHOWN = 12  # words for, and as many against
BYTES_A_SECOND = 20e6  # of a table that is read, about
MOST_TEXTS = 100  # that can be asked of a word


def draw(current: Selection) -> None:
    """The file, an answer and a method of it, and the words that say most for it and against it."""
    upload = file_control(
        st, "Totals by word (OUT.words.csv), or the table itself (CSV, Parquet)", "totals_upload",
        types=[suffix.removeprefix(".") for suffix in TABLE_SUFFIXES], megabytes=LARGEST_TABLE,
    )  # fmt: skip
    if upload is None:
        write_note(
            "`headlight explain reviews.csv --text review --model models/stars --out why.parquet` explains every text "
            "of a file; its totals by word, `why.words.csv`, open here."
        )
        return
    totals = _totals(upload)
    if totals is None:
        return
    if not totals:
        st.info(with_help(f"No word stands in {escape_markdown(upload.name)}."), icon=":material/info:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        answers = list(dict.fromkeys(one.asked for one in totals))
        asked = control(st.selectbox, "Answer", "totals_answer", options=answers, first=answers[0], width=260)
        names = list(dict.fromkeys(one.method for one in totals if one.asked == asked))
        method = control(st.selectbox, "Method of the file", "totals_method", options=names, first=names[0], width=260)
        least = control(
            st.number_input, "Texts at least", "totals_least", first=3, min_value=1, max_value=MOST_TEXTS, step=1,
            width=140, help="Words that stand in fewer texts are left out: rare words lead every such list.",
        )  # fmt: skip
    found = [one for one in totals if (one.asked, one.method) == (asked, method) and one.texts >= least]
    if not found:
        st.info(with_help(f"No word stands in {least} texts that were explained so."), icon=":material/info:")
        return
    shown = found if len(found) <= 2 * SHOWN else found[:SHOWN] + found[-SHOWN:]
    chart(
        totals_chart(
            [one.word for one in shown], np.array([one.mean for one in shown]), np.array([one.error for one in shown]),
            [one.texts for one in shown], unit=f"mean score by {method}",
        ),
        key="totals_chart", grows=False,
        alt=f"Mean scores of {len(shown)} of {len(found)} words, from {shown[0].word} to {shown[-1].word}",
    )  # fmt: skip
    write_note(
        f"**How to read this:** the words that say most for and against this answer, {len(shown)} of {len(found)}; "
        "behind each, how many texts have it; the line is where the mean lies with 95%. **How it can mislead:** a "
        "mean hides the texts in which the word says the opposite, and a word may stand where another one speaks."
    )


def _totals(upload: Upload) -> list[WordTotal] | None:
    """The totals of an uploaded file; None while it is read. Raises Refused for any other file."""

    def read(report: object) -> list[WordTotal]:
        with upload.on_disk() as path:
            return read_totals(path)

    key = ("totals of a file", sha256(upload.data).digest())
    return poll(Work(key, f"Reading {upload.name}", read, len(upload.data) / BYTES_A_SECOND)).value

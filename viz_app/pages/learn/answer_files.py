"""What the reader has answered in all lessons, as files to take along."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode

import streamlit as st

from viz_app.classroom.links import app_base_url
from viz_app.classroom.sheet import Entry, Words, as_json, as_page
from viz_app.lessons import STEPS, Lesson
from viz_app.lessons.parsing import lessons
from viz_app.shell import lesson
from viz_app.shell.answers import answer_text
from viz_app.shell.language import language, translate
from viz_app.shell.panel import STEP_NAMES


def draw() -> None:
    """Draw the buttons of the files; nothing where nothing was answered."""
    entries = [_entry(one) for one in lessons(language()) if lesson.note_of(one).answer is not None]
    if not entries:
        return
    words = Words(
        language(), translate("What I expected in Headlight"), translate("Expected:"), translate("so it is"),
        translate("it is otherwise"),
    )  # fmt: skip
    with st.container(horizontal=True, gap="small", key="answer_sheet"):
        st.download_button(
            translate("My answers"), partial(as_page, entries, words), "headlight-answers.html", "text/html",
            on_click="ignore", key="sheet_html", icon=":material/download:",
            help=translate("What you expected in every lesson, what was found, and links to its steps, as one page"),
        )  # fmt: skip
        st.download_button(
            "JSON", partial(as_json, entries), "headlight-answers.json", "application/json", on_click="ignore",
            key="sheet_json",
        )  # fmt: skip


def _entry(one: Lesson) -> Entry:
    note = lesson.note_of(one)
    said = note.answer_text or ("" if note.answer is None else answer_text(one.predict, note.answer, None))
    links = tuple((translate(STEP_NAMES[step]), _link(one, step)) for step in STEPS[:-1])
    return Entry(one.name, one.title, one.question, said, note.right, note.outcome_text, links)


def _link(one: Lesson, step: str) -> str:
    """The address of a step of a lesson on this server."""
    view = one.view(step)
    asked = urlencode({**view.address, "lesson": one.name, "step": step})
    return f"{app_base_url(st.context.url or '')}{view.page}?{asked}"

"""The answers of the reader in all lessons, as files."""

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
from viz_app.shell.downloads import file_button
from viz_app.shell.language import language
from viz_app.texts import page_texts

TEXTS, LESSON_TEXTS = page_texts("class"), page_texts("lesson")


def draw() -> None:
    """Draw the buttons of the files; nothing without an answer."""
    entries = [_entry(content) for content in lessons(language()) if lesson.note_of(content).answer is not None]
    if not entries:
        return
    title, expected = TEXTS["sheet.title"], TEXTS["sheet.expected"]
    words = Words(language(), title, expected, TEXTS["sheet.right"], TEXTS["sheet.wrong"])
    tip = TEXTS["sheet.help"]
    label, page, name = TEXTS["sheet.label"], partial(as_page, entries, words), "headlight-answers"
    with st.container(horizontal=True, gap="small", key="answer_sheet"):
        file_button(label, page, f"{name}.html", help=tip)
        file_button("JSON", partial(as_json, entries), f"{name}.json", icon=None)


def _entry(content: Lesson) -> Entry:
    note = lesson.note_of(content)
    text = note.answer_text or ("" if note.answer is None else answer_text(content.predict, note.answer, None))
    links = tuple((LESSON_TEXTS[f"steps.{step}"], _link(content, step)) for step in STEPS[:-1])
    return Entry(content.name, content.title, content.question, text, note.right, note.outcome_text, links)


def _link(content: Lesson, step: str) -> str:
    """Return the URL of a step of a lesson on this server."""
    view = content.view(step)
    query = urlencode({**view.address, "lesson": content.name, "step": step})
    return f"{app_base_url(st.context.url or '')}{view.page}?{query}"

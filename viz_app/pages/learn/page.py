"""Draws the page Learn."""

from itertools import groupby

import streamlit as st

from viz_app.lessons import Lesson
from viz_app.lessons.parsing import folder_faults, lessons
from viz_app.pages.learn import TEXTS, answer_files, student, teacher
from viz_app.shell import lesson, panel
from viz_app.shell.language import language
from viz_app.shell.lesson import Note
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import View

MAX_CARDS = 5  # in a row


def draw(page: View) -> None:
    """Draw the class that is led or joined, or else all lessons."""
    if st.session_state.teach:
        teacher.draw(page)
    elif st.session_state["class"]:
        student.draw(page)
    else:
        _draw_lessons(page)


def _draw_lessons(page: View) -> None:
    """Draw the next lesson, a row of lessons with its progress for each course, and the files of the answers."""
    all_lessons = lessons(language())
    with page.figure():
        for fault in folder_faults(language()):
            st.warning(with_help(escape_markdown(fault)), icon=":material/warning:")
        following = next((content for content in all_lessons if not _is_done(content)), None)
        if following is not None:
            _draw_next(following)
        for course, grouped in groupby(all_lessons, key=lambda content: content.course):
            _draw_course(course, list(grouped))
        answer_files.draw()
        if lesson.notes():
            tip = TEXTS["reset_help"]
            label, icon = TEXTS["reset"], ":material/delete:"
            panel.button(label, "forget_lessons", lesson.forget_all, type="tertiary", icon=icon, help=tip)
    page.read(TEXTS["reading"])


def _is_done(content: Lesson) -> bool:
    return lesson.note_of(content).own_right is not None


def _draw_next(content: Lesson) -> None:
    """Draw the first lesson that is not completed, with a button that opens it."""
    with st.container(border=True, key="next_lesson", horizontal=True, vertical_alignment="center"):
        title, question = escape_markdown(content.title), escape_markdown(content.question)
        st.markdown(f"{TEXTS['next']} **{title}** &nbsp; {question} &nbsp; {_minutes(content)}")
        panel.button(_begin_label(content), "begin_next", panel.begin, content, primary=True)


def _draw_course(course: int, contents: list[Lesson]) -> None:
    """Draw the title of a course with its progress, and a card for each lesson."""
    completed = sum(map(_is_done, contents))
    with st.container(horizontal=True, vertical_alignment="center", key=f"course_{course}"):
        st.subheader(TEXTS[f"courses.{course}"], anchor=False, width="content")
        sentence = TEXTS["done"].format(done=completed, all=len(contents))
        st.progress(completed / len(contents), text=sentence, width=220)
    for row in [contents[start : start + MAX_CARDS] for start in range(0, len(contents), MAX_CARDS)]:
        for place, content in zip(st.columns(MAX_CARDS, gap="small"), row, strict=False):
            with place:
                _draw_card(content)


def _draw_card(content: Lesson) -> None:
    """Draw the title, question, duration and progress of a lesson, and a button that opens it."""
    progress = panel.progress_summary(content)
    with st.container(border=True, height="stretch", gap="small", key=f"lesson_card_{content.name}"):
        st.markdown(f"**{content.number} {escape_markdown(content.title)}**", help=escape_markdown(content.source))
        st.caption(escape_markdown(content.question))
        st.caption(f":material/check: {progress}" if progress else _minutes(content))
        if _is_done(content):
            panel.button(TEXTS["repeat"], f"again_{content.name}", panel.restart, content, width="stretch")
        else:
            panel.button(_begin_label(content), f"begin_{content.name}", panel.begin, content, width="stretch")


def _begin_label(content: Lesson) -> str:
    return TEXTS["continue"] if lesson.note_of(content) != Note() else TEXTS["begin"]


def _minutes(content: Lesson) -> str:
    return TEXTS["minutes"].format(minutes=content.minutes)

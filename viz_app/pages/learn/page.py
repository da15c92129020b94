"""Draws the page Learn."""

from itertools import groupby

import streamlit as st

from viz_app.lessons import Lesson
from viz_app.lessons.parsing import OWN_COURSE, folder_faults, lessons
from viz_app.pages.learn import answer_files, student, teacher
from viz_app.shell import lesson, panel
from viz_app.shell.language import language, translate
from viz_app.shell.lesson import Note
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import View

COURSES = {
    1: "First course: where it looks, and what that is worth",
    2: "Second course: what it knows, and how one can tell",
    3: "Third course: what it only seems to know",
    OWN_COURSE: "From your teacher",
}


def draw(page: View) -> None:
    """Draw the class that is led or joined, or else all lessons."""
    if st.session_state.teach:
        teacher.draw(page)
    elif st.session_state["class"]:
        student.draw(page)
    else:
        _draw_lessons(page)


def _draw_lessons(page: View) -> None:
    """Draw a card for each lesson, and the files of the answers."""
    with page.figure():
        for fault in folder_faults(language()):
            st.warning(with_help(escape_markdown(fault)), icon=":material/warning:")
        for course, contents in groupby(lessons(language()), key=lambda content: content.course):
            st.subheader(translate(COURSES[course]), anchor=False)
            for content in contents:
                _draw_card(content)
        answer_files.draw()
        if lesson.notes():
            tip = translate("In all lessons, here and in this browser: for the next reader at this machine")
            label, icon = translate("Forget what I said"), ":material/delete:"
            panel.button(label, "forget_lessons", lesson.forget_all, type="tertiary", icon=icon, help=tip)
    reading = translate(
        "**How to read this:** nothing is graded and nothing leaves this machine. What you said and did is kept by "
        "your browser alone. **How it can mislead:** each lesson stands on a published result, but what it "
        "shows is this model on these sentences; where it does otherwise, the lesson says so."
    )
    page.read(reading)


def _draw_card(content: Lesson) -> None:
    """Draw the question, duration, source and progress of a lesson, and a button that opens it."""
    note, progress = lesson.note_of(content), panel.progress_summary(content)
    with st.container(border=True, key=f"lesson_card_{content.name}"):
        text, action = st.columns([5, 1], vertical_alignment="center")
        text.markdown(f"**{escape_markdown(content.title)}** &nbsp; {escape_markdown(content.question)}")
        minutes = translate("{minutes} minutes").format(minutes=content.minutes)
        caption = f"{minutes} · {escape_markdown(content.source)}"
        text.caption(f"{caption} · :material/check: {progress}" if progress else caption)
        with action:
            if note.own_right is not None:
                panel.button(translate("Again"), f"again_{content.name}", panel.restart, content, width="stretch")
                return
            label = translate("Go on") if note != Note() else translate("Begin")
            panel.button(label, f"begin_{content.name}", panel.begin, content, primary=True, width="stretch")

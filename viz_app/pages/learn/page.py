"""What would you like to find out?"""

from itertools import groupby

import streamlit as st

from viz_app.lessons import Lesson
from viz_app.lessons.parsing import OWN_COURSE, folder_faults, lessons
from viz_app.pages.learn import answer_files, student, teacher
from viz_app.shell import frame, lesson, panel
from viz_app.shell.language import language, translate
from viz_app.shell.lesson import Note
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import View, page_place, write_reading

COURSES = {
    1: "First course: where it looks, and what that is worth",
    2: "Second course: what it knows, and how one can tell",
    3: "Third course: what it only seems to know",
    OWN_COURSE: "From your teacher",
}


def draw(page: View) -> None:
    """Draw the page: a class that is led or joined, else all lessons."""
    if st.session_state.teach:
        teacher.draw()
    elif st.session_state["class"]:
        student.draw()
    else:
        _all()


def _all() -> None:
    frame.title(
        translate("What would you like to find out?"),
        translate(
            "Lessons of a few minutes: say what you expect, try it on the live page, see what is true, use your own "
            "words."
        ),
    )
    with page_place("figure"):
        for fault in folder_faults(language()):
            st.warning(with_help(escape_markdown(fault)), icon=":material/warning:")
        for course, some in groupby(lessons(language()), key=lambda one: one.course):
            st.subheader(translate(COURSES[course]), anchor=False)
            for one in some:
                _lesson(one)
        answer_files.draw()
        if lesson.notes():
            st.button(
                translate("Forget what I said"), icon=":material/delete:", type="tertiary", on_click=lesson.forget_all,
                help=translate("In all lessons, here and in this browser: for the next reader at this machine"),
            )  # fmt: skip
    write_reading(translate(
        "**How to read this:** nothing is graded and nothing leaves this machine. What you said and did is kept by "
        "your browser alone. **How it can mislead:** each lesson stands on a published result, but what it "
        "shows is this model on these sentences; where it does otherwise, the lesson says so."
    ))  # fmt: skip


def _lesson(one: Lesson) -> None:
    """One lesson: what it asks, how long it takes, on whose result it stands, and what was done of it."""
    note, done = lesson.note_of(one), panel.progress_summary(one)
    with st.container(border=True, key=f"lesson_card_{one.name}"):
        says, begins = st.columns([5, 1], vertical_alignment="center")
        says.markdown(f"**{escape_markdown(one.title)}** &nbsp; {escape_markdown(one.question)}")
        minutes = translate("{minutes} minutes").format(minutes=one.minutes)
        about = f"{minutes} · {escape_markdown(one.source)}"
        says.caption(f"{about} · :material/check: {done}" if done else about)
        if note.own_right is not None:
            begins.button(
                translate("Again"), key=f"again_{one.name}", width="stretch", on_click=panel.restart, args=(one,)
            )
        else:
            begins.button(
                translate("Go on") if note != Note() else translate("Begin"), key=f"begin_{one.name}", type="primary",
                width="stretch", on_click=panel.begin, args=(one,),
            )  # fmt: skip

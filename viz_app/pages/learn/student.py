"""What who has joined a class sees: the question of the present step, their answer, and then the truth beside it."""

from __future__ import annotations

import streamlit as st

from bert_core.refused import Refused
from viz_app.classroom import VOTE_CLOSED, Class, ClassQuestion, ClassState
from viz_app.lessons import Lesson, Task
from viz_app.pages.learn import answer_files
from viz_app.shell import classroom, frame, lesson, panel
from viz_app.shell.answers import answer_control, answer_text, mark_pressed, pop_pressed
from viz_app.shell.language import translate
from viz_app.shell.lesson import Answer
from viz_app.shell.lesson_records.context import CheckContext
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import page_place


def draw() -> None:
    """Draw the class of the address."""
    code, me = st.session_state["class"], classroom.member_id()
    if me is None:
        _title(translate("A class"))
        page_place("figure").caption(translate("Joining the class ..."))
        return
    try:
        group = classroom.CLASSES.join(code, me, classroom.clock_time())
    except Refused as error:
        _title(translate("A class"))
        with page_place("figure"):
            st.info(with_help(translate(str(error))), icon=":material/groups:")
            _leave()
        return
    shown = group.state()
    one = None if shown.question is None else classroom.lesson_in(shown.question)
    _title(translate("A class") if one is None else escape_markdown(one.question))
    with page_place("figure").container(key="class_student"):
        if one is None or shown.question is None:
            st.info(with_help(translate("You are in. The question comes in a moment, and this page with it.")))
        else:
            _step(one, shown.question, shown, group, me)
        answer_files.draw()
        st.button(translate("Leave the class"), key="class_leave", type="tertiary", on_click=classroom.leave)
        frame.fragment(_follow, run_every=classroom.POLL_SECONDS)(code, shown.version)


def _title(asks: str) -> None:
    frame.title(asks, translate("What you answer is counted, and nobody sees whose it is."))


def _step(one: Lesson, question: ClassQuestion, shown: ClassState, group: Class, me: str) -> None:
    asked, task = panel.prediction_context(one, question.model), one.predict
    if shown.step in ("wait", "ask"):
        panel.draw_paragraphs(task.text, set())
        if task.answer != "word":
            st.markdown(f"> {panel.masked_text(asked)}")
        panel.prefetch_truth(one, asked)
    if shown.step == "wait":
        st.info(with_help(translate("The vote has not begun yet.")), icon=":material/hourglass_empty:")
    elif shown.step == "ask":
        if shown.vote > 1:
            st.markdown(f"**{translate('A second vote: talk to your neighbours, then answer again.')}**")
        answer = answer_control(one, "predict", task, asked)
        words = None if answer is None else answer_text(task, answer, asked.original)
        if (vote := pop_pressed("class_say")) is not None and answer is not None and words is not None:
            _answer(one, group, me, vote, answer, words)
        said = _said(group, me, task, asked)
        st.button(
            translate("Send my answer") if said is None else translate("Change my answer"), key="class_say",
            type="primary",
            disabled=answer is None or words == said, on_click=mark_pressed,
            args=("class_say", (shown.number, shown.vote)),
        )  # fmt: skip
        if said is not None:
            st.success(
                with_help(
                    translate("Your answer: {answer}. You can change it until the vote ends.").format(
                        answer=escape_markdown(said)
                    )
                )
            )
    elif shown.step == "reveal" and lesson.note_of(one).answer is not None:
        panel.draw_truth(one, asked, lesson.note_of(one).answer)
    else:
        if pop_pressed("class_say") is not None:
            st.toast(translate(VOTE_CLOSED))
        said = _said(group, me, task, asked)
        st.info(
            with_help(
                translate("The vote is over.")
                if said is None
                else translate("The vote is over. Your answer: {answer}.").format(answer=escape_markdown(said))
            )
        )
    if shown.step in ("do", "reveal"):
        st.button(
            translate("Try it on a page of your own"), icon=":material/open_in_full:", key="class_try",
            on_click=panel.begin, args=(one,), disabled=lesson.note_of(one).answer is None,
        )  # fmt: skip


def _said(group: Class, me: str, task: Task, asked: CheckContext) -> str | None:
    given = group.answer_of(me)
    return None if given is None else answer_text(task, given, asked.original)


def _answer(one: Lesson, group: Class, me: str, vote: tuple[int, int], answer: Answer, words: str) -> None:
    """Give an answer to the class and keep it. vote: the question's number, and that of its vote."""
    try:
        group.answer(me, *vote, answer)
    except Refused as error:
        st.toast(translate(str(error)))
        return
    lesson.update_note(one, answer=answer, answer_text=words, right=None, outcome_text="")


def _follow(code: str, drawn: int) -> None:
    """Draw the page again when the class is at another step, or closed."""
    found = classroom.CLASSES.find(code, classroom.clock_time())
    if found is None or found.state().version != drawn:
        st.rerun()


def _leave() -> None:
    st.caption(translate("What you answered is kept by your browser."))
    answer_files.draw()
    st.button(translate("All lessons"), icon=":material/school:", key="class_leave", on_click=classroom.leave)

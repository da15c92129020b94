"""What who has joined a class sees: the question of the present step, their answer, and then the truth beside it."""

from __future__ import annotations

import streamlit as st

from bert_core.refused import Refused
from viz_app.classroom import OVER, Class, Question, Shown
from viz_app.lessons import Lesson, Task
from viz_app.pages.learn import taken
from viz_app.shell import classroom, frame, lesson, panel, screen
from viz_app.shell.answers import answer_control, in_words, press, pressed
from viz_app.shell.findings.asked import Asked
from viz_app.shell.language import translate
from viz_app.shell.lesson import Answer
from viz_app.shell.markdown import escape_markdown, with_help


def draw() -> None:
    """Draw the class of the address."""
    code, me = st.session_state["class"], classroom.me()
    if me is None:
        _title(translate("A class"))
        screen.picture().caption(translate("Joining the class ..."))
        return
    try:
        group = classroom.CLASSES.join(code, me, classroom.now())
    except Refused as error:
        _title(translate("A class"))
        with screen.picture():
            st.info(with_help(translate(str(error))), icon=":material/groups:")
            _leave()
        return
    shown = group.shown()
    one = None if shown.question is None else classroom.lesson_in(shown.question)
    _title(translate("A class") if one is None else escape_markdown(one.question))
    with screen.picture().container(key="class_student"):
        if one is None or shown.question is None:
            st.info(with_help(translate("You are in. The question comes in a moment, and this page with it.")))
        else:
            _step(one, shown.question, shown, group, me)
        taken.draw()
        st.button(translate("Leave the class"), key="class_leave", type="tertiary", on_click=classroom.leave)
        frame.fragment(_follow, run_every=classroom.FOLLOW)(code, shown.version)


def _title(asks: str) -> None:
    frame.title(asks, translate("What you answer is counted, and nobody sees whose it is."))


def _step(one: Lesson, question: Question, shown: Shown, group: Class, me: str) -> None:
    asked, task = panel.asked_on(one, question.model), one.predict
    if shown.step in ("wait", "ask"):
        panel.paragraphs(task.says, set())
        if task.answer != "word":
            st.markdown(f"> {panel.text_of(asked)}")
        panel.foresee_truth(one, asked)
    if shown.step == "wait":
        st.info(with_help(translate("The vote has not begun yet.")), icon=":material/hourglass_empty:")
    elif shown.step == "ask":
        if shown.vote > 1:
            st.markdown(f"**{translate('A second vote: talk to your neighbours, then answer again.')}**")
        answer = answer_control(one, "predict", task, asked)
        words = None if answer is None else in_words(task, answer, asked.original)
        if (vote := pressed("class_say")) is not None and answer is not None and words is not None:
            _answer(one, group, me, vote, answer, words)
        said = _said(group, me, task, asked)
        st.button(
            translate("Send my answer") if said is None else translate("Change my answer"), key="class_say",
            type="primary",
            disabled=answer is None or words == said, on_click=press, args=("class_say", (shown.number, shown.vote)),
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
        panel.truth(one, asked, lesson.note_of(one).answer)
    else:
        if pressed("class_say") is not None:
            st.toast(translate(OVER))
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


def _said(group: Class, me: str, task: Task, asked: Asked) -> str | None:
    given = group.answer_of(me)
    return None if given is None else in_words(task, given, asked.original)


def _answer(one: Lesson, group: Class, me: str, vote: tuple[int, int], answer: Answer, words: str) -> None:
    """Give an answer to the class and keep it. vote: the question's number, and that of its vote."""
    try:
        group.answer(me, *vote, answer)
    except Refused as error:
        st.toast(translate(str(error)))
        return
    lesson.keep(one, answer=answer, said=words, right=None, found="")


def _follow(code: str, drawn: int) -> None:
    """Draw the page again when the class is at another step, or closed."""
    found = classroom.CLASSES.of(code, classroom.now())
    if found is None or found.shown().version != drawn:
        st.rerun()


def _leave() -> None:
    st.caption(translate("What you answered is kept by your browser."))
    taken.draw()
    st.button(translate("All lessons"), icon=":material/school:", key="class_leave", on_click=classroom.leave)

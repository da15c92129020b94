"""The page of a student in a class: the question of the current step, their answer, and the truth beside it."""

from __future__ import annotations

import streamlit as st

from viz_app.classroom import VOTE_CLOSED, Class, ClassQuestion, ClassState
from viz_app.lessons import Lesson, Task
from viz_app.lessons.checks.context import CheckContext
from viz_app.pages.learn import answer_files
from viz_app.shell import classroom, frame, lesson, panel
from viz_app.shell.answers import answer_control, answer_text, mark_pressed, pop_pressed
from viz_app.shell.lesson import Answer
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import View
from viz_app.texts import TranslatedRefusal, page_texts

TEXTS, LESSON_TEXTS = page_texts("class"), page_texts("lesson")


def draw(page: View) -> None:
    """Draw the class of the address."""
    code, member = st.session_state["class"], classroom.member_id()
    if member is None:
        _draw_title(TEXTS["title"])
        page.figure().caption(TEXTS["student.joining"])
        return
    try:
        group = classroom.CLASSES.join(code, member, classroom.clock_time())
    except TranslatedRefusal as error:
        with page.figure():
            _draw_title(TEXTS["title"])
            st.info(with_help(error.sentence), icon=":material/groups:")
            st.caption(TEXTS["student.kept"])
            answer_files.draw()
            panel.button(LESSON_TEXTS["all_lessons"], "class_leave", classroom.leave, icon=":material/school:")
        return
    state = group.state()
    content = None if state.question is None else classroom.lesson_in(state.question)
    with page.figure().container(key="class_student"):
        _draw_title(TEXTS["title"] if content is None else escape_markdown(content.question))
        if content is None or state.question is None:
            st.info(with_help(TEXTS["student.joined"]))
        else:
            _draw_step(content, state.question, state, group, member)
        answer_files.draw()
        panel.button(TEXTS["student.leave"], "class_leave", classroom.leave, type="tertiary")
        frame.fragment(_rerun_on_change, run_every=classroom.POLL_SECONDS)(code, state.version)


def _draw_title(question: str) -> None:
    st.subheader(question, anchor=False)
    st.caption(TEXTS["student.line"])


def _draw_step(content: Lesson, question: ClassQuestion, state: ClassState, group: Class, member: str) -> None:
    context, task, note = panel.context_on_model(content, question.model), content.predict, lesson.note_of(content)
    if state.step in ("wait", "ask"):
        panel.draw_paragraphs(task.text, set())
        if task.answer != "word":
            st.markdown(f"> {panel.masked_text(context)}")
        panel.draw_question_figure(content, question.model)
        panel.prefetch_truth(content, context)
    if state.step == "wait":
        st.info(with_help(TEXTS["student.not_begun"]), icon=":material/hourglass_empty:")
    elif state.step == "ask":
        _draw_vote(content, context, state, group, member)
    elif state.step == "reveal" and note.answer is not None:
        panel.draw_truth(content, context, note.answer)
    else:
        if pop_pressed("class_say") is not None:
            st.toast(VOTE_CLOSED.translated())
        text = _member_answer(group, member, task, context)
        closed = TEXTS["student.over_answer"].format(answer=escape_markdown(text or ""))
        st.info(with_help(TEXTS["student.over"] if text is None else closed))
    if state.step in ("do", "reveal"):
        label, is_missing = TEXTS["student.try"], lesson.note_of(content).answer is None
        icon = ":material/open_in_full:"
        panel.button(label, "class_try", panel.begin, content, icon=icon, disabled=is_missing)


def _draw_vote(content: Lesson, context: CheckContext, state: ClassState, group: Class, member: str) -> None:
    """Draw the control of the answer, the button that sends it, and the answer that was sent."""
    task = content.predict
    if state.vote > 1:
        st.markdown(f"**{TEXTS['student.second_vote']}**")
    answer = answer_control(content, "predict", task, context)
    text = None if answer is None else answer_text(task, answer, context.original)
    if (vote := pop_pressed("class_say")) is not None and answer is not None and text is not None:
        _send(content, group, member, vote, answer, text)
    stored_text = _member_answer(group, member, task, context)
    label = TEXTS["student.send"] if stored_text is None else TEXTS["student.change"]
    is_unchanged, vote = answer is None or text == stored_text, (state.number, state.vote)
    panel.button(label, "class_say", mark_pressed, "class_say", vote, primary=True, disabled=is_unchanged)
    if stored_text is not None:
        sentence = TEXTS["student.answer"]
        st.success(with_help(sentence.format(answer=escape_markdown(stored_text))))


def _member_answer(group: Class, member: str, task: Task, context: CheckContext) -> str | None:
    answer = group.answer_of(member)
    return None if answer is None else answer_text(task, answer, context.original)


def _send(content: Lesson, group: Class, member: str, vote: tuple[int, int], answer: Answer, text: str) -> None:
    """Store an answer in the class and in the note. vote: number of the question, and of its vote."""
    try:
        group.answer(member, *vote, answer)
    except TranslatedRefusal as error:
        st.toast(error.sentence)
        return
    lesson.update_note(content, answer=answer, answer_text=text, right=None, outcome_text="")


def _rerun_on_change(code: str, version: int) -> None:
    """Run the page again if the class has another version or is closed."""
    group = classroom.CLASSES.find(code, classroom.clock_time())
    if group is None or group.state().version != version:
        st.rerun()

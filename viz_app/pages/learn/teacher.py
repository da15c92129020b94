"""The page of the teacher of a class: its link, the question, the number of answers, and the votes on request."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from viz_app.access import is_local_address
from viz_app.classroom import Class, ClassQuestion, ClassState
from viz_app.classroom.counts import counts_csv, group_answers
from viz_app.classroom.links import app_base_url, class_link, qr_code
from viz_app.figures.lessons import answer_bars
from viz_app.lessons import Lesson
from viz_app.lessons.parsing import lesson_of, lessons
from viz_app.shell import classroom, frame, lesson, panel
from viz_app.shell.answers import answer_text, selectable_words
from viz_app.shell.downloads import file_button
from viz_app.shell.language import language
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.view import View
from viz_app.texts import TranslatedRefusal, page_texts

TEXTS, LESSON_TEXTS = page_texts("class"), page_texts("lesson")
STYLE = f"<style>{(Path(__file__).parent / 'class.css').read_text('utf-8')}</style>"
COUNT_SECONDS = 1.0  # between two updates of the counts
MAX_LABEL_LENGTH = 40  # characters of an answer in the chart of a vote


def draw(page: View) -> None:
    """Draw the class that the visitor leads, or the controls that open one."""
    if not classroom.is_enabled():
        with page.figure():
            _draw_title()
            st.info(with_help(TEXTS["teacher.not_enabled"]), icon=":material/groups:")
    elif not classroom.is_teacher():
        with page.figure():
            _draw_title()
            if classroom.is_pass_known():
                _draw_sign_in()
    elif (group := classroom.led_class()) is None:
        with page.figure():
            _draw_title()
            _draw_class_choice()
    else:
        _draw_class(page, group)


def _draw_title(title: str = "") -> None:
    st.subheader(title or TEXTS["title"], anchor=False)
    st.caption(TEXTS["line"])


def _draw_sign_in() -> None:
    with st.form("class_code", border=False, width=480):
        code = st.text_input(TEXTS["teacher.code"], type="password", key="teachers_code")
        if st.form_submit_button(LESSON_TEXTS["go_on"], type="primary") and code:
            try:
                classroom.sign_in(code)
            except TranslatedRefusal as error:
                st.error(with_help(error.sentence))
            else:
                st.rerun()


def _draw_class_choice() -> None:
    """Draw the controls that open a class, or continue an open one."""
    content = _lesson_control("class_lesson")
    if st.button(TEXTS["teacher.open"], key="class_open", type="primary"):
        _open_class(content)
    for group in classroom.CLASSES.open_classes(classroom.clock_time()):
        state = group.state()
        title = "" if state.question is None else escape_markdown(state.question.lesson.title)
        label = TEXTS["teacher.again"].format(joined=state.people_count, title=title)
        panel.button(label, f"class_again_{group.code}", _lead, group.code)
    panel.button(TEXTS["teacher.forget_code"], "class_out", classroom.sign_out, type="tertiary")


def _lesson_control(key: str, default: Lesson | None = None) -> Lesson:
    names = [content.name for content in lessons()]
    titles = {content.name: content.title for content in lessons(language())}
    index = names.index(default.name) if default is not None else 0
    label = LESSON_TEXTS["lesson"]
    name = st.selectbox(label, names, index, lambda name: str(titles.get(name, name)), key=key, width=480)
    return lesson_of(name if name in names else names[0])


def _open_class(content: Lesson) -> None:
    try:
        group = classroom.open_class()
    except TranslatedRefusal as error:
        st.error(with_help(error.sentence))
        return
    _lead(group.code)
    _begin(group, content)


def _lead(code: str) -> None:
    st.session_state["class"] = code


def _begin(group: Class, content: Lesson) -> None:
    """Start the question of a lesson."""
    model = st.session_state.model
    words: list[int] = []
    if content.predict.answer == "word":
        words = selectable_words(panel.context_on_model(content, model))
    group.begin_question(ClassQuestion(content, model, tuple(words)))
    st.rerun()


def _close(group: Class) -> None:
    classroom.CLASSES.close(group.code)
    st.session_state["class"] = ""


# ---------------------------------------------------------------------------- the class


def _draw_class(page: View, group: Class) -> None:
    state = group.state()
    if state.question is None:
        return
    question, content = state.question, classroom.lesson_in(state.question)
    _draw_title(escape_markdown(content.title))
    st.html(STYLE)
    with page.controls(vertical_alignment="bottom", gap="small"):
        _draw_controls(group, content, state.number)
    with page.figure(), st.container(key="class_teacher", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", key="class_top"):
            _draw_keys(group, content, state)
            frame.fragment(_draw_counts, run_every=COUNT_SECONDS)(group.code)
        st.header(escape_markdown(content.question), anchor=False)
        if state.step in ("wait", "ask"):
            left, right = st.columns([3, 2], gap="large")
            with left, st.container(key="class_text"):
                st.markdown(panel.masked_text(panel.context_on_model(content, question.model)))
                task = content.predict
                items = task.items if task.answer == "order" else ()
                for answer in (*(option.label for option in task.options), *items):
                    st.markdown(f"- {escape_markdown(answer)}")
                panel.draw_question_figure(content, question.model)
                _draw_address_warning()
            with right:
                _draw_link(group)
        else:
            _draw_votes(group, content, question, state)


def _draw_keys(group: Class, content: Lesson, state: ClassState) -> None:
    """Draw the four steps of peer instruction, each with its key, and the button of the live page."""
    is_over, vote, step = state.step in ("do", "reveal"), state.vote, state.step
    keys = (
        (TEXTS["teacher.ask"], partial(group.begin_vote, 1), is_over or vote > 1, step == "wait"),
        (TEXTS["teacher.stop"], partial(group.move_to, "stop"), is_over or not vote, step == "ask"),
        (TEXTS["teacher.ask_again"], partial(group.begin_vote, 2), is_over or not vote, step == "stop" and vote == 1),
        (LESSON_TEXTS["steps.reveal"], partial(_reveal, group, content), not vote, step == "stop" and vote == 2),
        (TEXTS["teacher.live_page"], partial(_open_page, content, "reveal" if is_over else "predict"), False, False),
    )
    with st.container(horizontal=True, gap="small", width="content", key="class_keys"):
        for number, (label, callback, disabled, is_next) in enumerate(keys, 1):
            key, shortcut = f"class_key_{number}", str(number)
            panel.button(label, key, callback, primary=is_next, shortcut=shortcut, disabled=disabled)


def _reveal(group: Class, content: Lesson) -> None:
    """Show the truth to the class, and to the teacher on the live page; a callback."""
    group.move_to("reveal")
    _open_page(content, "reveal")


def _open_page(content: Lesson, step: str) -> None:
    """Open the page of a step beside the lesson; a callback."""
    lesson.leave_for(content, step, content.view(step))


def _base_url() -> str:
    return app_base_url(st.context.url or "")


def _draw_address_warning() -> None:
    """Warn if only this machine can open a link to this server."""
    if is_local_address(_base_url()):
        warning = TEXTS["teacher.local_address"]
        st.warning(with_help(warning))


def _draw_link(group: Class) -> None:
    link = class_link(_base_url(), group.code)
    with st.container(key="class_link", gap="small"):
        with st.container(key="class_qr"):
            st.image(qr_code(link), width="stretch")
        st.code(link, language=None, wrap_lines=True)


def _draw_counts(code: str) -> None:
    """Draw the numbers of members and answers; a fragment of the page."""
    group = classroom.CLASSES.find(code, classroom.clock_time())
    if group is None:
        st.rerun()
    group.last_seen = classroom.clock_time()
    state = group.state()
    with st.container(horizontal=True, gap="large", width="content", key="class_counts"):
        st.metric(TEXTS["teacher.joined"], state.people_count, width="content")
        if state.vote:
            st.metric(TEXTS["teacher.answered"], state.answer_count, width="content")


def _draw_votes(group: Class, content: Lesson, question: ClassQuestion, state: ClassState) -> None:
    """Draw the votes side by side, in one order and on one scale; after the reveal, with the right answers marked."""
    counted = group.current_votes()
    if counted is None:
        return
    context, task = panel.context_on_model(content, question.model), content.predict
    rows = group_answers(counted, lambda answer: answer_text(task, answer, context.original), TEXTS["teacher.others"])
    right = set()
    if state.step == "reveal":
        answers = {answer for row in rows for answer in row.answers}
        verdicts = panel.request_verdicts(task, context, answers)
        right = {answer for answer, verdict in verdicts.items() if verdict.right}
    if not rows:
        st.info(with_help(LESSON_TEXTS["class.no_answers"]))
        return
    maximum, lecture = max(max(row.counts) for row in rows), bool(st.session_state.lecture)
    for number, place in enumerate(st.columns(len(counted.votes), gap="large")):
        total = sum(counted.votes[number].values())
        title = TEXTS["teacher.vote"].format(number=number + 1, all=total)
        figure = answer_bars(
            [row.label for row in rows],
            [row.counts[number] for row in rows],
            ["true" if right & set(row.answers) else "" for row in rows],
            form=".0f",
            words=LESSON_TEXTS.options("marks"),
            longest=MAX_LABEL_LENGTH,
            maximum=max(maximum, 1),
            scale=min(1.9, 7.5 / len(rows)) if lecture else None,
        )
        with place:
            st.markdown(f"**{title}**")
            key = f"class_votes_{number}"
            st.plotly_chart(figure, theme=None, key=key, config={"displayModeBar": False}, alt=title)


def _draw_controls(group: Class, content: Lesson, number: int) -> None:
    following = _lesson_control(f"class_next_lesson_{number}", lesson.next_lesson(content))
    if st.button(TEXTS["teacher.next"], key="class_next"):
        _begin(group, following)
    file_button(TEXTS["teacher.counts"], partial(_csv, group), "class.csv")
    label, tip = TEXTS["teacher.close"], TEXTS["teacher.close_help"]
    panel.button(label, "class_close", _close, group, icon=":material/close:", help=tip)


def _csv(group: Class) -> bytes:
    def name(question: ClassQuestion, answer: lesson.Answer) -> str:
        context = panel.context_on_model(question.lesson, question.model)
        return answer_text(question.lesson.predict, answer, context.original)

    return counts_csv(group.counted_questions(), name)

"""What the teacher of a class shows: its link, the question, who has answered, and the votes when they ask for them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from bert_core.refused import Refused
from viz_app.access import is_local_address
from viz_app.classroom import Class, Question, Shown
from viz_app.classroom.counts import counts_csv, rows_of
from viz_app.classroom.links import base_of, link_of, qr_code
from viz_app.figures.lessons import MARKS, answer_bars
from viz_app.figures.style import current_look
from viz_app.lessons import Lesson
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.reading import lesson_of, lessons
from viz_app.shell import classroom, frame, lesson, panel, screen
from viz_app.shell.answers import in_words, words_to_choose
from viz_app.shell.language import language, translate
from viz_app.shell.markdown import escape_markdown, with_help

STYLE = f"<style>{(Path(__file__).parent / 'class.css').read_text('utf-8')}</style>"
LIVE = 1.0  # seconds after which the counts are drawn again
LONGEST_ROW = 40  # signs of an answer in the picture of a vote


def draw() -> None:
    """Draw the class that the visitor leads, or the way to one."""
    if not classroom.is_on():
        _title()
        screen.picture().info(
            with_help(translate("This server was not started for a class: start it with `headlight app --class`.")),
            icon=":material/groups:",
        )
    elif not classroom.is_teacher():
        _title()
        with screen.picture():
            if classroom.is_known():
                _code()
    elif (group := classroom.led()) is None:
        _title()
        with screen.picture():
            _open()
    else:
        _class(group)


def _title(title: str = "") -> None:
    frame.title(
        title or translate("A class"),
        translate("All answer the same question; the answers are counted, and nobody sees whose they are."),
    )


def _code() -> None:
    with st.form("class_code", border=False, width=480):
        code = st.text_input(translate("Teacher's code"), type="password", key="teachers_code")
        if st.form_submit_button(translate("Go on"), type="primary") and code:
            try:
                classroom.let_in(code)
            except Refused as error:
                st.error(with_help(translate(str(error))))
            else:
                st.rerun()


def _open() -> None:
    """Offer to open a class, or to go on with one."""
    one = _choose("class_lesson")
    if st.button(translate("Open the class"), key="class_open", type="primary"):
        _opened(one)
    for group in classroom.CLASSES.all(classroom.now()):
        shown = group.shown()
        title = "" if shown.question is None else escape_markdown(shown.question.lesson.title)
        st.button(
            translate("Go on with the class of {joined}: {title}").format(joined=shown.joined, title=title),
            key=f"class_again_{group.code}", on_click=_lead, args=(group.code,),
        )  # fmt: skip
    st.button(
        translate("Forget the code in this browser"), key="class_out", type="tertiary", on_click=classroom.let_out
    )


def _choose(key: str, first: Lesson | None = None) -> Lesson:
    names = [one.name for one in lessons()]
    titles = {one.name: one.title for one in lessons(language())}
    name = st.selectbox(
        translate("Lesson"),
        names,
        names.index(first.name) if first is not None else 0,
        key=key,
        format_func=lambda name: str(titles.get(name, name)),
        width=480,
    )
    return lesson_of(name if name in names else names[0])


def _opened(one: Lesson) -> None:
    try:
        group = classroom.opened()
    except Refused as error:
        st.error(with_help(translate(str(error))))
        return
    _lead(group.code)
    _begin(group, one)


def _lead(code: str) -> None:
    st.session_state["class"] = code


def _begin(group: Class, one: Lesson) -> None:
    """Come to a lesson's question."""
    model = st.session_state.model
    words: list[int] = []
    if one.predict.answer == "word":
        words = words_to_choose(panel.asked_on(one, model))
    group.begin(Question(one, model, tuple(words)))
    st.rerun()


def _close(group: Class) -> None:
    classroom.CLASSES.close(group.code)
    st.session_state["class"] = ""


# ---------------------------------------------------------------------------- the class


def _class(group: Class) -> None:
    shown = group.shown()
    if shown.question is None:
        return
    question, one = shown.question, classroom.lesson_in(shown.question)
    _title(escape_markdown(one.title))
    st.html(STYLE)
    with screen.controls():
        _controls(group, one, shown.number)
    with screen.picture(), st.container(key="class_teacher", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", key="class_top"):
            _keys(group, one, shown)
            frame.fragment(_counts, run_every=LIVE)(group.code)
        st.header(escape_markdown(one.question), anchor=False)
        if shown.step in ("wait", "ask"):
            left, right = st.columns([3, 2], gap="large")
            with left, st.container(key="class_text"):
                st.markdown(panel.text_of(panel.asked_on(one, question.model)))
                things = CHECKS[one.predict.check].things if one.predict.answer == "order" else ()
                for answer in (*(option.label for option in one.predict.options), *things):
                    st.markdown(f"- {escape_markdown(answer)}")
                _warning()
            with right:
                _link(group)
        else:
            _votes(group, one, question, shown)


def _keys(group: Class, one: Lesson, shown: Shown) -> None:
    """The four steps of peer instruction, each with its key, and the way to the live page."""
    over, vote, step = shown.step in ("do", "reveal"), shown.vote, shown.step
    keys = (
        (translate("Ask"), partial(group.ask, 1), over or vote > 1, step == "wait"),
        (translate("Stop and show"), partial(group.go_on, "stop"), over or not vote, step == "ask"),
        (translate("Ask again"), partial(group.ask, 2), over or not vote, step == "stop" and vote == 1),
        (translate("What is true"), partial(_reveal, group, one), not vote, step == "stop" and vote == 2),
        (translate("Live page"), partial(_live, one, "reveal" if over else "predict"), False, False),
    )
    with st.container(horizontal=True, gap="small", width="content", key="class_keys"):
        for number, (label, do, off, is_next) in enumerate(keys, 1):
            st.button(
                label, key=f"class_key_{number}", shortcut=str(number), disabled=off, on_click=do,
                type="primary" if is_next else "secondary",
            )  # fmt: skip


def _reveal(group: Class, one: Lesson) -> None:
    """Show the truth to all, and to the teacher on the live page; a click on a button."""
    group.go_on("reveal")
    _live(one, "reveal")


def _live(one: Lesson, step: str) -> None:
    """Go to the live page of a step, with the lesson beside it; a click on a button."""
    lesson.leave_for(one, step, one.view(step))


def _base() -> str:
    return base_of(st.context.url or "")


def _warning() -> None:
    """Say where a link to this server leads nobody here."""
    if is_local_address(_base()):
        st.warning(
            with_help(
                translate(
                    "Students cannot reach this address, which is of this machine alone: start with `headlight app "
                    "--class --address 0.0.0.0`, and open this page by the name or the address of this machine in the "
                    "network."
                )
            )
        )


def _link(group: Class) -> None:
    link = link_of(_base(), group.code)
    with st.container(key="class_link", gap="small"):
        with st.container(key="class_qr"):
            st.image(qr_code(link), width="stretch")
        st.code(link, language=None, wrap_lines=True)


def _counts(code: str) -> None:
    """How many have joined and answered; a part of the page that runs alone."""
    found = classroom.CLASSES.of(code, classroom.now())
    if found is None:
        st.rerun()
    found.seen = classroom.now()
    shown = found.shown()
    with st.container(horizontal=True, gap="large", width="content", key="class_counts"):
        st.metric(translate("joined"), shown.joined, width="content")
        if shown.vote:
            st.metric(translate("answered"), shown.answered, width="content")


def _votes(group: Class, one: Lesson, question: Question, shown: Shown) -> None:
    """The votes beside each other, in one order and on one scale; once it may be seen, with what is true."""
    counted = group.now()
    if counted is None:
        return
    asked = panel.asked_on(one, question.model)
    rows = rows_of(counted, lambda answer: in_words(one.predict, answer, asked.original), translate("others"))
    right = set()
    if shown.step == "reveal":
        judged = panel.verdicts_of(one.predict, asked, {answer for row in rows for answer in row.answers})
        right = {answer for answer, verdict in judged.items() if verdict.right}
    if not rows:
        st.info(with_help(translate("Nobody has answered.")))
        return
    most = max(max(row.counts) for row in rows)
    for number, place in enumerate(st.columns(len(counted.votes), gap="large")):
        with place:
            title = translate("Vote {number}: {all} answered").format(
                number=number + 1, all=sum(counted.votes[number].values())
            )
            st.markdown(f"**{title}**")
            st.plotly_chart(
                answer_bars(
                    [row.label for row in rows],
                    [row.counts[number] for row in rows],
                    ["true" if right & set(row.answers) else "" for row in rows],
                    form=".0f",
                    words={mark: translate(MARKS[mark]) for mark in MARKS},
                    longest=LONGEST_ROW,
                    maximum=max(most, 1),
                    scale=min(1.9, 7.5 / len(rows)) if current_look().lecture else None,
                ),
                theme=None, key=f"class_votes_{number}", config={"displayModeBar": False}, alt=title,
            )  # fmt: skip


def _controls(group: Class, one: Lesson, number: int) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        following = _choose(f"class_next_lesson_{number}", lesson.after(one))
        if st.button(translate("Ask about this lesson"), key="class_next"):
            _begin(group, following)
        st.download_button(
            translate("Counts, CSV"), partial(_csv, group), "class.csv", "text/csv", on_click="ignore",
            key="class_csv", icon=":material/table:",
        )  # fmt: skip
        st.button(
            translate("Close the class"), key="class_close", icon=":material/close:", on_click=_close, args=(group,),
            help=translate("All answers are forgotten: take the counts along before."),
        )  # fmt: skip


def _csv(group: Class) -> bytes:
    def said(question: Question, answer: lesson.Answer) -> str:
        asked = panel.asked_on(question.lesson, question.model)
        return in_words(question.lesson.predict, answer, asked.original)

    return counts_csv(group.asked(), said)

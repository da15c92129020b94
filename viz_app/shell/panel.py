"""The panel of a lesson beside the page: the question, the answer of the reader and the truth.

It is drawn in one place for all pages and requests its results from the queue itself. The texts of a lesson file are
escaped like any text of a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from viz_app.classroom import CountedVotes
from viz_app.figures.lessons import answer_bars
from viz_app.lessons import STEPS, Lesson, Option, Task, View, split_paragraphs
from viz_app.lessons.checks.context import CheckContext
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell import classroom, frame, lesson, lesson_records
from viz_app.shell.answers import answer_control, answer_text, current_option, mark_pressed, pop_pressed
from viz_app.shell.downloads import file_button
from viz_app.shell.error_boundary import error_boundary
from viz_app.shell.handouts import handout_work, question_work
from viz_app.shell.language import language
from viz_app.shell.lesson import Answer, Note
from viz_app.shell.lesson_records import page_context, prediction_context
from viz_app.shell.markdown import (
    PAGE,
    error_sentence,
    escape_and_mark_terms,
    escape_markdown,
    protect_terms,
    with_help,
)
from viz_app.shell.models import ModelReference, loaded_model
from viz_app.shell.params import Page
from viz_app.shell.selection import SELECTION, Selection
from viz_app.shell.work import poll, prefetch, wait_for
from viz_app.texts import page_texts

TEXTS = page_texts("lesson")
LEARN = "learn"  # the page of all lessons
_FOLDED = "_lesson_folded"  # whether the panel is folded
_STYLE = f"<style>{(Path(__file__).parent / 'panel.css').read_text('utf-8')}</style>"


def button(
    label: str, key: str, on_click: Callable[..., None], *args: Any, primary: bool = False, **options: Any
) -> None:
    """Draw a button with a callback. options: further ones of `st.button`."""
    kind = options.pop("type", "primary" if primary else "secondary")
    st.button(label, key=key, on_click=on_click, args=args, type=kind, **options)


def place() -> DeltaGenerator | None:
    """Return the container of the panel, which precedes that of the page; None without a lesson."""
    if lesson.current() is None:
        return None
    st.html(_STYLE)
    folded = st.session_state.get(_FOLDED, False)
    return st.container(key="lesson_folded" if folded else "lesson", gap="small")


def draw(place: DeltaGenerator | None) -> None:
    """Draw the panel of the current lesson, if there is one."""
    current = lesson.current()
    if place is None or current is None:
        return
    with place, error_boundary():
        content, step = current
        classroom.advance_class(content.name, step)
        if st.session_state.get(_FOLDED, False):
            icon, tip = ":material/left_panel_open:", TEXTS["unfold"]
            button(TEXTS["lesson"], "lesson_unfold", _fold, False, icon=icon, help=tip)
        else:
            _panel(content, step)


def begin(content: Lesson) -> None:
    """Open the first step of a lesson that is not completed, on its page; a callback."""
    completed = _completed_steps(lesson.note_of(content))
    step = next((step for step, is_done in zip(STEPS, completed, strict=True) if not is_done), STEPS[-1])
    _go(content, step)


def restart(content: Lesson) -> None:
    """Open a lesson without the earlier answers; a callback."""
    lesson.forget(content)
    begin(content)


def progress_summary(content: Lesson) -> str:
    """Return the completed steps of a lesson in words; "" before the first."""
    note = lesson.note_of(content)
    parts = [TEXTS["progress.predicted"]] * (note.answer is not None) + [TEXTS["progress.tried"]] * note.is_tried
    if note.right is not None:
        parts = [TEXTS["progress.right"] if note.right else TEXTS["progress.wrong"], *parts[1:]]
    return ", ".join(parts + [TEXTS["progress.own_sentence"]] * (note.own_right is not None))


def _completed_steps(note: Note) -> tuple[bool, ...]:
    return note.answer is not None, note.is_tried, note.right is not None, note.own_right is not None, False


# ---------------------------------------------------------------------------- navigation


def _go(content: Lesson, step: str) -> None:
    view = content.view(step) if step != STEPS[-1] else View(st.session_state[PAGE], {})
    lesson.leave_for(content, step, view)


def _fold(folded: bool) -> None:
    st.session_state[_FOLDED] = folded


def _leave() -> None:
    st.session_state.lesson, st.session_state.step = "", STEPS[0]


# ---------------------------------------------------------------------------- the panel


def _panel(content: Lesson, step: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="lesson_bar"):
        position = TEXTS["position"].format(number=STEPS.index(step) + 1, all=len(STEPS))
        st.caption(f"{escape_markdown(content.title)} · " + position.replace(" ", "\u00a0"))
        tips = TEXTS["fold"], TEXTS["leave"]
        button("", "lesson_fold", _fold, True, icon=":material/right_panel_close:", help=tips[0], type="tertiary")
        button("", "lesson_leave", _leave, icon=":material/close:", help=tips[1], type="tertiary")
    st.subheader(TEXTS[f"steps.{step}"], anchor=False)
    if st.session_state["class"] and st.session_state[PAGE] != LEARN:
        shortcut = "5" if classroom.class_on_lesson(content.name) else None
        label = TEXTS["back_to_class"]
        button(label, "lesson_class", lesson.leave, LEARN, icon=":material/groups:", shortcut=shortcut)
    _STEPS[step](content, step)
    if step in ("predict", "do") and (context := _lesson_context(content)) is not None:
        prefetch_truth(content, context)


def prefetch_truth(content: Lesson, context: CheckContext) -> None:
    """Start the work for the truth while the reader still predicts and tries."""
    with suppress(Refused):
        prefetch(lesson_records.record_work(content.predict.check, context))


def _predict(content: Lesson, step: str) -> None:
    task, note = content.predict, lesson.note_of(content)
    terms: set[str] = set()
    st.markdown(f"**{escape_and_mark_terms(content.question, terms)}**", unsafe_allow_html=True)
    draw_paragraphs(task.text, terms)
    if _is_on_another_page(content, step):
        return
    context = _lesson_context(content)
    if note.answer is not None:
        text = answer_text(task, note.answer, None if context is None else context.original)
        st.info(with_help(TEXTS["given"].format(answer=escape_markdown(text))))
    if note.answer is not None or classroom.class_on_lesson(content.name):  # the teacher does not answer
        button(TEXTS["go_on"], "lesson_next", _go, content, "do", primary=True)
        return
    answer = None if context is None else answer_control(content, step, task, context)
    if pop_pressed("lesson_say") == content.name and context is not None and answer is not None:
        lesson.update_note(content, answer=answer, answer_text=answer_text(task, answer, context.original))
        _go(content, "do")
        st.rerun()
    label, is_missing = TEXTS["answer.submit"], answer is None
    button(label, "lesson_say", mark_pressed, "lesson_say", content.name, primary=True, disabled=is_missing)
    _hint(task, terms)


def _do(content: Lesson, step: str) -> None:
    task = content.exercise
    terms: set[str] = set()
    draw_paragraphs(task.text, terms)
    if _is_on_another_page(content, step):
        return
    context, is_tried = _page_context(content), lesson.note_of(content).is_tried
    verdict = None if context is None else request_verdict(task, context, None)
    if verdict is not None:
        if verdict.right:
            lesson.update_note(content, is_tried=True)
            is_tried = True
        _draw_verdict(task, verdict)
    with st.container(horizontal=True, gap="small"):
        label = TEXTS["show_truth"] if is_tried else TEXTS["skip"]
        button(label, "lesson_next", _go, content, "reveal", primary=is_tried)
        button(TEXTS["reset"], "lesson_again", _go, content, "do", type="tertiary")
    _hint(task, terms)


def _reveal(content: Lesson, step: str) -> None:
    context, group = _lesson_context(content), classroom.class_on_lesson(content.name)
    if context is not None and group is not None:
        _reveal_to_class(content, context, group[0].current_votes())
    elif context is not None:
        draw_truth(content, context, lesson.note_of(content).answer)
    if not _is_on_another_page(content, step):
        button(TEXTS["own_sentence"], "lesson_next", _go, content, "yours", primary=True)


def draw_truth(content: Lesson, context: CheckContext, answer: Answer | None) -> None:
    """Draw the truth about the prediction beside an answer, and store the text."""
    verdict = request_verdict(content.predict, context, answer)
    if verdict is not None:
        text = _draw_reveal(content, verdict, TEXTS.options("marks"))
        lesson.update_note(content, right=verdict.right, outcome_text=text)


def _draw_reveal(content: Lesson, verdict: Verdict, marks: Mapping[str, str]) -> str:
    """Draw the chart and the text of the reveal, and return the text. marks: labels of the marked bars."""
    reveal, bars = content.reveal, verdict.bars
    st.caption(escape_markdown(reveal.title))
    figure = answer_bars(
        [reveal.bars.get(bar.name, bar.name) for bar in bars],
        [bar.value for bar in bars],
        [bar.mark for bar in bars],
        form=reveal.form,
        words=marks,
    )
    alt = TEXTS["bars"].format(title=reveal.title)
    st.plotly_chart(figure, theme=None, key="lesson_bars", config={"displayModeBar": False}, alt=alt)
    text = verdict.reveal_text(reveal)
    draw_paragraphs(fill_figures(text, verdict, protect_terms), set())
    return fill_figures(text, verdict)


def _reveal_to_class(content: Lesson, context: CheckContext, answers: CountedVotes | None) -> None:
    """Draw the truth beside the most frequent answer of the class, and the number of right answers in each vote."""
    votes = () if answers is None else answers.votes
    last_vote = next((vote for vote in reversed(votes) if vote), None)
    if last_vote is None:
        st.caption(TEXTS["class.no_answers"])
        return
    verdicts = request_verdicts(content.predict, context, [answer for vote in votes for answer in vote])
    if not verdicts:
        return
    st.caption(TEXTS["class.expected"])
    _draw_reveal(content, verdicts[max(last_vote, key=last_vote.__getitem__)], TEXTS.options("class_marks"))
    for number, vote in enumerate(votes, 1):
        right = sum(count for answer, count in vote.items() if verdicts[answer].right)
        if vote:
            sentence = TEXTS["class.vote"]
            st.markdown(sentence.format(number=number, right=right, all=sum(vote.values())))


def _own_sentence(content: Lesson, step: str) -> None:
    task = content.own_sentence
    terms: set[str] = set()
    draw_paragraphs(task.text, terms)
    if _is_on_another_page(content, step):
        return
    context = _page_context(content)
    if context is not None and not context.is_own:
        st.caption(f":material/edit: {TEXTS['same_sentence']}")
    elif context is not None:
        verdict = _own_verdict(content, step, context)
        if verdict is not None:
            if verdict.right or task.answer != "page":  # on the page only a right answer counts as given
                lesson.update_note(content, own_right=bool(lesson.note_of(content).own_right or verdict.right))
            _draw_verdict(task, verdict)
    is_done = lesson.note_of(content).own_right is not None
    label = TEXTS["go_on"] if is_done else TEXTS["skip"]
    button(label, "lesson_next", _go, content, "free", primary=is_done)
    _hint(task, terms)


def _own_verdict(content: Lesson, step: str, context: CheckContext) -> Verdict | None:
    """Draw the control of an answer about the reader's own sentence, and return the verdict once it is submitted."""
    task = content.own_sentence
    if task.answer == "page":
        return request_verdict(task, context, None)
    answer = answer_control(content, step, task, context)
    # An answer belongs to this text, head and model.
    submission = (context.encoding, context.head, context.loaded.name, answer)
    drafts = lesson.drafts(content)
    if pop_pressed("lesson_say") == context.encoding:
        drafts["given"] = submission
    label, is_missing = TEXTS["check"], answer is None
    button(label, "lesson_say", mark_pressed, "lesson_say", context.encoding, disabled=is_missing)
    return request_verdict(task, context, answer) if drafts.get("given") == submission else None


def _free(content: Lesson, step: str) -> None:
    summary = progress_summary(content) or TEXTS["progress.looked"]
    st.markdown(TEXTS["complete"].format(done=summary))
    st.caption(TEXTS["explore"])
    for number, link in enumerate(content.free):
        label = escape_markdown(link.label)
        button(label, f"lesson_way_{number}", lesson.leave_for, content, step, link.view, width="stretch")
    following = lesson.next_lesson(content)
    if following is not None:
        label = TEXTS["next_lesson"].format(title=escape_markdown(following.title))
        button(label, "lesson_following", begin, following, primary=True, width="stretch")
    loaded = _loaded()
    if loaded is not None:
        tag, model = language(), ModelReference(loaded)
        label, name = TEXTS["as_page"], f"{content.name}.html"
        file_button(label, lambda: wait_for(handout_work(content, model.get(), tag)), name, width="stretch")
    st.link_button(escape_markdown(content.source), content.link, icon=":material/menu_book:", width="stretch")
    st.page_link(frame.streamlit_page(LEARN), label=TEXTS["all_lessons"], icon=":material/school:")


_STEPS = {"predict": _predict, "do": _do, "reveal": _reveal, "yours": _own_sentence, "free": _free}


# ---------------------------------------------------------------------------- its parts


def _is_on_another_page(content: Lesson, step: str) -> bool:
    """Return whether the page is not that of the step, and offer a button that opens it."""
    view = content.view(step)
    if view.page == st.session_state[PAGE]:
        return False
    title = st.session_state[lesson.PAGES][view.page].title
    st.caption(TEXTS["other_page"].format(title=title))
    button(TEXTS["open"].format(title=title), "lesson_open", _go, content, step, primary=True)
    return True


def context_on_model(content: Lesson, model: str) -> CheckContext:
    """Return the context of the prediction on a model. Raises Refused for a model that cannot be loaded."""
    return prediction_context(loaded_model(model), content)


def masked_text(context: CheckContext) -> str:
    """Return the text with a mask for each hidden token, in Markdown; two sentences on two lines."""
    original = context.original
    mask, texts = original.special_tokens.mask, {"A": original.text, "B": original.pair or ""}
    for position in reversed(context.encoding.mask_positions):
        (start, end), side = original.offsets[position], original.sides[position]
        if side is not None:
            texts[side] = f"{texts[side][:start]}{mask}{texts[side][end:]}"
    return "  \n".join(escape_markdown(" ".join(text.split())) for text in texts.values() if text)


def _lesson_context(content: Lesson) -> CheckContext | None:
    """Return the context of the lesson's own text on the model of the page; None without a model."""
    loaded = _loaded()
    return None if loaded is None else prediction_context(loaded, content)


def _page_context(content: Lesson) -> CheckContext | None:
    state, context = st.session_state, _lesson_context(content)
    if context is None:
        return None
    choices = {param.name: param.write(state[param.name]) for param in _page().params if state[param.name] is not None}
    return page_context(context, state[SELECTION], state.head, choices)


def _page() -> Page:
    pages: Mapping[str, Page] = st.session_state[lesson.PAGES]
    return pages[st.session_state[PAGE]]


def _loaded() -> LoadedModel | None:
    """Return the model of the page; None without one, or if it cannot be loaded, which the page reports."""
    current: Selection | None = st.session_state[SELECTION]
    if current is not None:
        return current.plain
    if _page().text or not _page().models:
        return None
    try:
        return loaded_model(st.session_state.model)
    except Refused:
        return None


def draw_question_figure(content: Lesson, model: str) -> None:
    """Draw what the question refers to, as its page shows it: the figures, or examples from a corpus."""
    made = poll(question_work(content, loaded_model(model), language())).value
    if made is None:
        return
    pictures, examples = made
    with st.container(key="class_figure", gap="small"):
        for picture in pictures:
            st.image(picture.svg.decode(), caption=escape_markdown(picture.alt), width="stretch")
        if examples:
            st.markdown("\n\n".join(map(escape_markdown, examples)))


def request_verdict(task: Task, context: CheckContext, answer: Answer | None) -> Verdict | None:
    """Return the verdict on one answer as `request_verdicts` does, or None."""
    return next(iter(request_verdicts(task, context, [answer]).values()), None)


def request_verdicts(
    task: Task, context: CheckContext, answers: Iterable[Answer | None]
) -> dict[Answer | None, Verdict]:
    """Return the verdict on each answer; empty until the record is computed, or if it is refused, which is shown."""
    try:
        record = poll(lesson_records.record_work(task.check, context)).value
        if record is None:
            return {}
        current = {answer: current_option(task, answer) if isinstance(answer, Option) else answer for answer in answers}
        return {
            answer: lesson_records.judge_answer(task, context, record, translated)
            for answer, translated in current.items()
        }
    except Refused as error:
        st.caption(f":material/info: {error_sentence(error)}")
        return {}


def fill_figures(text: str, verdict: Verdict, word: Callable[[str], str] = str) -> str:
    """Return a sentence of a lesson with its figures. word: applied to each figure that is a word."""
    figures = verdict.translated_figures()
    return text.format(**{name: word(value) if isinstance(value, str) else value for name, value in figures.items()})


def draw_paragraphs(text: str, terms: set[str]) -> None:
    """Draw a text of a lesson, and explain each term once. terms: those that the step has explained; updated."""
    st.markdown(escape_and_mark_terms("\n\n".join(split_paragraphs(text)), terms), unsafe_allow_html=True)


def _draw_verdict(task: Task, verdict: Verdict) -> None:
    text = fill_figures(task.right if verdict.right else task.wrong, verdict, protect_terms)
    (st.success if verdict.right else st.info)(with_help(escape_markdown(" ".join(text.split()))))


def _hint(task: Task, terms: set[str]) -> None:
    if task.hint:
        with st.expander(TEXTS["hint"], icon=":material/lightbulb:"):
            draw_paragraphs(task.hint, terms)

"""The panel of a lesson, beside the page: what is asked, what was expected, what is true.

It is drawn in one place for all pages (`front`), and asks the queue by itself. Everything that a lesson's file says is
shown as it is written, like any text of a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from viz_app.classroom import CountedVotes as ClassAsked
from viz_app.figures.lessons import MARKS, answer_bars
from viz_app.lessons import STEPS, Lesson, Option, Task, View, split_paragraphs
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell import classroom, downloads, frame, lesson, lesson_records
from viz_app.shell.answers import answer_control, answer_text, current_option, mark_pressed, pop_pressed
from viz_app.shell.error_boundary import PAGE, error_boundary
from viz_app.shell.handouts import handout_work
from viz_app.shell.language import language, translate
from viz_app.shell.lesson import Answer, Note
from viz_app.shell.lesson_records.context import CheckContext, lesson_context, page_context
from viz_app.shell.markdown import error_sentence, escape_and_mark_terms, escape_markdown, protect_terms, with_help
from viz_app.shell.models import ModelReference, loaded_model
from viz_app.shell.params import Page
from viz_app.shell.selection import SELECTION, Selection
from viz_app.shell.work import poll, prefetch

STEP_NAMES = {
    "predict": "What do you expect?", "do": "Try it", "reveal": "What is true", "yours": "Your own sentence",
    "free": "On your own",
}  # fmt: skip
LEARN = "learn"  # the page of all lessons
# Whose a bar is, where a class has answered.
CLASS_MARKS = {"": "", "yours": "most of the class", "true": "true", "both": "most of the class, true"}
_FOLDED = "_lesson_folded"  # whether the panel is folded away
_STYLE = f"<style>{(Path(__file__).parent / 'panel.css').read_text('utf-8')}</style>"


def place() -> DeltaGenerator | None:
    """The place of the panel, before that of the page; None where no lesson is on."""
    if lesson.current() is None:
        return None
    st.html(_STYLE)
    folded = st.session_state.get(_FOLDED, False)
    return st.container(key="lesson_folded" if folded else "lesson", gap="small")


def draw(place: DeltaGenerator | None) -> None:
    """Draw the panel of the lesson that is on, if one is."""
    on = lesson.current()
    if place is None or on is None:
        return
    with place, error_boundary():
        one, step = on
        classroom.advance_class(one.name, step)
        if st.session_state.get(_FOLDED, False):
            st.button(
                translate("Lesson"), icon=":material/left_panel_open:", key="lesson_unfold", on_click=_fold,
                args=(False,),
                help=translate("Show the lesson again"),
            )  # fmt: skip
        else:
            _panel(one, step)


def begin(one: Lesson) -> None:
    """Open the first step of a lesson that was not done, on its page; a click on a button."""
    note = lesson.note_of(one)
    step = next((step for step, is_done in zip(STEPS, _is_done(note), strict=True) if not is_done), STEPS[-1])
    _go(one, step)


def restart(one: Lesson) -> None:
    """Open a lesson anew, with nothing said; a click on a button."""
    lesson.forget(one)
    begin(one)


def progress_summary(one: Lesson) -> str:
    """What was done of a lesson, in words: nothing where it was not begun."""
    note = lesson.note_of(one)
    said = [translate("predicted")] * (note.answer is not None) + [translate("tried")] * note.is_tried
    if note.right is not None:
        said = [translate("predicted rightly") if note.right else translate("predicted otherwise"), *said[1:]]
    return ", ".join(said + [translate("own sentence")] * (note.own_right is not None))


def _is_done(note: Note) -> tuple[bool, ...]:
    return note.answer is not None, note.is_tried, note.right is not None, note.own_right is not None, False


# ---------------------------------------------------------------------------- where to


def _go(one: Lesson, step: str) -> None:
    lesson.leave_for(one, step, one.view(step) if step != STEPS[-1] else View(st.session_state[PAGE], {}))


def _fold(folded: bool) -> None:
    st.session_state[_FOLDED] = folded


def _leave() -> None:
    st.session_state.lesson, st.session_state.step = "", STEPS[0]


# ---------------------------------------------------------------------------- the panel


def _panel(one: Lesson, step: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="lesson_bar"):
        place = (
            translate("{number} of {all}").format(number=STEPS.index(step) + 1, all=len(STEPS)).replace(" ", "\u00a0")
        )
        st.caption(f"{escape_markdown(one.title)} · {place}")
        st.button("", icon=":material/right_panel_close:", key="lesson_fold", on_click=_fold, args=(True,),
                  help=translate("Fold the lesson away"), type="tertiary")  # fmt: skip
        st.button("", icon=":material/close:", key="lesson_leave", on_click=_leave, type="tertiary",
                  help=translate("Leave the lesson; what you said and did is kept"))  # fmt: skip
    st.subheader(translate(STEP_NAMES[step]), anchor=False)
    if st.session_state["class"] and st.session_state[PAGE] != LEARN:
        st.button(
            translate("Back to the class"), icon=":material/groups:", key="lesson_class", on_click=lesson.leave,
            args=(LEARN,), shortcut="5" if classroom.class_on_lesson(one.name) else None,
        )  # fmt: skip
    _DRAW[step](one, step)
    if step in ("predict", "do") and (asked := _of_lesson(one)) is not None:
        prefetch_truth(one, asked)


def prefetch_truth(one: Lesson, asked: CheckContext) -> None:
    """Begin what the truth is made of while the reader still predicts and tries; nothing of it is shown."""
    with suppress(Refused):
        prefetch(lesson_records.work_for(CHECKS[one.predict.check].record, asked))


def _predict(one: Lesson, step: str) -> None:
    task, note = one.predict, lesson.note_of(one)
    said: set[str] = set()
    st.markdown(f"**{escape_and_mark_terms(one.question, said)}**", unsafe_allow_html=True)
    draw_paragraphs(task.text, said)
    if _is_elsewhere(one, step):
        return
    if note.answer is not None:
        asked = _of_lesson(one)
        answered = escape_markdown(answer_text(task, note.answer, None if asked is None else asked.original))
        st.info(with_help(translate("You said: {answer}").format(answer=answered)))
        st.button(translate("Go on"), type="primary", key="lesson_next", on_click=_go, args=(one, "do"))
        return
    if classroom.class_on_lesson(one.name):  # who leads the class does not answer
        st.button(translate("Go on"), type="primary", key="lesson_next", on_click=_go, args=(one, "do"))
        return
    asked = _of_lesson(one)
    answer = None if asked is None else answer_control(one, step, task, asked)
    if pop_pressed("lesson_say") == one.name and asked is not None and answer is not None:
        lesson.update_note(one, answer=answer, answer_text=answer_text(task, answer, asked.original))
        _go(one, "do")
        st.rerun()
    st.button(
        translate("That is what I expect"), type="primary", key="lesson_say", disabled=answer is None,
        on_click=mark_pressed,
        args=("lesson_say", one.name),
    )  # fmt: skip
    _hint(task, said)


def _do(one: Lesson, step: str) -> None:
    task = one.exercise
    said: set[str] = set()
    draw_paragraphs(task.text, said)
    if _is_elsewhere(one, step):
        return
    asked, did = _of_page(one), lesson.note_of(one).is_tried
    verdict = None if asked is None else request_verdict(task, asked, None)
    if verdict is not None:
        if verdict.right:
            lesson.update_note(one, is_tried=True)
            did = True
        _say(verdict.right, fill_figures(task.right if verdict.right else task.wrong, verdict, protect_terms))
    with st.container(horizontal=True, gap="small"):
        st.button(
            translate("See what is true") if did else translate("Go on without it"),
            type="primary" if did else "secondary",
            key="lesson_next", on_click=_go, args=(one, "reveal"),
        )  # fmt: skip
        st.button(
            translate("Set the page up again"), key="lesson_again", type="tertiary", on_click=_go, args=(one, "do")
        )  # fmt: skip
    _hint(task, said)


def _reveal(one: Lesson, step: str) -> None:
    asked, on = _of_lesson(one), classroom.class_on_lesson(one.name)
    if asked is not None and on is not None:
        _reveal_to_class(one, asked, on[0].current_votes())
    elif asked is not None:
        draw_truth(one, asked, lesson.note_of(one).answer)
    if not _is_elsewhere(one, step):
        st.button(
            translate("With a sentence of your own"), type="primary", key="lesson_next", on_click=_go,
            args=(one, "yours"),
        )  # fmt: skip


def draw_truth(one: Lesson, asked: CheckContext, answer: Answer | None) -> None:
    """Draw what is true of the lesson's prediction, beside an answer, and note what was found."""
    verdict = request_verdict(one.predict, asked, answer)
    if verdict is not None:
        says = _truth(one, verdict, MARKS)
        lesson.update_note(one, right=verdict.right, outcome_text=says)


def _truth(one: Lesson, verdict: Verdict, marks: Mapping[str, str]) -> str:
    """Draw what is true, with these words for the marks of the bars; returns the sentence that says it."""
    reveal = one.reveal
    st.caption(escape_markdown(reveal.title))
    names = [reveal.bars.get(bar.name, bar.name) for bar in verdict.bars]
    st.plotly_chart(
        answer_bars(
            names, [bar.value for bar in verdict.bars], [bar.mark for bar in verdict.bars], form=reveal.form,
            words={mark: translate(marks[mark]) for mark in marks},
        ),
        theme=None, key="lesson_bars", config={"displayModeBar": False},
        alt=translate("{title}: what you expected beside what is true").format(title=reveal.title),
    )  # fmt: skip
    says = verdict.reveal_text(reveal)
    draw_paragraphs(fill_figures(says, verdict, protect_terms), set())
    return fill_figures(says, verdict)


def _reveal_to_class(one: Lesson, asked: CheckContext, answers: ClassAsked | None) -> None:
    """Draw what is true beside what most of the class expected, and how many were right in each vote."""
    votes = () if answers is None else answers.votes
    last = next((vote for vote in reversed(votes) if vote), None)
    if last is None:
        st.caption(translate("Nobody has answered."))
        return
    judged = request_verdicts(one.predict, asked, [answer for vote in votes for answer in vote])
    if not judged:
        return
    st.caption(translate("“You” is what most of the class expected."))
    _truth(one, judged[max(last, key=last.__getitem__)], CLASS_MARKS)
    for number, vote in enumerate(votes, 1):
        right = sum(count for answer, count in vote.items() if judged[answer].right)
        if vote:
            says = translate("Vote {number}: {right} of {all} expected it.")
            st.markdown(says.format(number=number, right=right, all=sum(vote.values())))


def _yours(one: Lesson, step: str) -> None:
    task = one.own_sentence
    said: set[str] = set()
    draw_paragraphs(task.text, said)
    if _is_elsewhere(one, step):
        return
    asked = _of_page(one)
    if asked is not None and not asked.is_own:
        st.caption(f":material/edit: {translate('The sentence on the page is still that of the lesson.')}")
    elif asked is not None:
        if task.answer == "page":
            verdict = request_verdict(task, asked, None)
        else:
            answer = answer_control(one, step, task, asked)
            # An answer is one to this text, this head and this model: to others it is given anew.
            given = (asked.encoding, asked.head, asked.loaded.name, answer)
            drafts = lesson.drafts(one)
            if pop_pressed("lesson_say") == asked.encoding:
                drafts["given"] = given
            st.button(
                translate("Is that right?"), key="lesson_say", disabled=answer is None, on_click=mark_pressed,
                args=("lesson_say", asked.encoding),
            )  # fmt: skip
            verdict = request_verdict(task, asked, answer) if drafts.get("given") == given else None
        if verdict is not None:
            if verdict.right or task.answer != "page":  # the page is right when it is; an answer is given
                lesson.update_note(one, own_right=bool(lesson.note_of(one).own_right or verdict.right))
            _say(verdict.right, fill_figures(task.right if verdict.right else task.wrong, verdict, protect_terms))
    did = lesson.note_of(one).own_right is not None
    st.button(
        translate("Go on") if did else translate("Go on without it"), type="primary" if did else "secondary",
        key="lesson_next", on_click=_go, args=(one, "free"),
    )  # fmt: skip
    _hint(task, said)


def _free(one: Lesson, step: str) -> None:
    done = progress_summary(one) or translate("looked")
    st.markdown(translate("You have walked through this lesson: {done}.").format(done=done))
    st.caption(translate("Where to look on:"))
    for number, way in enumerate(one.free):
        st.button(
            escape_markdown(way.label), key=f"lesson_way_{number}", width="stretch", on_click=lesson.leave_for,
            args=(one, step, way.view),
        )  # fmt: skip
    following = lesson.next_lesson(one)
    if following is not None:
        st.button(
            translate("Next lesson: {title}").format(title=escape_markdown(following.title)), type="primary",
            key="lesson_following", width="stretch", on_click=begin, args=(following,),
        )  # fmt: skip
    loaded = _loaded()
    if loaded is not None:
        tag, model = language(), ModelReference(loaded)
        downloads.lesson_file(lambda: handout_work(one, model.get(), tag), one.name)
    st.link_button(escape_markdown(one.source), one.link, icon=":material/menu_book:", width="stretch")
    st.page_link(frame.streamlit_page(LEARN), label=translate("All lessons"), icon=":material/school:")


_DRAW = {"predict": _predict, "do": _do, "reveal": _reveal, "yours": _yours, "free": _free}


# ---------------------------------------------------------------------------- its parts


def _is_elsewhere(one: Lesson, step: str) -> bool:
    """Whether the page is not that of the step, which is then offered."""
    view = one.view(step)
    if view.page == st.session_state[PAGE]:
        return False
    title = translate(st.session_state[lesson.PAGES][view.page].title)
    st.caption(translate("This step is on the page {title}.").format(title=title))
    st.button(
        translate("Open {title}").format(title=title), key="lesson_open", type="primary", on_click=_go, args=(one, step)
    )
    return True


def prediction_context(one: Lesson, model: str) -> CheckContext:
    """What a lesson's prediction is asked about, on a model. Raises Refused for one that cannot be loaded."""
    return lesson_context(loaded_model(model), one.predict.view, one.exercise.view.address)


def masked_text(asked: CheckContext) -> str:
    """The text with a mask for what is hidden, in Markdown; two sentences in two lines."""
    mask, texts = asked.original.special_tokens.mask, {"A": asked.original.text, "B": asked.original.pair or ""}
    for at in reversed(asked.encoding.mask_positions):
        (first, last), side = asked.original.offsets[at], asked.original.sides[at]
        if side is not None:
            texts[side] = f"{texts[side][:first]}{mask}{texts[side][last:]}"
    return "  \n".join(escape_markdown(" ".join(text.split())) for text in texts.values() if text)


def _of_lesson(one: Lesson) -> CheckContext | None:
    """The lesson's own text on the page's model; None where there is no model."""
    loaded = _loaded()
    return None if loaded is None else lesson_context(loaded, one.predict.view, one.exercise.view.address)


def _of_page(one: Lesson) -> CheckContext | None:
    state, began = st.session_state, _of_lesson(one)
    if began is None:
        return None
    chosen = {param.name: param.write(state[param.name]) for param in _page().params if state[param.name] is not None}
    return page_context(began, state[SELECTION], state.head, chosen)


def _page() -> Page:
    pages: Mapping[str, Page] = st.session_state[lesson.PAGES]
    return pages[st.session_state[PAGE]]


def _loaded() -> LoadedModel | None:
    """The page's model; None where it has none, or none that can be loaded, which it says itself."""
    current: Selection | None = st.session_state[SELECTION]
    if current is not None:
        return current.plain
    if _page().text or not _page().models:
        return None
    try:
        return loaded_model(st.session_state.model)
    except Refused:
        return None


def request_verdict(task: Task, asked: CheckContext, answer: Answer | None) -> Verdict | None:
    """What the check says; None until the model has answered, or where it cannot be asked, which is said."""
    return next(iter(request_verdicts(task, asked, [answer]).values()), None)


def request_verdicts(task: Task, asked: CheckContext, answers: Iterable[Answer | None]) -> dict[Answer | None, Verdict]:
    """What the check says of each answer; nothing until the model has answered, or where it cannot be asked."""
    try:
        record = poll(lesson_records.work_for(CHECKS[task.check].record, asked)).value
        if record is None:
            return {}
        now = {one: current_option(task, one) if isinstance(one, Option) else one for one in answers}
        return {answer: lesson_records.judge_answer(task, asked, record, said) for answer, said in now.items()}
    except Refused as error:
        st.caption(f":material/info: {error_sentence(error)}")
        return {}


def fill_figures(text: str, verdict: Verdict, word: Callable[[str], str] = str) -> str:
    """A sentence of the lesson with the figures in it. word: what is made of one that is a word."""
    figures = verdict.translated_figures(translate)
    return text.format(**{name: word(what) if isinstance(what, str) else what for name, what in figures.items()})


def draw_paragraphs(text: str, said: set[str]) -> None:
    """Write what a lesson says, each technical word explained once. said: those that the step has said before."""
    st.markdown(escape_and_mark_terms("\n\n".join(split_paragraphs(text)), said), unsafe_allow_html=True)


def _say(right: bool, text: str) -> None:
    (st.success if right else st.info)(with_help(escape_markdown(" ".join(text.split()))))


def _hint(task: Task, said: set[str]) -> None:
    if task.hint:
        with st.expander(translate("Hint"), icon=":material/lightbulb:"):
            draw_paragraphs(task.hint, said)

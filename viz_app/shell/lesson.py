"""The lesson that is on: which, at which step, and what its reader has said so far.

Lesson and step stand in the address; what was said and done stays in the session, however often the page is left, and
the reader's browser keeps it beyond (`saved_lessons`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from bert_core.refused import Refused
from viz_app.lessons import STEPS, Lesson, Option, View
from viz_app.lessons.parsing import lesson_of, lessons
from viz_app.shell import edits, heads, selection, target
from viz_app.shell.address import ALL_PARAMS, HEAD_CHOSEN, TEXT_UNNAMED
from viz_app.shell.language import language
from viz_app.shell.params import Page, Param, current_names, merge_params, select

Answer = int | float | Option | tuple[str, ...]

PAGES = "_pages"  # every page by its path, as it is declared
LED_LESSON = "_lesson_led"  # of which lesson the visitor leads a class, if of one; None while that is not known
_NOTES = "_lesson_notes"  # what was said and done, by the names of lessons
_RESTORED = "_lessons_heard"  # whether the browser has said what it kept
_DRAFTS = "_lesson_drafts"  # what is chosen and not yet said, by the names of lessons
_PENDING = "_lesson_ahead"  # where the next run is to be
_ABOUT_THE_TEXT = (selection.PARAMS, target.PARAMS, heads.PARAMS, edits.PARAMS)


@dataclass(frozen=True)
class Note:
    """What a reader has said and done in a lesson.

    answer: the prediction; None before it was given. right: whether it was, once it was shown.
    did: whether the page was brought to where it should be. own: whether their own sentence was answered rightly.
    said: the answer in words, as it was given. found: what the lesson said to it.
    """

    answer: Answer | None = None
    right: bool | None = None
    is_tried: bool = False
    own_right: bool | None = None
    answer_text: str = ""
    outcome_text: str = ""


def current() -> tuple[Lesson, str] | None:
    """The lesson that is on, and its step; None where none is.

    Nothing is shown to whoever has not said what they expect: without a prediction the step is the first.
    """
    state = st.session_state
    if not state.lesson:
        return None
    try:
        lesson = lesson_of(state.lesson, language())
    except Refused:  # its file was taken away, or has a fault since
        state.lesson = ""
        return None
    if note_of(lesson).answer is None and state.get(LED_LESSON) != lesson.name:
        if not is_restored() or state.get(LED_LESSON, "") is None:  # the browser may know of one, or of a teacher
            return lesson, STEPS[0]
        state.step = STEPS[0]
    return lesson, state.step


def note_of(lesson: Lesson) -> Note:
    """What was said and done in a lesson so far."""
    return notes().get(lesson.name, Note())


def notes() -> Mapping[str, Note]:
    """What was said and done so far, by the names of lessons."""
    found: Mapping[str, Note] = st.session_state.get(_NOTES, {})
    return found


def is_restored() -> bool:
    """Whether the browser has said what it kept."""
    return bool(st.session_state.get(_RESTORED, False))


def restore_notes(kept: Mapping[str, Note]) -> None:
    """Take what the browser kept; what was said since counts more."""
    st.session_state[_NOTES] = {**kept, **notes()}
    st.session_state[_RESTORED] = True


def update_note(lesson: Lesson, **more: object) -> None:
    """Note what was said or done. more: fields of `Note`."""
    st.session_state[_NOTES] = {**notes(), lesson.name: replace(note_of(lesson), **more)}  # type: ignore[arg-type]


def forget(lesson: Lesson) -> None:
    """Forget what was said and done, to begin anew."""
    st.session_state[_NOTES] = {name: note for name, note in notes().items() if name != lesson.name}
    drafts(lesson).clear()


def forget_all() -> None:
    """Forget what was said and done in all lessons, here and in the browser; a click on a button."""
    st.session_state[_NOTES], st.session_state[_DRAFTS] = {}, {}


def drafts(lesson: Lesson) -> dict[str, object]:
    """What is chosen in the panel of a lesson and not yet said; it may be written to."""
    found: dict[str, object] = st.session_state.setdefault(_DRAFTS, {}).setdefault(lesson.name, {})
    return found


def next_lesson(lesson: Lesson) -> Lesson | None:
    """The next lesson of its course; None after the last."""
    course = [one for one in lessons(language()) if one.course == lesson.course]
    names = [one.name for one in course]
    rest = course[names.index(lesson.name) + 1 :] if lesson.name in names else []
    return rest[0] if rest else None


def leave_for(one: Lesson, step: str, view: View) -> None:
    """Note where the next run is to be: at a step of a lesson, with what a view shows; a click on a button.

    Not before that run: a step that changed while the page did not would be one more press of Back.
    """
    st.session_state[_PENDING] = one.name, step, view


def leave(path: str) -> None:
    """Note that the next run is to be on a page, with no lesson beside it; a click on a button."""
    st.session_state[_PENDING] = "", STEPS[0], View(path, {})


def pending_page() -> str | None:
    """The page that the next run is to be on; None where nobody left for another."""
    left: tuple[str, str, View] | None = st.session_state.get(_PENDING)
    return None if left is None else left[2].page


def apply_pending_view() -> None:
    """Be at the step that was left for, if one was: the choices of its view, of the text and of its page, are made.

    Raises Refused for a view that is not possible.
    """
    state = st.session_state
    left: tuple[str, str, View] | None = state.pop(_PENDING, None)
    if left is None:
        return
    state.lesson, state.step, view = left
    if view.address:
        for name, value in parse_view(view, state[PAGES], state[ALL_PARAMS]).items():
            state[name] = value
        state[HEAD_CHOSEN], state[TEXT_UNNAMED] = "head" in view.address, False


def parse_view(view: View, pages: Mapping[str, Page], table: Mapping[str, Param[Any]]) -> dict[str, object]:
    """What an address makes of the choices of the text and of its page, as a link would.

    Raises Refused for a page that is not there, an address without a text, or a choice that is not possible.
    """
    if view.page not in pages:
        raise Refused(f"the page {view.page[:60]!r} is not there: one of {', '.join(pages)}")
    if "text" not in view.address:
        raise Refused(f"the address for the page {view.page} names no text")
    possible = merge_params([*_ABOUT_THE_TEXT, pages[view.page].params])
    found: dict[str, object] = {}
    address = current_names(view.address, possible)
    for name in address:
        if name not in possible:
            raise Refused(f"{name[:60]!r} is no choice of the page {view.page}: one of {', '.join(sorted(possible))}")
    for name, param in possible.items():
        try:
            found[name] = param.parse(address[name]) if name in address else param.first(with_text=True)
        except Refused as error:
            raise Refused(f"{name}={address[name][:60]!r} is not possible: {error}") from error
    return found


def _parse(name: str) -> str:
    return lesson_of(name).name if name else ""


PARAMS: tuple[Param[Any], ...] = (
    Param("lesson", "", _parse, step=True),
    select("step", STEPS, step=True),
)

"""The current lesson: its step, and what its reader has answered and done.

Lesson and step are part of the address. Answers are kept in the session when the page is left, and saved by the browser
of the reader (`saved_lessons`).
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
from viz_app.shell.address import HEAD_CHOSEN, TEXT_UNNAMED
from viz_app.shell.language import language
from viz_app.shell.params import Page, Param, current_names, merge_params, select

Answer = int | float | Option | tuple[str, ...]

PAGES = "_pages"  # all declared pages, by path
LED_LESSON = "_lesson_led"  # the lesson of the class that the visitor leads, ""; None while that is unknown
_NOTES = "_lesson_notes"  # by the names of lessons
_RESTORED = "_lessons_heard"  # whether the browser has returned the saved notes
_DRAFTS = "_lesson_drafts"  # answers that are not submitted, by the names of lessons
_PENDING = "_lesson_ahead"  # lesson, step and view of the next run
_TEXT_PARAMS = (selection.PARAMS, target.PARAMS, heads.PARAMS, edits.PARAMS)


@dataclass(frozen=True)
class Note:
    """What a reader has answered and done in a lesson.

    answer: the prediction, or None. right: whether it was right, once the truth was shown. is_tried: whether the
    exercise is completed. own_right: whether the answer about the reader's own sentence was right. answer_text,
    outcome_text: the answer in words, and the text of the reveal.
    """

    answer: Answer | None = None
    right: bool | None = None
    is_tried: bool = False
    own_right: bool | None = None
    answer_text: str = ""
    outcome_text: str = ""


def current() -> tuple[Lesson, str] | None:
    """Return the current lesson and its step, or None without a lesson.

    Without a prediction, the step is the first, so that the truth is not shown.
    """
    state = st.session_state
    if not state.lesson:
        return None
    try:
        lesson = lesson_of(state.lesson, language())
    except Refused:  # its file was deleted or has a fault
        state.lesson = ""
        return None
    if note_of(lesson).answer is None and state.get(LED_LESSON) != lesson.name:
        if not is_restored() or state.get(LED_LESSON, "") is None:  # the browser may have saved a note or a pass
            return lesson, STEPS[0]
        state.step = STEPS[0]
    return lesson, state.step


def note_of(lesson: Lesson) -> Note:
    """Return the note of a lesson."""
    return notes().get(lesson.name, Note())


def notes() -> Mapping[str, Note]:
    """Return all notes by the names of lessons."""
    stored: Mapping[str, Note] = st.session_state.get(_NOTES, {})
    return stored


def is_restored() -> bool:
    """Return whether the browser has returned the saved notes."""
    return bool(st.session_state.get(_RESTORED, False))


def restore_notes(saved: Mapping[str, Note]) -> None:
    """Add the notes saved by the browser; notes of this session take precedence."""
    st.session_state[_NOTES] = {**saved, **notes()}
    st.session_state[_RESTORED] = True


def update_note(lesson: Lesson, **fields: object) -> None:
    """Set fields of the `Note` of a lesson."""
    st.session_state[_NOTES] = {**notes(), lesson.name: replace(note_of(lesson), **fields)}  # type: ignore[arg-type]


def forget(lesson: Lesson) -> None:
    """Delete the note and the drafts of a lesson."""
    st.session_state[_NOTES] = {name: note for name, note in notes().items() if name != lesson.name}
    drafts(lesson).clear()


def forget_all() -> None:
    """Delete all notes and drafts, also those saved by the browser; a callback."""
    st.session_state[_NOTES], st.session_state[_DRAFTS] = {}, {}


def drafts(lesson: Lesson) -> dict[str, object]:
    """Return the answers of a lesson that are not submitted; mutable."""
    stored: dict[str, object] = st.session_state.setdefault(_DRAFTS, {}).setdefault(lesson.name, {})
    return stored


def next_lesson(lesson: Lesson) -> Lesson | None:
    """Return the next lesson of the course, or None after the last."""
    course = [candidate for candidate in lessons(language()) if candidate.course == lesson.course]
    names = [candidate.name for candidate in course]
    following = course[names.index(lesson.name) + 1 :] if lesson.name in names else []
    return following[0] if following else None


def leave_for(lesson: Lesson, step: str, view: View) -> None:
    """Open a step of a lesson with a view in the next run; a callback.

    Not in this run: a step that changes without its page would be an additional entry in the history of the browser.
    """
    st.session_state[_PENDING] = lesson.name, step, view


def leave(path: str) -> None:
    """Open a page without a lesson in the next run; a callback."""
    st.session_state[_PENDING] = "", STEPS[0], View(path, {})


def pending_page() -> str | None:
    """Return the page that the next run opens, or None."""
    pending: tuple[str, str, View] | None = st.session_state.get(_PENDING)
    return None if pending is None else pending[2].page


def apply_pending_view() -> None:
    """Set the pending lesson and step, and the choices of the text and of the page in its view.

    Raises Refused for a view that is not possible.
    """
    state = st.session_state
    pending: tuple[str, str, View] | None = state.pop(_PENDING, None)
    if pending is None:
        return
    state.lesson, state.step, view = pending
    if view.address:
        for name, value in parse_view(view, state[PAGES]).items():
            state[name] = value
        state[HEAD_CHOSEN], state[TEXT_UNNAMED] = "head" in view.address, False


def parse_view(view: View, pages: Mapping[str, Page]) -> dict[str, object]:
    """Return the choices of the text and of the page at the address of a view.

    Raises Refused for an unknown page, an address without a text, and an unknown or impossible choice.
    """
    if view.page not in pages:
        raise Refused(f"the page {view.page[:60]!r} is not there: one of {', '.join(pages)}")
    if "text" not in view.address:
        raise Refused(f"the address for the page {view.page} names no text")
    params = merge_params([*_TEXT_PARAMS, pages[view.page].params])
    address = current_names(view.address, params)
    for name in address:
        if name not in params:
            raise Refused(f"{name[:60]!r} is no choice of the page {view.page}: one of {', '.join(sorted(params))}")
    values: dict[str, object] = {}
    for name, param in params.items():
        try:
            values[name] = param.parse(address[name]) if name in address else param.first(with_text=True)
        except Refused as error:
            raise Refused(f"{name}={address[name][:60]!r} is not possible: {error}") from error
    return values


def _parse(name: str) -> str:
    return lesson_of(name).name if name else ""


PARAMS: tuple[Param[Any], ...] = (
    Param("lesson", "", _parse, step=True),
    select("step", STEPS, step=True),
)

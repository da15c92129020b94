"""What a browser keeps of lessons: the same comes back, and of a stranger's text nothing that is no note."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.visit import settled, visited, words
from viz_app.components.browser_storage import MAX_CHARACTERS
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import lesson_of, lessons
from viz_app.shell import lesson, saved_lessons
from viz_app.shell.lesson import Note
from viz_app.shell.saved_lessons import decode_notes, encode_notes


def answer_to(name: str) -> Any:
    """Some answer that a lesson's prediction can have."""
    task = lesson_of(name).predict
    if task.answer == "order":
        return CHECKS[task.check].items
    return task.options[0] if task.options else int(task.minimum) if task.answer == "number" else 2


def test_what_was_said_in_every_lesson_comes_back() -> None:
    """Answers of every kind, right or wrong or not yet known, tried or not; a lesson that is gone is left out."""
    notes = {
        one.name: Note(
            answer_to(one.name), *((None, False, None), (True, True, False), (False, True, True))[number % 3]
        )
        for number, one in enumerate(lessons())
    }
    assert len({one.predict.answer for one in lessons()}) == 4
    assert decode_notes(encode_notes(notes)) == notes
    assert decode_notes(encode_notes({**notes, "gone": Note(3)})) == notes


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", "null", '{"both_sides": 3}', "[" * 100_000, '{"both_sides": {"answer": "<script>"}}',
        '{"both_sides": {"answer": -1, "did": true}}', '{"both_sides": {"answer": true, "did": true}}',
        '{"both_sides": {"answer": 1e999, "did": true}}', '{"both_sides": {"answer": 1, "did": "yes"}}',
        '{"both_sides": {"answer": 1, "did": true, "right": "<b>"}}', '{"one_head": {"answer": 99, "did": true}}',
        '{"the_bin": {"answer": 101, "did": true}}', '{"explanation": {"answer": ["a", "b"], "did": true}}',
        '{"__class__": {"answer": 1, "did": true}}',
    ],
)  # fmt: skip
def test_of_a_strangers_text_nothing_is_taken(text: str) -> None:
    """No JSON, no notes, answers that the lesson does not have: as if nothing had been kept."""
    assert decode_notes(text) == {}


def test_a_page_asks_the_browser_once_and_then_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Learn and beside a lesson, and nowhere else; what was said meanwhile counts more than what was kept."""
    seen: list[str | None] = []
    monkeypatch.setattr(saved_lessons, "browser_storage", lambda name, text, on_kept: seen.append(text))
    settled(visited("predict", text="The cat sat."))
    assert seen == []
    app: AppTest = settled(visited("learn"))
    assert seen == [None]
    kept = {"both_sides": Note(3, right=False, is_tried=True), "the_bin": Note(50)}
    app.session_state[lesson._NOTES] = {"the_bin": Note(30)}
    app.session_state[lesson._RESTORED] = True
    app.session_state[lesson._NOTES] = {**decode_notes(encode_notes(kept)), **app.session_state[lesson._NOTES]}
    settled(app.run())
    assert json.loads(str(seen[-1]))["the_bin"]["answer"] == 30
    assert "predicted otherwise, tried" in words(app)
    next(button for button in app.button if button.label == "Reset my answers").click()
    settled(app.run())
    assert seen[-1] == "{}" and "predicted" not in words(app)


def test_more_than_a_browser_may_keep_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is bounded before anything reads it."""

    def page() -> None:
        import streamlit as st

        from viz_app.components import browser_storage as made

        given: list[str] = []
        made._view = lambda **said: said["on_kept_change"]()  # type: ignore[assignment, return-value]
        for kept in ("x" * (made.MAX_CHARACTERS + 1), 3, "a note"):
            st.session_state["browser_storage_a"] = {"kept": kept}
            made.browser_storage("a", None, given.append)
        st.text(repr(given))

    monkeypatch.setattr("viz_app.components.browser_storage._view", None)
    app = AppTest.from_function(page).run()
    assert not app.exception and app.text[0].value == repr(["", "", "a note"]) and MAX_CHARACTERS == 100_000

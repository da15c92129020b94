"""The notes of lessons saved by the reader's own browser: they survive a reload and a change of the server.

A saved text is untrusted input: whatever is not a note of an existing lesson is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from viz_app.components.browser_storage import MAX_CHARACTERS, browser_storage
from viz_app.lessons import Lesson, Option, Task
from viz_app.lessons.parsing import lessons
from viz_app.shell import lesson
from viz_app.shell.lesson import Answer, Note

NAME = "lessons"
MAX_TEXT_LENGTH = 2_000  # characters of an answer in words, and of the text of a reveal


def draw() -> None:
    """Request the saved notes once in a session, and then save the current ones."""
    browser_storage(NAME, encode_notes(lesson.notes()) if lesson.is_restored() else None, _restore)


def _restore(text: str) -> None:
    lesson.restore_notes(decode_notes(text))


def encode_notes(notes: Mapping[str, Note]) -> str:
    """Return notes by the names of lessons as JSON; without their texts if these are too long."""
    by_name = {content.name: content for content in lessons()}
    entries = {name: _encode(note, by_name[name].predict) for name, note in notes.items() if name in by_name}
    text = json.dumps(entries)
    if len(text) <= MAX_CHARACTERS:
        return text
    return json.dumps({name: {**entry, "said": "", "found": ""} for name, entry in entries.items()})


def _encode(note: Note, task: Task) -> dict[str, Any]:
    texts = {"said": note.answer_text[:MAX_TEXT_LENGTH], "found": note.outcome_text[:MAX_TEXT_LENGTH]}
    states = {"right": note.right, "did": note.is_tried, "own": note.own_right}
    return {"answer": _encode_answer(note.answer, task), **states, **texts}


def decode_notes(text: str) -> dict[str, Note]:
    """Return the notes in a text of `encode_notes`, and the valid ones in any other text."""
    try:
        entries = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    decoded = {content.name: _decode(content, entries.get(content.name)) for content in lessons()}
    return {name: note for name, note in decoded.items() if note is not None}


def _decode(content: Lesson, entry: Any) -> Note | None:
    """Return a note if its answer is possible in this lesson."""
    if not isinstance(entry, dict):
        return None
    answer = _decode_answer(entry.get("answer"), content.predict)
    right, is_tried, own_right = (entry.get(name) for name in ("right", "did", "own"))
    if answer is None or not isinstance(is_tried, bool):
        return None
    if any(state not in (None, True, False) for state in (right, own_right)):
        return None
    texts = (text[:MAX_TEXT_LENGTH] if isinstance(text := entry.get(name), str) else "" for name in ("said", "found"))
    return Note(answer, right, is_tried, own_right, *texts)


def _encode_answer(answer: Answer | None, task: Task) -> Any:
    """Return an answer for JSON: of a choice, the number of the option."""
    if isinstance(answer, Option):
        return task.options.index(answer) if answer in task.options else None
    return answer


def _decode_answer(value: Any, task: Task) -> Answer | None:
    if task.answer == "order":
        items = task.items
        is_order = isinstance(value, list) and len(value) == len(items) and all(item in value for item in items)
        return tuple(value) if is_order else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    if task.answer == "choice":
        return task.options[value] if isinstance(value, int) and value in range(len(task.options)) else None
    if task.answer == "word":
        return value if isinstance(value, int) and 0 <= value < 10_000 else None
    return value if task.minimum <= value <= task.maximum else None

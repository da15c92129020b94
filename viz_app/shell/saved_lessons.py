"""What was said and done in lessons, as the reader's own browser keeps it: a reload, or another server, loses nothing.

It is a stranger's text when it comes back: what is not a note of a lesson that there is, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from viz_app.components.browser_storage import MAX_CHARACTERS, browser_storage
from viz_app.lessons import Lesson, Option, Task
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.parsing import lessons
from viz_app.shell import lesson
from viz_app.shell.lesson import Answer, Note

NAME = "lessons"
MAX_TEXT_LENGTH = 2_000  # signs of an answer in words, or of what was found


def draw() -> None:
    """Ask the browser what it has kept, once in a session; then let it keep what there is now."""
    heard = lesson.is_restored()
    browser_storage(NAME, encode_notes(lesson.notes()) if heard else None, _take)


def _take(kept: str) -> None:
    lesson.restore_notes(decode_notes(kept))


def encode_notes(notes: Mapping[str, Note]) -> str:
    """Notes by the names of lessons as a text, JSON."""
    by_name = {one.name: one for one in lessons()}
    said = {
        name: {
            "answer": _plain(note.answer, by_name[name].predict), "right": note.right, "did": note.is_tried,
            "own": note.own_right,
            "said": note.answer_text[:MAX_TEXT_LENGTH], "found": note.outcome_text[:MAX_TEXT_LENGTH],
        }
        for name, note in notes.items()
        if name in by_name
    }  # fmt: skip
    text = json.dumps(said)
    if len(text) <= MAX_CHARACTERS:
        return text
    # What was said and done counts more than the words for it.
    return json.dumps({name: {**about, "said": "", "found": ""} for name, about in said.items()})


def decode_notes(text: str) -> dict[str, Note]:
    """The notes of a text that `written` made; of any other text what there is of them."""
    try:
        said = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    found = {one.name: _note(one, said[one.name]) for one in lessons() if one.name in said}
    return {name: note for name, note in found.items() if note is not None}


def _note(one: Lesson, said: Any) -> Note | None:
    """A note, if it is one with an answer that this lesson can have."""
    if not isinstance(said, dict):
        return None
    answer = _answer(said.get("answer"), one.predict)
    right, did, own = said.get("right"), said.get("did"), said.get("own")
    if answer is None or not isinstance(did, bool) or any(part not in (None, True, False) for part in (right, own)):
        return None
    words = (str(said[part])[:MAX_TEXT_LENGTH] if isinstance(said.get(part), str) else "" for part in ("said", "found"))
    return Note(answer, right, did, own, *words)


def _plain(answer: Answer | None, task: Task) -> Any:
    """An answer as JSON has it: of a choice the number of the option."""
    if isinstance(answer, Option):
        return task.options.index(answer) if answer in task.options else None
    return answer


def _answer(said: Any, task: Task) -> Answer | None:
    if task.answer == "order":
        things = CHECKS[task.check].items
        is_order = isinstance(said, list) and len(said) == len(things) and all(thing in said for thing in things)
        return tuple(said) if is_order else None
    if isinstance(said, bool) or not isinstance(said, int | float) or not isfinite(said):
        return None
    if task.answer == "choice":
        return task.options[said] if isinstance(said, int) and said in range(len(task.options)) else None
    if task.answer == "word":
        return said if isinstance(said, int) and 0 <= said < 10_000 else None
    return said if task.minimum <= said <= task.maximum else None

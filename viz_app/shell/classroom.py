"""The class that a visitor is in, or leads: what of it stands in the address, in the session and in the browser.

The classes themselves are in the memory of the process (`viz_app.classroom`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from functools import cache
from typing import Any

import streamlit as st

from bert_core.refused import Refused
from viz_app.classroom import (
    MAX_IDLE_SECONDS,
    MAX_PASS_LENGTH,
    Class,
    Classes,
    ClassQuestion,
    ClassState,
    Teachers,
    parse_code,
)  # fmt: skip
from viz_app.components.browser_storage import browser_storage
from viz_app.lessons import Lesson
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson
from viz_app.shell.language import language
from viz_app.shell.params import Param, toggle
from viz_app.streamlit_compat import session_id

CODE = "HEADLIGHT_CLASS"  # the teacher's code, given at start
# By this header a proxy before several copies says to each how it calls it.
COPY = "X-Headlight-Copy"
PARAMS: tuple[Param[Any], ...] = (
    Param("class", "", parse_code, is_secret=True),
    toggle("teach"),
)
CLASSES = Classes()
POLL_SECONDS = 3.0  # seconds after which a page of a class asks whether there is another step
_PASS = "_teachers_pass"  # what the browser is known by; empty for none, nothing before the browser has said
_MEMBERSHIP = "_class_me"  # of which class the visitor is, and what they are known by there


def clock_time() -> float:
    """The time by which classes are kept."""
    return time.monotonic()


def is_enabled() -> bool:
    """Whether the server was started for a class."""
    return bool(os.environ.get(CODE))


@cache
def _teachers(code: str) -> Teachers:
    return Teachers(code)


def teachers() -> Teachers:
    """Who may lead classes on this server."""
    return _teachers(os.environ.get(CODE, ""))


# ---------------------------------------------------------------------------- the teacher


def restore_teacher() -> None:
    """Know again, at the begin of a run, a teacher whose page was reloaded, and which lesson they lead."""
    state = st.session_state
    if not state.teach or not is_enabled():
        state[lesson.LED_LESSON] = ""
        return
    if _PASS not in state:
        state[lesson.LED_LESSON] = None
        browser_storage("teacher", None, _take_pass, tab=True)
        return
    browser_storage("teacher", state[_PASS], _take_pass, tab=True)
    shown = None if (found := led_class()) is None else found.state()
    state[lesson.LED_LESSON] = "" if shown is None or shown.question is None else shown.question.lesson.name


def is_pass_known() -> bool:
    """Whether the browser has said whose it is, if it is a teacher's."""
    return _PASS in st.session_state


def is_teacher() -> bool:
    """Whether the visitor has given the teacher's code."""
    return is_enabled() and teachers().is_valid(st.session_state.get(_PASS, ""), clock_time())


def sign_in(code: str) -> None:
    """Let the teacher in. Raises Refused for a wrong code, or after too many of them."""
    st.session_state[_PASS] = teachers().issue_pass(code, session_id() or "", clock_time())


def sign_out() -> None:
    """Forget that this browser is a teacher's; a click on a button."""
    teachers().revoke(st.session_state.get(_PASS, ""))
    st.session_state[_PASS], st.session_state["class"], st.session_state.teach = "", "", False


def open_class() -> Class:
    """A new class. Raises Refused where there are too many."""
    made = CLASSES.open(clock_time(), route())
    _tidy_later()
    return made


def _tidy_later() -> None:
    """Forget classes whose teacher is gone, also where nobody comes any more who would notice."""

    def tidy() -> None:
        if CLASSES.open_classes(clock_time()):
            _tidy_later()

    timer = threading.Timer(MAX_IDLE_SECONDS + 1, tidy)
    timer.daemon = True
    timer.start()


def lesson_in(question: ClassQuestion) -> Lesson:
    """The lesson of a question in the language of the reader; as it was asked where its file is gone."""
    try:
        return lesson_of(question.lesson.name, language())
    except Refused:
        return question.lesson


def led_class() -> Class | None:
    """The class that the visitor leads; None where they lead none."""
    state = st.session_state
    if not state.teach or not is_teacher():
        return None
    found = CLASSES.find(state["class"], clock_time())
    if found is not None:
        found.last_seen = clock_time()
    return found


def class_on_lesson(name: str) -> tuple[Class, ClassState] | None:
    """The class that the visitor leads, where it is asked about the lesson of this name."""
    if st.session_state.get(lesson.LED_LESSON) != name or (found := led_class()) is None:
        return None
    shown = found.state()
    return (found, shown) if shown.question is not None and shown.question.lesson.name == name else None


def advance_class(name: str, step: str) -> None:
    """Bring the class that the visitor leads to where they are in its lesson, once something was asked."""
    on = class_on_lesson(name)
    if on is None or step not in ("do", "reveal"):
        return
    group, shown = on
    if shown.vote and shown.step != step and (shown.step, step) != ("reveal", "do"):
        group.move_to(step)


def route() -> str:
    """How the proxy before this process calls it; empty where none says so."""
    named = st.context.headers.get(COPY) or ""
    return named if re.fullmatch(r"[A-Za-z0-9_]{1,32}", named) else ""


def _take_pass(kept: str) -> None:
    st.session_state.setdefault(_PASS, kept if len(kept) <= MAX_PASS_LENGTH else "")


# ---------------------------------------------------------------------------- who joins


def member_id() -> str | None:
    """What the visitor is known by in their class; None until the browser has said what it kept.

    It says whose answer a second one replaces, and nothing else; of another class it is another.
    """
    state = st.session_state
    if _MEMBERSHIP not in state:
        browser_storage("class", None, _take_me)
        return None
    if state[_MEMBERSHIP][0] != state["class"]:
        state[_MEMBERSHIP] = state["class"], secrets.token_urlsafe(16)
    browser_storage("class", json.dumps(state[_MEMBERSHIP]), _take_me)
    return str(state[_MEMBERSHIP][1])


def _take_me(kept: str) -> None:
    code, known = "", ""
    try:
        said = json.loads(kept) if kept else None
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, list) and len(said) == 2 and all(isinstance(part, str) for part in said):
        code, known = said
    good = bool(re.fullmatch(r"[\w-]{16,64}", known, re.ASCII))
    st.session_state.setdefault(_MEMBERSHIP, (code, known) if good else ("", ""))


def leave() -> None:
    """Be in no class; a click on a button."""
    st.session_state["class"] = ""

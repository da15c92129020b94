"""The class that a visitor joined or leads: its parts in the address, the session and the browser.

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
)
from viz_app.components.browser_storage import browser_storage
from viz_app.lessons import Lesson
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson
from viz_app.shell.language import language
from viz_app.shell.params import Param, toggle
from viz_app.streamlit_compat import session_id

CODE = "HEADLIGHT_CLASS"  # environment variable with the code of the teacher
# Header by which a proxy tells each of several processes its name.
COPY = "X-Headlight-Copy"
PARAMS: tuple[Param[Any], ...] = (
    Param("class", "", parse_code, is_secret=True),
    toggle("teach"),
)
CLASSES = Classes()
POLL_SECONDS = 3.0  # between two checks of the step by the page of a student
_PASS = "_teachers_pass"  # the pass of the browser, "" for none; missing until the browser has returned it
_MEMBERSHIP = "_class_me"  # the code of the class and the id of the visitor in it


def clock_time() -> float:
    """Return the time of the clock of all classes in seconds."""
    return time.monotonic()


def is_enabled() -> bool:
    """Return whether the server was started for classes."""
    return bool(os.environ.get(CODE))


@cache
def _teachers(code: str) -> Teachers:
    return Teachers(code)


def teachers() -> Teachers:
    """Return the teachers of this server."""
    return _teachers(os.environ.get(CODE, ""))


# ---------------------------------------------------------------------------- the teacher


def restore_teacher() -> None:
    """Restore, at the start of a run, the pass of a teacher whose page was reloaded, and the lesson of the class."""
    state = st.session_state
    if not state.teach or not is_enabled():
        state[lesson.LED_LESSON] = ""
        return
    if _PASS not in state:
        state[lesson.LED_LESSON] = None
        browser_storage("teacher", None, _restore_pass, tab=True)
        return
    browser_storage("teacher", state[_PASS], _restore_pass, tab=True)
    question = None if (group := led_class()) is None else group.state().question
    state[lesson.LED_LESSON] = "" if question is None else question.lesson.name


def is_pass_known() -> bool:
    """Return whether the browser has returned its pass, or that it has none."""
    return _PASS in st.session_state


def is_teacher() -> bool:
    """Return whether the visitor has entered the code of the teacher."""
    return is_enabled() and teachers().is_valid(st.session_state.get(_PASS, ""), clock_time())


def sign_in(code: str) -> None:
    """Sign the teacher in. Raises Refused for a wrong code, and after too many of them."""
    st.session_state[_PASS] = teachers().issue_pass(code, session_id() or "", clock_time())


def sign_out() -> None:
    """Sign the teacher out; a callback."""
    teachers().revoke(st.session_state.get(_PASS, ""))
    st.session_state[_PASS], st.session_state["class"], st.session_state.teach = "", "", False


def open_class() -> Class:
    """Return a new class. Raises Refused for too many classes."""
    group = CLASSES.open(clock_time(), route())
    _schedule_cleanup()
    return group


def _schedule_cleanup() -> None:
    """Close idle classes later, also if nobody visits the server."""

    def clean_up() -> None:
        if CLASSES.open_classes(clock_time()):
            _schedule_cleanup()

    timer = threading.Timer(MAX_IDLE_SECONDS + 1, clean_up)
    timer.daemon = True
    timer.start()


def lesson_in(question: ClassQuestion) -> Lesson:
    """Return the lesson of a question in the language of the reader, or as in the question if its file is missing."""
    try:
        return lesson_of(question.lesson.name, language())
    except Refused:
        return question.lesson


def led_class() -> Class | None:
    """Return the class that the visitor leads, or None."""
    state = st.session_state
    if not state.teach or not is_teacher():
        return None
    group = CLASSES.find(state["class"], clock_time())
    if group is not None:
        group.last_seen = clock_time()
    return group


def class_on_lesson(name: str) -> tuple[Class, ClassState] | None:
    """Return the class that the visitor leads and its state, if its question is of the lesson of this name."""
    if st.session_state.get(lesson.LED_LESSON) != name or (group := led_class()) is None:
        return None
    state = group.state()
    return (group, state) if state.question is not None and state.question.lesson.name == name else None


def advance_class(name: str, step: str) -> None:
    """Move the class that the visitor leads to their step of its lesson, after its first vote."""
    led = class_on_lesson(name)
    if led is None or step not in ("do", "reveal"):
        return
    group, state = led
    if state.vote and state.step != step and (state.step, step) != ("reveal", "do"):
        group.move_to(step)


def route() -> str:
    """Return the name of this process at the proxy in front of it, or ""."""
    name = st.context.headers.get(COPY) or ""
    return name if re.fullmatch(r"[A-Za-z0-9_]{1,32}", name) else ""


def _restore_pass(token: str) -> None:
    st.session_state.setdefault(_PASS, token if len(token) <= MAX_PASS_LENGTH else "")


# ---------------------------------------------------------------------------- a student


def member_id() -> str | None:
    """Return the id of the visitor in their class, or None until the browser has returned the saved one.

    It determines which answer a second one replaces, and differs between classes.
    """
    state = st.session_state
    if _MEMBERSHIP not in state:
        browser_storage("class", None, _restore_membership)
        return None
    if state[_MEMBERSHIP][0] != state["class"]:
        state[_MEMBERSHIP] = state["class"], secrets.token_urlsafe(16)
    browser_storage("class", json.dumps(state[_MEMBERSHIP]), _restore_membership)
    return str(state[_MEMBERSHIP][1])


def _restore_membership(text: str) -> None:
    try:
        saved = json.loads(text) if text else None
    except (ValueError, RecursionError):
        saved = None
    membership = ("", "")
    if isinstance(saved, list) and len(saved) == 2 and all(isinstance(part, str) for part in saved):
        code, member = saved
        if re.fullmatch(r"[\w-]{16,64}", member, re.ASCII):
            membership = (code, member)
    st.session_state.setdefault(_MEMBERSHIP, membership)


def leave() -> None:
    """Leave the class; a callback."""
    st.session_state["class"] = ""

"""A class whose members answer the question of a lesson together, and its teacher.

Answers are stored in the memory of one process, counted, and deleted when the class is closed. This module imports
neither Streamlit nor a model. Times are arguments, in seconds of a monotonic clock.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite

from bert_core.refused import Refused
from viz_app.lessons import Lesson, Option
from viz_app.texts import Phrase, TranslatedRefusal, page_texts

Answer = int | float | Option | tuple[str, ...]

STEPS = ("wait", "ask", "stop", "do", "reveal")
MAX_PEOPLE = 500  # in a class
MAX_CLASSES = 20  # in a process
MAX_QUESTIONS = 100  # of a class
MAX_VOTES = 2  # on a question: before and after a discussion
MAX_IDLE_SECONDS = 3 * 3600.0  # without its teacher, after which a class is closed
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 characters that are hard to confuse
CODE_LENGTH = 12  # characters of five bits each
CODE = re.compile(rf"([A-Za-z0-9_]{{1,32}}-)?[{ALPHABET}]{{{CODE_LENGTH}}}")
MAX_WRONG_CODES, MAX_WRONG_CODES_OF_VISITOR = 10, 5  # teacher's codes in a minute, of all visitors and of one
MAX_PASS_LENGTH = 64  # characters of the pass of a teacher

TEXTS = page_texts("class")
UNKNOWN_CLASS = Phrase(TEXTS, "refused.unknown_class")
CLASS_FULL = Phrase(TEXTS, "refused.class_full")
JOIN_BUSY = Phrase(TEXTS, "refused.join_busy")
VOTE_CLOSED = Phrase(TEXTS, "refused.vote_closed")
INVALID_ANSWER = Phrase(TEXTS, "refused.invalid_answer")
WRONG_CODE = Phrase(TEXTS, "refused.wrong_code")
TOO_MANY_ATTEMPTS = Phrase(TEXTS, "refused.too_many_attempts")
TOO_MANY_CLASSES = Phrase(TEXTS, "refused.too_many_classes")


class Limit:
    """A maximum number of events in a period."""

    def __init__(self, maximum: int, seconds: float) -> None:
        self._maximum, self._seconds = maximum, seconds
        self._times: deque[float] = deque()

    def is_reached(self, time: float) -> bool:
        """Return whether no further event is allowed."""
        while self._times and self._times[0] <= time - self._seconds:
            self._times.popleft()
        return len(self._times) >= self._maximum

    def count(self, time: float) -> None:
        """Count an event."""
        self._times.append(time)


@dataclass(frozen=True)
class ClassQuestion:
    """The prediction of a lesson on a model; words: numbers of the words that are possible answers, if words are."""

    lesson: Lesson
    model: str
    words: Collection[int] = ()

    def is_answer(self, answer: object) -> bool:
        """Return whether this is a possible answer."""
        task = self.lesson.predict
        if task.answer == "choice":
            return answer in task.options
        if task.answer == "order":
            return isinstance(answer, tuple) and sorted(map(str, answer)) == sorted(task.items)
        if isinstance(answer, bool) or not isinstance(answer, int | float) or not isfinite(answer):
            return False
        return answer in self.words if task.answer == "word" else task.minimum <= answer <= task.maximum


@dataclass(frozen=True)
class CountedVotes:
    """A question and, for each of its votes in order, the number of times that each answer was given."""

    question: ClassQuestion
    votes: tuple[Mapping[Answer, int], ...]


@dataclass(frozen=True)
class ClassState:
    """The state of a class that all its members may see.

    number, vote: of the question and of its vote, from 1; 0 before the first. version: increases with each change of
    the step. people_count, answer_count: of the class and of the vote.
    """

    question: ClassQuestion | None
    number: int
    step: str
    vote: int
    version: int
    people_count: int
    answer_count: int


@dataclass
class _Round:
    question: ClassQuestion
    votes: list[dict[str, Answer]] = field(default_factory=list)

    def counted(self) -> CountedVotes:
        return CountedVotes(self.question, tuple(Counter(vote.values()) for vote in self.votes))


class Class:
    """The members of a class, the current question and the answers.

    Answers are stored by member, so that a second one replaces the first. No method returns that assignment.
    """

    def __init__(self, code: str, time: float) -> None:
        self.code = code
        self.last_seen = time  # of its teacher
        self._lock = threading.Lock()
        self._people: set[str] = set()
        self._rounds: list[_Round] = []
        self._step = STEPS[0]
        self._version = 0

    # ------------------------------------------------------------------------ its teacher

    def begin_question(self, question: ClassQuestion) -> None:
        """Start a question without votes."""
        with self._lock:
            del self._rounds[: len(self._rounds) + 1 - MAX_QUESTIONS]
            self._rounds.append(_Round(question))
            self._set_step("wait")

    def begin_vote(self, vote: int) -> None:
        """Accept answers of vote 1 or 2: start it or continue it.

        Without effect if the votes before it are missing, or once the truth could be seen.
        """
        with self._lock:
            if not self._rounds or self._step not in STEPS[:3]:
                return
            votes = self._rounds[-1].votes
            if not 1 <= vote <= MAX_VOTES or vote not in (len(votes), len(votes) + 1):
                return
            if vote > len(votes):
                votes.append({})
            self._set_step("ask")

    def move_to(self, step: str) -> None:
        """Accept no more answers and set a step; without effect before the first vote."""
        with self._lock:
            if self._rounds and self._rounds[-1].votes and step in STEPS[2:]:
                self._set_step(step)

    def counted_questions(self) -> tuple[CountedVotes, ...]:
        """Return the counted votes of all questions, in order."""
        with self._lock:
            return tuple(question.counted() for question in self._rounds)

    def current_votes(self) -> CountedVotes | None:
        """Return the counted votes of the current question; None before the first."""
        with self._lock:
            return self._rounds[-1].counted() if self._rounds else None

    # ------------------------------------------------------------------------ its members

    def state(self) -> ClassState:
        """Return the state that all members may see."""
        with self._lock:
            question = self._rounds[-1].question if self._rounds else None
            votes = self._rounds[-1].votes if self._rounds else []
            answers = len(votes[-1]) if votes else 0
            return ClassState(
                question, len(self._rounds), self._step, len(votes), self._version, len(self._people), answers
            )

    def join(self, member: str) -> None:
        """Add a member. Raises Refused if the class is full."""
        with self._lock:
            if member not in self._people and len(self._people) >= MAX_PEOPLE:
                raise TranslatedRefusal(CLASS_FULL)
            self._people.add(member)

    def is_member(self, member: str) -> bool:
        """Return whether a member has joined."""
        with self._lock:
            return member in self._people

    def answer(self, member: str, number: int, vote: int, answer: Answer) -> None:
        """Store an answer in place of an earlier one. number, vote: of the question and of the vote.

        Raises Refused if no answers are accepted, or if this is not a possible one.
        """
        with self._lock:
            current = self._rounds[-1] if self._rounds else None
            if current is None or member not in self._people or self._step != "ask":
                raise TranslatedRefusal(VOTE_CLOSED)
            if (number, vote) != (len(self._rounds), len(current.votes)):
                raise TranslatedRefusal(VOTE_CLOSED)
            if not current.question.is_answer(answer):
                raise TranslatedRefusal(INVALID_ANSWER)
            current.votes[-1][member] = answer

    def answer_of(self, member: str) -> Answer | None:
        """Return the answer of a member in the current vote, to be shown to this member only."""
        with self._lock:
            votes = self._rounds[-1].votes if self._rounds else []
            return votes[-1].get(member) if votes else None

    def clear(self) -> None:
        """Delete all members and answers: open pages still refer to the class."""
        with self._lock:
            self._people.clear()
            self._rounds.clear()
            self._set_step("wait")

    def _set_step(self, step: str) -> None:
        self._step = step
        self._version += 1


class Classes:
    """The classes of this process, by code."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Class] = {}
        self._joins = Limit(1_500, 60)
        self._wrong_joins = Limit(300, 60)

    def open(self, time: float, route: str = "") -> Class:
        """Return a new class. route: the name of this process at the proxy in front of it, if there is one.

        Raises Refused for too many classes.
        """
        with self._lock:
            self._close_idle(time)
            if len(self._open) >= MAX_CLASSES:
                raise TranslatedRefusal(TOO_MANY_CLASSES)
            code = f"{route}-{new_code()}" if route else new_code()
            self._open[code] = group = Class(code, time)
            return group

    def find(self, code: str, time: float) -> Class | None:
        """Return the class of this code, or None if it is not open."""
        with self._lock:
            self._close_idle(time)
            return self._open.get(code)

    def join(self, code: str, member: str, time: float) -> Class:
        """Return the class of this code after joining it. Raises Refused for an unknown class and for many joins."""
        group = self.find(code, time)
        if group is not None and group.is_member(member):
            return group
        with self._lock:
            if self._joins.is_reached(time) or (group is None and self._wrong_joins.is_reached(time)):
                raise TranslatedRefusal(JOIN_BUSY)
            if group is None:
                self._wrong_joins.count(time)
                raise TranslatedRefusal(UNKNOWN_CLASS)
            self._joins.count(time)
        group.join(member)
        return group

    def close(self, code: str) -> None:
        """Delete a class and its answers."""
        with self._lock:
            group = self._open.pop(code, None)
        if group is not None:
            group.clear()

    def open_classes(self, time: float) -> tuple[Class, ...]:
        """Return all open classes."""
        with self._lock:
            self._close_idle(time)
            return tuple(self._open.values())

    def _close_idle(self, time: float) -> None:
        for code in [code for code, group in self._open.items() if time - group.last_seen > MAX_IDLE_SECONDS]:
            self._open.pop(code).clear()


class Teachers:
    """The visitors who may lead classes: those who entered the code, recognised later by a pass."""

    def __init__(self, code: str) -> None:
        self._code = _encode(plain_code(code))
        self._lock = threading.Lock()
        self._wrong: deque[tuple[float, str]] = deque(maxlen=MAX_WRONG_CODES)  # time and visitor
        self._passes: dict[bytes, float] = {}

    def issue_pass(self, code: str, visitor: str, time: float) -> str:
        """Return a pass for the right code. Raises Refused for a wrong one, and after too many of them."""
        with self._lock:
            recent = [wrong_visitor for wrong_time, wrong_visitor in self._wrong if time - wrong_time < 60]
            if len(recent) >= MAX_WRONG_CODES or recent.count(visitor) >= MAX_WRONG_CODES_OF_VISITOR:
                raise TranslatedRefusal(TOO_MANY_ATTEMPTS)
            if not self._code or not hmac.compare_digest(_encode(plain_code(code[:200])), self._code):
                self._wrong.append((time, visitor))
                raise TranslatedRefusal(WRONG_CODE)
            token = secrets.token_urlsafe(24)
            self._passes[token.encode()] = time
            return token

    def is_valid(self, token: str, time: float) -> bool:
        """Return whether a pass was issued and used within `MAX_IDLE_SECONDS`."""
        with self._lock:
            self._passes = {
                key: last_use for key, last_use in self._passes.items() if time - last_use <= MAX_IDLE_SECONDS
            }
            encoded = _encode(token[:MAX_PASS_LENGTH])
            match = next((key for key in self._passes if hmac.compare_digest(key, encoded)), None)
            if match is not None:
                self._passes[match] = time
            return match is not None

    def revoke(self, token: str) -> None:
        """Invalidate a pass."""
        with self._lock:
            self._passes.pop(_encode(token), None)


def new_code() -> str:
    """Return a random code of 60 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def plain_code(text: str) -> str:
    """Return a code without separators, in lower case."""
    return re.sub(r"[\s-]", "", text).lower()


def group_code(code: str) -> str:
    """Return a code in groups of four characters."""
    return "-".join(code[start : start + 4] for start in range(0, len(code), 4))


def parse_code(value: str) -> str:
    """Return the code of a class in a link, or "" for none. Raises Refused for any other text."""
    if value and not CODE.fullmatch(value):
        raise Refused(f"a class has a code of {CODE_LENGTH} letters and figures")
    return value

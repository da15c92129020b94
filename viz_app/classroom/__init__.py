"""A class: people who answer a lesson's question together, and who leads them.

What they answer is held in the memory of one process, is counted, and is gone when the class is closed. Nothing here
knows Streamlit or a model; the time is handed in, in seconds of a clock that only grows.
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
from viz_app.lessons.checks import CHECKS

Answer = int | float | Option | tuple[str, ...]

STEPS = ("wait", "ask", "stop", "do", "reveal")
MAX_PEOPLE = 500  # in a class
MAX_CLASSES = 20  # in a process
MAX_QUESTIONS = 100  # of a class
MAX_VOTES = 2  # about a question: before people have talked about it, and after
MAX_IDLE_SECONDS = 3 * 3600.0  # seconds without its teacher after which a class is closed
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 signs; none is easily read as another
CODE_LENGTH = 12  # of a code, five bits each
CODE = re.compile(rf"([A-Za-z0-9_]{{1,32}}-)?[{ALPHABET}]{{{CODE_LENGTH}}}")
MAX_WRONG_CODES, MAX_WRONG_CODES_OF_VISITOR = 10, 5  # teacher's codes in a minute, of all visitors and of one
MAX_PASS_LENGTH = 64  # signs by which a browser says whose it is

UNKNOWN_CLASS = "There is no such class: it was closed, or the link is not whole."
CLASS_FULL = "This class is full: 500 have joined it, and no more can."
JOIN_BUSY = "Very many are joining at this moment. Wait a minute, then reload the page."
VOTE_CLOSED = "No answers are taken now: this vote is over."
INVALID_ANSWER = "This is no answer to the question."
WRONG_CODE = "That is not the teacher's code. It stands in the terminal in which the server was started."
TOO_MANY_ATTEMPTS = "Too many wrong codes: wait a minute, then try again."
TOO_MANY_CLASSES = "No more classes can be open here at once: close one first."
MESSAGES = (
    UNKNOWN_CLASS,
    CLASS_FULL,
    JOIN_BUSY,
    VOTE_CLOSED,
    INVALID_ANSWER,
    WRONG_CODE,
    TOO_MANY_ATTEMPTS,
    TOO_MANY_CLASSES,
)


class Limit:
    """So many times in so many seconds, and no more."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._times: deque[float] = deque()

    def is_reached(self, now: float) -> bool:
        """Whether it may not be done now."""
        while self._times and self._times[0] <= now - self._seconds:
            self._times.popleft()
        return len(self._times) >= self._most

    def count(self, now: float) -> None:
        """Note that it was done."""
        self._times.append(now)


@dataclass(frozen=True)
class ClassQuestion:
    """What a class is asked: the prediction of a lesson, of a model.

    words: the numbers of the words that can be chosen, where a word is the answer.
    """

    lesson: Lesson
    model: str
    words: Collection[int] = ()

    def is_answer(self, answer: object) -> bool:
        """Whether this can be an answer."""
        task = self.lesson.predict
        if task.answer == "choice":
            return answer in task.options
        if task.answer == "order":
            return isinstance(answer, tuple) and sorted(map(str, answer)) == sorted(CHECKS[task.check].items)
        if isinstance(answer, bool) or not isinstance(answer, int | float) or not isfinite(answer):
            return False
        return answer in self.words if task.answer == "word" else task.minimum <= answer <= task.maximum


@dataclass(frozen=True)
class CountedVotes:
    """A question and its votes, counted: how often each answer was given, in the order of the votes."""

    question: ClassQuestion
    votes: tuple[Mapping[Answer, int], ...]


@dataclass(frozen=True)
class ClassState:
    """What everybody in a class may see.

    number: of the question, from 1; 0 before the first. vote: its number, from 1; 0 before the first.
    version: a number that grows when the step changes. joined, answered: how many people.
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


class Class:
    """People who joined, the question that they are asked now, and their answers.

    Whose an answer is, is held to put a second one in its place, and is never handed out.
    """

    def __init__(self, code: str, now: float) -> None:
        self.code = code
        self.last_seen = now  # when its teacher was there last
        self._lock = threading.Lock()
        self._people: set[str] = set()
        self._rounds: list[_Round] = []
        self._step = STEPS[0]
        self._version = 0

    # ------------------------------------------------------------------------ its teacher

    def begin_question(self, question: ClassQuestion) -> None:
        """Come to a question, which nobody has answered yet."""
        with self._lock:
            del self._rounds[: len(self._rounds) + 1 - MAX_QUESTIONS]
            self._rounds.append(_Round(question))
            self._to("wait")

    def begin_vote(self, vote: int) -> None:
        """Take answers of this vote, 1 or 2: begin it, or go on with it.

        Nothing where another one comes first, or once the truth was to be seen.
        """
        with self._lock:
            if not self._rounds or self._step not in STEPS[:3]:
                return
            votes = self._rounds[-1].votes
            if not 1 <= vote <= MAX_VOTES or vote not in (len(votes), len(votes) + 1):
                return
            if vote > len(votes):
                votes.append({})
            self._to("ask")

    def move_to(self, step: str) -> None:
        """Take no more answers, and be at this step; nothing before something was asked."""
        with self._lock:
            if self._rounds and self._rounds[-1].votes and step in STEPS[2:]:
                self._to(step)

    def counted_questions(self) -> tuple[CountedVotes, ...]:
        """All questions so far, in their order."""
        with self._lock:
            return tuple(_counted(one) for one in self._rounds)

    def current_votes(self) -> CountedVotes | None:
        """The question that there is now; None before the first."""
        with self._lock:
            return _counted(self._rounds[-1]) if self._rounds else None

    # ------------------------------------------------------------------------ its people

    def state(self) -> ClassState:
        """What everybody may see."""
        with self._lock:
            last = self._rounds[-1] if self._rounds else None
            votes = [] if last is None else last.votes
            return ClassState(
                None if last is None else last.question, len(self._rounds), self._step, len(votes), self._version,
                len(self._people), len(votes[-1]) if votes else 0,
            )  # fmt: skip

    def join(self, me: str) -> None:
        """Be one of its people. Raises Refused where it is full."""
        with self._lock:
            if me not in self._people and len(self._people) >= MAX_PEOPLE:
                raise Refused(CLASS_FULL)
            self._people.add(me)

    def is_member(self, me: str) -> bool:
        """Whether somebody has joined."""
        with self._lock:
            return me in self._people

    def answer(self, me: str, number: int, vote: int, answer: Answer) -> None:
        """Give an answer, in the place of an earlier one. number: of the question; vote: of the vote it was given in.

        Raises Refused where no answers are taken, or this is none.
        """
        with self._lock:
            last = self._rounds[-1] if self._rounds else None
            if last is None or me not in self._people or self._step != "ask":
                raise Refused(VOTE_CLOSED)
            if (number, vote) != (len(self._rounds), len(last.votes)):
                raise Refused(VOTE_CLOSED)
            if not last.question.is_answer(answer):
                raise Refused(INVALID_ANSWER)
            last.votes[-1][me] = answer

    def answer_of(self, me: str) -> Answer | None:
        """What somebody has answered in the vote that there is now, to be shown to themselves."""
        with self._lock:
            votes = self._rounds[-1].votes if self._rounds else []
            return votes[-1].get(me) if votes else None

    def clear(self) -> None:
        """Forget everybody and everything that was answered: pages that are still open hold the class."""
        with self._lock:
            self._people.clear()
            self._rounds.clear()
            self._to("wait")

    def _to(self, step: str) -> None:
        self._step = step
        self._version += 1


def _counted(one: _Round) -> CountedVotes:
    return CountedVotes(one.question, tuple(Counter(vote.values()) for vote in one.votes))


class Classes:
    """The classes of this process, by their codes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Class] = {}
        self._joining = Limit(1_500, 60)
        self._wrong = Limit(300, 60)

    def open(self, now: float, route: str = "") -> Class:
        """A new class. route: the name by which a proxy knows this process, if there is one before it.

        Raises Refused where there are too many.
        """
        with self._lock:
            self._sweep(now)
            if len(self._open) >= MAX_CLASSES:
                raise Refused(TOO_MANY_CLASSES)
            code = f"{route}-{new_code()}" if route else new_code()
            self._open[code] = made = Class(code, now)
            return made

    def find(self, code: str, now: float) -> Class | None:
        """The class of this code, if it is open."""
        with self._lock:
            self._sweep(now)
            return self._open.get(code)

    def join(self, code: str, me: str, now: float) -> Class:
        """Join the class of this code, or be in it still. Raises Refused where there is none, or not now."""
        found = self.find(code, now)
        if found is not None and found.is_member(me):
            return found
        with self._lock:
            if self._joining.is_reached(now) or (found is None and self._wrong.is_reached(now)):
                raise Refused(JOIN_BUSY)
            if found is None:
                self._wrong.count(now)
                raise Refused(UNKNOWN_CLASS)
            self._joining.count(now)
        found.join(me)
        return found

    def close(self, code: str) -> None:
        """Forget a class and all that was answered in it."""
        with self._lock:
            found = self._open.pop(code, None)
        if found is not None:
            found.clear()

    def open_classes(self, now: float) -> tuple[Class, ...]:
        """All that are open."""
        with self._lock:
            self._sweep(now)
            return tuple(self._open.values())

    def _sweep(self, now: float) -> None:
        for code in [code for code, one in self._open.items() if now - one.last_seen > MAX_IDLE_SECONDS]:
            self._open.pop(code).clear()


class Teachers:
    """Who may lead classes: whoever has given the code; a browser is known again by a pass."""

    def __init__(self, code: str) -> None:
        self._code = _bytes(plain_code(code))
        self._lock = threading.Lock()
        self._wrong: deque[tuple[float, str]] = deque(maxlen=MAX_WRONG_CODES)  # when, and whose
        self._passes: dict[bytes, float] = {}

    def issue_pass(self, code: str, visitor: str, now: float) -> str:
        """A pass for whoever gives the right code. Raises Refused for another one, or after too many of them."""
        with self._lock:
            recent = [who for when, who in self._wrong if now - when < 60]
            if len(recent) >= MAX_WRONG_CODES or recent.count(visitor) >= MAX_WRONG_CODES_OF_VISITOR:
                raise Refused(TOO_MANY_ATTEMPTS)
            if not self._code or not hmac.compare_digest(_bytes(plain_code(code[:200])), self._code):
                self._wrong.append((now, visitor))
                raise Refused(WRONG_CODE)
            made = secrets.token_urlsafe(24)
            self._passes[made.encode()] = now
            return made

    def is_valid(self, given: str, now: float) -> bool:
        """Whether a pass is one, and was used in the last hours."""
        with self._lock:
            self._passes = {one: used for one, used in self._passes.items() if now - used <= MAX_IDLE_SECONDS}
            known = _bytes(given[:MAX_PASS_LENGTH])
            found = next((one for one in self._passes if hmac.compare_digest(one, known)), None)
            if found is not None:
                self._passes[found] = now
            return found is not None

    def revoke(self, given: str) -> None:
        """Make a pass worthless."""
        with self._lock:
            self._passes.pop(_bytes(given), None)


def new_code() -> str:
    """A code that nobody guesses: 60 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def plain_code(given: str) -> str:
    """A code as it is compared: what was put between its signs, or written large, counts for nothing."""
    return re.sub(r"[\s-]", "", given).lower()


def group_code(code: str) -> str:
    """A code as it is read aloud, in groups of four."""
    return "-".join(code[at : at + 4] for at in range(0, len(code), 4))


def parse_code(value: str) -> str:
    """The code of a class, as a link has it; nothing for none. Raises Refused for what can be none."""
    if value and not CODE.fullmatch(value):
        raise Refused(f"a class has a code of {CODE_LENGTH} letters and figures")
    return value

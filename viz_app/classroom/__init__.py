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
MOST_PEOPLE = 500  # in a class
MOST_CLASSES = 20  # in a process
MOST_QUESTIONS = 100  # of a class
MOST_VOTES = 2  # about a question: before people have talked about it, and after
LONGEST_AWAY = 3 * 3600.0  # seconds without its teacher after which a class is closed
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # 32 signs; none is easily read as another
SIGNS = 12  # of a code, five bits each
CODE = re.compile(rf"([A-Za-z0-9_]{{1,32}}-)?[{ALPHABET}]{{{SIGNS}}}")
MOST_WRONG, MOST_WRONG_OF_ONE = 10, 5  # teacher's codes in a minute, of all visitors and of one
LONGEST_PASS = 64  # signs by which a browser says whose it is

UNKNOWN = "There is no such class: it was closed, or the link is not whole."
FULL = "This class is full: 500 have joined it, and no more can."
BUSY = "Very many are joining at this moment. Wait a minute, then reload the page."
OVER = "No answers are taken now: this vote is over."
IMPOSSIBLE = "This is no answer to the question."
WRONG = "That is not the teacher's code. It stands in the terminal in which the server was started."
TOO_OFTEN = "Too many wrong codes: wait a minute, then try again."
TOO_MANY = "No more classes can be open here at once: close one first."
SAYS = (UNKNOWN, FULL, BUSY, OVER, IMPOSSIBLE, WRONG, TOO_OFTEN, TOO_MANY)


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
class Question:
    """What a class is asked: the prediction of a lesson, of a model.

    words: the numbers of the words that can be chosen, where a word is the answer.
    """

    lesson: Lesson
    model: str
    words: Collection[int] = ()

    def takes(self, answer: object) -> bool:
        """Whether this can be an answer."""
        task = self.lesson.predict
        if task.answer == "choice":
            return answer in task.options
        if task.answer == "order":
            return isinstance(answer, tuple) and sorted(map(str, answer)) == sorted(CHECKS[task.check].things)
        if isinstance(answer, bool) or not isinstance(answer, int | float) or not isfinite(answer):
            return False
        return answer in self.words if task.answer == "word" else task.least <= answer <= task.most


@dataclass(frozen=True)
class Asked:
    """A question and its votes, counted: how often each answer was given, in the order of the votes."""

    question: Question
    votes: tuple[Mapping[Answer, int], ...]


@dataclass(frozen=True)
class Shown:
    """What everybody in a class may see.

    number: of the question, from 1; 0 before the first. vote: its number, from 1; 0 before the first.
    version: a number that grows when the step changes. joined, answered: how many people.
    """

    question: Question | None
    number: int
    step: str
    vote: int
    version: int
    joined: int
    answered: int


@dataclass
class _Round:
    question: Question
    votes: list[dict[str, Answer]] = field(default_factory=list)


class Class:
    """People who joined, the question that they are asked now, and their answers.

    Whose an answer is, is held to put a second one in its place, and is never handed out.
    """

    def __init__(self, code: str, now: float) -> None:
        self.code = code
        self.seen = now  # when its teacher was there last
        self._lock = threading.Lock()
        self._people: set[str] = set()
        self._rounds: list[_Round] = []
        self._step = STEPS[0]
        self._version = 0

    # ------------------------------------------------------------------------ its teacher

    def begin(self, question: Question) -> None:
        """Come to a question, which nobody has answered yet."""
        with self._lock:
            del self._rounds[: len(self._rounds) + 1 - MOST_QUESTIONS]
            self._rounds.append(_Round(question))
            self._to("wait")

    def ask(self, vote: int) -> None:
        """Take answers of this vote, 1 or 2: begin it, or go on with it.

        Nothing where another one comes first, or once the truth was to be seen.
        """
        with self._lock:
            if not self._rounds or self._step not in STEPS[:3]:
                return
            votes = self._rounds[-1].votes
            if not 1 <= vote <= MOST_VOTES or vote not in (len(votes), len(votes) + 1):
                return
            if vote > len(votes):
                votes.append({})
            self._to("ask")

    def go_on(self, step: str) -> None:
        """Take no more answers, and be at this step; nothing before something was asked."""
        with self._lock:
            if self._rounds and self._rounds[-1].votes and step in STEPS[2:]:
                self._to(step)

    def asked(self) -> tuple[Asked, ...]:
        """All questions so far, in their order."""
        with self._lock:
            return tuple(_counted(one) for one in self._rounds)

    def now(self) -> Asked | None:
        """The question that there is now; None before the first."""
        with self._lock:
            return _counted(self._rounds[-1]) if self._rounds else None

    # ------------------------------------------------------------------------ its people

    def shown(self) -> Shown:
        """What everybody may see."""
        with self._lock:
            last = self._rounds[-1] if self._rounds else None
            votes = [] if last is None else last.votes
            return Shown(
                None if last is None else last.question, len(self._rounds), self._step, len(votes), self._version,
                len(self._people), len(votes[-1]) if votes else 0,
            )  # fmt: skip

    def join(self, me: str) -> None:
        """Be one of its people. Raises Refused where it is full."""
        with self._lock:
            if me not in self._people and len(self._people) >= MOST_PEOPLE:
                raise Refused(FULL)
            self._people.add(me)

    def has(self, me: str) -> bool:
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
                raise Refused(OVER)
            if (number, vote) != (len(self._rounds), len(last.votes)):
                raise Refused(OVER)
            if not last.question.takes(answer):
                raise Refused(IMPOSSIBLE)
            last.votes[-1][me] = answer

    def answer_of(self, me: str) -> Answer | None:
        """What somebody has answered in the vote that there is now, to be shown to themselves."""
        with self._lock:
            votes = self._rounds[-1].votes if self._rounds else []
            return votes[-1].get(me) if votes else None

    def end(self) -> None:
        """Forget everybody and everything that was answered: pages that are still open hold the class."""
        with self._lock:
            self._people.clear()
            self._rounds.clear()
            self._to("wait")

    def _to(self, step: str) -> None:
        self._step = step
        self._version += 1


def _counted(one: _Round) -> Asked:
    return Asked(one.question, tuple(Counter(vote.values()) for vote in one.votes))


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
            if len(self._open) >= MOST_CLASSES:
                raise Refused(TOO_MANY)
            code = f"{route}-{new_code()}" if route else new_code()
            self._open[code] = made = Class(code, now)
            return made

    def of(self, code: str, now: float) -> Class | None:
        """The class of this code, if it is open."""
        with self._lock:
            self._sweep(now)
            return self._open.get(code)

    def join(self, code: str, me: str, now: float) -> Class:
        """Join the class of this code, or be in it still. Raises Refused where there is none, or not now."""
        found = self.of(code, now)
        if found is not None and found.has(me):
            return found
        with self._lock:
            if self._joining.is_reached(now) or (found is None and self._wrong.is_reached(now)):
                raise Refused(BUSY)
            if found is None:
                self._wrong.count(now)
                raise Refused(UNKNOWN)
            self._joining.count(now)
        found.join(me)
        return found

    def close(self, code: str) -> None:
        """Forget a class and all that was answered in it."""
        with self._lock:
            found = self._open.pop(code, None)
        if found is not None:
            found.end()

    def all(self, now: float) -> tuple[Class, ...]:
        """All that are open."""
        with self._lock:
            self._sweep(now)
            return tuple(self._open.values())

    def _sweep(self, now: float) -> None:
        for code in [code for code, one in self._open.items() if now - one.seen > LONGEST_AWAY]:
            self._open.pop(code).end()


class Teachers:
    """Who may lead classes: whoever has given the code; a browser is known again by a pass."""

    def __init__(self, code: str) -> None:
        self._code = _bytes(plain_code(code))
        self._lock = threading.Lock()
        self._wrong: deque[tuple[float, str]] = deque(maxlen=MOST_WRONG)  # when, and whose
        self._passes: dict[bytes, float] = {}

    def admit(self, code: str, visitor: str, now: float) -> str:
        """A pass for whoever gives the right code. Raises Refused for another one, or after too many of them."""
        with self._lock:
            recent = [who for when, who in self._wrong if now - when < 60]
            if len(recent) >= MOST_WRONG or recent.count(visitor) >= MOST_WRONG_OF_ONE:
                raise Refused(TOO_OFTEN)
            if not self._code or not hmac.compare_digest(_bytes(plain_code(code[:200])), self._code):
                self._wrong.append((now, visitor))
                raise Refused(WRONG)
            made = secrets.token_urlsafe(24)
            self._passes[made.encode()] = now
            return made

    def knows(self, given: str, now: float) -> bool:
        """Whether a pass is one, and was used in the last hours."""
        with self._lock:
            self._passes = {one: used for one, used in self._passes.items() if now - used <= LONGEST_AWAY}
            known = _bytes(given[:LONGEST_PASS])
            found = next((one for one in self._passes if hmac.compare_digest(one, known)), None)
            if found is not None:
                self._passes[found] = now
            return found is not None

    def forget(self, given: str) -> None:
        """Make a pass worthless."""
        with self._lock:
            self._passes.pop(_bytes(given), None)


def new_code() -> str:
    """A code that nobody guesses: 60 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(SIGNS))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def plain_code(given: str) -> str:
    """A code as it is compared: what was put between its signs, or written large, counts for nothing."""
    return re.sub(r"[\s-]", "", given).lower()


def in_groups(code: str) -> str:
    """A code as it is read aloud, in groups of four."""
    return "-".join(code[at : at + 4] for at in range(0, len(code), 4))


def parse_code(value: str) -> str:
    """The code of a class, as a link has it; nothing for none. Raises Refused for what can be none."""
    if value and not CODE.fullmatch(value):
        raise Refused(f"a class has a code of {SIGNS} letters and figures")
    return value

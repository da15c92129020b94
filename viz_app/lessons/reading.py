"""Lessons from their files: read once, and every fault said in one sentence with the file, the key and what may be."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

from bert_core.refused import Refused
from viz_app.lessons import ANSWERS, Lesson, Option, Reveal, Task, View, Way
from viz_app.lessons.checks import CHECKS

FOLDER = Path(__file__).parent
COURSES = (1, 2, 3)
LONGEST = 2_000  # signs of a text
_KINDS = {str: "a text", int: "a whole number", float: "a number", dict: "a table", list: "a list"}
_FORM = re.compile(r"[+,]?(\.\d)?[fg%]?")


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons that come along, in the order of their courses. Raises Refused for a fault in a file."""
    found = [read(file.read_text("utf-8"), file.stem) for file in FOLDER.glob("*.toml")]
    return tuple(sorted(found, key=lambda lesson: (lesson.course, lesson.number)))


def lesson_of(name: str) -> Lesson:
    """The lesson of this name. Raises Refused for a name that none has."""
    for lesson in lessons():
        if lesson.name == name:
            return lesson
    raise Refused(f"one of the lessons {', '.join(lesson.name for lesson in lessons())}")


def read(text: str, name: str) -> Lesson:
    """The lesson that the text of a file holds. Raises Refused for the first fault in it.

    name: of the file, without its ending.
    """
    file = f"{name}.toml"
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{file} is no TOML file: {error}") from error
    top = _Table(file, "", given)
    link = top.text("link")
    if not link.startswith("https://"):
        raise Refused(f"{file}: link is {link[:60]!r}: an address that begins with https://")
    predict, do, yours = (_task(top.table(step), step) for step in ("predict", "do", "yours"))
    if predict.answer == "page":
        raise Refused(f"{file}: predict.answer is 'page': a prediction is given in the panel")
    if not predict.view.address:
        raise Refused(f"{file}: predict.address is missing: a lesson begins with a text of its own")
    lesson = Lesson(
        name, top.text("title"), top.text("question"), top.whole("course", COURSES[0], COURSES[-1]),
        top.whole("number", 1, 99), top.whole("minutes", 1, 60), top.text("source"), link,
        predict, do, _reveal(top.table("reveal"), predict.check), yours,
        tuple(Way(one.text("label"), one.view()) for one in top.tables("free")),
    )  # fmt: skip
    top.nothing_else()
    return lesson


class _Table:
    """A table of a file, with the sentences for what is missing, of the wrong kind, or not known."""

    def __init__(self, file: str, at: str, given: Mapping[str, Any]) -> None:
        self._file, self._at, self._given = file, at, given
        self._parts: list[_Table] = []
        self._asked: set[str] = set()

    def fault(self, key: str, says: str) -> Refused:
        return Refused(f"{self._file}: {self._at}{key} {says}")

    def value(self, key: str, kind: type, *, first: Any = None) -> Any:
        self._asked.add(key)
        if key not in self._given:
            if first is not None:
                return first
            raise self.fault(key, f"is missing: {_KINDS[kind]}")
        value = self._given[key]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.fault(key, f"is {str(value)[:60]!r}: {_KINDS[kind]} is needed")
        return value

    def text(self, key: str, *, first: str | None = None) -> str:
        text: str = self.value(key, str, first=first).strip()
        if first is None and not text:
            raise self.fault(key, "is empty: a text is needed")
        if len(text) > LONGEST:
            raise self.fault(key, f"has {len(text):,} signs: at most {LONGEST:,}")
        return text

    def sentence(self, key: str, check: str, *, first: str | None = None) -> str:
        """A text in which figures of a check are named in braces, as {drop} or {drop:.2f}."""
        text, asked = self.text(key, first=first), CHECKS[check]
        try:
            fields = list(Formatter().parse(text))
        except ValueError as error:
            raise self.fault(key, f"has braces that do not fit: {error}") from error
        for _, name, form, conversion in fields:
            if name is None:
                continue
            if name not in (*asked.words, *asked.numbers):
                raise self.fault(
                    key, f"names {{{name[:40]}}}: {check} gives {', '.join((*asked.words, *asked.numbers))}"
                )
            if name in asked.words and (form or conversion):
                raise self.fault(key, f"writes the word {name} as {form or conversion!r}: it is written as {{{name}}}")
            if name in asked.numbers and (conversion or not form or not _FORM.fullmatch(form)):
                raise self.fault(key, f"writes the number {name} as {form or conversion!r}: such as .2f, .0f, .0%")
        return text

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        word = self.text(key)
        if word not in allowed:
            raise self.fault(key, f"is {word[:60]!r}: one of {', '.join(allowed)}")
        return word

    def whole(self, key: str, least: int, most: int) -> int:
        number: int = self.value(key, int)
        if not least <= number <= most:
            raise self.fault(key, f"is {number}: {least} to {most}")
        return number

    def number(self, key: str) -> float:
        number: float = self.value(key, float)
        return number

    def texts(self, key: str) -> dict[str, str]:
        """A table of texts; nothing where it is not given."""
        found = self.value(key, dict, first={})
        for name, text in found.items():
            if type(text) is not str:
                raise self.fault(f"{key}.{name}", f"is {str(text)[:60]!r}: a text is needed")
        return dict(found)

    def table(self, key: str) -> _Table:
        part = _Table(self._file, f"{self._at}{key}.", self.value(key, dict))
        self._parts.append(part)
        return part

    def tables(self, key: str) -> list[_Table]:
        found = self.value(key, list)
        if not found or any(type(one) is not dict for one in found):
            raise self.fault(key, f"is no list of tables: write [[{self._at}{key}]] over each")
        parts = [_Table(self._file, f"{self._at}{key}[{number}].", one) for number, one in enumerate(found)]
        self._parts += parts
        return parts

    def view(self) -> View:
        return View(self.text("page"), self.texts("address"))

    def nothing_else(self) -> None:
        """Raise Refused for a key that nobody asked for, here or below."""
        for key in self._given:
            if key not in self._asked:
                raise self.fault(key, f"is not known: {', '.join(sorted(self._asked))}")
        for part in self._parts:
            part.nothing_else()


def _task(given: _Table, step: str) -> Task:
    check = given.one_of("check", tuple(CHECKS))
    answer = given.one_of("answer", ANSWERS)
    if answer not in CHECKS[check].answers:
        raise given.fault("answer", f"is {answer!r}: {check} takes {' or '.join(CHECKS[check].answers)}")
    needed = None if step in ("do", "yours") else ""  # of a prediction nothing is said before the reveal
    options: tuple[Option, ...] = ()
    least = most = 0.0
    if answer == "choice":
        options = tuple(
            Option(one.number("least"), one.number("most"), one.text("label")) for one in given.tables("options")
        )
    if answer == "number":
        least, most = given.number("least"), given.number("most")
        if not least < most:
            raise given.fault("most", f"is {most:g}: more than least, {least:g}")
    return Task(
        given.view(), given.text("says"), answer, check,
        given.sentence("right", check, first=needed), given.sentence("wrong", check, first=needed),
        given.text("hint", first=""), options, least, most, given.text("unit", first=""),
    )  # fmt: skip


def _reveal(given: _Table, check: str) -> Reveal:
    bars = given.texts("bars")
    if set(bars) != set(CHECKS[check].bars):
        raise given.fault("bars", f"names {', '.join(bars) or 'nothing'}: {', '.join(CHECKS[check].bars) or 'nothing'}")
    form = given.text("form")
    if not form or not _FORM.fullmatch(form):
        raise given.fault("form", f"is {form[:60]!r}: such as .2f, .0f, .0%")
    right, wrong, otherwise = (given.sentence(key, check) for key in ("right", "wrong", "otherwise"))
    return Reveal(given.view(), right, wrong, otherwise, given.text("title"), bars, form)

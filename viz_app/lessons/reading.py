"""Lessons from their files; every fault is said in one sentence with the file, the key and what may be.

Beside those that come along there may be a folder of a teacher's own, which is looked at again whenever it changes.
What a lesson says in another language stands in a file of the same name, in a folder called after the language: only
its words, under the keys that they have in the lesson.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple, TypeVar

from bert_core.refused import Refused
from viz_app.lessons import ANSWERS, ENGLISH, LANGUAGES, Lesson, Option, Reveal, Task, View, Way
from viz_app.lessons.checks import CHECKS
from viz_app.moved_pages import MOVED_PAGES

FOLDER = Path(__file__).parent
COURSES = (1, 2, 3)
OWN_COURSE = 4  # of the lessons in a teacher's own folder, whatever their files say
OWN_LESSONS = "HEADLIGHT_LESSONS"  # that folder, named at start
LONGEST = 2_000  # signs of a text
LARGEST = 1 << 20  # bytes of a file
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # of a lesson, which stands in addresses
_KINDS = {str: "a text", int: "a whole number", float: "a number", dict: "a table", list: "a list"}
_Labelled = TypeVar("_Labelled", Option, Way)
_FORM = re.compile(r"[+,]?(\.\d)?[fg%]?")


class Fault(NamedTuple):
    """Something wrong in a file of a lesson: the line, 0 where there is none, and what is wrong, in a sentence."""

    line: int
    says: str


@cache
def _bundled(language: str) -> tuple[Lesson, ...]:
    found = tuple(read(file.read_text("utf-8"), file.stem) for file in FOLDER.glob("*.toml"))
    return found if language == ENGLISH else tuple(_bundled_words(lesson, language) for lesson in found)


def _bundled_words(lesson: Lesson, language: str) -> Lesson:
    said, faults = judged_words(lesson, FOLDER / language / f"{lesson.name}.toml")
    if said is None:
        raise Refused(faults[0].says)
    return said


def lessons(language: str = ENGLISH) -> tuple[Lesson, ...]:
    """All lessons that have no fault, in the order of their courses; those of a teacher's own folder last.

    language: one of `LANGUAGES`; a teacher's lesson that has no words in it stays as it is.
    """
    own = [lesson for _, lesson, _ in _own(language) if lesson is not None]
    return tuple(sorted([*_bundled(language), *own], key=lambda lesson: (lesson.course, lesson.number, lesson.name)))


def faulty(language: str = ENGLISH) -> list[str]:
    """What is wrong with the files of a teacher's own folder, a sentence for each that has faults.

    language: one of `LANGUAGES`, whose words are looked at too.
    """
    return [faults[0].says for _, _, faults in _own(language) if faults]


def lesson_of(name: str, language: str = ENGLISH) -> Lesson:
    """The lesson of this name, in one of `LANGUAGES`. Raises Refused for a name that none has."""
    for lesson in lessons(language):
        if lesson.name == name:
            return lesson
    raise Refused(f"one of the lessons {', '.join(lesson.name for lesson in lessons())}")


def _own(language: str) -> Iterator[tuple[Path, Lesson | None, list[Fault]]]:
    """The files of the teacher's own folder, each with its lesson, and with the faults of it and of its words."""
    if not (folder := os.environ.get(OWN_LESSONS)):
        return
    for file in sorted(Path(folder).glob("*.toml")):
        looked_at = [file, *(words for tag, words in words_of(file) if tag == language)]
        try:
            abouts = [one.stat() for one in looked_at]
        except OSError:  # it has just been taken away
            continue
        changed = tuple((about.st_mtime_ns, about.st_size) for about in abouts)
        yield file, *_of_files(tuple(looked_at), changed)


@lru_cache(maxsize=512)
def _of_files(files: tuple[Path, ...], changed: tuple[tuple[int, int], ...]) -> tuple[Lesson | None, list[Fault]]:
    """A lesson, or the faults of its file, as it was when it was changed last.

    files: the lesson's, and perhaps that of its words in another language; where these have faults, it goes without.
    """
    file, *words = files
    lesson, faults = judged(file)
    if lesson is None:
        return None, faults
    if any(lesson.name == one.name for one in _bundled(ENGLISH)):
        return None, [Fault(0, f"{file.name}: a lesson of this name comes along: rename the file")]
    for one in words:
        said, faults = judged_words(lesson, one)
        lesson = said or lesson
    return replace(lesson, course=OWN_COURSE), faults


def words_of(file: Path) -> list[tuple[str, Path]]:
    """The languages that a lesson's file has words in, each with their file."""
    found = ((tag, file.parent / tag / file.name) for tag in LANGUAGES if tag != ENGLISH)
    return [(tag, words) for tag, words in found if words.exists()]


def judged(file: Path) -> tuple[Lesson | None, list[Fault]]:
    """The lesson of a file, or None and all its faults."""
    if not NAME.fullmatch(file.stem):
        says = "a small letter first, then small letters, figures and _, 40 signs at most"
        return None, [Fault(0, f"{file.name}: the name of a lesson has {says}")]
    text = _text_of(file, file.name)
    return (None, [text]) if isinstance(text, Fault) else _read(text, file.stem)


def judged_words(lesson: Lesson, file: Path) -> tuple[Lesson | None, list[Fault]]:
    """A lesson with the words of a file, or None and all faults of the file."""
    name = f"{file.parent.name}/{file.name}"
    text = _text_of(file, name)
    return (None, [text]) if isinstance(text, Fault) else _translated(lesson, text, name)


def _text_of(file: Path, name: str) -> str | Fault:
    """The text of a file, or why it has none. name: of the file, for that sentence."""
    try:
        if (size := file.stat().st_size) > LARGEST:
            return Fault(0, f"{name} has {size:,} bytes: at most {LARGEST:,}")
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        return Fault(0, f"{name} is no text in UTF-8: save it as such")
    except OSError as error:
        return Fault(0, f"{name} cannot be read: {error.strerror}")


def read(text: str, name: str) -> Lesson:
    """The lesson that the text of a file holds. Raises Refused for the first fault in it.

    name: of the file, without its ending.
    """
    lesson, faults = _read(text, name)
    if lesson is None:
        raise Refused(faults[0].says)
    return lesson


def _parsed(text: str, file: str) -> dict[str, Any] | Fault:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        return Fault(int(at[1]) if at else 0, f"{file} is no TOML file: {error}")
    except RecursionError:
        return Fault(0, f"{file} is no TOML file that can be read: tables stand too deep in each other")


def _read(text: str, name: str) -> tuple[Lesson | None, list[Fault]]:
    file = f"{name}.toml"
    given = _parsed(text, file)
    if isinstance(given, Fault):
        return None, [given]
    top = _Table(file, "", given, [])
    link = top.text("link")
    if link and not link.startswith("https://"):
        top.fault("link", f"is {link[:60]!r}: an address that begins with https://")
    predict, do, yours = (_task(top.table(step), step) for step in ("predict", "do", "yours"))
    if predict.answer == "page":
        top.fault("predict.answer", "is 'page': a prediction is given in the panel")
    if not predict.view.address:
        top.fault("predict.address", "is missing: a lesson begins with a text of its own")
    lesson = Lesson(
        name, top.text("title"), top.text("question"), top.whole("course", COURSES[0], COURSES[-1]),
        top.whole("number", 1, 99), top.whole("minutes", 1, 60), top.text("source"), link,
        predict, do, _reveal(top.table("reveal"), predict.check), yours,
        tuple(Way(one.text("label"), one.view()) for one in top.tables("free")),
    )  # fmt: skip
    faults = _faults(top, text, file)
    return (None, faults) if faults else (lesson, [])


def _translated(lesson: Lesson, text: str, file: str) -> tuple[Lesson | None, list[Fault]]:
    given = _parsed(text, file)
    if isinstance(given, Fault):
        return None, [given]
    top = _Table(file, "", given, [])
    shown, old = top.table("reveal"), lesson.reveal
    right, wrong, otherwise = (shown.sentence(key, lesson.predict.check) for key in ("right", "wrong", "otherwise"))
    bars = old.bars and shown.texts("bars")
    if set(bars) != set(old.bars):
        shown.fault("bars", f"names {', '.join(bars) or 'nothing'}: {', '.join(old.bars)}")
    said = replace(
        lesson, title=top.text("title"), question=top.text("question"),
        predict=_task_said(lesson.predict, top.table("predict")), do=_task_said(lesson.do, top.table("do")),
        reveal=replace(old, right=right, wrong=wrong, otherwise=otherwise, title=shown.text("title"), bars=bars),
        yours=_task_said(lesson.yours, top.table("yours")),
        free=tuple(replace(way, label=label) for way, label in _labelled(top, "free", lesson.free)),
    )  # fmt: skip
    faults = _faults(top, text, file)
    return (None, faults) if faults else (said, [])


def _faults(top: _Table, text: str, file: str) -> list[Fault]:
    """All faults of a file once everything was asked of it, in the order of their lines."""
    top.nothing_else()
    return sorted(Fault(line_of(text, key), f"{file}: {key} {says}") for key, says in top.faults)


def line_of(text: str, key: str) -> int:
    """The line of a file in which a key stands, as `do.check` or `free[1].label`; else that of its table; else 0."""
    *tables, last = re.sub(r"\[(\d+)\]", r".\1", key).split(".")
    seen: dict[str, int] = {}
    now: list[str] = []
    found = 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.]+)\s*\]", line):
            now = header[2].split(".")
            if header[1] == "[[":
                seen[header[2]] = seen.get(header[2], -1) + 1
                now.append(str(seen[header[2]]))
            if now in (tables, [*tables, last]):
                found = number
        elif now == tables and re.match(rf"\s*{re.escape(last)}\s*=", line):
            return number
        elif now == tables[:-1] and tables and re.match(rf"\s*{re.escape(tables[-1])}\s*=", line):
            found = number
    return found


class _Table:
    """A table of a file; what is missing, of the wrong kind or not known is noted, and something empty stands for it.

    faults: shared by all tables of a file: the key, and what is wrong, as the end of a sentence that begins with it.
    """

    def __init__(self, file: str, at: str, given: Mapping[str, Any], faults: list[tuple[str, str]]) -> None:
        self._file, self._at, self._given, self.faults = file, at, given, faults
        self._parts: list[_Table] = []
        self._asked: set[str] = set()

    def fault(self, key: str, says: str) -> None:
        self.faults.append((f"{self._at}{key}", says))

    def value(self, key: str, kind: type, *, first: Any = None) -> Any:
        """What stands under a key, if it is of this kind; None where it is not."""
        self._asked.add(key)
        if key not in self._given:
            if first is None:
                self.fault(key, f"is missing: {_KINDS[kind]}")
            return first
        value = self._given[key]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            self.fault(key, f"is {str(value)[:60]!r}: {_KINDS[kind]} is needed")
            return None
        return value

    def text(self, key: str, *, first: str | None = None) -> str:
        value = self.value(key, str, first=first)
        if value is None:
            return ""
        text: str = value.strip()
        if first is None and not text:
            self.fault(key, "is empty: a text is needed")
        if len(text) > LONGEST:
            self.fault(key, f"has {len(text):,} signs: at most {LONGEST:,}")
        return text

    def sentence(self, key: str, check: str, *, first: str | None = None) -> str:
        """A text in which figures of a check are named in braces, as {drop} or {drop:.2f}."""
        text = self.text(key, first=first)
        try:
            fields = list(Formatter().parse(text))
        except ValueError as error:
            self.fault(key, f"has braces that do not fit: {error}")
            return ""
        if check not in CHECKS:  # which is said already
            return text
        asked = CHECKS[check]
        for _, name, form, conversion in fields:
            if name is None:
                continue
            if name not in (*asked.words, *asked.numbers):
                self.fault(key, f"names {{{name[:40]}}}: {check} gives {', '.join((*asked.words, *asked.numbers))}")
            elif name in asked.words and (form or conversion):
                self.fault(key, f"writes the word {name} as {form or conversion!r}: it is written as {{{name}}}")
            elif name in asked.numbers and (conversion or not form or not _FORM.fullmatch(form)):
                self.fault(key, f"writes the number {name} as {form or conversion or ''!r}: such as .2f, .0f, .0%")
        return text

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        word = self.text(key)
        if word and word not in allowed:
            self.fault(key, f"is {word[:60]!r}: one of {', '.join(allowed)}")
        return word

    def whole(self, key: str, least: int, most: int) -> int:
        number = self.value(key, int)
        if number is None:
            return least
        if not least <= number <= most:
            self.fault(key, f"is {number}: {least} to {most}")
        return int(number)

    def number(self, key: str) -> float | None:
        number: float | None = self.value(key, float)
        return number

    def texts(self, key: str) -> dict[str, str]:
        """A table of texts; nothing where it is not given."""
        found = self.value(key, dict, first={}) or {}
        for name, text in found.items():
            if type(text) is not str:
                self.fault(f"{key}.{name}", f"is {str(text)[:60]!r}: a text is needed")
        return {name: text for name, text in found.items() if type(text) is str}

    def table(self, key: str) -> _Table:
        given = self.value(key, dict)
        # Of a table that is not there, it is said once.
        part = _Table(self._file, f"{self._at}{key}.", given or {}, self.faults if given is not None else [])
        self._parts.append(part)
        return part

    def tables(self, key: str) -> list[_Table]:
        found = self.value(key, list)
        if found is None:
            return []
        if not found or any(type(one) is not dict for one in found):
            self.fault(key, f"is no list of tables: write [[{self._at}{key}]] over each")
            return []
        parts = [
            _Table(self._file, f"{self._at}{key}[{number}].", one, self.faults) for number, one in enumerate(found)
        ]
        self._parts += parts
        return parts

    def view(self) -> View:
        page = self.text("page")
        return View(MOVED_PAGES.get(page, page), self.texts("address"))

    def nothing_else(self) -> None:
        """Note each key that nobody asked for, here or below."""
        for key in self._given:
            if key not in self._asked:
                self.fault(key, f"is not known: {', '.join(sorted(self._asked))}")
        for part in self._parts:
            part.nothing_else()


def _task(given: _Table, step: str) -> Task:
    check = given.one_of("check", tuple(CHECKS))
    answer = given.one_of("answer", ANSWERS)
    if check in CHECKS and answer in ANSWERS and answer not in CHECKS[check].answers:
        given.fault("answer", f"is {answer!r}: {check} takes {' or '.join(CHECKS[check].answers)}")
    needed = None if step in ("do", "yours") else ""  # of a prediction nothing is said before the reveal
    options: tuple[Option, ...] = ()
    least = most = 0.0
    if answer == "choice":
        options = tuple(
            Option(one.number("least") or 0.0, one.number("most") or 0.0, one.text("label"))
            for one in given.tables("options")
        )
    if answer == "number":
        low, high = given.number("least"), given.number("most")
        least, most = low or 0.0, high or 0.0
        if low is not None and high is not None and not low < high:
            given.fault("most", f"is {high:g}: more than least, {low:g}")
    return Task(
        given.view(), given.text("says"), answer, check,
        given.sentence("right", check, first=needed), given.sentence("wrong", check, first=needed),
        given.text("hint", first=""), options, least, most, given.text("unit", first=""),
    )  # fmt: skip


def _task_said(task: Task, given: _Table) -> Task:
    """A task with its words in another language; what it does not say in English, it says in none."""
    return replace(
        task, says=given.text("says"),
        right=task.right and given.sentence("right", task.check),
        wrong=task.wrong and given.sentence("wrong", task.check),
        hint=task.hint and given.text("hint"), unit=task.unit and given.text("unit"),
        options=tuple(replace(one, label=label) for one, label in _labelled(given, "options", task.options)),
    )  # fmt: skip


def _labelled(given: _Table, key: str, old: tuple[_Labelled, ...]) -> list[tuple[_Labelled, str]]:
    """Each of some things with what it is called in another language."""
    if not old:
        return []
    labels = [one.text("label") for one in given.tables(key)]
    if labels and len(labels) != len(old):
        given.fault(key, f"has {len(labels)} tables: {len(old)} are needed")
    return list(zip(old, labels, strict=False))


def _reveal(given: _Table, check: str) -> Reveal:
    bars, wanted = given.texts("bars"), CHECKS[check].bars if check in CHECKS else None
    if wanted is not None and set(bars) != set(wanted):
        given.fault("bars", f"names {', '.join(bars) or 'nothing'}: {', '.join(wanted) or 'nothing'}")
    form = given.text("form")
    if form and not _FORM.fullmatch(form):
        given.fault("form", f"is {form[:60]!r}: such as .2f, .0f, .0%")
    right, wrong, otherwise = (given.sentence(key, check) for key in ("right", "wrong", "otherwise"))
    return Reveal(given.view(), right, wrong, otherwise, given.text("title"), bars, form)

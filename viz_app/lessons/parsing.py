"""Parse the TOML files of lessons. Every fault is one sentence with the file, the key and what is allowed.

Besides the bundled lessons, a folder of a teacher can contain further ones; changed files are read again. The
translation of a lesson is a file of the same name in a folder named by the tag of the language, with the translated
texts under the keys of the lesson.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple, TypeVar

from bert_core.refused import Refused
from viz_app.lessons import ANSWERS, Lesson, Option, PageLink, Reveal, Task, View
from viz_app.lessons.checks import CHECKS
from viz_app.moved_pages import moved_address
from viz_app.texts import ENGLISH, LANGUAGES

FOLDER = Path(__file__).parent
COURSES = (1, 2, 3)
OWN_COURSE = 4  # of the lessons in the folder of a teacher, whatever their files state
OWN_LESSONS = "HEADLIGHT_LESSONS"  # environment variable with the path of that folder
MAX_TEXT_LENGTH = 2_000  # characters
MAX_FILE_BYTES = 1 << 20
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # of a lesson, which is part of addresses
_KINDS = {str: "a text", int: "a whole number", float: "a number", dict: "a table", list: "a list"}
_Labelled = TypeVar("_Labelled", Option, PageLink)
_FORM = re.compile(r"[+,]?(\.\d)?[fg%]?")


class Fault(NamedTuple):
    """A fault in the file of a lesson: its line, 0 if it has none, and a sentence."""

    line: int
    message: str


Parsed = tuple[Lesson | None, list[Fault]]


@cache
def _bundled(language: str) -> tuple[Lesson, ...]:
    originals = (parse_lesson(file.read_text("utf-8"), file.stem) for file in FOLDER.glob("*.toml"))
    if language == ENGLISH:
        return tuple(originals)
    return tuple(
        _require_lesson(parse_translation(lesson, FOLDER / language / f"{lesson.name}.toml")) for lesson in originals
    )


def _require_lesson(parsed: Parsed) -> Lesson:
    """Return the lesson. Raises Refused for the first fault."""
    lesson, faults = parsed
    if lesson is None:
        raise Refused(faults[0].message)
    return lesson


def lessons(language: str = ENGLISH) -> tuple[Lesson, ...]:
    """Return all lessons without faults, in the order of their courses; those of the folder of a teacher are last.

    language: one of `LANGUAGES`; a lesson of a teacher without a translation remains untranslated.
    """
    own_lessons = [lesson for lesson, _ in _own_lessons(language) if lesson is not None]
    return tuple(
        sorted([*_bundled(language), *own_lessons], key=lambda lesson: (lesson.course, lesson.number, lesson.name))
    )


def folder_faults(language: str = ENGLISH) -> list[str]:
    """Return the first fault of each faulty file in the folder of a teacher, including the translations."""
    return [faults[0].message for _, faults in _own_lessons(language) if faults]


def lesson_of(name: str, language: str = ENGLISH) -> Lesson:
    """Return the lesson of this name in one of `LANGUAGES`. Raises Refused for an unknown name."""
    for lesson in lessons(language):
        if lesson.name == name:
            return lesson
    raise Refused(f"one of the lessons {', '.join(lesson.name for lesson in lessons())}")


def _own_lessons(language: str) -> Iterator[Parsed]:
    """Yield the lesson and the faults of each file in the folder of a teacher."""
    if not (folder := os.environ.get(OWN_LESSONS)):
        return
    for file in sorted(Path(folder).glob("*.toml")):
        files = (file, *(translation for tag, translation in translation_files(file) if tag == language))
        try:
            stats = [path.stat() for path in files]
        except OSError:  # it has just been deleted
            continue
        yield _parse_own(files, tuple((stat.st_mtime_ns, stat.st_size) for stat in stats))


@lru_cache(maxsize=512)
def _parse_own(files: tuple[Path, ...], versions: tuple[tuple[int, int], ...]) -> Parsed:
    """Return a lesson or its faults. files: the lesson and at most one translation, ignored if it has faults.

    versions: time of modification and size of each file, as part of the key of the cache.
    """
    file, *translations = files
    lesson, faults = parse_file(file)
    if lesson is None:
        return None, faults
    if any(lesson.name == bundled.name for bundled in _bundled(ENGLISH)):
        return None, [Fault(0, f"{file.name}: a lesson of this name comes along: rename the file")]
    for path in translations:
        translated, faults = parse_translation(lesson, path)
        lesson = translated or lesson
    return replace(lesson, course=OWN_COURSE), faults


def translation_files(file: Path) -> list[tuple[str, Path]]:
    """Return the tag and the path of each translation of the file of a lesson."""
    paths = ((tag, file.parent / tag / file.name) for tag in LANGUAGES if tag != ENGLISH)
    return [(tag, path) for tag, path in paths if path.exists()]


def parse_file(file: Path) -> Parsed:
    """Return the lesson of a file, or None and all its faults."""
    if not NAME.fullmatch(file.stem):
        rule = "a small letter first, then small letters, figures and _, 40 characters at most"
        return None, [Fault(0, f"{file.name}: the name of a lesson has {rule}")]
    return _parse(_read_text(file, file.name), file.name, partial(_make_lesson, file.stem))


def parse_translation(lesson: Lesson, file: Path) -> Parsed:
    """Return a lesson with the texts of a translation, or None and all faults of the translation."""
    name = f"{file.parent.name}/{file.name}"
    return _parse(_read_text(file, name), name, partial(_translate, lesson))


def _read_text(file: Path, name: str) -> str | Fault:
    """Return the text of a file, or why it cannot be read. name: of the file, for the sentence."""
    try:
        if (size := file.stat().st_size) > MAX_FILE_BYTES:
            return Fault(0, f"{name} has {size:,} bytes: at most {MAX_FILE_BYTES:,}")
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        return Fault(0, f"{name} is no text in UTF-8: save it as such")
    except OSError as error:
        return Fault(0, f"{name} cannot be read: {error.strerror}")


def parse_lesson(text: str, name: str) -> Lesson:
    """Return the lesson in the text of a file. Raises Refused for its first fault.

    name: of the file, without its extension.
    """
    return _require_lesson(_parse(text, f"{name}.toml", partial(_make_lesson, name)))


def _parse(text: str | Fault, file: str, make: Callable[[_Table], Lesson]) -> Parsed:
    """Return the lesson that `make` makes of the text of a file, or None and all its faults, by their lines."""
    if isinstance(text, Fault):
        return None, [text]
    top = _parse_toml(text, file)
    if isinstance(top, Fault):
        return None, [top]
    lesson = make(top)
    top.check_keys()
    faults = sorted(Fault(line_of(text, key), f"{file}: {key} {message}") for key, message in top.faults)
    return (None, faults) if faults else (lesson, [])


def _parse_toml(text: str, file: str) -> _Table | Fault:
    try:
        return _Table("", tomllib.loads(text), [])
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        return Fault(int(line[1]) if line else 0, f"{file} is no TOML file: {error}")
    except RecursionError:
        return Fault(0, f"{file} is no TOML file that can be read: tables stand too deep in each other")


def _make_lesson(name: str, top: _Table) -> Lesson:
    link = top.text("link")
    if link and not link.startswith("https://"):
        top.fault("link", f"is {link[:60]!r}: an address that begins with https://")
    predict, exercise, own_sentence = (_parse_task(top.table(step), step) for step in ("predict", "do", "yours"))
    if predict.answer == "page":
        top.fault("predict.answer", "is 'page': a prediction is given in the panel")
    if not predict.view.address:
        top.fault("predict.address", "is missing: a lesson begins with a text of its own")
    return Lesson(
        name,
        title=top.text("title"),
        question=top.text("question"),
        course=top.whole("course", COURSES[0], COURSES[-1]),
        number=top.whole("number", 1, 99),
        minutes=top.whole("minutes", 1, 60),
        source=top.text("source"),
        link=link,
        predict=predict,
        exercise=exercise,
        reveal=_parse_reveal(top.table("reveal"), predict.check),
        own_sentence=own_sentence,
        free=tuple(PageLink(table.text("label"), table.view()) for table in top.tables("free")),
    )


def _translate(lesson: Lesson, top: _Table) -> Lesson:
    table, original = top.table("reveal"), lesson.reveal
    right, wrong, claim_fails = _reveal_sentences(table, lesson.predict.check)
    bars = original.bars and table.texts("bars")
    if set(bars) != set(original.bars):
        table.fault("bars", f"names {', '.join(bars) or 'nothing'}: {', '.join(original.bars)}")
    reveal = replace(original, right=right, wrong=wrong, claim_fails=claim_fails, title=table.text("title"), bars=bars)
    return replace(
        lesson,
        title=top.text("title"),
        question=top.text("question"),
        predict=_translate_task(lesson.predict, top.table("predict")),
        exercise=_translate_task(lesson.exercise, top.table("do")),
        reveal=reveal,
        own_sentence=_translate_task(lesson.own_sentence, top.table("yours")),
        free=_translate_labels(top, "free", lesson.free),
    )


def line_of(text: str, key: str) -> int:
    """Return the line of a key such as `do.check` or `free[1].label`, or of its table, or 0."""
    *tables, name = re.sub(r"\[(\d+)\]", r".\1", key).split(".")
    indices: dict[str, int] = {}
    current: list[str] = []
    table_line = 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.]+)\s*\]", line):
            current = header[2].split(".")
            if header[1] == "[[":
                indices[header[2]] = indices.get(header[2], -1) + 1
                current.append(str(indices[header[2]]))
            if current in (tables, [*tables, name]):
                table_line = number
        elif current == tables and re.match(rf"\s*{re.escape(name)}\s*=", line):
            return number
        elif current == tables[:-1] and tables and re.match(rf"\s*{re.escape(tables[-1])}\s*=", line):
            table_line = number
    return table_line


class _Table:
    """A table of a file that records missing keys, wrong types and unknown keys, and returns empty values for them.

    prefix: path of the table, as the start of its keys. faults: shared by all tables of a file: pairs of a key and the
    end of a sentence that begins with it.
    """

    def __init__(self, prefix: str, values: Mapping[str, Any], faults: list[tuple[str, str]]) -> None:
        self._prefix, self._values, self.faults = prefix, values, faults
        self._parts: list[_Table] = []
        self._read_keys: set[str] = set()

    def fault(self, key: str, message: str) -> None:
        """Record a fault of a key."""
        self.faults.append((f"{self._prefix}{key}", message))

    def value(self, key: str, kind: type, *, default: Any = None) -> Any:
        """Return the value of a key, or None if it has another type."""
        self._read_keys.add(key)
        if key not in self._values:
            if default is None:
                self.fault(key, f"is missing: {_KINDS[kind]}")
            return default
        value = self._values[key]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            self.fault(key, f"is {str(value)[:60]!r}: {_KINDS[kind]} is needed")
            return None
        return value

    def text(self, key: str, *, default: str | None = None) -> str:
        """Return a text without surrounding whitespace."""
        value = self.value(key, str, default=default)
        if value is None:
            return ""
        text: str = value.strip()
        if default is None and not text:
            self.fault(key, "is empty: a text is needed")
        if len(text) > MAX_TEXT_LENGTH:
            self.fault(key, f"has {len(text):,} signs: at most {MAX_TEXT_LENGTH:,}")
        return text

    def sentence(self, key: str, check: str, *, default: str | None = None) -> str:
        """Return a text that can contain figures of a check in braces, as {drop} or {drop:.2f}."""
        text = self.text(key, default=default)
        try:
            fields = list(Formatter().parse(text))
        except ValueError as error:
            self.fault(key, f"has braces that do not fit: {error}")
            return ""
        if check not in CHECKS:  # a fault of its own
            return text
        words, numbers = CHECKS[check].words, CHECKS[check].numbers
        for _, name, form, conversion in fields:
            if name is None:
                continue
            if name not in (*words, *numbers):
                self.fault(key, f"names {{{name[:40]}}}: {check} gives {', '.join((*words, *numbers))}")
            elif name in words and (form or conversion):
                self.fault(key, f"writes the word {name} as {form or conversion!r}: it is written as {{{name}}}")
            elif name in numbers and (conversion or not form or not _FORM.fullmatch(form)):
                self.fault(key, f"writes the number {name} as {form or conversion or ''!r}: such as .2f, .0f, .0%")
        return text

    def allowed_text(self, key: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed texts."""
        word = self.text(key)
        if word and word not in allowed:
            self.fault(key, f"is {word[:60]!r}: one of {', '.join(allowed)}")
        return word

    def whole(self, key: str, minimum: int, maximum: int) -> int:
        """Return a whole number within bounds."""
        number = self.value(key, int)
        if number is None:
            return minimum
        if not minimum <= number <= maximum:
            self.fault(key, f"is {number}: {minimum} to {maximum}")
        return int(number)

    def texts(self, key: str) -> dict[str, str]:
        """Return a table of texts, empty if it is missing."""
        table = self.value(key, dict, default={}) or {}
        for name, text in table.items():
            if type(text) is not str:
                self.fault(f"{key}.{name}", f"is {str(text)[:60]!r}: a text is needed")
        return {name: text for name, text in table.items() if type(text) is str}

    def table(self, key: str) -> _Table:
        """Return a table of this table."""
        values = self.value(key, dict)
        # A missing table is one fault, not one for each of its keys.
        return self._add_part(f"{key}.", values or {}, self.faults if values is not None else [])

    def tables(self, key: str) -> list[_Table]:
        """Return a list of tables."""
        entries = self.value(key, list)
        if entries is None:
            return []
        if not entries or any(type(entry) is not dict for entry in entries):
            self.fault(key, f"is no list of tables: write [[{self._prefix}{key}]] over each")
            return []
        return [self._add_part(f"{key}[{number}].", entry, self.faults) for number, entry in enumerate(entries)]

    def _add_part(self, prefix: str, values: Mapping[str, Any], faults: list[tuple[str, str]]) -> _Table:
        part = _Table(f"{self._prefix}{prefix}", values, faults)
        self._parts.append(part)
        return part

    def view(self) -> View:
        """Return the view in the keys `page` and `address`."""
        return View(*moved_address(self.text("page"), self.texts("address")))

    def check_keys(self) -> None:
        """Record each key of this table and its parts that was not read."""
        for key in self._values:
            if key not in self._read_keys:
                self.fault(key, f"is not known: {', '.join(sorted(self._read_keys))}")
        for part in self._parts:
            part.check_keys()


def _parse_task(table: _Table, step: str) -> Task:
    check = table.allowed_text("check", tuple(CHECKS))
    answer = table.allowed_text("answer", ANSWERS)
    if check in CHECKS and answer in ANSWERS and answer not in CHECKS[check].answers:
        table.fault("answer", f"is {answer!r}: {check} takes {' or '.join(CHECKS[check].answers)}")
    default = None if step in ("do", "yours") else ""  # the verdict on a prediction is part of the reveal
    options: tuple[Option, ...] = ()
    minimum = maximum = 0.0
    if answer == "choice":
        options = tuple(
            Option(entry.value("least", float) or 0.0, entry.value("most", float) or 0.0, entry.text("label"))
            for entry in table.tables("options")
        )
    if answer == "number":
        low, high = (table.value(key, float) for key in ("least", "most"))
        minimum, maximum = low or 0.0, high or 0.0
        if low is not None and high is not None and not low < high:
            table.fault("most", f"is {high:g}: more than least, {low:g}")
    view, text = table.view(), table.text("says")
    right, wrong = (table.sentence(key, check, default=default) for key in ("right", "wrong"))
    hint, unit = (table.text(key, default="") for key in ("hint", "unit"))
    items = CHECKS[check].items if check in CHECKS else ()
    return Task(view, text, answer, check, right, wrong, hint, options, minimum, maximum, unit, items)


def _translate_task(task: Task, table: _Table) -> Task:
    """Return a task with translated texts; texts that the original lacks are not read."""
    return replace(
        task,
        text=table.text("says"),
        right=task.right and table.sentence("right", task.check),
        wrong=task.wrong and table.sentence("wrong", task.check),
        hint=task.hint and table.text("hint"),
        unit=task.unit and table.text("unit"),
        options=_translate_labels(table, "options", task.options),
    )


def _translate_labels(table: _Table, key: str, originals: tuple[_Labelled, ...]) -> tuple[_Labelled, ...]:
    """Return options or links with translated labels."""
    if not originals:
        return ()
    labels = [entry.text("label") for entry in table.tables(key)]
    if labels and len(labels) != len(originals):
        table.fault(key, f"has {len(labels)} tables: {len(originals)} are needed")
    return tuple(replace(original, label=label) for original, label in zip(originals, labels, strict=False))


def _reveal_sentences(table: _Table, check: str) -> tuple[str, str, str]:
    return table.sentence("right", check), table.sentence("wrong", check), table.sentence("otherwise", check)


def _parse_reveal(table: _Table, check: str) -> Reveal:
    bars, names = table.texts("bars"), CHECKS[check].bars if check in CHECKS else None
    if names is not None and set(bars) != set(names):
        table.fault("bars", f"names {', '.join(bars) or 'nothing'}: {', '.join(names) or 'nothing'}")
    form = table.text("form")
    if form and not _FORM.fullmatch(form):
        table.fault("form", f"is {form[:60]!r}: such as .2f, .0f, .0%")
    return Reveal(table.view(), *_reveal_sentences(table, check), table.text("title"), bars, form)

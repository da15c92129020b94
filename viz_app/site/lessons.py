"""The lessons of the browser edition: those that need no more than its pages, and what it needs of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from bert_core.loading import LoadedModel
from bert_core.progress import ignore_progress
from bert_core.refused import Refused
from viz_app.lessons import STEPS, Lesson, View
from viz_app.lessons.checks import CHECKS, third_course
from viz_app.lessons.checks.context import MAX_TOKENS, check_length
from viz_app.lessons.parsing import lesson_of
from viz_app.shell.lesson_records import prediction_context
from viz_app.shell.selection import parse_words
from viz_app.texts import LANGUAGES

# The attribution methods of the page Attribution.
METHODS = ("gradient x attention", "input x gradient", "integrated gradients", "occlusion")
ALL_VALUES: tuple[str, ...] = ()  # instead of the values of a parameter
# The values of each parameter that the browser edition has, of all pages and of single ones.
COMMON_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "pair", "masked", "target", "contrast", "off", "head", "edge", "tokens"), ALL_VALUES),
    "words": ALL_VALUES,  # it shows tokens in either case
}
PAGE_PARAMETERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "predict": {},
    "attention": {
        "view": ("heads", "curves", "matrix"),
        "show": ("attention", "gradient", "product"),
        "kept_share": ALL_VALUES,
    },
    "heads": {},
    "why": {"method": METHODS},
}
# The values that the app shows without the parameter, where the browser edition does not have them.
APP_DEFAULTS = {"why": {"method": "DecompX"}}
# The checks that lesson_checks.js has.
SITE_CHECKS = frozenset(
    {
        *("largest_drop", "guess_changes", "swapped_pair", "doubted_pair", "guesses_that_stay", "says_not"),
        *("she_first", "she_is_likelier", "another_frame"),
    }
)


class LeftOut(NamedTuple):
    """A lesson that the browser edition does not have, and why: one sentence."""

    name: str
    reason: str


class StoredView(NamedTuple):
    """A text whose run is stored, its second text, and the numbers of its masked words in order."""

    text: str
    pair: str = ""
    masked: tuple[int, ...] = ()


def select_lessons(lessons: Iterable[Lesson]) -> tuple[list[Lesson], list[LeftOut]]:
    """Return the lessons that the browser edition has, and those that it leaves out.

    The links at the end of a lesson are those that it can open.
    """
    selected, left_out = [], []
    for lesson in lessons:
        if reason := next(_missing(lesson), ""):
            left_out.append(LeftOut(lesson.name, reason))
        else:
            selected.append(_with_possible_links(lesson))
    return selected, left_out


def _missing(lesson: Lesson) -> Iterator[str]:
    """Yield a sentence for each part of a lesson that the browser edition does not have."""
    for step in STEPS[:-1]:
        if missing := _missing_in_view(lesson.view(step)):
            yield f"The step “{step}” needs {missing}."
    for task in (lesson.predict, lesson.exercise, lesson.own_sentence):
        if task.check not in SITE_CHECKS:
            yield f"The check “{task.check}” needs the app."


def _missing_in_view(view: View) -> str:
    """Return what the browser edition lacks for a view, or ""; a view without an address leaves the choices as is."""
    if view.page not in PAGE_PARAMETERS:
        return f"the page “{view.page}”"
    if not view.address:
        return ""
    if "text" not in view.address:
        return "a text in its address"
    parameters = {**COMMON_PARAMETERS, **PAGE_PARAMETERS[view.page]}
    for name, value in {**APP_DEFAULTS.get(view.page, {}), **view.address}.items():
        if name not in parameters:
            return f"the parameter “{name}” of the page “{view.page}”"
        if parameters[name] and value not in parameters[name]:
            return f"{name}={value} on the page “{view.page}”"
    return ""


def _with_possible_links(lesson: Lesson) -> Lesson:
    return replace(lesson, free=tuple(link for link in lesson.free if not _missing_in_view(link.view)))


def stored_views(lessons: Iterable[Lesson]) -> list[StoredView]:
    """Return the texts that the steps and the links of lessons open, each once, in their order.

    Raises Refused for words that are no numbers.
    """
    views = [
        view
        for lesson in lessons
        for view in (*(lesson.view(step) for step in STEPS[:-1]), *(link.view for link in lesson.free))
    ]
    addresses = [view.address for view in views if view.address]
    return list(dict.fromkeys(map(_stored_view, addresses)))


def _stored_view(address: Mapping[str, str]) -> StoredView:
    return StoredView(address["text"], address.get("pair", ""), parse_words(address.get("masked", "")))


def lesson_description(lesson: Lesson, loaded: LoadedModel | None = None) -> dict[str, Any]:
    """Return a lesson as JSON: its texts in every language, and the record of its question on a model.

    lesson: one of `select_lessons`. loaded: None, or a model on which the check is refused, has the record None.
    """
    texts = {tag: _as_json(_with_possible_links(lesson_of(lesson.name, tag))) for tag in LANGUAGES}
    record = None
    with suppress(Refused):
        if loaded is not None:
            context = prediction_context(loaded, lesson)
            check_length(len(context.encoding), "text_too_long")
            record = CHECKS[lesson.predict.check].record.compute(context, ignore_progress)
    return {"name": lesson.name, "texts": texts, "record": _as_json(record)}


def check_settings() -> dict[str, Any]:
    """Return what the checks in Python and in JavaScript both need, as JSON."""
    return {
        "max_tokens": MAX_TOKENS,
        "unrelated_sentence": third_course.UNRELATED_SENTENCE,
        "high_probability": third_course.HIGH_PROBABILITY,
        "low_probability": third_course.LOW_PROBABILITY,
        "guess_count": third_course.GUESS_COUNT,
        "guesses_tolerance": third_course.GUESSES_TOLERANCE,
        "occupations": list(third_course.OCCUPATIONS),
        "explained_occupation": third_course.EXPLAINED_OCCUPATION,
        "occupations_tolerance": third_course.OCCUPATIONS_TOLERANCE,
        "frame": third_course.FRAME,
        "min_probability": third_course.MIN_PROBABILITY,
    }


def _as_json(value: Any) -> Any:
    """Return a value with dataclasses and named tuples as objects, arrays and tuples as lists, and NaN as None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    return None if isinstance(value, float) and isnan(value) else value

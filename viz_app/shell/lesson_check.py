"""A lesson tried on a model, as its author does before a class: is every page there, can every answer be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

from bert_core.loading import LoadedModel
from bert_core.progress import ignore_progress
from bert_core.refused import Refused
from viz_app.lessons import STEPS, Lesson, Option, Task
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell import lesson_records
from viz_app.shell.lesson import parse_view
from viz_app.shell.lesson_records.context import CheckContext, lesson_context
from viz_app.shell.params import Page, Param

MAX_ANSWERS = 1_000  # of a number, as many are tried, evenly


class Finding(NamedTuple):
    """One thing that was found out about a lesson: the key of its file, what it is, and whether it must be mended."""

    key: str
    message: str
    is_fault: bool


def check_lesson(
    one: Lesson, loaded: LoadedModel, pages: Mapping[str, Page], table: Mapping[str, Param[Any]]
) -> Iterator[Finding]:
    """What becomes of a lesson on a model, step by step.

    pages: by their paths. table: every choice that an address carries, by its name.
    """
    views = [(step, one.view(step)) for step in STEPS[:-1]]
    for key, view in (*views, *((f"free[{number}]", way.view) for number, way in enumerate(one.free))):
        try:
            if view.page not in pages or view.address:
                parse_view(view, pages, table)
        except Refused as error:
            yield Finding(f"{key}.{'address' if view.page in pages else 'page'}", str(error), True)
    yield from _refused("predict.check", lambda: _predicted(one, loaded))
    yield from _refused("do.check", lambda: _done(one, loaded, pages, table))


def _refused(key: str, what: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from what()
    except Refused as error:
        yield Finding(key, str(error), True)


def _predicted(one: Lesson, loaded: LoadedModel) -> Iterator[Finding]:
    task, asked = one.predict, lesson_context(loaded, one.predict.view, one.exercise.view.address)
    record = lesson_records.work_for(CHECKS[task.check].record, asked).compute(ignore_progress)
    right: list[Any] = []
    wrong: list[Any] = []
    verdict = None
    for answer in possible_answers(task, asked):
        try:
            verdict = lesson_records.judge_answer(task, asked, record, answer)
        except Refused:
            continue  # the gap itself is no answer
        (right if verdict.right else wrong).append((answer, verdict))
    if verdict is None:
        yield Finding("predict.answer", "has no answer that can be given", True)
        return
    yield Finding("predict", f"true is {', '.join(_written(part) for part in verdict.truth)}", False)
    for name, some, other in (("right", right, wrong), ("wrong", wrong, right)):
        if not some:
            yield Finding("predict.answer", f"has no {name} answer among the {len(other)} that can be given", True)
    if right:
        given = ", ".join(_in_words(task, asked, answer) for answer, _ in right[:3])
        yield Finding("predict", f"right: {given}" + (f" and {len(right) - 3} more" if len(right) > 3 else ""), False)
    if not verdict.claim_holds:
        yield Finding("reveal.otherwise", "is what this model gets: what the lesson claims does not hold on it", False)
    for key, text, some in (("right", one.reveal.right, right), ("wrong", one.reveal.wrong, wrong)):
        if some:
            yield Finding(f"reveal.{key}", _filled(text, some[0][1]), False)


def _done(
    one: Lesson, loaded: LoadedModel, pages: Mapping[str, Page], table: Mapping[str, Param[Any]]
) -> Iterator[Finding]:
    task, view = one.exercise, one.exercise.view
    if task.answer != "page":
        return
    try:
        found = parse_view(view, pages, table)
    except Refused:  # which is said already
        return
    there, params = lesson_context(loaded, view), pages[view.page].params
    chosen = {param.name: param.write(found[param.name]) for param in params if found[param.name] is not None}
    asked = replace(
        lesson_context(loaded, one.predict.view, view.address), encoding=there.encoding, original=there.original,
        head=there.head, choices=chosen,
    )  # fmt: skip
    try:
        record = lesson_records.work_for(CHECKS[task.check].record, asked).compute(ignore_progress)
        verdict = lesson_records.judge_answer(task, asked, record, None)
    except Refused as error:
        yield Finding("do", f"at first the panel says: {error}", False)
        return
    if verdict.right:
        yield Finding("do.address", "is done before anything was done: begin with another view", True)
    yield Finding(
        "do", f"at first the panel says: {_filled(task.right if verdict.right else task.wrong, verdict)}", False
    )


def possible_answers(task: Task, asked: CheckContext) -> Iterator[Any]:
    """Every answer that can be given; of very many numbers some."""
    if task.answer == "word":
        yield from range(asked.original.word_count)
    elif task.answer == "number":
        least, most = int(task.minimum), int(task.maximum)
        yield from range(least, most + 1, max(1, (most - least) // MAX_ANSWERS))
    elif task.answer == "choice":
        yield from task.options
    elif task.answer == "order":
        yield from permutations(CHECKS[task.check].items)


def _in_words(task: Task, asked: CheckContext, answer: Any) -> str:
    if isinstance(answer, Option):
        return f"“{answer.label}”"
    if task.answer == "word":
        return f"“{asked.original.word_text(answer)}”"
    return ", ".join(answer) if isinstance(answer, tuple) else str(answer)


def _written(part: object) -> str:
    return f"{part:.3g}" if isinstance(part, float) else str(part)


def _filled(text: str, verdict: Verdict) -> str:
    return " ".join(text.format(**verdict.figures).split())

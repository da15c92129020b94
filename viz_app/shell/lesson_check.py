"""Check a lesson on a model, for its author: whether its pages exist and its answers can be given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused
from viz_app.lessons import STEPS, Lesson, Task
from viz_app.lessons.checks.context import CheckContext
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell import lesson_records
from viz_app.shell.answers import answer_text
from viz_app.shell.lesson import parse_view
from viz_app.shell.lesson_records import lesson_context, prediction_context
from viz_app.shell.params import Page

MAX_ANSWERS = 1_000  # numbers that are tried, at equal distances


class Finding(NamedTuple):
    """One finding about a lesson: a key of its file, a message, and whether it is a fault."""

    key: str
    message: str
    is_fault: bool = False


def check_lesson(content: Lesson, loaded: LoadedModel, pages: Mapping[str, Page]) -> Iterator[Finding]:
    """Yield the findings about each step of a lesson on a model.

    pages: by path. table: all parameters of addresses by name.
    """
    views = [(step, content.view(step)) for step in STEPS[:-1]]
    links = ((f"free[{number}]", link.view) for number, link in enumerate(content.free))
    for key, view in (*views, *links):
        try:
            if view.page not in pages or view.address:
                parse_view(view, pages)
        except Refused as error:
            yield Finding(f"{key}.{'address' if view.page in pages else 'page'}", str(error), is_fault=True)
    for key, findings in (
        ("predict.check", _check_prediction(content, loaded)),
        ("do.check", _check_exercise(content, loaded, pages)),
    ):
        try:
            yield from findings
        except Refused as error:
            yield Finding(key, str(error), is_fault=True)


def _check_prediction(content: Lesson, loaded: LoadedModel) -> Iterator[Finding]:
    task, reveal = content.predict, content.reveal
    context = prediction_context(loaded, content)
    verdicts = list(all_verdicts(task, context))
    if not verdicts:
        yield Finding("predict.answer", "has no answer that can be given", is_fault=True)
        return
    verdict = verdicts[-1][1]
    yield Finding("predict", f"true is {', '.join(_short(part) for part in verdict.truth)}")
    right, wrong = ([entry for entry in verdicts if entry[1].right is is_right] for is_right in (True, False))
    for name, entries in (("right", right), ("wrong", wrong)):
        if not entries:
            message = f"has no {name} answer among the {len(verdicts)} that can be given"
            yield Finding("predict.answer", message, is_fault=True)
    if right:
        texts = ", ".join(f"“{answer_text(task, answer, context.original)}”" for answer, _ in right[:3])
        yield Finding("predict", f"right: {texts}" + (f" and {len(right) - 3} more" if len(right) > 3 else ""))
    if not verdict.claim_holds:
        yield Finding("reveal.otherwise", "is what this model gets: what the lesson claims does not hold on it")
    for key, text, entries in (("right", reveal.right, right), ("wrong", reveal.wrong, wrong)):
        if entries:
            yield Finding(f"reveal.{key}", _fill_figures(text, entries[0][1]))


def _check_exercise(content: Lesson, loaded: LoadedModel, pages: Mapping[str, Page]) -> Iterator[Finding]:
    task, view = content.exercise, content.exercise.view
    if task.answer != "page":
        return
    try:
        values = parse_view(view, pages)
    except Refused:  # a finding of its own
        return
    start, params = lesson_context(loaded, view), pages[view.page].params
    choices = {param.name: param.write(values[param.name]) for param in params if values[param.name] is not None}
    context = prediction_context(loaded, content)
    context = replace(context, encoding=start.encoding, original=start.original, head=start.head, choices=choices)
    try:
        record = lesson_records.record_work(task.check, context).compute(ignore_progress)
        verdict = lesson_records.judge_answer(task, context, record, None)
    except Refused as error:
        yield Finding("do", f"at first the panel says: {error}")
        return
    if verdict.right:
        yield Finding("do.address", "is done before anything was done: begin with another view", is_fault=True)
    text = _fill_figures(task.right if verdict.right else task.wrong, verdict)
    yield Finding("do", f"at first the panel says: {text}")


def all_verdicts(
    task: Task, context: CheckContext, report: Progress = ignore_progress
) -> Iterator[tuple[Any, Verdict]]:
    """Yield every possible answer to a prediction with its verdict."""
    record = lesson_records.record_work(task.check, context).compute(report)
    for answer in possible_answers(task, context):
        with suppress(Refused):  # the gap itself is not a possible answer
            yield answer, lesson_records.judge_answer(task, context, record, answer)


def possible_answers(task: Task, context: CheckContext) -> Iterator[Any]:
    """Yield every possible answer, or about `MAX_ANSWERS` of very many numbers."""
    if task.answer == "word":
        yield from range(context.original.word_count)
    elif task.answer == "number":
        minimum, maximum = int(task.minimum), int(task.maximum)
        yield from range(minimum, maximum + 1, max(1, (maximum - minimum) // MAX_ANSWERS))
    elif task.answer == "choice":
        yield from task.options
    elif task.answer == "order":
        yield from permutations(task.items)


def _short(part: object) -> str:
    return f"{part:.3g}" if isinstance(part, float) else str(part)


def _fill_figures(text: str, verdict: Verdict) -> str:
    return " ".join(text.format(**verdict.figures).split())

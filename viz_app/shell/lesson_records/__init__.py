"""The records that checks of lessons need, computed from a model: each as a `Work` for the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from viz_app.lessons import Task
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell.language import translate
from viz_app.shell.lesson_records import first_course, second_course, third_course
from viz_app.shell.lesson_records.context import CheckContext, check_length
from viz_app.shell.work import Work

WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType(
    {**first_course.WORKS, **second_course.WORKS, **third_course.WORKS}
)


def work_for(record: str, context: CheckContext) -> Work[Any]:
    """Return the work that computes a record. Raises Refused for a text or a model that is not suitable."""
    check_length(len(context.encoding), translate("the text has {tokens} tokens: a lesson asks of {most} at most"))
    return WORKS[record](context)


def task_work(task: Task, context: CheckContext) -> Work[Any]:
    """Return the work that computes the record of a task, as `work_for` does."""
    return work_for(CHECKS[task.check].record, context)


def judge_answer(task: Task, context: CheckContext, record: Any, answer: Any) -> Verdict:
    """Return the verdict on an answer, or, for a task on the page, on what is chosen there.

    Raises Refused for an answer that is not possible.
    """
    check = CHECKS[task.check]
    if task.answer == "page" and check.page_choice:
        answer = context.head if check.page_choice == "head" else context.choices[check.page_choice]
    return check.judge(record, answer)

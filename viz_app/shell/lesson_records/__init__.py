"""What the checks of lessons are asked of, from the model: each record as a piece of slow work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bert_core.refused import Refused
from viz_app.lessons import Task
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell.language import translate
from viz_app.shell.lesson_records import first_course, second_course, third_course
from viz_app.shell.lesson_records.context import MAX_TOKENS, CheckContext
from viz_app.shell.work import Work


def work_for(needs: str, asked: CheckContext) -> Work[Any]:
    """The record of this name as work for the queue. Raises Refused for a text that it cannot be asked of."""
    if len(asked.encoding) > MAX_TOKENS:
        raise Refused(
            translate("the text has {tokens} tokens: a lesson asks of {most} at most").format(
                tokens=len(asked.encoding), most=MAX_TOKENS
            )
        )
    return WORKS[needs](asked)


def judge_answer(task: Task, asked: CheckContext, record: Any, answer: Any) -> Verdict:
    """What the check of a task says of an answer, or, where it is done on the page, of what is chosen there.

    Raises Refused for an answer that cannot be one.
    """
    check = CHECKS[task.check]
    if task.answer == "page" and check.page_choice:
        answer = asked.head if check.page_choice == "head" else asked.choices[check.page_choice]
    return check.judge(record, answer)


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType(
    {**first_course.WORKS, **second_course.WORKS, **third_course.WORKS}
)

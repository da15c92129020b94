"""Lessons asked of the bundled model: what each course's tests share."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import bert_core
from bert_core import LoadedModel
from bert_core.progress import silent
from viz_app.figures.lessons import answer_bars
from viz_app.lessons import Option
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.lessons.reading import lesson_of
from viz_app.shell import findings
from viz_app.shell.findings.asked import Asked, of_lesson


@cache
def bundled() -> LoadedModel:
    """The model that comes along."""
    return bert_core.load("headlight-mini", device="cpu")


@cache
def record(name: str) -> Any:
    """What the prediction of a lesson is asked of, on the bundled model."""
    lesson = lesson_of(name)
    return record_of(name, of_lesson(bundled(), lesson.predict.view, lesson.do.view.address))


def record_of(name: str, asked: Asked) -> Any:
    """What the prediction of a lesson is asked of."""
    return findings.work_for(CHECKS[lesson_of(name).predict.check].needs, asked).do(silent)


def answered(name: str, given: Any) -> Any:
    """An answer as the panel gives it: of a choice, the option of this number."""
    options: tuple[Option, ...] = lesson_of(name).predict.options
    return options[given] if options else given


def said(text: str, verdict: Verdict) -> str:
    """A sentence of a lesson with the figures in it; it may hold no brace and no number that is none."""
    filled = text.format(**verdict.figures)
    assert not re.search(r"[{}]|\bnan\b|\binf\b", filled), filled
    return filled


def predicted(name: str, true: Any, wrong: Any) -> None:
    """The true prediction passes, a wrong one fails, the claim holds, every sentence takes the figures."""
    lesson = lesson_of(name)
    judge = CHECKS[lesson.predict.check].judge
    right, failed = (judge(record(name), answered(name, one)) for one in (true, wrong))
    assert right.right, (name, right.figures)
    assert not failed.right, (name, failed.figures)
    assert right.holds and failed.holds, (name, right.figures)
    for verdict in (right, failed):
        for text in (lesson.reveal.right, lesson.reveal.wrong, lesson.reveal.otherwise):
            said(text, verdict)
        marks = [bar.mark for bar in verdict.bars]
        names, values = [bar.name for bar in verdict.bars], [bar.value for bar in verdict.bars]
        assert answer_bars(names, values, marks, form=lesson.reveal.form, dark=False).data
        assert marks.count("true") + marks.count("both") == 1, (name, marks)


def tried(name: str, asked: Asked, given: Any, *, right: bool) -> None:
    """What is on a page is as the second step of a lesson wants it, or is not, and it is said."""
    task = lesson_of(name).do
    check = CHECKS[task.check]
    verdict = check.judge(findings.work_for(check.needs, asked).do(silent), given)
    assert verdict.right is right, (name, verdict.figures)
    assert said(task.right if right else task.wrong, verdict)


def asked_of_another(name: str, asked: Asked, given: Any) -> None:
    """On another model nothing fails: what does not hold there is said with its figures."""
    lesson = lesson_of(name)
    verdict = CHECKS[lesson.predict.check].judge(record_of(name, asked), answered(name, given))
    assert "{" not in lesson.reveal.otherwise.format(**verdict.figures)

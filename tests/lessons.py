"""Lessons asked of a model, and their answers: a row for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import bert_core
from bert_core import LoadedModel
from bert_core.progress import ignore_progress
from bert_core.run.losses import masked_examples
from bert_core.run.plans import propose_plan
from viz_app.figures.lessons import MARKS, answer_bars
from viz_app.lessons import Option, View
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.context import CheckContext
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.lessons.parsing import lesson_of
from viz_app.shell import lesson_records
from viz_app.shell.lesson_records import lesson_context

FLOWERS = {
    "one": "The picture with the flowers is on the wall.", "two": "The picture with the flowers are on the wall.",
}  # fmt: skip
FOUR_CATS = {"common_word": "cat", "sentences": "the cat sat\na cat sat\nmy cat is here\nthe cat"}
SHORT = {"text": "the cat sat on the mat", "masked": "1"}  # the tiny vocabulary cuts longer words into letters


class Answers(NamedTuple):
    """The answers to a lesson.

    true, wrong: the true prediction, and the commonest wrong one. done, tried: what makes the page right in the second
    step, and a first wrong try, as in `asked_of`. tiny: what the tiny model is asked about, where it is other than the
    lesson's own. refused: what the panel says on the tiny model, where it cannot be asked of that.
    """

    true: Any
    wrong: Any
    done: Mapping[str, Any]
    tried: Mapping[str, Any]
    tiny: Mapping[str, str] = {}
    refused: str = ""


ANSWERS = {
    "both_sides": Answers(7, 4, {"masked": "5,7"}, {"masked": "4,5"}, SHORT),  # milk; cup
    "one_head": Answers(2, 0, {"head": "1.8"}, {"head": "4.11"}),  # 25 to 49; fewer than 10
    # What it depends on; the next token. Another head that looks there; that of the next token.
    "ten_looks": Answers(
        4, 1, {"head": "2.1"}, {"head": "1.8"}, refused="nobody has counted what the heads of this model do"
    ),
    "the_bin": Answers(30, 76, {"head": "4.3"}, {"head": "3.2"}),  # the attention itself
    "fewer_heads": Answers(18, 5, {"off": 12}, {"off": 3}),
    "explanation": Answers(
        ("DecompX", "occlusion", "rollout", "attention"), ("attention", "rollout", "DecompX", "occlusion"),
        {"method": "occlusion"}, {"method": "attention"}, SHORT,
    ),
    "when": Answers(6, 3, {"lens": "tuned", "cell": "3.4"}, {"lens": "logit", "cell": "6.4"}, SHORT),
    "bank_and_bank": Answers(2, 5, {"depth": "2"}, {"depth": "6"}, FOUR_CATS),
    "the_keys": Answers(49, 90, FLOWERS, {"one": FLOWERS["two"], "two": FLOWERS["one"]}),
    # An object; an adjective, which is found most often. The head of objects; that of the next token.
    "grammar": Answers(3, 1, {"head": "2.0"}, {"head": "1.8"}),
    "follows": Answers(
        3, 0, {"pair": "Penguins are birds that cannot fly."},
        {
            "text": "After an hour she took the cake out of the oven.",
            "pair": "She put the cake in the oven.",
        },
    ),
    "a_robin": Answers(4, 0, {"text": "A robin is not a [MASK]."}, {"text": "A bird is a [MASK]."}),
    "he_or_she": Answers(
        1, 4, {"text": "[MASK] is a queen in a small town."}, {"text": "[MASK] is a nurse in a small town."}
    ),
}  # fmt: skip


@cache
def bundled() -> LoadedModel:
    """The model that comes along."""
    return bert_core.load("headlight-mini", device="cpu")


def asked_of(name: str, loaded: LoadedModel, *, off: int = 0, **page: str) -> CheckContext:
    """What the second step of a lesson asks about, once some choices of its page were made anew.

    off: how many heads are off, by the order of the gradient. page: as an address writes it.
    """
    lesson = lesson_of(name)
    begun = lesson_context(loaded, lesson.predict.view, lesson.exercise.view.address)
    address = {**lesson.exercise.view.address, **page}
    there = lesson_context(loaded, View(lesson.exercise.view.page, address))
    order = propose_plan(loaded, masked_examples(loaded, there.original), "importance").order if off else ()
    return replace(
        begun,
        encoding=there.encoding,
        original=there.original,
        head=there.head,
        off=tuple(order[:off]),
        choices=there.choices,
    )


@cache
def record(name: str) -> Any:
    """What the prediction of a lesson is asked of, on the bundled model."""
    lesson = lesson_of(name)
    return record_of(name, lesson_context(bundled(), lesson.predict.view, lesson.exercise.view.address))


def record_of(name: str, asked: CheckContext) -> Any:
    """What the prediction of a lesson is asked of."""
    return lesson_records.record_work(lesson_of(name).predict.check, asked).compute(ignore_progress)


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
    assert right.claim_holds and failed.claim_holds, (name, right.figures)
    for verdict in (right, failed):
        for text in (lesson.reveal.right, lesson.reveal.wrong, lesson.reveal.claim_fails):
            said(text, verdict)
        marks = [bar.mark for bar in verdict.bars]
        names, values = [bar.name for bar in verdict.bars], [bar.value for bar in verdict.bars]
        assert answer_bars(names, values, marks, words=dict.fromkeys(MARKS, ""), form=lesson.reveal.form).data
        assert marks.count("true") + marks.count("both") == 1, (name, marks)


def tried(name: str, asked: CheckContext, *, right: bool) -> None:
    """What is on a page is as the second step of a lesson wants it, or is not, and it is said."""
    task = lesson_of(name).exercise
    found = lesson_records.record_work(task.check, asked).compute(ignore_progress)
    verdict = lesson_records.judge_answer(task, asked, found, None)
    assert verdict.right is right, (name, verdict.figures)
    assert said(task.right if right else task.wrong, verdict)


def asked_of_another(name: str, asked: CheckContext, given: Any) -> None:
    """On another model nothing fails: what does not hold there is said with its figures."""
    lesson = lesson_of(name)
    verdict = CHECKS[lesson.predict.check].judge(record_of(name, asked), answered(name, given))
    assert "{" not in lesson.reveal.claim_fails.format(**verdict.figures)

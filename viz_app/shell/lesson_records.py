"""The work and the verdict of a task of a lesson, and the contexts in which they are checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bert_core.loading import LoadedModel
from bert_core.run.memory import forward_bytes
from viz_app.lessons import Lesson, Task, View
from viz_app.lessons.checks import CHECKS
from viz_app.lessons.checks.context import CheckContext, check_length
from viz_app.lessons.checks.verdicts import Verdict
from viz_app.shell import selection
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Head, parse_head
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, estimate_seconds

# The names of choices that a check reads by those of version 0.2, as lessons may contain them; see `Param.old_name`.
CURRENT_NAMES = {"several": "sentences", "like": "common_word", "one": "sentence_a", "two": "sentence_b"}


def record_work(check: str, context: CheckContext) -> Work[Any]:
    """Return the work that computes the record of a check. Raises Refused for a text or a model that is unsuitable."""
    encoding, loaded, record = context.encoding, context.loaded, CHECKS[check].record
    check_length(len(encoding), "text_too_long")
    key = ("lesson", record.compute, loaded.weights_key, encoding, record.key(context))
    passes = record.passes(context)
    return Work(
        key,
        f"{shown_name(loaded.name)} {record.label}",
        partial(record.compute, context),
        estimate_seconds(loaded, len(encoding), passes),
        memory=forward_bytes(loaded, len(encoding), math.ceil(passes)),
    )


def judge_answer(task: Task, context: CheckContext, record: Any, answer: Any) -> Verdict:
    """Return the verdict on an answer, or, for a task on the page, on what is chosen there.

    Raises Refused for an answer that is not possible.
    """
    check = CHECKS[task.check]
    if task.answer == "page" and check.page_choice:
        answer = context.head if check.page_choice == "head" else context.choices[check.page_choice]
    return check.judge(record, answer)


def lesson_context(loaded: LoadedModel, view: View, lesson_choices: Mapping[str, str] | None = None) -> CheckContext:
    """Return the context at the address of a view, independent of the page.

    lesson_choices: the address of the page of the exercise, if that is another one; names of version 0.2 are replaced.
    """
    address, config = view.address, loaded.config
    original = loaded.tokenizer.encode(address["text"], address.get("pair", ""))
    masked = selection.parse_words(address.get("masked", ""))
    encoding = loaded.tokenizer.mask_words(original, [word for word in masked if word < original.word_count])
    layer, number = parse_head(address.get("head", "0.0"))
    # A smaller model has its last head instead.
    head = (min(layer, config.num_hidden_layers - 1), min(number, config.num_attention_heads - 1))
    choices = address if lesson_choices is None else lesson_choices
    choices = {CURRENT_NAMES.get(name, name): value for name, value in choices.items()}
    return CheckContext(loaded, encoding, original, encoding, head, head, choices=choices, lesson_choices=choices)


def prediction_context(loaded: LoadedModel, lesson: Lesson) -> CheckContext:
    """Return the context of the prediction of a lesson."""
    return lesson_context(loaded, lesson.predict.view, lesson.exercise.view.address)


def page_context(
    lesson: CheckContext, current: Selection | None, head: Head, choices: Mapping[str, str]
) -> CheckContext:
    """Return the context of the page beside that of the lesson.

    current: None on a page without the shared text. head: the chosen one. choices: as in `CheckContext`.
    """
    context = replace(lesson, head=head, choices=choices)
    if current is None:
        return context
    return replace(context, encoding=current.encoding, original=current.original, off=current.off)

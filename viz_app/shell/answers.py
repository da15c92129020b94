"""The controls by which answers are given in the panel of a lesson, and answers in words."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bert_core.tokenizer import Encoding
from viz_app.components.token_strip import Chip
from viz_app.components.token_strip.view import token_strip
from viz_app.lessons import Lesson, Option, Task
from viz_app.lessons.checks.context import CheckContext
from viz_app.shell import lesson
from viz_app.shell.lesson import Answer
from viz_app.shell.markdown import escape_markdown
from viz_app.texts import page_texts

TEXTS = page_texts("lesson")

Drafts = dict[str, object]  # answers that are not submitted, by step; mutable

_PRESSED_BUTTON = "_answer_pressed"


def answer_control(content: Lesson, step: str, task: Task, context: CheckContext) -> Answer | None:
    """Draw the control of an answer and return the draft, which is kept when the page is left; None at first."""
    drafts, key = lesson.drafts(content), f"{content.name}_{step}"
    if task.answer == "word":
        return _word(context, drafts, key)
    if task.answer == "number":
        return _number(task, drafts, key)
    if task.answer == "order":
        return _order(task.items, drafts, key)
    return _option(task, drafts, key)


def mark_pressed(key: str, question: object) -> None:
    """Record that the button of an answer was pressed; a callback. question: what the answer belongs to.

    The answer itself is read when its control is drawn: a visitor who changes it and presses at once can do both in one
    run, or press before the first run has ended.
    """
    st.session_state[_PRESSED_BUTTON] = key, question


def pop_pressed(key: str) -> Any:
    """Return the question for which the button of a key was pressed since the last call, or None."""
    if st.session_state.get(_PRESSED_BUTTON, ("", None))[0] != key:
        return None
    _, question = st.session_state.pop(_PRESSED_BUTTON)
    return question


def selectable_words(context: CheckContext) -> list[int]:
    """Return the numbers of the words that are possible answers: all that are not hidden."""
    return [word for word in range(context.original.word_count) if word not in context.hidden]


def answer_text(task: Task, answer: Answer, original: Encoding | None) -> str:
    """Return an answer in words. original: the text, if it is available."""
    if isinstance(answer, Option):
        return current_option(task, answer).label
    if isinstance(answer, tuple):
        return ", ".join(answer)
    if task.answer == "word" and original is not None and int(answer) < original.word_count:
        return original.word_text(int(answer))
    return f"{answer:g} {task.unit}".strip()


def current_option(task: Task, answer: Option) -> Option:
    """Return an option with its label in the current language."""
    return next((option for option in task.options if option == answer), answer)


def _word(context: CheckContext, drafts: Drafts, key: str) -> int | None:
    word = drafts.get(key)
    if not isinstance(word, int) or word >= context.original.word_count or word in context.hidden:
        word = None
    token_strip(
        _chips(context, word),
        key="lesson_words",
        label=TEXTS["answer.words"],
        on_click=lambda click: drafts.update({key: click.word}),
    )
    text = "" if word is None else escape_markdown(context.original.word_text(word))
    st.caption(TEXTS["answer.chosen"].format(word=text) if text else TEXTS["answer.nothing_chosen"])
    return word


def _chips(context: CheckContext, selected_word: int | None) -> list[Chip]:
    """Return the tokens of the text as chips, of which those of hidden words cannot be selected."""
    hidden, original = context.hidden, context.original
    chips = []
    for position, (token, word) in enumerate(zip(original.tokens, original.words, strict=True)):
        if original.special[position]:
            continue
        is_hidden = word in hidden
        title = TEXTS["answer.gap"] if is_hidden else TEXTS["answer.choose_word"].format(token=token)
        is_target = word is not None and word == selected_word
        side = original.sides[position]
        chips.append(Chip(token, title, word, side, special=is_hidden, masked=is_hidden, target=is_target))
    return chips


def _number(task: Task, drafts: Drafts, key: str) -> int | None:
    draft: Any = drafts.get(key)
    number: int | None = st.number_input(
        TEXTS["answer.number"].format(unit=task.unit),
        int(task.minimum),
        int(task.maximum),
        draft,
        step=1,
        key=f"lesson_number_{key}",
        placeholder=TEXTS["answer.bounds"].format(least=task.minimum, most=task.maximum),
    )
    drafts[key] = number
    return number


def _order(items: tuple[str, ...], drafts: Drafts, key: str) -> tuple[str, ...] | None:
    """Draw a button for each item, which appends it to the order, or removes it and the items after it.

    Returns the order once it is complete.
    """
    order: Any = drafts.get(key, ())
    if len(order) == len(items) - 1:  # the last one is determined
        order = (*order, *(item for item in items if item not in order))

    def click(item: str) -> None:
        drafts[key] = order[: order.index(item)] if item in order else (*order, item)

    columns = st.columns(2, gap="small")
    for number, item in enumerate(items):
        rank = f"{order.index(item) + 1}. " if item in order else ""
        label, kind = f"{rank}{escape_markdown(item)}", "primary" if rank else "secondary"
        options: dict[str, Any] = {"key": f"lesson_order_{number}", "type": kind, "width": "stretch"}
        columns[number % 2].button(label, on_click=click, args=(item,), **options)
    following = TEXTS["answer.order_next"]
    st.caption(following if order else TEXTS["answer.order_first"])
    return order if len(order) == len(items) else None


def _option(task: Task, drafts: Drafts, key: str) -> Option | None:
    draft: Any = drafts.get(key)
    labels = [escape_markdown(option.label) for option in task.options]
    number = st.radio(
        TEXTS["answer.choose"],
        range(len(labels)),
        index=draft,
        format_func=labels.__getitem__,
        key=f"lesson_choice_{key}",
        label_visibility="collapsed",
    )
    drafts[key] = number
    return None if number is None else task.options[number]

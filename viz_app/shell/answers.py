"""How an answer is given in the panel of a lesson: a control for each kind of it; and how it is said afterwards."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bert_core.tokenizer import Encoding
from viz_app.components.token_strip import Chip, token_strip
from viz_app.lessons import Lesson, Option, Task
from viz_app.lessons.checks import CHECKS
from viz_app.shell import lesson
from viz_app.shell.language import translate
from viz_app.shell.lesson import Answer
from viz_app.shell.lesson_records.context import CheckContext
from viz_app.shell.markdown import escape_markdown

Drafts = dict[str, object]  # what is chosen and not yet said, by the step; may be written to

_PRESSED_BUTTON = "_answer_pressed"


def answer_control(one: Lesson, step: str, task: Task, asked: CheckContext) -> Answer | None:
    """Draw the control of an answer, which stays when the page is left, and return what is chosen; None at first."""
    drafts, key = lesson.drafts(one), f"{one.name}_{step}"
    if task.answer == "word":
        return _word(asked, drafts, key)
    if task.answer == "number":
        return _number(task, drafts, key)
    if task.answer == "order":
        return _order(CHECKS[task.check].items, drafts, key)
    return _option(task, drafts, key)


def mark_pressed(key: str, question: object) -> None:
    """Note that the button of an answer was pressed; a click on a button. question: what it is an answer to.

    Not more than that: who chooses another answer and presses at once does both in one run, or before the first of two
    is over, and means what was chosen last, which is known when its control is drawn.
    """
    st.session_state[_PRESSED_BUTTON] = key, question


def pop_pressed(key: str) -> Any:
    """What was answered since this was last asked, by the button of a key; None where it was not pressed."""
    if st.session_state.get(_PRESSED_BUTTON, ("", None))[0] != key:
        return None
    _, question = st.session_state.pop(_PRESSED_BUTTON)
    return question


def selectable_words(asked: CheckContext) -> list[int]:
    """The numbers of the words that can be an answer: all but those that are hidden."""
    return [word for word in range(asked.original.word_count) if word not in asked.hidden]


def answer_text(task: Task, answer: Answer, original: Encoding | None) -> str:
    """An answer as it is said. original: the text, for its words; None where it is not at hand."""
    if isinstance(answer, Option):
        return current_option(task, answer).label
    if isinstance(answer, tuple):
        return ", ".join(answer)
    if task.answer == "word" and original is not None and int(answer) < original.word_count:
        return original.word_text(int(answer))
    return f"{answer:g} {task.unit}".strip()


def current_option(task: Task, answer: Option) -> Option:
    """The option that was chosen, in the words of the language that is chosen now."""
    return next((option for option in task.options if option == answer), answer)


def _word(asked: CheckContext, drafts: Drafts, key: str) -> int | None:
    chosen = drafts.get(key)
    if not isinstance(chosen, int) or chosen >= asked.original.word_count or chosen in asked.hidden:
        chosen = None
    token_strip(
        _chips(asked, chosen), key="lesson_words",
        label=translate("Words of the sentence; a click chooses the one that you expect"),
        on_click=lambda click: drafts.update({key: click.word}),
    )  # fmt: skip
    word = "" if chosen is None else escape_markdown(asked.original.word_text(chosen))
    st.caption(translate("Chosen: {word}").format(word=word) if word else translate("Nothing chosen yet"))
    return chosen


def _chips(asked: CheckContext, chosen: int | None) -> list[Chip]:
    """The text's tokens to choose a word from: those that are hidden stay out of it."""
    hidden, original = asked.hidden, asked.original
    return [
        Chip(
            text=token, word=word, side=original.sides[at], special=original.special[at] or word in hidden,
            masked=word in hidden, target=word is not None and word == chosen,
            title=translate("{token}: choose it").format(token=token) if word not in hidden else translate("The gap"),
        )
        for at, (token, word) in enumerate(zip(original.tokens, original.words, strict=True))
        if not original.special[at]
    ]  # fmt: skip


def _number(task: Task, drafts: Drafts, key: str) -> int | None:
    chosen: Any = drafts.get(key)
    number: int | None = st.number_input(
        translate("How many {unit}?").format(unit=task.unit), value=chosen,
        min_value=int(task.minimum), max_value=int(task.maximum), step=1, key=f"lesson_number_{key}",
        placeholder=translate("{least:g} to {most:g}").format(least=task.minimum, most=task.maximum),
    )  # fmt: skip
    drafts[key] = number
    return number


def _order(things: tuple[str, ...], drafts: Drafts, key: str) -> tuple[str, ...] | None:
    """Draw a button for each thing, two in a row, which gives it the next place, or takes it and what follows back.

    Returns the order once all have a place.
    """
    order: Any = drafts.get(key, ())
    if len(order) == len(things) - 1:  # the last one is known
        order = (*order, *(thing for thing in things if thing not in order))

    def click(thing: str) -> None:
        drafts[key] = order[: order.index(thing)] if thing in order else (*order, thing)

    columns = st.columns(2, gap="small")
    for number, thing in enumerate(things):
        place = f"{order.index(thing) + 1}. " if thing in order else ""
        columns[number % 2].button(
            f"{place}{escape_markdown(thing)}", key=f"lesson_order_{number}", on_click=click, args=(thing,),
            width="stretch", type="primary" if place else "secondary",
        )  # fmt: skip
    st.caption(
        translate("Press the best one first; press again to take it back.") if order
        else translate("Press the best one first.")
    )  # fmt: skip
    return order if len(order) == len(things) else None


def _option(task: Task, drafts: Drafts, key: str) -> Option | None:
    chosen: Any = drafts.get(key)
    labels = [option.label for option in task.options]
    number = st.radio(
        translate("Choose one"), range(len(labels)), index=chosen,
        format_func=lambda place: escape_markdown(labels[place]),
        key=f"lesson_choice_{key}", label_visibility="collapsed",
    )  # fmt: skip
    drafts[key] = number
    return None if number is None else task.options[number]

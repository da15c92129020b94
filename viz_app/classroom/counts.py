"""What a class has answered, counted: the rows of a picture, and a table for a spreadsheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import floor
from typing import NamedTuple

from viz_app.classroom import Answer, ClassQuestion, CountedVotes
from viz_app.export.tables import labelled_csv
from viz_app.lessons import Option

MAX_ROWS = 8


class Row(NamedTuple):
    """One row of a picture: what it is called, the answers that it stands for, and their number in each vote."""

    label: str
    answers: tuple[Answer, ...]
    counts: tuple[int, ...]


def group_answers(asked: CountedVotes, name: Callable[[Answer], str], others: str) -> list[Row]:
    """Few rows for all answers: options and words in their order, numbers by size, orders by how often they came.

    name: what an answer is called. others: what those are called that have no row of their own.
    """
    task = asked.question.lesson.predict
    total: Counter[Answer] = Counter()
    for vote in asked.votes:
        total.update(vote)

    def row(label: str, answers: Sequence[Answer]) -> Row:
        return Row(label, tuple(answers), tuple(sum(vote.get(one, 0) for one in answers) for vote in asked.votes))

    if task.answer == "choice":
        return [row(name(option), [option]) for option in task.options]
    if task.answer == "number":
        return [row(label, some) for label, some in _ranges(list(total), name)]
    if len(total) <= MAX_ROWS:
        leading, rest = list(total), []
    else:
        ordered = [one for one, _ in total.most_common()]
        leading, rest = ordered[: MAX_ROWS - 1], ordered[MAX_ROWS - 1 :]
    if task.answer == "word":
        leading.sort(key=_number)
    else:
        leading.sort(key=lambda one: (-total[one], str(one)))
    return [row(name(one), [one]) for one in leading] + ([row(others, rest)] if rest else [])


def counts_csv(asked: Sequence[CountedVotes], name: Callable[[ClassQuestion, Answer], str]) -> bytes:
    """The counts of all votes as a CSV in UTF-8, a line for each answer: lesson, step, vote, answer, count.

    name: what an answer is called. A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    lines = [
        (one.question.lesson.name, "predict", number, name(one.question, answer), count)
        for one in asked
        for number, vote in enumerate(one.votes, 1)
        for answer, count in sorted(vote.items(), key=lambda item: (-item[1], str(item[0])))
    ]
    columns = zip(*lines, strict=True) if lines else ((),) * 5
    return labelled_csv(dict(zip(("lesson", "step", "vote", "answer", "count"), map(list, columns), strict=True)))


def _ranges(numbers: Sequence[Answer], name: Callable[[Answer], str]) -> list[tuple[str, list[Answer]]]:
    """Numbers each by itself, or in ranges of one width where there are many."""
    ordered = sorted(numbers, key=_number)
    if len(ordered) <= MAX_ROWS:
        return [(name(one), [one]) for one in ordered]
    least, most = _number(ordered[0]), _number(ordered[-1])
    width = next(step for step in _round_steps() if floor(most / step) - floor(least / step) < MAX_ROWS)
    found: list[tuple[str, list[Answer]]] = []
    for place in range(floor(least / width), floor(most / width) + 1):
        first = place * width
        inside = [one for one in ordered if first <= _number(one) < first + width]
        found.append((f"{first:g} – {first + width - 1:g}", inside))
    return found


def _round_steps() -> list[int]:
    return [step * 10**power for power in range(16) for step in (1, 2, 5)]


def _number(answer: Answer) -> float:
    return 0.0 if isinstance(answer, tuple | Option) else float(answer)

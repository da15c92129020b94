"""The counted answers of a class: the rows of a chart, and a CSV table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import floor
from typing import NamedTuple

from viz_app.classroom import Answer, ClassQuestion, CountedVotes
from viz_app.export.tables import labelled_csv
from viz_app.lessons import Option

MAX_ROWS = 8
COLUMNS = ("lesson", "step", "vote", "answer", "count")


class Row(NamedTuple):
    """One row of a chart: its label, the answers that it contains, and their number in each vote."""

    label: str
    answers: tuple[Answer, ...]
    counts: tuple[int, ...]


def group_answers(votes: CountedVotes, name: Callable[[Answer], str], rest_label: str) -> list[Row]:
    """Return at most `MAX_ROWS` rows for all answers.

    Options and words are in their order, numbers by size, and orders by frequency. name: returns the label of an
    answer. rest_label: of the row of all answers without a row of their own.
    """
    task = votes.question.lesson.predict
    total: Counter[Answer] = Counter()
    for vote in votes.votes:
        total.update(vote)

    def row(label: str, answers: Sequence[Answer]) -> Row:
        counts = (sum(vote.get(answer, 0) for answer in answers) for vote in votes.votes)
        return Row(label, tuple(answers), tuple(counts))

    if task.answer == "choice":
        return [row(name(option), [option]) for option in task.options]
    if task.answer == "number":
        return [row(label, answers) for label, answers in _ranges(list(total), name)]
    leading = [answer for answer, _ in total.most_common(MAX_ROWS if len(total) <= MAX_ROWS else MAX_ROWS - 1)]
    remaining = [answer for answer in total if answer not in leading]
    if task.answer == "word":
        leading.sort(key=_number)
    else:
        leading.sort(key=lambda answer: (-total[answer], str(answer)))
    rows = [row(name(answer), [answer]) for answer in leading]
    return [*rows, row(rest_label, remaining)] if remaining else rows


def counts_csv(questions: Sequence[CountedVotes], name: Callable[[ClassQuestion, Answer], str]) -> bytes:
    """Return the counts of all votes as a CSV in UTF-8, with a line for each answer and the columns `COLUMNS`.

    name: returns the label of an answer. Texts that a spreadsheet would parse as a formula get an apostrophe.
    """
    lines = [
        (votes.question.lesson.name, "predict", number, name(votes.question, answer), count)
        for votes in questions
        for number, vote in enumerate(votes.votes, 1)
        for answer, count in sorted(vote.items(), key=lambda item: (-item[1], str(item[0])))
    ]
    columns = zip(*lines, strict=True) if lines else ((),) * len(COLUMNS)
    return labelled_csv(dict(zip(COLUMNS, map(list, columns), strict=True)))


def _ranges(numbers: Sequence[Answer], name: Callable[[Answer], str]) -> list[tuple[str, list[Answer]]]:
    """Return each number with its label, or ranges of equal width if there are many numbers."""
    ordered = sorted(numbers, key=_number)
    if len(ordered) <= MAX_ROWS:
        return [(name(answer), [answer]) for answer in ordered]
    smallest, largest = _number(ordered[0]), _number(ordered[-1])
    widths = (factor * 10**power for power in range(16) for factor in (1, 2, 5))
    width = next(width for width in widths if floor(largest / width) - floor(smallest / width) < MAX_ROWS)
    ranges = []
    for start in range(floor(smallest / width) * width, floor(largest / width) * width + 1, width):
        members = [answer for answer in ordered if start <= _number(answer) < start + width]
        ranges.append((f"{start:g} – {start + width - 1:g}", members))
    return ranges


def _number(answer: Answer) -> float:
    return 0.0 if isinstance(answer, tuple | Option) else float(answer)

"""Analysis of evaluated texts: accuracy, confusion matrix, slices by column, and the order of the rows.

All functions take an `EvaluatedTexts` and return arrays, so they need neither the model nor the file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_core.analysis.intervals import wilson_interval
from bert_core.records import EvaluatedTexts
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.evaluation import NUMBER_FIELDS
from bert_core.refused import Refused, short_repr, validate_arguments

# Bounds of the bins of text lengths, in words: 1 to 4, 5 to 9 and so on.
LENGTH_BOUNDS = (5, 10, 20, 40, 80, 160, 320)
NUMBER_BINS = 10  # of a column of numbers with too many different values
CORRECT, WRONG, NOT_SCORED = "correct", "wrong", "no answer"
_SLICE_FIELDS = ("answer", "prediction", "length", "correct")


@compared_by_value
@dataclass(frozen=True)
class EvaluationSummary:
    """Totals of evaluated texts.

    count: number of rows. scored: number of rows with an expected answer and a prediction. correct: of these, the
        number with equal answer and prediction.
    accuracy: share of correct rows, 0 to 1. interval: bounds of its 95% confidence interval, see `wilson_interval`.
    macro_f1: mean over all labels of the harmonic mean of precision and recall, 0 to 1, as in scikit-learn.
    mean_loss: mean of the losses that are not NaN.
    All numbers are NaN if there are no rows to compute them from.
    """

    count: int
    scored: int
    correct: int
    accuracy: float
    interval: tuple[float, float]
    macro_f1: float
    mean_loss: float


@compared_by_value
@dataclass(frozen=True)
class Confusion:
    """Confusion matrix of the most frequent answers.

    labels: names of the labels; the last one stands for all others if there are more than the maximum.
    counts: (answer, prediction) int64, number of scored rows. Its diagonal contains the correct rows, apart from the
        last entry if `groups_rare_labels` is true, which also contains confusions among the other labels.
    groups_rare_labels: whether the last label stands for all others.
    """

    labels: tuple[str, ...]
    counts: np.ndarray
    groups_rare_labels: bool

    def __post_init__(self) -> None:
        make_read_only(self)


@compared_by_value
@dataclass(frozen=True)
class Slice:
    """Rows with one value of a column.

    value: the value, or the name of a range of values. count: number of rows. scored: number of rows with an expected
        answer and a prediction.
    accuracy: share of correct rows among the scored ones, 0 to 1; NaN without any. interval: bounds of its 95%
        confidence interval, see `wilson_interval`.
    mean_loss: mean of the losses that are not NaN. loss_error: standard error of this mean, NaN for one row.
    """

    value: str
    count: int
    scored: int
    accuracy: float
    interval: tuple[float, float]
    mean_loss: float
    loss_error: float


@validate_arguments
def summary(table: EvaluatedTexts) -> EvaluationSummary:
    """Compute the totals of evaluated texts.

    >>> table = EvaluatedTexts(
    ...     "class", "nats per text", row=[2, 3, 4], text=["good", "bad", "fine"], pair=["", "", ""],
    ...     position=[-1, -1, -1], answer=["+", "-", "+"], prediction=["+", "-", "-"],
    ...     probability=[0.8, 0.7, 0.4], confidence=[0.8, 0.7, 0.6], loss=[0.22, 0.36, 0.92],
    ... )
    >>> totals = summary(table)
    >>> totals.correct, round(totals.accuracy, 2), round(totals.mean_loss, 2)
    (2, 0.67, 0.5)
    >>> confusion(table).counts.tolist()
    [[1, 1], [0, 1]]
    """
    scored, correct = int(table.is_scored.sum()), int(table.is_correct.sum())
    losses = table.loss[~np.isnan(table.loss)]
    return EvaluationSummary(
        len(table), scored, correct, correct / scored if scored else math.nan, wilson_interval(correct, scored),
        _macro_f1(table), float(losses.mean()) if len(losses) else math.nan,
    )  # fmt: skip


def _macro_f1(table: EvaluatedTexts) -> float:
    """Return the mean F1 score of all labels of the scored rows, NaN without any."""
    if not table.has_answers:
        return math.nan
    answers, predictions = table.answer[table.is_scored], table.prediction[table.is_scored]
    labels, codes = _codes([*answers.tolist(), *predictions.tolist()])
    answer_codes, prediction_codes = codes[: len(answers)], codes[len(answers) :]
    frequencies = np.bincount(codes, minlength=len(labels))  # at least 1 for each label
    correct = np.bincount(answer_codes[answer_codes == prediction_codes], minlength=len(labels))
    return float((2 * correct / frequencies).mean())


@validate_arguments
def confusion(table: EvaluatedTexts, max_labels: int = 20) -> Confusion:
    """Count the scored rows for each pair of answer and prediction.

    max_labels: maximum number of labels with a row and a column of their own: the most frequent answers. The others
        share the last row and column.
    Returns the labels sorted by decreasing frequency among the answers, then among the predictions, then by name. Thus
    labels that are never an answer come after all answers.
    Raises Refused if `max_labels` is less than 1.
    """
    if max_labels < 1:
        raise Refused(f"max_labels is {max_labels}: it must be at least 1")
    answers, predictions = table.answer[table.is_scored], table.prediction[table.is_scored]
    names, codes = _codes([*answers.tolist(), *predictions.tolist()])
    labels, codes, groups_rare_labels = _most_frequent(names, codes, max_labels, codes[: len(answers)])
    size = len(labels)
    cells = codes[: len(answers)] * size + codes[len(answers) :]
    counts = np.bincount(cells, minlength=size**2).reshape(size, size).astype(np.int64)
    return Confusion(labels, counts, groups_rare_labels)


@validate_arguments
def rows_in_cell(table: EvaluatedTexts, matrix: Confusion, answer: str, prediction: str) -> np.ndarray:
    """Return the indices of the rows in one cell of a confusion matrix of the table, (n,) int64, ascending.

    answer, prediction: labels of the matrix.
    Raises Refused for a label that the matrix does not have.
    """
    selected = table.is_scored.copy()
    for values, label in ((table.answer, answer), (table.prediction, prediction)):
        if label not in matrix.labels:
            raise Refused(f"the confusion matrix has no label {label!r:.60}: its labels are {', '.join(matrix.labels)}")
        if matrix.groups_rare_labels and label == matrix.labels[-1]:
            frequent_labels = set(matrix.labels[:-1])
            selected &= np.fromiter((value not in frequent_labels for value in values), bool, len(table))
        else:
            selected &= np.asarray(values == label, bool)
    return np.flatnonzero(selected)


@validate_arguments
def slices(table: EvaluatedTexts, column: str, max_values: int = 50) -> tuple[Slice, ...]:
    """Compute the accuracy and the mean loss of the rows with each value of a column.

    column: a name in `slice_columns`: a column of the file, "answer", "prediction", "length" (words of the text and the
        pair, in bins) or "correct".
    max_values: maximum number of values with a slice of their own. If a column of numbers has more, its slices are up
        to ten ranges with about the same number of rows each. In other columns, the rarer values share the last slice.
    Returns the slices, sorted by decreasing number of rows and then by value; ranges are sorted by value. Every row is
    in exactly one slice.
    Raises Refused for another column, or if `max_values` is less than 1.
    """
    names, codes = _slice_codes(table, column, max_values)
    size = len(names)
    counts, scored = np.bincount(codes, minlength=size), np.bincount(codes[table.is_scored], minlength=size)
    correct = np.bincount(codes[table.is_correct], minlength=size)
    has_loss = ~np.isnan(table.loss)
    losses, loss_codes = table.loss[has_loss], codes[has_loss]
    loss_counts = np.bincount(loss_codes, minlength=size)
    with np.errstate(divide="ignore", invalid="ignore"):  # slices without losses or answers are NaN
        accuracy = correct / scored
        means = np.bincount(loss_codes, losses, minlength=size) / loss_counts
        squares = np.bincount(loss_codes, (losses - means[loss_codes]) ** 2, minlength=size)
        errors = np.sqrt(squares / (loss_counts - 1) / loss_counts)
    errors[loss_counts < 2] = np.nan
    return tuple(
        Slice(
            name, int(counts[number]), int(scored[number]), float(accuracy[number]),
            wilson_interval(int(correct[number]), int(scored[number])), float(means[number]), float(errors[number]),
        )
        for number, name in enumerate(names)
    )  # fmt: skip


def slice_columns(table: EvaluatedTexts) -> tuple[str, ...]:
    """Return the names of the columns that `slices` accepts for a table."""
    return (*_SLICE_FIELDS, *table.columns)


@validate_arguments
def rows_in_slice(table: EvaluatedTexts, column: str, value: str, max_values: int = 50) -> np.ndarray:
    """Return the indices of the rows in one slice, (n,) int64, ascending.

    column, max_values: as for `slices`. value: the value of the slice.
    Raises Refused as `slices`, and for a value that no slice has.
    """
    names, codes = _slice_codes(table, column, max_values)
    if value not in names:
        raise Refused(f"the column {column!r} has no slice {value!r:.60}: its slices are {', '.join(names)}")
    return np.flatnonzero(codes == names.index(value))


@validate_arguments
def order(table: EvaluatedTexts, key: str = "loss", descending: bool = True) -> np.ndarray:
    """Return the indices that sort the rows by one value, (row,) int64.

    key: "loss", "confidence", "probability", "row", "position", "text", "pair", or a name in `slice_columns`. A column
        of numbers is sorted by number, any other column by text.
    The sort is stable. NaN and empty texts come last in both directions.
    Raises Refused for another name.
    """
    if key in (*NUMBER_FIELDS, "row", "position"):
        values = getattr(table, key).astype(np.float64)
    elif key == "length":
        values = _word_counts(table).astype(np.float64)
    elif key == "correct":
        values = np.where(table.is_scored, table.is_correct, np.nan)
    elif key in ("text", "pair", "answer", "prediction") or key in table.columns:
        texts = table.columns[key] if key in table.columns else getattr(table, key)
        numbers = _as_numbers(texts)
        values = _alphabetical_ranks(texts) if numbers is None else numbers
    else:
        names = dict.fromkeys((*NUMBER_FIELDS, "row", "position", "text", "pair", *slice_columns(table)))
        raise Refused(f"the rows cannot be sorted by {key!r:.60}: allowed are {', '.join(names)}")
    missing = np.isnan(values)
    return np.lexsort((np.where(missing, 0, -values if descending else values), missing))


@validate_arguments
def select(table: EvaluatedTexts, indices: Iterable[int]) -> EvaluatedTexts:
    """Return the rows with the given indices, in their order.

    Raises Refused for an index that the table does not have.
    """
    try:
        rows = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    except ValueError as error:
        raise Refused(f"indices is {short_repr(indices)}: it must be a list of whole numbers") from error
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise Refused(f"indices is {short_repr(indices)}: it must be a list of whole numbers")
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(table):
        raise Refused(f"the table has {len(table):,} rows: an index must be from 0 to {len(table) - 1}")
    rows = rows.astype(np.int64)
    fields = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
    arrays = {name: values[rows] for name, values in fields.items() if isinstance(values, np.ndarray)}
    return dataclasses.replace(table, **arrays, columns={name: values[rows] for name, values in table.columns.items()})


# ---------------------------------------------------------------------------- groups of rows


def _codes(values: list[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the different values and, for each value, its index among them, (row,) int64."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return tuple(numbers), np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))


def _most_frequent(
    names: tuple[str, ...], codes: np.ndarray, size: int, first_codes: np.ndarray | None = None
) -> tuple[tuple[str, ...], np.ndarray, bool]:
    """Return names sorted by frequency, the codes for them, and whether the last name stands for all rarer ones.

    size: maximum number of names, without the last one for the others. first_codes: codes whose frequency counts before
        that of all codes; None for none.
    """
    frequencies = np.bincount(codes, minlength=len(names))
    first = np.bincount(codes[:0] if first_codes is None else first_codes, minlength=len(names))
    ranked = sorted(range(len(names)), key=lambda number: (-first[number], -frequencies[number], names[number]))
    ranks = np.empty(len(names), np.int64)
    ranks[ranked] = np.arange(len(names))
    frequent_names = tuple(names[number] for number in ranked[:size])
    if len(names) <= size:
        return frequent_names, ranks[codes], False
    rest_name = "other"
    while rest_name in frequent_names:  # a label of the file may have this name
        rest_name = f"({rest_name})"
    return (*frequent_names, rest_name), np.minimum(ranks[codes], size), True


def _slice_codes(table: EvaluatedTexts, column: str, max_values: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the slices of a column, and the index of the slice of each row. Raises as `slices`."""
    if max_values < 1:
        raise Refused(f"max_values is {max_values}: it must be at least 1")
    if column == "length":
        return _length_bins(_word_counts(table))
    if column == "correct":
        scores = (CORRECT, WRONG, NOT_SCORED)
        return _without_empty(scores, np.where(table.is_correct, 0, np.where(table.is_scored, 1, 2)))
    if column not in slice_columns(table):
        raise Refused(f"the table has no column {column!r:.60}: slices exist by {', '.join(slice_columns(table))}")
    texts = table.columns[column] if column in table.columns else getattr(table, column)
    names, codes = _codes(texts.tolist())
    if len(names) > max_values and (numbers := _as_numbers(texts)) is not None:
        return _number_bins(numbers)
    names, codes, _ = _most_frequent(names, codes, max_values)
    return names, codes


def _word_counts(table: EvaluatedTexts) -> np.ndarray:
    """Return the number of words of each text and its pair, (row,) int64; words are separated by whitespace."""
    counts = {text: len(text.split()) for text in {*table.text.tolist(), *table.pair.tolist()}}
    return np.fromiter(
        (counts[text] + counts[pair] for text, pair in zip(table.text, table.pair, strict=True)), np.int64, len(table)
    )


def _length_bins(lengths: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the bins of `LENGTH_BOUNDS` with any row, and the bin of each row."""
    names = tuple(f"{low} to {high - 1}" for low, high in pairwise((0, *LENGTH_BOUNDS)))
    return _without_empty((*names, f"{LENGTH_BOUNDS[-1]} or more"), np.searchsorted(LENGTH_BOUNDS, lengths, "right"))


def _number_bins(numbers: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of ranges of numbers with about the same number of rows, and the range of each row.

    numbers: (row,), NaN for an empty field. A range is named by the smallest and the largest number in it.
    """
    present = numbers[~np.isnan(numbers)]
    bounds = np.unique(np.quantile(present, np.linspace(0, 1, NUMBER_BINS + 1)[1:-1]))
    codes = np.searchsorted(bounds, numbers, "right")
    names = []
    for code in range(len(bounds) + 1):
        members = present[np.searchsorted(bounds, present, "right") == code]
        names.append(f"{_short(members.min())} to {_short(members.max())}" if len(members) else "")
    codes[np.isnan(numbers)] = len(names)
    return _without_empty((*names, ""), codes)


def _short(number: float) -> str:
    """Return the shortest text from which the number can be read."""
    return repr(float(number)).removesuffix(".0")


def _without_empty(names: tuple[str, ...], codes: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names that have rows, and the codes for them."""
    present, codes = np.unique(codes, return_inverse=True)
    return tuple(names[number] for number in present), codes


def _as_numbers(texts: np.ndarray) -> np.ndarray | None:
    """Return texts as finite numbers (row,), NaN for empty texts; None if a text is not a number or all are empty."""
    try:
        numbers = np.array([math.nan if text == "" else float(text) for text in texts])
    except ValueError:
        return None
    present = numbers[np.asarray(texts != "", bool)]
    return numbers if len(present) and np.isfinite(present).all() else None


def _alphabetical_ranks(texts: np.ndarray) -> np.ndarray:
    """Return the rank of each text in alphabetical order, (row,) float64; NaN for empty texts."""
    ranks = {text: float(number) for number, text in enumerate(sorted(set(texts.tolist())))} | {"": math.nan}
    return np.fromiter(map(ranks.__getitem__, texts), np.float64, len(texts))

"""Evaluation of a model on the texts of a file: one row for each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.refused import Refused, short_repr

TEXT_FIELDS = ("text", "pair", "answer", "prediction")
NUMBER_FIELDS = ("probability", "confidence", "loss")
INTEGER_FIELDS = ("row", "position")
# Names that no column of the input file may have, because they name a field of each row or a value computed from it.
RESERVED_COLUMNS = ("question", "loss_unit", *INTEGER_FIELDS, *TEXT_FIELDS, *NUMBER_FIELDS, "length", "correct")


@compared_by_value
@dataclass(frozen=True)
class EvaluatedTexts(Tabular):
    """Predictions of a model for the texts of a file, with the expected answers, the losses and the other columns.

    Each row is one evaluated answer: a text has several rows if it has several, such as the tags of its words.

    question: key of `FILE_QUESTIONS`, or "surprise" for texts without answers.
    loss_unit: unit of the loss, for example "nats per text".
    row: (row,) int64, number of the row in the source file, counted as in `studies.rows`.
    text, pair: (row,) texts as in the file; pair is empty if there is no second text.
    position: (row,) int64, position of the target in the encoded text; -1 for a target of the whole text.
    answer: (row,) texts, the expected answer; empty if the file has none.
    prediction: (row,) texts, the answer of the model; empty if it is not known.
    probability: (row,) float64, probability of the expected answer, 0 to 1; NaN without one.
    confidence: (row,) float64, probability of the prediction, 0 to 1; NaN without one.
    loss: (row,) float64, larger is worse: minus the natural logarithm of the probability; NaN without an answer. For
        "surprise" it is the mean surprisal of the tokens of the text, each of them masked, in nats per token.
    columns: the other columns of the source file by name, (row,) texts each; may be empty.
    Raises Refused if the arrays differ in length, if a text is not a str (None included), or if a column has a name in
    `RESERVED_COLUMNS`.
    """

    question: str
    loss_unit: str
    row: np.ndarray
    text: np.ndarray
    pair: np.ndarray
    position: np.ndarray
    answer: np.ndarray
    prediction: np.ndarray
    probability: np.ndarray
    confidence: np.ndarray
    loss: np.ndarray
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping):
            raise Refused(f"columns is {short_repr(self.columns)}: it must be a mapping of names to texts")
        for name in self.columns:
            if name in RESERVED_COLUMNS:
                raise Refused(f"a column has the name {name!r}, which is the name of a value of every row: rename it")
        types = (
            dict.fromkeys(TEXT_FIELDS, object)
            | dict.fromkeys(NUMBER_FIELDS, np.float64)
            | dict.fromkeys(INTEGER_FIELDS, np.int64)
        )
        for name, kind in types.items():
            object.__setattr__(self, name, _as_rows(name, getattr(self, name), kind))
        columns = {name: _as_rows(f"the column {name!r}", values, object) for name, values in self.columns.items()}
        object.__setattr__(self, "columns", MappingProxyType(columns))
        for name, values in {**{name: getattr(self, name) for name in types}, **columns}.items():
            if len(values) != len(self.row):
                raise Refused(
                    f"{name} has {len(values)} rows and row has {len(self.row)}: they must have the same number"
                )
            values.flags.writeable = False
        make_read_only(self)

    def _tables(self) -> Tables:
        names = ("text", "pair", "position", "answer", "prediction", *NUMBER_FIELDS)
        question = np.full(len(self), self.question, object)
        return (("row", {"question": question, **{name: name for name in names}, **self.columns}),)

    def _axis_columns(self, axis: str, size: int, axes: Sequence[str]) -> dict[str, Sequence[Any] | np.ndarray]:
        return {"row": self.row}

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def is_scored(self) -> np.ndarray:
        """Whether each row has an expected answer and a prediction, (row,) bool."""
        return _read_only((self.answer != "") & (self.prediction != ""))

    @cached_property
    def is_correct(self) -> np.ndarray:
        """Whether the prediction of each row is the expected answer, (row,) bool; False without an answer."""
        return _read_only((self.answer == self.prediction) & self.is_scored)

    @property
    def has_answers(self) -> bool:
        """Whether any row has an expected answer and a prediction."""
        return bool(self.is_scored.any())

    @property
    def labels(self) -> tuple[str, ...]:
        """The different answers and predictions, sorted."""
        return tuple(sorted({*self.answer.tolist(), *self.prediction.tolist()} - {""}))


def _read_only(values: np.ndarray) -> np.ndarray:
    """Return a comparison of texts as a boolean array that cannot be changed."""
    array = np.asarray(values, bool)
    array.flags.writeable = False
    return array


def _as_rows(name: str, values: object, kind: type) -> np.ndarray:
    """Return values as an array (row,) of one type. Raises Refused if that is not possible."""
    if isinstance(values, str):
        raise Refused(f"{name} is {short_repr(values)}: it must be a list with one value for each row")
    try:
        array: np.ndarray = np.asarray(values, dtype=kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(f"{name} is {short_repr(values)}: it must be a list with one value for each row") from error
    if array.ndim != 1:
        raise Refused(f"{name} has {array.ndim} axes: it must have one value for each row")
    if kind is object:
        for index, text in enumerate(array.tolist()):
            if not isinstance(text, str):
                raise Refused(
                    f"{name} has the value {short_repr(text)} at index {index}: it must be a text, empty for none"
                )
    return array

"""Two sentences side by side: which tokens they share, where they part, and what each part of the difference weighs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from bert_core.records import PairScore, SentenceScore
from bert_core.records.base import compared_by_value
from bert_core.refused import validate_arguments


class Column(NamedTuple):
    """One column of two aligned sentences: the position in each, None where it has nothing; whether both are alike."""

    first: int | None
    second: int | None
    same: bool


def align_columns(first: Sequence[str], second: Sequence[str]) -> list[Column]:
    """The tokens of two sentences in columns: the longest common blocks stand under each other, the rest apart.

    Every token is in exactly one column, in its order. Tokens that replace each other share columns from the left.
    """
    columns = []
    for what, start, end, other_start, other_end in SequenceMatcher(None, first, second, False).get_opcodes():
        own, other = range(start, end), range(other_start, other_end)
        for place in range(max(len(own), len(other))):
            columns.append(
                Column(
                    own[place] if place < len(own) else None,
                    other[place] if place < len(other) else None,
                    what == "equal",
                )
            )
    return columns


@compared_by_value
class PairColumns(NamedTuple):
    """Two scored sentences in columns, the added [CLS] and [SEP] left out.

    columns: positions in the encodings. first, second: (column,) log-probabilities, nats; NaN where there is nothing.
    same: (column,) boolean.
    """

    columns: list[Column]
    first: np.ndarray
    second: np.ndarray
    same: np.ndarray

    @property
    def differing_contribution(self) -> float:
        """By how much the first is likelier than the second in the columns where they part, nats."""
        return self._owed(~self.same)

    @property
    def shared_contribution(self) -> float:
        """By how much it is likelier in the columns that they share, nats: what their parting words do to these."""
        return self._owed(self.same)

    def _owed(self, where: np.ndarray) -> float:
        return float(np.nansum(self.first[where]) - np.nansum(self.second[where]))


@validate_arguments
def pair_columns(pair: PairScore) -> PairColumns:
    """Two scored sentences, token under token; the two parts of the difference add up to that of the totals.

    Raises Refused for a pair with a problem.
    """
    first, second = pair.both
    kept = [[i for i, special in enumerate(one.encoding.special) if not special] for one in (first, second)]
    tokens = [[one.encoding.tokens[i] for i in some] for one, some in zip((first, second), kept, strict=True)]
    columns = [
        Column(
            None if column.first is None else kept[0][column.first],
            None if column.second is None else kept[1][column.second],
            column.same,
        )
        for column in align_columns(*tokens)
    ]
    return PairColumns(
        columns,
        _values(first, [column.first for column in columns]),
        _values(second, [column.second for column in columns]),
        np.array([column.same for column in columns], bool),
    )


def _values(score: SentenceScore, places: Sequence[int | None]) -> np.ndarray:
    """The log-probabilities at some places of a sentence, (column,); NaN where the place is None."""
    return np.array([np.nan if place is None else score.log_probabilities[place] for place in places], np.float64)


def mostly_unknown(scores: Sequence[PairScore]) -> int:
    """How many of the scored sentences are mostly [UNK], each counted once: their scores say little."""
    read = {one.encoding.text: one.encoding for pair in scores if pair.problem is None for one in pair.both}
    return sum(one.mostly_unknown for one in read.values())

"""Alignment of two scored sentences, and the contribution of their different and shared tokens to the difference."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from bert_core.records import PairScore, SentenceScore
from bert_core.records.base import compared_by_value
from bert_core.refused import validate_arguments


class Column(NamedTuple):
    """One column of two aligned sentences.

    first, second: position in either sentence, None if it has no token in this column.
    equal: whether both tokens are equal.
    """

    first: int | None
    second: int | None
    equal: bool


def align_columns(first: Sequence[str], second: Sequence[str]) -> list[Column]:
    """Align the tokens of two sentences by their longest common blocks.

    Every token is in exactly one column, and the order is preserved. Different tokens at the same place share columns
    from the left.
    """
    columns = []
    for operation, start, end, second_start, second_end in SequenceMatcher(None, first, second, False).get_opcodes():
        first_range, second_range = range(start, end), range(second_start, second_end)
        for index in range(max(len(first_range), len(second_range))):
            columns.append(
                Column(
                    first_range[index] if index < len(first_range) else None,
                    second_range[index] if index < len(second_range) else None,
                    operation == "equal",
                )
            )
    return columns


@compared_by_value
class PairColumns(NamedTuple):
    """Two scored sentences in aligned columns, without [CLS] and [SEP].

    columns: positions in the encodings.
    first, second: (column,) log-probabilities in nats, NaN if the sentence has no token in the column.
    equal: (column,) boolean, whether both tokens are equal.
    """

    columns: list[Column]
    first: np.ndarray
    second: np.ndarray
    equal: np.ndarray

    @property
    def differing_contribution(self) -> float:
        """Contribution of the columns with different tokens to the log-probability difference, in nats."""
        return self._contribution(~self.equal)

    @property
    def shared_contribution(self) -> float:
        """Contribution of the columns with equal tokens, in nats: the effect of the different tokens on these."""
        return self._contribution(self.equal)

    def _contribution(self, selected: np.ndarray) -> float:
        """Return the log-probability of the first sentence minus that of the second over some columns."""
        return float(np.nansum(self.first[selected]) - np.nansum(self.second[selected]))


@validate_arguments
def pair_columns(pair: PairScore) -> PairColumns:
    """Align two scored sentences token by token.

    The contributions of different and equal tokens sum to the difference of the total log-probabilities.

    Raises Refused if the pair was not scored.
    """
    scores = pair.scores
    positions = [[i for i, special in enumerate(score.encoding.special) if not special] for score in scores]
    first_tokens, second_tokens = (
        [score.encoding.tokens[i] for i in indices] for score, indices in zip(scores, positions, strict=True)
    )
    columns = [
        Column(
            None if column.first is None else positions[0][column.first],
            None if column.second is None else positions[1][column.second],
            column.equal,
        )
        for column in align_columns(first_tokens, second_tokens)
    ]
    first, second = scores
    return PairColumns(
        columns,
        _values(first, [column.first for column in columns]),
        _values(second, [column.second for column in columns]),
        np.array([column.equal for column in columns], bool),
    )


def _values(score: SentenceScore, positions: Sequence[int | None]) -> np.ndarray:
    """Return the log-probabilities at some positions of a sentence, (column,), NaN for None."""
    return np.array(
        [np.nan if position is None else score.log_probabilities[position] for position in positions], np.float64
    )


def mostly_unknown(scores: Sequence[PairScore]) -> int:
    """Return the number of different scored sentences that are mostly [UNK], whose scores are hardly meaningful."""
    encodings = {
        score.encoding.text: score.encoding for pair in scores if pair.problem is None for score in pair.scores
    }
    return sum(encoding.mostly_unknown for encoding in encodings.values())

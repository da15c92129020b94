"""Units of a text, such as words, and the sums of scores and attention maps over the word pieces of each unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments, validate_arrays
from bert_core.tokenizer import Encoding


@validate_arguments
def word_units(encoding: Encoding) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the word pieces of each word. [CLS] and [SEP] are units of their own.

    Every position is in exactly one unit. Units are in the order of the text.
    """
    units: list[tuple[int, ...]] = []
    for position, word in enumerate(encoding.words):
        if word is not None and position and encoding.words[position - 1] == word:
            units[-1] = (*units[-1], position)
        else:
            units.append((position,))
    return tuple(units)


@validate_arrays(scores="... token")
def scores_of_units(scores: np.ndarray, units: Sequence[Sequence[int]]) -> np.ndarray:
    """Sum the scores of the tokens of each unit, which preserves the total.

    scores: (..., token).
    units: positions of the tokens of each unit, as returned by `word_units`.
    Returns (..., unit).
    Raises Refused if there is no unit, a unit is empty, or a position does not exist.
    """
    pieces = check_units(units, scores.shape[-1])
    return np.stack([scores[..., unit].sum(-1) for unit in pieces], axis=-1)


def check_units(units: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Return the units of a text of `length` tokens as lists of ints.

    Raises Refused if there is no unit, a unit is empty, or a position does not exist.
    """
    checked_units = [
        [require_int("a position", position, None) for position in require_sequence("a unit", unit, "positions")]
        for unit in require_sequence("units", units, "units")
    ]
    if not checked_units or not all(checked_units):
        raise Refused(
            f"units is {short_repr(units)}: it must contain at least one unit, each with at least one position"
        )
    wrong = next((position for unit in checked_units for position in unit if not 0 <= position < length), None)
    if wrong is not None:
        raise Refused(f"position {short_repr(wrong)} does not exist: the positions are 0 to {length - 1}")
    return checked_units


def map_of_units(maps: np.ndarray, units: Sequence[Sequence[int]]) -> np.ndarray:
    """Aggregate attention between tokens to attention between units: sum over the keys, mean over the queries.

    maps: (..., query, key).
    units: positions of the tokens of each unit, as returned by `word_units`.
    Returns (..., unit, unit). Rows that sum to 1 still do.
    Raises Refused if there is no unit, a unit is empty, or a position does not exist.
    Source: Clark 2019, section 4.1 (arXiv:1906.04341).
    """
    to_words = scores_of_units(maps, units)
    return np.stack([to_words[..., list(unit), :].mean(-2) for unit in units], axis=-2)

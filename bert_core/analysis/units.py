"""Units of a text: the pieces of a word, with their scores and maps added up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments, validate_arrays
from bert_core.tokenizer import Encoding


@validate_arguments
def word_units(encoding: Encoding) -> tuple[tuple[int, ...], ...]:
    """Positions that belong together: the pieces of a word, and each added [CLS] and [SEP] by itself.

    Every position stands in exactly one unit, in the order of the text.
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
    """A unit's score is the sum of those of its pieces, so totals stay what they were.

    scores: (..., token). units: positions that go together, as `word_units` gives them. Returns (..., unit).
    Raises Refused without a unit, and for one without a position, or with one that does not exist.
    """
    pieces = check_units(units, scores.shape[-1])
    return np.stack([scores[..., unit].sum(-1) for unit in pieces], axis=-1)


def check_units(units: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Units of a text of so many tokens, as they were given. Raises Refused as `scores_of_units`."""
    given = require_sequence("units", units, "units")
    found = [
        [require_int("a position", place, None) for place in require_sequence("a unit", one, "positions")]
        for one in given
    ]
    if not found or not all(found):
        raise Refused(f"units is {short_repr(units)}: there must be at least one, and each must have a position")
    wrong = next((place for unit in found for place in unit if not 0 <= place < length), None)
    if wrong is not None:
        raise Refused(f"position {short_repr(wrong)} does not exist: there are positions 0 to {length - 1}")
    return found


def map_of_units(maps: np.ndarray, units: Sequence[Sequence[int]]) -> np.ndarray:
    """From word to word: what goes to a word is the sum over its pieces, what comes from it their mean.

    maps: (..., query, key). Returns (..., unit, unit); rows that summed to 1 still do.
    Source: Clark 2019, section 4.1 (arXiv:1906.04341).
    """
    to_words = scores_of_units(maps, units)
    return np.stack([to_words[..., list(unit), :].mean(-2) for unit in units], axis=-2)

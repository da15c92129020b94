"""Two walks through one model beside each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bert_core.record import Walk


class Difference(NamedTuple):
    """How far two walks are apart in the value of one name, and the largest number that stands there."""

    name: str
    largest: float
    reach: float


def differences(one: Walk, other: Walk) -> tuple[Difference, ...]:
    """Of every value, in the order of computation.

    Raises ValueError unless both walked the same text through the same layer.
    """
    if (one.tokens, one.layer, one.position) != (other.tokens, other.layer, other.position):
        raise ValueError("two walks can be compared if they are of one text, one layer and one position")
    return tuple(
        Difference(name, float(np.abs(value - other.values[name]).max()), float(np.abs(value).max()))
        for name, value in one.values.items()
    )


def weighted_values(walk: Walk, head: int, query: int) -> np.ndarray:
    """What each key gives to one query in one head: its probability times its value, (key, head size).

    Their sum is the head's context at that query, before the head's gate.
    """
    weighted: np.ndarray = walk.of_layer("probabilities")[head, query][:, None] * walk.of_layer("value")[head]
    return weighted

"""Two runs side by side: which of their tokens belong together, and what changed between their maps."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from scipy.special import entr

from bert_core.analysis.flow import check_rows
from bert_core.records.base import compared_by_value
from bert_core.refused import (
    Refused,
    require_array,
    require_instances,
    require_int,
    require_sequence,
    validate_arguments,
    validate_arrays,
)


@compared_by_value
class Alignment(NamedTuple):
    """Tokens of two texts that are compared with one another.

    before, after: (pair,) positions, rising in both. left_out_before, left_out_after: the positions without a partner.
    """

    before: np.ndarray
    after: np.ndarray
    left_out_before: tuple[int, ...]
    left_out_after: tuple[int, ...]


def align_tokens(before: Sequence[str], after: Sequence[str]) -> Alignment:
    """Which tokens of two texts belong together.

    As many tokens on both sides: each with the one at its place. Else the equal ones, in order, by the longest runs
    that both have (Ratcliff and Obershelp's matching, as Python's difflib does it).
    Raises Refused for what is no list of texts.
    """
    before, after = require_instances("before", before, str), require_instances("after", after, str)
    if len(before) == len(after):
        places = np.arange(len(before))
        return Alignment(places, places, (), ())
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    ours = [block.a + i for block in blocks for i in range(block.size)]
    theirs = [block.b + i for block in blocks for i in range(block.size)]
    rest = (tuple(sorted(set(range(len(text))) - set(kept))) for text, kept in ((before, ours), (after, theirs)))
    return Alignment(np.array(ours, int), np.array(theirs, int), *rest)


@validate_arguments
def aligned_maps(before: np.ndarray, after: np.ndarray, pairs: Alignment) -> tuple[np.ndarray, np.ndarray]:
    """The maps of both runs between the tokens they share, each (layer, head, query, key) of the pairs.

    before, after: (layer, head, query, key). Rows are as they were: a row sums to what goes to shared tokens.
    Raises Refused where the two have not as many layers and heads, or a pair is not of their tokens.
    """
    before = require_array("before", before, "layer head seq seq")
    after = require_array("after", after, "layer head seq seq")
    if before.shape[:2] != after.shape[:2]:
        (layers, heads), (other_layers, other_heads) = before.shape[:2], after.shape[:2]
        raise Refused(
            f"{layers} layers of {heads} heads and {other_layers} of {other_heads} cannot be compared head by head"
        )
    one, other = _between(before, pairs.before), _between(after, pairs.after)
    if one.shape != other.shape:
        raise Refused(f"{one.shape[-1]} places before and {other.shape[-1]} after: tokens are compared in pairs")
    return one, other


def _between(maps: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Maps (..., query, key) of some places only; where these are all places, as they are and not copied."""
    most = maps.shape[-1] - 1
    places = np.array(
        [require_int("a place", place, 0, most) for place in require_sequence("places", places, "positions")], int
    )
    if np.array_equal(places, np.arange(maps.shape[-1])):
        return maps
    chosen: np.ndarray = maps[..., places[:, None], places]
    return chosen


@validate_arrays(before="layer head query key", after="layer head query key")
def attention_divergence(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """How differently each head attends before and after: the Jensen-Shannon divergence of its rows, mean over queries.

    before, after: (layer, head, query, key) of one text, each row sums to 1.
    Returns (layer, head), nats, float64: 0 for the same rows, ln 2 for rows with no key in common; NaN for a head that
    is not there on both sides.
    Raises Refused if a row does not sum to 1.
    Source: Lin 1991, section IV; of attention, Clark 2019, section 6 (arXiv:1906.04341).
    """
    check_rows(before)
    check_rows(after)
    one, other = before.astype(np.float64), after.astype(np.float64)
    divergence = entr((one + other) / 2).sum(-1) - (entr(one).sum(-1) + entr(other).sum(-1)) / 2
    found: np.ndarray = np.maximum(divergence, 0).mean(-1)  # rounding may take nothing a hair below it
    return found


class Change(NamedTuple):
    """One place of one head whose attention changed; query and key count the pairs of aligned tokens."""

    layer: int
    head: int
    query: int
    key: int
    before: float
    after: float


@validate_arrays(before="layer head query key", after="layer head query key")
def largest_changes(before: np.ndarray, after: np.ndarray, count: int) -> list[Change]:
    """Where two maps differ most, that with the largest difference first; ties in the order of their places.

    before, after: (layer, head, query, key). count: how many at most.
    Places where either is no number, or nothing changed, are left out.
    """
    count = require_int("count", count)
    sizes = np.abs(after - before).ravel()
    sizes[~np.isfinite(sizes)] = 0
    count = min(count, int(np.count_nonzero(sizes)))
    if not count:
        return []
    # At least `count` places are as large as this one; of equal ones the first stay.
    least = -np.partition(-sizes, count - 1)[count - 1]
    places = np.nonzero(sizes >= least)[0]
    places = places[np.argsort(-sizes[places], kind="stable")][:count]
    return [
        Change(int(layer), int(head), int(query), int(key), float(before.flat[place]), float(after.flat[place]))
        for place, layer, head, query, key in zip(places, *np.unravel_index(places, before.shape), strict=True)
    ]

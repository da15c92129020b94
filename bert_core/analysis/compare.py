"""Comparison of two runs: alignment of their tokens, and differences between their attention maps."""

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
    """Pairs of corresponding tokens of two texts.

    before, after: (pair,) positions, rising in both texts.
    left_out_before, left_out_after: positions without a partner.
    """

    before: np.ndarray
    after: np.ndarray
    left_out_before: tuple[int, ...]
    left_out_after: tuple[int, ...]


def align_tokens(before: Sequence[str], after: Sequence[str]) -> Alignment:
    """Align the tokens of two texts.

    Texts of the same length are aligned position by position. Otherwise equal tokens are aligned in order, by the
    longest common runs (Ratcliff and Obershelp's matching, as in Python's difflib).

    before, after: the tokens of either text.
    Raises Refused if either is not a list of texts.
    """
    before, after = require_instances("before", before, str), require_instances("after", after, str)
    if len(before) == len(after):
        positions = np.arange(len(before))
        return Alignment(positions, positions, (), ())
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    before_positions = [block.a + i for block in blocks for i in range(block.size)]
    after_positions = [block.b + i for block in blocks for i in range(block.size)]
    left_out = (
        tuple(sorted(set(range(len(text))) - set(positions)))
        for text, positions in ((before, before_positions), (after, after_positions))
    )
    return Alignment(np.array(before_positions, int), np.array(after_positions, int), *left_out)


@validate_arguments
def aligned_maps(before: np.ndarray, after: np.ndarray, pairs: Alignment) -> tuple[np.ndarray, np.ndarray]:
    """Select the entries of the maps of both runs that lie between aligned tokens.

    before, after: (layer, head, query, key).
    Returns two arrays (layer, head, pair, pair). Rows are not renormalised, so each row sums to the share that goes to
    aligned tokens.
    Raises Refused if the numbers of layers or heads differ, or a position of a pair does not exist.
    """
    before = require_array("before", before, "layer head seq seq")
    after = require_array("after", after, "layer head seq seq")
    if before.shape[:2] != after.shape[:2]:
        (layers, heads), (after_layers, after_heads) = before.shape[:2], after.shape[:2]
        raise Refused(
            f"the maps have {layers} layers of {heads} heads before and {after_layers} of {after_heads} after: "
            "only maps with the same layers and heads can be compared head by head"
        )
    before, after = _select_positions(before, pairs.before), _select_positions(after, pairs.after)
    if before.shape != after.shape:
        raise Refused(
            f"the alignment has {before.shape[-1]} positions before and {after.shape[-1]} after: "
            "it must have pairs of positions"
        )
    return before, after


def _select_positions(maps: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Select queries and keys of maps (..., query, key). Return the same array, not a copy, if all are selected."""
    last = maps.shape[-1] - 1
    indices = [
        require_int("a position", position, 0, last)
        for position in require_sequence("positions", positions, "positions")
    ]
    positions = np.array(indices, int)
    if np.array_equal(positions, np.arange(maps.shape[-1])):
        return maps
    selected: np.ndarray = maps[..., positions[:, None], positions]
    return selected


@validate_arrays(before="layer head query key", after="layer head query key")
def attention_divergence(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Compute the Jensen-Shannon divergence between the attention rows of each head, mean over queries.

    before, after: (layer, head, query, key) of one text. Each row sums to 1.
    Returns (layer, head) float64 in nats, from 0 for equal rows to ln 2 for rows without a common key. A head that is
    NaN (pruned) on either side is NaN.
    Raises Refused if a row does not sum to 1.
    Source: Lin 1991, section IV, applied to attention by Clark 2019, section 6 (arXiv:1906.04341).
    """
    check_rows(before)
    check_rows(after)
    first, second = before.astype(np.float64), after.astype(np.float64)
    divergence = entr((first + second) / 2).sum(-1) - (entr(first).sum(-1) + entr(second).sum(-1)) / 2
    mean: np.ndarray = np.maximum(divergence, 0).mean(-1)  # rounding can make a divergence slightly negative
    return mean


class Change(NamedTuple):
    """A change of one attention weight. `query` and `key` are numbers of pairs of aligned tokens."""

    layer: int
    head: int
    query: int
    key: int
    before: float
    after: float


@validate_arrays(before="layer head query key", after="layer head query key")
def largest_changes(before: np.ndarray, after: np.ndarray, count: int) -> list[Change]:
    """Return the entries in which two maps differ most, the largest difference first.

    Entries that are not finite in either map or do not differ are left out. Equal differences are in index order.

    before, after: (layer, head, query, key).
    count: maximum number of entries.
    """
    count = require_int("count", count)
    sizes = np.abs(after - before).ravel()
    sizes[~np.isfinite(sizes)] = 0
    count = min(count, int(np.count_nonzero(sizes)))
    if not count:
        return []
    # At least `count` entries reach this threshold. The stable sort keeps the first of equal ones.
    threshold = -np.partition(-sizes, count - 1)[count - 1]
    indices = np.nonzero(sizes >= threshold)[0]
    indices = indices[np.argsort(-sizes[indices], kind="stable")][:count]
    return [
        Change(int(layer), int(head), int(query), int(key), float(before.flat[index]), float(after.flat[index]))
        for index, layer, head, query, key in zip(indices, *np.unravel_index(indices, before.shape), strict=True)
    ]

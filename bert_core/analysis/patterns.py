"""Where attention goes, in a few numbers a head, and which part of a map is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.flow import check_rows
from bert_core.analysis.units import check_units, map_of_units, scores_of_units
from bert_core.records import MAPS
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_sequence, short_repr, validate_arrays
from bert_core.tokenizer import Encoding, join_pieces

PARTS = ("all", "A to A", "A to B", "B to A", "B to B")
HEAD_COMBINATIONS = ("average", "maximum", "weighted")  # to have several heads as one map
MIN_ROW_SUM = 1e-6  # of a row; less than that is rounding, and would be blown up


def part_positions(
    encoding: Encoding, part: str, *, hide_special: bool, units: Sequence[Sequence[int]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the queries and of the keys that belong to a part of the map.

    part: of `PARTS`, "all", or from which text to which.
    hide_special: leave the added [CLS] and [SEP] out. Rows are not renormalised by this.
    units: the words, as `word_units` gives them, if the map is one between words; positions then count words.
    Returns two rising integer arrays (query,) and (key,), empty where the text has no such part.
    Raises Refused for an unknown part.
    """
    if part not in PARTS:
        raise Refused(f"part {part!r} is unknown: one of {', '.join(PARTS)}")
    firsts = range(len(encoding)) if units is None else [unit[0] for unit in units]
    sides = np.array([encoding.sides[first] or "" for first in firsts])
    shown = sides != "" if hide_special else np.ones(len(sides), bool)
    if part == "all":
        positions = np.nonzero(shown)[0]
        return positions, positions
    query_side, _, key_side = part.partition(" to ")
    return np.nonzero(sides == query_side)[0], np.nonzero(sides == key_side)[0]


def select_part(maps: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Maps (..., query, key) at rising positions; the very same array where those are all of them."""
    whole = maps.shape[-2:] == (len(queries), len(keys))
    part: np.ndarray = maps if whole else maps[..., queries[:, None], keys[None, :]]
    return part


@validate_arrays(attention="layer head query key")
def attention_entropy(attention: np.ndarray) -> np.ndarray:
    """Mean over queries of how spread out a head's attention is, in nats: 0 for one key, ln(keys) for all alike.

    attention: (layer, head, query, key), each row sums to 1. Returns (layer, head).
    Raises Refused if a row does not.
    """
    check_rows(attention)
    return mean_entropy(attention)


def mean_entropy(attention: np.ndarray) -> np.ndarray:
    """As `attention_entropy`, of shares that are known to be such; a row of zeros, of a head that is off, has none."""
    terms = attention * np.log(np.maximum(attention, np.finfo(np.float32).tiny))
    entropy: np.ndarray = -terms.sum(-1).mean(-1)
    return entropy


@validate_arrays(attention="layer head seq seq")
def mean_distance(attention: np.ndarray) -> np.ndarray:
    """Mean distance in tokens between a query and what it attends to, weighted by attention.

    attention: (layer, head, query, key). Returns (layer, head).
    """
    positions = np.arange(attention.shape[-1])
    distances = np.abs(positions[:, None] - positions[None, :]).astype(np.float32)
    mean: np.ndarray = (attention * distances).sum(-1).mean(-1)
    return mean


@validate_arrays(attention="layer head query key")
def share_to(attention: np.ndarray, keys: Sequence[bool] | np.ndarray) -> np.ndarray:
    """Share of a head's attention that goes to some keys, mean over queries, 0 to 1.

    attention: (layer, head, query, key). keys: boolean (key,). Returns (layer, head).
    Raises Refused for keys that are not boolean, or not as many.
    """
    chosen = require_sequence("keys", keys, "True and False")
    if len(chosen) != attention.shape[-1] or not all(isinstance(one, bool | np.bool_) for one in chosen):
        raise Refused(f"keys is {short_repr(keys)}: it must be True or False for each of {attention.shape[-1]} keys")
    share: np.ndarray = attention[..., np.array(chosen)].sum(-1).mean(-1)
    return share


@compared_by_value
class RoleFigures(NamedTuple):
    """What tells the roles of heads apart, each (layer, head): entropy in nats, share to [SEP], mean distance."""

    entropy: np.ndarray
    to_sep: np.ndarray
    distance: np.ndarray


@validate_arrays(encoding="seq", attention="layer head seq seq")
def role_figures(attention: np.ndarray, encoding: Encoding) -> RoleFigures:
    """Of every head on one text. attention: (layer, head, query, key), each row sums to 1."""
    to_sep = share_to(attention, encoding.has_role("between", "end"))
    return RoleFigures(attention_entropy(attention), to_sep, mean_distance(attention))


def sort_heads(figures: np.ndarray) -> np.ndarray:
    """The heads of each layer, that with the largest figure first, NaN last; (layer, head) integers."""
    order: np.ndarray = np.argsort(-figures, axis=1, kind="stable")
    return order


def readable_word(encoding: Encoding, unit: Sequence[int]) -> str:
    """The pieces of one word as the model reads them, put together; what is hidden is named, "door, hidden"."""
    hidden = [encoding.masked_piece(position) for position in unit]
    tokens = (encoding.tokens[at] if piece is None else piece for at, piece in zip(unit, hidden, strict=True))
    return join_pieces(tokens) + ", hidden" * (hidden[0] is not None)


@validate_arrays(maps="... seq seq")
def map_between_words(maps: np.ndarray, units: Sequence[Sequence[int]], what: str) -> np.ndarray:
    """Maps between words instead of pieces.

    maps: (..., query, key). units: positions of each word's pieces, as `word_units` gives them.
    what: "attention", to a word the sum over its pieces and from it their mean, so rows that summed to 1 still do;
    "brought" the same, of lengths: the vectors of a word's pieces together are at most so long; "product", the sum over
    both, so the whole stays what it was; "gradient", a slope: the mean over both.
    Returns (..., unit, unit).
    Raises Refused for another kind of map, and for units as `scores_of_units`.
    """
    if what not in MAPS:
        raise Refused(f"a map of {what!r} is unknown: one of {', '.join(MAPS)}")
    units = check_units(units, maps.shape[-1])
    if what in ("attention", "brought"):
        return map_of_units(maps, units)
    to_words = scores_of_units(maps, units)
    sums = scores_of_units(to_words.swapaxes(-1, -2), units).swapaxes(-1, -2)
    sizes = np.array([len(unit) for unit in units])
    merged: np.ndarray = sums if what == "product" else sums / np.outer(sizes, sizes)
    return merged


def renormalise_rows(attention: np.ndarray) -> np.ndarray:
    """Rows of a part of a map that sum to 1 again; NaN where not even a millionth of the row is left.

    attention: (..., query, key), not negative.
    """
    left = attention.sum(-1, keepdims=True, dtype=np.float64)
    shares: np.ndarray = np.divide(attention, left, out=np.full(attention.shape, np.nan), where=left >= MIN_ROW_SUM)
    return shares.astype(attention.dtype)


def rows_without_numbers(maps: np.ndarray) -> np.ndarray:
    """Queries whose row has no number in any one of the heads; rising. maps: (head, query, key)."""
    rows: np.ndarray = np.nonzero(np.isnan(maps).all(-1).any(0))[0]
    return rows


@validate_arrays(maps="head query key", weights="head")
def combine_heads(maps: np.ndarray, how: str, weights: np.ndarray | None = None) -> np.ndarray:
    """Several heads as one map, (query, key).

    maps: (head, query, key); heads that are NaN throughout (pruned) are left out, a NaN inside a head stays one.
    how: "average", whose rows still sum to 1; "weighted", the same with `weights` (head,), none of them negative and
    taken as shares of their sum; "maximum", at every place the value furthest from zero, whose rows sum to 1 or more.
    Returns NaN where no head is left.
    Raises Refused for another way, or weights that are negative or all zero.
    """
    if how not in HEAD_COMBINATIONS:
        raise Refused(f"heads combined by {how!r}: one of {', '.join(HEAD_COMBINATIONS)}")
    there = ~np.isnan(maps).all((-1, -2))
    maps = maps[there]
    if not len(maps):
        return np.full(maps.shape[1:], np.nan, np.float32)
    if how == "maximum":
        high, low = maps.max(0), maps.min(0)
        furthest: np.ndarray = np.where(-low > high, low, high)
        return furthest
    if how == "average":
        mean: np.ndarray = maps.mean(0)
        return mean
    if weights is None:
        raise Refused(f"a weighted map of {len(there)} heads needs as many weights")
    shares = np.asarray(weights, np.float64)[there]
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.any()):
        raise Refused("weights must be numbers, none of them negative, and not all zero")
    weighted: np.ndarray = np.tensordot(shares / shares.sum(), maps, 1).astype(maps.dtype)
    return weighted


def sort_layers(figures: np.ndarray) -> np.ndarray:
    """The layers, that with the largest mean over its heads first, one without heads last; (layer,) integers.

    figures: (layer, head), NaN for a head that does not exist.
    """
    there = np.isfinite(figures)
    sums = np.where(there, figures, 0).sum(1)
    means = np.divide(sums, there.sum(1), out=np.full(len(figures), -np.inf), where=there.any(1))
    order: np.ndarray = np.argsort(-means, kind="stable")
    return order

"""Summary numbers of attention patterns per head, and selection and combination of attention maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.flow import check_rows
from bert_core.analysis.units import check_units, map_of_units, scores_of_units
from bert_core.deprecation import renamed_parameters
from bert_core.records import MAPS
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_sequence, short_repr, validate_arrays
from bert_core.tokenizer import Encoding, join_pieces

PARTS = ("all", "A to A", "A to B", "B to A", "B to B")
HEAD_COMBINATIONS = ("average", "maximum", "weighted")
MIN_ROW_SUM = 1e-6  # below this, the rest of a row is rounding error and cannot be renormalised


def part_positions(
    encoding: Encoding, part: str, *, hide_special: bool, units: Sequence[Sequence[int]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the queries and of the keys of a part of an attention map.

    part: one of `PARTS`, "all" or from which sentence to which.
    hide_special: leave out [CLS] and [SEP]. This does not renormalise rows.
    units: positions of the word pieces of each word, as returned by `word_units`, for a map between words. The result
        then contains numbers of words.
    Returns two rising integer arrays, (query,) and (key,), which are empty if the text has no such part.
    Raises Refused if the part is unknown.
    """
    if part not in PARTS:
        raise Refused(f"part {part!r} is unknown: it must be one of {', '.join(PARTS)}")
    firsts = range(len(encoding)) if units is None else [unit[0] for unit in units]
    sides = np.array([encoding.sides[first] or "" for first in firsts])
    visible = sides != "" if hide_special else np.ones(len(sides), bool)
    if part == "all":
        positions = np.nonzero(visible)[0]
        return positions, positions
    query_side, _, key_side = part.partition(" to ")
    return np.nonzero(sides == query_side)[0], np.nonzero(sides == key_side)[0]


def select_part(maps: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Select rising query and key positions of maps (..., query, key). Return the same array if all are selected."""
    is_whole = maps.shape[-2:] == (len(queries), len(keys))
    part: np.ndarray = maps if is_whole else maps[..., queries[:, None], keys[None, :]]
    return part


@validate_arrays(attention="layer head query key")
def attention_entropy(attention: np.ndarray) -> np.ndarray:
    """Compute the entropy of the attention distribution of each head, mean over queries.

    attention: (layer, head, query, key). Each row sums to 1.
    Returns (layer, head) in nats, from 0 (one key) to ln(keys) (uniform).
    Raises Refused if a row does not sum to 1.
    """
    check_rows(attention)
    return mean_entropy(attention)


def mean_entropy(attention: np.ndarray) -> np.ndarray:
    """Compute the same as `attention_entropy` without checking the rows. A row of zeros (ablated head) counts as 0."""
    entropy: np.ndarray = _entropy_of_rows(attention).mean(-1)
    return entropy


def _entropy_of_rows(attention: np.ndarray) -> np.ndarray:
    """Compute the entropy of each row, (layer, head, query) in nats."""
    terms = attention * np.log(np.maximum(attention, np.finfo(np.float32).tiny))
    entropy: np.ndarray = -terms.sum(-1)
    return entropy


def relative_entropy(attention: np.ndarray, possible: np.ndarray | None = None) -> np.ndarray:
    """Compute the entropy of rows divided by the logarithm of the number of possible keys, mean over queries.

    attention: (layer, head, query, key). possible: (layer, query, key) boolean, which keys a query can attend to; None:
        all.
    Returns (layer, head), from 0 (one key) to 1 (uniform over the possible keys). Queries with one possible key are not
    counted; NaN if no query is.
    """
    if possible is None:
        share: np.ndarray = mean_entropy(attention) / np.log(attention.shape[-1])
        return share
    largest = np.log(possible.sum(-1))  # (layer, query)
    shares = _entropy_of_rows(attention) / np.where(largest > 0, largest, 1)[:, None]
    return mean_over_queries(shares, largest > 0)


def mean_over_queries(values: np.ndarray, is_counted: np.ndarray | None) -> np.ndarray:
    """Compute the mean of values (layer, head, query) over the queries that count, (layer, head); NaN if none does.

    is_counted: (layer, query) boolean; None: all queries count.
    """
    if is_counted is None:
        mean: np.ndarray = values.mean(-1)
        return mean
    counts = is_counted.sum(-1)[:, None]
    sums = (values * is_counted[:, None]).sum(-1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def possible_keys(windows: Sequence[int | None], length: int) -> np.ndarray | None:
    """Return which keys each query of each layer can attend to, (layer, query, key) boolean; None for all of them.

    windows: for each layer the largest distance between a query and a key; None for any distance. length: of the text.

    >>> from bert_core.analysis.patterns import possible_keys
    >>> possible_keys((None, 1), 3)[1].astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    if all(window is None or window >= length - 1 for window in windows):
        return None
    distances = abs(np.subtract.outer(np.arange(length), np.arange(length)))
    return np.stack([distances <= (length if window is None else window) for window in windows])


def can_attend_to(keys: np.ndarray, possible: np.ndarray | None) -> np.ndarray | None:
    """Return which queries can attend to at least one of some keys, (layer, query) boolean.

    keys: (key,) boolean. possible: (layer, query, key) boolean; None: every query can attend to every key.
    Returns None if all queries count: without `possible`, and if there is no such key in the text.
    """
    if possible is None or not keys.any():
        return None
    return np.asarray(possible[..., keys].any(-1))


def possible_in(attention: np.ndarray, windows: Sequence[int | None]) -> np.ndarray | None:
    """Return which keys each query can attend to, (layer, query, key) boolean; None if all of them.

    attention: (layer, head, query, key), of a whole text. windows: as in `ModelRun`.
    Raises Refused if there are windows of another number of layers, or maps of a part of a text.
    """
    layers, _, queries, keys = attention.shape
    if not windows:
        return None
    if len(windows) != layers or queries != keys:
        raise Refused(
            f"{len(windows)} windows and attention of shape {attention.shape}: one for each layer is needed, and maps "
            "from all tokens to all tokens"
        )
    return possible_keys(windows, keys)


@validate_arrays(attention="layer head seq seq")
def mean_distance(attention: np.ndarray) -> np.ndarray:
    """Compute the mean distance between query and key, weighted by attention.

    attention: (layer, head, query, key).
    Returns (layer, head) in tokens.
    """
    positions = np.arange(attention.shape[-1])
    distances = np.abs(positions[:, None] - positions[None, :]).astype(np.float32)
    mean: np.ndarray = (attention * distances).sum(-1).mean(-1)
    return mean


@validate_arrays(attention="layer head query key")
def share_to(
    attention: np.ndarray, keys: Sequence[bool] | np.ndarray, *, windows: Sequence[int | None] = ()
) -> np.ndarray:
    """Compute the share of the attention of each head that goes to some keys, mean over queries.

    attention: (layer, head, query, key).
    keys: (key,) boolean.
    windows: those of `ModelRun`. In a local layer, only queries that can attend to one of the keys are counted.
    Returns (layer, head), 0 to 1; NaN for a local layer in which no query can attend to the keys.
    Raises Refused if keys is not boolean or has the wrong length, or if the windows do not fit the attention.
    """
    is_selected = require_sequence("keys", keys, "True and False")
    if len(is_selected) != attention.shape[-1] or not all(isinstance(flag, bool | np.bool_) for flag in is_selected):
        raise Refused(f"keys is {short_repr(keys)}: it must be True or False for each of {attention.shape[-1]} keys")
    selected = np.array(is_selected)
    is_counted = can_attend_to(selected, possible_in(attention, windows))
    return mean_over_queries(attention[..., selected].sum(-1), is_counted)


@compared_by_value
class RoleFigures(NamedTuple):
    """Numbers that distinguish roles of heads, each (layer, head).

    entropy: in nats. to_sep: share of attention to [SEP], 0 to 1. distance: mean distance in tokens.
    relative_entropy: entropy divided by the logarithm of the number of keys, in a local layer of the possible keys.
    """

    entropy: np.ndarray
    to_sep: np.ndarray
    distance: np.ndarray
    relative_entropy: np.ndarray

    @property
    def sort_values(self) -> dict[str, np.ndarray]:
        """Values by which heads of all layers are sorted, by "entropy" (the relative one), "to_sep" and "distance"."""
        return {"entropy": self.relative_entropy, "to_sep": self.to_sep, "distance": self.distance}


@validate_arrays(encoding="seq", attention="layer head seq seq")
def role_figures(attention: np.ndarray, encoding: Encoding, *, windows: Sequence[int | None] = ()) -> RoleFigures:
    """Compute entropy, share to [SEP] and mean distance of every head in one text.

    attention: (layer, head, query, key). Each row sums to 1.
    windows: those of `ModelRun`. In a local layer, only queries that can attend to [SEP] are counted in its share.
    Raises Refused if a row does not sum to 1, or if the windows do not fit the attention.
    """
    entropy = attention_entropy(attention)
    to_sep = share_to(attention, encoding.has_role("between", "end"), windows=windows)
    shares = relative_entropy(attention, possible_in(attention, windows))
    return RoleFigures(entropy, to_sep, mean_distance(attention), shares)


def sort_heads(figures: np.ndarray) -> np.ndarray:
    """Return the heads of each layer by descending value with NaN last, (layer, head) integers."""
    order: np.ndarray = np.argsort(-figures, axis=1, kind="stable")
    return order


def readable_word(encoding: Encoding, unit: Sequence[int]) -> str:
    """Join the word pieces of one word. A masked word has its original pieces and a note: "door (masked)"."""
    original_pieces = [encoding.masked_piece(position) for position in unit]
    tokens = (
        encoding.tokens[position] if piece is None else piece
        for position, piece in zip(unit, original_pieces, strict=True)
    )
    return join_pieces(tokens) + " (masked)" * (original_pieces[0] is not None)


@renamed_parameters(what="kind")
@validate_arrays(maps="... seq seq")
def map_between_words(maps: np.ndarray, units: Sequence[Sequence[int]], kind: str) -> np.ndarray:
    """Aggregate maps between tokens to maps between words.

    maps: (..., query, key).
    units: positions of the word pieces of each word, as returned by `word_units`.
    kind: kind of the maps, which determines the aggregation over word pieces. "attention" is summed over keys and
        averaged over queries, so rows that sum to 1 still do. "brought" (value-weighted attention) is aggregated in the
        same way, which gives an upper bound on the norm of the summed vectors. "product" is summed over both, which
        preserves the total. "gradient" is averaged over both.
    Returns (..., unit, unit).
    Raises Refused if the kind is unknown, there is no unit, a unit is empty, or a position does not exist.
    """
    if kind not in MAPS:
        raise Refused(f"the kind of map {kind!r} is unknown: it must be one of {', '.join(MAPS)}")
    units = check_units(units, maps.shape[-1])
    if kind in ("attention", "brought"):
        return map_of_units(maps, units)
    to_words = scores_of_units(maps, units)
    sums = scores_of_units(to_words.swapaxes(-1, -2), units).swapaxes(-1, -2)
    sizes = np.array([len(unit) for unit in units])
    merged: np.ndarray = sums if kind == "product" else sums / np.outer(sizes, sizes)
    return merged


def renormalise_rows(attention: np.ndarray) -> np.ndarray:
    """Divide the rows of a part of an attention map by their sums.

    attention: (..., query, key), not negative.
    Returns (..., query, key). Each row sums to 1, or is NaN if its sum was below 1e-6.
    """
    sums = attention.sum(-1, keepdims=True, dtype=np.float64)
    shares: np.ndarray = np.divide(attention, sums, out=np.full(attention.shape, np.nan), where=sums >= MIN_ROW_SUM)
    return shares.astype(attention.dtype)


def rows_without_numbers(maps: np.ndarray) -> np.ndarray:
    """Return the rising positions of queries whose row is NaN in at least one head. maps: (head, query, key)."""
    rows: np.ndarray = np.nonzero(np.isnan(maps).all(-1).any(0))[0]
    return rows


@renamed_parameters(how="mode")
@validate_arrays(maps="head query key", weights="head")
def combine_heads(maps: np.ndarray, mode: str, weights: np.ndarray | None = None) -> np.ndarray:
    """Combine the maps of several heads into one map.

    maps: (head, query, key). Heads that are NaN everywhere (pruned) are left out. Other NaN values are propagated.
    mode: "average", "weighted" (weighted average) or "maximum", the value furthest from zero at each place. Averages
        preserve rows that sum to 1. Rows of the maximum sum to at least 1.
    weights: (head,), not negative, for "weighted". They are divided by their sum.
    Returns (query, key), NaN if no head is left.
    Raises Refused if the mode is unknown, weights are missing, or weights are negative, not finite or all zero.
    """
    if mode not in HEAD_COMBINATIONS:
        raise Refused(f"the combination of heads is {mode!r}: it must be one of {', '.join(HEAD_COMBINATIONS)}")
    exists = ~np.isnan(maps).all((-1, -2))
    maps = maps[exists]
    if not len(maps):
        return np.full(maps.shape[1:], np.nan, np.float32)
    if mode == "maximum":
        high, low = maps.max(0), maps.min(0)
        furthest: np.ndarray = np.where(-low > high, low, high)
        return furthest
    if mode == "average":
        mean: np.ndarray = maps.mean(0)
        return mean
    if weights is None:
        raise Refused(f"weights is None: a weighted map of {len(exists)} heads needs one weight for each head")
    shares = np.asarray(weights, np.float64)[exists]
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.any()):
        raise Refused("the weights of heads must be finite and not negative, and at least one must be positive")
    weighted: np.ndarray = np.tensordot(shares / shares.sum(), maps, 1).astype(maps.dtype)
    return weighted


def sort_layers(figures: np.ndarray) -> np.ndarray:
    """Return the layers by descending mean over their heads, (layer,) integers. Layers without heads come last.

    figures: (layer, head), NaN for a pruned head.
    """
    exists = np.isfinite(figures)
    sums = np.where(exists, figures, 0).sum(1)
    means = np.divide(sums, exists.sum(1), out=np.full(len(figures), -np.inf), where=exists.any(1))
    order: np.ndarray = np.argsort(-means, kind="stable")
    return order

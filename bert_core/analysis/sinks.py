"""Heads that look mostly at one token: how much that token brings them, and whether they tell every token the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.patterns import share_to
from bert_core.records.base import compared_by_value
from bert_core.refused import check_finite, validate_arrays

SINK_SHARE = 0.5  # a sink: a token that gets more than this share of a head's attention
SHORT_LENGTH = 0.5  # what it brings is little: its vector is shorter than so many times those of the others
MAX_BROADCAST_RANK = 2.0  # a head brings much the same to every token: what it adds has fewer directions than this


@compared_by_value
class Sinks(NamedTuple):
    """The token that each head of a text looks at most, and what it brings; (layer, head) each.

    token: its position; -1 for a head that is not there. share: of all attention, 0 to 1.
    length: of the vector that it brings, in times of the mean length of the other tokens'; NaN if these bring nothing.
    rank: in how many directions lies what the head adds to the tokens, from 1: the same for all of them but for its
        size. The exponential of the entropy of the squared singular values; NaN where it adds nothing.
    A head that is not there is NaN.
    """

    token: np.ndarray
    share: np.ndarray
    length: np.ndarray
    rank: np.ndarray

    def kind(self, layer: int, head: int) -> str:
        """What the sink of a head does: "nothing", "broadcasts", or "" where it is no sink or neither holds.

        Nothing: more than half of the head's attention goes to a token whose vector is less than half as long as
        the others'. Broadcasts: the vector is not so short, and what the head adds has fewer than two directions.
        Source: after Bondarenko 2023, section 3 (arXiv:2306.12929); the thresholds are ours.
        """
        if not self.share[layer, head] > SINK_SHARE:
            return ""
        if self.length[layer, head] < SHORT_LENGTH:
            return "nothing"
        return "broadcasts" if self.rank[layer, head] < MAX_BROADCAST_RANK else ""


@validate_arrays(attention="layer head query key", values="layer head key width")
def sinks(attention: np.ndarray, values: np.ndarray) -> Sinks:
    """The favourite token of every head, and what it brings.

    attention: probabilities; NaN for a head that was pruned. values: the vectors that each head brings, in coordinates
    in which lengths are those of the states, as `head_values` with `projected` gives them.
    Raises Refused for numbers that are not finite in a head that is there.
    Source: Bondarenko 2023, section 3 (arXiv:2306.12929); the rank after Roy and Vetterli 2007.
    """
    there = ~np.isnan(attention).all((2, 3))
    attention = np.where(there[..., None, None], attention, 0)
    shares, norms = attention.mean(2), np.linalg.norm(values, axis=-1)
    token = shares.argmax(-1)

    def at(figures: np.ndarray) -> np.ndarray:
        return np.take_along_axis(figures, token[..., None], -1)[..., 0]

    others = (norms.sum(-1) - at(norms)) / (norms.shape[-1] - 1)
    figures = at(shares), np.where(others > 0, at(norms) / others, np.nan), effective_rank(attention @ values)
    return Sinks(np.where(there, token, -1), *(np.where(there, figure, np.nan) for figure in figures))


@validate_arrays(vectors="... seq width")
def effective_rank(vectors: np.ndarray) -> np.ndarray:
    """In how many directions some vectors lie, (...,) for vectors (..., seq, width): 1 for one, at most the smaller.

    The exponential of the entropy of the squared singular values, as shares of their sum; NaN where all are zero.
    Raises Refused for vectors that are not finite.
    Source: Roy and Vetterli 2007, with squares.
    """
    check_finite("vectors", vectors)
    wide = vectors.astype(np.float64)
    wide /= np.maximum(np.abs(wide).max((-1, -2), keepdims=True, initial=0), np.finfo(float).tiny)
    squares = np.linalg.eigvalsh(wide.swapaxes(-1, -2) @ wide).clip(min=0)
    total = squares.sum(-1, keepdims=True)
    shares = squares / np.where(total > 0, total, np.nan)
    rank: np.ndarray = np.exp(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(-1))
    return rank


class SinkContribution(NamedTuple):
    """How much of all attention some tokens get, and how much of what is brought comes from them.

    heads: how many give more than half of their attention to them, of so many that are there, `of`.
    attention, brought: mean over these heads of both shares, 0 to 1; NaN where there is no such head.
    """

    heads: int
    head_count: int
    attention: float
    value_weighted: float


@validate_arrays(attention="layer head query key", brought="layer head query key")
def sink_contribution(
    attention: np.ndarray, brought: np.ndarray, keys: Sequence[bool] | np.ndarray
) -> SinkContribution:
    """What the heads that look mostly at some tokens give them, and get from them.

    attention, brought: maps of one run; NaN for a head that was pruned. keys: (key,) boolean, the tokens.
    A head that is off brings nothing, and does not count.
    Raises Refused for keys as `share_to`.
    """
    shares, sums = share_to(attention, keys), brought.sum(-1)
    there = ~np.isnan(brought).all((2, 3)) & (sums > 0).any(-1)
    mostly = there & (shares > SINK_SHARE)
    if not mostly.any():
        return SinkContribution(0, int(there.sum()), float("nan"), float("nan"))
    from_them = brought[..., np.asarray(keys)].sum(-1) / np.where(sums > 0, sums, np.nan)
    got = np.nanmean(from_them[mostly], axis=-1)
    return SinkContribution(int(mostly.sum()), int(there.sum()), float(shares[mostly].mean()), float(got.mean()))

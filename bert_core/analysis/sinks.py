"""Attention sinks: heads that attend mostly to one token, and the value-weighted attention that comes from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.patterns import can_attend_to, possible_in, share_to
from bert_core.deprecation import renamed_fields, renamed_parameters
from bert_core.records.base import compared_by_value
from bert_core.refused import check_finite, validate_arrays

SINK_SHARE = 0.5  # an attention sink gets more than this share of the attention of a head
SHORT_LENGTH = 0.5  # a value vector is short below this multiple of the mean norm of those of the other tokens
MAX_BROADCAST_RANK = 2.0  # below this effective rank the head outputs of all tokens are nearly the same


@compared_by_value
class Sinks(NamedTuple):
    """The token with the most attention of each head of a text. All arrays are (layer, head).

    A pruned head has the token -1, and all other values are NaN.

    token: position of the token.
    share: its share of the attention, mean over the queries that can attend to it, 0 to 1.
    length: norm of its value vector divided by the mean norm of the other tokens. NaN if the others are zero.
    rank: effective rank of the head outputs of all tokens, at least 1. It is 1 if they differ only in length, and NaN
        if all are zero.
    """

    token: np.ndarray
    share: np.ndarray
    length: np.ndarray
    rank: np.ndarray

    def kind(self, layer: int, head: int) -> str:
        """Classify the attention sink of a head as "nothing", "broadcasts", or "" for neither or no sink.

        "nothing": more than half of the attention goes to a token whose value vector is less than half as long as those
        of the other tokens, so the head adds little. "broadcasts": the vector is longer, and the head outputs have an
        effective rank below 2, so the head adds nearly the same vector to every token.

        Source: Bondarenko 2023, section 3 (arXiv:2306.12929). The thresholds are our own.
        """
        if not self.share[layer, head] > SINK_SHARE:
            return ""
        if self.length[layer, head] < SHORT_LENGTH:
            return "nothing"
        return "broadcasts" if self.rank[layer, head] < MAX_BROADCAST_RANK else ""


@validate_arrays(attention="layer head query key", values="layer head key width")
def sinks(attention: np.ndarray, values: np.ndarray, *, windows: Sequence[int | None] = ()) -> Sinks:
    """Find the token with the most attention of each head, and compute what it contributes.

    attention: (layer, head, query, key), attention probabilities. A pruned head is NaN.
    values: (layer, head, key, width), value vectors in coordinates in which norms are those of the hidden states, as
        returned by `head_values` with `projected`.
    windows: those of `ModelRun`.
    Raises Refused if a number of an existing head is not finite, or if the windows do not fit the attention.
    Source: Bondarenko 2023, section 3 (arXiv:2306.12929). The rank is that of Roy and Vetterli 2007.
    """
    exists, possible = ~np.isnan(attention).all((2, 3)), possible_in(attention, windows)
    attention = np.where(exists[..., None, None], attention, 0)
    shares = attention.mean(2) if possible is None else attention.sum(2) / possible.sum(1)[:, None]
    norms = np.linalg.norm(values, axis=-1)
    token = shares.argmax(-1)

    def at_token(figures: np.ndarray) -> np.ndarray:
        return np.take_along_axis(figures, token[..., None], -1)[..., 0]

    mean_norms = (norms.sum(-1) - at_token(norms)) / (norms.shape[-1] - 1)  # of the other tokens
    lengths = np.where(mean_norms > 0, at_token(norms) / mean_norms, np.nan)
    figures = at_token(shares), lengths, effective_rank(attention @ values)
    return Sinks(np.where(exists, token, -1), *(np.where(exists, figure, np.nan) for figure in figures))


@validate_arrays(vectors="... seq width")
def effective_rank(vectors: np.ndarray) -> np.ndarray:
    """Compute the effective rank of sets of vectors: exp(entropy) of the squared singular values as shares.

    vectors: (..., seq, width).
    Returns (...,), from 1 to the smaller of seq and width. It is NaN if all vectors of a set are zero.
    Raises Refused if a number is not finite.
    Source: Roy and Vetterli 2007, here with squared singular values.
    """
    check_finite("vectors", vectors)
    scaled = vectors.astype(np.float64)
    scaled /= np.maximum(np.abs(scaled).max((-1, -2), keepdims=True, initial=0), np.finfo(float).tiny)
    squares = np.linalg.eigvalsh(scaled.swapaxes(-1, -2) @ scaled).clip(min=0)
    total = squares.sum(-1, keepdims=True)
    shares = squares / np.where(total > 0, total, np.nan)
    rank: np.ndarray = np.exp(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(-1))
    return rank


@renamed_fields(of="head_count", brought="value_weighted")
class SinkContribution(NamedTuple):
    """Attention to some tokens compared with their value-weighted attention, over the heads that attend mostly to them.

    heads: number of heads that give more than half of their attention to these tokens.
    head_count: number of all heads that are neither pruned nor ablated.
    attention, value_weighted: share of attention and of value-weighted attention of these tokens, mean over the heads
        that attend mostly to them, 0 to 1. NaN if there is no such head.
    """

    heads: int
    head_count: int
    attention: float
    value_weighted: float


@renamed_parameters(brought="value_weighted")
@validate_arrays(attention="layer head query key", value_weighted="layer head query key")
def sink_contribution(
    attention: np.ndarray,
    value_weighted: np.ndarray,
    keys: Sequence[bool] | np.ndarray,
    *,
    windows: Sequence[int | None] = (),
) -> SinkContribution:
    """Compute the attention and the value-weighted attention of some tokens, over heads that attend mostly to them.

    attention, value_weighted: (layer, head, query, key), maps of one run. A pruned head is NaN. Pruned and ablated
        heads are not counted.
    keys: (key,) boolean, the tokens.
    windows: those of `ModelRun`. In a local layer, only queries that can attend to one of the tokens are counted.
    Raises Refused if keys is not boolean or has the wrong length, or if the windows do not fit the attention.
    """
    shares, sums = share_to(attention, keys, windows=windows), value_weighted.sum(-1)
    exists = ~np.isnan(value_weighted).all((2, 3)) & (sums > 0).any(-1)
    is_sink = exists & (shares > SINK_SHARE)
    if not is_sink.any():
        return SinkContribution(0, int(exists.sum()), float("nan"), float("nan"))
    key_shares = value_weighted[..., np.asarray(keys)].sum(-1) / np.where(sums > 0, sums, np.nan)
    is_counted = can_attend_to(np.asarray(keys), possible_in(attention, windows))
    if is_counted is not None:
        key_shares = np.where(is_counted[:, None], key_shares, np.nan)
    head_shares = key_shares[is_sink]  # (sink, query); NaN for queries without value-weighted attention
    counts = (~np.isnan(head_shares)).sum(-1)
    head_means = np.nansum(head_shares, axis=-1) / np.where(counts > 0, counts, np.nan)
    return SinkContribution(
        int(is_sink.sum()), int(exists.sum()), float(shares[is_sink].mean()), float(head_means.mean())
    )

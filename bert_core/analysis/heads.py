"""Numbers about attention heads: their importance, the agreement of two such numbers, and the heads of one pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_core.analysis.attribution import rank_agreement
from bert_core.analysis.patterns import possible_in
from bert_core.deprecation import renamed_parameters
from bert_core.records.run import ModelRun
from bert_core.refused import require_int, validate_arguments, validate_arrays


@validate_arrays(gate_gradient="layer head")
def removal_estimate(gate_gradient: np.ndarray) -> np.ndarray:
    """Estimate the change of the target without each head, to first order: minus the gradient of its head gate.

    gate_gradient: (layer, head), gradient of the target with respect to the head gates, all of which are 1.
    Returns (layer, head). Its absolute value is the head importance of Michel 2019, equation 2 (arXiv:1905.10650).
    """
    return -gate_gradient


@renamed_parameters(one="first", other="second")
@validate_arrays(first="layer head", second="layer head")
def heads_agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Spearman's rank correlation of two numbers per head.

    first, second: (layer, head). Heads that are NaN in either, such as pruned heads, are not counted.
    Returns -1 to 1, or NaN if fewer than two heads are left or one of the numbers is constant.
    Raises Refused if the shapes differ.
    """
    finite = np.isfinite(first) & np.isfinite(second)
    if finite.sum() < 2:
        return float("nan")
    return float(rank_agreement(np.stack([first[finite], second[finite]]))[0, 1])


@validate_arrays(importance="layer head")
def layer_normalised(importance: np.ndarray) -> np.ndarray:
    """Divide the importance of each head by the L2 norm of its layer, which makes layers comparable.

    importance: (layer, head). NaN (pruned heads) stays NaN and is not counted. A layer of zeros stays zero.
    Returns (layer, head).
    Source: Michel 2019, section 4.1, after Molchanov 2017 (arXiv:1611.06440).
    """
    lengths = np.sqrt(np.nansum(importance**2, axis=1, keepdims=True))
    normalised: np.ndarray = importance / np.where(lengths > 0, lengths, 1)
    return normalised


@validate_arrays(attention="layer head query key")
def most_relevant_head(
    attention: np.ndarray, queries: Sequence[int], is_word: np.ndarray, effects: np.ndarray | None = None
) -> tuple[int, int] | None:
    """Return the head with the largest product of attention from some queries to another word and effect.

    attention: (layer, head, query, key), NaN for pruned heads. queries: positions; the mean over them counts. is_word:
    (key,), whether a key counts, which [CLS] and [SEP] should not. effects: (layer, head), effect of each head on a
    target, of which the absolute value counts; None: all equal.
    Returns (layer, head); None if no head attends to another word.
    """
    queries = list(queries)
    if not queries:
        return None
    to_words = np.nan_to_num(attention[:, :, queries]) * is_word
    to_words[..., np.arange(len(queries)), queries] = 0
    scores = to_words.max(-1, initial=0).mean(-1)
    if effects is not None:
        scores = scores * np.abs(np.nan_to_num(effects))
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    return (int(layer), int(head)) if scores.any() else None


@validate_arrays(figures="layer head")
def leading_heads(figures: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the heads with the largest values as (layer, head), the largest first.

    figures: (layer, head). Heads that are not finite, such as pruned heads, are left out.
    count: maximum number of heads.

    >>> import numpy as np
    >>> import bert_core
    >>> bert_core.leading_heads(np.array([[0.1, 0.7], [np.nan, 0.4]]), 2)
    [(0, 1), (1, 1)]
    """
    count = require_int("count", count)
    order = np.argsort(-figures, axis=None, kind="stable")
    heads = [divmod(int(index), figures.shape[1]) for index in order if np.isfinite(figures.flat[index])]
    return heads[:count]


class PairHead(NamedTuple):
    """Attention of one head from one token of a text to another.

    weight: attention weight, 0 to 1.
    percentile: percentage of all (query, key) pairs of the text with a smaller attention weight in this head, below
        100; in a local layer, of the pairs within its window.
    """

    layer: int
    head: int
    weight: float
    percentile: float


@validate_arguments
def find_heads(run: ModelRun, query: int, key: int) -> list[PairHead]:
    """Rank the heads by their attention weight from one token to another, the largest first.

    Equal weights are in the order of layer and head. Pruned heads are left out, and those of local layers whose window
    is smaller than the distance of the two tokens.

    query, key: positions of the two tokens.
    Raises Refused if a position does not exist, or the run has no maps of it.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> run = bert_core.capture(loaded, loaded.tokenizer.encode("She opened the [MASK] and walked in."))
    >>> for head in bert_core.find_heads(run, query=4, key=2)[:2]:  # from [MASK] to "opened"
    ...     print(f"L{head.layer} H{head.head}: {head.weight:.2f}")
    L4 H11: 1.00
    L3 H8: 0.88
    """
    start, stop = run.token_range or (0, len(run.encoding))
    query, key = (require_int(name, value, start, stop - 1) - start for name, value in (("query", query), ("key", key)))
    layers = range(len(run.attention)) if run.layers is None else run.layers
    weights = run.attention[:, :, query, key]
    possible = possible_in(run.attention, run.windows)
    is_smaller = run.attention < weights[..., None, None]
    if possible is None:
        percentiles = 100 * is_smaller.mean((-2, -1))
    else:
        percentiles = 100 * (is_smaller & possible[:, None]).sum((-2, -1)) / possible.sum((-2, -1))[:, None]
        weights = np.where(possible[:, None, query, key], weights, np.nan)
    return [
        PairHead(layers[layer], head, float(weights[layer, head]), float(percentiles[layer, head]))
        for layer, head in leading_heads(weights, weights.size)
    ]

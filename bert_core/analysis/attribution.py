"""Attribution from attention maps, gradients and norms to one score per token, and the agreement of two methods."""

from __future__ import annotations

import numpy as np

from bert_core.analysis.flow import mean_of_heads, product_of_layers
from bert_core.refused import Refused, check_finite, validate_arrays
from bert_core.tokenizer import Encoding

# ---------------------------------------------------------------------------- maps and gradients


@validate_arrays(attention="layer head query key", gradient="layer head query key")
def gradient_attention(attention: np.ndarray, gradient: np.ndarray, *, clip: bool = False) -> np.ndarray:
    """Compute gradient x attention, the first-order attribution of the target to each attention weight.

    attention, gradient: (layer, head, query, key).
    clip: set negative products to 0. A map whose products are all negative then becomes empty.
    Returns (layer, head, query, key). Without clip, the sum over queries and keys equals the gradient of the target
    with respect to the head gate.
    Source: ALBEF (arXiv:2107.07651) and Barkan 2021. The sum is that of Michel 2019 (arXiv:1905.10650).
    """
    product: np.ndarray = attention * gradient
    return np.maximum(product, 0) if clip else product


@validate_arrays(attention="layer head seq seq", gradient="layer head seq seq")
def gradient_relevance(attention: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Compute the relevance of each input position from gradient-weighted attention through all layers.

    Each layer adds the positive part of its gradient x attention, averaged over heads, to the relevance so far.

    attention, gradient: (layer, head, query, key).
    Returns (query, key), not negative, without the identity. It is 0 everywhere if no product is positive. The rows of
    the target (`Target.rows`), its masked position or [CLS], hold the attribution of the target.
    Source: Chefer 2021 (ICCV), equations 5 and 6 (arXiv:2103.15679).
    """
    length = attention.shape[-1]
    relevance = np.eye(length)
    for layer in mean_of_heads(gradient_attention(attention, gradient, clip=True)):
        relevance = relevance + layer @ relevance
    return relevance - np.eye(length)


@validate_arrays(attention="... query key", values="... key size")
def effective_attention(attention: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Compute effective attention, the component of each attention row that affects the output of the head.

    attention: (..., query, key). Rows may contain negative numbers and need not sum to 1.
    values: (..., key, head size), the value vectors of the same heads.
    Returns (..., query, key), the rows minus their projection onto the left null space of the values. The product with
    the values is the same as that of attention. The result equals attention if the values are linearly independent.
    That requires no more keys than the head size, and then it almost always holds.
    Raises Refused if a value is not finite.
    Source: Brunner 2020, section 3 (arXiv:1908.04211).
    """
    check_finite("values", values)
    directions, sizes, _ = np.linalg.svd(values.astype(np.float64), full_matrices=False)
    floor = sizes.max(-1, keepdims=True) * max(values.shape[-2:]) * np.finfo(np.float32).eps
    directions = directions * (sizes > floor)[..., None, :]  # (..., key, rank), the column space of the values
    effective: np.ndarray = attention @ directions @ directions.swapaxes(-1, -2)
    return effective


# ---------------------------------------------------------------------------- norms and layers to tokens


def normalise_rows(maps: np.ndarray) -> np.ndarray:
    """Divide each row by its sum, which gives the share of each key. A row of zeros stays zero.

    maps: (..., query, key), not negative.
    Returns (..., query, key), 0 to 1.
    Raises Refused if a number is negative or not finite.
    """
    if (maps < 0).any():
        raise Refused(f"a contribution is {np.nanmin(maps):.3g}: contributions to normalise must not be negative")
    sums = maps.sum(-1, keepdims=True, dtype=np.float64)
    if not np.isfinite(sums).all():
        raise Refused("the sum of a row of contributions is not finite: every contribution must be finite")
    shares: np.ndarray = np.divide(maps, sums, out=np.zeros(maps.shape), where=sums > 0)
    return shares


@validate_arrays(norms="layer seq seq")
def norm_rollout(norms: np.ndarray, *, residual: bool) -> np.ndarray:
    """Combine the contribution norms of all layers into the share of each input position in each output position.

    norms: (layer, query, key), not negative.
    residual: add the residual connection as half of each layer, for norms that do not include it. ALTI, GlobEnc, value
        zeroing and the norms of 2021 include it.
    Returns (layer, query, key). Every row sums to 1. A row of zeros, as in a layer without heads, acts as the identity.
    Raises Refused if a norm is negative or not finite.
    Source: Abnar & Zuidema 2020 (arXiv:2005.00928), applied to norms by Modarressi 2022 (arXiv:2205.03286).
    """
    return product_of_layers(layer_shares(norms, residual=residual))


def layer_shares(norms: np.ndarray, *, residual: bool) -> np.ndarray:
    """Normalise the contribution norms of each layer to shares, whose product is that of `norm_rollout`.

    norms, residual: as for `norm_rollout`.
    Returns (layer, query, key). Every row sums to 1. A row of zeros becomes a row of the identity.
    Raises Refused if a norm is negative or not finite.
    """
    shares, identity = normalise_rows(norms), np.eye(norms.shape[-1])
    shares = np.where(shares.any(-1, keepdims=True), shares, identity)
    return (shares + identity) / 2 if residual else shares


# ---------------------------------------------------------------------------- agreement


@validate_arrays(scores="method token")
def rank_agreement(scores: np.ndarray, kind: str = "spearman") -> np.ndarray:
    """Compute the rank correlation of each pair of methods over the same tokens.

    scores: (method, token).
    kind: "spearman", the correlation of ranks, where equal scores share their mean rank, or "kendall", tau-b.
    Returns (method, method), symmetric, from -1 (reverse order) to 1 (same order), with 1 on the diagonal. A method
    that gives the same score to all tokens is NaN.
    Raises Refused if the kind is unknown, or there are fewer than two tokens.

    >>> import numpy as np
    >>> import bert_core
    >>> bert_core.rank_agreement(np.array([[1, 2, 3, 4], [1, 3, 2, 4], [4, 3, 2, 1]])).round(2)
    array([[ 1. ,  0.8, -1. ],
           [ 0.8,  1. , -0.8],
           [-1. , -0.8,  1. ]])
    """
    if kind not in ("spearman", "kendall"):
        raise Refused(f"the kind of agreement is {kind!r}: it must be 'spearman' or 'kendall'")
    if scores.shape[-1] < 2:
        raise Refused(f"the number of tokens is {scores.shape[-1]}: a rank correlation needs at least two")
    # (method, token, token), which of two tokens has the higher score. Sums over the last axis are ranks plus a
    # constant.
    order = np.sign(scores[:, :, None] - scores[:, None, :])
    compared = order.sum(-1) if kind == "spearman" else order.reshape(len(scores), -1)
    products = compared @ compared.T
    sizes = np.sqrt(np.diag(products))
    scale = np.outer(sizes, sizes)
    agreement: np.ndarray = np.divide(products, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    return agreement


def scaled_rows(scores: np.ndarray) -> np.ndarray:
    """Divide each row by its largest absolute value, which makes methods with different units comparable.

    scores: (..., token).
    Returns (..., token), -1 to 1. A row of zeros stays zero.
    """
    largest = np.abs(scores).max(-1, keepdims=True)
    scaled: np.ndarray = np.divide(scores, largest, out=np.zeros(np.shape(scores)), where=largest > 0)
    return scaled


def side_totals(scores: np.ndarray, encoding: Encoding) -> dict[str, float]:
    """Sum the scores over the tokens of sentence A ("A"), of sentence B ("B") and over [CLS] and [SEP] ("special").

    scores: (token,).
    Returns the three sums, which add up to the sum of all scores.
    """
    sides = np.array([side or "special" for side in encoding.sides])
    return {name: float(scores[sides == name].sum()) for name in ("A", "B", "special")}

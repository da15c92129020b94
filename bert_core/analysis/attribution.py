"""From maps, gradients and norms to one number a token, and how far two methods agree."""

from __future__ import annotations

import numpy as np

from bert_core.analysis.flow import mean_of_heads, product_of_layers
from bert_core.refused import Refused, check_finite, validate_arrays
from bert_core.tokenizer import Encoding

# ---------------------------------------------------------------------------- maps and gradients


@validate_arrays(attention="layer head query key", gradient="layer head query key")
def gradient_attention(attention: np.ndarray, gradient: np.ndarray, *, clip: bool = False) -> np.ndarray:
    """Gradient x attention: to first order, what the target owes to each probability.

    attention, gradient: (layer, head, query, key). clip: negative products become 0; where all of a map are negative,
    an empty picture is what is left of it.
    Returns the same shape. Summed over queries and keys, unclipped, it is the gradient of the head's gate, exactly.
    Source: the hooks of ALBEF (arXiv:2107.07651); Barkan 2021; the sum: Michel 2019 (arXiv:1905.10650).
    """
    product: np.ndarray = attention * gradient
    return np.maximum(product, 0) if clip else product


@validate_arrays(attention="layer head seq seq", gradient="layer head seq seq")
def gradient_relevance(attention: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Gradient-weighted attention through all layers; each layer adds to what has arrived, and nothing is taken away.

    attention, gradient: (layer, head, query, key). Returns (query, key), never negative, the identity left out: 0
    everywhere where no product is positive. Read the target's row (`Target.rows`): its [MASK], or [CLS].
    Source: Chefer 2021 (ICCV), equations 5 and 6 (arXiv:2103.15679).
    """
    length = attention.shape[-1]
    relevance = np.eye(length)
    for layer in mean_of_heads(gradient_attention(attention, gradient, clip=True)):
        relevance = relevance + layer @ relevance
    return relevance - np.eye(length)


@validate_arrays(attention="... query key", values="... key size")
def effective_attention(attention: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The part of each row that makes a difference to what the head gives; the rest lands on nothing.

    attention: (..., query, key). values: (..., key, head size), the value vectors of the same heads.
    Returns (..., query, key): the rows less their projection on the left null space of the values, so that its product
    with the values is that of attention. It equals attention where the values are linearly independent, which needs no
    more keys than the head size (and fails then only by chance): say so, and do not draw two equal pictures.
    Rows may hold negative numbers and need not sum to 1. Raises Refused for values that are not finite.
    Source: Brunner 2020, section 3 (arXiv:1908.04211).
    """
    check_finite("values", values)
    directions, sizes, _ = np.linalg.svd(values.astype(np.float64), full_matrices=False)
    floor = sizes.max(-1, keepdims=True) * max(values.shape[-2:]) * np.finfo(np.float32).eps
    directions = directions * (sizes > floor)[..., None, :]  # (..., key, rank): what the values reach
    effective: np.ndarray = attention @ directions @ directions.swapaxes(-1, -2)
    return effective


# ---------------------------------------------------------------------------- norms and layers to tokens


def normalise_rows(maps: np.ndarray) -> np.ndarray:
    """Rows divided by their sum, so that each is how a query shares itself out; a row of zeros stays one.

    maps: (..., query, key), not negative. Returns the same shape.
    Raises Refused for a number that is negative, or not finite.
    """
    if (maps < 0).any():
        raise Refused(f"a contribution is {np.nanmin(maps):.3g}: shares are made of numbers that are not negative")
    sums = maps.sum(-1, keepdims=True, dtype=np.float64)
    if not np.isfinite(sums).all():
        raise Refused("a row of contributions does not sum to a finite number: it has no shares")
    shares: np.ndarray = np.divide(maps, sums, out=np.zeros(maps.shape), where=sums > 0)
    return shares


@validate_arrays(norms="layer seq seq")
def norm_rollout(norms: np.ndarray, *, residual: bool) -> np.ndarray:
    """Norms of contributions, layer by layer, to what each input position gives to each position at the top.

    norms: (layer, query, key), not negative. residual: whether the norms lack the residual connection; then half of
    each layer is the identity. ALTI, GlobEnc, value zeroing and the norms of 2021 hold it already.
    Returns (layer, query, key), every row sums to 1. A row of norms that is all 0, as in a layer without heads, moves
    nothing: it is the identity's.
    Source: Abnar & Zuidema 2020 (arXiv:2005.00928), of norms: Modarressi 2022 (arXiv:2205.03286).
    """
    shares = normalise_rows(norms)
    shares = np.where(shares.any(-1, keepdims=True), shares, np.eye(shares.shape[-1]))
    if residual:
        shares = (shares + np.eye(shares.shape[-1])) / 2
    return product_of_layers(shares)


# ---------------------------------------------------------------------------- agreement


@validate_arrays(scores="method token")
def rank_agreement(scores: np.ndarray, kind: str = "spearman") -> np.ndarray:
    """How alike two methods order the same tokens: 1 the same order, 0 none, -1 the reverse.

    scores: (method, token). kind: "spearman", the correlation of ranks, equals sharing their mean; or "kendall", tau-b.
    Returns (method, method), symmetric, 1 on the diagonal; NaN for a method that gives all tokens the same.
    Raises Refused for another kind, or fewer than two tokens.
    """
    if kind not in ("spearman", "kendall"):
        raise Refused(f"agreement {kind!r} is unknown: 'spearman' or 'kendall'")
    if scores.shape[-1] < 2:
        raise Refused(f"{scores.shape[-1]} tokens have no order: it takes two")
    # Of every two tokens, which stands higher: the sums over the second are the ranks, up to a constant.
    order = np.sign(scores[:, :, None] - scores[:, None, :])
    compared = order.sum(-1) if kind == "spearman" else order.reshape(len(scores), -1)
    products = compared @ compared.T
    sizes = np.sqrt(np.diag(products))
    scale = np.outer(sizes, sizes)
    agreement: np.ndarray = np.divide(products, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    return agreement


def scaled_rows(scores: np.ndarray) -> np.ndarray:
    """Each row divided by its largest size, so that methods of other units can stand side by side.

    scores: (..., token). Returns the same shape, -1 to 1; a row of zeros stays one.
    """
    largest = np.abs(scores).max(-1, keepdims=True)
    scaled: np.ndarray = np.divide(scores, largest, out=np.zeros(np.shape(scores)), where=largest > 0)
    return scaled


def side_totals(scores: np.ndarray, encoding: Encoding) -> dict[str, float]:
    """What the tokens of each text sum to, and the added [CLS] and [SEP]: "A", "B" and "special".

    scores: (token,). The three sum to all there is.
    """
    sides = np.array([side or "special" for side in encoding.sides])
    return {name: float(scores[sides == name].sum()) for name in ("A", "B", "special")}

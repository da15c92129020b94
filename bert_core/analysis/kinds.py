"""What attention and its gradient do with kinds of tokens: [CLS], [SEP], punctuation and the rest."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

import numpy as np

from bert_core.records.base import compared_by_value
from bert_core.refused import validate_arrays
from bert_core.tokenizer import CLS, SEP, Encoding, SpecialTokens

TOKEN_KINDS = (CLS, SEP, "punctuation", "other")


@compared_by_value
class KindFigures(NamedTuple):
    """By layer and kind of the key, in the order of TOKEN_KINDS.

    share: (layer, kind), of the attention, mean over heads and queries; sums to 1 over the kinds.
    tokens: (kind,), the share of the tokens: what evenly spread attention would give.
    gradient: (layer, kind), mean size of the target's gradient there over heads, queries and keys; None without one.
    A kind that no token has is 0 in the shares and NaN in the gradient.
    """

    share: np.ndarray
    tokens: np.ndarray
    gradient: np.ndarray | None


def kind_names(special_tokens: SpecialTokens) -> tuple[str, ...]:
    """The TOKEN_KINDS as a model writes them."""
    return (special_tokens.first, special_tokens.end, *TOKEN_KINDS[2:])


def token_kinds(encoding: Encoding) -> np.ndarray:
    """The kind of each token as a number in TOKEN_KINDS, (seq,)."""
    kinds = np.full(len(encoding), TOKEN_KINDS.index("other"))
    for position, (token, duty) in enumerate(zip(encoding.tokens, encoding.roles, strict=True)):
        if duty in ("first", "between", "end"):
            kinds[position] = TOKEN_KINDS.index(CLS if duty == "first" else SEP)
        elif all(unicodedata.category(sign).startswith("P") for sign in token.removeprefix("##")):
            kinds[position] = TOKEN_KINDS.index("punctuation")
    return kinds


@validate_arrays(encoding="key", attention="layer head query key", gradient="layer head query key")
def kind_figures(attention: np.ndarray, gradient: np.ndarray | None, encoding: Encoding) -> KindFigures:
    """Where attention goes by kind of token, and how much it would matter there.

    attention, gradient: (layer, head, query, key). Much attention to a kind with a small gradient is attention that
    does little: the "no-op" reading of [SEP].
    Source: Clark 2019, figures 2 and 3 (arXiv:1906.04341).
    """
    belongs = token_kinds(encoding)[None] == np.arange(len(TOKEN_KINDS))[:, None]  # (kind, key)
    share = attention.mean((1, 2)) @ belongs.T
    mean_gradient = None if gradient is None else np.abs(gradient).mean((1, 2)) @ belongs.T / belongs.sum(1)
    return KindFigures(share, belongs.mean(1), mean_gradient)

"""Attention to kinds of tokens ([CLS], [SEP], punctuation and others), and the gradient of the target there."""

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
    """Attention and gradient by layer and kind of the key, in the order of `TOKEN_KINDS`.

    share: (layer, kind), share of attention, mean over heads and queries. The shares of all kinds sum to 1.
    tokens: (kind,), share of the tokens, which is the share of uniform attention.
    gradient: (layer, kind), mean absolute gradient of the target over heads, queries and keys. None without a gradient.
    A kind without tokens is 0 in the shares and NaN in the gradient.
    """

    share: np.ndarray
    tokens: np.ndarray
    gradient: np.ndarray | None


def kind_names(special_tokens: SpecialTokens) -> tuple[str, ...]:
    """Return the names of `TOKEN_KINDS` with the special tokens of a model."""
    return (special_tokens.first, special_tokens.end, *TOKEN_KINDS[2:])


def token_kinds(encoding: Encoding) -> np.ndarray:
    """Return the kind of each token as an index into `TOKEN_KINDS`, (seq,)."""
    kinds = np.full(len(encoding), TOKEN_KINDS.index("other"))
    for position, (token, role) in enumerate(zip(encoding.tokens, encoding.roles, strict=True)):
        if role in ("first", "between", "end"):
            kinds[position] = TOKEN_KINDS.index(CLS if role == "first" else SEP)
        elif all(unicodedata.category(character).startswith("P") for character in token.removeprefix("##")):
            kinds[position] = TOKEN_KINDS.index("punctuation")
    return kinds


@validate_arrays(encoding="key", attention="layer head query key", gradient="layer head query key")
def kind_figures(attention: np.ndarray, gradient: np.ndarray | None, encoding: Encoding) -> KindFigures:
    """Compute the share of attention to each kind of token, and the gradient of the target with respect to it.

    Much attention to a kind with a small gradient has little effect, which is the "no-op" interpretation of [SEP].

    attention, gradient: (layer, head, query, key).
    Source: Clark 2019, figures 2 and 3 (arXiv:1906.04341).
    """
    is_kind = token_kinds(encoding)[None] == np.arange(len(TOKEN_KINDS))[:, None]  # (kind, key)
    share = attention.mean((1, 2)) @ is_kind.T
    mean_gradient = None if gradient is None else np.abs(gradient).mean((1, 2)) @ is_kind.T / is_kind.sum(1)
    return KindFigures(share, is_kind.mean(1), mean_gradient)

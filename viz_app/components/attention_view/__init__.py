"""The view of the heads of one layer: as curves from queries to keys, as a matrix, or with their vectors.

This package defines the message to the browser, in the app and in an exported page; `view` shows it in the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from viz_app.components import HATCHING_STYLE, TIP, TIP_STYLE
from viz_app.components.attention_view.packing import CODES
from viz_app.figures.style import DIVERGING, HEAD_COLOURS, SENTENCE_TINTS, SEQUENTIAL, current_look
from viz_app.tokens import Token

Side = Literal["query", "key"]
STRONGEST = 12  # edges in the table
LONGEST_ASK = 64  # rows and columns sent exactly at a time
MIN_SHARE, MAX_SHARE = 0.05, 1.0
COMBINED = -1  # stands for a head where several are one map


@dataclass(frozen=True)
class ViewChoice:
    """The selection in the view.

    heads: the drawn heads, the first of which is opened. side, positions: of the tokens selected in one column.
    kept_share: share of each row that the drawn curves add up to, 0 to 1.
    """

    layer: int
    heads: tuple[int, ...]
    side: Side = "query"
    positions: tuple[int, ...] = ()
    kept_share: float = 0.7


class Vectors(NamedTuple):
    """The vectors from which the opened head computes its attention.

    queries: (query, head size). keys: (key, head size). distances: (query, key), the terms of relative positions
    in the scaled products, or None. causal: whether a query attends only to earlier tokens.
    root_terms: factor of the head size under the root by which products are divided.
    window: the largest distance of a key in a local layer, or None. rotated: whether positions rotate the vectors.
    """

    queries: np.ndarray
    keys: np.ndarray
    distances: np.ndarray | None = None
    causal: bool = False
    root_terms: int = 1
    window: int | None = None
    rotated: bool = False


# The part of every message that depends on nothing.
CONSTANTS: dict[str, Any] = {
    "codes": CODES,
    "longestAsk": LONGEST_ASK,
    "keeps": [MIN_SHARE, MAX_SHARE],
    "signColours": DIVERGING,
    "headColours": HEAD_COLOURS,
    "tints": SENTENCE_TINTS,
}
_FOLDER = Path(__file__).parent
# Also part of an exported page (`viz_app.export.page`).
MARKUP = '<div class="view"></div>' + TIP
STYLE = TIP_STYLE + HATCHING_STYLE + (_FOLDER / "attention_view.css").read_text("utf-8")


def fixed_header(
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    layers: int,
    heads: int,
    signed: bool,
    unit: str,
) -> dict[str, Any]:
    """Return the part of the message to the browser that does not depend on the selected layer and heads."""
    return {
        "layers": layers,
        "count": heads,
        "signed": signed,
        "unit": unit,
        "queries": [[token.text, token.position, token.side] for token in queries],
        "keys": [[token.text, token.position, token.side] for token in keys],
        "lecture": current_look().lecture,
        "colours": DIVERGING if signed else SEQUENTIAL,
    } | CONSTANTS

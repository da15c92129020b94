"""The heads of one layer: as curves from who looks to who is looked at, as a matrix, or down to their vectors.

Here is what a browser gets and is told, in the app as in a page of its own; `view` shows it in the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from viz_app.components import TIP, TIP_STYLE
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
    """What can be chosen in the view.

    heads: those drawn, the first is the one opened. side, positions: the tokens selected in one of the columns.
    kept: the share of each row that the drawn curves hold.
    """

    layer: int
    heads: tuple[int, ...]
    side: Side = "query"
    positions: tuple[int, ...] = ()
    kept: float = 0.7


class Vectors(NamedTuple):
    """What the opened head makes its attention from.

    queries: (query, head size). keys: (key, head size). distances: (query, key), what relative positions add to the
    scaled products, or None. causal: whether a query sees only what stands before it.
    """

    queries: np.ndarray
    keys: np.ndarray
    distances: np.ndarray | None = None
    causal: bool = False


_FOLDER = Path(__file__).parent
# What the browser gets; the same stands in a page of its own (`viz_app.export.page`).
MARKUP = '<div class="view"></div>' + TIP
STYLE = TIP_STYLE + (_FOLDER / "attention_view.css").read_text("utf-8")


def fixed_header(
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    layers: int,
    heads: int,
    signed: bool,
    unit: str,
) -> dict[str, Any]:
    """What the browser is told whichever layer and heads are chosen."""
    return {
        "layers": layers,
        "count": heads,
        "signed": signed,
        "unit": unit,
        "queries": [[token.text, token.position, token.side] for token in queries],
        "keys": [[token.text, token.position, token.side] for token in keys],
        "lecture": current_look().lecture,
        "codes": CODES,
        "longestAsk": LONGEST_ASK,
        "keeps": [MIN_SHARE, MAX_SHARE],
        "colours": DIVERGING if signed else SEQUENTIAL,
        "signColours": DIVERGING,
        "headColours": HEAD_COLOURS,
        "tints": SENTENCE_TINTS,
    }

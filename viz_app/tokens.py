"""What a view of maps speaks of: the tokens beside its rows and columns, and several heads as one map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Token:
    """What stands in a column: a piece or a word.

    position: of its first piece in the text as the model reads it; a selection names it by this.
    side: the sentence it belongs to, None for an added [CLS] or [SEP].
    """

    text: str
    position: int
    side: Literal["A", "B"] | None = None


class Combined(NamedTuple):
    """Several heads as one map, drawn in their stead.

    name: what it is, "average of H0, H5". map: (query, key).
    """

    name: str
    map: np.ndarray

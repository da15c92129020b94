"""All heads at once: a grid of layers by heads, to choose one or to switch them off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class HeadClick:
    """A head was clicked; head None is the whole layer, layer None is that head in all layers."""

    layer: int | None
    head: int | None


def head_grid(
    *,
    layers: int,
    heads: int,
    thumbnails: np.ndarray | None = None,
    values: np.ndarray | None = None,
    signed: bool = False,
    mode: Literal["select", "switch"] = "select",
    selected: tuple[int, int] | None = None,
    off: Collection[tuple[int, int]] = (),
    titles: Sequence[Sequence[str]] = (),
    key: str,
    lecture: bool = False,
    on_click: Callable[[HeadClick], None] | None = None,
) -> HeadClick | None:
    """A cell for each head, layer 0 on top; returns what was clicked, in the one run that the click started.

    thumbnails: uint8 (layer, head, rows, columns), as `figures.thumbnails` makes them; painted into the cells.
    values: (layer, head); without thumbnails they colour the cells. NaN is a head that does not exist (pruned).
    signed: the bytes or values have their zero in the middle.
    mode: "select", a click chooses a head; "switch", a click turns it off or on, also for a layer or a column.
    selected: the chosen head. off: the heads that are switched off. titles: (layer, head) texts for hover.
    on_click: called with the click before that run, so that what it changes is already seen by the whole page.
    Raises ValueError for shapes that do not fit layers and heads.
    """
    return None

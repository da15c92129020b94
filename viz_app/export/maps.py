"""The maps of a text as they are looked at: which quantity, which part, between pieces or between words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bert_core.analysis.attribution import word_units
from bert_core.analysis.patterns import map_between_words, part_of, part_positions, renormalised, word_as_read
from bert_core.record import ModelRun
from viz_app.components.attention_view import Token

UNITS = {"attention": "attention", "gradient": "gradient", "product": "attention × gradient"}


@dataclass(frozen=True)
class ShownMaps:
    """What goes into a file, whatever its kind.

    values: (layer, head, query, key) float32, read-only; a head that is NaN throughout does not exist (pruned).
    queries, keys: what stands at each row and column. what: "attention", "gradient" or "product".
    there: (layer, head), which exist. off: the heads that are switched off. notes: what is said of the rows.
    """

    values: np.ndarray
    queries: tuple[Token, ...]
    keys: tuple[Token, ...]
    what: str
    there: np.ndarray
    off: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def signed(self) -> bool:
        """Whether values have a sign: all but attention itself."""
        return self.what != "attention"

    @property
    def unit(self) -> str:
        """What a value is, in words."""
        return UNITS[self.what]

    def pruned(self, layer: int) -> list[int]:
        """The heads of a layer that do not exist."""
        return [head for head, there in enumerate(self.there[layer]) if not there]

    def check(self, layer: int, heads: Iterable[int] = ()) -> None:
        """Raise ValueError unless the layer and each of the heads exist."""
        layers, count = self.values.shape[:2]
        if layer not in range(layers):
            raise ValueError(f"layer {layer} does not exist: this model has layers 0 to {layers - 1}")
        gone = self.pruned(layer)
        for head in heads:
            if head not in range(count) or head in gone:
                pruned = f" ({', '.join(map(str, gone))} pruned)" if gone else ""
                raise ValueError(
                    f"head {head} does not exist in layer {layer}: this model has heads 0 to {count - 1}{pruned}"
                )


@dataclass(frozen=True)
class MapView:
    """What of the maps is looked at, and how.

    what, part, hide_special, words, renormalise: as `shown_maps` takes them. layer: which one.
    heads: those drawn; none is all heads of all layers, small. mode: "curves", or the first of the heads as a "matrix".
    kept: the share of a head that the drawn curves hold, above 0 to 1.
    Raises ValueError for another mode or share.
    """

    what: str = "attention"
    part: str = "all"
    hide_special: bool = False
    words: bool = False
    renormalise: bool = False
    layer: int = 0
    heads: tuple[int, ...] = (0,)
    mode: Literal["curves", "matrix"] = "curves"
    kept: float = 0.7

    def __post_init__(self) -> None:
        if self.mode not in ("curves", "matrix"):
            raise ValueError(f"mode {self.mode!r}: 'curves' or 'matrix'")
        if not 0 < self.kept <= 1:
            raise ValueError(f"the share that is kept is {self.kept}: above 0, to 1")

    def of(self, run: ModelRun) -> ShownMaps:
        """The maps of a run that this view shows; raises as `shown_maps` does, and for a head that does not exist."""
        shown = shown_maps(run, self.what, part=self.part, hide_special=self.hide_special, words=self.words,
                           renormalise=self.renormalise)  # fmt: skip
        shown.check(self.layer, self.heads)
        return shown


def shown_maps(
    run: ModelRun,
    what: str = "attention",
    *,
    part: str = "all",
    hide_special: bool = False,
    words: bool = False,
    renormalise: bool = False,
) -> ShownMaps:
    """The maps of a run as the page Attention shows them.

    what: "attention", "gradient" or "product"; the last two need a run with a target.
    part: "all", or from which text to which, as in "A to B". hide_special: without the added [CLS] and [SEP].
    words: between words; to a word is the sum over its pieces, from a word their mean. renormalise: rows of attention
    sum to 1 again where tokens were left out.
    Raises ValueError for a gradient that was not captured, an unknown part, or one that the text does not have.
    """
    values, encoding = run.shown(what), run.encoding
    units = word_units(encoding) if words else [(position,) for position in range(len(encoding))]
    queries, keys = part_positions(encoding, part, hide_special=hide_special, units=units)
    if not (len(queries) and len(keys)):
        raise ValueError(f"the part {part!r} is empty: there is no second text" if part != "all" else "nothing is left")
    tokens = [Token(word_as_read(encoding, unit), unit[0], encoding.sides[unit[0]]) for unit in units]
    merged = map_between_words(values, units, what) if words else values
    chosen = part_of(merged, queries, keys)
    partial = what == "attention" and len(keys) * len(queries) < len(units) ** 2
    if partial and renormalise:
        chosen = renormalised(chosen)
    said = f"rows {'renormalised to 1' if renormalise else 'not renormalised: what goes to hidden tokens is missing'}"
    chosen = np.ascontiguousarray(chosen, np.float32).view()
    chosen.flags.writeable = False
    return ShownMaps(
        values=chosen,
        queries=tuple(tokens[position] for position in queries),
        keys=tuple(tokens[position] for position in keys),
        what=what,
        there=run.there,
        off=tuple((int(layer), int(head)) for layer, head in np.argwhere((run.head_mask == 0) & run.there)),
        notes=(said,) if partial else (),
    )

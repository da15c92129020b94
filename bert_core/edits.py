"""What is changed in a model while it runs: arrows of attention that are cut, neurons that are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_core.refused import Refused, real_number, several, shown, whole

NOTHING_LEFT = "a softmax of nothing has no answer: leave a key, or cut without renormalising"


class Edit:
    """One thing that is changed in a model while it runs; frozen, so that records can name it."""


@dataclass(frozen=True)
class Cut(Edit):
    """Arrows that are cut: these queries do not see these keys.

    queries, keys: positions. layers, heads: those in which they are cut, by their first numbers. None: all.
    renormalised: what the arrows had goes to the others of their row, as with -inf among the scores; False takes away
        what they brought, and the row sums to less.
    Raises Refused for what is no list of whole numbers, an empty one, and every key cut where rows are renormalised.
    """

    queries: tuple[int, ...] | None = None
    keys: tuple[int, ...] | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    renormalised: bool = True

    def __post_init__(self) -> None:
        for name in ("queries", "keys", "layers", "heads"):
            given = getattr(self, name)
            if given is not None:
                numbers = {whole(f"one of {name}", one) for one in several(name, given, "whole numbers")}
                if not numbers:
                    raise Refused(f"{name} of a cut are none: name at least one, or give None for all")
                object.__setattr__(self, name, tuple(sorted(numbers)))
        if not isinstance(self.renormalised, bool):
            raise Refused(f"renormalised is {shown(self.renormalised)}: it must be True or False")
        if self.keys is None and self.renormalised:
            raise Refused(f"every key is cut, and {NOTHING_LEFT}")


@dataclass(frozen=True)
class Scaled(Edit):
    """One neuron of a layer's feed-forward network whose activation is multiplied, at every position; 0 turns it off.

    Raises Refused for what is no number, or not finite.
    """

    layer: int
    neuron: int
    factor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("layer", "neuron"):
            object.__setattr__(self, name, whole(f"the {name}", getattr(self, name)))
        factor = real_number("the factor", self.factor)
        if not np.isfinite(factor):
            raise Refused(f"the factor is {factor:g}: it must be a finite number")
        object.__setattr__(self, "factor", factor)


def arrows_cut(cuts: Sequence[Cut], heads: Sequence[int], tokens: int, *, renormalised: bool) -> np.ndarray | None:
    """Which arrows are cut in one way in one layer, boolean (head, query, key); None if none are.

    cuts: those of the layer. heads: by their first numbers.
    Raises Refused for a position beyond the text, and where every key of a row is cut and it is renormalised.
    """
    own = [cut for cut in cuts if cut.renormalised == renormalised]
    if not own:
        return None
    arrows = np.zeros((len(heads), tokens, tokens), bool)
    for cut in own:
        for name in ("queries", "keys"):
            if (last := max(getattr(cut, name) or (0,))) >= tokens:
                raise Refused(f"position {last} is cut, and the text has positions 0 to {tokens - 1}")
        there = [place for place, head in enumerate(heads) if cut.heads is None or head in cut.heads]
        queries, keys = (range(tokens) if at is None else at for at in (cut.queries, cut.keys))
        arrows[np.ix_(there, queries, keys)] = True
    if renormalised and arrows.all(-1).any():
        head, query = np.argwhere(arrows.all(-1))[0]
        raise Refused(f"every key of position {query} is cut in head {heads[head]}, and {NOTHING_LEFT}")
    return arrows


def cuts_in(edits: Sequence[Edit], layer: int) -> tuple[Cut, ...]:
    """The cuts that concern a layer."""
    return tuple(one for one in edits if isinstance(one, Cut) and (one.layers is None or layer in one.layers))


def scaled_in(edits: Sequence[Edit], layer: int) -> tuple[Scaled, ...]:
    """The scaled neurons of a layer."""
    return tuple(one for one in edits if isinstance(one, Scaled) and one.layer == layer)


def check_unedited(edits: Sequence[Edit], doing: str) -> None:
    """Raise Refused if there are any: they are no weights, and what is done here is done to the model as it is."""
    if edits:
        kinds = ", ".join(sorted({type(one).__name__ for one in edits}))
        raise Refused(f"the model is edited ({kinds}), and {doing} needs it as it was loaded: take unedited(loaded)")

"""What is changed in a model while it runs: arrows cut, neurons scaled, parts of another reading put in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_core.refused import (
    Refused,
    check_finite,
    require_array,
    require_float,
    require_int,
    require_sequence,
    short_repr,
)

TOKEN_PARTS = ("state", "attention", "feed_forward")
HEAD_PARTS = ("head", "pattern", "query", "key", "value")
NEURON = "neuron"
PATCHABLE_PARTS = (*TOKEN_PARTS, *HEAD_PARTS, NEURON)
EMPTY_SOFTMAX = "a softmax of nothing has no answer: leave a key, or cut without renormalising"


class Edit:
    """One thing that is changed in a model while it runs; frozen, so that records can name it."""


@dataclass(frozen=True)
class AttentionKnockout(Edit):
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
                numbers = {require_int(f"one of {name}", one) for one in require_sequence(name, given, "whole numbers")}
                if not numbers:
                    raise Refused(f"{name} of a cut are none: name at least one, or give None for all")
                object.__setattr__(self, name, tuple(sorted(numbers)))
        if not isinstance(self.renormalised, bool):
            raise Refused(f"renormalised is {short_repr(self.renormalised)}: it must be True or False")
        if self.keys is None and self.renormalised:
            raise Refused(f"every key is cut, and {EMPTY_SOFTMAX}")


@dataclass(frozen=True)
class ScaledNeuron(Edit):
    """One neuron of a layer's feed-forward network whose activation is multiplied, at every position; 0 turns it off.

    Raises Refused for what is no number, or not finite.
    """

    layer: int
    neuron: int
    factor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("layer", "neuron"):
            object.__setattr__(self, name, require_int(f"the {name}", getattr(self, name)))
        factor = require_float("the factor", self.factor)
        if not np.isfinite(factor):
            raise Refused(f"the factor is {factor:g}: it must be a finite number")
        object.__setattr__(self, "factor", factor)


@dataclass(frozen=True, eq=False)
class ActivationPatch(Edit):
    """A part of another reading that stands where the text's own would be; `make_patch` makes it.

    what: one of `PATCHES`. layer: of a state its depth, 0 for the embeddings.
    values: a row for each token, or one for the token at `position`: (row, width); of a pattern (query, key).
    tokens: how many the text has. position: where; None for all. head: by its first number. neuron: of a neuron.
    source: what it was carried over from, so that it can be named and made again.
    Raises Refused for what is none of these.
    """

    component: str
    layer: int
    values: np.ndarray
    tokens: int
    position: int | None = None
    head: int | None = None
    neuron: int | None = None
    source: object = None

    def __post_init__(self) -> None:
        if not isinstance(self.component, str) or self.component not in PATCHABLE_PARTS:
            raise Refused(f"what {short_repr(self.component)} is unknown: one of {', '.join(PATCHABLE_PARTS)}")
        own = {"layer", "tokens", *["head"] * (self.component in HEAD_PARTS), *["neuron"] * (self.component == NEURON)}
        for name in ("layer", "tokens", "position", "head", "neuron"):
            given = getattr(self, name)
            if name in own or (name == "position" and given is not None):
                most = self.tokens - 1 if name == "position" else None
                object.__setattr__(self, name, require_int(f"the {name}", given, 0, most))
            elif given is not None:
                raise Refused(f"the {name} is {short_repr(given)}: a {self.component} has none, so leave it out")
        values = require_array("values", self.values, "row width").astype(np.float32)
        check_finite("values", values)
        if len(values) != (self.tokens if self.position is None else 1):
            raise Refused(f"values of {len(values)} rows for {self.tokens} tokens: one for each, or one for one")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def rows(self) -> slice:
        """The tokens that get it."""
        return slice(0, self.tokens) if self.position is None else slice(self.position, self.position + 1)

    def _named(self) -> tuple[object, ...]:
        return self.component, self.layer, self.tokens, self.position, self.head, self.neuron, self.values.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActivationPatch) and self._named() == other._named()

    def __hash__(self) -> int:
        return hash(self._named())


def blocked_edges(
    cuts: Sequence[AttentionKnockout], heads: Sequence[int], tokens: int, *, renormalised: bool
) -> np.ndarray | None:
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
        raise Refused(f"every key of position {query} is cut in head {heads[head]}, and {EMPTY_SOFTMAX}")
    return arrows


def knockouts_in_layer(edits: Sequence[Edit], layer: int) -> tuple[AttentionKnockout, ...]:
    """The cuts that concern a layer."""
    return tuple(
        one for one in edits if isinstance(one, AttentionKnockout) and (one.layers is None or layer in one.layers)
    )


def scaled_neurons_in_layer(edits: Sequence[Edit], layer: int) -> tuple[ScaledNeuron, ...]:
    """The scaled neurons of a layer."""
    return tuple(one for one in edits if isinstance(one, ScaledNeuron) and one.layer == layer)


def activation_patches(edits: Sequence[Edit]) -> tuple[ActivationPatch, ...]:
    """The parts of other readings that are put in."""
    return tuple(one for one in edits if isinstance(one, ActivationPatch))


def check_unpatched(edits: Sequence[Edit], doing: str) -> None:
    """Raise Refused if a part of another reading is put in: what is done here takes every part to be the text's own."""
    if activation_patches(edits):
        raise Refused(f"a part of another text is put in, and {doing} needs all parts to be its own: take it out")


def check_unedited(edits: Sequence[Edit], doing: str) -> None:
    """Raise Refused if there are any: they are no weights, and what is done here is done to the model as it is."""
    if edits:
        kinds = ", ".join(sorted({type(one).__name__ for one in edits}))
        raise Refused(f"the model is edited ({kinds}), and {doing} needs it as it was loaded: take unedited(loaded)")

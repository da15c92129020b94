"""Edits of a model in its forward passes: attention knockouts, scaled neurons, activation patches, added vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_core.deprecation import renamed_fields
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
EMPTY_SOFTMAX = "a softmax over no keys is undefined: leave at least one key, or block without renormalising"


class Edit:
    """One change to a model during its forward passes; frozen, so that records can name it."""


@dataclass(frozen=True)
class AttentionKnockout(Edit):
    """Blocked attention edges: the given queries do not attend to the given keys.

    queries, keys: positions of tokens; None selects all of them.
    layers, heads: the layers and heads in which the edges are blocked, heads by original index; None selects all.
    renormalised: True sets the scores of the blocked keys to -inf before the softmax, so that the other keys of the
        row share all of the attention. False sets the probabilities to 0 after the softmax, and the row then sums to
        less than 1.
    Raises Refused if an argument is not a list of integers or is empty, and if every key is blocked in rows that are
    renormalised.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> edited_model = bert_core.edited(loaded, [bert_core.AttentionKnockout(queries=(4,), keys=(2,))])
    >>> values = [bert_core.capture(model, encoding, target=target).target_value for model in (loaded, edited_model)]
    >>> values[1] < values[0]  # without attention from [MASK] to "opened"
    True
    """

    queries: tuple[int, ...] | None = None
    keys: tuple[int, ...] | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    renormalised: bool = True

    def __post_init__(self) -> None:
        for name in ("queries", "keys", "layers", "heads"):
            values = getattr(self, name)
            if values is not None:
                items = require_sequence(name, values, "whole numbers")
                numbers = {require_int(f"one of {name}", item) for item in items}
                if not numbers:
                    raise Refused(f"{name} of an attention knockout is empty: give at least one, or None for all")
                object.__setattr__(self, name, tuple(sorted(numbers)))
        if not isinstance(self.renormalised, bool):
            raise Refused(f"renormalised is {short_repr(self.renormalised)}: it must be True or False")
        if self.keys is None and self.renormalised:
            raise Refused(f"every key is blocked, and {EMPTY_SOFTMAX}")


@dataclass(frozen=True)
class ScaledNeuron(Edit):
    """One neuron of a feed-forward network whose activation is multiplied by a factor at every position.

    layer, neuron: the neuron by original index. factor: 0 switches the neuron off, and 1 leaves it unchanged.
    Raises Refused if a value is not a number, or the factor is not finite.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> edited_model = bert_core.edited(loaded, [bert_core.ScaledNeuron(layer=2, neuron=7, factor=0.0)])
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> float(abs(bert_core.neuron_activations(edited_model, encoding).activations[2, :, 7]).max())
    0.0
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


@renamed_fields(what="component")
@dataclass(frozen=True, eq=False)
class ActivationPatch(Edit):
    """Activations of another forward pass that replace a component's own; `make_patch` makes one.

    component: one of `PATCHABLE_PARTS`.
    layer: the layer of the component. For a state it is the depth, where 0 is the embeddings.
    values: (row, width), a row for each token, or one row for the token at `position`. For a pattern the rows are
        queries and the columns keys.
    tokens: number of tokens in the text.
    position: the token whose activations are replaced; None replaces those of all tokens.
    head: original index of the head, for a component of a head. neuron: original index of the neuron, for a neuron.
    source: the text or value that the activations come from, so that the patch can be named and made again.
    Raises Refused if the component is unknown or an argument does not fit it.
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
            allowed = ", ".join(PATCHABLE_PARTS)
            raise Refused(f"component {short_repr(self.component)} is unknown: it must be one of {allowed}")
        required = {
            "layer", "tokens", *["head"] * (self.component in HEAD_PARTS), *["neuron"] * (self.component == NEURON),
        }  # fmt: skip
        for name in ("layer", "tokens", "position", "head", "neuron"):
            value = getattr(self, name)
            if name in required or (name == "position" and value is not None):
                maximum = self.tokens - 1 if name == "position" else None
                object.__setattr__(self, name, require_int(f"the {name}", value, 0, maximum))
            elif value is not None:
                raise Refused(f"the {name} is {short_repr(value)}: a {self.component} has none, so leave it out")
        values = require_array("values", self.values, "row width").astype(np.float32)
        check_finite("values", values)
        if len(values) != (self.tokens if self.position is None else 1):
            raise Refused(
                f"values has {len(values)} rows for {self.tokens} tokens: give one row for each token, or one row for "
                "the token at position"
            )
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @property
    def rows(self) -> slice:
        """The positions of the tokens whose activations are replaced."""
        return slice(0, self.tokens) if self.position is None else slice(self.position, self.position + 1)

    def _key(self) -> tuple[object, ...]:
        """Return the values that are compared; the source is not among them."""
        return self.component, self.layer, self.tokens, self.position, self.head, self.neuron, self.values.tobytes()

    def __eq__(self, value: object) -> bool:
        return isinstance(value, ActivationPatch) and self._key() == value._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, eq=False, repr=False)
class AddedVector(Edit):
    """A steering vector: a vector, times a factor, that is added to the hidden states at one depth.

    depth: 0 for the embeddings, n + 1 for the output of layer n, as for an `ActivationPatch` of a state. In a pre-norm
        model this is the residual stream, and at the last depth the states after the final layer norm.
    vector: (hidden,), such as one from `steering_vector`. factor: 0 leaves the states unchanged.
    positions: the tokens to which it is added; None selects all of them.
    Edits of the same depth apply in the order in which they are given.
    Raises Refused if a number is not finite, the vector is not one row of numbers, or positions is empty.
    Source: activation addition, Turner 2023 (arXiv:2308.10248).

    >>> import bert_core, numpy as np
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> before = bert_core.capture(loaded, encoding).predictions[0].probabilities
    >>> vector = np.ones(loaded.config.hidden_size)
    >>> steered = bert_core.edited(loaded, [bert_core.AddedVector(3, vector, factor=0.0)])
    >>> bool((bert_core.capture(steered, encoding).predictions[0].probabilities == before).all())
    True
    """

    depth: int
    vector: np.ndarray
    factor: float = 1.0
    positions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", require_int("the depth", self.depth))
        vector = require_array("the vector", self.vector, "hidden").astype(np.float32)
        check_finite("the vector", vector)
        vector.flags.writeable = False
        object.__setattr__(self, "vector", vector)
        factor = require_float("the factor", self.factor)
        if not np.isfinite(factor):
            raise Refused(f"the factor is {factor:g}: it must be a finite number")
        with np.errstate(over="ignore"):
            check_finite("the vector times its factor", vector * np.float32(factor))
        object.__setattr__(self, "factor", factor)
        if self.positions is not None:
            items = require_sequence("positions", self.positions, "whole numbers")
            positions = tuple(sorted({require_int("one of positions", item) for item in items}))
            if not positions:
                raise Refused("positions of an added vector is empty: give at least one, or None for all")
            object.__setattr__(self, "positions", positions)

    def __repr__(self) -> str:
        """Return an expression with all numbers of the vector, from which exported Python code makes it again."""
        return (
            f"AddedVector(depth={self.depth}, vector={self.vector.tolist()}, factor={self.factor}, "
            f"positions={self.positions})"
        )

    def _key(self) -> tuple[object, ...]:
        """Return the values that are compared."""
        return self.depth, self.vector.tobytes(), self.factor, self.positions

    def __eq__(self, value: object) -> bool:
        return isinstance(value, AddedVector) and self._key() == value._key()

    def __hash__(self) -> int:
        return hash(self._key())


def blocked_edges(
    knockouts: Sequence[AttentionKnockout],
    heads: Sequence[int],
    tokens: int,
    *,
    renormalised: bool,
    window: int | None = None,
) -> np.ndarray | None:
    """Return the attention edges of one layer that are blocked, boolean (head, query, key); None if none are.

    knockouts: those of the layer; only those with this value of `renormalised` count.
    heads: the heads that the layer still has, by original index. tokens: length of the text.
    window: the largest distance between a query and a key in a local layer; None for any distance.
    Raises Refused for a position beyond the text, and if every key of a row is blocked in a head that is renormalised.
    """
    selected = [knockout for knockout in knockouts if knockout.renormalised == renormalised]
    if not selected:
        return None
    edges = np.zeros((len(heads), tokens, tokens), bool)
    for knockout in selected:
        for name in ("queries", "keys"):
            if (last := max(getattr(knockout, name) or (0,))) >= tokens:
                raise Refused(f"the knockout names position {last}: the text has positions 0 to {tokens - 1}")
        indices = [index for index, head in enumerate(heads) if knockout.heads is None or head in knockout.heads]
        queries, keys = (range(tokens) if rows is None else rows for rows in (knockout.queries, knockout.keys))
        edges[np.ix_(indices, queries, keys)] = True
    if renormalised:
        positions = np.arange(tokens)
        is_far = False if window is None else abs(positions[:, None] - positions) > window
        if len(empty_rows := np.argwhere((edges | is_far).all(-1))):
            head, query = empty_rows[0]
            keys_name = "every key" if window is None else "every key in the window"
            raise Refused(f"{keys_name} of position {query} is blocked in head {heads[head]}, and {EMPTY_SOFTMAX}")
    return edges


def knockouts_in_layer(edits: Sequence[Edit], layer: int) -> tuple[AttentionKnockout, ...]:
    """Return the attention knockouts that apply to a layer."""
    knockouts = (edit for edit in edits if isinstance(edit, AttentionKnockout))
    return tuple(knockout for knockout in knockouts if knockout.layers is None or layer in knockout.layers)


def scaled_neurons_in_layer(edits: Sequence[Edit], layer: int) -> tuple[ScaledNeuron, ...]:
    """Return the scaled neurons of a layer."""
    return tuple(edit for edit in edits if isinstance(edit, ScaledNeuron) and edit.layer == layer)


def activation_patches(edits: Sequence[Edit]) -> tuple[ActivationPatch, ...]:
    """Return the activation patches among the edits."""
    return tuple(edit for edit in edits if isinstance(edit, ActivationPatch))


def added_vectors(edits: Sequence[Edit]) -> tuple[AddedVector, ...]:
    """Return the added vectors among the edits."""
    return tuple(edit for edit in edits if isinstance(edit, AddedVector))


def check_unpatched(edits: Sequence[Edit], operation: str) -> None:
    """Raise Refused if an activation patch or an added vector is among the edits.

    operation: the name of what needs every activation to come from the text itself, for the message.
    """
    if activation_patches(edits):
        raise Refused(
            f"an activation patch replaces part of this text's activations, and {operation} needs all of them "
            "unmodified: remove the patch"
        )
    if added_vectors(edits):
        raise Refused(
            f"a vector is added to this text's hidden states, and {operation} needs all of them unmodified: remove "
            "the AddedVector"
        )


def check_unedited(edits: Sequence[Edit], operation: str) -> None:
    """Raise Refused if there are any edits, since they are not part of the weights.

    operation: the name of what needs the unmodified model, for the message.
    """
    if edits:
        kinds = ", ".join(sorted({type(edit).__name__ for edit in edits}))
        raise Refused(f"the model is edited ({kinds}), and {operation} needs it unmodified: use unedited(loaded)")

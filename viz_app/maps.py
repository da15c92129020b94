"""The maps of a text as they are looked at: which quantity, which part, between pieces or between words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from bert_core.analysis.flow import check_rows
from bert_core.analysis.patterns import (
    HEAD_COMBINATIONS,
    combine_heads,
    map_between_words,
    part_positions,
    readable_word,
    renormalise_rows,
    select_part,
)
from bert_core.analysis.units import word_units
from bert_core.edits import AttentionKnockout
from bert_core.records import ModelRun
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_array, require_instances, short_repr
from bert_core.tokenizer import Encoding
from viz_app.notation import notes_of
from viz_app.tokens import Combined, Token

UNITS = {
    "attention": "attention",
    "gradient": "gradient",
    "product": "attention × gradient",
    "brought": "length brought",
    "positive_product": "attention × gradient, above zero",
    "change": "change of attention",
    "change_brought": "change of length brought",
}
CHANGES = {"attention": "change", "brought": "change_brought"}  # what can be compared, and what its difference is
UNSIGNED = ("attention", "brought", "positive_product")
HEAD_SELECTIONS = ("chosen", "layer", "all")
MAX_NAMED_HEADS = 4  # heads in the name of a file
FROM_TRANSFORMERS = (
    'a model of transformers gives attentions with attn_implementation="eager" and output_attentions=True'
)
ROW_TOLERANCE = 0.01  # of a row's sum: in bfloat16 each number is off by up to 1/512 of itself


@runtime_checkable
class TensorLike(Protocol):
    """A tensor of torch, by what is needed of it: this module does not import torch."""

    def detach(self) -> Any:
        """The same numbers without the graph of their gradients."""


Maps = np.ndarray | TensorLike | Sequence[np.ndarray | TensorLike]


@compared_by_value
@dataclass(frozen=True)
class ShownMaps:
    """What goes into a file, whatever its kind.

    values: (layer, head, query, key) float32, read-only; a head that is NaN throughout does not exist (pruned).
    queries, keys: what stands at each row and column. what: "attention", "gradient", "product", its part
    above zero, "positive_product", "brought", or "change" or "change_brought" between two runs. there: (layer, head),
    which exist. off: the heads that are switched off. notes: what is said of the rows.
    together: what the one map is made of, where several heads are one; values are then (1, 1, query, key).
    edits: what was changed in the model while it ran, in words; they are among the notes.
    """

    values: np.ndarray
    queries: tuple[Token, ...]
    keys: tuple[Token, ...]
    what: str
    there: np.ndarray
    off: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    together: str = ""
    edits: tuple[str, ...] = ()

    @property
    def signed(self) -> bool:
        """Whether values have a sign, as gradients do: attention, lengths and what is kept above zero have none."""
        return self.what not in UNSIGNED

    @property
    def is_change(self) -> bool:
        """Whether values are differences of two runs."""
        return self.what in CHANGES.values()

    @property
    def unit(self) -> str:
        """What a value is, in words."""
        return UNITS[self.what]

    def title(self, layer: int, head: int) -> str:
        """What a map is called: its head, or what several heads as one are."""
        return self.together or f"L{layer} H{head}"

    def pruned(self, layer: int) -> list[int]:
        """The heads of a layer that do not exist."""
        return [head for head, exists in enumerate(self.there[layer]) if not exists]

    def check(self, layer: int, heads: Iterable[int] = ()) -> None:
        """Raise Refused unless the layer and each of the heads exist."""
        check_heads(self.there, layer, heads)


@dataclass(frozen=True)
class Combination:
    """Several heads as one map.

    how: "average", "maximum" (at every place the value furthest from zero) or "weighted". among: the "chosen" heads of
    a layer, the whole "layer", or "all" heads of all layers. weights: one for each of these heads, taken as shares of
    their sum; none is by importance, the size of the gradient of a head's gate, which needs a run with a target.
    Raises Refused for another way or another choice of heads.
    """

    how: str
    among: str = "chosen"
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.how not in HEAD_COMBINATIONS or self.among not in HEAD_SELECTIONS:
            raise Refused(
                f"heads together as {self.how!r} of {self.among!r}: one of {', '.join(HEAD_COMBINATIONS)}, of "
                f"{', '.join(HEAD_SELECTIONS)}"
            )

    @property
    def by_importance(self) -> bool:
        """Whether each head's weight is its importance, since the reader gave no weights."""
        return self.how == "weighted" and not self.weights

    def name(self, layer: int, heads: Sequence[int]) -> str:
        """What the map is, in words: "average of L2 H0, H5"."""
        head_names = {"chosen": f"L{layer} " + ", ".join(f"H{head}" for head in heads), "layer": f"L{layer}"}
        weighting = ""
        if self.how == "weighted":
            weighting = " by " + (", ".join(f"{weight:g}" for weight in self.weights) or "importance")
        return f"{self.how} of {head_names.get(self.among, 'all layers')}{weighting}"

    def of(self, run: ModelRun, what: str, layer: int, heads: Sequence[int]) -> Combined:
        """The one map (query, key) of a run, whole and between pieces.

        Raises Refused for weights that do not fit the heads, or importance without a target.
        """
        maps, weights = self._among(run.select_map(what), layer, heads), None
        if self.by_importance:
            if run.gate_gradient is None:
                raise Refused("weights by importance need something to explain")
            weights = np.abs(self._among(run.gate_gradient, layer, heads))
        elif self.how == "weighted":
            weights = np.array(self.weights)
            if len(weights) != len(maps) or not weights.any():
                raise Refused(f"{len(weights)} weights for {len(maps)} heads: give one for each, not all zero")
        return Combined(self.name(layer, heads), combine_heads(maps, self.how, weights))

    def _among(self, values: np.ndarray, layer: int, heads: Sequence[int]) -> np.ndarray:
        """values: (layer, head, ...). Returns those of the chosen heads, of the layer or of all, (head, ...)."""
        if self.among == "all":
            return values.reshape(-1, *values.shape[2:])
        return values[layer] if self.among == "layer" else values[layer, list(heads)]


@dataclass(frozen=True)
class MapView:
    """What of the maps is looked at, and how.

    what: "attention", "gradient", "product" or "brought"; the second and third need a run with a target, the last one
    with norms.
    part: "all", or from which text to which, as in "A to B". hide_special: without the added [CLS] and [SEP].
    words: between words; to a word is the sum over its pieces, from a word their mean. renormalise: rows of attention
    sum to 1 again where tokens were left out. layer: which one.
    heads: those drawn; none is all heads of all layers, small. mode: "curves", or the first of the heads as a "matrix".
    kept: the share of each row that the drawn curves hold, above 0 to 1. together: the one map that is drawn instead.
    Raises Refused for another mode or share, or heads that are no tuple.
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
    together: Combination | None = None

    def __post_init__(self) -> None:
        if isinstance(self.heads, (int, str)):
            raise Refused(f"heads is {self.heads!r}: give their numbers as a tuple, as in (5,) or (1, 5)")
        object.__setattr__(self, "heads", tuple(self.heads))
        if self.mode not in ("curves", "matrix"):
            raise Refused(f"mode {self.mode!r}: 'curves' or 'matrix'")
        if not 0 < self.kept <= 1:
            raise Refused(f"the share that is kept is {self.kept}: above 0, to 1")

    @property
    def drawn(self) -> tuple[int, tuple[int, ...]]:
        """Where in the values of `of` that stands which is drawn: the layer, and its heads."""
        return (self.layer, self.heads) if self.together is None else (0, (0,))

    @property
    def named_heads(self) -> str:
        """The heads that are drawn, for the name of a file: "L2-H0-H5"; of many only the layer, of all nothing."""
        if not self.heads:
            return ""
        return "-".join([f"L{self.layer}", *(f"H{head}" for head in self.heads if len(self.heads) <= MAX_NAMED_HEADS)])

    def check_whole(self, of: str, what: str = "attention") -> None:
        """Raise Refused unless all of a run's attention is looked at; of: what needs that. what: is as well."""
        plain = MapView(
            what if self.what == what else "attention",
            layer=self.layer,
            heads=self.heads,
            mode=self.mode,
            kept=self.kept,
        )
        changed = [choice.name for choice in fields(self) if getattr(self, choice.name) != getattr(plain, choice.name)]
        if changed:
            raise Refused(f"{of} is of attention, between all pieces and head by head: leave out {', '.join(changed)}")

    def of(self, run: ModelRun) -> ShownMaps:
        """The maps of a run that this view shows, or the one map that stands for them.

        Raises Refused for a head that does not exist, a gradient that was not captured, an unknown part, or one that
        the text does not have, and as `Combination.of`.
        """
        check_heads(run.existing_heads, self.layer, self.heads)
        one = None if self.together is None else self.together.of(run, self.what, self.layer, self.heads)
        return ShownMaps(
            read_only(self.seen(run.select_map(self.what) if one is None else one.map[None, None], run.encoding)),
            *self.tokens(run.encoding),
            what=self.what,
            there=run.existing_heads if one is None else np.ones((1, 1), bool),
            off=() if one is not None else heads_off(run),
            notes=(*self.notes(run.encoding), *notes_of(run.edits, run.encoding)),
            together="" if one is None else one.name,
            edits=notes_of(run.edits, run.encoding),
        )

    def seen(self, maps: np.ndarray, encoding: Encoding) -> np.ndarray:
        """Maps (..., query, key) between pieces as they are looked at: between words, of the part, renormalised.

        Raises Refused for an unknown part, or one that the text does not have.
        """
        units, queries, keys = self._places(encoding)
        part = select_part(map_between_words(maps, units, self.what) if self.words else maps, queries, keys)
        return renormalise_rows(part) if self.renormalise and self.partial(encoding) else part

    def tokens(self, encoding: Encoding) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """What stands at the rows and at the columns of what is `seen`."""
        units, *sides = self._places(encoding)
        all_tokens = [Token(readable_word(encoding, unit), unit[0], encoding.sides[unit[0]]) for unit in units]
        queries, keys = (tuple(all_tokens[place] for place in places) for places in sides)
        return queries, keys

    def partial(self, encoding: Encoding) -> bool:
        """Whether rows of attention lack what goes to tokens that are left out; signed values have no such sum."""
        units, queries, keys = self._places(encoding)
        return self.what == "attention" and len(queries) * len(keys) < len(units) ** 2

    def notes(self, encoding: Encoding) -> tuple[str, ...]:
        """What is said of the rows: whether they were renormalised, where tokens are left out."""
        rescaling = "rescaled to 1" if self.renormalise else "not rescaled: attention to left-out tokens is missing"
        return (f"rows {rescaling}",) if self.partial(encoding) else ()

    def _places(self, encoding: Encoding) -> tuple[Sequence[tuple[int, ...]], np.ndarray, np.ndarray]:
        """The pieces of each word, or each by itself, and which of these are queries and which keys."""
        units = word_units(encoding) if self.words else [(position,) for position in range(len(encoding))]
        queries, keys = part_positions(encoding, self.part, hide_special=self.hide_special, units=units)
        if not (len(queries) and len(keys)):
            raise Refused(
                f"the part {self.part!r} is empty: there is no second sentence"
                if self.part != "all"
                else "nothing is left"
            )
        return units, queries, keys


def maps_across(maps: Maps, queries: Sequence[str], keys: Sequence[str], what: str = "attention") -> ShownMaps:
    """Maps from anywhere, also from the tokens of one text to those of another.

    maps: (layer, head, query, key), or for each layer (batch, head, query, key) or (head, query, key), as in the
    attentions of transformers; a batch of 1. Arrays, or tensors of any device and number type, with gradients too.
    A head that is NaN throughout is pruned. queries, keys: what stands at each row and column.
    what: "attention", whose rows sum to 1, "gradient", "product", "brought", "change" or "change_brought".
    Raises Refused for another name, other sizes, several texts, numbers that are not finite, and rows of attention that
    do not sum to 1.
    """
    if what not in UNITS:
        raise Refused(f"{what!r} is unknown: one of {', '.join(UNITS)}")
    queries, keys = require_instances("queries", queries, str), require_instances("keys", keys, str)
    values = _without_batch(maps)
    if values.ndim != 4 or values.shape[2:] != (len(queries), len(keys)):
        raise Refused(
            f"maps of shape {values.shape} with {len(queries)} queries and {len(keys)} keys: (layer, head, query, key) "
            "is needed, with a name for each query and each key"
        )
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused
        values = read_only(values)
    existing = ~np.isnan(values).all((2, 3))
    _check_values(values, existing, what)
    rows, columns = (tuple(Token(name, place) for place, name in enumerate(names)) for names in (queries, keys))
    return ShownMaps(values, rows, columns, what, existing)


def _without_batch(maps: object) -> np.ndarray:
    """Maps in any form that `maps_across` takes, as one array without a batch. Raises Refused for several texts."""
    if isinstance(maps, tuple | list):
        layers = [_as_array(f"layer {number} of maps", layer) for number, layer in enumerate(maps)]
        if not layers:
            raise Refused(f"maps is {short_repr(maps)}, without a layer: {FROM_TRANSFORMERS}")
        for number, layer in enumerate(layers):
            if layer.shape != layers[0].shape:
                raise Refused(
                    f"layer {number} of maps is {layer.shape} and layer 0 is {layers[0].shape}: all layers must be of "
                    "one shape"
                )
        values = np.stack(layers)
    else:
        values = _as_array("maps", maps)
    if values.ndim != 5:
        return values
    if values.shape[1] != 1:
        raise Refused(
            f"maps are {values.shape}, (layer, batch, head, query, key), of {values.shape[1]} texts: one text can be "
            "shown, choose it as in [layer[0] for layer in maps]"
        )
    return values[:, 0]


def _as_array(name: str, maps: object) -> np.ndarray:
    """An array or a tensor as an array of real numbers. Raises Refused for anything else."""
    if maps is None:
        raise Refused(f"{name} is None: {FROM_TRANSFORMERS}")
    if isinstance(maps, Mapping):
        raise Refused(
            f"{name} is of type {type(maps).__name__}: it must be an array, or a tuple with one for each layer"
        )
    if isinstance(maps, TensorLike):
        try:
            tensor = maps.detach().cpu()
            maps = (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # NumPy has no bfloat16
        except (AttributeError, TypeError, RuntimeError) as error:  # a sparse tensor, or one on the device "meta"
            raise Refused(f"{name} is {short_repr(maps)}: it must be a dense tensor or an array of numbers") from error
    return require_array(name, maps, "... query key")


def _check_values(values: np.ndarray, existing: np.ndarray, what: str) -> None:
    """Raise Refused for maps that no head can have. values: (layer, head, query, key). existing: (layer, head)."""
    if not existing.any():
        raise Refused("every head is NaN, as a pruned head is: at least one must have numbers")
    wrong = ~np.isfinite(values) & existing[..., None, None]
    if wrong.any():
        layer, head, query, key = place = tuple(np.argwhere(wrong)[0].tolist())
        raise Refused(
            f"maps have {values[place]:g} in layer {layer}, head {head}, from query {query} to key {key}: every number "
            "must be finite, but for a pruned head, which is NaN throughout"
        )
    if what == "attention":
        try:
            check_rows(values, ROW_TOLERANCE)
        except Refused as error:
            alternatives = 'what="gradient", "product", "brought" or "change"'
            raise Refused(f"{error}; dropout must be off, and other maps are shown with {alternatives}") from error


def heads_off(run: ModelRun) -> tuple[tuple[int, int], ...]:
    """The heads of a run that are there and switched off, (layer, head) each."""
    return tuple((int(layer), int(head)) for layer, head in np.argwhere((run.head_mask == 0) & run.existing_heads))


def renormalised_attention(run: ModelRun) -> np.ndarray:
    """A run's attention (layer, head, query, key) with rows that sum to 1 where arrows were removed from them.

    NaN in a row of which nothing is left.
    """
    whole = all(edit.renormalised for edit in run.edits if isinstance(edit, AttentionKnockout))
    return run.attention if whole else renormalise_rows(run.attention)


def read_only(values: np.ndarray) -> np.ndarray:
    """The same numbers as float32 that nobody can write to, copied only where they have to be."""
    view = np.ascontiguousarray(values, np.float32).view()
    view.flags.writeable = False
    return view


def check_heads(existing: np.ndarray, layer: int, heads: Iterable[int]) -> None:
    """Raise Refused unless the layer and each of the heads exist. existing: (layer, head)."""
    layers, count = existing.shape
    if layer not in range(layers):
        raise Refused(f"layer {layer} does not exist: this model has layers 0 to {layers - 1}")
    pruned_heads = np.nonzero(~existing[layer])[0]
    for head in heads:
        if head not in range(count) or head in pruned_heads:
            pruned = f" ({', '.join(map(str, pruned_heads))} pruned)" if len(pruned_heads) else ""
            raise Refused(f"head {head} does not exist in layer {layer}: this model has heads 0 to {count - 1}{pruned}")

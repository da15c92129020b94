"""Selections of the maps of a text: which quantity, which part, between pieces or between words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from bert_core.analysis.flow import check_rows
from bert_core.analysis.patterns import (
    HEAD_COMBINATIONS,
    combine_heads,
    map_between_words,
    part_positions,
    possible_keys,
    readable_word,
    renormalise_rows,
    select_part,
)
from bert_core.analysis.units import word_units
from bert_core.deprecation import renamed_fields, renamed_parameters
from bert_core.edits import AttentionKnockout
from bert_core.records import ModelRun
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_array, require_instances, short_repr
from bert_core.tokenizer import Encoding
from viz_app.notation import notes_of
from viz_app.tokens import Combined, Token
from viz_app.windows import Hatching, common_window, hatching

UNITS = {
    "attention": "attention",
    "gradient": "gradient",
    "product": "attention × gradient",
    "brought": "value-weighted attention (norm)",
    "positive_product": "attention × gradient, above zero",
    "change": "change in attention",
    "change_brought": "change in value-weighted attention (norm)",
}
# quantity -> its name as a column of a table, an array of an NPZ, and a value of --show
COLUMNS = {"brought": "norm", "change_brought": "change_norm"}
# quantity that can be compared -> quantity of the difference
CHANGES = {"attention": "change", "brought": "change_brought"}
UNSIGNED = ("attention", "brought", "positive_product")
HEAD_SELECTIONS = ("chosen", "layer", "all")
MAX_NAMED_HEADS = 4  # heads in the name of a file
WHOLE_TOKENS = 512  # of a text whose maps are computed and drawn whole; of a longer one, only a range of as many
FROM_TRANSFORMERS = (
    'a model of transformers gives attentions with attn_implementation="eager" and output_attentions=True'
)
ROW_TOLERANCE = 0.01  # of a row's sum: in bfloat16 each number is off by up to 1/512 of itself


@runtime_checkable
class TensorLike(Protocol):
    """The interface of a torch tensor that is used here; this module does not import torch."""

    def detach(self) -> Any:
        """Return the same numbers without the graph of their gradients."""


Maps = np.ndarray | TensorLike | Sequence[np.ndarray | TensorLike]


@renamed_fields(what="quantity", there="existing_heads", together="combined_name")
@compared_by_value
@dataclass(frozen=True)
class ShownMaps:
    """The maps that are exported, in files of every format.

    values: (layer, head, query, key) float32, read-only; a head with only NaN does not exist (pruned). queries, keys:
        tokens of the rows and the columns. quantity: "attention", "gradient", "product", its part above zero
        "positive_product", "brought", or "change" or "change_brought" between two runs. existing_heads: (layer, head)
        bool. off: (layer, head) of each head that is switched off, with the number of the layer in the model. notes: on
        the rows, in words. combined_name: name of the combination of several heads; values are then (1, 1, query, key).
        edits: of the model during the run, in words; also among the notes. windows: of each layer of the values, as in
        `ModelRun`; empty without local layers.
        possible: (layer, query, key) bool, pairs within the window of their layer; None: all of them. layers: numbers
        of the layers of the values; None for all of a model.
    """

    values: np.ndarray
    queries: tuple[Token, ...]
    keys: tuple[Token, ...]
    quantity: str
    existing_heads: np.ndarray
    off: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    combined_name: str = ""
    edits: tuple[str, ...] = ()
    windows: tuple[int | None, ...] = ()
    possible: np.ndarray | None = None
    layers: tuple[int, ...] | None = None

    @property
    def signed(self) -> bool:
        """Whether values may be negative, as gradients are; attention and lengths are not."""
        return self.quantity not in UNSIGNED

    @property
    def is_change(self) -> bool:
        """Whether values are differences of two runs."""
        return self.quantity in CHANGES.values()

    @property
    def key_sides(self) -> tuple[str | None, ...]:
        """The sentences of the keys, None for [CLS] and [SEP]; empty for differences, in which no column is pale."""
        return () if self.is_change else tuple(token.side for token in self.keys)

    @property
    def unit(self) -> str:
        """The quantity of a value, in words."""
        return UNITS[self.quantity]

    def title(self, layer: int, head: int) -> str:
        """Return the name of a map: its head, or the combination of several heads."""
        return self.combined_name or f"L{self.layer_number(layer)} H{head}"

    def layer_number(self, layer: int) -> int:
        """Return the number in the model of a layer of the values."""
        return layer if self.layers is None else self.layers[layer]

    def is_off(self, layer: int, head: int) -> bool:
        """Whether a head of a layer of the values is switched off."""
        return (self.layer_number(layer), head) in self.off

    def possible_in(self, layer: int) -> np.ndarray | None:
        """Return the pairs within the window of a layer, (query, key) bool; None if all are."""
        return None if self.possible is None or self.possible[layer].all() else self.possible[layer]

    def hatching(self, layer: int) -> Hatching | None:
        """Return the area outside the window of a layer; None for a global one."""
        return hatching(self.possible_in(layer), self.windows[layer] if self.windows else None)

    def pruned(self, layer: int) -> list[int]:
        """Return the heads of a layer that do not exist."""
        return [head for head, exists in enumerate(self.existing_heads[layer]) if not exists]

    def check(self, layer: int, heads: Iterable[int] = ()) -> None:
        """Raise Refused unless the layer and each of the heads exist."""
        check_heads(self.existing_heads, layer, heads)


@renamed_fields(how="method", among="head_selection", of="combine")
@dataclass(frozen=True)
class Combination:
    """A combination of several heads to one map.

    method: "average", "maximum" (the value with the largest magnitude in every cell) or "weighted". head_selection: the
        "chosen" heads of a layer, the whole "layer", or "all" heads of all layers. weights: (head,), divided by their
        sum; empty for weights by importance, the magnitude of the gradient of the gate of a head, which needs a run
        with a target.
    Raises Refused for another method or selection.
    """

    method: str
    head_selection: str = "chosen"
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.method not in HEAD_COMBINATIONS or self.head_selection not in HEAD_SELECTIONS:
            raise Refused(
                f"heads together as {self.method!r} of {self.head_selection!r}: one of {', '.join(HEAD_COMBINATIONS)}, "
                f"of {', '.join(HEAD_SELECTIONS)}"
            )

    @property
    def by_importance(self) -> bool:
        """Whether the weight of each head is its importance, since no weights were given."""
        return self.method == "weighted" and not self.weights

    def name(self, layer: int, heads: Sequence[int]) -> str:
        """Return the name of the map in words: "average of L2 H0, H5"."""
        head_names = {"chosen": f"L{layer} " + ", ".join(f"H{head}" for head in heads), "layer": f"L{layer}"}
        weighting = ""
        if self.method == "weighted":
            weighting = " by " + (", ".join(f"{weight:g}" for weight in self.weights) or "importance")
        return f"{self.method} of {head_names.get(self.head_selection, 'all layers')}{weighting}"

    def window(self, windows: Sequence[int | None], layer: int) -> int | None:
        """Return the window of the combined map: the largest of the layers; None for any distance.

        windows: as in `ModelRun`. layer: of the selected heads.
        """
        return common_window(windows if self.head_selection == "all" else windows[layer : layer + 1] or [None])

    def combine(self, run: ModelRun, quantity: str, layer: int, heads: Sequence[int]) -> Combined:
        """Return the combined map (query, key) of a run, of the whole text and between pieces.

        Raises Refused for weights that do not fit the heads, or importance without a target.
        """
        maps, weights = self._selected(run.select_map(quantity), layer, heads), None
        if self.by_importance:
            if run.gate_gradient is None:
                raise Refused("weights by importance need something to explain")
            weights = np.abs(self._selected(run.gate_gradient, layer, heads))
        elif self.method == "weighted":
            weights = np.array(self.weights)
            if len(weights) != len(maps) or not weights.any():
                raise Refused(f"{len(weights)} weights for {len(maps)} heads: give one for each, not all zero")
        return Combined(self.name(layer, heads), combine_heads(maps, self.method, weights))

    def _selected(self, values: np.ndarray, layer: int, heads: Sequence[int]) -> np.ndarray:
        """Return the values of the selected heads, (head, ...). values: (layer, head, ...)."""
        if self.head_selection == "all":
            return values.reshape(-1, *values.shape[2:])
        return values[layer] if self.head_selection == "layer" else values[layer, list(heads)]


@renamed_fields(
    what="quantity", kept="kept_share", together="combination", drawn="value_indices", of="maps", seen="transform"
)
@dataclass(frozen=True)
class MapView:
    """A selection of the maps of a run, and how they are drawn.

    quantity: "attention", "gradient", "product" or "brought"; the second and third need a run with a target, the last
        one a run with norms.
    part: "all", or the sentences of queries and keys, as in "A to B". hide_special: whether [CLS] and [SEP] are left
        out. words: whether maps are between words; attention to a word is the sum over its pieces, from a word their
        mean. renormalise: whether rows of attention from which tokens were left out are rescaled to sum to 1.
    layer, heads: of the heads that are drawn; without heads all heads of all layers as thumbnails. Of a run with some
        layers, `layer` is the index among them. mode: "curves", or the first of the heads as a "matrix". kept_share:
        share of each row that the drawn curves add up to, above 0 to 1. combination: of several heads to one map, drawn
        instead of them. side, positions: of the selected tokens, whose curves alone are drawn, all of them; none
        selects all tokens. token_range: of the maps, as in `ModelRun`; words that it cuts are left out.
    Raises Refused for another mode or share, or heads that are no tuple.
    """

    quantity: str = "attention"
    part: str = "all"
    hide_special: bool = False
    words: bool = False
    renormalise: bool = False
    layer: int = 0
    heads: tuple[int, ...] = (0,)
    mode: Literal["curves", "matrix"] = "curves"
    kept_share: float = 0.7
    combination: Combination | None = None
    side: Literal["query", "key"] = "query"
    positions: tuple[int, ...] = ()
    token_range: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.heads, (int, str)):
            raise Refused(f"heads is {self.heads!r}: give their numbers as a tuple, as in (5,) or (1, 5)")
        object.__setattr__(self, "heads", tuple(self.heads))
        if self.mode not in ("curves", "matrix"):
            raise Refused(f"mode {self.mode!r}: 'curves' or 'matrix'")
        if not 0 < self.kept_share <= 1:
            raise Refused(f"the share that is kept is {self.kept_share}: above 0, to 1")

    @property
    def value_indices(self) -> tuple[int, tuple[int, ...]]:
        """Layer and heads of the drawn maps in the values of `maps`."""
        return (self.layer, self.heads) if self.combination is None else (0, (0,))

    @property
    def named_heads(self) -> str:
        """The drawn heads for the name of a file: "L2-H0-H5"; of many heads only the layer, of all an empty text."""
        if not self.heads:
            return ""
        return "-".join([f"L{self.layer}", *(f"H{head}" for head in self.heads if len(self.heads) <= MAX_NAMED_HEADS)])

    def check_whole(self, purpose: str, quantity: str = "attention") -> None:
        """Raise Refused unless the view is of the attention of the whole text, between pieces and head by head.

        purpose: what needs that, in words. quantity: allowed besides attention.
        """
        whole = quantity if self.quantity == quantity else "attention"
        plain = replace(self, quantity=whole, part="all", hide_special=False, words=False, renormalise=False)
        plain = replace(plain, combination=None)
        changed = [choice.name for choice in fields(self) if getattr(self, choice.name) != getattr(plain, choice.name)]
        if changed:
            raise Refused(
                f"{purpose} is of attention, between all pieces and head by head: leave out {', '.join(changed)}"
            )

    def maps(self, run: ModelRun) -> ShownMaps:
        """Return the maps of a run that this view selects, or their combination, of the range of tokens of the run.

        Raises Refused for a head that does not exist, a gradient that was not captured, an unknown part, or one that
        the text does not have, a combination of heads of a run with some layers, and as `Combination.combine`.
        """
        if run.token_range != self.token_range:
            return replace(self, token_range=run.token_range).maps(run)
        check_heads(run.existing_heads, self.layer, self.heads)
        values, combined, existing_heads = run.select_map(self.quantity), None, run.existing_heads
        windows = run.windows
        if self.combination is not None:
            check_all_layers(run.layers, "a combination of heads")
            combined = self.combination.combine(run, self.quantity, self.layer, self.heads)
            values, existing_heads = combined.map[None, None], np.ones((1, 1), bool)
            windows = (self.combination.window(windows, self.layer),)
        return ShownMaps(
            read_only(self.transform(values, run.encoding)),
            *self.tokens(run.encoding),
            quantity=self.quantity,
            existing_heads=existing_heads,
            off=heads_off(run) if combined is None else (),
            notes=(*self.notes(run.encoding), *notes_of(run.edits, run.encoding)),
            combined_name="" if combined is None else combined.name,
            edits=notes_of(run.edits, run.encoding),
            windows=windows,
            possible=self.possible(windows, run.encoding),
            layers=run.layers if combined is None else None,
        )

    def possible(self, windows: Sequence[int | None], encoding: Encoding) -> np.ndarray | None:
        """Return which pairs of the transformed maps are within the window of a layer, (layer, query, key) bool.

        windows: of each layer, as in `ModelRun`. Between words, one pair of their pieces must be. None: all of them.
        Raises Refused as `transform`.
        """
        start, stop = self.token_range or (0, len(encoding))
        possible = possible_keys(windows, stop - start)
        if possible is None:
            return None
        units, queries, keys = self._places(encoding)
        if self.words:
            possible = map_between_words(possible.astype(np.float32), self._rows(units), "product") > 0
        part = select_part(possible, queries, keys)
        return None if part.all() else part

    def transform(self, maps: np.ndarray, encoding: Encoding) -> np.ndarray:
        """Return maps (..., query, key) between pieces as selected: between words, of the part, renormalised.

        Raises Refused for an unknown part, or one that the text does not have.
        """
        units, queries, keys = self._places(encoding)
        if self.words:
            maps = map_between_words(maps, self._rows(units), self.quantity)
        part = select_part(maps, queries, keys)
        return renormalise_rows(part) if self.renormalise and self.partial(encoding) else part

    def tokens(self, encoding: Encoding) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """Return the tokens of the rows and of the columns of the transformed maps."""
        units, *sides = self._places(encoding)
        all_tokens = [Token(readable_word(encoding, unit), unit[0], encoding.sides[unit[0]]) for unit in units]
        queries, keys = (tuple(all_tokens[place] for place in places) for places in sides)
        return queries, keys

    def partial(self, encoding: Encoding) -> bool:
        """Return whether rows of attention lack the attention to tokens that are left out."""
        units, queries, keys = self._places(encoding)
        is_part = self.token_range is not None or len(queries) * len(keys) < len(units) ** 2
        return self.quantity == "attention" and is_part

    def notes(self, encoding: Encoding) -> tuple[str, ...]:
        """Return notes on the rows: if tokens are left out, whether the rows were renormalised."""
        rescaling = "rescaled to 1" if self.renormalise else "not rescaled: attention to left-out tokens is missing"
        return (f"rows {rescaling}",) if self.partial(encoding) else ()

    def _rows(self, units: Sequence[tuple[int, ...]]) -> list[list[int]]:
        """Return the rows of the maps that the pieces of each unit have."""
        start = 0 if self.token_range is None else self.token_range[0]
        return [[position - start for position in unit] for unit in units]

    def _places(self, encoding: Encoding) -> tuple[Sequence[tuple[int, ...]], np.ndarray, np.ndarray]:
        """Return the pieces of each unit (word or piece), and the indices of the units that are queries and keys."""
        units: Sequence[tuple[int, ...]]
        units = word_units(encoding) if self.words else [(position,) for position in range(len(encoding))]
        if self.token_range is not None:
            start, stop = self.token_range
            units = [unit for unit in units if start <= unit[0] and unit[-1] < stop]
        queries, keys = part_positions(encoding, self.part, hide_special=self.hide_special, units=units)
        if not (len(queries) and len(keys)):
            reason = f"the part {self.part!r} is empty: there is no second sentence"
            raise Refused(reason if self.part != "all" else "nothing is left")
        return units, queries, keys


@renamed_parameters(what="quantity")
def maps_across(maps: Maps, queries: Sequence[str], keys: Sequence[str], quantity: str = "attention") -> ShownMaps:
    """Return maps from any source, also from the tokens of one text to those of another.

    maps: (layer, head, query, key), or for each layer (batch, head, query, key) or (head, query, key), as in the
    attentions of transformers; a batch of 1. Arrays, or tensors of any device and number type, with gradients too.
    A head with only NaN is pruned. queries, keys: names of the rows and the columns.
    quantity: "attention", whose rows sum to 1, "gradient", "product", "brought", "change" or "change_brought".
    Raises Refused for another name, other sizes, several texts, numbers that are not finite, and rows of attention that
    do not sum to 1.
    """
    if quantity not in UNITS:
        raise Refused(f"{quantity!r} is unknown: one of {', '.join(UNITS)}")
    queries, keys = require_instances("queries", queries, str), require_instances("keys", keys, str)
    values = _without_batch(maps)
    if values.ndim != 4 or values.shape[2:] != (len(queries), len(keys)):
        raise Refused(
            f"maps of shape {values.shape} with {len(queries)} queries and {len(keys)} keys: (layer, head, query, key) "
            "is needed, with a name for each query and each key"
        )
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and are refused
        values = read_only(values)
    existing = ~np.isnan(values).all((2, 3))
    _check_values(values, existing, quantity)
    rows, columns = (tuple(Token(name, place) for place, name in enumerate(names)) for names in (queries, keys))
    return ShownMaps(values, rows, columns, quantity, existing)


def _without_batch(maps: object) -> np.ndarray:
    """Return maps in any form that `maps_across` accepts as one array without a batch axis.

    Raises Refused for several texts.
    """
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
    """Return an array or a tensor as an array of real numbers. Raises Refused for anything else."""
    if maps is None:
        raise Refused(f"{name} is None: {FROM_TRANSFORMERS}")
    if isinstance(maps, Mapping):
        kind = type(maps).__name__
        raise Refused(f"{name} is of type {kind}: it must be an array, or a tuple with one for each layer")
    if isinstance(maps, TensorLike):
        try:
            tensor = maps.detach().cpu()
            maps = (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # NumPy has no bfloat16
        except (AttributeError, TypeError, RuntimeError) as error:  # a sparse tensor, or one on the device "meta"
            raise Refused(f"{name} is {short_repr(maps)}: it must be a dense tensor or an array of numbers") from error
    return require_array(name, maps, "... query key")


def _check_values(values: np.ndarray, existing: np.ndarray, quantity: str) -> None:
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
    if quantity == "attention":
        try:
            check_rows(values, ROW_TOLERANCE)
        except Refused as error:
            alternatives = 'quantity="gradient", "product", "brought" or "change"'
            raise Refused(f"{error}; dropout must be off, and other maps are shown with {alternatives}") from error


def prediction_range(encoding: Encoding) -> tuple[int, int] | None:
    """Return the range of tokens whose maps are kept by a run for predictions: of a long text one token; None: all."""
    return (0, 1) if len(encoding) > WHOLE_TOKENS else None


def map_hatching(window: int | None, length: int) -> Hatching | None:
    """Return the area of the map of a whole text that is outside the window of a layer. length: in tokens."""
    possible = possible_keys((window,), length)
    return None if possible is None else hatching(possible[0], window)


def curve_limit(values: np.ndarray, quantity: str) -> float:
    """Return the value of the thickest curve: 1 for attention, otherwise the largest magnitude of all heads, above 0.

    values: (layer, head, query, key).
    """
    if quantity == "attention":
        return 1.0
    return float(np.abs(values[np.isfinite(values)]).max(initial=0)) or 1.0


def heads_off(run: ModelRun) -> tuple[tuple[int, int], ...]:
    """Return the existing heads of a run that are switched off, (layer, head) each."""
    numbers = range(len(run.head_mask)) if run.layers is None else run.layers
    off = (run.head_mask[list(numbers)] == 0) & run.existing_heads
    return tuple((numbers[layer], int(head)) for layer, head in np.argwhere(off).tolist())


def renormalised_attention(run: ModelRun) -> np.ndarray:
    """Return the attention (layer, head, query, key) of a run, with rows that sum to 1 also where cuts removed entries.

    A row without any entry left is NaN.
    """
    whole = all(edit.renormalised for edit in run.edits if isinstance(edit, AttentionKnockout))
    return run.attention if whole else renormalise_rows(run.attention)


def read_only(values: np.ndarray) -> np.ndarray:
    """Return the numbers as a read-only float32 array, copied only if necessary."""
    view = np.ascontiguousarray(values, np.float32).view()
    view.flags.writeable = False
    return view


def check_all_layers(layers: Sequence[int] | None, purpose: str) -> None:
    """Raise Refused for maps of some layers. layers: as in `ModelRun`. purpose: what needs all of them, in words."""
    if layers is not None:
        numbers = ", ".join(f"L{layer}" for layer in layers)
        raise Refused(f"{purpose} needs the maps of all layers, and these are of {numbers}: capture without layers")


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

"""The maps of the shared text that the page Attention shows: quantity, part, units, and combination of heads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.patterns import rows_without_numbers
from bert_core.analysis.sinks import SinkContribution, sink_contribution
from bert_core.loading import LoadedModel
from bert_core.records import HeadVectors, ModelRun
from bert_core.refused import Refused
from bert_core.run.vectors import all_head_vectors, head_vectors
from bert_core.tokenizer import Encoding
from viz_app.components.attention_view import ViewChoice
from viz_app.components.attention_view.everywhere import AllMaps, pack_all_maps
from viz_app.export.page import neuron_reading
from viz_app.figures.style import two_digits
from viz_app.figures.thumbnails import Thumbnails, pale_thumbnails
from viz_app.maps import UNITS, UNSIGNED, Combination, MapView, curve_limit
from viz_app.pages.attention import (
    SCORE_VIEWS,
    TEXTS,
    combine,
    combined_heads,
    hide,
    part,
    rescale,
    show,
    view,
    weights,
    words,
)
from viz_app.shell.head_search import opening_head
from viz_app.shell.heads import view_choice
from viz_app.shell.markdown import quoted, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.work import cached, wait_for, work
from viz_app.tokens import Combined, Token
from viz_app.windows import Hatching, hatching, note_of_layer

MAX_EMPTY_ROWS = 6  # rows without numbers that are named


@dataclass(frozen=True)
class SelectedMaps:
    """The maps of a run as they are selected, as far as the selection applies to the text and the view.

    is_score_view: whether a view of scores is shown, which is of attention between all pieces.
    map_view: the selection without layer, heads and share, which the large view itself can change.
    """

    selection: Selection
    run: ModelRun
    is_score_view: bool
    map_view: MapView

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """All that the run depends on; `map_view` is an argument of the cached functions that depend on it."""
        selection = self.selection
        model, target, mask = selection.loaded.identity, repr(selection.target), selection.head_mask.tobytes()
        return model, selection.encoding, target, mask, selection.token_range

    @property
    def quantity(self) -> str:
        """The quantity of the values: "attention", "gradient", "product" or "brought"."""
        return self.map_view.quantity

    @property
    def is_signed(self) -> bool:
        """Whether values have a sign, as gradients have."""
        return self.quantity not in UNSIGNED

    @property
    def is_partial(self) -> bool:
        """Whether rows of attention lack the share of tokens that are left out."""
        return self.map_view.partial(self.selection.encoding)

    @property
    def is_renormalised(self) -> bool:
        """Whether rows are divided by their sums; rows of signed values never are."""
        return self.is_partial and self.map_view.renormalise

    @property
    def values(self) -> np.ndarray:
        """All values between pieces, (layer, head, query, key)."""
        return self.run.select_map(self.quantity)

    @property
    def tokens(self) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """The tokens of the rows, and those of the columns."""
        return self.map_view.tokens(self.selection.encoding)

    def select(self, maps: np.ndarray) -> np.ndarray:
        """Return maps between pieces, (..., query, key), as they are selected: words, part, renormalised."""
        return self.map_view.transform(maps, self.selection.encoding)

    @property
    def choice(self) -> ViewChoice:
        """The layer, heads and tokens of the large view; the head that stands out if none was selected."""
        return view_choice(partial(opening_head, self.selection))

    @property
    def limit(self) -> float:
        """The value of the thickest curve: 1 for attention, and for other quantities the largest of all heads."""
        return _limit(self, self.quantity)

    def window(self, layer: int) -> int | None:
        """Return the window of the map that is drawn for heads of a layer; None for any distance."""
        windows, combination = self.run.windows, self.map_view.combination
        return (Combination("average") if combination is None else combination).window(windows, layer)

    def hatching(self, layer: int) -> Hatching | None:
        """Return the area of the drawn map of a layer that is outside its window; None for a global layer."""
        window = self.window(layer)
        possible = self.map_view.possible((window,), self.selection.encoding)
        return None if possible is None else hatching(possible[0], window)

    def thumbnails(self, size: int) -> Thumbnails:
        """Return small maps of all heads between pieces. size: maximum of rows and columns."""
        map_view = self.map_view
        pieces = MapView(
            self.quantity, map_view.part, map_view.hide_special, renormalise=self.is_renormalised,
            token_range=map_view.token_range,
        )  # fmt: skip
        return _thumbnails(self, pieces, size)

    def all_heads(self) -> AllMaps | None:
        """Return the maps of all heads for the browser.

        None for too many of them, and if the notes of the view depend on the heads that are drawn.
        """
        if self.is_score_view or self.is_renormalised or self.map_view.combination is not None:
            return None
        return _all_heads(self, replace(self.map_view, mode="curves"))

    def combined(self, layer: int, heads: Sequence[int], *, is_explained: bool = True) -> Combined | None:
        """Return the one map of the selected heads, their layer or all layers; None to draw the heads apart.

        is_explained: whether it is written why weights are not possible.
        """
        combination = self.map_view.combination
        if combination is None:
            return None
        if combination.by_importance and self.selection.target is None:
            if is_explained:
                show_missing_target(self.selection, "Weights by importance need something to explain")
            return None
        try:
            whole = _combined(self, combination, self.quantity, layer, tuple(heads))
        except Refused as error:
            if is_explained:
                st.info(with_help(f"{error}."))
            return None
        return whole._replace(map=self.select(whole.map))

    def export_view(self, choice: ViewChoice, *, as_one: bool) -> MapView:
        """Return what the large view shows, for files. as_one: whether its heads are one map."""
        existing = tuple(head for head in choice.heads if self.run.existing_heads[choice.layer, head])
        combination = self.map_view.combination if as_one and existing else None
        if combination is not None and combination.weights:
            pairs = zip(choice.heads, combination.weights, strict=True)
            combination = replace(combination, weights=tuple(weight for head, weight in pairs if head in existing))
        return replace(
            self.map_view,
            layer=choice.layer,
            heads=existing,
            kept_share=choice.kept_share,
            renormalise=self.is_renormalised,
            combination=combination,
            side=choice.side,
            positions=choice.positions,
        )

    @property
    def get_run(self) -> Callable[[], ModelRun]:
        """Returns the run, with the gradients that the maps or the weights need; for a file that is made later."""
        combination = self.map_view.combination
        by_importance = combination is not None and combination.by_importance
        return partial(self.selection.run, gradients=by_importance or self.is_signed)

    def vectors(self, layer: int, head: int) -> HeadVectors | None:
        """Return the vectors of a head for a view of scores; None in other views, and for a pruned head."""
        exists = self.run.existing_heads[layer, head]
        return vectors_of_head(self.selection, layer, head) if self.is_score_view and exists else None

    def query(self, choice: ViewChoice) -> int:
        """Return the query of a view of scores: the first that is selected, or else the first masked one, or else 0."""
        encoding = self.selection.encoding
        positions = choice.positions if choice.side == "query" else ()
        default = next(iter(encoding.mask_positions), 0)
        return min((position for position in positions if position < len(encoding)), default=default)

    def notes(self, maps: np.ndarray) -> list[str]:
        """Return notes on the rows: whether they are renormalised, and which are empty. maps: (head, query, key)."""
        notes, queries = list(self.map_view.notes(self.selection.encoding)), self.tokens[0]
        empty = [queries[row] for row in rows_without_numbers(maps)] if self.is_renormalised else []
        if empty:
            names = ", ".join(f"“{token.text}” ({token.position})" for token in empty[:MAX_EMPTY_ROWS])
            ending = f" and {len(empty) - MAX_EMPTY_ROWS} more" if len(empty) > MAX_EMPTY_ROWS else ""
            notes.append(f"no attention remains for {names}{ending}; these rows are empty")
        return notes


@cached
def largest_sink(maps: SelectedMaps) -> tuple[str, SinkContribution] | None:
    """Return the special token, the first or the last, to which more heads mostly attend, and its contribution.

    None if no head does.
    """
    encoding, run = maps.selection.encoding, maps.run
    special_tokens = encoding.special_tokens
    positions = {
        special_tokens.first: encoding.has_role("first"),
        special_tokens.end: encoding.has_role("between", "end"),
    }
    sinks = [
        (
            name,
            sink_contribution(run.attention, run.select_map("brought"), np.array(is_token), windows=run.windows),
        )
        for name, is_token in positions.items()
    ]
    largest = max(sinks, key=lambda sink: sink[1].heads)
    return largest if largest[1].heads else None


@cached
def _limit(maps: SelectedMaps, quantity: str) -> float:
    return curve_limit(maps.values, quantity)


@cached
def _thumbnails(maps: SelectedMaps, pieces: MapView, size: int) -> Thumbnails:
    encoding = maps.selection.encoding
    sides, possible = [token.side for token in pieces.tokens(encoding)[1]], pieces.possible(maps.run.windows, encoding)
    values = pieces.transform(maps.values, encoding)
    return pale_thumbnails(values, sides, size, signed=maps.is_signed, possible=possible)


@cached
def _all_heads(maps: SelectedMaps, map_view: MapView) -> AllMaps | None:
    existing = maps.run.existing_heads
    is_off = np.zeros_like(existing)
    is_off[tuple(np.array(maps.selection.off, int).reshape(-1, 2).T)] = True
    values = map_view.transform(maps.values, maps.selection.encoding)
    hatchings = [maps.hatching(layer) for layer in range(len(values))]
    return pack_all_maps(values, existing=existing, off=is_off, signed=maps.is_signed, hatchings=hatchings)


@cached
def _combined(
    maps: SelectedMaps, combination: Combination, quantity: str, layer: int, heads: tuple[int, ...]
) -> Combined:
    return combination.combine(maps.get_run(), quantity, layer, heads)


@work("{model} gives the vectors of L{layer} H{head}")
def _head_vectors(model: LoadedModel, encoding: Encoding, layer: int, head: int, head_mask: np.ndarray) -> HeadVectors:
    return head_vectors(model, encoding, layer, head, head_mask=head_mask)


def vectors_of_head(selection: Selection, layer: int, head: int) -> HeadVectors:
    """Return the query and key vectors of a head."""
    return wait_for(_head_vectors(selection.loaded, selection.encoding, layer, head, selection.head_mask))


@work("{model}: query and key vectors of all heads")
def _all_vectors(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray) -> tuple[HeadVectors, ...]:
    return all_head_vectors(model, encoding, head_mask=head_mask)


def vectors_of_all_heads(selection: Selection) -> tuple[HeadVectors, ...]:
    """Return the query and key vectors of every head."""
    return wait_for(_all_vectors(selection.loaded, selection.encoding, selection.head_mask))


def selected_maps(selection: Selection) -> SelectedMaps:
    """Return the maps that the controls select; attention instead of a gradient without a target."""
    is_score_view = view.value in SCORE_VIEWS
    is_available = show.value in UNSIGNED or selection.target is not None
    quantity = show.value if is_available and not is_score_view else "attention"
    map_view = MapView(
        quantity,
        part=part.value if selection.encoding.pair is not None and not is_score_view else "all",
        hide_special=hide.value and not is_score_view,
        words=words.value and view.value not in ("heads", *SCORE_VIEWS),
        renormalise=rescale.value,
        mode="matrix" if view.value == "matrix" else "curves",
        combination=_selected_combination(),
        token_range=selection.token_range,
    )
    run = selection.run(gradients=quantity not in UNSIGNED)
    return SelectedMaps(selection, run, is_score_view, map_view)


def _selected_combination() -> Combination | None:
    """Return how several heads are combined into one map, or None to draw them apart."""
    if view.value in ("heads", *SCORE_VIEWS) or combine.value == "apart":
        return None
    is_weighted = combine.value == "weighted" and combined_heads.value == "chosen"
    return Combination(combine.value, combined_heads.value, weights.value if is_weighted else ())


def reading(maps: SelectedMaps) -> tuple[str, str]:
    """Return how to read the figure, and how it can mislead."""
    if view.value == "neuron":
        is_rotated = maps.selection.loaded.config.position_scheme.rotation is not None
        text, misleading = neuron_reading(is_rotated)
        return (f"{text} {TEXTS['score_distance.reading']}" if is_rotated else text), misleading
    texts = "views.terms" if maps.is_score_view else f"views.{maps.quantity}"
    sums = []
    if maps.quantity == "attention" and not maps.is_score_view:
        combination = maps.map_view.combination
        is_maximum = combination is not None and combination.method == "maximum"
        kinds = {"renormalised": maps.is_renormalised, "partial": maps.is_partial, "maximum": is_maximum, "whole": True}
        sums = [TEXTS[f"sums.{next(kind for kind, applies in kinds.items() if applies)}"]]
    return " ".join([*sums, TEXTS[f"{texts}.reading"]]), TEXTS[f"{texts}.misleads"]


def result_sentence(maps: SelectedMaps, combined: Combined | None) -> str:
    """Return a sentence in Markdown with the strongest value of the selected tokens in the selected head.

    The tokens are the selected ones, or else the masked one, or else that with the strongest value.
    combined: the one map of several heads that is drawn instead.
    """
    choice, (queries, keys) = maps.choice, maps.tokens
    head_map = maps.select(maps.values[choice.layer, choice.heads[0]]) if combined is None else combined.map
    values = np.nan_to_num(head_map)
    positions = choice.positions or maps.selection.encoding.mask_positions
    from_keys = choice.side == "key" and bool(choice.positions)
    selected = [i for i, token in enumerate(keys if from_keys else queries) if token.position in positions]
    magnitudes = np.abs(values)
    if selected:
        is_selected = np.zeros(values.shape, bool)
        is_selected[(slice(None), selected) if from_keys else selected] = True
        magnitudes = np.where(is_selected, magnitudes, -1)
    query, key = np.unravel_index(magnitudes.argmax(), values.shape)
    side, kind = "key" if from_keys else "query", "attention" if maps.quantity == "attention" else "other"
    return TEXTS[f"result.{side}_{kind}"].format(
        head=f"L{choice.layer} H{choice.heads[0]}" if combined is None else combined.name,
        query=quoted(queries[query].text, queries[query].position),
        key=quoted(keys[key].text, keys[key].position),
        value=two_digits(float(values[query, key])),
        quantity=UNITS[maps.quantity],
    ) + note_of_layer(choice.layer, maps.window(choice.layer))

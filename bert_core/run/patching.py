"""Activation patching: what a model says of a text with a part of its reading of another text put in.

Below a patched place nothing changes, so nothing below it is computed again; all places travel up together, each
joining at its own depth; and the last layer is computed only where somebody reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bert_core.analysis.causes import word_partners, words_of
from bert_core.attention import BertSelfAttention, rows_at
from bert_core.edits import NEURON, OF_HEADS, PATCHES, check_own
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, counted, silent
from bert_core.records import MeanOf, Noised, PatchBand, Patches, Target, without_noise
from bert_core.refused import Refused, checked, several, shown, whole
from bert_core.run.answers import Answer, answers_of
from bert_core.run.arrays import on_cpu
from bert_core.run.inputs import check_head_mask, layer_gates
from bert_core.run.memory import copies_within
from bert_core.run.readings import PART_OF, aligned, entering, trace_source
from bert_core.run.stack import (
    LayerTrace,
    Trace,
    layers_of,
    run_variants,
    trace,
)
from bert_core.run.targets import asked_positions, check_target, target_values
from bert_core.tokenizer import Encoding

MOST_TEXTS = 1_000  # random ones, for a band
ALIGNED = ("tokens", "words")


@dataclass(frozen=True)
class Cell:
    """One place that is patched, and where its number goes.

    start: how many layers are done when it begins. positions: which tokens; None for all.
    """

    index: tuple[int, ...]
    start: int
    positions: int | None = None
    head: int = 0  # its place among the heads that the layer still has
    neuron: int = 0  # the same among its neurons


@checked
@torch.no_grad()
def patch(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    *,
    what: str = "state",
    apart: bool | None = None,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    align: str = "tokens",
    head_mask: np.ndarray | None = None,
    batch_tokens: int | None = None,
    report: Progress = silent,
) -> Patches:
    """Read a text, put one part of the reading of a source in its place, and see what the model then says; for each.

    source: the text that the patches come from, the same with noise, or the mean of many. With a source that answers
        rightly this is denoising; the other way round, noising.
    target: the number to follow, of the text.
    what: "state", the residual stream at a depth, 0 for the embeddings; "attention" or "feed_forward", what a layer
        adds to it; "head", the output of a head; "pattern", "query", "key" or "value" of a head, all else its own;
        "neuron", one activation of a feed-forward network.
    apart: whether each position is patched by itself, or all at once. None: each, but heads as a whole.
    layers: those to patch, of states the depths; None: all. positions: where to patch, if each by itself; None: all.
    align: "tokens", from each token to the one of the same place, in texts of as many; "words", from each word to the
        one that stands for it (`word_partners`), where that has as many pieces; what has no partner is left as it is.
    head_mask: (layer, head), what is switched off, or down, in both texts.
    batch_tokens: how many tokens of all copies of the text are computed together, which bounds the memory; None: as
        many as suit the device. report: told how many places are done, as for `Progress`.
    Safe to call from many threads on one model.
    Raises Refused for texts of different lengths that are not aligned by words, an unknown kind of patch, patterns
    of a mean or between other orders of words, or a target, layer or position that does not exist.
    Source: Vig 2020 (arXiv:2004.12265); Zhang & Nanda 2023 (arXiv:2309.16042).
    """
    asked = asked_patches(loaded, source, encoding, target, what, apart, layers, positions, align, head_mask)
    tokens, opened, grid = len(encoding), asked.opened, asked.grid
    own = trace_source(loaded, encoding, tokens, opened)
    other, source_value = aligned_source(loaded, source, target, own, asked)
    rows = sorted(set(target.rows))
    at = [rows.index(row) for row in target.rows]
    cells, values = _cells(loaded, what, grid), np.full(grid.shape, np.nan)
    patched = PatchedLayer(loaded, what, own, other, cells, rows)
    for some, states in patched.run_remaining_layers(opened, batch_tokens):
        for number, value in zip(some, target_values(loaded, target, states[:, at]).tolist(), strict=True):
            values[cells[number].index] = value
        counted(report, some.stop, len(cells), "places")
    return Patches(
        encoding=encoding,
        source=source,
        partners=asked.partners,
        target=target,
        what=what,
        axes=grid.axes,
        values=values,
        base_value=target_values(loaded, target, own.last[:, target.rows]).item(),
        source_value=source_value,
        head_mask=asked.gates,
    )


@checked
def estimate_patches(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    *,
    what: str = "state",
    apart: bool | None = None,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    align: str = "tokens",
    head_mask: np.ndarray | None = None,
) -> Patches:
    """What `patch` finds, estimated for all places at once from one pass there and back of the text.

    The slope of the target at each place, times what the patch would change there. Of a query or a key the change is
    that of the pattern, with its softmax computed anew: where attention is saturated its slope says nothing.
    The arguments, and what is refused, are those of `patch`. An estimate holds for small changes; hold it against the
    exact one (`patches_missed`).
    Source: Nanda 2023; Syed 2023 (arXiv:2310.10348); for queries and keys Kramar 2024, section 3.1 (arXiv:2403.00745).
    """
    asked = asked_patches(loaded, source, encoding, target, what, apart, layers, positions, align, head_mask)
    grid, apart = asked.grid, "position" in asked.grid.axes
    with torch.enable_grad():
        own = trace(layers_of(loaded), entering(loaded, encoding).requires_grad_(), gates=asked.opened)
        value = target_values(loaded, target, own.last[:, target.rows])[0]
        other, source_value = aligned_source(loaded, source, target, own, asked)
        ours, theirs = _parts(what, own), _parts(what, other)
        graded = [part for part in ours if part.requires_grad]  # what a layer without heads has of them has no slope
        found_slopes = iter(torch.autograd.grad(value, graded, allow_unused=True))
        slopes = [next(found_slopes) if part.requires_grad else None for part in ours]
    values, modules, steps_of = np.full(grid.shape, np.nan), layers_of(loaded), []
    with torch.no_grad():
        for number in grid.layers:
            slope = slopes[number]
            if slope is None:  # nothing that is asked depends on it
                slope = torch.zeros_like(ours[number])
            if what in ("query", "key"):
                attention = modules[number].attention.self
                steps = _of_patterns(attention, what, own.layers[number], other.layers[number], slope, apart=apart)
            elif what == NEURON:
                steps = (slope * (theirs[number] - ours[number]))[0]  # (seq, neuron)
            else:
                steps = (slope * (theirs[number] - ours[number])).sum(-1)[0]  # (seq,), or (head, seq)
            steps_of.append(steps if apart else steps.sum(-1))
    base_value = value.item()
    for number, of_layer in zip(grid.layers, on_cpu(steps_of), strict=True):
        found = base_value + of_layer.double().numpy()
        if what in OF_HEADS:
            values[number, list(modules[number].attention.self.heads)] = found
        elif what == NEURON:
            values[number][:, list(modules[number].intermediate.neurons)] = found
        else:
            values[number] = found
    if apart:
        left_out = sorted(set(range(len(encoding))) - set(grid.positions))
        np.moveaxis(values, grid.axes.index("position"), 0)[left_out] = np.nan
    return Patches(
        encoding=encoding,
        source=source,
        partners=asked.partners,
        target=target,
        what=what,
        axes=grid.axes,
        values=values,
        base_value=base_value,
        source_value=source_value,
        head_mask=asked.gates,
        exact=False,
    )


@checked
@torch.no_grad()
def answer_with(loaded: LoadedModel, found: Patches, place: Sequence[int] | None, *, top_k: int = 10) -> Answer:
    """All that the model says of a text with one of some patches in: words for its gaps, whether B follows A, the rest.

    found: what `patch` or `estimate_patches` found. place: where, along its axes, as (layer, position); None: nowhere,
        which is what it says of the text as it is.
    Raises Refused for a place that was not patched.
    """
    if not isinstance(found, Patches):
        raise Refused(f"the patches are {shown(found)}: give what `patch` found")
    top_k = whole("top_k", top_k, 1)
    text = found.read
    positions, rows = asked_positions(loaded, text, None, None)
    if place is None:
        gates = layer_gates(loaded, found.head_mask)
        states = trace_source(loaded, found.encoding, len(text), gates).last[:, rows]
    else:
        states = _patched(loaded, found, _place(found, place), rows)
    (answer,) = answers_of(loaded, [text], states, [positions], [[rows.index(one) for one in positions]], top_k)
    return answer


def _place(found: Patches, place: Sequence[int]) -> tuple[int, ...]:
    """A place that was patched, along the axes. Raises Refused for another."""
    at = tuple(whole("a number of the place", one, None) for one in several("the place", place, "whole numbers"))
    inside = len(at) == len(found.axes) and all(
        0 <= one < size for one, size in zip(at, found.values.shape, strict=True)
    )
    if not inside or not np.isfinite(found.values[at]):
        raise Refused(f"{list(at)} was not patched: give its {', '.join(found.axes)}")
    return at


def _patched(loaded: LoadedModel, found: Patches, at: tuple[int, ...], rows: Sequence[int]) -> Tensor:
    """What leaves the last layer with one patch in, at some positions: (1, some, hidden)."""
    tokens, apart = len(found.encoding), "position" in found.axes
    asked = asked_patches(
        loaded, found.source, found.encoding, found.target, found.what, apart, [at[0]],
        [at[found.axes.index("position")]] if apart else None,
        "tokens" if found.partners == tuple(range(tokens)) else "words", found.head_mask,
    )  # fmt: skip
    own = trace_source(loaded, found.encoding, tokens, asked.opened)
    other, _ = aligned_source(loaded, found.source, found.target, own, asked)
    cells = [cell for cell in _cells(loaded, found.what, asked.grid) if cell.index == at]
    patched = PatchedLayer(loaded, found.what, own, other, cells, rows)
    ((_, states),) = patched.run_remaining_layers(asked.opened, tokens)
    return states


@checked
def patch_band(
    loaded: LoadedModel,
    found: Patches,
    *,
    texts: int = 10,
    seed: int = 0,
    batch_tokens: int | None = None,
    report: Progress = silent,
) -> PatchBand:
    """What patches from random texts do at the places of some others: what is within that band is no finding.

    found: patches of a text. A random text has its [CLS], [SEP] and gaps, and whole words drawn from the vocabulary
        everywhere else. texts: how many, 2 to 1,000. report: told how many are done, as for `Progress`.
    Raises Refused for another number of texts, or a vocabulary without whole words.
    """
    if not isinstance(found, Patches):
        raise Refused(f"the patches are {shown(found)}: give what `patch` found")
    texts, rng = whole("texts", texts, 2, MOST_TEXTS), np.random.default_rng(whole("seed", seed))
    words = _whole_words(loaded)
    there = np.isfinite(found.values)
    apart = "position" in found.axes
    positions = there.any(tuple(n for n, axis in enumerate(found.axes) if axis != "position")) if apart else None
    low, high = np.full(found.values.shape, np.inf), np.full(found.values.shape, -np.inf)
    for done in range(texts):
        other = patch(
            loaded, _random_text(loaded, found.read, words, rng), found.encoding, found.target, what=found.what,
            apart=apart,
            layers=np.flatnonzero(there.any(tuple(range(1, there.ndim)))).tolist(),
            positions=None if positions is None else np.flatnonzero(positions).tolist(),
            head_mask=found.head_mask, batch_tokens=batch_tokens,
        )  # fmt: skip
        low, high = np.minimum(low, other.values), np.maximum(high, other.values)
        counted(report, done + 1, texts, "random texts")
    return PatchBand(np.where(there, low, np.nan), np.where(there, high, np.nan), texts)


def _whole_words(loaded: LoadedModel) -> list[int]:
    """The pieces of the vocabulary that are words. Raises Refused if there are none."""
    pieces = map(loaded.tokenizer.token_of, range(len(loaded.tokenizer)))
    words = [number for number, piece in enumerate(pieces) if piece.isalpha() and len(piece) > 1]
    if not words:
        raise Refused("the vocabulary has no whole words, so there are no random texts")
    return words


def _random_text(loaded: LoadedModel, text: Encoding, words: list[int], rng: np.random.Generator) -> Encoding:
    """The same frame with others of these words."""
    ids = [
        number if special or duty == "mask" else int(rng.choice(words))
        for number, special, duty in zip(text.input_ids, text.special, text.duties, strict=True)
    ]
    return replace(text, input_ids=tuple(ids), tokens=tuple(map(loaded.tokenizer.token_of, ids)))


def _parts(what: str, traced: Trace) -> list[Tensor]:
    """What is patched of each layer or depth, whose slope is asked for; for queries and keys, their pattern."""
    if what == "state":
        return traced.states
    name = "probs" if what in ("query", "key") else PART_OF[what]
    return [getattr(layer, name) for layer in traced.layers]


def _of_patterns(
    attention: BertSelfAttention, what: str, own: LayerTrace, other: LayerTrace, slope: Tensor, *, apart: bool
) -> Tensor:
    """The first-order effect of each query or key of the source, (head, seq); of all keys at once, (head, 1)."""
    if what == "query":  # which changes its own row alone
        return (slope * (probs_of(attention, other.query, own.key) - own.probs)).sum(-1)[0]
    if not apart:
        return (slope * (probs_of(attention, own.query, other.key) - own.probs)).sum((-2, -1))[0, :, None]
    tokens = own.key.shape[2]
    keys = own.key.repeat(tokens, 1, 1, 1)
    at = torch.arange(tokens, device=keys.device)
    keys[at, :, at] = other.key[0].transpose(0, 1)
    changed = probs_of(attention, own.query.expand(tokens, -1, -1, -1), keys) - own.probs  # (seq, head, query, key)
    return (slope * changed).sum((-2, -1)).T


class PatchedLayer:
    """What leaves a layer when one of its places is patched, and what then leaves the last layer.

    cells: those that begin first in front. rows: the positions where the last layer is wanted.
    """

    def __init__(
        self, loaded: LoadedModel, what: str, own: Trace, other: Trace, cells: Sequence[Cell], rows: Sequence[int]
    ) -> None:
        self.layers, self.what, self.cells = layers_of(loaded), what, cells
        self.own, self.other, self.ours, self.theirs = own.layers, other.layers, own.states, other.states
        self.positions = torch.tensor([rows], device=loaded.device)

    def run_remaining_layers(self, gates: Tensor | None, batch_tokens: int | None) -> Iterator[tuple[range, Tensor]]:
        """The numbers of some cells at a time, and the last layer of each at the positions, (cell, some, hidden)."""
        at_once = copies_within(batch_tokens, self.positions.device, self.ours[0].shape[1])
        starts = [cell.start for cell in self.cells]
        return run_variants(self.layers, starts, self.begin, at_once, gates=gates, positions=self.positions)

    def begin(self, start: int, numbers: range) -> Tensor:
        """What leaves `start` layers for some cells, (cell, seq, hidden); the last at the positions alone."""
        cells = self.cells[numbers.start : numbers.stop]
        states = self._of_heads(start, cells) if self.what in OF_HEADS else self._of_rows(start, cells)
        return rows_at(states, self.positions) if start == len(self.layers) else states

    def _of_rows(self, start: int, cells: Sequence[Cell]) -> Tensor:
        """What changes a token changes it alone: all others leave the layer as they were."""
        states = self.ours[start].repeat(len(cells), 1, 1)
        where = [cell.positions for cell in cells]
        if where[0] is None:
            states[:] = self._changed(start, cells, slice(None))
        else:
            order = range(len(cells))
            states[order, where] = self._changed(start, cells, where)
        return states

    def _changed(self, start: int, cells: Sequence[Cell], at: slice | list[int | None]) -> Tensor:
        """The tokens that are patched, as they leave the layer: (cell, hidden), or (seq, hidden) for all at once."""
        if self.what == "state":
            state: Tensor = self.theirs[start][0, at]
            return state
        layer, own, other = self.layers[start - 1], self.own[start - 1], self.other[start - 1]
        if self.what == "attention":
            summed = other.attended[0, at] + own.entering[0, at]
            changed: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(summed))
            return changed
        fed = other.fed[0, at]
        if self.what == NEURON:
            neurons = [cell.neuron for cell in cells]
            step = (other.activated - own.activated)[0, at, neurons]  # (cell,)
            fed = own.fed[0, at] + step[:, None] * layer.output.dense.weight.T[neurons]
        left: Tensor = layer.output.LayerNorm(fed + own.normed[0, at])
        return left

    def _of_heads(self, start: int, cells: Sequence[Cell]) -> Tensor:
        layer, own, other = self.layers[start - 1], self.own[start - 1], self.other[start - 1]
        heads = [cell.head for cell in cells]
        change = self._contexts(own, other, cells) - own.context[0, heads]
        maps = layer.attention.output_maps[:, heads]  # (hidden, cell, head size)
        summed = own.summed + torch.einsum("csd,ocd->cso", change, maps)
        left: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(summed))
        return left

    def _contexts(self, own: LayerTrace, other: LayerTrace, cells: Sequence[Cell]) -> Tensor:
        """The context of the patched head of each cell, with its gate: (cell, seq, head size)."""
        heads, attention = [cell.head for cell in cells], own.layer.attention.self

        def mixed(name: str) -> Tensor:
            """A part of each cell's head with the patched rows of the source in it."""
            part: Tensor = getattr(own, name)[0, heads].clone()
            of_source: Tensor = getattr(other, name)[0]
            for row, cell in enumerate(cells):
                at = slice(None) if cell.positions is None else cell.positions
                part[row, at] = of_source[cell.head, at]
            return part

        if self.what == "head":
            return mixed("context")
        value = mixed("value") if self.what == "value" else own.value[0, heads]
        if self.what == "pattern":
            probs = mixed("probs")
        elif self.what == "value":
            probs = own.probs[0, heads]
        else:
            query = mixed("query") if self.what == "query" else own.query[0, heads]
            key = mixed("key") if self.what == "key" else own.key[0, heads]
            probs = probs_of(attention, query[:, None], key[:, None], heads)[:, 0]
        context = probs @ value
        if own.gate is not None:
            context = context * own.gate[0, [attention.heads[head] for head in heads]]
        return context


def probs_of(attention: BertSelfAttention, query: Tensor, key: Tensor, heads: Sequence[int] | None = None) -> Tensor:
    """(batch, head, query, key), after the softmax, without the arrows that are cut.

    query, key: (batch, head, seq, head size). heads: of each in the batch the one head that it has, by its place among
        those that are left; None: all of them.
    """
    scores = query @ key.transpose(-1, -2) / math.sqrt(attention.attention_head_size)
    if attention.distances is not None:
        numbers = attention.heads if heads is None else [[attention.heads[head]] for head in heads]
        scores = scores + attention.position_scores(query, key, query.shape[2], None, numbers)
    unseen, removed = (
        arrows if arrows is None or heads is None else arrows[0, heads, None]
        for way in (True, False)
        for arrows in [attention.arrows_cut(query.shape[2], key.shape[2], renormalised=way)]
    )
    if unseen is not None:
        scores = scores.masked_fill(unseen, -math.inf)
    probs = scores.softmax(-1)
    return probs if removed is None else probs.masked_fill(removed, 0)


class AskedPatches(NamedTuple):
    """What is patched, once it is known to be possible.

    gates: (layer, head). opened: the same as layers take them, or None. partners: as in `Patches`.
    """

    gates: np.ndarray
    opened: Tensor | None
    grid: _Grid
    partners: tuple[int | None, ...]


def asked_patches(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    what: str,
    apart: bool | None,
    layers: Sequence[int] | None,
    positions: Sequence[int] | None,
    align: str,
    head_mask: np.ndarray | None,
) -> AskedPatches:
    """Raises Refused as `patch` does."""
    if what not in PATCHES:
        raise Refused(f"what {shown(what)} is unknown: one of {', '.join(PATCHES)}")
    if align not in ALIGNED:
        raise Refused(f"align {shown(align)} is unknown: one of {', '.join(ALIGNED)}")
    check_own(loaded.edits, "patching")
    if target is None:
        raise Refused("there is no target: patching asks how a number changes, so give one")
    if not isinstance(source, Encoding | Noised | MeanOf) or not isinstance(encoding, Encoding | Noised):
        raise Refused(
            f"the source is {shown(source)} and the text {shown(encoding)}: each must be an Encoding or Noised, the "
            "source may be a MeanOf"
        )
    text = without_noise(encoding)
    check_target(loaded, text, target)
    partners = _partners(loaded, source, text, target, align)
    if what == "pattern" and (isinstance(source, MeanOf) or partners != tuple(range(len(text)))):
        raise Refused(
            "a pattern says which token looks at which, so it can only come from a text of as many tokens, each at the "
            "place of its own: patch the head's output, or its queries, keys or values"
        )
    if apart is None:
        apart = what not in OF_HEADS
    if what == NEURON and not apart:
        raise Refused("neurons are patched token by token: leave apart as it is")
    config = loaded.config
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    grid = _grid(loaded, partners, what, bool(apart), layers, positions)
    return AskedPatches(gates, layer_gates(loaded, gates), grid, partners)


def _partners(
    loaded: LoadedModel, source: Encoding | Noised | MeanOf, text: Encoding, target: Target, align: str
) -> tuple[int | None, ...]:
    """As in `Patches`."""
    same = tuple(range(len(text)))
    if isinstance(source, MeanOf):
        return same
    theirs = without_noise(source)
    if align == "words":
        partners = word_partners(theirs, text).partners
        missing = [row for row in target.rows if partners[row] is None and not target.pooled]
        if missing:
            raise Refused(
                f"position {missing[0]} of the text, where the answer is read, has no partner in the source: hide the "
                "same word in both"
            )
        if target.kind in ("nsp", "choice"):  # which need a second text
            check_target(loaded, theirs, target)
        return partners
    check_target(loaded, theirs, target)
    if len(theirs) != len(text):
        raise Refused(
            f"the source has {len(theirs)} tokens and the text {len(text)}: patches go from token to token, so "
            f"both must have as many{_parting(theirs, text)}"
        )
    return same


@torch.no_grad()
def aligned_source(
    loaded: LoadedModel, source: Encoding | Noised | MeanOf, target: Target, own: Trace, asked: AskedPatches
) -> tuple[Trace, float]:
    """The pass of the source, its tokens at the places of the text, and the target of the source; NaN of a mean."""
    other = trace_source(loaded, source, len(asked.partners), asked.opened)
    if isinstance(source, MeanOf):
        return other, math.nan
    rows = [row for row in (asked.partners[row] for row in target.rows) if row is not None]
    if target.pooled:  # of the source all that counts in its own vector
        rows = list(loaded.pools.rows(other.last.shape[1]))
    value = target_values(loaded, target, other.last[:, rows]).item()
    if asked.partners == tuple(range(other.last.shape[1])):
        return other, value
    return aligned(other, own, asked.partners), value


def _parting(source: Encoding, encoding: Encoding) -> str:
    """The first two words that take another number of pieces, as the end of a sentence; nothing if there are none."""
    for (left, theirs), (right, own) in zip(words_of(source), words_of(encoding), strict=False):
        if len(theirs) != len(own):
            return f"; “{left}” has {len(theirs)} and “{right}” has {len(own)}"
    return ""


class _Grid(NamedTuple):
    """What is patched, and the axes of what is found.

    layers: the layers, or depths. positions: the tokens, each by itself; one None for all at once.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    layers: Sequence[int]
    positions: Sequence[int | None]


def _grid(
    loaded: LoadedModel,
    partners: Sequence[int | None],
    what: str,
    apart: bool,
    layers: Sequence[int] | None,
    positions: Sequence[int] | None,
) -> _Grid:
    config, first, tokens = loaded.config, "depth" if what == "state" else "layer", len(partners)
    sizes = {
        "depth": config.num_hidden_layers + 1, "layer": config.num_hidden_layers, "head": config.num_attention_heads,
        "position": tokens, "neuron": config.intermediate_size,
    }  # fmt: skip
    axes = (first, *["head"] * (what in OF_HEADS), *["position"] * apart, *["neuron"] * (what == NEURON))
    which = range(sizes[first]) if layers is None else _some(first, layers, sizes[first])
    at: Sequence[int | None] = [None]
    if apart:
        chosen = range(tokens) if positions is None else _some("position", positions, tokens)
        at = [position for position in chosen if partners[position] is not None]
    elif positions is not None:
        raise Refused("positions were given, but all of them are patched at once: give apart=True, or leave them out")
    return _Grid(axes, tuple(sizes[axis] for axis in axes), which, at)


def _cells(loaded: LoadedModel, what: str, grid: _Grid) -> list[Cell]:
    """Every place that is patched, those that begin first in front."""
    cells = []
    for number in grid.layers:
        start = number + (what != "state")
        heads = enumerate(layers_of(loaded)[number].attention.self.heads) if what in OF_HEADS else [(0, None)]
        neurons = enumerate(layers_of(loaded)[number].intermediate.neurons) if what == NEURON else [(0, None)]
        for (order, head), position, (among, neuron) in product(heads, grid.positions, neurons):
            index = tuple(place for place in (number, head, position, neuron) if place is not None)
            cells.append(Cell(index, start, position, order, among))
    return cells


def _some(name: str, given: Sequence[int], most: int) -> list[int]:
    """These numbers in order, each once. Raises Refused for one that does not exist."""
    numbers = sorted({whole(f"a {name}", one, None) for one in several(f"{name}s", given, "whole numbers")})
    if not numbers or not (numbers[0] >= 0 and numbers[-1] < most):
        raise Refused(f"{name}s {numbers}: at least one of 0 to {most - 1}")
    return numbers

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

from bert_core.analysis.causes import word_partners, words_with_positions
from bert_core.attention import BertSelfAttention, gather_positions
from bert_core.edits import HEAD_PARTS, NEURON, PATCHABLE_PARTS, check_unpatched
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import MeanOf, Noised, PatchBand, Patches, Target, without_noise
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.answers import Answer, predict_answers
from bert_core.run.arrays import to_cpu
from bert_core.run.inputs import check_head_mask, layer_gates
from bert_core.run.memory import copies_per_batch
from bert_core.run.patch_sources import PATCHED_PARTS, align_trace, embed_source, trace_source
from bert_core.run.stack import (
    LayerTrace,
    Trace,
    encoder_layers,
    run_variants,
    trace,
)
from bert_core.run.targets import check_target, prediction_positions, target_values
from bert_core.tokenizer import Encoding

MAX_TEXTS = 1_000  # random ones, for a band
ALIGNMENTS = ("tokens", "words")


@dataclass(frozen=True)
class PatchPlace:
    """One place that is patched, and where its number goes.

    start: how many layers are done when it begins. positions: which tokens; None for all.
    """

    index: tuple[int, ...]
    start: int
    positions: int | None = None
    head: int = 0  # its place among the heads that the layer still has
    neuron: int = 0  # the same among its neurons


@validate_arguments
@torch.no_grad()
def patch(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    *,
    part_kind: str = "state",
    per_position: bool | None = None,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    align: str = "tokens",
    head_mask: np.ndarray | None = None,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
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
    asked = plan_patches(loaded, source, encoding, target, part_kind, per_position, layers, positions, align, head_mask)
    tokens, opened, grid = len(encoding), asked.opened, asked.grid
    own = trace_source(loaded, encoding, tokens, opened)
    other, source_value = aligned_source(loaded, source, target, own, asked)
    rows = sorted(set(target.rows))
    at = [rows.index(row) for row in target.rows]
    cells, values = _cells(loaded, part_kind, grid), np.full(grid.shape, np.nan)
    patched = PatchedLayer(loaded, part_kind, own, other, cells, rows)
    for some, states in patched.run_remaining_layers(opened, batch_tokens):
        for number, value in zip(some, target_values(loaded, target, states[:, at]).tolist(), strict=True):
            values[cells[number].index] = value
        report_count(report, some.stop, len(cells), "places")
    return Patches(
        encoding=encoding,
        source=source,
        partners=asked.partners,
        target=target,
        kind=part_kind,
        axes=grid.axes,
        values=values,
        base_value=target_values(loaded, target, own.last[:, target.rows]).item(),
        source_value=source_value,
        head_mask=asked.gates,
    )


@validate_arguments
def estimate_patches(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    *,
    part_kind: str = "state",
    per_position: bool | None = None,
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
    asked = plan_patches(loaded, source, encoding, target, part_kind, per_position, layers, positions, align, head_mask)
    grid, per_position = asked.grid, "position" in asked.grid.axes
    with torch.enable_grad():
        own = trace(encoder_layers(loaded), embed_source(loaded, encoding).requires_grad_(), gates=asked.opened)
        value = target_values(loaded, target, own.last[:, target.rows])[0]
        other, source_value = aligned_source(loaded, source, target, own, asked)
        ours, theirs = _parts(part_kind, own), _parts(part_kind, other)
        graded = [part for part in ours if part.requires_grad]  # what a layer without heads has of them has no slope
        found_slopes = iter(torch.autograd.grad(value, graded, allow_unused=True))
        slopes = [next(found_slopes) if part.requires_grad else None for part in ours]
    values, modules, steps_of = np.full(grid.shape, np.nan), encoder_layers(loaded), []
    with torch.no_grad():
        for number in grid.layers:
            slope = slopes[number]
            if slope is None:  # nothing that is asked depends on it
                slope = torch.zeros_like(ours[number])
            if part_kind in ("query", "key"):
                attention = modules[number].attention.self
                steps = _of_patterns(
                    attention, part_kind, own.layers[number], other.layers[number], slope, apart=per_position
                )
            elif part_kind == NEURON:
                steps = (slope * (theirs[number] - ours[number]))[0]  # (seq, neuron)
            else:
                steps = (slope * (theirs[number] - ours[number])).sum(-1)[0]  # (seq,), or (head, seq)
            steps_of.append(steps if per_position else steps.sum(-1))
    base_value = value.item()
    for number, of_layer in zip(grid.layers, to_cpu(steps_of), strict=True):
        found = base_value + of_layer.double().numpy()
        if part_kind in HEAD_PARTS:
            values[number, list(modules[number].attention.self.heads)] = found
        elif part_kind == NEURON:
            values[number][:, list(modules[number].intermediate.neurons)] = found
        else:
            values[number] = found
    if per_position:
        left_out = sorted(set(range(len(encoding))) - set(grid.positions))
        np.moveaxis(values, grid.axes.index("position"), 0)[left_out] = np.nan
    return Patches(
        encoding=encoding,
        source=source,
        partners=asked.partners,
        target=target,
        kind=part_kind,
        axes=grid.axes,
        values=values,
        base_value=base_value,
        source_value=source_value,
        head_mask=asked.gates,
        exact=False,
    )


@validate_arguments
@torch.no_grad()
def predict_with_patch(
    loaded: LoadedModel, patches: Patches, place: Sequence[int] | None, *, top_k: int = 10
) -> Answer:
    """All that the model says of a text with one of some patches in: words for its gaps, whether B follows A, the rest.

    found: what `patch` or `estimate_patches` found. place: where, along its axes, as (layer, position); None: nowhere,
        which is what it says of the text as it is.
    Raises Refused for a place that was not patched.
    """
    if not isinstance(patches, Patches):
        raise Refused(f"the patches are {short_repr(patches)}: give what `patch` found")
    top_k = require_int("top_k", top_k, 1)
    text = patches.text
    positions, rows = prediction_positions(loaded, text, None, None)
    if place is None:
        gates = layer_gates(loaded, patches.head_mask)
        states = trace_source(loaded, patches.encoding, len(text), gates).last[:, rows]
    else:
        states = _patched(loaded, patches, _place(patches, place), rows)
    (answer,) = predict_answers(loaded, [text], states, [positions], [[rows.index(one) for one in positions]], top_k)
    return answer


def _place(found: Patches, place: Sequence[int]) -> tuple[int, ...]:
    """A place that was patched, along the axes. Raises Refused for another."""
    at = tuple(
        require_int("a number of the place", one, None) for one in require_sequence("the place", place, "whole numbers")
    )
    inside = len(at) == len(found.axes) and all(
        0 <= one < size for one, size in zip(at, found.values.shape, strict=True)
    )
    if not inside or not np.isfinite(found.values[at]):
        raise Refused(f"{list(at)} was not patched: give its {', '.join(found.axes)}")
    return at


def _patched(loaded: LoadedModel, found: Patches, at: tuple[int, ...], rows: Sequence[int]) -> Tensor:
    """What leaves the last layer with one patch in, at some positions: (1, some, hidden)."""
    tokens, apart = len(found.encoding), "position" in found.axes
    asked = plan_patches(
        loaded, found.source, found.encoding, found.target, found.kind, apart, [at[0]],
        [at[found.axes.index("position")]] if apart else None,
        "tokens" if found.partners == tuple(range(tokens)) else "words", found.head_mask,
    )  # fmt: skip
    own = trace_source(loaded, found.encoding, tokens, asked.opened)
    other, _ = aligned_source(loaded, found.source, found.target, own, asked)
    cells = [cell for cell in _cells(loaded, found.kind, asked.grid) if cell.index == at]
    patched = PatchedLayer(loaded, found.kind, own, other, cells, rows)
    ((_, states),) = patched.run_remaining_layers(asked.opened, tokens)
    return states


@validate_arguments
def patch_band(
    loaded: LoadedModel,
    patches: Patches,
    *,
    texts: int = 10,
    seed: int = 0,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> PatchBand:
    """What patches from random texts do at the places of some others: what is within that band is no finding.

    found: patches of a text. A random text has its [CLS], [SEP] and gaps, and whole words drawn from the vocabulary
        everywhere else. texts: how many, 2 to 1,000. report: told how many are done, as for `Progress`.
    Raises Refused for another number of texts, or a vocabulary without whole words.
    """
    if not isinstance(patches, Patches):
        raise Refused(f"the patches are {short_repr(patches)}: give what `patch` found")
    texts, rng = require_int("texts", texts, 2, MAX_TEXTS), np.random.default_rng(require_int("seed", seed))
    words = _whole_words(loaded)
    there = np.isfinite(patches.values)
    apart = "position" in patches.axes
    positions = there.any(tuple(n for n, axis in enumerate(patches.axes) if axis != "position")) if apart else None
    low, high = np.full(patches.values.shape, np.inf), np.full(patches.values.shape, -np.inf)
    for done in range(texts):
        other = patch(
            loaded, _random_text(loaded, patches.text, words, rng), patches.encoding, patches.target, part_kind=patches.kind,
            per_position=apart,
            layers=np.flatnonzero(there.any(tuple(range(1, there.ndim)))).tolist(),
            positions=None if positions is None else np.flatnonzero(positions).tolist(),
            head_mask=patches.head_mask, batch_tokens=batch_tokens,
        )  # fmt: skip
        low, high = np.minimum(low, other.values), np.maximum(high, other.values)
        report_count(report, done + 1, texts, "random texts")
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
        for number, special, duty in zip(text.input_ids, text.special, text.roles, strict=True)
    ]
    return replace(text, input_ids=tuple(ids), tokens=tuple(map(loaded.tokenizer.token_of, ids)))


def _parts(what: str, traced: Trace) -> list[Tensor]:
    """What is patched of each layer or depth, whose slope is asked for; for queries and keys, their pattern."""
    if what == "state":
        return traced.states
    name = "probs" if what in ("query", "key") else PATCHED_PARTS[what]
    return [getattr(layer, name) for layer in traced.layers]


def _of_patterns(
    attention: BertSelfAttention, what: str, own: LayerTrace, other: LayerTrace, slope: Tensor, *, apart: bool
) -> Tensor:
    """The first-order effect of each query or key of the source, (head, seq); of all keys at once, (head, 1)."""
    if what == "query":  # which changes its own row alone
        return (slope * (attention_probabilities(attention, other.query, own.key) - own.probs)).sum(-1)[0]
    if not apart:
        return (slope * (attention_probabilities(attention, own.query, other.key) - own.probs)).sum((-2, -1))[
            0, :, None
        ]
    tokens = own.key.shape[2]
    keys = own.key.repeat(tokens, 1, 1, 1)
    at = torch.arange(tokens, device=keys.device)
    keys[at, :, at] = other.key[0].transpose(0, 1)
    changed = (
        attention_probabilities(attention, own.query.expand(tokens, -1, -1, -1), keys) - own.probs
    )  # (seq, head, query, key)
    return (slope * changed).sum((-2, -1)).T


class PatchedLayer:
    """What leaves a layer when one of its places is patched, and what then leaves the last layer.

    cells: those that begin first in front. rows: the positions where the last layer is wanted.
    """

    def __init__(
        self, loaded: LoadedModel, what: str, own: Trace, other: Trace, cells: Sequence[PatchPlace], rows: Sequence[int]
    ) -> None:
        self.layers, self.what, self.cells = encoder_layers(loaded), what, cells
        self.own, self.other, self.ours, self.theirs = own.layers, other.layers, own.states, other.states
        self.positions = torch.tensor([rows], device=loaded.device)

    def run_remaining_layers(self, gates: Tensor | None, batch_tokens: int | None) -> Iterator[tuple[range, Tensor]]:
        """The numbers of some cells at a time, and the last layer of each at the positions, (cell, some, hidden)."""
        at_once = copies_per_batch(batch_tokens, self.positions.device, self.ours[0].shape[1])
        starts = [cell.start for cell in self.cells]
        return run_variants(self.layers, starts, self.begin, at_once, gates=gates, positions=self.positions)

    def begin(self, start: int, numbers: range) -> Tensor:
        """What leaves `start` layers for some cells, (cell, seq, hidden); the last at the positions alone."""
        cells = self.cells[numbers.start : numbers.stop]
        states = self._of_heads(start, cells) if self.what in HEAD_PARTS else self._of_rows(start, cells)
        return gather_positions(states, self.positions) if start == len(self.layers) else states

    def _of_rows(self, start: int, cells: Sequence[PatchPlace]) -> Tensor:
        """What changes a token changes it alone: all others leave the layer as they were."""
        states = self.ours[start].repeat(len(cells), 1, 1)
        where = [cell.positions for cell in cells]
        if where[0] is None:
            states[:] = self._changed(start, cells, slice(None))
        else:
            order = range(len(cells))
            states[order, where] = self._changed(start, cells, where)
        return states

    def _changed(self, start: int, cells: Sequence[PatchPlace], at: slice | list[int | None]) -> Tensor:
        """The tokens that are patched, as they leave the layer: (cell, hidden), or (seq, hidden) for all at once."""
        if self.what == "state":
            state: Tensor = self.theirs[start][0, at]
            return state
        layer, own, other = self.layers[start - 1], self.own[start - 1], self.other[start - 1]
        if self.what == "attention":
            summed = other.attention_update[0, at] + own.input_states[0, at]
            changed: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(summed))
            return changed
        fed = other.feed_forward_update[0, at]
        if self.what == NEURON:
            neurons = [cell.neuron for cell in cells]
            step = (other.neurons - own.neurons)[0, at, neurons]  # (cell,)
            fed = own.feed_forward_update[0, at] + step[:, None] * layer.output.dense.weight.T[neurons]
        left: Tensor = layer.output.LayerNorm(fed + own.after_attention[0, at])
        return left

    def _of_heads(self, start: int, cells: Sequence[PatchPlace]) -> Tensor:
        layer, own, other = self.layers[start - 1], self.own[start - 1], self.other[start - 1]
        heads = [cell.head for cell in cells]
        change = self._contexts(own, other, cells) - own.context[0, heads]
        maps = layer.attention.head_projections[:, heads]  # (hidden, cell, head size)
        summed = own.attention_sum + torch.einsum("csd,ocd->cso", change, maps)
        left: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(summed))
        return left

    def _contexts(self, own: LayerTrace, other: LayerTrace, cells: Sequence[PatchPlace]) -> Tensor:
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
            probs = attention_probabilities(attention, query[:, None], key[:, None], heads)[:, 0]
        context = probs @ value
        if own.gate is not None:
            context = context * own.gate[0, [attention.heads[head] for head in heads]]
        return context


def attention_probabilities(
    attention: BertSelfAttention, query: Tensor, key: Tensor, heads: Sequence[int] | None = None
) -> Tensor:
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
        for arrows in [attention.blocked_edges(query.shape[2], key.shape[2], renormalised=way)]
    )
    if unseen is not None:
        scores = scores.masked_fill(unseen, -math.inf)
    probs = scores.softmax(-1)
    return probs if removed is None else probs.masked_fill(removed, 0)


class PatchPlan(NamedTuple):
    """What is patched, once it is known to be possible.

    gates: (layer, head). opened: the same as layers take them, or None. partners: as in `Patches`.
    """

    gates: np.ndarray
    opened: Tensor | None
    grid: _Grid
    partners: tuple[int | None, ...]


def plan_patches(
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
) -> PatchPlan:
    """Raises Refused as `patch` does."""
    if what not in PATCHABLE_PARTS:
        raise Refused(f"what {short_repr(what)} is unknown: one of {', '.join(PATCHABLE_PARTS)}")
    if align not in ALIGNMENTS:
        raise Refused(f"align {short_repr(align)} is unknown: one of {', '.join(ALIGNMENTS)}")
    check_unpatched(loaded.edits, "patching")
    if target is None:
        raise Refused("there is no target: patching asks how a number changes, so give one")
    if not isinstance(source, Encoding | Noised | MeanOf) or not isinstance(encoding, Encoding | Noised):
        raise Refused(
            f"the source is {short_repr(source)} and the text {short_repr(encoding)}: each must be an Encoding or Noised, the "
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
        apart = what not in HEAD_PARTS
    if what == NEURON and not apart:
        raise Refused("neurons are patched token by token: leave apart as it is")
    config = loaded.config
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    grid = _grid(loaded, partners, what, bool(apart), layers, positions)
    return PatchPlan(gates, layer_gates(loaded, gates), grid, partners)


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
    loaded: LoadedModel, source: Encoding | Noised | MeanOf, target: Target, own: Trace, asked: PatchPlan
) -> tuple[Trace, float]:
    """The pass of the source, its tokens at the places of the text, and the target of the source; NaN of a mean."""
    other = trace_source(loaded, source, len(asked.partners), asked.opened)
    if isinstance(source, MeanOf):
        return other, math.nan
    rows = [row for row in (asked.partners[row] for row in target.rows) if row is not None]
    if target.pooled:  # of the source all that counts in its own vector
        rows = list(loaded.effective_pooling.pooled_positions(other.last.shape[1]))
    value = target_values(loaded, target, other.last[:, rows]).item()
    if asked.partners == tuple(range(other.last.shape[1])):
        return other, value
    return align_trace(other, own, asked.partners), value


def _parting(source: Encoding, encoding: Encoding) -> str:
    """The first two words that take another number of pieces, as the end of a sentence; nothing if there are none."""
    for (left, theirs), (right, own) in zip(words_with_positions(source), words_with_positions(encoding), strict=False):
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
    axes = (first, *["head"] * (what in HEAD_PARTS), *["position"] * apart, *["neuron"] * (what == NEURON))
    which = range(sizes[first]) if layers is None else _some(first, layers, sizes[first])
    at: Sequence[int | None] = [None]
    if apart:
        chosen = range(tokens) if positions is None else _some("position", positions, tokens)
        at = [position for position in chosen if partners[position] is not None]
    elif positions is not None:
        raise Refused("positions were given, but all of them are patched at once: give apart=True, or leave them out")
    return _Grid(axes, tuple(sizes[axis] for axis in axes), which, at)


def _cells(loaded: LoadedModel, what: str, grid: _Grid) -> list[PatchPlace]:
    """Every place that is patched, those that begin first in front."""
    cells = []
    for number in grid.layers:
        start = number + (what != "state")
        heads = enumerate(encoder_layers(loaded)[number].attention.self.heads) if what in HEAD_PARTS else [(0, None)]
        neurons = enumerate(encoder_layers(loaded)[number].intermediate.neurons) if what == NEURON else [(0, None)]
        for (order, head), position, (among, neuron) in product(heads, grid.positions, neurons):
            index = tuple(place for place in (number, head, position, neuron) if place is not None)
            cells.append(PatchPlace(index, start, position, order, among))
    return cells


def _some(name: str, given: Sequence[int], most: int) -> list[int]:
    """These numbers in order, each once. Raises Refused for one that does not exist."""
    numbers = sorted(
        {require_int(f"a {name}", one, None) for one in require_sequence(f"{name}s", given, "whole numbers")}
    )
    if not numbers or not (numbers[0] >= 0 and numbers[-1] < most):
        raise Refused(f"{name}s {numbers}: at least one of 0 to {most - 1}")
    return numbers

"""Activation patching: predictions for a text with one activation at a time replaced by that of another text.

The layers below a patched place are not computed again. Many places are computed in one batch, which each of them joins
at its own depth. The last layer is computed only at the positions that are needed.
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
from bert_core.deprecation import renamed_parameters
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
from bert_core.run.stack import LayerTrace, Trace, encoder_layers, run_variants, trace
from bert_core.run.targets import check_target, prediction_positions, rows_follow_text, target_rows, target_values
from bert_core.tokenizer import Encoding

MAX_TEXTS = 1_000  # random texts of a patch band
ALIGNMENTS = ("tokens", "words")


@dataclass(frozen=True)
class PatchPlace:
    """One place to patch, and its index in the array of results.

    start: number of layers that are done before the patched pass differs. position: the patched position; None: all.
    head, neuron: indices among the remaining heads and neurons of the layer.
    """

    index: tuple[int, ...]
    start: int
    position: int | None = None
    head: int = 0
    neuron: int = 0


@renamed_parameters(what="part_kind", apart="per_position")
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
    """Replace each activation of a text in turn by that of a source, and compute a target (activation patching).

    source: the text that the patches come from, a text with noise, or the mean over texts (`MeanOf`). Patching from a
        source with the correct answer is called denoising, the other direction noising.
    encoding: the patched text. target: the value of this text to compute.
    part_kind: the activation to patch.
        "state": the residual stream at a depth, 0 for the embeddings.
        "attention", "feed_forward": the output of attention or of the feed-forward network of a layer.
        "head": the output of a head.
        "pattern", "query", "key", "value": this part of a head, with its other parts unchanged. With rotary positions,
            a query or key is rotated by the position where it is put.
        "neuron": one activation of a feed-forward network.
    per_position: whether each position is patched separately, or all at once. None: separately, but all at once for
        parts of heads.
    layers: layers to patch, or depths for "state"; None: all.
    positions: positions to patch, if they are patched separately; None: all.
    align: "tokens" patches from the same position of a source with the same number of tokens. "words" patches from the
        corresponding word (`word_partners`) if it has the same number of pieces; other words are not patched.
    head_mask: head gates (layer, head) in both texts; None: all 1.
    batch_tokens: limit of the tokens in a batch, over all copies of the text, which bounds the memory; None: the number
        that suits the device.
    report: receives the number of places that are done, see `Progress`.
    Thread-safe: the model is not changed.
    Raises Refused for texts of different lengths with align="tokens", and for patterns from a mean or another order of
    words. Raises Refused also for an unknown kind of part, and for a target, layer or position that does not exist.
    Source: Vig 2020 (arXiv:2004.12265); Zhang & Nanda 2023 (arXiv:2309.16042).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encode = loaded.tokenizer.encode
    >>> source, encoding = encode("The woman lost [MASK] hat."), encode("The man lost [MASK] hat.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "her", against="his")
    >>> effects = bert_core.patch(loaded, source, encoding, target, part_kind="head").effects
    >>> layer, head = bert_core.leading_heads(effects, 1)[0]
    >>> print(f"L{layer} H{head}: {effects[layer, head]:.2f}")
    L5 H8: 0.79
    """
    plan = plan_patches(loaded, source, encoding, target, part_kind, per_position, layers, positions, align, head_mask)
    tokens, gates, grid = len(encoding), plan.layer_gates, plan.grid
    text_trace = trace_source(loaded, encoding, tokens, gates)
    source_trace, source_value = aligned_source(loaded, source, target, text_trace, plan)
    rows = sorted(set(plan.target_rows))
    value_rows = [rows.index(row) for row in plan.target_rows]
    places, values = _patch_places(loaded, part_kind, grid), np.full(grid.shape, np.nan)
    runner = PatchedLayer(loaded, part_kind, text_trace, source_trace, places, rows)
    for indices, states in runner.run_remaining_layers(gates, batch_tokens):
        batch_values = target_values(loaded, plan.text, target, states[:, value_rows]).tolist()
        for number, value in zip(indices, batch_values, strict=True):
            values[places[number].index] = value
        report_count(report, indices.stop, len(places), "places")
    return Patches(
        encoding=encoding,
        source=source,
        partners=plan.partners,
        target=target,
        kind=part_kind,
        axes=grid.axes,
        values=values,
        base_value=target_values(loaded, plan.text, target, text_trace.last[:, plan.target_rows]).item(),
        source_value=source_value,
        head_mask=plan.head_mask,
    )


@renamed_parameters(what="part_kind", apart="per_position")
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
    """Estimate the results of `patch` for all places from one forward and one backward pass (attribution patching).

    An estimate is the gradient of the target with respect to an activation, times the change that the patch would make.
    For a query or a key, the change is that of the attention pattern with a recomputed softmax, because gradients
    vanish where attention is saturated. Estimates are accurate for small changes; `patch_estimate_quality` compares
    them with exact results.
    The arguments and exceptions are those of `patch`.
    Source: Nanda 2023; Syed 2023 (arXiv:2310.10348); for queries and keys Kramar 2024, section 3.1 (arXiv:2403.00745).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encode = loaded.tokenizer.encode
    >>> source, encoding = encode("The woman lost [MASK] hat."), encode("The man lost [MASK] hat.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "her", against="his")
    >>> patches = bert_core.estimate_patches(loaded, source, encoding, target)
    >>> patches.axes, patches.values.shape, patches.exact
    (('depth', 'position'), (7, 8), False)
    """
    plan = plan_patches(loaded, source, encoding, target, part_kind, per_position, layers, positions, align, head_mask)
    grid, per_position = plan.grid, "position" in plan.grid.axes
    with torch.enable_grad():
        text_trace = trace(
            encoder_layers(loaded), embed_source(loaded, encoding).requires_grad_(), gates=plan.layer_gates
        )
        value = target_values(loaded, plan.text, target, text_trace.last[:, plan.target_rows])[0]
        source_trace, source_value = aligned_source(loaded, source, target, text_trace, plan)
        text_parts, source_parts = _parts(part_kind, text_trace), _parts(part_kind, source_trace)
        # Parts of heads have no graph in a layer without heads.
        differentiable = [part for part in text_parts if part.requires_grad]
        gradient_iterator = iter(torch.autograd.grad(value, differentiable, allow_unused=True))
        gradients = [next(gradient_iterator) if part.requires_grad else None for part in text_parts]
    values, modules, layer_effects = np.full(grid.shape, np.nan), encoder_layers(loaded), []
    with torch.no_grad():
        for number in grid.layers:
            gradient = gradients[number]
            if gradient is None:  # the target does not depend on this activation
                gradient = torch.zeros_like(text_parts[number])
            if part_kind in ("query", "key"):
                traces = text_trace.layers[number], source_trace.layers[number]
                attention = modules[number].attention.self
                effects = _pattern_effects(attention, part_kind, *traces, gradient, per_position=per_position)
            elif part_kind == NEURON:
                effects = (gradient * (source_parts[number] - text_parts[number]))[0]  # (seq, neuron)
            else:
                effects = (gradient * (source_parts[number] - text_parts[number])).sum(-1)[0]  # (seq,), or (head, seq)
            layer_effects.append(effects if per_position else effects.sum(-1))
    base_value = value.item()
    for number, layer_effect in zip(grid.layers, to_cpu(layer_effects), strict=True):
        estimates = base_value + layer_effect.double().numpy()
        if part_kind in HEAD_PARTS:
            values[number, list(modules[number].attention.self.heads)] = estimates
        elif part_kind == NEURON:
            values[number][:, list(modules[number].intermediate.neurons)] = estimates
        else:
            values[number] = estimates
    if per_position:
        skipped_positions = sorted(set(range(len(encoding))) - set(grid.positions))
        np.moveaxis(values, grid.axes.index("position"), 0)[skipped_positions] = np.nan
    return Patches(
        encoding=encoding,
        source=source,
        partners=plan.partners,
        target=target,
        kind=part_kind,
        axes=grid.axes,
        values=values,
        base_value=base_value,
        source_value=source_value,
        head_mask=plan.head_mask,
        exact=False,
    )


@renamed_parameters(found="patches")
@validate_arguments
@torch.no_grad()
def predict_with_patch(
    loaded: LoadedModel, patches: Patches, place: Sequence[int] | None, *, top_k: int = 10
) -> Answer:
    """Compute all predictions of a model for a text with one patch applied.

    patches: the result of `patch` or `estimate_patches`.
    place: the index of the patch along the axes of the patches, such as (layer, position); None: no patch.
    top_k: number of most likely tokens in each MLM prediction.
    Raises Refused for a place that was not patched.
    """
    if not isinstance(patches, Patches):
        raise Refused(f"patches is {short_repr(patches)}: it must be a result of `patch`")
    top_k = require_int("top_k", top_k, 1)
    text = patches.text
    positions, rows = prediction_positions(loaded, text, None, None)
    if place is None:
        gates = layer_gates(loaded, patches.head_mask)
        states = trace_source(loaded, patches.encoding, len(text), gates).last[:, rows]
    else:
        states = _patched_states(loaded, patches, _check_place(patches, place), rows)
    (answer,) = predict_answers(
        loaded, [text], states, [positions], [[rows.index(position) for position in positions]], top_k
    )
    return answer


def _check_place(patches: Patches, place: Sequence[int]) -> tuple[int, ...]:
    """Return a place as a tuple of ints. Raises Refused for a place that was not patched."""
    index = tuple(
        require_int("a number of the place", number, None)
        for number in require_sequence("the place", place, "whole numbers")
    )
    has_place = len(index) == len(patches.axes) and all(
        0 <= number < size for number, size in zip(index, patches.values.shape, strict=True)
    )
    if not has_place or not np.isfinite(patches.values[index]):
        raise Refused(f"{list(index)} was not patched: give the {', '.join(patches.axes)} of a patch")
    return index


def _patched_states(loaded: LoadedModel, patches: Patches, index: tuple[int, ...], rows: Sequence[int]) -> Tensor:
    """Compute the output of the last layer at some positions with one patch applied, (1, position, hidden)."""
    tokens, is_per_position = len(patches.encoding), "position" in patches.axes
    plan = plan_patches(
        loaded, patches.source, patches.encoding, patches.target, patches.kind, is_per_position, [index[0]],
        [index[patches.axes.index("position")]] if is_per_position else None,
        "tokens" if patches.partners == tuple(range(tokens)) else "words", patches.head_mask,
    )  # fmt: skip
    text_trace = trace_source(loaded, patches.encoding, tokens, plan.layer_gates)
    source_trace, _ = aligned_source(loaded, patches.source, patches.target, text_trace, plan)
    places = [place for place in _patch_places(loaded, patches.kind, plan.grid) if place.index == index]
    runner = PatchedLayer(loaded, patches.kind, text_trace, source_trace, places, rows)
    ((_, states),) = runner.run_remaining_layers(plan.layer_gates, tokens)
    return states


@renamed_parameters(found="patches")
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
    """Compute the range of results of patches from random texts, the baseline for the patches of a source.

    Results within the range are not evidence for an effect of the source.
    patches: the patches to compare. A random text has the [CLS], [SEP] and [MASK] tokens of their text, and random
        whole words of the vocabulary at all other positions.
    texts: number of random texts, 2 to `MAX_TEXTS`. seed: of the random words. batch_tokens: as for `patch`.
    report: receives the number of texts that are done, see `Progress`.
    Raises Refused for another number of texts, or for a vocabulary without whole words.
    """
    if not isinstance(patches, Patches):
        raise Refused(f"patches is {short_repr(patches)}: it must be a result of `patch`")
    texts, rng = require_int("texts", texts, 2, MAX_TEXTS), np.random.default_rng(require_int("seed", seed))
    words = _whole_words(loaded)
    is_patched = np.isfinite(patches.values)
    is_per_position = "position" in patches.axes
    positions = (
        is_patched.any(tuple(n for n, axis in enumerate(patches.axes) if axis != "position"))
        if is_per_position
        else None
    )
    low, high = np.full(patches.values.shape, np.inf), np.full(patches.values.shape, -np.inf)
    for number in range(texts):
        random_patches = patch(
            loaded,
            _random_text(loaded, patches.text, words, rng),
            patches.encoding,
            patches.target,
            part_kind=patches.kind,
            per_position=is_per_position,
            layers=np.flatnonzero(is_patched.any(tuple(range(1, is_patched.ndim)))).tolist(),
            positions=None if positions is None else np.flatnonzero(positions).tolist(),
            head_mask=patches.head_mask,
            batch_tokens=batch_tokens,
        )
        low, high = np.minimum(low, random_patches.values), np.maximum(high, random_patches.values)
        report_count(report, number + 1, texts, "random texts")
    return PatchBand(np.where(is_patched, low, np.nan), np.where(is_patched, high, np.nan), texts, patches.axes)


def _whole_words(loaded: LoadedModel) -> list[int]:
    """Return the ids of all tokens that are whole words. Raises Refused if there are none."""
    pieces = map(loaded.tokenizer.token_of, range(len(loaded.tokenizer)))
    words = [number for number, piece in enumerate(pieces) if piece.isalpha() and len(piece) > 1]
    if not words:
        raise Refused("the vocabulary has no whole words, so no random text can be drawn")
    return words


def _random_text(loaded: LoadedModel, text: Encoding, words: list[int], rng: np.random.Generator) -> Encoding:
    """Replace all tokens of a text but special tokens and masks by random words."""
    ids = [
        number if special or role == "mask" else int(rng.choice(words))
        for number, special, role in zip(text.input_ids, text.special, text.roles, strict=True)
    ]
    return replace(text, input_ids=tuple(ids), tokens=tuple(map(loaded.tokenizer.token_of, ids)))


def _parts(part_kind: str, traced: Trace) -> list[Tensor]:
    """Return the patched activations of all layers or depths; for queries and keys, the attention probabilities."""
    if part_kind == "state":
        return traced.states
    name = "probs" if part_kind in ("query", "key") else PATCHED_PARTS[part_kind]
    return [getattr(layer, name) for layer in traced.layers]


def _pattern_effects(
    attention: BertSelfAttention,
    part_kind: str,
    text_trace: LayerTrace,
    source_trace: LayerTrace,
    gradient: Tensor,
    *,
    per_position: bool,
) -> Tensor:
    """Compute the first-order effect of patching queries or keys, (head, seq), or all keys at once, (head, 1).

    gradient: (1, head, query, key), that of the target with respect to the attention probabilities.
    """
    if part_kind == "query":  # a query changes only its own row
        patched_probs = attention_probabilities(attention, source_trace.query, text_trace.key)
        return (gradient * (patched_probs - text_trace.probs)).sum(-1)[0]
    if not per_position:
        patched_probs = attention_probabilities(attention, text_trace.query, source_trace.key)
        return (gradient * (patched_probs - text_trace.probs)).sum((-2, -1))[0, :, None]
    tokens = text_trace.key.shape[2]
    keys = text_trace.key.repeat(tokens, 1, 1, 1)
    positions = torch.arange(tokens, device=keys.device)
    keys[positions, :, positions] = source_trace.key[0].transpose(0, 1)
    # (seq, head, query, key)
    patched_probs = attention_probabilities(attention, text_trace.query.expand(tokens, -1, -1, -1), keys)
    return (gradient * (patched_probs - text_trace.probs)).sum((-2, -1)).T


class PatchedLayer:
    """Patched passes: the output of a layer with one of its places patched, and the output of the last layer.

    places: in ascending order of their starts. rows: the positions at which the output of the last layer is needed.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        part_kind: str,
        text_trace: Trace,
        source_trace: Trace,
        places: Sequence[PatchPlace],
        rows: Sequence[int],
    ) -> None:
        self.layers, self.part_kind, self.places = encoder_layers(loaded), part_kind, places
        self.text_layers, self.source_layers = text_trace.layers, source_trace.layers
        self.text_states, self.source_states = text_trace.states, source_trace.states
        self.positions = torch.tensor([rows], device=loaded.device)

    def run_remaining_layers(self, gates: Tensor | None, batch_tokens: int | None) -> Iterator[tuple[range, Tensor]]:
        """Yield batches of indices of places and the outputs of the last layer, (place, position, hidden)."""
        places_per_batch = copies_per_batch(batch_tokens, self.positions.device, self.text_states[0].shape[1])
        starts = [place.start for place in self.places]
        return run_variants(
            self.layers, starts, self.start_places, places_per_batch, gates=gates, positions=self.positions
        )

    def start_places(self, start: int, numbers: range) -> Tensor:
        """Compute the states after `start` layers with some places patched, (place, seq, hidden).

        After the last layer the result has only the needed positions.
        """
        places = self.places[numbers.start : numbers.stop]
        states = self._head_states(start, places) if self.part_kind in HEAD_PARTS else self._token_states(start, places)
        return gather_positions(states, self.positions) if start == len(self.layers) else states

    def _token_states(self, start: int, places: Sequence[PatchPlace]) -> Tensor:
        """Compute the states for parts of positions; a patched position leaves all other positions unchanged."""
        states = self.text_states[start].repeat(len(places), 1, 1)
        positions = [place.position for place in places]
        if positions[0] is None:
            states[:] = self._changed_rows(start, places, slice(None))
        else:
            order = range(len(places))
            states[order, positions] = self._changed_rows(start, places, positions)
        return states

    def _changed_rows(self, start: int, places: Sequence[PatchPlace], positions: slice | list[int | None]) -> Tensor:
        """Compute the output of a layer at the patched positions, (place, hidden), or (seq, hidden) if all are."""
        if self.part_kind == "state":
            state: Tensor = self.source_states[start][0, positions]
            return state
        number = start - 1
        layer, text_trace, source_trace = self.layers[number], self.text_layers[number], self.source_layers[number]
        if self.part_kind == "attention":
            attention_sum = source_trace.attention_update[0, positions] + text_trace.input_states[0, positions]
            changed: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(attention_sum))
            return changed
        update = source_trace.feed_forward_update[0, positions]
        if self.part_kind == NEURON:
            neurons = [place.neuron for place in places]
            change = (source_trace.neurons - text_trace.neurons)[0, positions, neurons]  # (place,)
            update = (
                text_trace.feed_forward_update[0, positions] + change[:, None] * layer.output.dense.weight.T[neurons]
            )
        output: Tensor = layer.output.LayerNorm(update + text_trace.after_attention[0, positions])
        return output

    def _head_states(self, start: int, places: Sequence[PatchPlace]) -> Tensor:
        """Compute the states for parts of heads."""
        number = start - 1
        layer, text_trace, source_trace = self.layers[number], self.text_layers[number], self.source_layers[number]
        heads = [place.head for place in places]
        change = self._contexts(text_trace, source_trace, places) - text_trace.context[0, heads]
        maps = layer.attention.head_projections[:, heads]  # (hidden, place, head size)
        attention_sum = text_trace.attention_sum + torch.einsum("csd,ocd->cso", change, maps)
        output: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(attention_sum))
        return output

    def _contexts(self, text_trace: LayerTrace, source_trace: LayerTrace, places: Sequence[PatchPlace]) -> Tensor:
        """Compute the context of the patched head of each place, times its gate, (place, seq, head size)."""
        heads, attention = [place.head for place in places], text_trace.layer.attention.self

        def patched_part(name: str) -> Tensor:
            """Return a part of the head of each place, with the patched rows taken from the source."""
            part: Tensor = getattr(text_trace, name)[0, heads].clone()
            source_part: Tensor = getattr(source_trace, name)[0]
            for row, place in enumerate(places):
                positions = slice(None) if place.position is None else place.position
                part[row, positions] = source_part[place.head, positions]
            return part

        if self.part_kind == "head":
            return patched_part("context")
        value = patched_part("value") if self.part_kind == "value" else text_trace.value[0, heads]
        if self.part_kind == "pattern":
            probs = patched_part("probs")
        elif self.part_kind == "value":
            probs = text_trace.probs[0, heads]
        else:
            query = patched_part("query") if self.part_kind == "query" else text_trace.query[0, heads]
            key = patched_part("key") if self.part_kind == "key" else text_trace.key[0, heads]
            probs = attention_probabilities(attention, query[:, None], key[:, None], heads)[:, 0]
        context = probs @ value
        if text_trace.gate is not None:
            context = context * text_trace.gate[0, [attention.heads[head] for head in heads]]
        return context


def attention_probabilities(
    attention: BertSelfAttention, query: Tensor, key: Tensor, heads: Sequence[int] | None = None
) -> Tensor:
    """Compute attention probabilities (batch, head, query, key), with the window and the knockouts of a layer.

    query, key: (batch, head, seq, head size), before the rotation by position, if there is one.
    heads: for each row of the batch, the index of its only head among the remaining heads of the layer; None: every row
        has all heads.
    """
    if attention.query_rotation is not None and attention.key_rotation is not None:
        query, key = attention.query_rotation.rotate_heads(query), attention.key_rotation.rotate_heads(key)
    scores = query @ key.transpose(-1, -2) * attention.score_scale
    if attention.distances is not None:
        numbers = attention.heads if heads is None else [[attention.heads[head]] for head in heads]
        scores = scores + attention.position_scores(query, key, query.shape[2], None, numbers)
    masked_edges, zeroed_edges = (
        edges if edges is None or heads is None else edges[0, heads, None]
        for renormalised in (True, False)
        for edges in [attention.blocked_edges(query.shape[2], key.shape[2], renormalised=renormalised)]
    )
    for edges in (masked_edges, attention.outside_window(query.shape[2], key.shape[2])):
        if edges is not None:
            scores = scores.masked_fill(edges, -math.inf)
    probs = scores.softmax(-1)
    return probs if zeroed_edges is None else probs.masked_fill(zeroed_edges, 0)


class PatchPlan(NamedTuple):
    """Validated settings of a run of patches.

    head_mask: gates (layer, head). layer_gates: the same in the shape that layers take; None if all are 1.
    grid: the places to patch. partners: as in `Patches`. text: the patched text without noise.
    target_rows: as for `target_values`, in the text.
    """

    head_mask: np.ndarray
    layer_gates: Tensor | None
    grid: _Grid
    partners: tuple[int | None, ...]
    text: Encoding
    target_rows: tuple[int, ...]


def plan_patches(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    part_kind: str,
    per_position: bool | None,
    layers: Sequence[int] | None,
    positions: Sequence[int] | None,
    align: str,
    head_mask: np.ndarray | None,
) -> PatchPlan:
    """Validate the arguments of `patch` and return the resulting settings. Raises Refused as `patch`."""
    if part_kind not in PATCHABLE_PARTS:
        raise Refused(f"the kind of part {short_repr(part_kind)} is unknown: one of {', '.join(PATCHABLE_PARTS)}")
    if align not in ALIGNMENTS:
        raise Refused(f"align {short_repr(align)} is unknown: one of {', '.join(ALIGNMENTS)}")
    check_unpatched(loaded.edits, "patching")
    if target is None:
        raise Refused("target is None: patching needs a target whose value it computes")
    if not isinstance(source, Encoding | Noised | MeanOf) or not isinstance(encoding, Encoding | Noised):
        raise Refused(
            f"the source is {short_repr(source)} and the text is {short_repr(encoding)}: each must be an Encoding or "
            "Noised, and the source may be a MeanOf"
        )
    text = without_noise(encoding)
    check_target(loaded, text, target)
    partners = _partners(loaded, source, text, target, align)
    if part_kind == "pattern" and (isinstance(source, MeanOf) or partners != tuple(range(len(text)))):
        raise Refused(
            "an attention pattern can only be patched from a text with the same number of tokens, each at the same "
            "position: patch the head's output, or its queries, keys or values"
        )
    if per_position is None:
        per_position = part_kind not in HEAD_PARTS
    if part_kind == NEURON and not per_position:
        raise Refused("neurons can only be patched position by position: leave per_position at None")
    config = loaded.config
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    grid = _grid(loaded, partners, part_kind, bool(per_position), layers, positions)
    return PatchPlan(gates, layer_gates(loaded, gates), grid, partners, text, target_rows(loaded, text, target))


def _partners(
    loaded: LoadedModel, source: Encoding | Noised | MeanOf, text: Encoding, target: Target, align: str
) -> tuple[int | None, ...]:
    """Return the partners of all positions of a text, see `Patches`, after checking that the target can be patched."""
    positions = tuple(range(len(text)))
    if isinstance(source, MeanOf):
        return positions
    source_text = without_noise(source)
    if align == "words":
        partners = word_partners(source_text, text).partners
        missing = [row for row in target_rows(loaded, text, target) if partners[row] is None]
        if missing and not rows_follow_text(loaded, target):
            raise Refused(
                f"position {missing[0]} of the text, where the target is predicted, has no partner in the source: mask "
                "the same word in both texts"
            )
        if target.kind in ("nsp", "choice"):  # these targets need a pair
            check_target(loaded, source_text, target)
        return partners
    check_target(loaded, source_text, target)
    if len(source_text) != len(text):
        raise Refused(
            f"the source has {len(source_text)} tokens and the text has {len(text)}: patching from token to token "
            f"needs equal numbers{_length_difference_note(source_text, text)}"
        )
    return positions


@torch.no_grad()
def aligned_source(
    loaded: LoadedModel, source: Encoding | Noised | MeanOf, target: Target, text_trace: Trace, plan: PatchPlan
) -> tuple[Trace, float]:
    """Record the activations of the source, aligned with the text, and compute the target of the source.

    The target of a mean over texts is NaN.
    """
    source_trace = trace_source(loaded, source, len(plan.partners), plan.layer_gates)
    if isinstance(source, MeanOf):
        return source_trace, math.nan
    source_text = without_noise(source)
    if rows_follow_text(loaded, target):
        rows = list(target_rows(loaded, source_text, target))
    else:
        rows = [row for row in (plan.partners[row] for row in plan.target_rows) if row is not None]
        if target.positions:
            target = replace(target, positions=tuple(rows))
    value = target_values(loaded, source_text, target, source_trace.last[:, rows]).item()
    if plan.partners == tuple(range(source_trace.last.shape[1])):
        return source_trace, value
    return align_trace(source_trace, text_trace, plan.partners), value


def _length_difference_note(source: Encoding, encoding: Encoding) -> str:
    """Name the first two corresponding words with different numbers of pieces, as the end of a sentence."""
    for (source_word, source_positions), (text_word, text_positions) in zip(
        words_with_positions(source), words_with_positions(encoding), strict=False
    ):
        if len(source_positions) != len(text_positions):
            return f"; “{source_word}” has {len(source_positions)} and “{text_word}” has {len(text_positions)}"
    return ""


class _Grid(NamedTuple):
    """The places to patch, and the axes and the shape of the results.

    layers: the layers or depths. positions: the separately patched positions; a single None for all at once.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    layers: Sequence[int]
    positions: Sequence[int | None]


def _grid(
    loaded: LoadedModel,
    partners: Sequence[int | None],
    part_kind: str,
    per_position: bool,
    layers: Sequence[int] | None,
    positions: Sequence[int] | None,
) -> _Grid:
    """Lay out the places to patch. Raises Refused for a layer or position that does not exist."""
    config, layer_axis, tokens = loaded.config, "depth" if part_kind == "state" else "layer", len(partners)
    sizes = {
        "depth": config.num_hidden_layers + 1, "layer": config.num_hidden_layers, "head": config.num_attention_heads,
        "position": tokens, "neuron": config.intermediate_size,
    }  # fmt: skip
    axes = (
        layer_axis,
        *["head"] * (part_kind in HEAD_PARTS),
        *["position"] * per_position,
        *["neuron"] * (part_kind == NEURON),
    )
    selected_layers = (
        range(sizes[layer_axis]) if layers is None else _sorted_numbers(layer_axis, layers, sizes[layer_axis])
    )
    selected_positions: Sequence[int | None] = [None]
    if per_position:
        candidates = range(tokens) if positions is None else _sorted_numbers("position", positions, tokens)
        selected_positions = [position for position in candidates if partners[position] is not None]
    elif positions is not None:
        raise Refused(
            "positions are given but all positions are patched at once: set per_position=True, or leave them out"
        )
    return _Grid(axes, tuple(sizes[axis] for axis in axes), selected_layers, selected_positions)


def _patch_places(loaded: LoadedModel, part_kind: str, grid: _Grid) -> list[PatchPlace]:
    """List the places to patch in ascending order of their starts."""
    places = []
    for number in grid.layers:
        start = number + (part_kind != "state")
        heads = (
            enumerate(encoder_layers(loaded)[number].attention.self.heads) if part_kind in HEAD_PARTS else [(0, None)]
        )
        neurons = enumerate(encoder_layers(loaded)[number].intermediate.neurons) if part_kind == NEURON else [(0, None)]
        for (head_index, head), position, (neuron_place, neuron) in product(heads, grid.positions, neurons):
            index = tuple(entry for entry in (number, head, position, neuron) if entry is not None)
            places.append(PatchPlace(index, start, position, head_index, neuron_place))
    return places


def _sorted_numbers(name: str, values: Sequence[int], size: int) -> list[int]:
    """Return the different numbers in ascending order. Raises Refused for one outside 0 to `size` - 1, or for none."""
    numbers = sorted(
        {require_int(f"a {name}", value, None) for value in require_sequence(f"{name}s", values, "whole numbers")}
    )
    if not numbers or not (numbers[0] >= 0 and numbers[-1] < size):
        raise Refused(f"{name}s are {numbers}: give at least one, each from 0 to {size - 1}")
    return numbers

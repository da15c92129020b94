"""Activation patching: what a model says of a text with a part of its reading of another text put in.

Below a patched place nothing changes, so nothing below it is computed again; all places travel up together, each
joining at its own depth; and the last layer is computed only where somebody reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import BertSelfAttention, rows_at
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.progress import Progress, counted, silent
from bert_core.records import Patches, Target
from bert_core.refused import Refused, checked, several, shown, whole
from bert_core.run.inputs import check_head_mask, embedded, gate_tensor
from bert_core.run.memory import TOKENS_AT_ONCE
from bert_core.run.targets import check_target, target_values
from bert_core.tokenizer import Encoding

OF_TOKENS = ("state", "attention", "feed_forward")
OF_HEADS = ("head", "pattern", "query", "key", "value")
NEURON = "neuron"
PATCHES = (*OF_TOKENS, *OF_HEADS, NEURON)


@dataclass(frozen=True)
class Trace:
    """Everything that can be carried over of one layer's pass over one text.

    entering, attended, normed, fed: (1, seq, hidden): the residual stream, the output projection of the heads, what the
    feed-forward network takes, and what it gives before the residual is added.
    query, key, value, context: (1, head, seq, head size); context with its gate. probs: (1, head, query, key).
    activated: (1, seq, intermediate), the neurons after their activation.
    """

    entering: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    probs: Tensor
    context: Tensor
    attended: Tensor
    normed: Tensor
    activated: Tensor
    fed: Tensor


@dataclass(frozen=True)
class Cell:
    """One place that is patched, and where its number goes.

    start: how many layers are done when it begins. positions: which tokens; None for all.
    """

    index: tuple[int, ...]
    start: int
    positions: int | None = None
    head: int = 0  # its place among the heads that the layer still has
    neuron: int = 0


def traced(loaded: LoadedModel, states: Tensor, gates: Tensor | None) -> tuple[list[Trace], Tensor]:
    """The passes of all layers over states (1, seq, hidden) from the embeddings, and what leaves the last.

    gates: as `get_head_mask` gives them. A graph stands where the states have one.
    """
    traces = []
    for number, layer in enumerate(_layers(loaded)):
        attention = layer.attention.self
        query, key, value = (
            attention.transpose_for_scores(part(states)) for part in (attention.query, attention.key, attention.value)
        )
        probs = _probs(attention, query, key)
        context = probs @ value
        if gates is not None:
            context = context * gates[number][:, list(attention.heads)]
        attended = layer.attention.output.dense(context.transpose(1, 2).flatten(2))
        normed = layer.attention.output.LayerNorm(attended + states)
        activated = layer.intermediate(normed)
        fed = layer.output.dense(activated)
        traces.append(Trace(states, query, key, value, probs, context, attended, normed, activated, fed))
        states = layer.output.LayerNorm(fed + normed)
    return traces, states


@checked
@torch.no_grad()
def patch(
    loaded: LoadedModel,
    source: Encoding,
    encoding: Encoding,
    target: Target,
    *,
    what: str = "state",
    apart: bool | None = None,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    head_mask: np.ndarray | None = None,
    batch_tokens: int = TOKENS_AT_ONCE,
    report: Progress = silent,
) -> Patches:
    """Read a text, put one part of the reading of a source in its place, and see what the model then says; for each.

    source: the text that the patches come from, of as many tokens. With a source that answers rightly this is
        denoising; the other way round, noising.
    target: the number to follow, of the text.
    what: "state", the residual stream at a depth, 0 for the embeddings; "attention" or "feed_forward", what a layer
        adds to it; "head", what a head brings; "pattern", "query", "key" or "value" of a head, all else its own;
        "neuron", one activation of a feed-forward network.
    apart: whether each position is patched by itself, or all at once. None: each, but heads as a whole.
    layers: those to patch, of states the depths; None: all. positions: where to patch, if each by itself; None: all.
    head_mask: (layer, head), what is switched off, or down, in both texts.
    batch_tokens: bounds the memory. report: told how many places are done, as for `Progress`.
    Safe to call from many threads on one model.
    Raises Refused for texts of different lengths, an unknown kind of patch, or a target, layer or position that does
    not exist.
    Source: Vig 2020 (arXiv:2004.12265); Zhang & Nanda 2023 (arXiv:2309.16042).
    """
    apart = _check(loaded, source, encoding, target, what, apart)
    config, bert = loaded.config, loaded.model.bert
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    opened = bert.get_head_mask(gate_tensor(loaded, gates), 1)
    traces, last = traced(loaded, embedded(loaded, encoding), opened)
    others, last_of_source = traced(loaded, embedded(loaded, source), opened)
    rows = sorted(set(target.rows))
    asked = torch.tensor([rows], device=loaded.device)
    at = [rows.index(row) for row in target.rows]

    shape, cells = _cells(loaded, len(encoding), what, apart, layers, positions)
    ours, theirs = (
        [*(trace.entering for trace in traces), last],
        [*(trace.entering for trace in others), last_of_source],
    )
    begin = _Beginning(loaded, what, traces, others, ours, theirs, opened, asked)
    values, done = np.full(shape, np.nan), 0
    for some, states in _travelled(loaded, cells, begin, opened, asked, len(encoding), batch_tokens):
        for cell, number in zip(some, target_values(loaded, target, states[:, at]).tolist(), strict=True):
            values[cell.index] = number
        done += len(some)
        counted(report, done, len(cells), "places")
    return Patches(
        encoding=encoding,
        source=source,
        target=target,
        what=what,
        axes=axes_of(what, apart=apart),
        values=values,
        base_value=target_values(loaded, target, last[:, target.rows]).item(),
        source_value=target_values(loaded, target, last_of_source[:, target.rows]).item(),
        head_mask=gates,
    )


@checked
def estimate_patches(
    loaded: LoadedModel,
    source: Encoding,
    encoding: Encoding,
    target: Target,
    *,
    what: str = "state",
    apart: bool | None = None,
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    head_mask: np.ndarray | None = None,
) -> Patches:
    """What `patch` finds, estimated for all places at once from one pass there and back of the text.

    The slope of the target at each place, times what the patch would change there. Of a query or a key the change is
    that of the pattern, with its softmax computed anew: where attention is saturated its slope says nothing.
    The arguments, and what is refused, are those of `patch`. An estimate holds for small changes; hold it against the
    exact one (`patches_missed`).
    Source: Nanda 2023; Syed 2023 (arXiv:2310.10348); for queries and keys Kramar 2024, section 3.1 (arXiv:2403.00745).
    """
    apart = _check(loaded, source, encoding, target, what, apart)
    config, bert = loaded.config, loaded.model.bert
    gates = check_head_mask(head_mask, config.num_hidden_layers, config.num_attention_heads)
    opened = bert.get_head_mask(gate_tensor(loaded, gates), 1)
    with torch.no_grad():
        others, last_of_source = traced(loaded, embedded(loaded, source), opened)
        source_value = target_values(loaded, target, last_of_source[:, target.rows]).item()
    with torch.enable_grad():
        traces, last = traced(loaded, embedded(loaded, encoding).requires_grad_(), opened)
        value = target_values(loaded, target, last[:, target.rows])[0]
        own, theirs = _parts(what, traces, last), _parts(what, others, last_of_source)
        slopes = torch.autograd.grad(value, own, allow_unused=True)
    shape, cells = _cells(loaded, len(encoding), what, apart, layers, positions)
    values, rows = np.full(shape, np.nan), sorted({cell.index[0] for cell in cells})
    with torch.no_grad():
        for number in rows:
            slope = slopes[number]
            if slope is None:  # nothing that is asked depends on it
                slope = torch.zeros_like(own[number])
            if what in ("query", "key"):
                attention = _layers(loaded)[number].attention.self
                steps = _of_patterns(attention, what, traces[number], others[number], slope, apart=apart)
            elif what == NEURON:
                steps = (slope * (theirs[number] - own[number]))[0]  # (seq, neuron)
            else:
                steps = (slope * (theirs[number] - own[number])).sum(-1)[0]  # (seq,), or (head, seq)
            found = value.item() + (steps if apart else steps.sum(-1)).double().cpu().numpy()
            if what in OF_HEADS:
                values[number, list(_layers(loaded)[number].attention.self.heads)] = found
            else:
                values[number] = found
    if positions is not None:
        left_out = np.setdiff1d(np.arange(len(encoding)), _some("position", positions, len(encoding)))
        np.moveaxis(values, axes_of(what, apart=apart).index("position"), 0)[left_out] = np.nan
    return Patches(
        encoding=encoding,
        source=source,
        target=target,
        what=what,
        axes=axes_of(what, apart=apart),
        values=values,
        base_value=value.item(),
        source_value=source_value,
        head_mask=gates,
        exact=False,
    )


def _parts(what: str, traces: Sequence[Trace], last: Tensor) -> list[Tensor]:
    """What is patched of each layer or depth, whose slope is asked for; for queries and keys, their pattern."""
    if what == "state":
        return [*(trace.entering for trace in traces), last]
    names = {"head": "context", "pattern": "probs", "query": "probs", "key": "probs", NEURON: "activated"}
    names |= {"attention": "attended", "feed_forward": "fed", "value": "value"}
    return [getattr(trace, names[what]) for trace in traces]


def _of_patterns(
    attention: BertSelfAttention, what: str, own: Trace, other: Trace, slope: Tensor, *, apart: bool
) -> Tensor:
    """The first-order effect of each query or key of the source, (head, seq); of all keys at once, (head, 1)."""
    if what == "query":  # which changes its own row alone
        return (slope * (_probs(attention, other.query, own.key) - own.probs)).sum(-1)[0]
    if not apart:
        return (slope * (_probs(attention, own.query, other.key) - own.probs)).sum((-2, -1))[0, :, None]
    tokens = own.key.shape[2]
    keys = own.key.repeat(tokens, 1, 1, 1)
    at = torch.arange(tokens, device=keys.device)
    keys[at, :, at] = other.key[0].transpose(0, 1)
    changed = _probs(attention, own.query.expand(tokens, -1, -1, -1), keys) - own.probs  # (seq, head, query, key)
    return (slope * changed).sum((-2, -1)).T


def axes_of(what: str, *, apart: bool) -> tuple[str, ...]:
    """The names of the axes of what `patch` gives."""
    own = {"state": ("depth",), "attention": ("layer",), "feed_forward": ("layer",), NEURON: ("layer",)}
    first = own.get(what, ("layer", "head"))
    return (*first, *(("position",) if apart else ()), *(("neuron",) if what == NEURON else ()))


class _Beginning:
    """What leaves a layer when one of its places is patched: the states of a text with `start` layers done."""

    def __init__(
        self,
        loaded: LoadedModel,
        what: str,
        traces: Sequence[Trace],
        others: Sequence[Trace],
        ours: Sequence[Tensor],
        theirs: Sequence[Tensor],
        gates: Tensor | None,
        asked: Tensor,
    ) -> None:
        self.layers, self.what, self.gates, self.asked = _layers(loaded), what, gates, asked
        self.traces, self.others, self.ours, self.theirs = traces, others, ours, theirs

    def __call__(self, start: int, cells: Sequence[Cell]) -> Tensor:
        """(cell, seq, hidden), after the last layer at the positions asked for alone."""
        made = self._of_heads(start, cells) if self.what in OF_HEADS else self._of_rows(start, cells)
        return rows_at(made, self.asked.repeat(len(made), 1)) if start == len(self.layers) else made

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
        layer, own, other = self.layers[start - 1], self.traces[start - 1], self.others[start - 1]
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
        layer, own, other = self.layers[start - 1], self.traces[start - 1], self.others[start - 1]
        heads = [cell.head for cell in cells]
        change = self._contexts(layer.attention.self, own, other, cells, start - 1) - own.context[0, heads]
        size = layer.attention.self.attention_head_size
        weight = layer.attention.output.dense.weight
        columns = weight.view(len(weight), -1, size)[:, heads]  # (hidden, cell, head size)
        summed = own.attended + own.entering + torch.einsum("csd,ocd->cso", change, columns)
        left: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(summed))
        return left

    def _contexts(
        self, attention: BertSelfAttention, own: Trace, other: Trace, cells: Sequence[Cell], number: int
    ) -> Tensor:
        """What the patched head of each cell brings, with its gate: (cell, seq, head size)."""
        heads = [cell.head for cell in cells]

        def mixed(name: str) -> Tensor:
            """A part of each cell's head with the patched rows of the source in it."""
            part: Tensor = getattr(own, name)[0, heads].clone()
            carried: Tensor = getattr(other, name)[0]
            for row, cell in enumerate(cells):
                at = slice(None) if cell.positions is None else cell.positions
                part[row, at] = carried[cell.head, at]
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
            probs = _probs(attention, query[:, None], key[:, None])[:, 0]
        context = probs @ value
        if self.gates is not None:
            there = [attention.heads[head] for head in heads]
            context = context * self.gates[number][0, there, :, 0][..., None]
        return context


def _travelled(
    loaded: LoadedModel,
    cells: Sequence[Cell],
    begin: _Beginning,
    gates: Tensor | None,
    asked: Tensor,
    tokens: int,
    batch_tokens: int,
) -> Iterator[tuple[Sequence[Cell], Tensor]]:
    """Some cells at a time, and the last layer of each, (cell, some, hidden)."""
    layers, together = _layers(loaded), max(1, batch_tokens // tokens)
    for first in range(0, len(cells), together):
        some = cells[first : first + together]
        states: Tensor | None = None
        for done in range(some[0].start, len(layers) + 1):
            if states is not None:
                states = layers[done - 1](
                    states,
                    None,
                    None if gates is None else gates[done - 1],
                    positions=asked.repeat(len(states), 1) if done == len(layers) else None,
                ).hidden_states
            own = [cell for cell in some if cell.start == done]
            if own:
                begun = begin(done, own)
                states = begun if states is None else torch.cat([states, begun])
        assert states is not None  # every cell begins somewhere
        yield some, states


def _probs(attention: BertSelfAttention, query: Tensor, key: Tensor) -> Tensor:
    """(batch, head, query, key), after the softmax. query, key: (batch, head, seq, head size)."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(attention.attention_head_size)
    if attention.position_embedding_type != "absolute":
        scores = scores + attention.position_scores(query, key, query.shape[2], None)
    return scores.softmax(-1)


def _layers(loaded: LoadedModel) -> list[BertLayer]:
    return cast("list[BertLayer]", list(loaded.model.bert.encoder.layer))


def _check(
    loaded: LoadedModel, source: Encoding, encoding: Encoding, target: Target, what: str, apart: bool | None
) -> bool:
    """Whether positions are patched apart. Raises Refused as `patch` does."""
    if what not in PATCHES:
        raise Refused(f"what {shown(what)} is unknown: one of {', '.join(PATCHES)}")
    if target is None:
        raise Refused("there is no target: patching asks how a number changes, so give one")
    for text in (encoding, source):
        check_target(loaded, text, target)
    if len(source) != len(encoding):
        raise Refused(
            f"the source has {len(source)} tokens and the text {len(encoding)}: patches go from token to token, so "
            f"both must have as many{_parting(source, encoding)}"
        )
    if apart is None:
        return what not in OF_HEADS
    if what == NEURON and not apart:
        raise Refused("neurons are patched token by token: leave apart as it is")
    return bool(apart)


def _parting(source: Encoding, encoding: Encoding) -> str:
    """The first two words that take another number of pieces, as the end of a sentence; nothing if there are none."""
    pairs = zip(*(_pieces(text) for text in (source, encoding)), strict=False)
    for (left, many), (right, few) in pairs:
        if many != few:
            return f"; “{left}” has {many} and “{right}” has {few}"
    return ""


def _pieces(encoding: Encoding) -> list[tuple[str, int]]:
    """Each word, and of how many pieces it is."""
    found: dict[int, list[str]] = {}
    for word, piece in zip(encoding.words, encoding.tokens, strict=True):
        if word is not None:
            found.setdefault(word, []).append(piece.removeprefix("##"))
    return [("".join(pieces), len(pieces)) for pieces in found.values()]


def _cells(
    loaded: LoadedModel,
    tokens: int,
    what: str,
    apart: bool,
    layers: Sequence[int] | None,
    positions: Sequence[int] | None,
) -> tuple[tuple[int, ...], list[Cell]]:
    """The shape of what is found, and every place that is patched, those that begin first in front."""
    config = loaded.config
    depths = config.num_hidden_layers + (what == "state")
    which = range(depths) if layers is None else _some("layer" if what != "state" else "depth", layers, depths)
    at: Sequence[int | None] = [None]
    if apart:
        at = range(tokens) if positions is None else _some("position", positions, tokens)
    elif positions is not None:
        raise Refused("positions were given, but all of them are patched at once: give apart=True, or leave them out")
    end = () if not apart else (tokens,)
    cells = []
    for number in which:
        start = number + (what != "state")
        ends = [(() if position is None else (position,), position) for position in at]
        if what in OF_TOKENS:
            cells += [Cell((number, *place), start, position) for place, position in ends]
        elif what == NEURON:
            cells += [
                Cell((number, *place, neuron), start, position, neuron=neuron)
                for place, position in ends
                for neuron in range(config.intermediate_size)
            ]
        else:
            there = _layers(loaded)[number].attention.self.heads
            cells += [
                Cell((number, head, *place), start, position, head=order)
                for order, head in enumerate(there)
                for place, position in ends
            ]
    if what in OF_TOKENS:
        return (depths, *end), cells
    if what == NEURON:
        return (depths, *end, config.intermediate_size), cells
    return (depths, config.num_attention_heads, *end), cells


def _some(name: str, given: Sequence[int], most: int) -> list[int]:
    """These numbers in order, each once. Raises Refused for one that does not exist."""
    numbers = sorted({whole(f"a {name}", one, None) for one in several(f"{name}s", given, "whole numbers")})
    if not numbers or not (numbers[0] >= 0 and numbers[-1] < most):
        raise Refused(f"{name}s {numbers}: at least one of 0 to {most - 1}")
    return numbers

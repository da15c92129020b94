"""The layers of an encoder: texts padded to a batch, a pass with the parts of each layer, and the rest of a pass.

Edits of a model (cut arrows, scaled neurons, parts that are put in) belong to its modules, so they act in every pass
here as they do in `BertModel`. Nothing is written to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import gather_positions
from bert_core.edits import check_unpatched
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.run.inputs import embed_text, layer_gates
from bert_core.tokenizer import Encoding

# ---------------------------------------------------------------------------- layers and their heads


def encoder_layers(loaded: LoadedModel) -> list[BertLayer]:
    """The layers of a model, the first one first."""
    return cast("list[BertLayer]", list(loaded.model.bert.encoder.layer))


# ---------------------------------------------------------------------------- padding


def pad(rows: Sequence[Sequence[int]], value: int = 0) -> np.ndarray:
    """Rows of different lengths as one array (row, longest), int64: the shorter ones are filled up with a value."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), value, np.int64)
    for row, numbers in zip(padded, rows, strict=True):
        row[: len(numbers)] = numbers
    return padded


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
class PaddedTexts:
    """Texts as one batch on a model's device.

    ids: (text, seq). segments: the same, or None for a model without segments.
    mask: (text, seq), 1 for a token and 0 for padding; None where no text is padded.
    """

    loaded: LoadedModel
    encodings: Sequence[Encoding]
    ids: Tensor
    segments: Tensor | None
    mask: Tensor | None

    @classmethod
    def from_encodings(cls, loaded: LoadedModel, encodings: Sequence[Encoding]) -> PaddedTexts:
        """encodings: at least one."""
        ids = pad([text.input_ids for text in encodings], loaded.config.pad_token_id)
        segments, mask = pad([text.token_type_ids for text in encodings]), pad([[1] * len(text) for text in encodings])
        return cls(
            loaded,
            encodings,
            torch.from_numpy(ids).to(loaded.device),
            torch.from_numpy(segments).to(loaded.device) if loaded.config.type_vocab_size else None,
            None if mask.all() else torch.from_numpy(mask).to(loaded.device),
        )

    @cached_property
    def embeddings(self) -> Tensor:
        """The states that enter the first layer, (text, seq, hidden)."""
        states: Tensor = self.loaded.model.bert.embeddings(self.ids, token_type_ids=self.segments)
        return states

    @cached_property
    def additive_mask(self) -> Tensor | None:
        """The mask as layers take it, or None."""
        shape = (self.ids.shape[0], self.ids.shape[1])
        return None if self.mask is None else self.loaded.model.bert.get_extended_attention_mask(self.mask, shape)

    @cached_property
    def token_index(self) -> tuple[Tensor, Tensor]:
        """Row and position of every token, (token,) each, text after text.

        Unlike a mask it is an index whose size the host knows, so that no device is waited for.
        """
        lengths = [len(text) for text in self.encodings]
        rows, positions = np.repeat(np.arange(len(lengths)), lengths), np.concatenate([*map(np.arange, lengths)])
        return torch.from_numpy(rows).to(self.ids.device), torch.from_numpy(positions).to(self.ids.device)

    @cached_property
    def typed_mask(self) -> Tensor:
        """Whether a place holds a token that is no added [CLS] or [SEP], boolean (text, seq)."""
        typed = pad([[not special for special in text.special] for text in self.encodings])
        return torch.from_numpy(typed.astype(bool)).to(self.ids.device)


# ---------------------------------------------------------------------------- a pass with the parts of each layer

# What a layer computes between what enters and what leaves it, in this order.
PARTS = ("query", "key", "value", "probs", "context", "attended", "normed", "activated", "fed")


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
class LayerTrace:
    """What one layer computes in a pass. A part that was not asked for is an empty tensor (0,).

    entering, leaving: (batch, seq, hidden), the residual stream before and after the layer.
    gate: of every head, pruned ones too, (batch or 1, head, 1, 1), or None.
    query, key, value, context: (batch, head, seq, head size); the context with its gate.
    probs: (batch, head, query, key), without the gate.
    attended, fed: (batch, seq, hidden), what attention and the feed-forward network add to the residual stream.
    normed: (batch, seq, hidden), what the feed-forward network takes. activated: (batch, seq, intermediate).
    """

    layer: BertLayer
    gate: Tensor | None
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
    leaving: Tensor

    @property
    def summed(self) -> Tensor:
        """What the norm after attention takes, (batch, seq, hidden)."""
        return self.attended + self.entering

    @property
    def merged_context(self) -> Tensor:
        """The contexts of all heads side by side, (batch, seq, heads * head size): what the output projection takes."""
        return self.context.transpose(-3, -2).flatten(-2)

    @cached_property
    def mixing(self) -> Tensor:
        """Attention times the gate of its head, (batch, head, query, key)."""
        if self.gate is None:
            return self.probs
        return self.probs * self.gate[..., list(self.layer.attention.self.heads), :, :]

    @property
    def head_outputs(self) -> Tensor:
        """The value vectors of each head through its part of the output projection, (batch, head, key, hidden)."""
        return self.layer.attention.head_outputs(self.value)

    def text(self, row: int) -> LayerTrace:
        """The parts of one text of the batch, without the first axis."""
        gate = None if self.gate is None else self.gate[row if len(self.gate) > 1 else 0]
        parts = {name: part[row] for name in (*PARTS, "entering", "leaving") if len(part := getattr(self, name))}
        return replace(self, gate=gate, **parts)


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
class Trace:
    """One pass: what each layer computes, and what leaves the last, (batch, seq or some, hidden)."""

    layers: tuple[LayerTrace, ...]
    last: Tensor

    @property
    def states(self) -> list[Tensor]:
        """The residual stream at every depth, (batch, seq, hidden) each."""
        return [*(layer.entering for layer in self.layers), self.last]

    def replaced(self, parts: Sequence[dict[str, Any]], last: Tensor) -> Trace:
        """The same pass with other parts: of each layer by name, those that are not named stay."""
        layers: list[LayerTrace] = []
        leaving = last
        for layer, own in zip(reversed(self.layers), reversed(parts), strict=True):
            layers.insert(0, replace(layer, **own, leaving=leaving))
            leaving = layers[0].entering
        return Trace(tuple(layers), last)


def trace_layers(
    layers: Sequence[BertLayer],
    states: Tensor,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    keep: Collection[str] = PARTS,
) -> Iterator[LayerTrace]:
    """Every layer in turn, with what it computes; the arguments are those of `trace`."""
    for number, layer in enumerate(layers):
        rows = positions if number == len(layers) - 1 else None
        traced = _trace_layer(layer, states, None if gates is None else gates[number], mask, rows, keep)
        states = traced.leaving
        yield traced


def _trace_layer(
    layer: BertLayer,
    states: Tensor,
    gate: Tensor | None,
    mask: Tensor | None,
    positions: Tensor | None,
    keep: Collection[str],
) -> LayerTrace:
    attention, reads = layer.attention.self, layer.attention_input(states)
    seen = attention(reads, mask, gate, output_attentions="probs" in keep)
    context = attention.transpose_for_scores(seen.context)
    parts = {"context": context, "probs": seen.attention_probs}
    parts |= dict(zip(("key", "value"), seen.past_key_value, strict=True))
    if "query" in keep:
        parts["query"] = attention.transpose_for_scores(attention.query(reads))
    parts = {name: part for name, part in parts.items() if name in keep}
    del seen  # before the feed-forward network takes its memory
    attended = layer.attention_update(context.transpose(1, 2).flatten(2))
    if positions is None or layer.computes_all_positions:  # a layer with parts put in is computed as a whole
        normed = layer.after_attention(attended, states)
    else:
        normed = layer.after_attention(gather_positions(attended, positions), gather_positions(states, positions))
    activated = layer.neurons(normed)
    fed = layer.feed_forward_update(activated)
    leaving = layer.output_states(fed, normed)
    if positions is not None and layer.computes_all_positions:
        leaving = gather_positions(leaving, positions)
    parts |= {"attended": attended, "normed": normed, "activated": activated, "fed": fed}
    kept = {name: parts[name] if name in keep else states.new_empty(0) for name in PARTS}
    return LayerTrace(layer=layer, gate=gate, entering=states, leaving=leaving, **kept)


def trace(
    layers: Sequence[BertLayer],
    states: Tensor,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    keep: Collection[str] = PARTS,
) -> Trace:
    """A pass through all layers, with what each computes. There is a graph where the states have one.

    layers, gates, mask: as for `run_layers`. states: (batch, seq, hidden), what enters the first layer.
    positions: (batch or 1, some), where what leaves the last layer is wanted: its feed-forward network is computed
        nowhere else, and its parts from `normed` on are of these positions. None: everywhere.
    keep: the parts that are kept, of `PARTS`; attention is computed as explicit maps if "probs" is among them.
    """
    traced = tuple(trace_layers(layers, states, gates=gates, mask=mask, positions=positions, keep=keep))
    if traced:
        return Trace(traced, traced[-1].leaving)
    return Trace((), states if positions is None else gather_positions(states, positions))


@torch.no_grad()
def trace_text(
    loaded: LoadedModel,
    encoding: Encoding,
    head_mask: np.ndarray | None = None,
    *,
    keep: Collection[str] = PARTS[1:],
    own: bool = True,
) -> Iterator[LayerTrace]:
    """Every layer in turn with what it computes of one text; the parts have no batch axis.

    head_mask: as for `capture`. keep: as for `trace`; by default all but the queries, which take one more product.
    own: whether what is computed from the parts needs them to be the text's own.
    Raises Refused where a part of another text is put in, if so.
    """
    if own:
        check_unpatched(loaded.edits, "what is asked")
    gates = layer_gates(loaded, head_mask)
    for layer in trace_layers(encoder_layers(loaded), embed_text(loaded, encoding), gates=gates, keep=keep):
        yield layer.text(0)


# ---------------------------------------------------------------------------- the rest of a pass


def run_layers(
    layers: Sequence[BertLayer],
    states: Tensor,
    start: int = 0,
    stop: int | None = None,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> Tensor:
    """What enters layer `stop`, (batch, seq or some, hidden), of what enters layer `start`.

    layers: all layers of the model. states: (batch, seq, hidden). stop: None: behind the last layer.
    gates: (layer, batch or 1, head, 1, 1). mask: additive, (batch or 1, 1, query or 1, key).
    positions: (batch or 1, some), where what leaves the last layer is wanted; it is computed nowhere else.
    Where the states are copies of a batch, one copy after the other, gates, mask and positions may be of the batch.
    """
    stop = len(layers) if stop is None else stop
    mask, positions = _of_copies(mask, len(states)), _of_copies(positions, len(states))
    if positions is not None and start == len(layers):
        return gather_positions(states, positions)
    for number in range(start, stop):
        states = layers[number](
            states,
            mask,
            None if gates is None else _of_copies(gates[number], len(states)),
            positions=positions if number == len(layers) - 1 else None,
        ).hidden_states
    return states


def _of_copies(part: Tensor | None, batch: int) -> Tensor | None:
    """What belongs to each text of a batch, for copies of it that make a larger one; of one text it is broadcast."""
    if part is None or len(part) in (1, batch):
        return part
    return part.repeat(batch // len(part), *[1] * (part.dim() - 1))


def run_variants(
    layers: Sequence[BertLayer],
    starts: Sequence[int],
    begin: Callable[[int, range], Tensor],
    at_once: int,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> Iterator[tuple[range, Tensor]]:
    """What leaves the last layer in variants of one pass that differ from some layer on; some variants at a time.

    Nothing below the layer where a variant begins is computed again: each joins the batch of those that are there.
    starts: of each variant how many layers are done when it begins, rising.
    begin: called with that number and the variants that begin there; returns their states (variants * batch, seq,
        hidden), where all layers are done only at the positions.
    at_once: how many variants are computed together. layers, gates, mask, positions: as for `run_layers`.
    Yields the numbers of the variants, and (variants * batch, some, hidden).
    """
    for first in range(0, len(starts), at_once):
        variants = range(first, min(first + at_once, len(starts)))
        states: Tensor | None = None
        done = starts[first]
        for start, group in groupby(variants, key=starts.__getitem__):
            beginning = list(group)
            if states is not None:
                states = run_layers(layers, states, done, start, gates=gates, mask=mask, positions=positions)
            begun = begin(start, range(beginning[0], beginning[-1] + 1))
            states, done = begun if states is None else torch.cat([states, begun]), start
        assert states is not None  # there is a variant in each batch
        if done < len(layers):
            states = run_layers(layers, states, done, gates=gates, mask=mask, positions=positions)
        yield variants, states

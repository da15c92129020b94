"""Forward passes through the layers of an encoder: padded batches, recorded activations, and partial passes.

Edits of a model (attention knockouts, scaled neurons, activation patches) are stored in its modules, so they act in
every pass here as they do in `BertModel`. No function writes to the model.
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
    """Return the layers of a model's encoder, from the first to the last."""
    return cast("list[BertLayer]", list(loaded.model.bert.encoder.layer))


# ---------------------------------------------------------------------------- padding


def pad(rows: Sequence[Sequence[int]], value: int = 0) -> np.ndarray:
    """Stack rows of different lengths in one int64 array (row, longest length), padded with a value at their ends."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), value, np.int64)
    for row, numbers in zip(padded, rows, strict=True):
        row[: len(numbers)] = numbers
    return padded


@dataclass(frozen=True, eq=False)  # instances hold tensors and are compared by identity
class PaddedTexts:
    """A batch of texts on the model's device.

    ids: (text, seq) token ids. segments: (text, seq) segment ids, or None for a model without segments.
    mask: (text, seq), 1 for a token and 0 for padding; None if no text is padded.
    """

    loaded: LoadedModel
    encodings: Sequence[Encoding]
    ids: Tensor
    segments: Tensor | None
    mask: Tensor | None

    @classmethod
    def from_encodings(cls, loaded: LoadedModel, encodings: Sequence[Encoding]) -> PaddedTexts:
        """Pad encodings, at least one, to the length of the longest."""
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
        """The output of the embedding layer, which is the input of the first layer, (text, seq, hidden)."""
        states: Tensor = self.loaded.model.bert.embeddings(self.ids, token_type_ids=self.segments)
        return states

    @cached_property
    def additive_mask(self) -> Tensor | None:
        """The mask as layers add it to the attention scores, (text, 1, 1 or query, key); None without padding."""
        shape = (self.ids.shape[0], self.ids.shape[1])
        return None if self.mask is None else self.loaded.model.bert.get_extended_attention_mask(self.mask, shape)

    @cached_property
    def token_index(self) -> tuple[Tensor, Tensor]:
        """The row and the position of every token that is not padding, (token,) each, text after text.

        The host knows the size of this index, unlike that of a boolean mask, so indexing does not wait for the device.
        """
        lengths = [len(text) for text in self.encodings]
        rows, positions = np.repeat(np.arange(len(lengths)), lengths), np.concatenate([*map(np.arange, lengths)])
        return torch.from_numpy(rows).to(self.ids.device), torch.from_numpy(positions).to(self.ids.device)

    @cached_property
    def typed_mask(self) -> Tensor:
        """Boolean mask (text, seq): True for tokens of the text, False for padding and added [CLS] and [SEP]."""
        typed_tokens = pad([[not special for special in text.special] for text in self.encodings])
        return torch.from_numpy(typed_tokens.astype(bool)).to(self.ids.device)


# ---------------------------------------------------------------------------- recorded activations of a pass

# The activations of a layer between its input and its output, in the order in which they are computed.
PARTS = (
    "query", "key", "value", "probs", "context", "attention_update", "after_attention", "neurons", "feed_forward_update"
)  # fmt: skip


@dataclass(frozen=True, eq=False)  # instances hold tensors and are compared by identity
class LayerTrace:
    """The activations of one layer in a pass; a part that was not recorded is an empty tensor (0,).

    gate: the gates of all heads, pruned ones included, (batch or 1, head, 1, 1); None if all gates are 1.
    input_states, output_states: (batch, seq, hidden), the residual stream before and after the layer.
    query, key, value, context: (batch, head, seq, head size); context is multiplied by the gate. With rotary positions,
        queries and keys are those before the rotation, which do not depend on the position.
    probs: (batch, head, query, key), attention probabilities before the gate.
    attention_update, feed_forward_update: (batch, seq, hidden), the outputs of attention and of the feed-forward
        network that are added to the residual stream.
    after_attention: (batch, seq, hidden), the input of the feed-forward network.
    neurons: (batch, seq, intermediate), the feed-forward network after its activation function.
    """

    layer: BertLayer
    gate: Tensor | None
    input_states: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    probs: Tensor
    context: Tensor
    attention_update: Tensor
    after_attention: Tensor
    neurons: Tensor
    feed_forward_update: Tensor
    output_states: Tensor

    @property
    def attention_sum(self) -> Tensor:
        """The input of the layer norm after attention, (batch, seq, hidden): the attention update plus the residual."""
        return self.attention_update + self.input_states

    @property
    def merged_context(self) -> Tensor:
        """The input of the output projection: the concatenated contexts of all heads, (batch, seq, heads * size)."""
        return self.context.transpose(-3, -2).flatten(-2)

    @cached_property
    def gated_probs(self) -> Tensor:
        """Attention probabilities times the gate of their head, (batch, head, query, key)."""
        if self.gate is None:
            return self.probs
        return self.probs * self.gate[..., list(self.layer.attention.self.heads), :, :]

    @property
    def head_outputs(self) -> Tensor:
        """The value vectors of each head through its part of the output projection, (batch, head, key, hidden)."""
        return self.layer.attention.head_outputs(self.value)

    def text(self, row: int) -> LayerTrace:
        """Return the activations of one text of the batch, without the batch axis."""
        gate = None if self.gate is None else self.gate[row if len(self.gate) > 1 else 0]
        names = (*PARTS, "input_states", "output_states")
        parts = {name: part[row] for name in names if len(part := getattr(self, name))}
        return replace(self, gate=gate, **parts)


@dataclass(frozen=True, eq=False)  # instances hold tensors and are compared by identity
class Trace:
    """The activations of all layers in one pass.

    last: the output of the last layer, (batch, seq or position, hidden).
    """

    layers: tuple[LayerTrace, ...]
    last: Tensor

    @property
    def states(self) -> list[Tensor]:
        """The residual stream at every depth, (batch, seq, hidden) each; depth 0 is the embeddings."""
        return [*(layer.input_states for layer in self.layers), self.last]

    def replaced(self, parts: Sequence[dict[str, Any]], last: Tensor) -> Trace:
        """Return the same pass with other activations.

        parts: for each layer, the new tensors by name; activations without a name are unchanged.
        last: the new output of the last layer.
        """
        layers: list[LayerTrace] = []
        output_states = last
        for layer, new_parts in zip(reversed(self.layers), reversed(parts), strict=True):
            layers.insert(0, replace(layer, **new_parts, output_states=output_states))
            output_states = layers[0].input_states
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
    """Yield the activations of each layer in turn; the arguments are those of `trace`."""
    for number, layer in enumerate(layers):
        layer_positions = positions if number == len(layers) - 1 else None
        traced = _trace_layer(layer, states, None if gates is None else gates[number], mask, layer_positions, keep)
        states = traced.output_states
        yield traced


def _trace_layer(
    layer: BertLayer,
    states: Tensor,
    gate: Tensor | None,
    mask: Tensor | None,
    positions: Tensor | None,
    keep: Collection[str],
) -> LayerTrace:
    """Run one layer and record the activations named in `keep`."""
    attention, attention_input = layer.attention.self, layer.attention_input(states)
    attended = attention(attention_input, mask, gate, output_attentions="probs" in keep)
    context = attention.transpose_for_scores(attended.context)
    parts = {"context": context, "probs": attended.attention_probs}
    parts |= dict(zip(("key", "value"), attended.past_key_value, strict=True))
    if "query" in keep:
        parts["query"] = attention.transpose_for_scores(attention.query(attention_input))
    if "key" in keep and attention.key_rotation is not None:
        parts["key"] = attention.transpose_for_scores(attention.key(attention_input))
    parts = {name: part for name, part in parts.items() if name in keep}
    del attended  # frees its memory before the feed-forward network needs it
    update = layer.attention_update(context.transpose(1, 2).flatten(2))
    if positions is None or layer.computes_all_positions:  # activation patches need all positions of their layer
        after_attention = layer.after_attention(update, states)
    else:
        after_attention = layer.after_attention(
            gather_positions(update, positions), gather_positions(states, positions)
        )
    neurons = layer.neurons(after_attention)
    feed_forward_update = layer.feed_forward_update(neurons)
    output_states = layer.output_states(feed_forward_update, after_attention)
    if positions is not None and layer.computes_all_positions:
        output_states = gather_positions(output_states, positions)
    parts |= {
        "attention_update": update, "after_attention": after_attention, "neurons": neurons,
        "feed_forward_update": feed_forward_update,
    }  # fmt: skip
    recorded = {name: parts[name] if name in keep else states.new_empty(0) for name in PARTS}
    return LayerTrace(layer=layer, gate=gate, input_states=states, output_states=output_states, **recorded)


def trace(
    layers: Sequence[BertLayer],
    states: Tensor,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    keep: Collection[str] = PARTS,
) -> Trace:
    """Run all layers and record their activations; the result has a graph if the states have one.

    layers, gates, mask: as for `run_layers`. states: (batch, seq, hidden), the input of the first layer.
    positions: (batch or 1, position), the positions at which the output of the last layer is needed. Its feed-forward
        network runs only there, so its parts from `after_attention` on have only these positions. None: all positions.
    keep: names of the recorded parts, from `PARTS`; "probs" makes attention compute explicit maps.
    """
    traced = tuple(trace_layers(layers, states, gates=gates, mask=mask, positions=positions, keep=keep))
    if traced:
        return Trace(traced, traced[-1].output_states)
    return Trace((), states if positions is None else gather_positions(states, positions))


@torch.no_grad()
def trace_text(
    loaded: LoadedModel,
    encoding: Encoding,
    head_mask: np.ndarray | None = None,
    *,
    keep: Collection[str] = PARTS[1:],
    requires_unpatched: bool = True,
) -> Iterator[LayerTrace]:
    """Yield the activations of each layer for one text, without a batch axis.

    head_mask: as for `capture`. keep: as for `trace`; by default all parts but the queries, which cost one more
        product.
    requires_unpatched: whether the result is only valid for activations of the text itself.
    Raises Refused for a model with activation patches, if `requires_unpatched` is set.
    """
    if requires_unpatched:
        check_unpatched(loaded.edits, "this analysis")
    gates = layer_gates(loaded, head_mask)
    for layer in trace_layers(encoder_layers(loaded), embed_text(loaded, encoding), gates=gates, keep=keep):
        yield layer.text(0)


# ---------------------------------------------------------------------------- partial passes


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
    """Run the layers from `start` up to, but without, `stop`.

    layers: all layers of the model. states: (batch, seq, hidden), the input of layer `start`.
    stop: None runs up to and with the last layer.
    gates: (layer, batch or 1, head, 1, 1). mask: additive, (batch or 1, 1, query or 1, key).
    positions: (batch or 1, position), the only positions at which the last layer is computed; None: all.
    If the states are several copies of a batch, one copy after another, then gates, mask and positions may have the
    size of one copy.
    Returns (batch, seq or position, hidden), the input of layer `stop` or the output of the last layer.
    """
    stop = len(layers) if stop is None else stop
    mask, positions = _repeat_for_copies(mask, len(states)), _repeat_for_copies(positions, len(states))
    if positions is not None and start == len(layers):
        return gather_positions(states, positions)
    for number in range(start, stop):
        states = layers[number](
            states,
            mask,
            None if gates is None else _repeat_for_copies(gates[number], len(states)),
            positions=positions if number == len(layers) - 1 else None,
        ).hidden_states
    return states


def _repeat_for_copies(tensor: Tensor | None, batch: int) -> Tensor | None:
    """Repeat a tensor (texts, ...) to the batch size of several copies; one with a single row is left to broadcast."""
    if tensor is None or len(tensor) in (1, batch):
        return tensor
    return tensor.repeat(batch // len(tensor), *[1] * (tensor.dim() - 1))


def run_variants(
    layers: Sequence[BertLayer],
    starts: Sequence[int],
    start_variants: Callable[[int, range], Tensor],
    variants_per_batch: int,
    *,
    gates: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> Iterator[tuple[range, Tensor]]:
    """Run variants of one pass that differ from a certain layer on, a batch of variants at a time.

    No layer below the start of a variant is computed again: each variant joins its batch at its own layer.
    starts: for each variant, the number of layers that are already done when it starts, in ascending order.
    start_variants: function that takes such a number and the variants that start there. It returns their states
        (variants * batch, seq, hidden), or only those at the positions if all layers are done.
    variants_per_batch: number of variants that are computed together.
    layers, gates, mask, positions: as for `run_layers`.
    Yields the numbers of the variants and the output of the last layer (variants * batch, position, hidden).
    """
    for first in range(0, len(starts), variants_per_batch):
        variants = range(first, min(first + variants_per_batch, len(starts)))
        states: Tensor | None = None
        layer_count = starts[first]
        for start, group in groupby(variants, key=starts.__getitem__):
            starting = list(group)
            if states is not None:
                states = run_layers(layers, states, layer_count, start, gates=gates, mask=mask, positions=positions)
            new_states = start_variants(start, range(starting[0], starting[-1] + 1))
            states, layer_count = new_states if states is None else torch.cat([states, new_states]), start
        assert states is not None  # every batch has a variant
        if layer_count < len(layers):
            states = run_layers(layers, states, layer_count, gates=gates, mask=mask, positions=positions)
        yield variants, states

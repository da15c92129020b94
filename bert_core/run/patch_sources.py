"""Activations that patches come from: those of a text, of a text with noise, or the mean over many texts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

import torch
from torch import Tensor

from bert_core.edits import NEURON
from bert_core.loading import LoadedModel
from bert_core.records import MeanOf, Noised
from bert_core.run.inputs import embed_text, id_tensor, position_tensor, segment_tensor
from bert_core.run.stack import PARTS, Trace, encoder_layers, trace
from bert_core.tokenizer import Encoding

# The activation in `LayerTrace` that each kind of patch replaces; patches of "state" replace the residual stream.
PATCHED_PARTS = {
    "attention": "attention_update", "feed_forward": "feed_forward_update", "head": "context", "pattern": "probs",
    "query": "query", "key": "key", "value": "value", NEURON: "neurons",
}  # fmt: skip
_TOKEN_PARTS = ("input_states", *(part for part in PARTS if part != "probs"))  # activations with one row per token


def trace_source(loaded: LoadedModel, source: Encoding | Noised | MeanOf, tokens: int, gates: Tensor | None) -> Trace:
    """Record the activations of a source of patches.

    source: a text, a text with noise, or `MeanOf`, which gives the mean over all tokens of its texts at every position.
    tokens: number of positions of a mean. gates: as for `run_layers`.
    The activations of a mean have no attention probabilities.
    """
    if not isinstance(source, MeanOf):
        return trace(encoder_layers(loaded), embed_source(loaded, source), gates=gates)
    count, sums, traced = sum(map(len, source.encodings)), list[Tensor](), Trace((), torch.empty(0))
    for encoding in source.encodings:
        traced = trace(encoder_layers(loaded), embed_text(loaded, encoding), gates=gates)
        parts = [getattr(layer, name) for layer in traced.layers for name in _TOKEN_PARTS]
        text_sums = [part.sum(-2, keepdim=True) for part in (*parts, traced.last)]
        sums = list(starmap(torch.add, zip(sums, text_sums, strict=True))) if sums else text_sums
    *means, last = ((part / count).expand(*part.shape[:-2], tokens, -1) for part in sums)
    size = len(_TOKEN_PARTS)
    layer_means = [means[first : first + size] for first in range(0, len(means), size)]
    no_probs = {"probs": last.new_empty(0)}
    parts_of_layers = [dict(zip(_TOKEN_PARTS, layer_parts, strict=True)) | no_probs for layer_parts in layer_means]
    return traced.replaced(parts_of_layers, last)


def align_trace(source: Trace, text: Trace, partners: Sequence[int | None]) -> Trace:
    """Move the activations of a source's tokens to the positions of their partners in a text.

    partners: for each position of the text, the position of its partner in the source; None keeps the activations of
        the text.
    Attention probabilities remain those of the text, since they have no meaning for another order of tokens.
    """
    positions = [position for position, partner in enumerate(partners) if partner is not None]
    source_positions = [partner for partner in partners if partner is not None]

    def align(text_part: Tensor, source_part: Tensor) -> Tensor:
        aligned = text_part.clone()
        aligned[..., positions, :] = source_part[..., source_positions, :]
        return aligned

    layers = [
        {name: align(getattr(text_layer, name), getattr(source_layer, name)) for name in _TOKEN_PARTS}
        for text_layer, source_layer in zip(text.layers, source.layers, strict=True)
    ]
    return text.replaced(layers, align(text.last, source.last))


@torch.no_grad()
def embed_source(loaded: LoadedModel, source: Encoding | Noised) -> Tensor:
    """Compute the output of the embedding layer for a source, with its noise if it has any, (1, seq, hidden)."""
    if not isinstance(source, Noised):
        return embed_text(loaded, source)
    embeddings = loaded.model.bert.embeddings
    words = embeddings.word_embeddings(id_tensor(loaded, source.encoding))
    # Drawn on the CPU, so that a seed gives the same noise on every device.
    noise = torch.randn(words.shape, generator=torch.Generator().manual_seed(source.seed))
    spread = source.size * embeddings.word_embeddings.weight.std()
    typed_positions = [position for position, special in enumerate(source.encoding.special) if not special]
    positions = typed_positions if source.positions is None else list(source.positions)
    words[:, positions] += spread * noise.to(words)[:, positions]
    states: Tensor = embeddings(
        inputs_embeds=words, token_type_ids=segment_tensor(loaded, source.encoding),
        position_ids=position_tensor(loaded, source.encoding),
    )  # fmt: skip
    return states

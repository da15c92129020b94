"""The pass that patches come from: of a text, a text with noise, or the mean of many texts."""

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

# The part of a layer that each kind of patch replaces; of a state it is what enters or leaves the layer.
PATCHED_PARTS = {
    "attention": "attended", "feed_forward": "fed", "head": "context", "pattern": "probs",
    "query": "query", "key": "key", "value": "value", NEURON: "activated",
}  # fmt: skip
_OF_TOKENS = ("entering", *(part for part in PARTS if part != "probs"))  # what has a row for each token


def trace_source(loaded: LoadedModel, source: Encoding | Noised | MeanOf, tokens: int, gates: Tensor | None) -> Trace:
    """The pass of a source; of a mean, the mean over all tokens of its texts, at each of so many tokens.

    gates: as for `run_layers`. A mean has no attention probabilities.
    """
    if not isinstance(source, MeanOf):
        return trace(encoder_layers(loaded), embed_source(loaded, source), gates=gates)
    count, sums, traced = sum(map(len, source.encodings)), list[Tensor](), Trace((), torch.empty(0))
    for encoding in source.encodings:
        traced = trace(encoder_layers(loaded), embed_text(loaded, encoding), gates=gates)
        parts = [getattr(layer, name) for layer in traced.layers for name in _OF_TOKENS]
        own = [part.sum(-2, keepdim=True) for part in (*parts, traced.last)]
        sums = list(starmap(torch.add, zip(sums, own, strict=True))) if sums else own
    *means, last = ((part / count).expand(*part.shape[:-2], tokens, -1) for part in sums)
    each = len(_OF_TOKENS)
    of_layers = [means[first : first + each] for first in range(0, len(means), each)]
    no_probs = {"probs": last.new_empty(0)}
    return traced.replaced([dict(zip(_OF_TOKENS, of_layer, strict=True)) | no_probs for of_layer in of_layers], last)


def align_trace(source: Trace, text: Trace, partners: Sequence[int | None]) -> Trace:
    """The source's tokens at the places of the text: for each place, which token; None keeps the text's own.

    Attention probabilities stay the text's own, as they have no meaning for another order of tokens.
    """
    places = [place for place, partner in enumerate(partners) if partner is not None]
    tokens = [partner for partner in partners if partner is not None]

    def replaced(own: Tensor, other: Tensor) -> Tensor:
        made = own.clone()
        made[..., places, :] = other[..., tokens, :]
        return made

    layers = [
        {name: replaced(getattr(own, name), getattr(other, name)) for name in _OF_TOKENS}
        for own, other in zip(text.layers, source.layers, strict=True)
    ]
    return text.replaced(layers, replaced(text.last, source.last))


@torch.no_grad()
def embed_source(loaded: LoadedModel, source: Encoding | Noised) -> Tensor:
    """What enters the first layer, (1, seq, hidden)."""
    if not isinstance(source, Noised):
        return embed_text(loaded, source)
    embeddings = loaded.model.bert.embeddings
    words = embeddings.word_embeddings(id_tensor(loaded, source.encoding))
    # Drawn on the CPU, so that a seed says the same on every device.
    noise = torch.randn(words.shape, generator=torch.Generator().manual_seed(source.seed))
    spread = source.size * embeddings.word_embeddings.weight.std()
    places = [place for place, special in enumerate(source.encoding.special) if not special]
    at = places if source.positions is None else list(source.positions)
    words[:, at] += spread * noise.to(words)[:, at]
    states: Tensor = embeddings(
        inputs_embeds=words, token_type_ids=segment_tensor(loaded, source.encoding),
        position_ids=position_tensor(loaded, source.encoding),
    )  # fmt: skip
    return states

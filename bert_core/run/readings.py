"""One text through the model with every part of the pass kept: what patches are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import cast

import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.records import MeanOf, Noised
from bert_core.run.inputs import embedded, ids_of, positions_of, segments_of
from bert_core.tokenizer import Encoding


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
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


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
class Reading:
    """One text through the model: what each layer did, and what leaves the last, (1, seq, hidden)."""

    layers: tuple[Trace, ...]
    last: Tensor

    @property
    def states(self) -> list[Tensor]:
        """The residual stream at every depth, (1, seq, hidden) each."""
        return [*(layer.entering for layer in self.layers), self.last]

    def laid_on(self, other: Reading, partners: Sequence[int | None]) -> Reading:
        """This reading's tokens at the places of another's: for each place there, which one of these; None keeps it.

        Maps between tokens stay the other's, as they have no meaning for another order.
        """
        at = [place for place, partner in enumerate(partners) if partner is not None]
        of = [partner for partner in partners if partner is not None]

        def laid(name: str, own: Tensor, theirs: Tensor) -> Tensor:
            if name == "probs":
                return theirs
            made = theirs.clone()
            made[..., at, :] = own[..., of, :]
            return made

        layers = (
            Trace(*(laid(part.name, getattr(own, part.name), getattr(theirs, part.name)) for part in fields(Trace)))
            for own, theirs in zip(self.layers, other.layers, strict=True)
        )
        return Reading(tuple(layers), laid("last", self.last, other.last))


def traced(loaded: LoadedModel, states: Tensor, gates: Tensor | None) -> Reading:
    """The passes of all layers over states (1, seq, hidden) from the embeddings.

    gates: as `get_head_mask` gives them. A graph stands where the states have one.
    """
    traces = []
    for number, layer in enumerate(layers_of(loaded)):
        attention = layer.attention.self
        seen = attention(states, None, None if gates is None else gates[number], output_attentions=True)
        query, context = (attention.transpose_for_scores(part) for part in (attention.query(states), seen.context))
        key, value = seen.past_key_value
        attended = layer.attention.output.dense(context.transpose(1, 2).flatten(2))
        normed = layer.attention.output.LayerNorm(attended + states)
        activated = layer.intermediate(normed)
        fed = layer.output.dense(activated)
        probs = seen.attention_probs
        traces.append(Trace(states, query, key, value, probs, context, attended, normed, activated, fed))
        states = layer.output.LayerNorm(fed + normed)
    return Reading(tuple(traces), states)


def reading_of(loaded: LoadedModel, source: Encoding | Noised | MeanOf, tokens: int, gates: Tensor | None) -> Reading:
    """What the model makes of a source; of a mean, that of all tokens of its texts, at each of so many tokens."""
    if not isinstance(source, MeanOf):
        return traced(loaded, entering(loaded, source), gates)
    count, summed = sum(map(len, source.encodings)), None
    for encoding in source.encodings:
        own = _parts(traced(loaded, embedded(loaded, encoding), gates))
        parts = [part.sum(-2, keepdim=True) for part in own]
        summed = parts if summed is None else [one + other for one, other in zip(summed, parts, strict=True)]
    assert summed is not None  # a mean has texts
    means = [(part / count).expand(*part.shape[:-2], tokens, -1) for part in summed]
    of_layers, each = means[:-1], len(_KEPT)
    layers = [
        Trace(**dict(zip(_KEPT, of_layers[first : first + each], strict=True)), probs=of_layers[first].new_empty(0))
        for first in range(0, len(of_layers), each)
    ]
    return Reading(tuple(layers), means[-1])


_KEPT = tuple(part.name for part in fields(Trace) if part.name != "probs")  # what has a mean over tokens


def _parts(reading: Reading) -> list[Tensor]:
    """Everything of a reading that stands at a token, layer by layer, and what leaves the last."""
    return [*(getattr(layer, name) for layer in reading.layers for name in _KEPT), reading.last]


@torch.no_grad()
def entering(loaded: LoadedModel, source: Encoding | Noised) -> Tensor:
    """What enters the first layer, (1, seq, hidden)."""
    if not isinstance(source, Noised):
        return embedded(loaded, source)
    embeddings = loaded.model.bert.embeddings
    words = embeddings.word_embeddings(ids_of(loaded, source.encoding))
    # Drawn on the CPU, so that a seed says the same on every device.
    noise = torch.randn(words.shape, generator=torch.Generator().manual_seed(source.seed))
    spread = source.size * embeddings.word_embeddings.weight.std()
    places = [place for place, special in enumerate(source.encoding.special) if not special]
    at = places if source.positions is None else list(source.positions)
    words[:, at] += spread * noise.to(words)[:, at]
    states: Tensor = embeddings(
        inputs_embeds=words, token_type_ids=segments_of(loaded, source.encoding),
        position_ids=positions_of(loaded, source.encoding),
    )  # fmt: skip
    return states


def layers_of(loaded: LoadedModel) -> list[BertLayer]:
    """The layers of a model, from below."""
    return cast("list[BertLayer]", list(loaded.model.bert.encoder.layer))

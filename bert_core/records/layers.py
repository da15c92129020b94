"""What is between the layers: the states, what is read out of them, and every value on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class LayerStates:
    """The state of every position between the layers.

    states: (depth, seq, hidden) float32; depth 0 is the embeddings, depth n + 1 what leaves layer n.
    """

    encoding: Encoding
    states: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def nbytes(self) -> int:
        """Memory of the array."""
        return self.states.nbytes


@compared_by_value
@dataclass(frozen=True)
class LensRun:
    """What the masked-word head reads out of every layer at every position.

    Depth 0 is the embeddings, depth n + 1 what leaves layer n; the last depth is the model's own prediction.
    lens: "logit", the states as they are; "tuned", each brought to the last depth by its layer's translator.
    positions: (place,) where it was read, in rising order.
    followed: (place,) the piece that is followed at each of them.
    top: (depth, place, some) int32, the likeliest pieces, best first. probabilities: the same shape, theirs.
    final_rank, final_probability: (depth, place), of the piece that the last depth puts first; rank 1 is the likeliest.
    followed_rank, followed_probability: the same of the followed piece.
    divergence: (depth, place), KL of the last depth's distribution from this depth's, nats, never negative.
    entropy: (depth, place), nats: 0 where one piece is certain.
    """

    encoding: Encoding
    lens: str
    positions: tuple[int, ...]
    followed: tuple[int, ...]
    top: np.ndarray = field(repr=False)
    probabilities: np.ndarray = field(repr=False)
    final_rank: np.ndarray = field(repr=False)
    final_probability: np.ndarray = field(repr=False)
    followed_rank: np.ndarray = field(repr=False)
    followed_probability: np.ndarray = field(repr=False)
    divergence: np.ndarray = field(repr=False)
    entropy: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def final(self) -> np.ndarray:
        """(place,) the piece that the last depth puts first."""
        first: np.ndarray = self.top[-1, :, 0]
        return first


@compared_by_value
@dataclass(frozen=True)
class LensChange:
    """What the masked-word heads of two models read out of every layer of one text.

    Depth 0 is the embeddings, depth n + 1 what leaves layer n.
    before, after: (depth, seq) int32, the likeliest piece of each. shares_before, shares_after: the same, how probable
    it is. divergence: (depth, seq), Jensen-Shannon divergence of both readings, nats, 0 to ln 2.
    """

    encoding: Encoding
    before: np.ndarray = field(repr=False)
    after: np.ndarray = field(repr=False)
    shares_before: np.ndarray = field(repr=False)
    shares_after: np.ndarray = field(repr=False)
    divergence: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def same(self) -> np.ndarray:
        """(depth, seq), whether both read the same piece first."""
        same: np.ndarray = self.before == self.after
        return same


@compared_by_value
@dataclass(frozen=True)
class Walk:
    """The values on the way of one text through a model, seen in full in one layer.

    engine: "torch" or "numpy". tokens: the pieces that were read, those of the padding included.
    position: where the masked-word head was asked.
    values: by name, in the order of computation, without a batch axis; `layer.N` is the layer that was seen.
        embeddings.word, .token_type, .position, .sum: (seq, embedding); the two in the middle only where the model
            has such a table. .normed: the same after the norm, where a linear map follows. .output: (seq, hidden),
            what enters the first layer.
        layer.N.query, .key, .value, .context: (head, seq, head size); the context after the gate of its head.
        layer.N.mask: (query, key), added to the scores. layer.N.scores, .masked_scores, .probabilities:
            (head, query, key), the last two without the arrows that are cut in the model.
        layer.N.attention_output, .attention_sum, .attention_normed: (seq, hidden).
        layer.N.intermediate_dense, .intermediate: (seq, intermediate), before and after the activation.
        layer.N.output_dense, .output_sum, .output: (seq, hidden).
        hidden_states: (layer + 1, seq, hidden), what enters each layer, and what leaves the last.
        pooler_dense, pooler: (hidden,). mlm.dense, .activated, .transform: (embedding,). mlm_logits: (vocab,).
        nsp_logits: (2,), index 0 means that B follows A. detector.dense, .activated: (seq, hidden).
        replaced_logits: (seq,), above 0 a token rather was replaced. Each only where its head was trained.
        A head that was pruned is NaN in all that has heads.
    """

    engine: str
    encoding: Encoding
    tokens: tuple[str, ...]
    layer: int
    position: int
    values: Mapping[str, np.ndarray] = field(repr=False)

    def __post_init__(self) -> None:
        for value in self.values.values():
            value.flags.writeable = False
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(value.nbytes for value in self.values.values())

    def layer_value(self, name: str) -> np.ndarray:
        """A value of the layer that was seen: `of_layer("query")` is `values["layer.N.query"]`."""
        return self.values[f"layer.{self.layer}.{name}"]

    @property
    def layer_input(self) -> np.ndarray:
        """What enters the layer that was seen (seq, hidden)."""
        entering: np.ndarray = self.values["hidden_states"][self.layer]
        return entering

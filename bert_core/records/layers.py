"""Results about layers: hidden states, lens readings of each layer, and all intermediate values of a forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from bert_core.deprecation import RenamedAttribute
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class LayerStates(Tabular):
    """Hidden states of every position at every depth.

    states: (depth, seq, hidden) float32. Depth 0 is the embeddings, depth n + 1 the output of layer n.
    """

    TABLES: ClassVar[Tables] = (("depth position dimension", {"state": "states"}),)

    encoding: Encoding
    states: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def nbytes(self) -> int:
        """Memory of the array in bytes."""
        return self.states.nbytes


@compared_by_value
@dataclass(frozen=True)
class LensRun(Tabular):
    """Predictions of the MLM head from the hidden states at every depth (logit lens or tuned lens).

    Depth 0 is the embeddings, depth n + 1 the output of layer n. The last depth is the prediction of the model.

    lens: "logit" for unmodified states, or "tuned" for states mapped to the last depth by a translator for each layer.
    positions: (place,), positions of the predictions, rising.
    followed: (place,), ids of tokens that are tracked at these positions.
    top: (depth, place, rank) int32, ids of the most probable tokens, the most probable first.
    probabilities: (depth, place, rank), their probabilities.
    final_rank, final_probability: (depth, place), rank and probability of the token that is first at the last depth.
        Rank 1 is the most probable.
    followed_rank, followed_probability: (depth, place), the same for the tracked token.
    divergence: (depth, place), KL divergence of the last depth from this depth in nats, not negative.
    entropy: (depth, place), entropy in nats, 0 if one token has probability 1.
    """

    TABLES: ClassVar[Tables] = (
        (
            "depth position",
            {
                "final_rank": "final_rank", "final_probability": "final_probability",
                "followed_rank": "followed_rank", "followed_probability": "followed_probability",
                "divergence": "divergence", "entropy": "entropy",
            },
        ),
        ("depth position rank", {"token_id": "top", "probability": "probabilities"}),
    )  # fmt: skip

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

    def _numbers(self, axis: str, size: int, axes: Sequence[str]) -> Sequence[int]:
        return self.positions if axis == "position" else super()._numbers(axis, size, axes)

    @property
    def final(self) -> np.ndarray:
        """Ids of the most probable tokens at the last depth, (place,)."""
        first: np.ndarray = self.top[-1, :, 0]
        return first


@compared_by_value
@dataclass(frozen=True)
class LensChange(Tabular):
    """Predictions of the MLM heads of two models at every depth of one text.

    Depth 0 is the embeddings, depth n + 1 the output of layer n.

    before, after: (depth, seq) int32, ids of the most probable tokens of either model.
    shares_before, shares_after: (depth, seq), their probabilities.
    divergence: (depth, seq), Jensen-Shannon divergence of both predictions in nats, 0 to ln 2.
    """

    TABLES: ClassVar[Tables] = (
        (
            "depth position",
            {
                "before": "before", "after": "after", "probability_before": "shares_before",
                "probability_after": "shares_after", "divergence": "divergence",
            },
        ),
    )  # fmt: skip

    encoding: Encoding
    before: np.ndarray = field(repr=False)
    after: np.ndarray = field(repr=False)
    shares_before: np.ndarray = field(repr=False)
    shares_after: np.ndarray = field(repr=False)
    divergence: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def equal(self) -> np.ndarray:
        """Whether both models predict the same token, (depth, seq)."""
        equal: np.ndarray = self.before == self.after
        return equal


@compared_by_value
@dataclass(frozen=True)
class Walk(Tabular):
    """The intermediate values of a forward pass of one text, with all values of one layer.

    engine: "torch" or "numpy".
    tokens: tokens of the input, including padding.
    layer: number of the layer N whose values are stored.
    position: position at which the MLM head was applied.
    values: by name in the order of computation, without a batch axis. A head or detector has values only if it is
        trained. A pruned head is NaN in all values with a head axis.
        embeddings.word, .token_type, .position, .sum: (seq, embedding). token_type and position exist only if the model
            has such a table. .normed: (seq, embedding), after the layer norm, if a linear map follows.
            .output: (seq, hidden), input of the first layer.
        layer.N.attention_input: (seq, hidden), after the layer norm before attention, if the layer has one.
        layer.N.query, .key, .value, .context: (head, seq, head size). The context is after the head gate.
            .rotated_query, .rotated_key: the same after the rotation, only with rotary positions.
        layer.N.mask: (query, key), added to the scores; -inf outside the window of a local layer. layer.N.scores,
            .masked_scores, .probabilities: (head, query, key). The last two are without the edges that attention
            knockout blocks.
        layer.N.attention_output, .attention_sum: (seq, hidden), the second with the residual stream.
            .attention_normed: after the layer norm of the sum, if the layer has one there.
        layer.N.intermediate_input: (seq, hidden), after the layer norm before the feed-forward network, if it has one.
        layer.N.intermediate_dense, .intermediate: (seq, intermediate), before and after the activation function.
            A gated network also has .intermediate_activated, which is .intermediate_dense after the activation
            function, and .intermediate_gate; .intermediate is their product.
        layer.N.output_dense, .output: (seq, hidden). .output_sum: the input of the layer norm that ends the layer, if
            it has one; without one, .output is the sum with the residual stream.
        hidden_states: (layer + 1, seq, hidden), the input of each layer and the output of the last.
        final.sum, .normed: (seq, hidden), before and after the final layer norm of a pre-norm model.
        pooler_dense, pooler: (hidden,). mlm.dense, .activated, .transform: (embedding,). mlm_logits: (vocab,).
        nsp_logits: (2,), index 0 means that B follows A. detector.dense, .activated: (seq, hidden), and
            .normed before them in some models.
        pooler_mean, pooler_activated: (hidden,), the input of the pooler if it is a mean, and that of its layer norm.
        replaced_logits: (seq,), positive if a token is more likely replaced than original.
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
        """Memory of all arrays in bytes."""
        return sum(value.nbytes for value in self.values.values())

    def layer_value(self, name: str) -> np.ndarray:
        """Return a value of the stored layer: `layer_value("query")` is `values["layer.N.query"]`."""
        return self.values[f"layer.{self.layer}.{name}"]

    @property
    def layer_input(self) -> np.ndarray:
        """Input of the stored layer, (seq, hidden)."""
        states: np.ndarray = self.values["hidden_states"][self.layer]
        return states

    def _tables(self) -> Tables:
        names = ("hidden_states", *(name for name in self.values if name != "hidden_states"))
        return [(_walk_axes(name, self.values[name].ndim), {name: self.values[name]}) for name in names]

    def _tokens(self) -> Sequence[str]:
        return self.tokens

    of_layer = RenamedAttribute("layer_value")
    entering = RenamedAttribute("layer_input")


def _walk_axes(name: str, ndim: int) -> str:
    """Return the axes of a value of a `Walk`."""
    axes = {
        "hidden_states": "depth position dimension", "mlm_logits": "token_id", "nsp_logits": "label",
        "replaced_logits": "position", "mask": "query key", "scores": "head query key",
        "masked_scores": "head query key", "probabilities": "head query key",
    }  # fmt: skip
    by_ndim = ("", "dimension", "position dimension", "head position dimension")
    return axes.get(name.rpartition(".")[2]) or by_ndim[ndim]

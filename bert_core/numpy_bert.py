"""The same BERT in NumPy: small enough to read in one sitting, and an oracle for the one in PyTorch.

One stack of blocks serves two doors. `create_bert_model` makes a new one with sinusoidal positions and seeded weights;
`BertForPretraining.from_pretrained` reads a checkpoint folder, with its learned or relative positions and segments.
`forward` gives the outputs; `walk` gives every intermediate value by its name, in the order in which it is computed.
Neither this module nor what it imports needs torch.

>>> import numpy as np
>>> from bert_core.numpy_bert import create_bert_model
>>> model = create_bert_model(
...     vocab_size=100, max_seq_length=16, d_model=32, num_heads=4, d_ff=64, num_layers=2, for_pretraining=True
... )
>>> outputs = model.forward(np.array([[2, 45, 7, 3], [2, 8, 3, 0]]))
>>> {name: value.shape for name, value in outputs.items()}
{'mlm_logits': (2, 4, 100), 'nsp_logits': (2, 2), 'sequence_output': (2, 4, 32), 'pooled_output': (2, 32)}

Axis words as everywhere: batch layer head query key seq hidden vocab. Rows are queries, columns keys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from bert_core.config import BertConfig
from bert_core.naming import renumber_layers, to_current_names
from bert_core.positions import POSITION_SCHEMES, DistanceScores
from bert_core.refused import Refused, require_int, validate_arguments

IGNORED_LABEL = -100  # a position with this label has no part in a loss
MASKED_SCORE = -10000.0  # added to the score of a key that must not be attended to

Weights = Mapping[str, np.ndarray]
# Takes each value as it is computed, by name, and gives it back.
ValueHook = Callable[[str, np.ndarray], np.ndarray]


def identity_hook(name: str, value: np.ndarray) -> np.ndarray:
    """The `keep` of a `forward` that nobody watches: gives each value back as it is."""
    return value


# ---------------------------------------------------------------------------- functions of numbers


def _erf_series(terms: int, dtype: type, steps: int = 64, largest: int = 6) -> np.ndarray:
    """Taylor coefficients of erf (term, node) around the nodes 0, 1/steps, ..., largest, where erf is 1 to rounding."""
    nodes = np.arange(largest * steps + 1) / steps
    series = np.empty((terms, len(nodes)))
    series[0] = [math.erf(node) for node in nodes]
    # The derivative, b, solves b' = -2xb, which gives each of its coefficients from the two before.
    slope, before = 2 / math.sqrt(math.pi) * np.exp(-nodes * nodes), np.zeros_like(nodes)
    for n in range(1, terms):
        series[n] = slope / n
        slope, before = -2 * (nodes * slope + before) / n, slope
    return series.astype(dtype)


# Half a step, 1/128, to the power of the terms is below what the number type can tell apart.
_ERF = {np.dtype(np.float32): _erf_series(4, np.float32), np.dtype(np.float64): _erf_series(7, np.float64)}


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, exact to rounding: a table of `math.erf` and a short Taylor step from the nearest entry."""
    series = _ERF[x.dtype]
    magnitude = np.fmin(np.abs(x), 6)
    node = np.rint(magnitude * 64).astype(np.intp)
    step = magnitude - node.astype(x.dtype) / 64
    value = series[-1][node]
    for coefficients in series[-2::-1]:
        value = value * step + coefficients[node]
    return np.asarray(np.copysign(value, x))


def gelu(x: np.ndarray) -> np.ndarray:
    """`x` times the share of a normal distribution that lies below x (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    return np.asarray(0.5 * x * (1 + erf(x * math.sqrt(0.5))))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))))


def _silu(x: np.ndarray) -> np.ndarray:
    # x times the logistic function, without an exp that overflows
    return np.asarray(0.5 * x * (1 + np.tanh(0.5 * x)))


def _relu(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0))


# Activations by the names that published configurations use.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu, "gelu_new": _gelu_tanh, "gelu_pytorch_tanh": _gelu_tanh,
    "relu": _relu, "silu": _silu, "swish": _silu, "tanh": np.tanh,
}  # fmt: skip


def softmax(scores: np.ndarray) -> np.ndarray:
    """Along the last axis: positive, and sums to 1."""
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


class Dense:
    """y = x W^T + b, with W (out, in) as checkpoints store it."""

    def __init__(self, weights: Weights, name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def forward(self, x: np.ndarray) -> np.ndarray:
        """(..., in) -> (..., out)."""
        return np.asarray(x @ self.weight.T + self.bias)


class LayerNorm:
    """Each vector shifted to mean 0 and scaled to variance 1, then by weight and bias (Ba 2016, arXiv:1607.06450)."""

    def __init__(self, weights: Weights, name: str, eps: float) -> None:
        self.weight, self.bias, self.eps = weights[f"{name}.weight"], weights[f"{name}.bias"], eps

    def forward(self, x: np.ndarray) -> np.ndarray:
        """(..., hidden) -> (..., hidden)."""
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt(variance + self.eps) * self.weight + self.bias)


# ---------------------------------------------------------------------------- building blocks


class WordEmbedding:
    """A table of vectors (vocab, hidden), one for each word piece; `scale` multiplies what is looked up."""

    def __init__(self, table: np.ndarray, scale: float = 1.0) -> None:
        self.table, self.scale = table, scale

    def forward(self, token_ids: np.ndarray) -> np.ndarray:
        """(batch, seq) -> (batch, seq, hidden). Raises ValueError for a number outside the table."""
        if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < len(self.table):
            wrong = token_ids[(token_ids < 0) | (token_ids >= len(self.table))][0]
            raise Refused(f"token {wrong} does not exist: the table has 0 to {len(self.table) - 1}")
        found: np.ndarray = self.table[token_ids]
        return found if self.scale == 1 else np.asarray(found * self.scale)


class PositionalEncoding:
    """A table of vectors (position, hidden), one for each place in the text: sinusoids, or learned."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    @classmethod
    def sinusoidal(cls, max_seq_length: int, d_model: int, dtype: Any = np.float32) -> Self:
        """Waves from 2 pi to 10000 times 2 pi long, a sine and a cosine of each (Vaswani 2017, section 3.5)."""
        pair = np.arange(d_model) // 2  # dimensions 2i and 2i + 1 share a wave
        angle = np.arange(max_seq_length)[:, None] / 10000.0 ** (2 * pair / d_model)
        return cls(np.where(np.arange(d_model) % 2 == 0, np.sin(angle), np.cos(angle)).astype(dtype))

    def forward(self, seq_length: int) -> np.ndarray:
        """The first vectors (seq, hidden). Raises ValueError for a text longer than the table."""
        if seq_length > len(self.table):
            raise Refused(f"the sequence has {seq_length} tokens: this model takes at most {len(self.table)}")
        return self.table[:seq_length]


class MultiheadAttention:
    """Scaled dot-product attention of several heads, and the projection that joins them (Vaswani 2017, section 3.2).

    What the distance between query and key adds to each score is looked up in a table, as the position scheme says
    (`positions.DistanceScores`). longest: how many tokens a text may have, by which rows of some tables are numbered.
    Of num_heads heads those in `heads` are left, by their first numbers; None is all of them.
    """

    def __init__(
        self,
        weights: Weights,
        num_heads: int,
        position_embedding_type: str = "absolute",
        heads: Sequence[int] | None = None,
        longest: int = 512,
    ) -> None:
        self.query, self.key, self.value = (Dense(weights, f"self.{name}") for name in ("query", "key", "value"))
        self.output = Dense(weights, "output.dense")
        self.heads = list(range(num_heads) if heads is None else heads)
        self.num_heads = len(self.heads)
        self.head_size = len(self.query.weight) // self.num_heads if self.heads else len(self.output.bias) // num_heads
        self.distances, self.longest = POSITION_SCHEMES[position_embedding_type].distances, longest
        self.distance_table = None if self.distances is None else weights[f"self.{self.distances.table}.weight"]

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        gates: np.ndarray | None = None,
        hook: ValueHook = identity_hook,
    ) -> np.ndarray:
        """(batch, seq, hidden) -> the same shape.

        mask: added to the scores, broadcast to (batch, head, query, key). gates: of
            all heads, pruned ones too, (batch or 1, head, 1, 1).
        """
        query = hook("query", self._heads(self.query.forward(x)))  # (batch, head, seq, head size)
        key = hook("key", self._heads(self.key.forward(x)))
        value = hook("value", self._heads(self.value.forward(x)))
        products, root = query @ key.swapaxes(-1, -2), math.sqrt(self.head_size)  # (batch, head, query, key)
        if self.distances is None or self.distance_table is None:
            scores = products / root
        else:
            added = self._distance_scores(self.distances, query, key, self.distance_table)
            scores = (products + added) / root if self.distances.divided else products / root + added
        scores = hook("scores", scores)
        masked = hook("masked_scores", scores if mask is None else scores + mask)
        probabilities = hook("probabilities", softmax(masked))
        context = probabilities @ value  # (batch, head, query, head size)
        context = hook("context", context if gates is None else context * gates[:, self.heads])
        joined = context.swapaxes(1, 2).reshape(*x.shape[:2], self.num_heads * self.head_size)
        return hook("attention_output", self.output.forward(joined))

    def _heads(self, x: np.ndarray) -> np.ndarray:
        """(batch, seq, heads * head size) -> (batch, head, seq, head size)."""
        return x.reshape(*x.shape[:2], self.num_heads, self.head_size).swapaxes(1, 2)

    def _distance_scores(
        self, distances: DistanceScores, query: np.ndarray, key: np.ndarray, table: np.ndarray
    ) -> np.ndarray:
        """What the distance query - key adds to each score, (batch, head, query, key)."""
        length = query.shape[2]
        if length > self.longest:
            raise Refused(f"the sequence has {length} tokens: this model takes at most {self.longest}")
        places = np.arange(length)
        vectors = table[distances.rows(places[:, None] - places[None, :], self.longest)]  # (query, key, width)
        of_each = np.broadcast_to(vectors, (len(query), *vectors.shape))
        return np.asarray(distances.scores(query, key, of_each, self.heads, np.einsum))


class FeedForward:
    """Two dense layers with an activation between them, at each position by itself; GELU unless another is named."""

    def __init__(self, weights: Weights, activation: str | Callable[[np.ndarray], np.ndarray] = "gelu") -> None:
        self.inner, self.outer = Dense(weights, "intermediate.dense"), Dense(weights, "output.dense")
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(self, x: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """(batch, seq, hidden) -> the same shape."""
        inner = hook("intermediate_dense", self.inner.forward(x))
        return hook("output_dense", self.outer.forward(hook("intermediate", self.activation(inner))))


class BertBlock:
    """One layer: attention, then the feed-forward network; after each the residual is added, then comes a norm."""

    def __init__(self, config: BertConfig, weights: Weights, layer: int = 0) -> None:
        self.attention = MultiheadAttention(
            _part(weights, "attention."),
            config.num_attention_heads,
            config.position_embedding_type,
            config.heads_of(layer),
            config.max_position_embeddings,
        )
        self.attention_norm = LayerNorm(weights, "attention.output.LayerNorm", config.layer_norm_eps)
        self.feed_forward = FeedForward(weights, config.hidden_act)
        self.output_norm = LayerNorm(weights, "output.LayerNorm", config.layer_norm_eps)

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        gates: np.ndarray | None = None,
        hook: ValueHook = identity_hook,
    ) -> np.ndarray:
        """As MultiheadAttention.forward."""
        summed = hook("attention_sum", self.attention.forward(x, mask, gates, hook) + x)
        attended = hook("attention_normed", self.attention_norm.forward(summed))
        summed = hook("output_sum", self.feed_forward.forward(attended, hook) + attended)
        return hook("output", self.output_norm.forward(summed))


class IdentityBlock:
    """A layer that was taken out: what it is given leaves it as it is."""

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        gates: np.ndarray | None = None,
        hook: ValueHook = identity_hook,
    ) -> np.ndarray:
        """As BertBlock.forward."""
        return hook("output", x)


class MaskedLMHead:
    """A score for every word piece: dense layer, activation, norm, then the dot product with each piece's vector."""

    def __init__(self, config: BertConfig, weights: Weights) -> None:
        self.dense = Dense(weights, "transform.dense")
        self.activation = ACTIVATIONS[config.mlm_act] if isinstance(config.mlm_act, str) else config.mlm_act
        self.norm = LayerNorm(weights, "transform.LayerNorm", config.layer_norm_eps)
        self.decoder = Dense(weights, "decoder")

    def forward(self, sequence_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """(..., hidden) -> (..., vocab)."""
        dense = hook("mlm.dense", self.dense.forward(sequence_output))
        transformed = hook("mlm.transform", self.norm.forward(hook("mlm.activated", self.activation(dense))))
        return hook("mlm_logits", self.decoder.forward(transformed))


class NSPHead:
    """Two scores from the pooled first token: index 0 means that B follows A."""

    def __init__(self, weights: Weights) -> None:
        self.dense = Dense(weights, "seq_relationship")

    def forward(self, pooled_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """(batch, hidden) -> (batch, 2)."""
        return hook("nsp_logits", self.dense.forward(pooled_output))


class DetectorHead:
    """A score for every token, of an ELECTRA's discriminator: above 0 it rather was put in the place of another."""

    def __init__(self, config: BertConfig, weights: Weights) -> None:
        self.dense, self.last = Dense(weights, "dense"), Dense(weights, "dense_prediction")
        self.activation = ACTIVATIONS[config.hidden_act] if isinstance(config.hidden_act, str) else config.hidden_act

    def forward(self, sequence_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """(..., hidden) -> (...)."""
        activated = self.activation(hook("detector.dense", self.dense.forward(sequence_output)))
        return hook("replaced_logits", self.last.forward(hook("detector.activated", activated))[..., 0])


# ---------------------------------------------------------------------------- models


class _Model(ABC):
    """What both models share: where the weights come from, and the walk."""

    forward: Callable[..., Any]

    @abstractmethod
    def __init__(self, config: BertConfig, weights: Weights, *, word_scale: float = 1.0) -> None:
        """weights: by today's names, checked against the configuration."""

    @classmethod
    def from_weights(cls, weights: Weights, config: BertConfig, dtype: Any = np.float32) -> Self:
        """A model from named arrays, such as a state dict; names of yesterday and untied spellings are understood.

        dtype: float32 or float64, in which all is computed; arrays of that type are used where they are.
        A head, or the pooler, of which a weight is missing is left out, and weights without a place are ignored.
        Raises ValueError if a weight of the encoder is missing, or a shape is not what the configuration says.
        """
        return cls(config, _checked(weights, config, np.dtype(dtype)))

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: Any = np.float32) -> Self:
        """A model from a checkpoint folder with `config.json` and `model.safetensors`.

        Raises ValueError if either is not there, cannot be read, or as `from_weights` does.
        """
        folder = Path(folder)
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise Refused(f"{folder} has no {name}: the NumPy model reads config.json and model.safetensors")
        try:
            weights = load_file(folder / "model.safetensors")
        except (SafetensorError, TypeError, AttributeError, OSError) as error:  # a number type that NumPy does not have
            raise Refused(f"{folder / 'model.safetensors'} cannot be read as NumPy arrays: {error}") from error
        config = BertConfig.from_json(folder / "config.json")
        weights = renumber_layers(to_current_names(weights), lambda group: group * config.layers_per_group)
        return cls.from_weights(weights, config, dtype)

    def walk(self, token_ids: np.ndarray, **model_arguments: Any) -> dict[str, np.ndarray]:
        """Every intermediate value by name, in the order of computation; the arguments are those of `forward`.

        embeddings.word, .token_type, .position, .sum: (batch, seq, embedding), position without the batch; the two in
            the middle only where the model has them. .normed: the same after the norm, where a linear map follows.
            .output: (batch, seq, hidden), what enters the first layer.
        layer.N.query, .key, .value, .context: (batch, head, seq, head size); the context after the head's gate; here
            and below the heads that the layer has.
        layer.N.scores, .masked_scores, .probabilities: (batch, head, query, key), the scores divided by the root and
            with what distances add.
        layer.N.attention_output, .attention_sum, .attention_normed: (batch, seq, hidden): projected, with the
            residual, after the norm; .output_dense, .output_sum, .output: the same of the feed-forward network.
        layer.N.intermediate_dense, .intermediate: (batch, seq, intermediate), before and after the activation.
        pooler_dense, pooler: (batch, hidden). mlm.dense, .activated, .transform: (batch, seq, embedding).
        mlm_logits: (batch, seq, vocab). nsp_logits: (batch, 2).
        detector.dense, .activated: (batch, seq, hidden). replaced_logits: (batch, seq).
        """
        seen: dict[str, np.ndarray] = {}

        def keep(name: str, value: np.ndarray) -> np.ndarray:
            seen[name] = value
            return value

        self.forward(token_ids, hook=keep, **model_arguments)
        return seen


class BertModel(_Model):
    """Embeddings, blocks and, where its weights are there, the pooler."""

    def __init__(self, config: BertConfig, weights: Weights, *, word_scale: float = 1.0) -> None:
        self.config = config
        parts = _part(weights, "bert.")
        self.word_embedding = WordEmbedding(parts["embeddings.word_embeddings.weight"], word_scale)
        self.segment_table = parts.get("embeddings.token_type_embeddings.weight")
        positions = parts.get("embeddings.position_embeddings.weight")
        # Where positions are counted from the padding token's number, the first row is that of padding tokens.
        self.padding_place = None if positions is None or not config.padding_rows else positions[0]
        self.positional_encoding = None if positions is None else PositionalEncoding(positions[config.padding_rows :])
        self.norm = LayerNorm(parts, "embeddings.LayerNorm", config.layer_norm_eps)
        widened = "embeddings.embeddings_project.weight" in parts
        self.projection = Dense(parts, "embeddings.embeddings_project") if widened else None
        self.blocks: list[BertBlock | IdentityBlock] = [
            IdentityBlock() if layer in config.pruned_layers
            else BertBlock(config, _part(parts, f"encoder.layer.{config.first_of_group(layer)}."), layer)
            for layer in range(config.num_hidden_layers)
        ]  # fmt: skip
        self.pooler = Dense(parts, "pooler.dense") if "pooler.dense.weight" in parts else None

    def embed(
        self, token_ids: np.ndarray, token_type_ids: np.ndarray | None = None, keep: ValueHook = identity_hook
    ) -> np.ndarray:
        """Word, segment and position vectors summed, the norm, a map to the states' width: -> (batch, seq, hidden)."""
        summed = keep("embeddings.word", self.word_embedding.forward(token_ids))
        if self.segment_table is not None:
            segments = np.zeros_like(token_ids) if token_type_ids is None else np.asarray(token_type_ids)
            if segments.shape != token_ids.shape or not ((segments >= 0) & (segments < len(self.segment_table))).all():
                raise ValueError(
                    f"token_type_ids {segments.shape}: for this input {token_ids.shape}, "
                    f"each from 0 to {len(self.segment_table) - 1}"
                )
            summed = summed + keep("embeddings.token_type", self.segment_table[segments])
        elif token_type_ids is not None:
            raise ValueError("token_type_ids were given, but this model has type_vocab_size 0: it has no segments")
        if self.positional_encoding is not None:
            places = self.positional_encoding.forward(token_ids.shape[1])
            counted = token_ids != self.config.pad_token_id
            if self.padding_place is not None and not counted.all():
                places = np.where(counted[..., None], places[counted.cumsum(1) - 1], self.padding_place)
            summed = summed + keep("embeddings.position", places)
        normed = self.norm.forward(keep("embeddings.sum", summed))
        if self.projection is not None:
            normed = self.projection.forward(keep("embeddings.normed", normed))
        return keep("embeddings.output", normed)

    def forward(
        self,
        token_ids: np.ndarray,
        *,
        token_type_ids: np.ndarray | None = None,
        attention_mask: np.ndarray | None = None,
        head_mask: np.ndarray | None = None,
        is_decoder: bool | None = None,
        hook: ValueHook = identity_hook,
    ) -> np.ndarray:
        """The contextual vector of every token, (batch, seq, hidden).

        token_ids, token_type_ids: (batch, seq) whole numbers.
        attention_mask: (batch, seq) or (batch, query, key), 1 to attend and 0 not to; None attends to everything.
        head_mask: (head,), (layer, head) or (layer, batch, head); 1 keeps a head, 0 switches it off.
        is_decoder: hide later positions from a (batch, seq) mask, or without one; None asks the configuration.
        Raises ValueError for ids that are not there, an overlong text, or a mask that does not fit.
        """
        token_ids = np.asarray(token_ids)
        if token_ids.ndim != 2 or 0 in token_ids.shape or not np.issubdtype(token_ids.dtype, np.integer):
            raise ValueError(
                f"token_ids are {token_ids.dtype} of shape {token_ids.shape}: expected whole numbers (batch, seq)"
            )
        batch, length = token_ids.shape
        x = self.embed(token_ids, token_type_ids, hook)
        mask = self.additive_mask(attention_mask, batch, length, is_decoder)
        gates = self._gates(head_mask, batch)
        for layer, block in enumerate(self.blocks):
            x = block.forward(x, mask, None if gates is None else gates[layer], _within(hook, f"layer.{layer}."))
        return x

    def pool(self, sequence_output: np.ndarray, keep: ValueHook = identity_hook) -> np.ndarray | None:
        """The first token's vector through a dense layer and an activation, (batch, hidden); None without a pooler."""
        if self.pooler is None:
            return None
        activation = ACTIVATIONS[self.config.pooler_act]
        return keep("pooler", activation(keep("pooler_dense", self.pooler.forward(sequence_output[:, 0]))))

    def additive_mask(
        self, attention_mask: np.ndarray | None, batch: int, length: int, causal: bool | None = None
    ) -> np.ndarray | None:
        """0 where a key may be attended to and -10000 where not, (batch, 1, query or 1, key); None if all may be.

        causal: None asks the configuration.
        """
        causal = self.config.is_decoder if causal is None else causal
        if attention_mask is None and not causal:
            return None
        allowed = np.ones((batch, length)) if attention_mask is None else np.asarray(attention_mask)
        if allowed.shape not in ((batch, length), (batch, length, length)):
            raise ValueError(
                f"attention_mask is {allowed.shape}: for this input it is "
                f"{(batch, length)} or {(batch, length, length)}"
            )
        allowed = allowed.astype(self.word_embedding.table.dtype)
        if allowed.ndim == 3:
            allowed = allowed[:, None]
        elif causal:
            allowed = allowed[:, None, None, :] * np.tri(length, dtype=allowed.dtype)
        else:
            allowed = allowed[:, None, None, :]
        return (1 - allowed) * allowed.dtype.type(MASKED_SCORE)

    def _gates(self, head_mask: np.ndarray | None, batch: int) -> np.ndarray | None:
        """Gates (layer, batch or 1, head, 1, 1); None leaves every head on."""
        if head_mask is None:
            return None
        layers, heads = self.config.num_hidden_layers, self.config.num_attention_heads
        gates = np.asarray(head_mask, self.word_embedding.table.dtype)
        if gates.shape == (heads,):
            gates = np.broadcast_to(gates, (layers, 1, heads))
        elif gates.shape == (layers, heads):
            gates = gates[:, None, :]
        elif gates.shape != (layers, batch, heads):
            raise ValueError(
                f"head_mask is {gates.shape}: for this input it is ({heads},), ({layers}, {heads}) "
                f"or ({layers}, {batch}, {heads})"
            )
        return gates[..., None, None]


class BertForPretraining(_Model):
    """BERT with the masked-word head, the next-sentence head and a detector, as far as their weights are there."""

    def __init__(self, config: BertConfig, weights: Weights, *, word_scale: float = 1.0) -> None:
        self.config = config
        self.bert = BertModel(config, weights, word_scale=word_scale)
        heads = _part(weights, "cls.")
        has_mlm, has_nsp = "predictions.decoder.weight" in heads, "seq_relationship.weight" in heads
        self.mlm = MaskedLMHead(config, _part(heads, "predictions.")) if has_mlm else None
        self.nsp = NSPHead(heads) if has_nsp and self.bert.pooler is not None else None
        detector = _part(weights, DETECTOR_PREFIX)
        self.detector = DetectorHead(config, detector) if detector else None

    def forward(
        self, token_ids: np.ndarray, *, hook: ValueHook = identity_hook, **model_arguments: Any
    ) -> dict[str, np.ndarray]:
        """What comes out, by name, without those that a checkpoint has no weights for.

        mlm_logits (batch, seq, vocab), nsp_logits (batch, 2), replaced_logits (batch, seq), sequence_output
        (batch, seq, hidden) and pooled_output (batch, hidden).
        model_arguments: as BertModel.forward.
        """
        sequence_output = self.bert.forward(token_ids, hook=hook, **model_arguments)
        pooled_output = self.bert.pool(sequence_output, hook)
        outputs = {
            "mlm_logits": None if self.mlm is None else self.mlm.forward(sequence_output, hook),
            "nsp_logits": None if self.nsp is None or pooled_output is None else self.nsp.forward(pooled_output, hook),
            "replaced_logits": None if self.detector is None else self.detector.forward(sequence_output, hook),
            "sequence_output": sequence_output,
            "pooled_output": pooled_output,
        }
        return {name: value for name, value in outputs.items() if value is not None}


MAX_WEIGHTS = 2**31


@validate_arguments
def create_bert_model(
    vocab_size: int = 30522,
    max_seq_length: int = 512,
    d_model: int = 768,
    num_heads: int = 12,
    d_ff: int = 3072,
    num_layers: int = 12,
    for_pretraining: bool = True,
    *,
    seed: int = 0,
) -> BertForPretraining | BertModel:
    """A new BERT with sinusoidal positions, no segments and seeded weights; the same seed gives the same model.

    for_pretraining: with both heads, BertForPretraining; else BertModel, whose `forward` gives the vectors alone.
    Raises Refused for sizes that describe no possible model, or one of more than 2**31 weights.
    """
    config = BertConfig(
        vocab_size=vocab_size,
        max_position_embeddings=max_seq_length,
        hidden_size=d_model,
        num_attention_heads=num_heads,
        intermediate_size=d_ff,
        num_hidden_layers=num_layers,
        type_vocab_size=0,
    )
    # A layer is as large as every other: of very many, no name is made for each of its weights.
    none, one = (_count(config.replace(num_hidden_layers=layers)) for layers in (0, 1))
    if (count := none + config.num_hidden_layers * (one - none)) > MAX_WEIGHTS:
        raise Refused(f"a model of these sizes has {count:,} weights: at most {MAX_WEIGHTS:,} are drawn")
    weights = _drawn(config, np.random.default_rng(require_int("seed", seed)))
    weights["bert.embeddings.position_embeddings.weight"] = PositionalEncoding.sinusoidal(max_seq_length, d_model).table
    model = BertForPretraining if for_pretraining else BertModel
    # Beside sinusoids of size 1 a word's vector would vanish, so it is scaled (Vaswani 2017, section 3.4).
    return model(config, weights, word_scale=math.sqrt(d_model))


# ---------------------------------------------------------------------------- weights


def parameter_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The published name and the shape of every weight, a tied decoder's included."""
    hidden, vocab, width = config.hidden_size, config.vocab_size, config.embedding_width
    distances = config.position_scheme.distances
    shapes: dict[str, tuple[int, ...]] = {"bert.embeddings.word_embeddings.weight": (vocab, width)}
    if config.type_vocab_size:
        shapes["bert.embeddings.token_type_embeddings.weight"] = (config.type_vocab_size, width)
    if config.position_scheme.adds_vectors:
        rows = config.max_position_embeddings + config.padding_rows
        shapes["bert.embeddings.position_embeddings.weight"] = (rows, width)
    shapes |= _norm("bert.embeddings.LayerNorm", width)
    if width != hidden:
        shapes |= _dense("bert.embeddings.embeddings_project", width, hidden)
    for layer in range(config.num_hidden_layers):
        if layer in config.pruned_layers or layer != config.first_of_group(layer):
            continue
        at, heads = f"bert.encoder.layer.{layer}", len(config.heads_of(layer)) * config.attention_head_size
        inner = config.intermediate_size - len(config.pruned_neurons.get(layer, ()))
        for name in ("query", "key", "value"):
            shapes |= _dense(f"{at}.attention.self.{name}", hidden, heads)
        if distances is not None:
            shapes[f"{at}.attention.self.{distances.table}.weight"] = distances.table_shape(
                config.max_position_embeddings, config.num_attention_heads, config.attention_head_size
            )
        shapes |= _dense(f"{at}.attention.output.dense", heads, hidden) | _norm(
            f"{at}.attention.output.LayerNorm", hidden
        )
        shapes |= _dense(f"{at}.intermediate.dense", hidden, inner)
        shapes |= _dense(f"{at}.output.dense", inner, hidden) | _norm(f"{at}.output.LayerNorm", hidden)
    shapes |= _dense("bert.pooler.dense", hidden, hidden)
    shapes |= _dense("cls.predictions.transform.dense", hidden, width)
    shapes |= _norm("cls.predictions.transform.LayerNorm", width)
    shapes |= _dense("cls.predictions.decoder", width, vocab) | _dense("cls.seq_relationship", hidden, 2)
    return shapes


def _count(config: BertConfig) -> int:
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


# What a checkpoint may lack, each as a whole.
DETECTOR_PREFIX = "discriminator_predictions."
OPTIONAL_PARTS = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.", DETECTOR_PREFIX)


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, hidden: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}


def _drawn(config: BertConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """New weights: normal with width initializer_range, biases 0, norms that do nothing, the decoder tied."""
    weights = {}
    for name, shape in parameter_shapes(config).items():
        if name.endswith(".bias"):
            weights[name] = np.zeros(shape, np.float32)
        elif "LayerNorm" in name:
            weights[name] = np.ones(shape, np.float32)
        elif name == "cls.predictions.decoder.weight":
            weights[name] = weights["bert.embeddings.word_embeddings.weight"]
        else:
            weights[name] = rng.standard_normal(shape, np.float32)
            weights[name] *= np.float32(config.initializer_range)
    return weights


def _checked(weights: Weights, config: BertConfig, dtype: np.dtype[Any]) -> dict[str, np.ndarray]:
    """The weights that this configuration needs, by today's names and in one number type; parts not whole left out."""
    if dtype not in _ERF:
        raise ValueError(f"dtype {dtype}: float32 or float64")
    named = to_current_names(weights)
    places = named.get("bert.embeddings.position_embeddings.weight")
    if places is not None and len(places) == config.max_position_embeddings + config.first_position:  # as in a file
        first = config.first_position - config.padding_rows
        named["bert.embeddings.position_embeddings.weight"] = places[first:]
    table = named.get("bert.embeddings.word_embeddings.weight")
    if config.tie_word_embeddings and table is not None:
        named["cls.predictions.decoder.weight"] = table
    if "cls.predictions.bias" in named:  # the decoder's bias has two published names
        named.setdefault("cls.predictions.decoder.bias", named["cls.predictions.bias"])
    if config.num_hidden_layers > max(len(named), 1000):  # before a name is made for each weight of each layer
        raise Refused(f"{config.num_hidden_layers:,} layers of {len(named):,} weights: it is not a whole BERT")
    shapes = parameter_shapes(config)
    distances = config.position_scheme.distances
    if distances is not None and distances.shared_by_layers:  # a file has it once
        tables = [name for name in shapes if name.endswith(f".attention.self.{distances.table}.weight")]
        stated = [named[name] for name in tables if name in named]
        named |= {name: stated[0] for name in tables if stated and name not in named}
    if any(name.startswith(DETECTOR_PREFIX) for name in named):  # which no other model has
        hidden = config.hidden_size
        shapes |= _dense(f"{DETECTOR_PREFIX}dense", hidden, hidden) | _dense(
            f"{DETECTOR_PREFIX}dense_prediction", hidden, 1
        )
    missing = [name for name in shapes if name not in named]
    if essential := [name for name in missing if not name.startswith(OPTIONAL_PARTS)]:
        raise Refused(f"{len(essential)} weights are missing, the first is {essential[0]}: it is not a whole BERT")
    wrong = next((n for n, shape in shapes.items() if n in named and named[n].shape != shape), None)
    if wrong is not None:
        raise Refused(f"{wrong} is {named[wrong].shape}: the configuration says {shapes[wrong]}")
    broken = tuple(part for part in OPTIONAL_PARTS if any(name.startswith(part) for name in missing))
    return {name: named[name].astype(dtype, copy=False) for name in shapes if not (broken and name.startswith(broken))}


def _part(weights: Weights, prefix: str) -> dict[str, np.ndarray]:
    """The weights whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _within(keep: ValueHook, prefix: str) -> ValueHook:
    return keep if keep is identity_hook else lambda name, value: keep(prefix + name, value)


# ---------------------------------------------------------------------------- pre-training


def mask_tokens(
    token_ids: np.ndarray,
    *,
    mask_id: int,
    vocab_size: int,
    special_ids: Collection[int],
    rng: np.random.Generator | int,
    rate: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> tuple[np.ndarray, np.ndarray]:
    """Hide some tokens, for a model to find again: (hidden, labels), both like token_ids (Devlin 2019, section 3.1).

    Each token is chosen with probability `rate`; special_ids, and the mask itself, never are. Of the chosen, mask_share
    become the mask, random_share any piece that is not special, and the rest stay as they are. labels: the token
    where one was chosen, -100 elsewhere.
    rng: a generator, or a seed. The array that was given is not changed.
    Raises ValueError for a share that is not one, or a vocabulary without an ordinary piece.
    """
    for name, share in (("rate", rate), ("mask_share", mask_share), ("random_share", random_share)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is {share}: a share is between 0 and 1")
    if mask_share + random_share > 1:
        raise ValueError(f"mask_share {mask_share} and random_share {random_share} are more than all")
    special = np.array(sorted({*special_ids, mask_id}))
    ordinary = np.setdiff1d(np.arange(vocab_size), special)
    if not ordinary.size:
        raise ValueError(f"all {vocab_size} pieces of the vocabulary are special: none is left to predict")
    rng = np.random.default_rng(rng)
    token_ids = np.asarray(token_ids)
    chosen = (rng.random(token_ids.shape) < rate) & ~np.isin(token_ids, special)
    labels = np.where(chosen, token_ids, IGNORED_LABEL)
    fate = rng.random(token_ids.shape)
    replacement = rng.choice(ordinary, token_ids.shape)
    hidden = np.where(chosen & (fate < mask_share), mask_id, token_ids)
    hidden = np.where(chosen & (fate >= mask_share) & (fate < mask_share + random_share), replacement, hidden)
    return hidden, labels


def masked_lm_loss(mlm_logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy over the labelled positions, in nats.

    mlm_logits: (..., vocab). labels: (...), -100 where there is none.
    Raises ValueError if the shapes do not fit, no position has a label, or a label is not in the vocabulary.
    """
    labels = np.asarray(labels)
    if labels.shape != mlm_logits.shape[:-1]:
        raise ValueError(f"labels are {labels.shape}: for logits {mlm_logits.shape} they are {mlm_logits.shape[:-1]}")
    labelled = labels != IGNORED_LABEL
    if not labelled.any():
        raise ValueError(f"no position has a label: all are {IGNORED_LABEL}, so there is no loss")
    return _cross_entropy(mlm_logits[labelled], labels[labelled])


def next_sentence_loss(nsp_logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy of the next-sentence head, in nats.

    nsp_logits: (batch, 2). labels: (batch,), 0 if B follows A and 1 if not.
    Raises ValueError if the shapes do not fit or a label is neither.
    """
    labels = np.asarray(labels)
    if nsp_logits.shape != (*labels.shape, 2) or labels.ndim != 1 or not labels.size:
        raise ValueError(f"logits {nsp_logits.shape} and labels {labels.shape}: expected (batch, 2) and (batch,)")
    return _cross_entropy(nsp_logits, labels)


def _cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """logits: (some, class). labels: (some,)."""
    if not ((labels >= 0) & (labels < logits.shape[-1])).all():
        wrong = labels[(labels < 0) | (labels >= logits.shape[-1])][0]
        raise ValueError(f"label {wrong} does not exist: there are 0 to {logits.shape[-1] - 1}")
    logits = logits.astype(np.float64)
    largest = logits.max(-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(-1))
    return float((log_sum - logits[np.arange(len(labels)), labels]).mean())

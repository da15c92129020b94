"""BERT in NumPy, short enough to read in one sitting, and a reference for tests of the PyTorch implementation.

`create_bert_model` creates a model with sinusoidal positions and random weights. `BertForPretraining.from_pretrained`
loads a checkpoint folder with learned or relative positions and segments. `forward` returns the outputs, and `walk`
returns every intermediate value by name, in the order of computation. The module does not import torch.

>>> import numpy as np
>>> from bert_core.numpy_bert import create_bert_model
>>> model = create_bert_model(
...     vocab_size=100, max_seq_length=16, d_model=32, num_heads=4, d_ff=64, num_layers=2, for_pretraining=True
... )
>>> outputs = model.forward(np.array([[2, 45, 7, 3], [2, 8, 3, 0]]))
>>> {name: value.shape for name, value in outputs.items()}
{'mlm_logits': (2, 4, 100), 'nsp_logits': (2, 2), 'sequence_output': (2, 4, 32), 'pooled_output': (2, 32)}

Names of axes: batch layer head query key seq hidden vocab. Rows are queries, columns keys.
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
from bert_core.deprecation import renamed_parameters
from bert_core.naming import renumber_layers, to_current_names
from bert_core.positions import DistanceScores, select_heads, used_rows
from bert_core.refused import Refused, require_int, validate_arguments

IGNORED_LABEL = -100  # losses ignore positions with this label
MASKED_SCORE = -10000.0  # added to the score of a masked key

Weights = Mapping[str, np.ndarray]
# A function that `forward` calls with the name and value of each intermediate result, and that returns the value.
ValueHook = Callable[[str, np.ndarray], np.ndarray]


def identity_hook(name: str, value: np.ndarray) -> np.ndarray:
    """Return the value; the default hook of every `forward`."""
    return value


# ---------------------------------------------------------------------------- elementwise functions


def _erf_series(terms: int, dtype: type, steps: int = 64, largest: int = 6) -> np.ndarray:
    """Return the Taylor coefficients of erf, (term, node), at the nodes 0, 1/steps, ..., largest.

    At `largest`, erf is 1 within rounding.
    """
    nodes = np.arange(largest * steps + 1) / steps
    series = np.empty((terms, len(nodes)))
    series[0] = [math.erf(node) for node in nodes]
    # The derivative b satisfies b' = -2xb, so each of its coefficients follows from the two previous ones.
    slope, previous_slope = 2 / math.sqrt(math.pi) * np.exp(-nodes * nodes), np.zeros_like(nodes)
    for n in range(1, terms):
        series[n] = slope / n
        slope, previous_slope = -2 * (nodes * slope + previous_slope) / n, slope
    return series.astype(dtype)


# A node is at most half a step, 1/128, away. This to the power of the number of terms is below the type's precision.
_ERF = {np.dtype(np.float32): _erf_series(4, np.float32), np.dtype(np.float64): _erf_series(7, np.float64)}


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function, exact within rounding, by a Taylor step from the nearest entry of a table.

    x: float32 or float64, of any shape.
    """
    series = _ERF[x.dtype]
    magnitude = np.fmin(np.abs(x), 6)
    node = np.rint(magnitude * 64).astype(np.intp)
    step = magnitude - node.astype(x.dtype) / 64
    value = series[-1][node]
    for coefficients in series[-2::-1]:
        value = value * step + coefficients[node]
    return np.asarray(np.copysign(value, x))


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x times the standard normal cumulative distribution at x (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    return np.asarray(0.5 * x * (1 + erf(x * math.sqrt(0.5))))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    """Return the approximation of GELU with tanh."""
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))))


def _silu(x: np.ndarray) -> np.ndarray:
    """Return x times the logistic function, by tanh because exp could overflow."""
    return np.asarray(0.5 * x * (1 + np.tanh(0.5 * x)))


def _relu(x: np.ndarray) -> np.ndarray:
    """Return the positive part of x."""
    return np.asarray(np.maximum(x, 0))


# The keys are the names in published configurations.
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": gelu, "gelu_new": _gelu_tanh, "gelu_pytorch_tanh": _gelu_tanh,
    "relu": _relu, "silu": _silu, "swish": _silu, "tanh": np.tanh,
}  # fmt: skip


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis: positive, and with sum 1."""
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


class Dense:
    """Linear map y = x W^T + b, with the weight W (out, in) as checkpoints store it."""

    def __init__(self, weights: Weights, name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Map (..., in) to (..., out)."""
        return np.asarray(x @ self.weight.T + self.bias)


class LayerNorm:
    """Layer normalization: each vector gets mean 0 and variance 1, and then a learned scale and bias.

    Source: Ba 2016 (arXiv:1607.06450).
    """

    def __init__(self, weights: Weights, name: str, eps: float) -> None:
        self.weight, self.bias, self.eps = weights[f"{name}.weight"], weights[f"{name}.bias"], eps

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Normalize vectors of shape (..., hidden)."""
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt(variance + self.eps) * self.weight + self.bias)


# ---------------------------------------------------------------------------- building blocks


class WordEmbedding:
    """Embedding of tokens.

    table: (vocab, hidden), one vector per token. scale: factor of the returned vectors.
    """

    def __init__(self, table: np.ndarray, scale: float = 1.0) -> None:
        self.table, self.scale = table, scale

    def forward(self, token_ids: np.ndarray) -> np.ndarray:
        """Return the vectors (batch, seq, hidden) of token numbers (batch, seq).

        Raises Refused if a number is outside the table.
        """
        if token_ids.size and not 0 <= token_ids.min() <= token_ids.max() < len(self.table):
            invalid = token_ids[(token_ids < 0) | (token_ids >= len(self.table))][0]
            raise Refused(f"token {invalid} does not exist: the table has 0 to {len(self.table) - 1}")
        vectors: np.ndarray = self.table[token_ids]
        return vectors if self.scale == 1 else np.asarray(vectors * self.scale)


class PositionalEncoding:
    """Position embeddings, sinusoidal or learned. table: (position, hidden)."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    @classmethod
    def sinusoidal(cls, max_seq_length: int, d_model: int, dtype: Any = np.float32) -> Self:
        """Return sinusoids, whose wavelengths range from 2 pi to 10000 times 2 pi (Vaswani 2017, section 3.5)."""
        pair = np.arange(d_model) // 2  # dimensions 2i and 2i + 1 have the same wavelength
        angle = np.arange(max_seq_length)[:, None] / 10000.0 ** (2 * pair / d_model)
        return cls(np.where(np.arange(d_model) % 2 == 0, np.sin(angle), np.cos(angle)).astype(dtype))

    def forward(self, seq_length: int) -> np.ndarray:
        """Return the first vectors, (seq, hidden). Raises Refused if there are fewer than `seq_length`."""
        if seq_length > len(self.table):
            raise Refused(f"the sequence has {seq_length} tokens: this model takes at most {len(self.table)}")
        return self.table[:seq_length]


class MultiheadAttention:
    """Multi-head scaled dot-product attention with its output projection (Vaswani 2017, section 3.2).

    Depending on the position scheme, distances add terms to the scores (`positions.DistanceScores`).

    num_heads: number of heads before pruning.
    distances: the terms of distances; None for none.
    heads: numbers before pruning of the remaining heads; None for all heads.
    max_length: maximum number of tokens, which determines the rows of some tables of distances.
    eps: of the layer norm that some tables of distances have.
    """

    def __init__(
        self,
        weights: Weights,
        num_heads: int,
        distances: DistanceScores | None = None,
        heads: Sequence[int] | None = None,
        max_length: int = 512,
        eps: float = 1e-12,
    ) -> None:
        self.query, self.key, self.value = (Dense(weights, f"self.{name}") for name in ("query", "key", "value"))
        self.output = Dense(weights, "output.dense")
        self.heads = list(range(num_heads) if heads is None else heads)
        self.num_heads = len(self.heads)
        self.head_size = len(self.query.weight) // self.num_heads if self.heads else len(self.output.bias) // num_heads
        self.distances, self.max_length, self.all_heads = distances, max_length, range(num_heads)
        self.root = math.sqrt(self.head_size * (1 if distances is None else distances.root_terms))
        if distances is not None:
            self.distance_table = weights[f"self.{distances.table}.weight"]
            self.distance_norm = None if distances.norm is None else LayerNorm(weights, f"self.{distances.norm}", eps)
            projections = {addend.projection for addend in distances.addends} - {None}
            self.projections = {name: Dense(weights, f"self.{name}") for name in projections}

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        gates: np.ndarray | None = None,
        hook: ValueHook = identity_hook,
    ) -> np.ndarray:
        """Return the attention output, (batch, seq, hidden).

        x: hidden states, (batch, seq, hidden).
        mask: added to the scores, broadcast to (batch, head, query, key).
        gates: factors of the heads, (batch or 1, head, 1, 1), with an entry for each head before pruning.
        hook: called with each intermediate value.
        """
        query = hook("query", self._split_heads(self.query.forward(x)))  # (batch, head, seq, head size)
        key = hook("key", self._split_heads(self.key.forward(x)))
        value = hook("value", self._split_heads(self.value.forward(x)))
        scores = query @ key.swapaxes(-1, -2) / self.root  # (batch, head, query, key)
        if self.distances is not None and self.heads:
            scores = scores + sum(self._distance_terms(self.distances, query, key))
        scores = hook("scores", scores)
        masked = hook("masked_scores", scores if mask is None else scores + mask)
        probabilities = hook("probabilities", softmax(masked))
        context = probabilities @ value  # (batch, head, query, head size)
        context = hook("context", context if gates is None else context * gates[:, self.heads])
        concatenated = context.swapaxes(1, 2).reshape(*x.shape[:2], self.num_heads * self.head_size)
        return hook("attention_output", self.output.forward(concatenated))

    def _split_heads(self, x: np.ndarray) -> np.ndarray:
        """Reshape (batch, seq, heads * head size) to (batch, head, seq, head size)."""
        return x.reshape(*x.shape[:2], self.num_heads, self.head_size).swapaxes(1, 2)

    def _distance_terms(self, distances: DistanceScores, query: np.ndarray, key: np.ndarray) -> list[np.ndarray]:
        """Return the terms that distances add to the scores, (batch or 1, head, query, key) each."""
        length = query.shape[2]
        if length > self.max_length:
            raise Refused(f"the sequence has {length} tokens: this model takes at most {self.max_length}")
        rows, row_of_distance = used_rows(distances, length, self.max_length)
        table = self.distance_table[rows]
        table = table if self.distance_norm is None else self.distance_norm.forward(table)  # (row, width)
        vectors = []
        for addend in distances.addends:
            if addend.factor is None:  # a number for each head
                vectors.append(select_heads(table.T[:, None], self.all_heads, self.heads))
            elif addend.projection is None:
                vectors.append(table[None, None])
            else:
                vectors.append(self._split_heads(self.projections[addend.projection].forward(table)[None]))
        place = np.arange(length)
        index = row_of_distance[place[:, None] - place + length - 1][None, None]  # (1, 1, query, key)
        terms = distances.terms(query, key, vectors, index, np.take_along_axis).values()
        return [term / self.root if distances.scaled else term for term in terms]


class FeedForward:
    """Feed-forward network, applied to each position: two dense layers with an activation between them."""

    def __init__(self, weights: Weights, activation: str | Callable[[np.ndarray], np.ndarray] = "gelu") -> None:
        self.inner, self.outer = Dense(weights, "intermediate.dense"), Dense(weights, "output.dense")
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(self, x: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """Return the output, (batch, seq, hidden), for hidden states of the same shape."""
        inner = hook("intermediate_dense", self.inner.forward(x))
        return hook("output_dense", self.outer.forward(hook("intermediate", self.activation(inner))))


class BertBlock:
    """Encoder layer: attention and feed-forward network, each followed by a residual connection and a LayerNorm."""

    def __init__(self, config: BertConfig, weights: Weights, layer: int = 0) -> None:
        self.attention = MultiheadAttention(
            _select_prefix(weights, "attention."),
            config.num_attention_heads,
            config.position_scheme.distances,
            config.heads_of(layer),
            config.max_position_embeddings,
            config.layer_norm_eps,
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
        """Return the layer output, (batch, seq, hidden). The arguments are those of MultiheadAttention.forward."""
        summed = hook("attention_sum", self.attention.forward(x, mask, gates, hook) + x)
        attention_output = hook("attention_normed", self.attention_norm.forward(summed))
        summed = hook("output_sum", self.feed_forward.forward(attention_output, hook) + attention_output)
        return hook("output", self.output_norm.forward(summed))


class IdentityBlock:
    """A pruned layer, which returns its input."""

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        gates: np.ndarray | None = None,
        hook: ValueHook = identity_hook,
    ) -> np.ndarray:
        """Return x. The arguments are those of BertBlock.forward."""
        return hook("output", x)


class MaskedLMHead:
    """MLM head: a dense layer, activation and LayerNorm, followed by a decoder to the vocabulary."""

    def __init__(self, config: BertConfig, weights: Weights) -> None:
        self.dense = Dense(weights, "transform.dense")
        self.activation = ACTIVATIONS[config.mlm_act] if isinstance(config.mlm_act, str) else config.mlm_act
        self.norm = LayerNorm(weights, "transform.LayerNorm", config.layer_norm_eps)
        self.decoder = Dense(weights, "decoder")

    def forward(self, sequence_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """Return the logits (..., vocab) for hidden states (..., hidden)."""
        dense = hook("mlm.dense", self.dense.forward(sequence_output))
        transformed = hook("mlm.transform", self.norm.forward(hook("mlm.activated", self.activation(dense))))
        return hook("mlm_logits", self.decoder.forward(transformed))


class NSPHead:
    """NSP head: two logits from the pooled first token, of which index 0 means that B follows A."""

    def __init__(self, weights: Weights) -> None:
        self.dense = Dense(weights, "seq_relationship")

    def forward(self, pooled_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """Return the logits (batch, 2) for pooled outputs (batch, hidden)."""
        return hook("nsp_logits", self.dense.forward(pooled_output))


class DetectorHead:
    """Head of a discriminator: a logit for each token, positive if the token was probably replaced.

    In DeBERTa-v3, it reads the sum of the hidden states of a token and of the first token, after a LayerNorm.
    """

    def __init__(self, config: BertConfig, weights: Weights) -> None:
        adds_first = config.family.detector_adds_first_token
        self.norm = LayerNorm(weights, "LayerNorm", config.layer_norm_eps) if adds_first else None
        self.dense, self.last = Dense(weights, "dense"), Dense(weights, "dense_prediction")
        self.activation = ACTIVATIONS[config.hidden_act] if isinstance(config.hidden_act, str) else config.hidden_act

    def forward(self, sequence_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray:
        """Return the logits (batch, seq) for hidden states (batch, seq, hidden)."""
        states = sequence_output
        if self.norm is not None:
            states = hook("detector.normed", self.norm.forward(states + states[:, :1]))
        activated = self.activation(hook("detector.dense", self.dense.forward(states)))
        return hook("replaced_logits", self.last.forward(hook("detector.activated", activated))[..., 0])


# ---------------------------------------------------------------------------- models


class _Model(ABC):
    """Base class of both models, with constructors from weights and the walk."""

    forward: Callable[..., Any]

    @abstractmethod
    def __init__(self, config: BertConfig, weights: Weights, *, word_scale: float = 1.0) -> None:
        """Create a model. weights: by their current names, already checked. word_scale: factor of word embeddings."""

    @classmethod
    def from_weights(cls, weights: Weights, config: BertConfig, dtype: Any = np.float32) -> Self:
        """Create a model from named arrays, such as a state dict, under current or older names.

        dtype: float32 or float64, the type of all computations. Arrays of this type are not copied.
        A head or pooler with a missing weight is omitted, and unknown weights are ignored.
        Raises Refused if a weight of the encoder is missing, or a shape contradicts the configuration, and ValueError
        for another dtype.
        """
        return cls(config, _check_weights(weights, config, np.dtype(dtype)))

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: Any = np.float32) -> Self:
        """Load a model from a checkpoint folder with `config.json` and `model.safetensors`.

        dtype: float32 or float64, the type of all computations.
        Raises Refused if a file is missing or cannot be read, and as `from_weights` does.
        """
        folder = Path(folder)
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise Refused(f"{folder} has no {name}: the NumPy model reads config.json and model.safetensors")
        try:
            weights = load_file(folder / "model.safetensors")
            for array in weights.values():  # with the package ml_dtypes, NumPy has types in which it hardly computes
                if array.dtype.kind == "V":
                    raise TypeError(f"{array.dtype} is no type of NumPy itself")
        except (SafetensorError, TypeError, AttributeError, OSError) as error:  # also for bfloat16, which NumPy lacks
            raise Refused(f"{folder / 'model.safetensors'} cannot be read as NumPy arrays: {error}") from error
        config = BertConfig.from_json(folder / "config.json")
        weights = renumber_layers(to_current_names(weights), lambda group: group * config.layers_per_group)
        return cls.from_weights(weights, config, dtype)

    def walk(self, token_ids: np.ndarray, **model_arguments: Any) -> dict[str, np.ndarray]:
        """Run `forward`, and return every intermediate value by name in the order of computation.

        model_arguments: those of `forward`.
        embeddings.word, .token_type, .position, .sum: (batch, seq, embedding), .position without the batch;
            .token_type and .position only if the model has them. .normed: the sum after the LayerNorm, if a linear map
            follows. .output: (batch, seq, hidden), the input of the first layer.
        layer.N.query, .key, .value, .context: (batch, head, seq, head size). The context includes the gates. Here and
            below, the heads are those that are not pruned.
        layer.N.scores, .masked_scores, .probabilities: (batch, head, query, key). The scores are divided by the root of
            the head size (times the number of terms of some position schemes), and include the terms for distances.
        layer.N.attention_output, .attention_sum, .attention_normed: (batch, seq, hidden), after the projection, the
            residual connection and the LayerNorm. .output_dense, .output_sum, .output: the same for the feed-forward
            network.
        layer.N.intermediate_dense, .intermediate: (batch, seq, intermediate), before and after the activation.
        pooler_dense, pooler: (batch, hidden). mlm.dense, .activated, .transform: (batch, seq, embedding).
        mlm_logits: (batch, seq, vocab). nsp_logits: (batch, 2).
        detector.dense, .activated: (batch, seq, hidden), and .normed before them if the head has a LayerNorm.
            replaced_logits: (batch, seq).
        """
        values: dict[str, np.ndarray] = {}

        def store(name: str, value: np.ndarray) -> np.ndarray:
            values[name] = value
            return value

        self.forward(token_ids, hook=store, **model_arguments)
        return values


class BertModel(_Model):
    """The encoder: embeddings, layers and, if its weights exist, the pooler."""

    def __init__(self, config: BertConfig, weights: Weights, *, word_scale: float = 1.0) -> None:
        self.config = config
        parts = _select_prefix(weights, "bert.")
        self.word_embedding = WordEmbedding(parts["embeddings.word_embeddings.weight"], word_scale)
        self.segment_table = parts.get("embeddings.token_type_embeddings.weight")
        positions = parts.get("embeddings.position_embeddings.weight")
        # If position numbers start after the padding token's number, the first row is that of padding tokens.
        self.padding_position = None if positions is None or not config.padding_rows else positions[0]
        self.positional_encoding = None if positions is None else PositionalEncoding(positions[config.padding_rows :])
        self.norm = LayerNorm(parts, "embeddings.LayerNorm", config.layer_norm_eps)
        has_projection = "embeddings.embeddings_project.weight" in parts
        self.projection = Dense(parts, "embeddings.embeddings_project") if has_projection else None
        self.blocks: list[BertBlock | IdentityBlock] = [
            IdentityBlock() if layer in config.pruned_layers
            else BertBlock(config, _select_prefix(parts, f"encoder.layer.{config.first_of_group(layer)}."), layer)
            for layer in range(config.num_hidden_layers)
        ]  # fmt: skip
        self.pooler = Dense(parts, "pooler.dense") if "pooler.dense.weight" in parts else None

    def embed(
        self, token_ids: np.ndarray, token_type_ids: np.ndarray | None = None, hook: ValueHook = identity_hook
    ) -> np.ndarray:
        """Return the embeddings, (batch, seq, hidden).

        They are the sum of word, segment and position vectors after a LayerNorm and, if the tables are narrower than
        the hidden states, a linear map. token_ids, token_type_ids: (batch, seq).
        Raises Refused or ValueError for invalid numbers.
        """
        summed = hook("embeddings.word", self.word_embedding.forward(token_ids))
        if self.segment_table is not None:
            segments = np.zeros_like(token_ids) if token_type_ids is None else np.asarray(token_type_ids)
            if segments.shape != token_ids.shape or not ((segments >= 0) & (segments < len(self.segment_table))).all():
                raise ValueError(
                    f"token_type_ids {segments.shape}: for this input {token_ids.shape}, "
                    f"each from 0 to {len(self.segment_table) - 1}"
                )
            summed = summed + hook("embeddings.token_type", self.segment_table[segments])
        elif token_type_ids is not None:
            raise ValueError("token_type_ids were given, but this model has type_vocab_size 0: it has no segments")
        if self.positional_encoding is not None:
            positions = self.positional_encoding.forward(token_ids.shape[1])
            is_token = token_ids != self.config.pad_token_id
            if self.padding_position is not None and not is_token.all():
                positions = np.where(is_token[..., None], positions[is_token.cumsum(1) - 1], self.padding_position)
            summed = summed + hook("embeddings.position", positions)
        normed = self.norm.forward(hook("embeddings.sum", summed))
        if self.projection is not None:
            normed = self.projection.forward(hook("embeddings.normed", normed))
        return hook("embeddings.output", normed)

    @renamed_parameters(keep="hook")
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
        """Return the last hidden state of every token, (batch, seq, hidden).

        token_ids, token_type_ids: (batch, seq) integers.
        attention_mask: (batch, seq) or (batch, query, key), 1 for keys to attend to and 0 for others; None for all
            keys.
        head_mask: (head,), (layer, head) or (layer, batch, head); 1 keeps a head, 0 ablates it.
        is_decoder: whether to mask later positions, unless the mask has queries; None for the configuration's value.
        hook: called with each intermediate value.
        Raises Refused or ValueError for numbers outside a table, a sequence that is too long, or a mask whose shape
        does not fit.
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
            x = block.forward(x, mask, None if gates is None else gates[layer], _with_prefix(hook, f"layer.{layer}."))
        return x

    def pool(self, sequence_output: np.ndarray, hook: ValueHook = identity_hook) -> np.ndarray | None:
        """Return the pooled first token, (batch, hidden), or None if the model has no pooler.

        sequence_output: last hidden states, (batch, seq, hidden).
        """
        if self.pooler is None:
            return None
        activation = ACTIVATIONS[self.config.pooler_act]
        return hook("pooler", activation(hook("pooler_dense", self.pooler.forward(sequence_output[:, 0]))))

    def additive_mask(
        self, attention_mask: np.ndarray | None, batch: int, length: int, causal: bool | None = None
    ) -> np.ndarray | None:
        """Return the mask to add to the scores: 0 for keys to attend to and -10000 for others.

        attention_mask: (batch, seq) or (batch, query, key), 1 for keys to attend to; None for all keys.
        causal: whether to mask later positions, unless the mask has queries; None for the configuration's value.
        Returns (batch, 1, query or 1, key), or None if no key is masked.
        Raises ValueError if the mask has another shape.
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
        """Return a head mask as gates, (layer, batch or 1, head, 1, 1), or None if there is none."""
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
    """BERT with an MLM head, an NSP head and a head for replaced tokens, each if its weights exist."""

    def __init__(self, config: BertConfig, weights: Weights, *, word_scale: float = 1.0) -> None:
        self.config = config
        self.bert = BertModel(config, weights, word_scale=word_scale)
        heads = _select_prefix(weights, "cls.")
        has_mlm, has_nsp = "predictions.decoder.weight" in heads, "seq_relationship.weight" in heads
        self.mlm = MaskedLMHead(config, _select_prefix(heads, "predictions.")) if has_mlm else None
        self.nsp = NSPHead(heads) if has_nsp and self.bert.pooler is not None else None
        detector = _select_prefix(weights, DETECTOR_PREFIX)
        self.detector = DetectorHead(config, detector) if detector else None

    @renamed_parameters(keep="hook")
    def forward(
        self, token_ids: np.ndarray, *, hook: ValueHook = identity_hook, **model_arguments: Any
    ) -> dict[str, np.ndarray]:
        """Return the outputs by name, without those of heads that the model lacks.

        model_arguments: those of BertModel.forward.
        Returns mlm_logits (batch, seq, vocab), nsp_logits (batch, 2), replaced_logits (batch, seq), sequence_output
        (batch, seq, hidden) and pooled_output (batch, hidden).
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
    """Create a BERT with sinusoidal positions, no segments and random weights.

    vocab_size, max_seq_length: number of tokens in the vocabulary, and maximum number of tokens in a sequence.
    d_model, num_heads, d_ff, num_layers: width, heads, width of the feed-forward network, and layers of the encoder.
    for_pretraining: whether to return a BertForPretraining with both heads. Otherwise a BertModel is returned, whose
        `forward` returns only the last hidden states.
    seed: random seed of the weights.
    Raises Refused for sizes that describe no possible model, or a model with more than 2**31 weights.
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
    # All layers have the same size. Counting one avoids listing the weights of a huge number of layers.
    base_count, one_layer_count = (_count_weights(config.replace(num_hidden_layers=layers)) for layers in (0, 1))
    if (count := base_count + config.num_hidden_layers * (one_layer_count - base_count)) > MAX_WEIGHTS:
        raise Refused(f"a model of these sizes has {count:,} weights: it must have at most {MAX_WEIGHTS:,}")
    weights = _random_weights(config, np.random.default_rng(require_int("seed", seed)))
    weights["bert.embeddings.position_embeddings.weight"] = PositionalEncoding.sinusoidal(max_seq_length, d_model).table
    model = BertForPretraining if for_pretraining else BertModel
    # Word vectors are scaled because they are small compared with the sinusoids (Vaswani 2017, section 3.4).
    return model(config, weights, word_scale=math.sqrt(d_model))


# ---------------------------------------------------------------------------- weights


def is_supported(config: BertConfig) -> bool:
    """Return whether the NumPy implementation has the layers of a configuration: those with norms after each part."""
    return not config.layer_design.pre_norm


def parameter_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight, including a tied decoder's.

    Raises Refused for a pre-norm model.
    """
    if not is_supported(config):
        raise Refused(
            "the NumPy implementation has only layers with a layer norm after each part, and this model has its layer "
            "norms before them: use the PyTorch implementation"
        )
    hidden, vocab, width = config.hidden_size, config.vocab_size, config.embedding_width
    distances = config.position_scheme.distances
    shapes: dict[str, tuple[int, ...]] = {"bert.embeddings.word_embeddings.weight": (vocab, width)}
    if config.type_vocab_size:
        shapes["bert.embeddings.token_type_embeddings.weight"] = (config.type_vocab_size, width)
    if config.position_scheme.adds_vectors:
        rows = config.max_position_embeddings + config.padding_rows
        shapes["bert.embeddings.position_embeddings.weight"] = (rows, width)
    shapes |= _norm_shapes("bert.embeddings.LayerNorm", width)
    if width != hidden:
        shapes |= _dense_shapes("bert.embeddings.embeddings_project", width, hidden)
    for layer in range(config.num_hidden_layers):
        if layer in config.pruned_layers or layer != config.first_of_group(layer):
            continue
        prefix, heads = f"bert.encoder.layer.{layer}", len(config.heads_of(layer)) * config.attention_head_size
        inner = config.intermediate_size - len(config.pruned_neurons.get(layer, ()))
        for name in ("query", "key", "value"):
            shapes |= _dense_shapes(f"{prefix}.attention.self.{name}", hidden, heads)
        if distances is not None:
            table_shape = distances.table_shape(
                config.max_position_embeddings, config.num_attention_heads, config.attention_head_size
            )
            shapes[f"{prefix}.attention.self.{distances.table}.weight"] = table_shape
            if distances.norm is not None:
                shapes |= _norm_shapes(f"{prefix}.attention.self.{distances.norm}", table_shape[1])
            for name in distances.own_projections:
                shapes |= _dense_shapes(f"{prefix}.attention.self.{name}", table_shape[1], heads)
        shapes |= _dense_shapes(f"{prefix}.attention.output.dense", heads, hidden) | _norm_shapes(
            f"{prefix}.attention.output.LayerNorm", hidden
        )
        shapes |= _dense_shapes(f"{prefix}.intermediate.dense", hidden, inner)
        shapes |= _dense_shapes(f"{prefix}.output.dense", inner, hidden) | _norm_shapes(
            f"{prefix}.output.LayerNorm", hidden
        )
    shapes |= _dense_shapes("bert.pooler.dense", hidden, hidden)
    shapes |= _dense_shapes("cls.predictions.transform.dense", hidden, width)
    shapes |= _norm_shapes("cls.predictions.transform.LayerNorm", width)
    shapes |= _dense_shapes("cls.predictions.decoder", width, vocab) | _dense_shapes("cls.seq_relationship", hidden, 2)
    return shapes


def _count_weights(config: BertConfig) -> int:
    """Return the number of weights of a model."""
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


# Weights that a checkpoint may lack start with one of these prefixes. A part is used only if it is complete.
DETECTOR_PREFIX = "discriminator_predictions."
OPTIONAL_PARTS = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.", DETECTOR_PREFIX)


def _dense_shapes(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights of a dense layer."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm_shapes(name: str, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights of a LayerNorm."""
    return {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}


def _random_weights(config: BertConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random normal weights with standard deviation initializer_range, and a tied decoder.

    Biases are 0, and LayerNorms have scale 1.
    """
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


def _check_weights(weights: Weights, config: BertConfig, dtype: np.dtype[Any]) -> dict[str, np.ndarray]:
    """Return the weights that a configuration needs by current names and in one dtype, without incomplete parts.

    Raises Refused if a weight of the encoder is missing or a shape is wrong, and ValueError for an unsupported dtype.
    """
    if dtype not in _ERF:
        raise ValueError(f"dtype is {dtype}: it must be float32 or float64")
    renamed = to_current_names(weights)
    position_table = renamed.get("bert.embeddings.position_embeddings.weight")
    file_rows = config.max_position_embeddings + config.first_position
    if position_table is not None and len(position_table) == file_rows:  # a file has unused rows at the start
        first_row = config.first_position - config.padding_rows
        renamed["bert.embeddings.position_embeddings.weight"] = position_table[first_row:]
    word_table = renamed.get("bert.embeddings.word_embeddings.weight")
    if config.tie_word_embeddings and word_table is not None:
        renamed["cls.predictions.decoder.weight"] = word_table
    if "cls.predictions.bias" in renamed:  # published files have two names for the decoder's bias
        renamed.setdefault("cls.predictions.decoder.bias", renamed["cls.predictions.bias"])
    if config.num_hidden_layers > max(len(renamed), 1000):  # checked before the weights of all layers are listed
        raise Refused(
            f"the configuration has {config.num_hidden_layers:,} layers, and the checkpoint {len(renamed):,} weights: "
            "it is not a complete BERT"
        )
    shapes = parameter_shapes(config)
    distances = config.position_scheme.distances
    if distances is not None and distances.shared_by_layers:  # a file has the table and its norm once
        for ending in (f"{module}.{part}" for module in distances.shared_modules for part in ("weight", "bias")):
            names = [name for name in shapes if name.endswith(f".attention.self.{ending}")]
            shared = [renamed[name] for name in names if name in renamed]
            renamed |= {name: shared[0] for name in names if shared and name not in renamed}
    if any(name.startswith(DETECTOR_PREFIX) for name in renamed):  # optional, so parameter_shapes does not have it
        hidden = config.hidden_size
        if config.family.detector_adds_first_token:
            shapes |= _norm_shapes(f"{DETECTOR_PREFIX}LayerNorm", hidden)
        shapes |= _dense_shapes(f"{DETECTOR_PREFIX}dense", hidden, hidden)
        shapes |= _dense_shapes(f"{DETECTOR_PREFIX}dense_prediction", hidden, 1)
    missing = [name for name in shapes if name not in renamed]
    if essential := [name for name in missing if not name.startswith(OPTIONAL_PARTS)]:
        raise Refused(f"{len(essential)} weights are missing, the first is {essential[0]}: it is not a complete BERT")
    mismatch = next((n for n, shape in shapes.items() if n in renamed and renamed[n].shape != shape), None)
    if mismatch is not None:
        raise Refused(f"{mismatch} is {renamed[mismatch].shape}: the configuration requires {shapes[mismatch]}")
    incomplete = tuple(part for part in OPTIONAL_PARTS if any(name.startswith(part) for name in missing))
    return {
        name: renamed[name].astype(dtype, copy=False)
        for name in shapes
        if not (incomplete and name.startswith(incomplete))
    }


def _select_prefix(weights: Weights, prefix: str) -> dict[str, np.ndarray]:
    """Return the weights whose names start with a prefix, under their names without it."""
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _with_prefix(hook: ValueHook, prefix: str) -> ValueHook:
    """Return a hook that calls the given one with a prefix before each name."""
    return hook if hook is identity_hook else lambda name, value: hook(prefix + name, value)


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
    """Mask random tokens for MLM training (Devlin 2019, section 3.1).

    token_ids: integers of any shape; the array is not modified.
    mask_id, vocab_size: number of the mask token, and size of the vocabulary.
    special_ids: numbers of special tokens, which are never selected; nor is the mask token.
    rng: random generator, or a seed.
    rate: probability of selecting a token.
    mask_share, random_share: shares of the selected tokens that become the mask token, and a random token that is not
        special. The remaining selected tokens are unchanged.
    Returns (masked, labels), each in the shape of token_ids. The label of a selected token is its original number, and
    that of other tokens is -100.
    Raises ValueError for a share outside 0 to 1, shares with a sum above 1, or a vocabulary of special tokens only.
    """
    for name, share in (("rate", rate), ("mask_share", mask_share), ("random_share", random_share)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} is {share}: it must be between 0 and 1")
    if mask_share + random_share > 1:
        raise ValueError(
            f"mask_share {mask_share} and random_share {random_share} have a sum above 1: it must be at most 1"
        )
    special = np.array(sorted({*special_ids, mask_id}))
    ordinary = np.setdiff1d(np.arange(vocab_size), special)
    if not ordinary.size:
        raise ValueError(f"all {vocab_size} tokens of the vocabulary are special: at least one must be ordinary")
    rng = np.random.default_rng(rng)
    token_ids = np.asarray(token_ids)
    selected = (rng.random(token_ids.shape) < rate) & ~np.isin(token_ids, special)
    labels = np.where(selected, token_ids, IGNORED_LABEL)
    draw = rng.random(token_ids.shape)
    replacement = rng.choice(ordinary, token_ids.shape)
    masked = np.where(selected & (draw < mask_share), mask_id, token_ids)
    masked = np.where(selected & (draw >= mask_share) & (draw < mask_share + random_share), replacement, masked)
    return masked, labels


def masked_lm_loss(mlm_logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross-entropy at the labelled positions, in nats.

    mlm_logits: (..., vocab). labels: (...), -100 for positions without a label.
    Raises ValueError if the shapes do not match, no position has a label, or a label is not in the vocabulary.
    """
    labels = np.asarray(labels)
    if labels.shape != mlm_logits.shape[:-1]:
        raise ValueError(
            f"labels are {labels.shape}: for logits {mlm_logits.shape} they must be {mlm_logits.shape[:-1]}"
        )
    labelled = labels != IGNORED_LABEL
    if not labelled.any():
        raise ValueError(f"no position has a label: all are {IGNORED_LABEL}, and at least one must be a token")
    return _cross_entropy(mlm_logits[labelled], labels[labelled])


def next_sentence_loss(nsp_logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross-entropy of the NSP head, in nats.

    nsp_logits: (batch, 2). labels: (batch,), 0 if B follows A and 1 if not.
    Raises ValueError if the shapes do not match, or a label is neither 0 nor 1.
    """
    labels = np.asarray(labels)
    if nsp_logits.shape != (*labels.shape, 2) or labels.ndim != 1 or not labels.size:
        raise ValueError(f"logits {nsp_logits.shape} and labels {labels.shape}: expected (batch, 2) and (batch,)")
    return _cross_entropy(nsp_logits, labels)


def _cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean cross-entropy in nats. logits: (position, class). labels: (position,)."""
    if not ((labels >= 0) & (labels < logits.shape[-1])).all():
        invalid = labels[(labels < 0) | (labels >= logits.shape[-1])][0]
        raise ValueError(f"label {invalid} does not exist: there are 0 to {logits.shape[-1] - 1}")
    logits = logits.astype(np.float64)
    maximum = logits.max(-1)
    log_sum = maximum + np.log(np.exp(logits - maximum[:, None]).sum(-1))
    return float((log_sum - logits[np.arange(len(labels)), labels]).mean())

"""Direct logit attribution and direct contributions to attention scores, which pre-norm models allow exactly.

The residual stream of a pre-norm model at a position is a sum: r = embedding + heads + feed-forward networks + biases.
A layer norm is LN(r) = w (r - mean(r)) / s(r) + b, where s(r) is a standard deviation. With s at its value for the
text, LN is linear but for its bias, so each component c of r contributes w (c - mean(c)) / s(r).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.attention import BertAttention, BertSelfAttention
from bert_core.config import check_head_exists, head_pairs
from bert_core.loading import LoadedModel
from bert_core.records import DirectLogit, DirectScore, Target
from bert_core.refused import Refused, short_repr, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.decomposition import activation_factor
from bert_core.run.inputs import check_position, check_text
from bert_core.run.memory import check_memory, direct_bytes
from bert_core.run.stack import LayerTrace, encoder_layers, trace_text
from bert_core.run.targets import check_target, target_rows
from bert_core.task_heads import LinearPath, head_of
from bert_core.tokenizer import Encoding

SIDES = ("query", "key")
TRACE_PARTS = ("context", "feed_forward_update")
# Names of the last components, which are biases: of all attention output projections, of the norm, and after it.
BIASES_OF_LOGIT = ("attention", "the final norm", "the output head")
BIASES_OF_SCORE = ("attention", "the norm", "the projection")
NORM, LAST = -2, -1  # indices of the components with the biases of the norm and of what follows


@validate_arguments
@torch.no_grad()
def direct_logit(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> DirectLogit:
    """Compute the direct contribution of the embedding and of each head and feed-forward network to a logit.

    target: of a word, its logit; of two words, the difference of their logits; of several, the sum, or for "loss" the
        mean. head_mask: as for `capture`.
    The contributions sum to the logit; `gap` is the rounding error. Up to the final layer norm this is exact: its input
    is the sum of the components. The standard deviation of the norm is held at its value for this text, so the
    contributions are linear in the components (Elhage 2021, `apply_ln_to_stack` of TransformerLens). Between this norm
    and the logits, the MLM head of ModernBERT has a dense layer, an activation function f and a second norm. There f is
    held at its factor f(x) / x for this text, as in DecompX, and the second norm at its standard deviation. A head's
    contribution is thus not the change of the logit without it, since factor and deviations would change too.
    Effects through later layers are part of the contributions of those layers.
    Raises Refused for a post-norm model, for a target without a trained head or a linear path to its logit, and if the
    components of all rows of the target do not fit into the memory.
    Source: Elhage 2021, A Mathematical Framework for Transformer Circuits; Modarressi 2023 (arXiv:2306.02873) for f.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")  # a post-norm model
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door", against="window")
    >>> try:
    ...     direct = bert_core.direct_logit(loaded, encoding, target)
    ...     print(max(direct.rows(), key=lambda row: row.contribution).name)
    ... except bert_core.Refused as error:
    ...     print(str(error).partition(",")[0])
    this model has a layer norm after each part of a layer
    """
    require_pre_norm(loaded)
    check_target(loaded, encoding, target)
    rows = target_rows(loaded, encoding, target)
    paths = _linear_paths(loaded, target, len(rows))
    check_memory(
        loaded, "direct logit attribution", len(encoding), direct_bytes(loaded, len(rows)), "integrated gradients"
    )
    components = residual_components(loaded, encoding, rows, loaded.config.num_hidden_layers, head_mask)
    normed = _through_norm(loaded.model.bert.encoder.final_norm, components.vectors, NORM)
    states = components.states[list(rows)]
    if paths[0].reads_mean:
        normed, states, paths = normed.mean(1, keepdim=True), states.mean(0, keepdim=True), paths[:1]
    parts, logit = torch.zeros(len(normed), dtype=torch.float64), 0.0
    for row, path in enumerate(paths):
        parts += _through_head(path, normed[:, row])
        logit += _logit(path, states[row])
    count = len(rows) if target.target_kind.mean else 1
    return DirectLogit(
        encoding=encoding,
        target=target,
        value=logit / count,
        **components.by_name(loaded, parts / count, BIASES_OF_LOGIT),
    )


@validate_arguments
@torch.no_grad()
def direct_score(
    loaded: LoadedModel,
    encoding: Encoding,
    receiver: tuple[int, int],
    query: int,
    key: int,
    *,
    side: str = "key",
    head_mask: np.ndarray | None = None,
) -> DirectScore:
    """Compute the direct contribution of each component in earlier layers to one attention score of a head.

    receiver: (layer, head). query, key: positions of the score, before the softmax.
    side: "key" splits the key of the score into the contributions of the components, with the complete query; "query"
        splits the query. head_mask: as for `capture`.
    The score is the product of both, so each side sums to the score; the two sides do not add up. The standard
    deviation of the layer norm before attention is held at its value for this text. What a component adds equally
    to the scores of all keys of a query changes no attention probability.
    Raises Refused for a post-norm model, for a head that does not exist or was pruned, and for a key outside the window
    of a local layer.
    Source: Elhage 2021, A Mathematical Framework for Transformer Circuits.
    """
    layer, head = _check_receiver(loaded, check_text(loaded, encoding), receiver, side)
    query, key = check_position(encoding, query), check_position(encoding, key)
    attention = _attention(loaded, layer)
    window = attention.self.window
    if window is not None and abs(query - key) > window:
        raise Refused(
            f"key {key} is outside the window of query {query}: layer {layer} is local, and its queries attend to keys "
            f"at a distance of at most {window}"
        )
    row = query if side == "query" else key
    components = residual_components(loaded, encoding, [row], layer, head_mask)
    queries, keys = _queries_and_keys(attention, head, components.states)
    query_vector, key_vector = (vectors.cpu().double() for vectors in (queries[query], keys[key]))
    normed = _through_norm(attention.input_norm, components.vectors, NORM)
    vectors = _project(attention.self, side, head, normed, [row])[:, 0]
    scale = attention.self.score_scale
    return DirectScore(
        encoding=encoding,
        receiver=(layer, head),
        query=query,
        key=key,
        side=side,
        value=float(query_vector @ key_vector) * scale,
        **components.by_name(
            loaded, vectors @ (key_vector if side == "query" else query_vector) * scale, BIASES_OF_SCORE
        ),
    )


@validate_arguments
@torch.no_grad()
def direct_score_map(
    loaded: LoadedModel,
    encoding: Encoding,
    sender: tuple[int, int],
    receiver: tuple[int, int],
    *,
    side: str = "key",
    head_mask: np.ndarray | None = None,
) -> np.ndarray:
    """Compute the direct contribution of one head to all attention scores of a head in a later layer.

    sender, receiver: (layer, head). side, head_mask: as for `direct_score`, which has all components of one score.
    Returns (query, key), float32; NaN outside the window of a local layer.
    Raises Refused as `direct_score`, and if the sender is not in an earlier layer.
    """
    layer, head = _check_receiver(loaded, check_text(loaded, encoding), receiver, side)
    ((sender_layer, sender_head),) = head_pairs([sender])
    check_head_exists(loaded.config, sender_layer, sender_head)
    if sender_layer >= layer:
        raise Refused(f"the sender is in layer {sender_layer}: it must be in a layer before {layer}")
    vectors = None
    for number, traced in enumerate(islice(trace_text(loaded, encoding, head_mask, keep=TRACE_PARTS), layer)):
        states = traced.output_states
        if number == sender_layer:
            index = traced.layer.attention.self.heads.index(sender_head)
            vectors = _head_vectors(traced, range(len(encoding)), slice(index, index + 1))[0]
    assert vectors is not None  # the sender is in one of these layers
    attention = _attention(loaded, layer)
    queries, keys = _queries_and_keys(attention, head, states)
    normed = _scaled(attention.input_norm, vectors, states)
    projected = _project(attention.self, side, head, normed[None], range(len(encoding)))[0]
    scores = (projected @ keys.T if side == "query" else queries @ projected.T) * attention.self.score_scale
    far_keys = attention.self.outside_window(len(encoding), len(encoding))
    return as_array(scores if far_keys is None else scores.masked_fill(far_keys[0, 0], torch.nan))


def require_pre_norm(loaded: LoadedModel) -> None:
    """Raise Refused for a post-norm model."""
    if not loaded.config.layer_design.pre_norm:
        raise Refused(
            "this model has a layer norm after each part of a layer, which rescales all that was added before: direct "
            "contributions need a model with layer norms before the parts, such as ModernBERT; use path patching for "
            "the direct effect of a head"
        )


# ---------------------------------------------------------------------------- components


class Components(NamedTuple):
    """The components of the residual stream before a layer, or after the last one.

    vectors: (component, row, hidden) float64 on the CPU: the embedding, the heads by layer, the feed-forward networks,
        and the biases of attention, of the norm and of what follows, of which the last two are 0.
    states: (seq, hidden), input of the layer, or output of the last one, which is normalised.
    layers: number of layers.
    """

    vectors: Tensor
    states: Tensor
    layers: int

    def by_name(self, loaded: LoadedModel, parts: Tensor, biases: Sequence[str]) -> dict[str, Any]:
        """Return contributions (component,) as fields of a record. biases: names of the last ones."""
        values, heads = parts.float().numpy(), _heads_before(loaded, self.layers)
        by_head = np.full((self.layers, loaded.config.num_attention_heads), np.nan, np.float32)
        for place, value in zip(heads, values[1:], strict=False):
            by_head[place] = value
        return {
            "embedding": float(values[0]),
            "heads": by_head,
            "feed_forward": values[1 + len(heads) : -len(biases)].copy(),
            "biases": dict(zip(biases, map(float, values[-len(biases) :]), strict=True)),
        }


def residual_components(
    loaded: LoadedModel, encoding: Encoding, rows: Sequence[int], layers: int, head_mask: np.ndarray | None = None
) -> Components:
    """Compute the components of the residual stream at some positions, after a number of layers."""
    vectors: list[Tensor] = []
    networks: list[Tensor] = []
    bias: Tensor | float = 0.0
    # With one more layer, since its input is needed, or that of the first layer.
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask, keep=TRACE_PARTS)):
        if number == 0:
            vectors.append(traced.input_states[list(rows)][None])
        if number == layers:
            states = traced.input_states
            break
        states = traced.output_states
        vectors.append(_head_vectors(traced, rows))
        networks.append(traced.feed_forward_update[list(rows)][None])
        if (output_bias := traced.layer.attention.output.dense.bias) is not None:
            bias = bias + output_bias
    biases = vectors[0].new_zeros(3, len(rows), vectors[0].shape[-1])
    biases[0] += bias
    return Components(torch.cat([*vectors, *networks, biases]).cpu().double(), states, layers)


def _head_vectors(traced: LayerTrace, rows: Sequence[int], heads: slice = slice(None)) -> Tensor:
    """Return what each head of a layer, or of a part of its heads, adds to the residual stream, (head, row, hidden)."""
    weight = traced.layer.attention.output.dense.weight
    count, _, size = traced.context.shape
    by_head = weight.view(len(weight), count, size)  # (hidden, head, head size)
    return torch.einsum("hrd,ohd->hro", traced.context[heads][:, list(rows)], by_head[:, heads])


def _heads_before(loaded: LoadedModel, layers: int) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(layers) for head in loaded.config.heads_of(layer)]


# ---------------------------------------------------------------------------- norms and heads


def _through_norm(norm: nn.Module, vectors: Tensor, bias_index: int) -> Tensor:
    """Propagate components (component, row, hidden) through a layer norm of their sum, or an identity."""
    scaled = _scaled(norm, vectors, vectors.sum(0))
    return _with_bias(scaled, getattr(norm, "bias", None), bias_index)


def _scaled(norm: nn.Module, vectors: Tensor, states: Tensor) -> Tensor:
    """Apply a layer norm without its bias to vectors (..., hidden), with the standard deviations of states."""
    if not isinstance(norm, nn.LayerNorm):
        return vectors
    spread = (states.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    scaled: Tensor = (vectors - vectors.mean(-1, keepdim=True)) / spread * norm.weight.to(vectors)
    return scaled


def _with_bias(vectors: Tensor, bias: Tensor | None, index: int) -> Tensor:
    """Return vectors (component, ...) with a bias added to the one at an index; None adds nothing."""
    if bias is None:
        return vectors
    vectors = vectors.clone()
    vectors[index] += bias.to(vectors)
    return vectors


def _linear_paths(loaded: LoadedModel, target: Target, rows: int) -> list[LinearPath]:
    """Return the path from each row of a target to its logit. Raises Refused if there is none."""
    if target.function is not None:
        raise Refused(
            "direct logit attribution needs a linear path from the last layer to a logit, which the function of the "
            f"target {target.name!r} does not state: choose another target"
        )
    head = head_of(target)
    paths = [head.linear_path(loaded, target, row) for row in range(rows)]
    if target.other is not None or any(path is None or path.sum_norm is not None for path in paths):
        raise Refused(f"direct logit attribution does not support the head {head.name!r}: choose another target")
    return cast("list[LinearPath]", paths)


def _through_head(path: LinearPath, vectors: Tensor) -> Tensor:
    """Compute the contributions (component,) to a logit of components (component, hidden) of the normed state."""
    for dense, activation, norm in path.stages:
        inputs = _with_bias(F.linear(vectors, dense.weight.to(vectors)), dense.bias, LAST)
        vectors = inputs * activation_factor(activation, inputs.sum(0))
        if norm is not None:
            vectors = _through_norm(norm, vectors, LAST)
    return _with_bias(vectors @ path.weight.to(vectors), path.bias, LAST)


def _logit(path: LinearPath, state: Tensor) -> float:
    """Compute a logit from a state (hidden,), as the model does."""
    for dense, activation, norm in path.stages:
        state = activation(dense(state))
        state = state if norm is None else norm(state)
    return float(state @ path.weight + path.bias)


def _check_receiver(loaded: LoadedModel, encoding: Encoding, receiver: object, side: str) -> tuple[int, int]:
    """Return a receiver as (layer, head). Raises Refused as `direct_score`."""
    require_pre_norm(loaded)
    if side not in SIDES:
        raise Refused(f"side is {short_repr(side)}: it must be 'query' or 'key'")
    ((layer, head),) = head_pairs([receiver])  # type: ignore[list-item]
    check_head_exists(loaded.config, layer, head)
    return layer, head


def _attention(loaded: LoadedModel, layer: int) -> BertAttention:
    return encoder_layers(loaded)[layer].attention


def _queries_and_keys(attention: BertAttention, head: int, states: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the rotated queries and keys (seq, head size) of a head from the input (seq, hidden) of its layer."""
    normed, index = attention.input_norm(states[None]), attention.self.heads.index(head)
    return attention.self.queries(normed)[0, index], attention.self.keys(normed)[0, index]


def _project(attention: BertSelfAttention, side: str, head: int, vectors: Tensor, rows: Sequence[int]) -> Tensor:
    """Project components (component, row, hidden) to queries or keys of a head, rotated by the positions of the rows.

    The bias of the projection goes to the last component, unless there is only one. Returns (component, row, size).
    """
    linear, rotation = getattr(attention, side), getattr(attention, f"{side}_rotation")
    size, index = attention.attention_head_size, attention.heads.index(head)
    part = slice(index * size, (index + 1) * size)
    bias = None if linear.bias is None or len(vectors) == 1 else linear.bias[part]
    projected = _with_bias(F.linear(vectors, linear.weight[part].to(vectors)), bias, LAST)
    if rotation is not None:
        projected = rotation(projected, torch.tensor([list(rows)], device=vectors.device))
    return projected

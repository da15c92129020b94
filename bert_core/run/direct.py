"""Direct logit attribution and direct contributions to attention scores, which pre-norm models allow exactly.

The residual stream of a pre-norm model is the sum of the embeddings and of the updates of all heads and feed-forward
networks, so each of them contributes a vector to the input of every layer norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import check_head_exists
from bert_core.loading import LoadedModel
from bert_core.records import Target
from bert_core.refused import Refused, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.stack import LayerTrace, trace_text
from bert_core.run.targets import check_target, target_rows
from bert_core.task_heads import head_of
from bert_core.tokenizer import Encoding


@dataclass(frozen=True)
class DirectLogits:
    """The direct contributions to a logit, as arrays of float32.

    embeddings: (). heads: (layer, head), NaN for a pruned head. feed_forward: (layer,).
    bias: (), of all biases of attention, of the final layer norm and of the head.
    logit: the logit as the model computes it.
    """

    encoding: Encoding
    target: Target
    embeddings: float
    heads: np.ndarray = field(repr=False)
    feed_forward: np.ndarray = field(repr=False)
    bias: float
    logit: float

    @property
    def gap(self) -> float:
        """The logit minus the sum of all contributions: the rounding error."""
        total = self.embeddings + float(np.nansum(self.heads)) + float(self.feed_forward.sum()) + self.bias
        return self.logit - total


@validate_arguments
@torch.no_grad()
def direct_logits(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> DirectLogits:
    """Compute the direct contribution of the embeddings and of each head and feed-forward network to a logit.

    head_mask: as for `capture`.
    The sum of the components is exactly the input of the final layer norm. From there to the logit, the standard
    deviations of layer norms and the activation functions are replaced by the factors that they amount to for this
    text. The contributions sum to the logit; `gap` is the rounding error. Indirect effects, through later layers, are
    part of the contributions of those layers.
    Raises Refused for a post-norm model, and for a target without a trained head or a linear path to its logit.
    Source: Elhage 2021, A Mathematical Framework for Transformer Circuits.
    """
    require_sum(loaded)
    check_target(loaded, encoding, target)
    head, rows = head_of(target), target_rows(loaded, encoding, target)
    if target.other is not None or head.linear_path(loaded, target, 0) is None:
        raise Refused(f"direct logit attribution does not support the head {head.name!r}: choose another target")
    if head.linear_path(loaded, target, 0).sum_norm is not None:  # type: ignore[union-attr]
        raise Refused(f"direct logit attribution does not support the head {head.name!r}: choose another target")
    config, traces = loaded.config, list(trace_text(loaded, encoding, head_mask))
    components, parts, logit = residual_components(traces, rows), None, torch.zeros((), device=loaded.device)
    # The last vector of each row is that of all biases.
    final_norm, states = loaded.model.bert.encoder.final_norm, components.sum(0)
    normed = [_through_norm(final_norm, components[:, row], states[row]) for row in range(len(rows))]
    if head.linear_path(loaded, target, 0).reads_mean:  # type: ignore[union-attr]
        row_vectors, row_states = zip(*normed, strict=True)
        normed = [(torch.stack(row_vectors).mean(0), torch.stack(row_states).mean(0))]
    for row, (vectors, state) in enumerate(normed):
        path = head.linear_path(loaded, target, row)
        assert path is not None  # checked for the first row
        for dense, activation, norm in path.stages:
            inputs = dense(state)
            vectors = _with_bias(F.linear(vectors, dense.weight), dense.bias)
            nonzero = torch.where(inputs == 0, 1e-6, inputs)
            vectors, state = vectors * (activation(nonzero) / nonzero), activation(inputs)
            if norm is not None:
                vectors, state = _through_norm(norm, vectors, state)
        row_parts = vectors @ path.weight
        row_parts[-1] += path.bias
        parts = row_parts if parts is None else parts + row_parts
        logit = logit + state @ path.weight + path.bias
    assert parts is not None  # a target has a row
    if target.target_kind.mean:
        parts, logit = parts / len(rows), logit / len(rows)
    values, layers = as_array(parts), config.num_hidden_layers
    by_head = np.full((layers, config.num_attention_heads), np.nan, np.float32)
    heads = [(layer, number) for layer in range(layers) for number in config.heads_of(layer)]
    for index, place in enumerate(heads):
        by_head[place] = values[1 + index]
    feed_forward = values[1 + len(heads) : 1 + len(heads) + layers]
    return DirectLogits(encoding, target, float(values[0]), by_head, feed_forward, float(values[-1]), float(logit))


@validate_arguments
@torch.no_grad()
def direct_scores(
    loaded: LoadedModel,
    encoding: Encoding,
    sender: tuple[int, int],
    receiver: tuple[int, int],
    *,
    side: str = "key",
    head_mask: np.ndarray | None = None,
) -> np.ndarray:
    """Compute the direct contribution of one head to the attention scores of a head in a later layer.

    sender, receiver: (layer, head). side: "query" or "key", through which the contribution passes; the vectors of the
        other side are complete. head_mask: as for `capture`.
    Returns (query, key), before the softmax. The contributions of all components, and of the biases, sum to the scores.
    Raises Refused for a post-norm model, for a head that does not exist, and if the sender is not in an earlier layer.
    Source: Elhage 2021, A Mathematical Framework for Transformer Circuits.
    """
    require_sum(loaded)
    for layer, head in (sender, receiver):
        check_head_exists(loaded.config, layer, head)
    if sender[0] >= receiver[0]:
        raise Refused(f"the sender is in layer {sender[0]}: it must be in a layer before {receiver[0]}")
    heads = [(layer, head) for layer in range(receiver[0]) for head in loaded.config.heads_of(layer)]
    scores = component_scores(loaded, encoding, receiver, side=side, head_mask=head_mask)
    contribution: np.ndarray = scores[1 + heads.index(sender)]
    return contribution


@torch.no_grad()
def component_scores(
    loaded: LoadedModel,
    encoding: Encoding,
    receiver: tuple[int, int],
    *,
    side: str = "key",
    head_mask: np.ndarray | None = None,
) -> np.ndarray:
    """Compute the direct contributions of all components before a layer to the scores of one of its heads.

    The arguments are those of `direct_scores`. Returns (component, query, key): the embeddings, the heads by layer, the
    feed-forward networks and the biases.
    """
    require_sum(loaded)
    if side not in ("query", "key"):
        raise Refused(f"side is {side!r}: it must be 'query' or 'key'")
    layer, head = receiver
    traces = list(trace_text(loaded, encoding, head_mask))
    block = traces[layer].layer
    attention = block.attention.self
    components = residual_components(traces[:layer], range(len(encoding)), traces[0].input_states)
    normed = torch.stack(
        [
            _through_norm(block.attention.input_norm, components[:, row], components[:, row].sum(0))[0]
            for row in range(len(encoding))
        ],
        dim=1,
    )
    index, size = attention.heads.index(head), attention.attention_head_size
    columns = slice(index * size, (index + 1) * size)
    linear, rotation = getattr(attention, side), getattr(attention, f"{side}_rotation")
    vectors = _with_bias(F.linear(normed, linear.weight), linear.bias)  # (component, seq, heads * size)
    vectors = (vectors if rotation is None else rotation(vectors))[..., columns]
    states = block.attention_input(traces[layer].input_states[None])
    complete_vectors = (attention.keys(states) if side == "query" else attention.queries(states))[0, index]
    scores = vectors @ complete_vectors.T if side == "query" else (vectors @ complete_vectors.T).transpose(1, 2)
    return as_array(scores * attention.score_scale)


def require_sum(loaded: LoadedModel) -> None:
    """Raise Refused for a post-norm model."""
    if not loaded.config.layer_design.pre_norm:
        raise Refused(
            "this model has a layer norm after each part of a layer, so its states are no sum of contributions: direct "
            "contributions need a model with layer norms before them, such as ModernBERT"
        )


def residual_components(traces: Sequence[LayerTrace], rows: Sequence[int], embeddings: Tensor | None = None) -> Tensor:
    """Return the components of the residual stream after the last of some layers, (component, row, hidden).

    The components are the embeddings, the heads of each layer in turn, the feed-forward networks, and the output biases
    of attention. embeddings: (seq, hidden), if there are no traces.
    """
    chosen = list(rows)
    first = traces[0].input_states if embeddings is None else embeddings
    parts, feed_forward, bias = [first[chosen][None]], [], torch.zeros_like(first[chosen])
    for traced in traces:
        dense = traced.layer.attention.output.dense
        parts.append(torch.einsum("hqk,hkd->hqd", traced.gated_probs[:, chosen], traced.head_outputs))
        feed_forward.append(traced.feed_forward_update[chosen][None])
        if dense.bias is not None:
            bias = bias + dense.bias
    return torch.cat([*parts, *feed_forward, bias[None]])


def _through_norm(norm: nn.Module, vectors: Tensor, summed: Tensor) -> tuple[Tensor, Tensor]:
    """Propagate vectors (component, hidden) and their sum (hidden,) through a layer norm, or an identity."""
    if not isinstance(norm, nn.LayerNorm):
        return vectors, summed
    spread = (summed.var(unbiased=False) + norm.eps).sqrt()
    scaled = (vectors - vectors.mean(-1, keepdim=True)) / spread * norm.weight
    return _with_bias(scaled, norm.bias), cast("Tensor", norm(summed))


def _with_bias(vectors: Tensor, bias: Tensor | None) -> Tensor:
    """Add a bias to the last vector, which is that of the biases; None adds nothing."""
    return vectors if bias is None else torch.cat([vectors[:-1], vectors[-1:] + bias])

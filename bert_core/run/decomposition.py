"""Decomposition of layer outputs into contributions of tokens: attention norms, GlobEnc, ALTI and DecompX.

The output of a layer is a sum of one vector for each token and head; these functions compute the vectors or their
norms, and the contribution graph of a text. All functions are thread-safe: they do not change the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.analysis.attribution import layer_shares
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import Attribution, ContributionGraph, Target, TokenMaps
from bert_core.refused import Refused, short_repr, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import embed_text
from bert_core.run.memory import BYTES_AT_ONCE, check_memory, contribution_graph_bytes, decomposition_bytes
from bert_core.run.stack import LayerTrace, trace_text
from bert_core.run.targets import check_target, reference_vector, target_rows
from bert_core.task_heads import LinearPath, head_of
from bert_core.tokenizer import Encoding

# ---------------------------------------------------------------------------- norms of contributions


@validate_arguments
@torch.no_grad()
def attention_norms(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """Compute value-weighted attention (norms) of each head and of each layer.

    head_mask: as for `capture`.
    The result has two arrays of norms, without the output bias and the residual connection:
    heads: (layer, head, query, key), ||a f(x)||, the attention weight times the norm of the key's value vector through
        the head's output projection; 0 for a pruned head.
    maps: (layer, query, key), the norm of the sum over heads, which is at most the sum of the norms.
    Source: Kobayashi 2020, section 3 (arXiv:2004.10102).
    """
    layers, heads, length = loaded.config.num_hidden_layers, loaded.config.num_attention_heads, len(encoding)
    maps = np.empty((layers, length, length), np.float32)
    head_norms = np.zeros((layers, heads, length, length), np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        outputs = traced.head_outputs
        remaining_heads = list(traced.layer.attention.self.heads)
        head_norms[number, remaining_heads] = as_array(traced.gated_probs * outputs.norm(dim=-1)[:, None, :])
        maps[number] = as_array(_summed_norms(traced.gated_probs, outputs))
    return TokenMaps(encoding, "norms of attention", maps, residual=False, heads=head_norms)


@validate_arguments
@torch.no_grad()
def residual_norms(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """Compute attention norms of each layer with its residual connection and the layer norm after attention.

    head_mask: as for `capture`. The scaling and the weights of the layer norm are included. Its bias and the output
    bias are not. A pre-norm layer has no layer norm there, so that the contributions sum to the states after attention
    without the output bias. The result has two arrays:
    maps: (layer, query, key) norms.
    mixing: (layer, query), a / (a + b) from 0 to 1. Here a is the norm of the contribution of all other positions, and
        b that of the position's own contribution with its residual.
    Source: Kobayashi 2021, section 4 (arXiv:2109.07152).
    """
    traces = trace_text(loaded, encoding, head_mask)
    norms = [_norms_with_residual(traced, *_vectors_after_attention(traced)) for traced in traces]
    return _token_maps(encoding, "norms with residual", norms)


@validate_arguments
@torch.no_grad()
def globenc(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """Compute GlobEnc: as `residual_norms`, with the second residual connection and layer norm of each layer as well.

    head_mask: as for `capture`. The feed-forward network does not mix positions and enters only through the standard
    deviation of the second layer norm. In a pre-norm model only the last layer has a layer norm after it, that of the
    final hidden states, and the maps of the other layers are those of `residual_norms`.
    `analysis.attribution.norm_rollout` combines the maps of all layers.
    Source: Modarressi 2022, section 3 (arXiv:2205.03286).
    """
    norms = []
    for traced in trace_text(loaded, encoding, head_mask):
        first, second = traced.layer.attention.output.LayerNorm, traced.layer.output.LayerNorm
        spread = _spread(traced.attention_sum, first) * _spread(
            traced.feed_forward_update + traced.after_attention, second
        )
        outputs, residual = (_linear_part([first, second], part) for part in (traced.head_outputs, traced.input_states))
        norms.append(_norms(traced, [first, second], spread, outputs, residual))
    return _token_maps(encoding, "GlobEnc", norms)


@validate_arguments
@torch.no_grad()
def alti(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """Compute ALTI: how much the contribution of each token brings a position closer to its output, in L1 distance.

    head_mask: as for `capture`.
    The output y of a position is taken after attention and residual connection, and in a post-norm layer after the
    layer norm, whose scaling and weights the contributions include. The contribution v of a token scores
    max(0, |y| - |y - v|) in L1 norms, and each row is divided by its sum. The maps of all layers can be multiplied to a
    rollout. Queries are processed in batches, so that no tensor is query x key x hidden.
    Source: Ferrando 2022, section 3 (arXiv:2203.04212).
    """
    traces = trace_text(loaded, encoding, head_mask)
    maps = np.stack([_alti_map(traced, *_vectors_after_attention(traced)) for traced in traces])
    return TokenMaps(encoding, "ALTI", maps, residual=True)


def _alti_map(traced: LayerTrace, outputs: Tensor, residual: Tensor) -> np.ndarray:
    """Compute the ALTI contributions of a layer, (query, key), as `alti`.

    outputs, residual: as `_vectors_after_attention` returns them.
    """
    layer_output = traced.after_attention
    spread = _spread(traced.attention_sum, traced.layer.attention.output.LayerNorm)
    # Divided before the vectors of all pairs exist, so that these are not read and written once more.
    probs, residual = traced.gated_probs / spread[:, None], residual / spread[:, None]
    length, hidden = layer_output.shape
    contributions = np.empty((length, length), np.float32)
    queries = torch.arange(length, device=layer_output.device)
    for batch in queries.split(max(1, BYTES_AT_ONCE // (3 * 4 * length * hidden))):  # type: ignore[no-untyped-call]
        vectors = torch.einsum("hqk,hkd->qkd", probs[:, batch], outputs)
        vectors[torch.arange(len(batch), device=batch.device), batch] += residual[batch]
        target_states = layer_output[batch, None]
        # |y| - |y - v| for each coordinate before the sum: the difference of two norms of a long vector would lose its
        # digits. A vector of zeros, of a blocked edge, scores exactly 0.
        distances = vectors.sub_(target_states).abs_()
        scores = torch.sub(target_states.abs(), distances, out=vectors).sum(-1).clamp(min=0)
        contributions[batch.cpu()] = as_array(scores / scores.sum(-1, keepdim=True))
    return contributions


@validate_arguments
@torch.no_grad()
def head_values(loaded: LoadedModel, encoding: Encoding, *, projected: bool = False) -> np.ndarray:
    """Compute the value vectors of every head, (layer, head, key, head size); zeros for a pruned head.

    projected: whether the vectors are mapped through the head's output projection, f(x). They are then given in an
        orthonormal basis of the head's output space, which preserves norms and angles. `sinks` needs these vectors, and
        `effective_attention` needs the unprojected ones.
    """
    config = loaded.config
    shape = (config.num_hidden_layers, config.num_attention_heads, len(encoding), config.attention_head_size)
    vectors = np.zeros(shape, np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, requires_unpatched=False)):
        values = traced.value
        if projected and len(values):
            values = values @ _orthogonal_coordinates(traced.layer.attention.head_projections)
        vectors[number, list(traced.layer.attention.self.heads)] = as_array(values)
    return vectors


def _orthogonal_coordinates(projections: Tensor) -> Tensor:
    """Return matrices (head, size, size) that map value vectors to an orthonormal basis of each head's output space.

    projections: (hidden, head, head size), the output projection of each head.
    """
    # With the QR decomposition of a projection, R alone preserves norms and angles. Computed on the CPU, because MPS
    # has no QR decomposition in every supported version of torch.
    triangles: Tensor = torch.linalg.qr(projections.transpose(0, 1).float().cpu(), mode="r").R
    return triangles.transpose(1, 2).to(projections)


def _summed_norms(probs: Tensor, outputs: Tensor) -> Tensor:
    """Compute the norm of the sum over heads of probs x outputs, (query, key), from inner products between heads.

    probs: (head, query, key). outputs: (head, key, hidden). The sums themselves would be query x key x hidden.
    """
    # Double precision, because heads can cancel each other almost completely.
    device = probs.device
    if device.type == "mps":  # MPS has no float64
        probs, outputs = probs.cpu(), outputs.cpu()
    gram = torch.einsum("hkd,gkd->khg", outputs.double(), outputs.double())
    weights = probs.double().permute(2, 1, 0).contiguous()  # (key, query, head)
    squares = ((weights @ gram) * weights).sum(-1).T
    norms = squares.clamp(min=0).sqrt()
    return norms.float().to(device) if device.type == "mps" else norms


def _vectors_after_attention(traced: LayerTrace) -> tuple[Tensor, Tensor]:
    """Return the vectors of all heads (head, key, hidden) and of the residual (key, hidden) after the first layer norm.

    They are not weighted by attention, nor divided by the standard deviation of the layer norm.
    """
    layer_norms = [traced.layer.attention.output.LayerNorm]
    return _linear_part(layer_norms, traced.head_outputs), _linear_part(layer_norms, traced.input_states)


def _norms_with_residual(traced: LayerTrace, outputs: Tensor, residual: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Compute the norms (query, key) and the mixing ratio (query,) of a layer, as `residual_norms`.

    outputs, residual: as `_vectors_after_attention` returns them.
    """
    first = traced.layer.attention.output.LayerNorm
    return _norms(traced, [first], _spread(traced.attention_sum, first), outputs, residual)


def _norms(
    traced: LayerTrace, layer_norms: Sequence[nn.Module], spread: Tensor, outputs: Tensor, residual: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the norms (query, key), residual included, and the mixing ratio (query,).

    layer_norms: the layer norms to apply. spread: (query,), the product of their standard deviations.
    outputs, residual: the linear part of the layer norms for the vectors of all heads (head, key, hidden) and for the
        input of the layer (key, hidden).
    """
    norms = _summed_norms(traced.gated_probs, outputs)
    diagonal = torch.einsum("hq,hqd->qd", traced.gated_probs.diagonal(dim1=1, dim2=2), outputs)
    own_norms = (diagonal + residual).norm(dim=-1)
    norms.diagonal().copy_(own_norms)
    dense = traced.layer.attention.output.dense
    other_norms = (_linear_part(layer_norms, F.linear(traced.merged_context, dense.weight)) - diagonal).norm(dim=-1)
    return as_array(norms / spread[:, None]), as_array(other_norms / (other_norms + own_norms))


def _token_maps(encoding: Encoding, method: str, norms: Sequence[tuple[np.ndarray, np.ndarray]]) -> TokenMaps:
    """Stack the results of `_norms` for all layers."""
    maps, mixing = (np.stack(layer_values) for layer_values in zip(*norms, strict=True))
    return TokenMaps(encoding, method, maps, residual=True, mixing=mixing)


def _linear_part(norms: Sequence[nn.Module], vectors: Tensor) -> Tensor:
    """Apply layer norms in turn without their division and bias: centre (..., hidden) and multiply by the weights."""
    for norm in norms:
        if isinstance(norm, nn.LayerNorm):
            vectors = (vectors - vectors.mean(-1, keepdim=True)) * norm.weight
    return vectors


def _spread(states: Tensor, norm: nn.Module) -> Tensor:
    """Return the standard deviation (...,) by which a layer norm divides states (..., hidden); 1 for removed layers."""
    if not isinstance(norm, nn.LayerNorm):
        return torch.ones_like(states[..., 0])
    return (states.var(-1, unbiased=False) + norm.eps).sqrt()


# ---------------------------------------------------------------------------- vectors propagated to the logit


@validate_arguments
@torch.no_grad()
def decompx(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> Attribution:
    """Compute DecompX: the contribution of every token to a target's logit.

    One vector for each token is propagated through all layers and the task head.
    head_mask: as for `capture`.
    The contributions are signed and sum to the logit; `gap` is the rounding error of this sum. For a word they explain
    its logit and not its log-probability, which also depends on all other words; a contrast compares two words. Layer
    norms and activation functions are replaced by the factors that they amount to for this text. Each bias is divided
    among the tokens in proportion to the absolute inner products with their vectors, which is one possible choice. For
    a cosine of two texts, the norm of the text's vector is treated as a constant factor.
    Raises Refused for a target without a trained head or without a linear path to its logit, for a model with gated
    neurons, and if the vectors do not fit in memory.
    Source: Modarressi 2023, section 3 (arXiv:2306.02873).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> attribution = bert_core.decompx(loaded, encoding, target)
    >>> encoding.tokens[attribution.scores.argmax()], bool(abs(attribution.gap) < 0.01)
    ('opened', True)
    """
    check_target(loaded, encoding, target)
    check_decomposable(loaded, target)
    head = head_of(target)
    length, layers, rows = len(encoding), loaded.config.num_hidden_layers, target_rows(loaded, encoding, target)
    check_memory(loaded, "DecompX", length, decomposition_bytes(loaded, length), "integrated gradients")
    vectors = torch.diag_embed(embed_text(loaded, encoding)[0].T).permute(1, 2, 0).contiguous()
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        positions = rows if number == layers - 1 else range(length)
        vectors, output = _through_layer(traced, vectors, positions)
    reference = reference_vector(loaded, target)
    if reference is not None:
        # The contribution of each token to the vector, projected on the reference vector.
        vector = loaded.effective_pooling.pool(output)
        direction = F.normalize(reference[0], dim=-1) / vector.norm()
        parts = torch.einsum("rh,rth,h->t", loaded.effective_pooling.weights(output), vectors, direction)
        return Attribution(
            encoding, target, "DecompX", as_array(parts), (vector @ direction).item(), signed=True, complete=True
        )
    # Each word piece of a target, and each end of an answer span, has its own row and its own path through the head.
    paths = [head.linear_path(loaded, target, row) for row in range(len(rows))]
    if paths[0] is not None and (norm := paths[0].sum_norm) is not None:
        summed_vectors, summed_output = vectors.sum(0, keepdim=True), output.sum(0, keepdim=True)
        paths, vectors = paths[:1], _through_norm(norm, summed_vectors, summed_output)
        output = norm(summed_output)
    row_results = [_through_head(*path_inputs) for path_inputs in zip(paths, vectors, output, strict=True)]
    parts, logit = (torch.stack(values).sum(0) for values in zip(*row_results, strict=True))
    if target.target_kind.mean:
        parts, logit = parts / len(row_results), logit / len(row_results)
    return Attribution(encoding, target, "DecompX", as_array(parts), logit.item(), signed=True, complete=True)


def check_decomposable(loaded: LoadedModel, target: Target | None = None) -> None:
    """Raise Refused for a model whose layers DecompX does not support, and for a target without a linear path."""
    if loaded.config.layer_design.gated:
        raise Refused(
            "DecompX replaces each activation function by a factor of one input, and the neurons of this model have "
            "two: choose another method"
        )
    if target is None or target.other is not None:
        return
    if target.function is not None:
        raise Refused(
            "DecompX needs a linear path from the last layer to a logit, which the function of the target "
            f"{target.name!r} does not state: choose another method"
        )
    if (head := head_of(target)).linear_path(loaded, target, 0) is None:
        raise Refused(f"DecompX does not support the head {head.name!r}: choose another method")


def _through_layer(traced: LayerTrace, vectors: Tensor, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Propagate the vectors of the tokens through a layer, at some positions.

    vectors: (seq, token, hidden), the contribution of each token to the input of the layer at each position.
    Returns the contributions to the output (position, token, hidden), and the output (position, hidden).
    """
    attention, probs = traced.layer.attention, traced.gated_probs
    length, hidden = len(vectors), vectors.shape[-1]
    heads, size = len(traced.value), attention.self.attention_head_size
    values = F.linear(vectors, attention.self.value.weight).view(length, length, heads, size)
    # The value bias is weighted by the sum of an attention row: the gate of its head, minus blocked edges.
    bias_values = probs.sum(-1).T[..., None] * attention.self.value.bias.view(heads, size)
    bias = attention.output.dense(bias_values.flatten(1))  # (query, hidden)
    propagate = _rest_of_layer(traced)
    output_vectors = vectors.new_empty(len(positions), length, hidden)
    positions_per_batch = _positions_per_batch(traced)
    for first in range(0, len(positions), positions_per_batch):
        batch = list(positions[first : first + positions_per_batch])
        mixed = torch.einsum("hqj,jthd->qthd", probs[:, batch], values).flatten(2)
        mixed = _with_bias(F.linear(mixed, attention.output.dense.weight), bias[batch])
        output_vectors[first : first + positions_per_batch] = propagate(mixed + vectors[batch], batch)
    output_sum = traced.feed_forward_update + traced.after_attention
    return output_vectors, traced.layer.output.LayerNorm(output_sum[list(positions)])


def _rest_of_layer(traced: LayerTrace) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """Return a function that propagates vectors from the sum after attention to the output of a layer.

    Its arguments are the vectors (position, token, hidden), which sum to `attention_sum`, and their positions.
    """
    layer, first, second = traced.layer, traced.layer.attention.output.LayerNorm, traced.layer.output.LayerNorm
    factors = activation_factor(layer.intermediate.activate, layer.intermediate.dense(traced.after_attention))
    attention_sum, output_sum = traced.attention_sum, traced.feed_forward_update + traced.after_attention

    def propagate_vectors(vectors: Tensor, positions: Sequence[int]) -> Tensor:
        vectors = _through_norm(first, vectors, attention_sum[positions])
        inner = _with_bias(F.linear(vectors, layer.intermediate.dense.weight), layer.intermediate.dense.bias)
        inner = F.linear(inner.mul_(factors[positions, None]), layer.output.dense.weight)
        inner = _with_bias(inner, layer.output.dense.bias) + vectors
        return _through_norm(second, inner, output_sum[positions])

    return propagate_vectors


def _positions_per_batch(traced: LayerTrace) -> int:
    """Return at how many positions DecompX propagates the vectors of all tokens at once, at least one."""
    width = max(1, traced.layer.intermediate.dense.out_features)
    return max(1, BYTES_AT_ONCE // (2 * 4 * len(traced.input_states) * width))


def _decompx_norms(traced: LayerTrace) -> np.ndarray:
    """Compute the norms (query, key) of DecompX for a layer alone: of the parts of its output that its inputs make."""
    attention, probs = traced.layer.attention, traced.gated_probs
    heads, size = len(traced.value), attention.self.attention_head_size
    value_bias = attention.self.value.bias.view(heads, size)
    outputs = attention.head_outputs(traced.value - value_bias[:, None])
    bias = attention.output.dense((probs.sum(-1).T[..., None] * value_bias).flatten(1))  # (query, hidden)
    propagate, length = _rest_of_layer(traced), len(traced.input_states)
    norms = np.empty((length, length), np.float32)
    positions_per_batch = _positions_per_batch(traced)
    for first in range(0, length, positions_per_batch):
        batch = list(range(first, min(first + positions_per_batch, length)))
        vectors = _with_bias(torch.einsum("hqk,hkd->qkd", probs[:, batch], outputs), bias[batch])
        vectors[range(len(batch)), batch] += traced.input_states[batch]
        norms[batch] = as_array(propagate(vectors, batch).norm(dim=-1))
    return norms


def _through_head(path: LinearPath | None, vectors: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the contribution of each token to a logit (token,), and the logit.

    vectors: (token, hidden), at one of the target's rows. row: (hidden,), their sum as the model computes it.
    """
    assert path is not None  # checked for the first row of the target
    for dense, activation, norm in path.stages:
        vectors, row = _through_dense(dense, activation, vectors, row)
        if norm is not None:
            vectors, row = _through_norm(norm, vectors[None], row[None])[0], norm(row)
    parts = _with_bias((vectors @ path.weight)[None, :, None], path.bias[None])[0, :, 0]
    return parts, row @ path.weight + path.bias


def _through_dense(
    dense: nn.Linear, activation: Callable[[Tensor], Tensor], vectors: Tensor, row: Tensor
) -> tuple[Tensor, Tensor]:
    """Propagate vectors (token, hidden) and their sum (hidden,) through a dense layer and its activation function."""
    inputs = dense(row)
    parts = _with_bias(F.linear(vectors, dense.weight)[None], dense.bias)[0]
    return parts * activation_factor(activation, inputs), activation(inputs)


def _through_norm(norm: nn.Module, vectors: Tensor, summed: Tensor) -> Tensor:
    """Propagate vectors (position, token, hidden) through a layer norm of their sum (position, hidden)."""
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
    return _with_bias(_linear_part([norm], vectors) / _spread(summed, norm)[:, None, None], bias)


def _with_bias(vectors: Tensor, bias: Tensor | None) -> Tensor:
    """Divide a bias among vectors in proportion to its absolute inner products with them; None adds nothing.

    vectors: (position, token, width). bias: (width,) or (position, width).
    """
    if bias is None:
        return vectors
    bias = bias.expand(len(vectors), -1)
    sizes = torch.einsum("std,sd->st", vectors, bias).abs()
    total = sizes.sum(-1, keepdim=True)
    shares = torch.where(total > 0, sizes / total, 1 / vectors.shape[1])
    return torch.addcmul(vectors, shares[..., None], bias[:, None])


def activation_factor(activation: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Return the factor of an activation function, act(x) / x; at 0 its limit, 1/2 for GELU and 1 for tanh."""
    nonzero = torch.where(inputs == 0, 1e-6, inputs)
    return activation(nonzero) / nonzero


# ---------------------------------------------------------------------------- contribution graph

# Methods of contribution graphs -> function that computes the contributions of a layer, (query, key), from its
# activations and the result of `_vectors_after_attention`, from which the shares of the heads are computed as well.
_GRAPH_MAPS: dict[str, Callable[[LayerTrace, Tensor, Tensor], np.ndarray]] = {
    "ALTI": _alti_map,
    "DecompX": lambda traced, *_: _decompx_norms(traced),
    "norms with residual": lambda traced, *vectors: _norms_with_residual(traced, *vectors)[0],
}
GRAPH_METHODS = tuple(_GRAPH_MAPS)


@validate_arguments
@torch.no_grad()
def contribution_graph(
    loaded: LoadedModel,
    encoding: Encoding,
    *,
    method: str = "ALTI",
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> ContributionGraph:
    """Compute the contribution graph: the share of each position in each position of the next depth, layer by layer.

    The nodes are the positions at every depth. Each edge has a share of its node, and each head a share of the edge.
    method: "ALTI", as `alti`; "DecompX", the norms of the vectors into which the output of a layer is decomposed by the
        inputs of this layer alone; or "norms with residual", as `residual_norms`. Norms are divided by their sum.
    head_mask: as for `capture`. report: receives the number of layers that are done, see `Progress`.
    The share of an edge is divided among the heads, and on the diagonal the residual connection, in proportion to the
    norms of their vectors after the layer norm after attention. An edge outside the window of a local layer is 0.
    Raises Refused for an unknown method, for DecompX with a model with gated neurons, and if the graph does not fit in
    memory.
    Source: Ferrando & Voita 2024, section 2 (arXiv:2403.00824), for decoders. The shares are those of Ferrando 2022,
    section 3 (arXiv:2203.04212), Modarressi 2023, section 3 (arXiv:2306.02873), and Kobayashi 2021, section 4
    (arXiv:2109.07152).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> graph = bert_core.contribution_graph(loaded, encoding)
    >>> graph.shares.shape  # (layer, query, key)
    (6, 10, 10)
    >>> bool(abs(graph.shares.sum(-1) - 1).max() < 1e-6)
    True
    """
    if method not in GRAPH_METHODS:
        raise Refused(
            f"the method of a contribution graph is {short_repr(method)}: it must be one of {', '.join(GRAPH_METHODS)}"
        )
    if method == "DecompX":
        check_decomposable(loaded)
    config, length = loaded.config, len(encoding)
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    check_memory(
        loaded, "A contribution graph", length, contribution_graph_bytes(loaded, length), "integrated gradients"
    )
    shares, residual = np.empty((layers, length, length)), np.empty((layers, length))
    head_shares = np.zeros((layers, heads, length, length), np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        vectors = _vectors_after_attention(traced)
        shares[number] = layer_shares(_GRAPH_MAPS[method](traced, *vectors)[None], residual=False)[0]
        remaining_heads = list(traced.layer.attention.self.heads)
        head_shares[number, remaining_heads], residual[number] = _divided_shares(traced, shares[number], *vectors)
        report_count(report, number + 1, layers, "layers")
    return ContributionGraph(encoding, method, shares, residual, head_shares)


def _divided_shares(
    traced: LayerTrace, shares: np.ndarray, outputs: Tensor, residual: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Divide the shares (query, key) of a layer among its heads (head, query, key) and its residual (query,).

    outputs, residual: as `_vectors_after_attention` returns them.
    """
    parts = as_array(traced.gated_probs.abs() * outputs.norm(dim=-1)[:, None])  # (head, query, key)
    residual_part = as_array(residual.norm(dim=-1))
    total = parts.sum(0, dtype=np.float64)
    np.einsum("qq->q", total)[:] += residual_part
    factors = np.divide(shares, total, out=np.zeros(shares.shape), where=total > 0)
    own_shares = shares.diagonal()
    return parts * factors, np.where(total.diagonal() > 0, residual_part * factors.diagonal(), own_shares)

"""What each token adds to each position, by taking the model's own sums apart instead of its attention alone.

A layer adds up one vector for every token (and head); these are the vectors, or their sizes. All functions here are
safe to call from many threads on one model: nothing is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.loading import LoadedModel
from bert_core.records import Attribution, Target, TokenMaps
from bert_core.refused import Refused, validate_arguments
from bert_core.run.arrays import as_array
from bert_core.run.inputs import embed_text
from bert_core.run.memory import BYTES_AT_ONCE, check_memory, decomposition_bytes
from bert_core.run.stack import LayerTrace, trace_text
from bert_core.run.targets import check_target, reference_vector
from bert_core.task_heads import LinearPath, head_of
from bert_core.tokenizer import Encoding

# ---------------------------------------------------------------------------- sizes of what is added


@validate_arguments
@torch.no_grad()
def attention_norms(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """The norm of the value-weighted vector that a head, or all heads of a layer together, add from a key to a query.

    head_mask: as for `capture`.
    heads: attention times the length of the key's value vector through the head's output map, |a f(x)|; 0 for a head
    that was pruned. maps: the length of the sum over heads, at most the sum of the lengths. The output bias and the
    residual connection are no part of them.
    Source: Kobayashi 2020, section 3 (arXiv:2004.10102).
    """
    layers, heads, length = loaded.config.num_hidden_layers, loaded.config.num_attention_heads, len(encoding)
    maps = np.empty((layers, length, length), np.float32)
    of_heads = np.zeros((layers, heads, length, length), np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        outputs = traced.head_outputs
        kept = list(traced.layer.attention.self.heads)
        of_heads[number, kept] = as_array(traced.gated_probs * outputs.norm(dim=-1)[:, None, :])
        maps[number] = as_array(_summed_norms(traced.gated_probs, outputs))
    return TokenMaps(encoding, "norms of attention", maps, residual=False, heads=of_heads)


@validate_arguments
@torch.no_grad()
def residual_norms(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """As `attention_norms` of all heads, with the residual connection and the layer norm behind attention.

    The norm's division by its spread and its weights are taken along, its bias and the output bias are not.
    mixing: the length of what comes from other positions, over that plus the length of what stays, residual included.
    Source: Kobayashi 2021, section 4 (arXiv:2109.07152).
    """
    norms = []
    for traced in trace_text(loaded, encoding, head_mask):
        first = traced.layer.attention.output.LayerNorm
        norms.append(_norms(traced, [first], _spread(traced.attention_sum, first)))
    return _maps(encoding, "norms with residual", norms)


@validate_arguments
@torch.no_grad()
def globenc(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """As `residual_norms`, through the layer's second residual connection and layer norm too.

    The feed-forward network between the norms works on each position by itself; only the spread it leaves behind is
    taken along. Roll the maps out for the whole model (`analysis.attribution.norm_rollout`).
    Source: Modarressi 2022, section 3 (arXiv:2205.03286).
    """
    norms = []
    for traced in trace_text(loaded, encoding, head_mask):
        first, second = traced.layer.attention.output.LayerNorm, traced.layer.output.LayerNorm
        spread = _spread(traced.attention_sum, first) * _spread(
            traced.feed_forward_update + traced.after_attention, second
        )
        norms.append(_norms(traced, [first, second], spread))
    return _maps(encoding, "GlobEnc", norms)


@validate_arguments
@torch.no_grad()
def alti(loaded: LoadedModel, encoding: Encoding, *, head_mask: np.ndarray | None = None) -> TokenMaps:
    """How much nearer each token's vector takes a position to what attention, residual and layer norm give there.

    Nearness is in L1 lengths: |y| - |y - its vector|, at least 0. Rows sum to 1. Roll the maps out as they are for the
    whole model. A few queries are done at a time, so that no tensor is query x key x hidden.
    Source: Ferrando 2022, section 3 (arXiv:2203.04212).
    """
    length = len(encoding)
    maps = np.empty((loaded.config.num_hidden_layers, length, length), np.float32)
    together = max(1, BYTES_AT_ONCE // (3 * 4 * length * loaded.config.hidden_size))
    places = torch.arange(length, device=loaded.device)
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        first, normed, mixing = traced.layer.attention.output.LayerNorm, traced.after_attention, traced.gated_probs
        outputs, stays = _linear_part([first], traced.head_outputs), _linear_part([first], traced.input_states)
        spread = _spread(traced.attention_sum, first)
        for some in places.split(together):  # type: ignore[no-untyped-call]
            vectors = torch.einsum("hqk,hkd->qkd", mixing[:, some], outputs)
            vectors[torch.arange(len(some), device=loaded.device), some] += stays[some]
            vectors /= spread[some, None, None]
            whole = normed[some, None]
            nearer = (whole.abs().sum(-1) - vectors.sub_(whole).abs_().sum(-1)).clamp(min=0)
            maps[number, some.cpu()] = as_array(nearer / nearer.sum(-1, keepdim=True))
    return TokenMaps(encoding, "ALTI", maps, residual=True)


@validate_arguments
@torch.no_grad()
def head_values(loaded: LoadedModel, encoding: Encoding, *, projected: bool = False) -> np.ndarray:
    """The value vectors of every head, (layer, head, key, head size): what `effective_attention` asks for.

    projected: through the head's output map, f(x), in coordinates along what the head can write: lengths and angles are
    those of the states, as `sinks` asks for. Zeros for a head that was pruned.
    """
    config = loaded.config
    shape = (config.num_hidden_layers, config.num_attention_heads, len(encoding), config.attention_head_size)
    vectors = np.zeros(shape, np.float32)
    for number, traced in enumerate(trace_text(loaded, encoding, requires_unpatched=False)):
        values = traced.value
        if projected and len(values):
            values = values @ _in_own_directions(traced.layer.attention.head_projections)
        vectors[number, list(traced.layer.attention.self.heads)] = as_array(values)
    return vectors


def _in_own_directions(maps: Tensor) -> Tensor:
    """What takes the values of each head to coordinates in which its output map changes no length, (head, size, size).

    maps: (hidden, head, head size), of the output projection.
    """
    # A map is its directions times a triangle: the triangle alone keeps lengths and angles. Computed on the CPU: MPS
    # has no QR decomposition in every supported version of torch.
    triangles: Tensor = torch.linalg.qr(maps.transpose(0, 1).float().cpu(), mode="r").R
    return triangles.transpose(1, 2).to(maps)


def _summed_norms(mixing: Tensor, outputs: Tensor) -> Tensor:
    """Lengths of sum over heads of mixing x outputs, (query, key), from products of heads with heads.

    mixing: (head, query, key). outputs: (head, key, hidden). The vectors themselves would be query x key x hidden.
    """
    # Where heads cancel, little is left of large products: in single precision it would be noise.
    device = mixing.device
    if device.type == "mps":  # which has no float64
        mixing, outputs = mixing.cpu(), outputs.cpu()
    gram = torch.einsum("hkd,gkd->khg", outputs.double(), outputs.double())
    weights = mixing.double().permute(2, 1, 0).contiguous()  # (key, query, head)
    squares = ((weights @ gram) * weights).sum(-1).T
    norms = squares.clamp(min=0).sqrt()
    return norms.float().to(device) if device.type == "mps" else norms


def _norms(traced: LayerTrace, after: Sequence[nn.Module], spread: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Lengths (query, key), residual included, and the mixing ratio (query,).

    after: the layer norms that follow. spread: (query,), what they divide by.
    """
    outputs, stays = _linear_part(after, traced.head_outputs), _linear_part(after, traced.input_states)
    norms = _summed_norms(traced.gated_probs, outputs)
    own = torch.einsum("hq,hqd->qd", traced.gated_probs.diagonal(dim1=1, dim2=2), outputs)
    kept = (own + stays).norm(dim=-1)
    norms.diagonal().copy_(kept)
    dense = traced.layer.attention.output.dense
    others = (_linear_part(after, F.linear(traced.merged_context, dense.weight)) - own).norm(dim=-1)
    return as_array(norms / spread[:, None]), as_array(others / (others + kept))


def _maps(encoding: Encoding, method: str, norms: Sequence[tuple[np.ndarray, np.ndarray]]) -> TokenMaps:
    maps, mixing = (np.stack(of_layers) for of_layers in zip(*norms, strict=True))
    return TokenMaps(encoding, method, maps, residual=True, mixing=mixing)


def _linear_part(norms: Sequence[nn.Module], vectors: Tensor) -> Tensor:
    """Layer norms in turn, without division and bias: centred, times the weights, (..., hidden)."""
    for norm in norms:
        if isinstance(norm, nn.LayerNorm):
            vectors = (vectors - vectors.mean(-1, keepdim=True)) * norm.weight
    return vectors


def _spread(states: Tensor, norm: nn.Module) -> Tensor:
    """What a layer norm divides by, (...,) for states (..., hidden); where a layer was taken out there is none."""
    if not isinstance(norm, nn.LayerNorm):
        return torch.ones_like(states[..., 0])
    return (states.var(-1, unbiased=False) + norm.eps).sqrt()


# ---------------------------------------------------------------------------- the vectors carried to the end


@validate_arguments
@torch.no_grad()
def decompx(
    loaded: LoadedModel, encoding: Encoding, target: Target, *, head_mask: np.ndarray | None = None
) -> Attribution:
    """Every token's part of a target's logit: one vector a token, carried through every layer and the head.

    head_mask: as for `capture`.
    Signed; the parts sum to the logit, and `gap` is by how much rounding makes them miss it. Of a word the logit is
    explained and not the log-probability: that depends on all other words too (a contrast says it of two). Layer norms
    and activations are taken as the multiplications they come to on this text; each bias is shared out among the tokens
    by the size of its products with their vectors, which is a choice; so is the length of a text's vector, where it is
    asked what makes two texts alike.
    Raises Refused for a target that the model has no trained head for, or where the vectors do not fit in memory.
    Source: Modarressi 2023, section 3 (arXiv:2306.02873).
    """
    check_target(loaded, encoding, target)
    head = head_of(target)
    if target.other is None and head.linear_path(loaded, target, 0) is None:
        raise Refused(f"DecompX does not support the head {head.name!r}: choose another method")
    length, layers = len(encoding), loaded.config.num_hidden_layers
    check_memory(loaded, "DecompX", length, decomposition_bytes(loaded, length), "integrated gradients")
    vectors = torch.diag_embed(embed_text(loaded, encoding)[0].T).permute(1, 2, 0).contiguous()
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        asked = target.rows if number == layers - 1 else range(length)
        vectors, leaving = _through_layer(traced, vectors, asked)
    other = reference_vector(loaded, target)
    if other is not None:
        # Each token's part of the vector, along that of the other text.
        vector = loaded.effective_pooling.pool(leaving)
        along = F.normalize(other[0], dim=-1) / vector.norm()
        parts = torch.einsum("rh,rth,h->t", loaded.effective_pooling.weights(leaving), vectors, along)
        return Attribution(
            encoding, target, "DecompX", as_array(parts), (vector @ along).item(), signed=True, complete=True
        )
    # Of several pieces, and the two ends of an answer, each has its own row, and its own path through the head.
    paths = [head.linear_path(loaded, target, row) for row in range(len(target.rows))]
    ends = [_through_head(*end) for end in zip(paths, vectors, leaving, strict=True)]
    parts, logit = (torch.stack(found).sum(0) for found in zip(*ends, strict=True))
    if target.target_kind.mean:
        parts, logit = parts / len(ends), logit / len(ends)
    return Attribution(encoding, target, "DecompX", as_array(parts), logit.item(), signed=True, complete=True)


def _through_layer(traced: LayerTrace, vectors: Tensor, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What leaves a layer at the positions asked for: the tokens' vectors (some, token, hidden), and their sum.

    vectors: (seq, token, hidden), what enters.
    """
    attention, layer, mixing = traced.layer.attention, traced.layer, traced.gated_probs
    length, hidden = len(vectors), vectors.shape[-1]
    heads, size = len(traced.value), attention.self.attention_head_size
    values = F.linear(vectors, attention.self.value.weight).view(length, length, heads, size)
    # The bias of the values arrives as often as a row of attention says: its sum is its head's gate, less what is cut.
    of_values = mixing.sum(-1).T[..., None] * attention.self.value.bias.view(heads, size)
    bias = attention.output.dense(of_values.flatten(1))  # (query, hidden)
    slope = _slope(layer.intermediate.activate, layer.intermediate.dense(traced.after_attention))
    attended, summed = traced.attention_sum, traced.feed_forward_update + traced.after_attention
    leaving = vectors.new_empty(len(positions), length, hidden)
    together = max(1, BYTES_AT_ONCE // (2 * 4 * length * max(1, layer.intermediate.dense.out_features)))
    for first in range(0, len(positions), together):
        some = list(positions[first : first + together])
        mixed = torch.einsum("hqj,jthd->qthd", mixing[:, some], values).flatten(2)
        mixed = _with_bias(F.linear(mixed, attention.output.dense.weight), bias[some])
        mixed = _through_norm(attention.output.LayerNorm, mixed + vectors[some], attended[some])
        inner = _with_bias(F.linear(mixed, layer.intermediate.dense.weight), layer.intermediate.dense.bias)
        inner = F.linear(inner.mul_(slope[some, None]), layer.output.dense.weight)
        inner = _with_bias(inner, layer.output.dense.bias) + mixed
        leaving[first : first + together] = _through_norm(layer.output.LayerNorm, inner, summed[some])
    return leaving, layer.output.LayerNorm(summed[list(positions)])


def _through_head(path: LinearPath | None, vectors: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Each token's part of the logit (token,), and the logit.

    vectors: (token, hidden), at one of the target's rows. row: (hidden,), their sum as the model has it.
    """
    assert path is not None  # it was checked for the first row
    for dense, activation, norm in path.stages:
        vectors, row = _through_dense(dense, activation, vectors, row)
        if norm is not None:
            vectors, row = _through_norm(norm, vectors[None], row[None])[0], norm(row)
    parts = _with_bias((vectors @ path.weight)[None, :, None], path.bias[None])[0, :, 0]
    return parts, row @ path.weight + path.bias


def _through_dense(
    dense: nn.Linear, activation: Callable[[Tensor], Tensor], vectors: Tensor, row: Tensor
) -> tuple[Tensor, Tensor]:
    """vectors: (token, hidden). row: (hidden,), their sum."""
    before = dense(row)
    parts = _with_bias(F.linear(vectors, dense.weight)[None], dense.bias)[0]
    return parts * _slope(activation, before), activation(before)


def _through_norm(norm: nn.Module, vectors: Tensor, summed: Tensor) -> Tensor:
    """vectors: (some, token, hidden). summed: (some, hidden), their sum as the model has it."""
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
    return _with_bias(_linear_part([norm], vectors) / _spread(summed, norm)[:, None, None], bias)


def _with_bias(vectors: Tensor, bias: Tensor | None) -> Tensor:
    """Vectors with a bias, if there is one, shared out among them by the size of its products with them.

    vectors: (some, token, width). bias: (width,) or (some, width).
    """
    if bias is None:
        return vectors
    bias = bias.expand(len(vectors), -1)
    sizes = torch.einsum("std,sd->st", vectors, bias).abs()
    total = sizes.sum(-1, keepdim=True)
    shares = torch.where(total > 0, sizes / total, 1 / vectors.shape[1])
    return torch.addcmul(vectors, shares[..., None], bias[:, None])


def _slope(activation: Callable[[Tensor], Tensor], before: Tensor) -> Tensor:
    """What an activation multiplies by, act(x) / x, and at 0 its limit there: GELU 1/2, tanh 1."""
    near = torch.where(before == 0, 1e-6, before)
    return activation(near) / near

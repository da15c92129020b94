"""Attention knockout of every attention edge of a head, and of an edge of a contribution graph and random edges.

Edges are blocked one at a time, in a few batches. The layers below an edge are not computed again. In its layer only
the query position changes, and the last layer is computed only at the positions that the target needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import gather_positions
from bert_core.config import check_head_exists
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import ContributionGraph, EdgeKnockout, Target
from bert_core.refused import Refused, require_float, require_int, require_sequence, short_repr, validate_arguments
from bert_core.run.inputs import layer_gates
from bert_core.run.memory import copies_per_batch
from bert_core.run.stack import LayerTrace, encoder_layers, run_layers, run_variants, trace_text
from bert_core.run.targets import check_target, target_rows, target_values
from bert_core.tokenizer import Encoding


@validate_arguments
@torch.no_grad()
def knock_out_edges(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    layer: int,
    head: int,
    *,
    renormalised: bool = True,
    head_mask: np.ndarray | None = None,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> np.ndarray:
    """Compute a target with each attention edge of a head blocked in turn.

    Each value equals that of a model with an `AttentionKnockout` of this query and key. An edge outside the window of a
    local layer has no attention, so that blocking it changes nothing.
    target: the value to compute. layer, head: the head, counted from zero.
    renormalised: as for `AttentionKnockout`. head_mask: as for `capture`. batch_tokens: as for `patch`.
    report: receives the number of edges that are done, see `Progress`.
    Returns float64 (query, key). With renormalisation, an edge is NaN if no other key of its row has any attention.
    Raises Refused for a head that does not exist or was pruned, for a head with blocked edges, and for a target without
    a trained head.
    """
    check_target(loaded, encoding, target)
    config, tokens = loaded.config, len(encoding)
    check_head_exists(config, layer, head)
    module = loaded.model.attention_modules[layer]
    if any(cut.heads is None or head in cut.heads for cut in module.knockouts):
        raise Refused(f"L{layer} H{head} has blocked attention edges: remove the attention knockout of this head first")
    traced = next(islice(trace_text(loaded, encoding, head_mask), layer, None))
    layers, gates = encoder_layers(loaded), layer_gates(loaded, head_mask)
    needed_rows = torch.tensor([target_rows(loaded, encoding, target)], device=loaded.device)
    values = np.empty(tokens * tokens)
    cells = torch.arange(tokens * tokens, device=loaded.device)
    for batch in cells.split(min(len(cells), copies_per_batch(batch_tokens, loaded.device, tokens))):  # type: ignore[no-untyped-call]
        queries, keys = batch // tokens, batch % tokens
        states = traced.output_states.repeat(len(batch), 1, 1)
        rows = _rows_without_edges(traced, [module.heads.index(head)], queries, keys, renormalised=renormalised)
        states[torch.arange(len(batch)), queries] = rows
        states = run_layers(layers, states, layer + 1, gates=gates, positions=needed_rows)
        values[batch.cpu().numpy()] = target_values(loaded, encoding, target, states).cpu().double().numpy()
        report_count(report, int(batch[-1]) + 1, len(cells), "attention edges")
    return values.reshape(tokens, tokens)


def _rows_without_edges(
    traced: LayerTrace, head_indices: Sequence[int], queries: Tensor, keys: Tensor, *, renormalised: bool
) -> Tensor:
    """Compute the output of a layer at the query of each blocked edge, (edge, hidden).

    head_indices: the indices of the heads among the remaining heads of the layer. queries, keys: (edge,).
    """
    layer, attention, heads = traced.layer, traced.layer.attention, list(head_indices)
    probs = traced.gated_probs[heads][:, queries]  # (head, edge, key)
    gate = probs.sum(-1, keepdim=True)
    probs[:, torch.arange(len(keys)), keys] = 0
    if renormalised:
        # The row of a head that is switched off stays zero.
        probs = torch.where(gate > 0, probs * (gate / probs.sum(-1, keepdim=True)), probs)
    change = probs @ traced.value[heads] - traced.context[heads][:, queries]  # (head, edge, head size)
    update = torch.einsum("hes,dhs->ed", change, attention.head_projections[:, heads])
    attention_sum = traced.attention_sum[queries] + update
    output: Tensor = layer.feed_forward_chunk(attention.output.LayerNorm(attention_sum)[None])[0]
    return output


# ---------------------------------------------------------------------------- edges of a contribution graph


@validate_arguments
@torch.no_grad()
def knock_out_graph_edge(
    loaded: LoadedModel,
    graph: ContributionGraph,
    target: Target,
    layer: int,
    query: int,
    key: int,
    *,
    heads: Sequence[int] | None = None,
    random_edges: int = 40,
    tolerance: float = 0.25,
    seed: int = 0,
    renormalised: bool = True,
    head_mask: np.ndarray | None = None,
    report: Progress = ignore_progress,
) -> EdgeKnockout:
    """Compute a target with the attention of one edge of a contribution graph blocked, and with random edges blocked.

    graph: of the text, from `contribution_graph`, which gives the size of each edge: the share that the heads carry.
    target: the value to compute. layer, query, key: the edge. An edge from a position to itself keeps its residual
        connection.
    heads: the heads of the layer that are blocked; None: all.
    random_edges: largest number of random edges, with the same heads, whose size differs by at most `tolerance` times
        that of the edge. Those of the same layer come first, then those of other layers. In the last layer, only
        queries that the target reads count.
    seed: random seed. renormalised: as for `AttentionKnockout`. head_mask: as for `capture`, that of the graph.
    report: receives the number of edges that are done, see `Progress`.
    Raises Refused for an edge that does not exist or of which the heads carry no share, for a head that does not exist
    or was pruned, for an edge that is all of the attention of its query, and for a target without a trained head.
    Source: the knockout of an edge, Geva 2023, section 3 (arXiv:2304.14767).

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "door")
    >>> graph = bert_core.contribution_graph(loaded, encoding)
    >>> knockout = bert_core.knock_out_graph_edge(loaded, graph, target, 3, 4, 2)
    >>> knockout.effect < 0  # without attention from [MASK] to "opened"
    True
    """
    encoding = graph.encoding
    check_target(loaded, encoding, target)
    graph.check_edge(layer, query, key)
    random_edges, seed = require_int("the number of random edges", random_edges), require_int("the seed", seed)
    tolerance = require_float("the tolerance", tolerance, 0)
    if heads is not None:
        heads = tuple(require_int("a head", head) for head in require_sequence("heads", heads, "whole numbers"))
        for head in heads:
            check_head_exists(loaded.config, layer, head)
        if len(set(heads)) < len(heads):
            raise Refused(f"the heads are {short_repr(heads)}: they must be different")
    sizes = graph.head_shares[:, slice(None) if heads is None else list(heads)].sum(1, dtype=np.float64)
    size = float(sizes[layer, query, key])
    if size <= 0:
        raise Refused(
            f"the heads carry no share of the edge from position {query} to position {key} in layer {layer}: "
            "choose an edge with a share"
        )
    rows = target_rows(loaded, encoding, target)
    candidates = np.abs(sizes - size) <= tolerance * size
    candidates[layer, query, key] = False
    candidates[-1, np.setdiff1d(np.arange(len(encoding)), rows)] = False
    candidate_edges = np.random.default_rng(seed).permutation(np.argwhere(candidates))
    is_other_layer = candidate_edges[:, 0] != layer
    sampled = candidate_edges[np.argsort(is_other_layer, kind="stable")][:random_edges]
    edges = np.concatenate([[[layer, query, key]], sampled])
    base_value, values = _values_without_edges(
        loaded, encoding, target, edges, heads, renormalised=renormalised, head_mask=head_mask, report=report
    )
    if np.isnan(values[0]):
        raise Refused(
            f"position {query} attends to no other position than {key} in layer {layer}: "
            "set renormalised to False to block this edge"
        )
    is_possible = ~np.isnan(values[1:])
    return EdgeKnockout(
        encoding, target, layer, query, key, heads, size, base_value, float(values[0]),
        sampled[is_possible], values[1:][is_possible],
    )  # fmt: skip


def _values_without_edges(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    edges: np.ndarray,
    heads: tuple[int, ...] | None,
    *,
    renormalised: bool,
    head_mask: np.ndarray | None,
    report: Progress,
) -> tuple[float, np.ndarray]:
    """Compute a target, and its values with each edge (edge, 3) blocked in turn, (edge,) float64.

    heads: the heads of the layer of each edge that are blocked, those that remain; None: all.
    """
    layers, gates = encoder_layers(loaded), layer_gates(loaded, head_mask)
    needed_rows = torch.tensor([target_rows(loaded, encoding, target)], device=loaded.device)
    order = np.argsort(edges[:, 0], kind="stable")
    sorted_edges = edges[order]
    outputs: dict[int, Tensor] = {}  # layer -> its output
    rows: list[Tensor] = []  # (edge of a layer, hidden), the rows of the queries without their edges
    for number, traced in enumerate(trace_text(loaded, encoding, head_mask)):
        outputs[number] = traced.output_states
        pairs = torch.from_numpy(sorted_edges[sorted_edges[:, 0] == number, 1:]).to(loaded.device)
        remaining = list(traced.layer.attention.self.heads)
        indices = [index for index, head in enumerate(remaining) if heads is None or head in heads]
        if len(pairs):
            rows.append(_rows_without_edges(traced, indices, *pairs.unbind(1), renormalised=renormalised))
    replaced_rows, queries = torch.cat(rows), torch.from_numpy(sorted_edges[:, 1]).to(loaded.device)

    def start_variants(layer_count: int, variants: range) -> Tensor:
        states = outputs[layer_count - 1].repeat(len(variants), 1, 1)
        selected = slice(variants.start, variants.stop)
        states[torch.arange(len(variants)), queries[selected]] = replaced_rows[selected]
        return states if layer_count < len(layers) else run_layers(layers, states, layer_count, positions=needed_rows)

    values = np.empty(len(edges))
    copies = copies_per_batch(None, loaded.device, len(encoding))
    starts = (sorted_edges[:, 0] + 1).tolist()
    for variants, states in run_variants(layers, starts, start_variants, copies, gates=gates, positions=needed_rows):
        values[order[variants.start : variants.stop]] = (
            target_values(loaded, encoding, target, states).cpu().double().numpy()
        )
        report_count(report, variants.stop, len(edges), "attention edges")
    last = gather_positions(outputs[len(layers) - 1][None], needed_rows)
    return float(target_values(loaded, encoding, target, last)[0]), values

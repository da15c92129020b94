"""Attention knockout of every attention edge of a head, one edge at a time, in a few batches.

The layers below the head are not computed again. In the layer of the head only the query position changes, and the last
layer is computed only at the positions that the target needs.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch
from torch import Tensor

from bert_core.config import check_head_exists
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import Target
from bert_core.refused import Refused, validate_arguments
from bert_core.run.inputs import layer_gates
from bert_core.run.memory import copies_per_batch
from bert_core.run.stack import LayerTrace, encoder_layers, run_layers, trace_text
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
        rows = _rows_without_edges(traced, module.heads.index(head), queries, keys, renormalised=renormalised)
        states[torch.arange(len(batch)), queries] = rows
        states = run_layers(layers, states, layer + 1, gates=gates, positions=needed_rows)
        values[batch.cpu().numpy()] = target_values(loaded, encoding, target, states).cpu().double().numpy()
        report_count(report, int(batch[-1]) + 1, len(cells), "attention edges")
    return values.reshape(tokens, tokens)


def _rows_without_edges(
    traced: LayerTrace, head_index: int, queries: Tensor, keys: Tensor, *, renormalised: bool
) -> Tensor:
    """Compute the output of a layer at the query of each blocked edge, (edge, hidden).

    head_index: the index of the head among the remaining heads of the layer. queries, keys: (edge,).
    """
    layer, attention = traced.layer, traced.layer.attention
    probs = traced.gated_probs[head_index, queries]  # (edge, key)
    gate = probs.sum(-1, keepdim=True)
    probs[torch.arange(len(keys)), keys] = 0
    if renormalised:
        # The row of a head that is switched off stays zero.
        probs = torch.where(gate > 0, probs * (gate / probs.sum(-1, keepdim=True)), probs)
    change = probs @ traced.value[head_index] - traced.context[head_index, queries]
    attention_sum = traced.attention_sum[queries] + change @ attention.head_projections[:, head_index].T
    output: Tensor = layer.feed_forward_chunk(attention.output.LayerNorm(attention_sum)[None])[0]
    return output

"""Every arrow of a head cut by itself: what the model then says, all of them in a few batches.

Below the head's layer nothing changes, in the layer only the token that looks, and the last layer is computed only
where somebody reads it.
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
from bert_core.run.targets import check_target, target_values
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
    """The target with each arrow of a head cut, one at a time: what `Cut` of that query and key gives.

    renormalised: as for `Cut`. head_mask: as for `capture`. batch_tokens: as for `patch`. report: told how many
    arrows are done, as for `Progress`.
    Returns float64 (query, key), the target's values; NaN where no other key has any weight, and it is renormalised.
    Raises Refused for a head that does not exist, or not any more, one of which arrows are cut already, and a target
    that the model has no trained head for.
    """
    check_target(loaded, encoding, target)
    config, tokens = loaded.config, len(encoding)
    check_head_exists(config, layer, head)
    module = loaded.model.attention_modules[layer]
    if any(cut.heads is None or head in cut.heads for cut in module.knockouts):
        raise Refused(f"arrows of L{layer} H{head} are cut already: each arrow is cut from a head that is whole")
    traced = next(islice(trace_text(loaded, encoding, head_mask), layer, None))
    layers, gates = encoder_layers(loaded), layer_gates(loaded, head_mask)
    asked = torch.tensor([target.rows], device=loaded.device)
    values = np.empty(tokens * tokens)
    cells = torch.arange(tokens * tokens, device=loaded.device)
    for some in cells.split(min(len(cells), copies_per_batch(batch_tokens, loaded.device, tokens))):  # type: ignore[no-untyped-call]
        queries, keys = some // tokens, some % tokens
        states = traced.output_states.repeat(len(some), 1, 1)
        rows = _rows_without(traced, module.heads.index(head), queries, keys, renormalised=renormalised)
        states[torch.arange(len(some)), queries] = rows
        states = run_layers(layers, states, layer + 1, gates=gates, positions=asked)
        values[some.cpu().numpy()] = target_values(loaded, target, states).cpu().double().numpy()
        report_count(report, int(some[-1]) + 1, len(cells), "arrows")
    return values.reshape(tokens, tokens)


def _rows_without(traced: LayerTrace, place: int, queries: Tensor, keys: Tensor, *, renormalised: bool) -> Tensor:
    """The rows that leave a layer when some arrows of one head are cut, each by itself: (arrow, hidden).

    place: of the head among those that the layer has. queries, keys: (arrow,).
    """
    layer, attention = traced.layer, traced.layer.attention
    mixing = traced.gated_probs[place, queries]  # (arrow, key)
    before = mixing.sum(-1, keepdim=True)  # the gate of the head
    mixing[torch.arange(len(keys)), keys] = 0
    if renormalised:
        # Nothing is left to grow of a head that is off, either.
        mixing = torch.where(before > 0, mixing * (before / mixing.sum(-1, keepdim=True)), mixing)
    change = mixing @ traced.value[place] - traced.context[place, queries]
    summed = traced.attention_sum[queries] + change @ attention.head_projections[:, place].T
    left: Tensor = layer.feed_forward_chunk(attention.output.LayerNorm(summed)[None])[0]
    return left

"""Every arrow of a head cut by itself: what the model then says, all of them in a few batches.

Below the head's layer nothing changes, in the layer only the token that looks, and the last layer is computed only
where somebody reads it.
"""

from __future__ import annotations

from itertools import islice
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import rows_at
from bert_core.config import check_head_there
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.progress import Progress, counted, silent
from bert_core.records import Target
from bert_core.refused import Refused, checked
from bert_core.run.inputs import gate_tensor
from bert_core.run.memory import copies_within
from bert_core.run.passes import LayerPass, layer_passes
from bert_core.run.targets import check_target, target_values
from bert_core.tokenizer import Encoding


@checked
@torch.no_grad()
def cut_each(
    loaded: LoadedModel,
    encoding: Encoding,
    target: Target,
    layer: int,
    head: int,
    *,
    renormalised: bool = True,
    head_mask: np.ndarray | None = None,
    batch_tokens: int | None = None,
    report: Progress = silent,
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
    check_head_there(config, layer, head)
    module = loaded.model.attention_modules[layer]
    if any(cut.heads is None or head in cut.heads for cut in module.cuts):
        raise Refused(f"arrows of L{layer} H{head} are cut already: each arrow is cut from a head that is whole")
    one = next(islice(layer_passes(loaded, encoding, head_mask), layer, None))
    whole = one.layer.feed_forward_chunk(one.normed[None])  # what leaves the layer, (1, seq, hidden)
    rows = _RowsWithout(one, module.heads.index(head), renormalised=renormalised)
    gates = loaded.model.bert.get_head_mask(gate_tensor(loaded, head_mask), 1)
    asked = torch.tensor([target.rows], device=loaded.device)
    values = np.empty(tokens * tokens)
    cells = torch.arange(tokens * tokens, device=loaded.device)
    for some in cells.split(min(len(cells), copies_within(batch_tokens, loaded.device, tokens))):  # type: ignore[no-untyped-call]
        states = whole.repeat(len(some), 1, 1)
        states[torch.arange(len(some)), some // tokens] = rows(some // tokens, some % tokens)
        positions = asked.expand(len(some), -1)
        for number in range(layer + 1, config.num_hidden_layers):
            above = cast("BertLayer", loaded.model.bert.encoder.layer[number])
            last = number == config.num_hidden_layers - 1
            gate = None if gates is None else gates[number]
            states = above(states, None, gate, positions=positions if last else None).hidden_states
        if layer == config.num_hidden_layers - 1:
            states = rows_at(states, positions)
        values[some.cpu().numpy()] = target_values(loaded, target, states).cpu().double().numpy()
        counted(report, int(some[-1]) + 1, len(cells), "arrows")
    return values.reshape(tokens, tokens)


class _RowsWithout:
    """The rows that leave a layer when some arrows of one head are cut, each by itself: (arrow, hidden).

    place: of the head among those that the layer has. queries, keys: (arrow,).
    """

    def __init__(self, one: LayerPass, place: int, *, renormalised: bool) -> None:
        self.one, self.renormalised = one, renormalised
        size = one.values.shape[-1]
        self.mixing, self.values = one.mixing[place], one.values[place]  # (query, key), (key, head size)
        self.context = one.context[:, place * size : (place + 1) * size]  # (query, head size)
        self.columns = one.layer.attention.output.dense.weight[:, place * size : (place + 1) * size]
        self.summed = one.summed

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        mixed = self.mixing[queries].clone()
        before = mixed.sum(-1, keepdim=True)  # the gate of the head
        mixed[torch.arange(len(keys)), keys] = 0
        if self.renormalised:
            # Nothing is left to grow of a head that is off, either.
            mixed = torch.where(before > 0, mixed * (before / mixed.sum(-1, keepdim=True)), mixed)
        change = (mixed @ self.values - self.context[queries]) @ self.columns.T
        summed = self.summed[queries] + change
        layer = self.one.layer
        left: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(summed)[None])[0]
        return left

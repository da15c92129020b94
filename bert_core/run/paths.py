"""Path patching: the effect of one head on others through the direct path of the residual stream alone.

All heads and feed-forward networks between the two keep their outputs. Only the layer norms on the path are recomputed,
since each of them divides by the standard deviation of its whole input. The path itself needs no matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import gather_positions
from bert_core.config import check_head_exists, head_pairs
from bert_core.deprecation import renamed_parameters
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import MeanOf, Noised, Paths, Target
from bert_core.refused import Refused, short_repr, validate_arguments
from bert_core.run.memory import copies_per_batch
from bert_core.run.patch_sources import trace_source
from bert_core.run.patching import aligned_source, attention_probabilities, plan_patches
from bert_core.run.stack import Trace, encoder_layers, run_layers
from bert_core.run.targets import target_values
from bert_core.tokenizer import Encoding

RECEIVER_INPUTS = ("query", "key", "value")
Head = tuple[int, int]


@renamed_parameters(through="receiver_input")
@validate_arguments
@torch.no_grad()
def patch_path(
    loaded: LoadedModel,
    source: Encoding | Noised | MeanOf,
    encoding: Encoding | Noised,
    target: Target,
    senders: Sequence[Head] | None = None,
    receivers: Sequence[Head] | None = None,
    *,
    receiver_input: str | None = None,
    align: str = "tokens",
    head_mask: np.ndarray | None = None,
    batch_tokens: int | None = None,
    report: Progress = ignore_progress,
) -> Paths:
    """Replace the output of each sender by that of a source, on the direct path to the receivers, and compute a target.

    The change of the sender's output is added to the residual stream and propagated to the receivers. All other heads
    and all feed-forward networks on the way keep the outputs that they have for the text, and the layer norms are
    recomputed. All receivers are then patched at once with what they compute from this input, and the layers above run
    as usual.
    source, encoding, target, align, head_mask, batch_tokens: as for `patch`.
    senders: heads (layer, head); None: all heads below the highest receiver.
    receivers: heads (layer, head); None: the output of the last layer, from which the target is computed. This gives
        the direct effect of each sender.
    receiver_input: the input of the receivers that is patched: "query", "key" or "value"; None: all three.
    report: receives the number of senders that are done, see `Progress`. Thread-safe: the model is not changed.
    Raises Refused as `patch`, for a head that does not exist or was pruned, for an empty list of heads, and for a
    sender that is below no receiver.
    Source: path patching, Goldowsky-Dill 2023 (arXiv:2304.05969); Wang 2022, appendix B (arXiv:2211.00593), who let the
    feed-forward networks on the path respond.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encode = loaded.tokenizer.encode
    >>> source, encoding = encode("The woman lost [MASK] hat."), encode("The man lost [MASK] hat.")
    >>> target = bert_core.word_target(loaded.tokenizer, encoding, "her", against="his")
    >>> paths = bert_core.patch_path(loaded, source, encoding, target)  # to the output of the model
    >>> bert_core.leading_heads(paths.effects, 1)
    [(5, 8)]
    """
    if receiver_input is not None and receiver_input not in RECEIVER_INPUTS:
        raise Refused(
            f"receiver_input {short_repr(receiver_input)} is unknown: one of {', '.join(RECEIVER_INPUTS)}, or None for "
            "all three"
        )
    if receivers is None and receiver_input is not None:
        raise Refused(
            f"receiver_input is {short_repr(receiver_input)} without receivers: give receivers, or leave it at None"
        )
    plan = plan_patches(loaded, source, encoding, target, "head", False, None, None, align, head_mask)
    layer_count = loaded.config.num_hidden_layers
    receiver_heads = None if receivers is None else _sorted_heads(loaded, "receivers", receivers)
    highest_layer = layer_count if receiver_heads is None else receiver_heads[-1][0]
    lower_heads = [head for head in _existing_heads(loaded) if head[0] < highest_layer]
    sender_heads = lower_heads if senders is None else _sorted_heads(loaded, "senders", senders)
    if not sender_heads:
        raise Refused("no head is below the receivers: senders must be in lower layers than a receiver")
    if sender_heads[-1][0] >= highest_layer:
        layer, head = sender_heads[-1]
        raise Refused(f"L{layer} H{head} is below no receiver: senders must be in lower layers than a receiver")
    text_trace = trace_source(loaded, encoding, len(encoding), plan.layer_gates)
    source_trace, source_value = aligned_source(loaded, source, target, text_trace, plan)
    rows = torch.tensor([plan.target_rows], device=loaded.device)
    runner = PathRunner(loaded, text_trace, source_trace, plan.layer_gates)
    values = np.full(plan.head_mask.shape, np.nan)
    senders_per_batch = copies_per_batch(batch_tokens, loaded.device, len(encoding))
    for first in range(0, len(sender_heads), senders_per_batch):
        batch = sender_heads[first : first + senders_per_batch]
        if receiver_heads is None:
            states = gather_positions(runner.direct_states(batch, [layer_count])[layer_count], rows)
        else:
            direct_states = runner.direct_states(batch, [layer for layer, _ in receiver_heads])
            states = runner.run_remaining_layers(
                direct_states, receiver_heads, RECEIVER_INPUTS if receiver_input is None else (receiver_input,), rows
            )
        values[tuple(np.transpose(batch))] = target_values(loaded, plan.text, target, states).cpu().double().numpy()
        report_count(report, first + len(batch), len(sender_heads), "senders")
    return Paths(
        encoding=encoding,
        source=source,
        partners=plan.partners,
        target=target,
        receivers=None if receiver_heads is None else tuple(receiver_heads),
        receiver_input=receiver_input,
        values=values,
        base_value=target_values(loaded, plan.text, target, text_trace.last[:, plan.target_rows]).item(),
        source_value=source_value,
        head_mask=plan.head_mask,
    )


class PathRunner:
    """Passes along the direct paths from senders to receivers; each sender is a row of the batch."""

    def __init__(self, loaded: LoadedModel, text_trace: Trace, source_trace: Trace, gates: Tensor | None) -> None:
        self.layers, self.gates = encoder_layers(loaded), gates
        self.text_trace, self.source_trace = text_trace, source_trace

    def direct_states(self, senders: Sequence[Head], layers: Sequence[int]) -> dict[int, Tensor]:
        """Compute the inputs of some layers with only the direct path of each sender changed.

        layers: numbers of the layers; the number of layers stands for the output of the last one.
        Returns (sender, seq, hidden) for each of them. The input of layer 0 is unchanged, since no sender is below it.
        """
        states = self.text_trace.states[0].repeat(len(senders), 1, 1)
        inputs = {0: states} if 0 in layers else {}
        for number in range(max(layers)):
            layer = self.layers[number]
            text_layer, source_layer = self.text_trace.layers[number], self.source_trace.layers[number]
            attention_update = text_layer.attention_update.repeat(len(senders), 1, 1)
            for row, (sender_layer, head) in enumerate(senders):
                if sender_layer == number:
                    index = layer.attention.self.heads.index(head)
                    change = source_layer.context[0, index] - text_layer.context[0, index]
                    attention_update[row] += change @ layer.attention.head_projections[:, index].T
            states = layer.output.LayerNorm(
                text_layer.feed_forward_update + layer.attention.output.LayerNorm(attention_update + states)
            )
            if number + 1 in layers:
                inputs[number + 1] = states
        return inputs

    def run_remaining_layers(
        self, direct_states: dict[int, Tensor], receivers: Sequence[Head], inputs: Sequence[str], rows: Tensor
    ) -> Tensor:
        """Compute the output of the last layer with patched receivers, (sender, position, hidden).

        direct_states: the results of `direct_states` for the layers of the receivers. inputs: from `RECEIVER_INPUTS`.
        rows: (1, position), the positions at which the output is needed.
        """
        next_layer = receivers[0][0]
        states = self.text_trace.states[next_layer].expand(len(direct_states[next_layer]), -1, -1)
        for number, heads in groupby(receivers, key=itemgetter(0)):
            states = run_layers(self.layers, states, next_layer, number, gates=self.gates)
            states = self._with_receivers(number, states, direct_states[number], [head for _, head in heads], inputs)
            next_layer = number + 1
        return run_layers(self.layers, states, next_layer, gates=self.gates, positions=rows)

    def _with_receivers(
        self, number: int, states: Tensor, receiver_states: Tensor, heads: Sequence[int], inputs: Sequence[str]
    ) -> Tensor:
        """Run a layer in which some inputs of the given heads are computed from other states than the rest."""
        layer = self.layers[number]
        attention = layer.attention.self
        indices = [attention.heads.index(head) for head in heads]
        text_input, receiver_input = layer.attention_input(states), layer.attention_input(receiver_states)
        parts = {}
        for name in RECEIVER_INPUTS:
            projection = getattr(attention, name)
            parts[name] = attention.transpose_for_scores(projection(text_input)).clone()
            if name in inputs:
                parts[name][:, indices] = attention.transpose_for_scores(projection(receiver_input))[:, indices]
        context = attention_probabilities(attention, parts["query"], parts["key"]) @ parts["value"]
        if self.gates is not None:
            context = context * self.gates[number][:, list(attention.heads)]
        attention_update = layer.attention.output.dense(context.transpose(1, 2).flatten(2))
        output: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(attention_update + states))
        return output


def _existing_heads(loaded: LoadedModel) -> list[Head]:
    """Return all heads of a model that were not pruned, from the lowest layer to the highest."""
    return [(layer, head) for layer, module in enumerate(loaded.model.attention_modules) for head in module.heads]


def _sorted_heads(loaded: LoadedModel, name: str, items: Sequence[Head]) -> list[Head]:
    """Return the different heads in ascending order. Raises Refused for none, and for a head that does not exist."""
    heads = sorted(set(head_pairs(items)))
    if not heads:
        raise Refused(f"{name} is empty: give at least one head as (layer, head)")
    for layer, head in heads:
        check_head_exists(loaded.config, layer, head)
    return heads

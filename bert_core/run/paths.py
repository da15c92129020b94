"""Path patching: what reaches a head from another one by no other way than straight through the residual stream.

Between the two every head and every feed-forward network is held at what it was; only the LayerNorms on the way are
computed anew, as what they divide by is that of the whole sum. So the way itself takes no matrix at all.
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
    """Read a text while some heads hear, of one sender, its output in a source; for each sender by itself.

    The sender's output is put into the residual stream and carried up to the receivers with every other head and
    every feed-forward network between held at the text's own, and every LayerNorm computed anew. What the receivers
    then make of it takes the place of their own, all receivers at once, and everything after is computed as usual.
    senders: heads, (layer, head). None: all that are below a receiver. receivers: None: the answer itself, which reads
    what leaves the last layer; with nothing between, this is a head's direct effect.
    through: what of the receivers hears the sender: "query", "key" or "value"; None: all three.
    source, target, align, head_mask, batch_tokens: as for `patch`. report: told how many senders are
    done, as for `Progress`. Safe to call from many threads on one model.
    Raises Refused as `patch`, for a head that does not exist, or not any more, for no head, and for a sender that is
    below no receiver.
    Source: path patching, Goldowsky-Dill 2023 (arXiv:2304.05969); Wang 2022, appendix B (arXiv:2211.00593), who let the
    feed-forward networks between answer.
    """
    if receiver_input is not None and receiver_input not in RECEIVER_INPUTS:
        raise Refused(
            f"through {short_repr(receiver_input)} is unknown: one of {', '.join(RECEIVER_INPUTS)}, or nothing for all three"
        )
    if receivers is None and receiver_input is not None:
        raise Refused(
            f"through {short_repr(receiver_input)} is of a receiver: name receivers, or leave it out for the answer"
        )
    asked = plan_patches(loaded, source, encoding, target, "head", False, None, None, align, head_mask)
    top = loaded.config.num_hidden_layers
    hearing = None if receivers is None else _heads(loaded, "receivers", receivers)
    end = top if hearing is None else hearing[-1][0]
    below = [head for head in _there(loaded) if head[0] < end]
    sending = below if senders is None else _heads(loaded, "senders", senders)
    if not sending:
        raise Refused("no head is below the receivers: a head hears what the layers below it have written")
    if sending[-1][0] >= end:
        layer, head = sending[-1]
        raise Refused(f"L{layer} H{head} is below no receiver: a head hears what the layers below it have written")
    own = trace_source(loaded, encoding, len(encoding), asked.opened)
    other, source_value = aligned_source(loaded, source, target, own, asked)
    rows = torch.tensor([target.rows], device=loaded.device)
    runner = PathRunner(loaded, own, other, asked.opened)
    values, together = np.full(asked.gates.shape, np.nan), copies_per_batch(batch_tokens, loaded.device, len(encoding))
    for first in range(0, len(sending), together):
        some = sending[first : first + together]
        if hearing is None:
            states = gather_positions(runner.direct_states(some, [top])[top], rows)
        else:
            arrived = runner.direct_states(some, [layer for layer, _ in hearing])
            states = runner.run_remaining_layers(
                arrived, hearing, RECEIVER_INPUTS if receiver_input is None else (receiver_input,), rows
            )
        values[tuple(np.transpose(some))] = target_values(loaded, target, states).cpu().double().numpy()
        report_count(report, first + len(some), len(sending), "senders")
    return Paths(
        encoding=encoding,
        source=source,
        partners=asked.partners,
        target=target,
        receivers=None if hearing is None else tuple(hearing),
        through=receiver_input,
        values=values,
        base_value=target_values(loaded, target, own.last[:, target.rows]).item(),
        source_value=source_value,
        head_mask=asked.gates,
    )


class PathRunner:
    """The direct paths from some senders, and the passes of their receivers; each sender is a row of the batch."""

    def __init__(self, loaded: LoadedModel, own: Trace, other: Trace, gates: Tensor | None) -> None:
        self.layers, self.own, self.other, self.gates = encoder_layers(loaded), own, other, gates

    def direct_states(self, senders: Sequence[Head], to: Sequence[int]) -> dict[int, Tensor]:
        """What enters some layers by the direct path alone, each (sender, seq, hidden); number n is behind all n.

        No sender is below the first layer: the text's own embeddings enter it.
        """
        states = self.own.states[0].repeat(len(senders), 1, 1)
        arrived = {0: states} if 0 in to else {}
        for number in range(max(to)):
            layer, own, other = self.layers[number], self.own.layers[number], self.other.layers[number]
            attended = own.attention_update.repeat(len(senders), 1, 1)
            for row, (sent_from, head) in enumerate(senders):
                if sent_from == number:
                    place = layer.attention.self.heads.index(head)
                    change = other.context[0, place] - own.context[0, place]
                    attended[row] += change @ layer.attention.head_projections[:, place].T
            states = layer.output.LayerNorm(
                own.feed_forward_update + layer.attention.output.LayerNorm(attended + states)
            )
            if number + 1 in to:
                arrived[number + 1] = states
        return arrived

    def run_remaining_layers(
        self, arrived: dict[int, Tensor], receivers: Sequence[Head], through: Sequence[str], rows: Tensor
    ) -> Tensor:
        """The last layer where the answer is read, (sender, some, hidden), once the receivers heard what arrived."""
        done = receivers[0][0]
        states = self.own.states[done].expand(len(arrived[done]), -1, -1)
        for number, heads in groupby(receivers, key=itemgetter(0)):
            states = run_layers(self.layers, states, done, number, gates=self.gates)
            states = self._with_receivers(number, states, arrived[number], [head for _, head in heads], through)
            done = number + 1
        return run_layers(self.layers, states, done, gates=self.gates, positions=rows)

    def _with_receivers(
        self, number: int, states: Tensor, arrived: Tensor, heads: Sequence[int], through: Sequence[str]
    ) -> Tensor:
        """What leaves a layer of which some heads hear what arrived, and all else what really enters it."""
        layer = self.layers[number]
        attention = layer.attention.self
        places = [attention.heads.index(head) for head in heads]
        parts = {}
        for name in RECEIVER_INPUTS:
            makes = getattr(attention, name)
            parts[name] = attention.transpose_for_scores(makes(states)).clone()
            if name in through:
                parts[name][:, places] = attention.transpose_for_scores(makes(arrived))[:, places]
        context = attention_probabilities(attention, parts["query"], parts["key"]) @ parts["value"]
        if self.gates is not None:
            context = context * self.gates[number][:, list(attention.heads)]
        attended = layer.attention.output.dense(context.transpose(1, 2).flatten(2))
        left: Tensor = layer.feed_forward_chunk(layer.attention.output.LayerNorm(attended + states))
        return left


def _there(loaded: LoadedModel) -> list[Head]:
    """All heads that the model still has, from below."""
    return [(layer, head) for layer, module in enumerate(loaded.model.attention_modules) for head in module.heads]


def _heads(loaded: LoadedModel, name: str, given: Sequence[Head]) -> list[Head]:
    """These heads from below, each once. Raises Refused for none, and for one that is not there."""
    heads = sorted(set(head_pairs(given)))
    if not heads:
        raise Refused(f"{name} are none: name at least one head, as (layer, head)")
    for layer, head in heads:
        check_head_exists(loaded.config, layer, head)
    return heads

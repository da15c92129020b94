"""One text through the encoder layer by layer, with what is inside each; and how much of that fits at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.run.capture import gate_tensor, segments_of
from bert_core.tokenizer import Encoding

TOKENS_AT_ONCE = 4096  # of all copies of a text together: more only fall out of the processor's cache
BYTES_AT_ONCE = 256 * 2**20  # for what a backward pass needs of all copies together


@dataclass(frozen=True)
class LayerPass:
    """A layer and what went through it, for one text.

    entering: (seq, hidden). values: (head, key, head size).
    mixing: (head, query, key), attention times the gate of its head. context: (seq, heads * head size), gated.
    """

    layer: BertLayer
    entering: Tensor
    values: Tensor
    mixing: Tensor
    context: Tensor

    @property
    def summed(self) -> Tensor:
        """What the norm after attention takes: output projection and residual, (seq, hidden)."""
        projected: Tensor = self.layer.attention.output.dense(self.context)
        return projected + self.entering

    @property
    def normed(self) -> Tensor:
        """What the feed-forward network takes, (seq, hidden)."""
        normed: Tensor = self.layer.attention.output.LayerNorm(self.summed)
        return normed

    @property
    def head_outputs(self) -> Tensor:
        """Each head's value vectors through its part of the output projection, f_h(x_j): (head, key, hidden)."""
        weight = self.layer.attention.output.dense.weight
        columns = weight.view(len(weight), len(self.values), self.values.shape[-1])  # (hidden, head, head size)
        return torch.einsum("hkd,ohd->hko", self.values, columns)


@torch.no_grad()
def layer_passes(loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None = None) -> Iterator[LayerPass]:
    """Every layer from the bottom up; nothing is written to the model, and nothing is kept that is not asked for.

    head_mask: as for `capture`.
    """
    bert, config = loaded.model.bert, loaded.config
    gates = gate_tensor(loaded, head_mask)
    states = embedded(loaded, encoding)
    opened = bert.get_head_mask(gates, 1)
    for number in range(config.num_hidden_layers):
        layer = cast("BertLayer", bert.encoder.layer[number])
        attention = layer.attention.self
        seen = attention(states, None, None if opened is None else opened[number], output_attentions=True)
        mixing = seen.attention_probs[0]
        if gates is not None:
            mixing = mixing * gates[number, list(attention.heads), None, None]
        one = LayerPass(layer, states[0], seen.past_key_value[1][0], mixing, seen.context[0])
        states = layer.feed_forward_chunk(one.normed[None])
        yield one


@torch.no_grad()
def embedded(loaded: LoadedModel, encoding: Encoding) -> Tensor:
    """What enters the first layer, (1, seq, hidden)."""
    ids = torch.tensor([encoding.input_ids], device=loaded.device)
    states: Tensor = loaded.model.bert.embeddings(ids, token_type_ids=segments_of(loaded, encoding))
    return states


def copies_at_once(loaded: LoadedModel, tokens: int, *, gradients: bool = False) -> int:
    """How many copies of a text of so many tokens travel together, at least one."""
    together = TOKENS_AT_ONCE // tokens
    if gradients:
        config = loaded.config
        # What autograd keeps of a layer: the states around its norms and maps, and both sides of the activation.
        kept = tokens * (12 * config.hidden_size + 3 * config.intermediate_size) * config.num_hidden_layers
        together = min(together, BYTES_AT_ONCE // (4 * kept))
    return max(1, together)


def check_memory(loaded: LoadedModel, method: str, tokens: int, needed: int, cheaper: str) -> None:
    """Raise ValueError if a method needs more bytes than there are, naming a cheaper one."""
    free = free_bytes(loaded.device)
    if free is not None and needed > free:
        raise ValueError(
            f"{method} on {tokens} tokens needs {needed / 2**20:,.1f} MiB of memory, but only {free / 2**20:,.1f} MiB "
            f"are free: shorten the text, or use {cheaper}"
        )


def free_bytes(device: torch.device) -> int | None:
    """Memory that can still be had on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def as_array(tensor: Tensor) -> np.ndarray:
    """A copy out of torch: a record must not change with a tensor."""
    return tensor.detach().float().cpu().numpy().copy()

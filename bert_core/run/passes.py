"""One text through the encoder layer by layer, with what is inside each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from bert_core.attention import BertAttention
from bert_core.edits import check_own
from bert_core.loading import LoadedModel
from bert_core.modeling import BertLayer
from bert_core.run.inputs import embedded, gate_tensor
from bert_core.tokenizer import Encoding


@dataclass(frozen=True, eq=False)  # of tensors: compared by identity
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
        return projected(self.layer.attention, self.values)


def projected(attention: BertAttention, values: Tensor) -> Tensor:
    """Vectors of each head (..., head, key, head size) through its part of the output projection.

    Returns (..., head, key, hidden); the projection's bias belongs to no head, and is no part of it.
    """
    return attention.head_outputs(values)


@torch.no_grad()
def layer_passes(
    loaded: LoadedModel, encoding: Encoding, head_mask: np.ndarray | None = None, *, own: bool = True
) -> Iterator[LayerPass]:
    """Every layer from the bottom up; nothing is written to the model, and nothing is kept that is not asked for.

    head_mask: as for `capture`. own: whether what is asked takes all parts to be the text's own, which only the values
        do not.
    Raises Refused where a part of another text is put in, if so.
    """
    if own:
        check_own(loaded.edits, "what is asked")
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

"""Attention: the one place where maps can be seen and heads switched off."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.recording import hand_over, watcher_of


class BertSelfAttention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani 2017, section 3.2; Devlin 2019).

    A module that nobody watches runs fused attention; a watched one builds its map. Both add the same
    mask and agree to rounding. `save_attention = True` keeps the last map and its gradient here.
    """

    def __init__(self, config: BertConfig, layer_num: int = 0) -> None:
        super().__init__()
        if config.position_embedding_type != "absolute":
            raise ValueError(
                f"position_embedding_type {config.position_embedding_type!r} has no implementation here: "
                "this version attends with 'absolute' positions"
            )
        self.config = config
        self.layer_num = layer_num
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.attention_head_size
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(config.hidden_size, self.all_head_size)
        self.value = nn.Linear(config.hidden_size, self.all_head_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.position_embedding_type = config.position_embedding_type
        self.save_attention = False
        self._attention_map: Tensor | None = None
        self._attn_gradients: Tensor | None = None

    def save_attention_map(self, attention_map: Tensor) -> None:
        """Keep the map (batch, head, query, key) of the last watched forward pass."""
        self._attention_map = attention_map
        self._attn_gradients = None

    def get_attention_map(self) -> Tensor | None:
        """The last saved map (batch, head, query, key), or None if nothing was saved."""
        return self._attention_map

    def save_attn_gradients(self, attn_gradients: Tensor) -> None:
        """Keep the gradient (batch, head, query, key) of the last saved map."""
        self._attn_gradients = attn_gradients

    def get_attn_gradients(self) -> Tensor | None:
        """The gradient of the last saved map, or None if no backward pass has reached it."""
        return self._attn_gradients

    def transpose_for_scores(self, x: Tensor) -> Tensor:
        """(batch, seq, heads * head size) -> (batch, head, seq, head size)."""
        return x.reshape(*x.shape[:-1], self.num_attention_heads, self.attention_head_size).transpose(1, 2)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        *,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Mix the values of all keys into every query's position.

        hidden_states: (batch, seq, hidden).
        attention_mask: additive, broadcast to (batch, head, query, key): 0 to attend, -10000 not to.
        head_mask: gate of every head, broadcast to (batch, head, 1, 1): 1 leaves it, 0 switches it off.
        Returns the context (batch, seq, hidden), and with output_attentions the probabilities
        (batch, head, query, key), after the softmax and before dropout and the head mask; else None.
        """
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))

        attention_probs: Tensor | None = None
        watcher = watcher_of(self)
        if watcher is None and not output_attentions:
            context_layer = F.scaled_dot_product_attention(
                query_layer,
                key_layer,
                value_layer,
                attn_mask=None if attention_mask is None else attention_mask.to(query_layer.dtype),
                dropout_p=self.dropout.p if self.training else 0.0,
            )
        else:
            scaled_query = query_layer * (1.0 / math.sqrt(self.attention_head_size))
            attention_scores = scaled_query @ key_layer.transpose(-1, -2)  # (batch, head, query, key)
            if attention_mask is not None:
                attention_scores = attention_scores + attention_mask
            attention_probs = torch.softmax(attention_scores, dim=-1)
            if watcher is not None:
                hand_over(watcher, attention_probs)
            context_layer = self.dropout(attention_probs).to(value_layer.dtype) @ value_layer

        if head_mask is not None:
            # A gate is one number for a head, so gating the context is gating the map, at a smaller size.
            context_layer = context_layer * head_mask
        context_layer = context_layer.transpose(1, 2).flatten(2)  # (batch, seq, hidden)
        return context_layer, attention_probs if output_attentions else None


class BertSelfOutput(nn.Module):
    """Output projection of the heads, dropout, residual connection, layer norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """hidden_states, input_tensor: (batch, seq, hidden). Returns the same shape."""
        hidden_states = self.dropout(self.dense(hidden_states))
        normalised: Tensor = self.LayerNorm(hidden_states + input_tensor)
        return normalised


class BertAttention(nn.Module):
    """Self-attention and its output projection: the first half of a layer."""

    def __init__(self, config: BertConfig, layer_num: int = 0) -> None:
        super().__init__()
        self.self = BertSelfAttention(config, layer_num)
        self.output = BertSelfOutput(config)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        *,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As BertSelfAttention.forward, with the residual stream (batch, seq, hidden) in and out."""
        context_layer, attention_probs = self.self(
            hidden_states, attention_mask, head_mask, output_attentions=output_attentions
        )
        return self.output(context_layer, hidden_states), attention_probs

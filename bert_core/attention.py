"""Attention: the one place where maps can be seen and heads switched off."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.recording import hand_over, watcher_of

# What a module keeps of the keys and values of the tokens so far: two tensors (batch, head, key, head size).
KeyValue = tuple[Tensor, Tensor]


class AttentionOutput(NamedTuple):
    """What an attention module gives.

    context: (batch, query, hidden).
    attention_probs: (batch, head, query, key), after the softmax, before dropout and the head mask; None unless asked.
    past_key_value: the keys and values attended to, for the cache.
    """

    context: Tensor
    attention_probs: Tensor | None
    past_key_value: KeyValue


class BertSelfAttention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani 2017, section 3.2; Devlin 2019).

    As cross-attention its keys and values come from an encoder's states, `encoder_width` wide. Relative positions
    ("relative_key", Shaw 2018, arXiv:1803.02155; "relative_key_query", Huang 2020, arXiv:2009.13658, method 4) are
    for self-attention alone: the distance between a word and a patch of an image means nothing.

    A module that nobody watches runs fused attention; a watched one builds its map. Both add the same
    mask and agree to rounding. `save_attention = True` keeps the last map and its gradient here.
    """

    def __init__(self, config: BertConfig, is_cross_attention: bool = False, layer_num: int = 0) -> None:
        super().__init__()
        self.config = config
        self.layer_num = layer_num
        self.is_cross_attention = is_cross_attention
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.attention_head_size
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        key_width = (config.encoder_width or config.hidden_size) if is_cross_attention else config.hidden_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(key_width, self.all_head_size)
        self.value = nn.Linear(key_width, self.all_head_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.position_embedding_type = "absolute" if is_cross_attention else config.position_embedding_type
        self.max_position_embeddings = config.max_position_embeddings
        if self.position_embedding_type != "absolute":
            self.distance_embedding = nn.Embedding(2 * config.max_position_embeddings - 1, self.attention_head_size)
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
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_value: KeyValue | None = None,
        output_attentions: bool = False,
    ) -> AttentionOutput:
        """Mix the values of all keys into every query's position.

        hidden_states: (batch, query, hidden).
        attention_mask, encoder_attention_mask: additive, broadcast to (batch, head, query, key): 0 to attend, -10000
            not to; cross-attention takes the second.
        head_mask: gate of every head, broadcast to (batch, head, 1, 1): 1 leaves it, 0 switches it off.
        encoder_hidden_states: (batch, key, encoder_width), for cross-attention.
        past_key_value: keys and values of earlier tokens; for cross-attention, those of the encoder's states.
        Raises ValueError for encoder states that are missing, or of another width.
        """
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        if self.is_cross_attention:
            attention_mask = encoder_attention_mask
            key_layer, value_layer = past_key_value or self._keys_and_values(self._checked(encoder_hidden_states))
        else:
            key_layer, value_layer = self._keys_and_values(hidden_states)
            if past_key_value is not None:
                key_layer = torch.cat([past_key_value[0], key_layer], dim=2)
                value_layer = torch.cat([past_key_value[1], value_layer], dim=2)
        bias = attention_mask
        if self.position_embedding_type != "absolute":
            bias = self._position_scores(query_layer, key_layer) + (0.0 if attention_mask is None else attention_mask)

        attention_probs: Tensor | None = None
        watcher = watcher_of(self)
        if watcher is None and not output_attentions:
            context_layer = F.scaled_dot_product_attention(
                query_layer,
                key_layer,
                value_layer,
                attn_mask=None if bias is None else bias.to(query_layer.dtype),
                dropout_p=self.dropout.p if self.training else 0.0,
            )
        else:
            scaled_query = query_layer * (1.0 / math.sqrt(self.attention_head_size))
            attention_scores = scaled_query @ key_layer.transpose(-1, -2)  # (batch, head, query, key)
            if bias is not None:
                attention_scores = attention_scores + bias
            attention_probs = torch.softmax(attention_scores, dim=-1)
            if watcher is not None:
                hand_over(watcher, attention_probs)
            context_layer = self.dropout(attention_probs).to(value_layer.dtype) @ value_layer

        if head_mask is not None:
            # A gate is one number for a head, so gating the context is gating the map, at a smaller size.
            context_layer = context_layer * head_mask
        context_layer = context_layer.transpose(1, 2).flatten(2)  # (batch, query, heads * head size)
        return AttentionOutput(context_layer, attention_probs if output_attentions else None, (key_layer, value_layer))

    def _keys_and_values(self, states: Tensor) -> KeyValue:
        """states: (batch, key, width)."""
        return self.transpose_for_scores(self.key(states)), self.transpose_for_scores(self.value(states))

    def _checked(self, encoder_hidden_states: Tensor | None) -> Tensor:
        if encoder_hidden_states is None:
            raise ValueError("cross-attention needs encoder_hidden_states (batch, key, encoder_width)")
        width = self.key.in_features
        if encoder_hidden_states.dim() != 3 or encoder_hidden_states.shape[-1] != width:
            raise ValueError(
                f"encoder_hidden_states is {tuple(encoder_hidden_states.shape)}: "
                f"this model attends to (batch, key, {width}), its encoder_width"
            )
        return encoder_hidden_states

    def _position_scores(self, query_layer: Tensor, key_layer: Tensor) -> Tensor:
        """What the distances add to the scaled scores, (batch, head, query, key); the last query is the last key's."""
        queries, keys = query_layer.shape[2], key_layer.shape[2]
        if keys > self.max_position_embeddings:
            raise ValueError(f"the sequence has {keys} tokens: this model takes at most {self.max_position_embeddings}")
        positions = torch.arange(keys, device=query_layer.device)
        distance = positions[keys - queries :, None] - positions[None, :]
        table = self.distance_embedding(distance + self.max_position_embeddings - 1)  # (query, key, head size)
        scores = torch.einsum("bhqd,qkd->bhqk", query_layer, table)
        if self.position_embedding_type == "relative_key_query":
            scores = scores + torch.einsum("bhkd,qkd->bhqk", key_layer, table)
        return scores / math.sqrt(self.attention_head_size)


class BertSelfOutput(nn.Module):
    """Output projection of the heads, dropout, residual connection, layer norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.num_attention_heads * config.attention_head_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """hidden_states: (batch, seq, heads * head size); input_tensor and the result: (batch, seq, hidden)."""
        hidden_states = self.dropout(self.dense(hidden_states))
        normalised: Tensor = self.LayerNorm(hidden_states + input_tensor)
        return normalised


class BertAttention(nn.Module):
    """Attention, to the sequence itself or to an encoder's states, and its output projection."""

    def __init__(self, config: BertConfig, is_cross_attention: bool = False, layer_num: int = 0) -> None:
        super().__init__()
        self.self = BertSelfAttention(config, is_cross_attention, layer_num)
        self.output = BertSelfOutput(config)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_value: KeyValue | None = None,
        output_attentions: bool = False,
    ) -> AttentionOutput:
        """As BertSelfAttention.forward, with the residual stream (batch, query, hidden) in and out."""
        mixed = self.self(
            hidden_states,
            attention_mask,
            head_mask,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_value,
            output_attentions,
        )
        return AttentionOutput(self.output(mixed.context, hidden_states), mixed.attention_probs, mixed.past_key_value)

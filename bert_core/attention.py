"""Attention: the one place where maps can be seen and heads switched off."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.edits import ActivationPatch, AttentionKnockout, blocked_edges
from bert_core.positions import POSITION_SCHEMES, Heads
from bert_core.recording import Watcher, find_watcher, save_map
from bert_core.refused import Refused

# What a module keeps of the keys and values of the tokens so far: two tensors (batch, head, key, head size).
KeyValue = tuple[Tensor, Tensor]
MASKED_SCORE = -10000.0  # added to the score of a key that must not be attended to


class AttentionOutput(NamedTuple):
    """What an attention module gives.

    context: (batch, query, hidden); at the positions asked for, where only some were.
    attention_probs: (batch, head, query, key), after the softmax, before dropout and the head mask; None unless asked.
    past_key_value: the keys and values attended to, for the cache.
    """

    context: Tensor
    attention_probs: Tensor | None
    past_key_value: KeyValue


class BertSelfAttention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani 2017, section 3.2; Devlin 2019).

    As cross-attention its keys and values come from an encoder's states, `encoder_width` wide. Distances add to the
    scores of self-attention alone (`positions`): the distance between a word and a patch of an image means nothing.

    A module that nobody watches runs fused attention; a watched one builds its map. Both add the same
    mask and agree to rounding. `save_attention = True` keeps the last map and its gradient here.
    `cuts`: the arrows that are cut in this layer; those that are not renormalised need the map, as does `put`: patterns
    of another reading that stand where a head's own would be.
    """

    def __init__(self, config: BertConfig, is_cross_attention: bool = False, layer_num: int = 0) -> None:
        super().__init__()
        self.config = config
        self.layer_num = layer_num
        self.is_cross_attention = is_cross_attention
        self.is_decoder = config.is_decoder
        self.heads = tuple(range(config.num_attention_heads))  # by their first numbers: pruning leaves gaps
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
        self.distances = POSITION_SCHEMES[self.position_embedding_type].distances  # what they add to the scores
        if self.distances is not None:
            shape = self.distances.table_shape(
                config.max_position_embeddings, config.num_attention_heads, config.attention_head_size
            )
            self.add_module(self.distances.table, nn.Embedding(*shape))
        self.knockouts: tuple[AttentionKnockout, ...] = ()
        self.pattern_patches: tuple[ActivationPatch, ...] = ()
        self.save_attention = False
        self._attention_map: Tensor | None = None
        self._attn_gradients: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A saved map belongs to its pass and that pass's graph: a copy of the module starts without one.
        return {**self.__dict__, "_attention_map": None, "_attn_gradients": None}

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
        positions: Tensor | None = None,
    ) -> AttentionOutput:
        """Mix the values of all keys into every query's position.

        hidden_states: (batch, query, hidden).
        attention_mask, encoder_attention_mask: additive, broadcast to (batch, head, query, key): 0 to attend, -10000
            not to; cross-attention takes the second.
        head_mask: gate of every head, pruned ones too, (batch or 1, head, 1, 1): 1 leaves it, 0 switches it off.
        encoder_hidden_states: (batch, key, encoder_width), for cross-attention.
        past_key_value: keys and values of earlier tokens; for cross-attention, those of the encoder's states.
        positions: (batch, some), where the context is wanted; None wants it everywhere. The map stays whole.
        Raises ValueError for encoder states that are missing, or of another width.
        """
        watcher = find_watcher(self)
        needs_map = bool(self.pattern_patches) or any(not cut.renormalised for cut in self.knockouts)
        explicit = watcher is not None or output_attentions or needs_map
        if not self.heads:
            return self._without_heads(hidden_states, encoder_hidden_states, past_key_value, positions, watcher)
        asked = hidden_states if explicit or positions is None else gather_positions(hidden_states, positions)
        query_layer = self.transpose_for_scores(self.query(asked))
        if self.is_cross_attention:
            attention_mask = encoder_attention_mask
            key_layer, value_layer = past_key_value or self._keys_and_values(self._checked(encoder_hidden_states))
        else:
            key_layer, value_layer = self._keys_and_values(hidden_states)
            if past_key_value is not None:
                key_layer = torch.cat([past_key_value[0], key_layer], dim=2)
                value_layer = torch.cat([past_key_value[1], value_layer], dim=2)
        bias = attention_mask
        queries, keys = hidden_states.shape[1], key_layer.shape[2]
        unseen = self.blocked_edges(queries, keys, renormalised=True)
        if unseen is not None:
            lowered = unseen.to(query_layer.dtype) * MASKED_SCORE
            bias = lowered if bias is None else bias + lowered
        if positions is not None and not explicit and bias is not None and bias.shape[-2] > 1:
            bias = gather_positions(bias.expand(max(len(bias), len(positions)), -1, -1, -1), positions)
        if self.distances is not None:
            places = None if explicit else positions
            added = self.position_scores(query_layer, key_layer, queries, places, self.heads)
            bias = added if bias is None else added + bias

        attention_probs: Tensor | None = None
        if not explicit:
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
            # In place where no gradient needs the scores: at 512 tokens the memory of a second map is dear.
            in_place = not attention_scores.requires_grad and attention_scores.dtype == torch.float32
            attention_probs = torch.softmax(attention_scores, dim=-1, out=attention_scores if in_place else None)
            removed = self.blocked_edges(queries, keys, renormalised=False)
            if removed is not None:
                attention_probs = attention_probs.masked_fill(removed, 0)
            for one in self.pattern_patches:
                attention_probs = self._with_pattern(attention_probs, one)
            if watcher is not None:
                save_map(watcher, attention_probs)
            mixing = attention_probs if positions is None else gather_positions(attention_probs, positions)
            context_layer = self.dropout(mixing).to(value_layer.dtype) @ value_layer

        if head_mask is not None:
            if len(self.heads) < self.config.num_attention_heads:
                head_mask = head_mask[..., list(self.heads), :, :]
            # A gate is one number for a head, so gating the context is gating the map, at a smaller size.
            context_layer = context_layer * head_mask
        context_layer = context_layer.transpose(1, 2).flatten(2)  # (batch, query, heads * head size)
        return AttentionOutput(context_layer, attention_probs if output_attentions else None, (key_layer, value_layer))

    def _with_pattern(self, probs: Tensor, put: ActivationPatch) -> Tensor:
        """A map (batch, head, query, key) in which a head looks as it did in another reading."""
        made, place = probs.clone(), [head == put.head for head in self.heads].index(True)
        made[:, place, put.rows] = 0  # padding, too
        made[:, place, put.rows, : put.tokens] = probs.new_tensor(put.values)
        return made

    def blocked_edges(self, queries: int, keys: int, *, renormalised: bool) -> Tensor | None:
        """Which arrows of the heads that are left are cut in one way, boolean (1, head, query, key); None if none are.

        queries: length of the sequence that the queries are from; its last position is that of the last key.
        Raises Refused as `edits.blocked_edges`.
        """
        arrows = blocked_edges(self.knockouts, self.heads, keys, renormalised=renormalised)
        if arrows is None:
            return None
        return torch.from_numpy(arrows[None, :, keys - queries :]).to(self.key.weight.device)

    def _without_heads(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None,
        past_key_value: KeyValue | None,
        positions: Tensor | None,
        watcher: Watcher | None,
    ) -> AttentionOutput:
        """What is left where all heads were pruned: nothing is computed, and every shape has a 0 where heads stood."""
        batch, queries, _ = hidden_states.shape
        states = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        past = 0 if past_key_value is None else past_key_value[0].shape[2]
        keys = past if self.is_cross_attention and past else past + states.shape[1]
        cache = hidden_states.new_empty(batch, 0, keys, self.attention_head_size)
        attention_probs = hidden_states.new_empty(batch, 0, queries, keys)
        if watcher is not None:
            save_map(watcher, attention_probs)
        asked = queries if positions is None else positions.shape[1]
        return AttentionOutput(hidden_states.new_empty(batch, asked, 0), attention_probs, (cache, cache))

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

    def position_scores(
        self, query_layer: Tensor, key_layer: Tensor, queries: int, places: Tensor | None, heads: Heads
    ) -> Tensor:
        """What the distances add to the scaled scores, (batch, head, query, key).

        queries: length of the sequence that the queries are from; its last position is that of the last key.
        places: (batch, query), the positions in that sequence that the queries stand for; None: all of them.
        heads: as for `positions.DistanceScores.scores`.
        Raises Refused for a sequence that is longer than the model takes, and AttributeError where distances add
        nothing.
        """
        scheme = self.distances
        if scheme is None:
            raise AttributeError("distances add nothing to the scores of this module")
        keys = key_layer.shape[2]
        if keys > self.max_position_embeddings:
            raise Refused(f"the sequence has {keys} tokens: this model takes at most {self.max_position_embeddings}")
        key_positions = torch.arange(keys, device=query_layer.device)
        query_positions = key_positions[None, keys - queries :] if places is None else places + keys - queries
        distances = query_positions[..., None] - key_positions  # (batch or 1, query, key)
        rows = scheme.rows(torch.arange(1 - keys, keys, device=query_layer.device), self.max_position_embeddings)
        vectors: Tensor = self.get_submodule(scheme.table)(rows[distances + keys - 1])
        vectors = vectors.expand(len(query_layer), -1, -1, -1)  # (batch, query, key, width)
        scores: Tensor = scheme.scores(query_layer, key_layer, vectors, heads, torch.einsum)
        return scores / math.sqrt(self.attention_head_size) if scheme.scaled else scores


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """The rows of x (batch, ..., seq, width) at positions (batch, some): (batch, ..., some, width)."""
    between = x.dim() - 3
    index = positions.reshape(len(positions), *[1] * between, -1, 1).expand(len(x), *x.shape[1:-2], -1, x.shape[-1])
    return x.gather(-2, index)


def find_pruneable_heads_and_indices(
    heads: Collection[int], n_heads: int, head_size: int, already_pruned_heads: Collection[int]
) -> tuple[set[int], Tensor]:
    """Which of these heads are still there, and the rows of the query, key and value maps that stay without them.

    heads, already_pruned_heads: by their first numbers. n_heads: how many there are now.
    """
    left = [head for head in range(n_heads + len(already_pruned_heads)) if head not in already_pruned_heads]
    found = set(heads) & set(left)
    rows = torch.arange(n_heads * head_size).view(n_heads, head_size)
    kept = [place for place, head in enumerate(left) if head not in found]
    return found, rows[kept].flatten()


def prune_linear_layer(layer: nn.Linear, index: Tensor, dim: int = 0) -> nn.Linear:
    """A linear layer of only some rows (dim 0: outputs, with their biases) or columns (dim 1: inputs) of another."""
    index, learns = index.to(layer.weight.device), layer.weight.requires_grad
    smaller = nn.Linear(1, 1)  # of any size: one without rows would warn that there is nothing to draw
    smaller.weight = nn.Parameter(layer.weight.detach().index_select(dim, index), learns)
    smaller.bias = nn.Parameter(layer.bias.detach()[index] if dim == 0 else layer.bias.detach().clone(), learns)
    smaller.out_features, smaller.in_features = smaller.weight.shape
    return smaller.train(layer.training)


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
        self.pruned_heads: set[int] = set()
        if not is_cross_attention:
            self.prune_heads(config.pruned_heads.get(layer_num, ()))

    def check_head(self, head: int) -> None:
        """Raise ValueError unless there is, or was before pruning, a head of this number."""
        last = self.self.config.num_attention_heads - 1
        if head not in range(last + 1):
            gone = ", ".join(map(str, sorted(self.pruned_heads)))
            raise Refused(
                f"head {head} does not exist in layer {self.self.layer_num}: this model has heads 0 to {last}"
                + (f" ({gone} pruned)" if gone else "")
            )

    def prune_heads(self, heads: Collection[int]) -> None:
        """Take heads out for good, in place: smaller matrices, and a layer without heads is its bias and residual.

        heads: by their first numbers, which the others keep; those that are gone already are passed over.
        Raises ValueError for a head that never was.
        """
        attention = self.self
        for head in heads:
            self.check_head(head)
        found, index = find_pruneable_heads_and_indices(
            heads, attention.num_attention_heads, attention.attention_head_size, self.pruned_heads
        )
        if not found:
            return
        attention.query = prune_linear_layer(attention.query, index)
        attention.key = prune_linear_layer(attention.key, index)
        attention.value = prune_linear_layer(attention.value, index)
        self.output.dense = prune_linear_layer(self.output.dense, index, dim=1)
        attention.heads = tuple(head for head in attention.heads if head not in found)
        attention.num_attention_heads = len(attention.heads)
        attention.all_head_size = attention.num_attention_heads * attention.attention_head_size
        self.pruned_heads |= found

    @property
    def head_projections(self) -> Tensor:
        """The part of the output projection that each head has, (hidden, head, head size): a view of its weight."""
        weight = self.output.dense.weight
        return weight.view(len(weight), len(self.self.heads), self.self.attention_head_size)

    def head_outputs(self, values: Tensor) -> Tensor:
        """Vectors of each head (..., head, key, head size) through its part of the output projection.

        Returns (..., head, key, hidden); the bias of the projection belongs to no head and is not added.
        """
        return values @ self.head_projections.permute(1, 2, 0)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_value: KeyValue | None = None,
        output_attentions: bool = False,
        positions: Tensor | None = None,
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
            positions,
        )
        residual = hidden_states if positions is None else gather_positions(hidden_states, positions)
        return AttentionOutput(self.output(mixed.context, residual), mixed.attention_probs, mixed.past_key_value)

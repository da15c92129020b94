"""The attention modules of BERT, whose maps can be recorded and whose heads can be gated, edited and pruned."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.deprecation import RenamedAttribute, renamed_parameters
from bert_core.edits import ActivationPatch, AttentionKnockout, blocked_edges
from bert_core.positions import Heads, select_heads, used_rows
from bert_core.recording import Watcher, find_watcher, save_gradient, save_map
from bert_core.refused import Refused

# The cached keys and values of one attention module: two tensors (batch, head, key, head size).
KeyValue = tuple[Tensor, Tensor]
MASKED_SCORE = -10000.0  # added to the score of a key that must not be attended to


class AttentionOutput(NamedTuple):
    """The result of an attention module.

    context: (batch, query, hidden), at the requested positions only if some were given.
    attention_probs: (batch, head, query, key), after the softmax and before dropout and the head mask; None unless
        output_attentions is set.
    past_key_value: the keys and values attended to, for the cache of a decoder.
    """

    context: Tensor
    attention_probs: Tensor | None
    past_key_value: KeyValue


def build_norm(config: BertConfig, width: int) -> nn.LayerNorm:
    """Return a layer norm with the epsilon of a configuration, and with a bias if its layer norms have one."""
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.layer_design.norm_bias)


class RotaryPositions(nn.Module):
    """The rotation of queries or keys by their positions, see `positions.Rotary`.

    base: base of the angles. head_size: width of a head. max_positions: maximum number of tokens.
    """

    def __init__(self, base: float, head_size: int, max_positions: int) -> None:
        super().__init__()
        if head_size % 2:
            raise Refused(f"the head size is {head_size}: rotary positions need an even number")
        self.base, self.head_size, self.max_positions = base, head_size, max_positions

    def forward(self, vectors: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotate the vectors (batch, seq, heads * head size) of all heads.

        positions: (batch, seq), those of the vectors; None for 0, 1, 2, ...
        Raises Refused if there are more vectors than the maximum number of tokens.
        """
        if vectors.shape[1] > self.max_positions:
            raise Refused(f"the sequence has {vectors.shape[1]} tokens: this model takes at most {self.max_positions}")
        if positions is None:
            cos, sin = _cached_rotation(self.base, self.head_size, vectors.shape[1], vectors.device, vectors.dtype)
        else:
            cos, sin = rotation_factors(self.base, self.head_size, positions, vectors.dtype)
        by_head = vectors.view(*vectors.shape[:2], -1, self.head_size)
        first, second = by_head.chunk(2, dim=-1)  # (batch, seq, head, size / 2)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(2)

    def rotate_heads(self, vectors: Tensor) -> Tensor:
        """Rotate the vectors (batch, head, seq, head size) of some heads at the positions 0, 1, 2, ..."""
        rotated: Tensor = self(vectors.transpose(1, 2).flatten(2))
        return rotated.view(*rotated.shape[:2], -1, self.head_size).transpose(1, 2)


def rotation_factors(base: float, head_size: int, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of the angles of positions (batch, seq), (batch, seq, 1, head size / 2) each."""
    # In single precision, like the implementations that models were trained with.
    exponents = torch.arange(0, head_size, 2, device=positions.device).float() / head_size
    angles = positions[..., None].float() * (1.0 / base**exponents)
    return angles.cos().to(dtype)[:, :, None], angles.sin().to(dtype)[:, :, None]


@lru_cache(maxsize=16)
def _cached_rotation(
    base: float, head_size: int, length: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return `rotation_factors` of the positions of a whole text, which all layers with one base share."""
    with torch.inference_mode(False):  # a cached tensor may be used in a later pass with gradients
        return rotation_factors(base, head_size, torch.arange(length, device=device)[None], dtype)


def window_scores(window: int, queries: int, keys: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return what is added to the scores of a local layer, (1, 1, query, key): -inf for a key outside the window."""
    with torch.inference_mode(False):
        far_keys = _far_keys(window, range(keys - queries, keys), keys, device)
        return torch.zeros_like(far_keys, dtype=dtype).masked_fill_(far_keys, -math.inf)


_cached_window_scores = lru_cache(maxsize=4)(window_scores)  # of short texts, which all local layers share
CACHED_WINDOW_KEYS = 1024


def _far_keys(window: int, queries: range, keys: int, device: torch.device) -> Tensor:
    """Return which keys are outside the window of each query, boolean (1, 1, query, key). queries: their positions."""
    positions = torch.arange(keys, device=device)
    return ((positions[queries.start : queries.stop, None] - positions).abs() > window)[None, None]


class BertSelfAttention(nn.Module):
    """Multi-head scaled dot-product attention.

    In cross-attention the keys and values are computed from an encoder's states, which are `encoder_width` wide.
    Relative positions (`positions.DistanceScores`) add to the scores of self-attention only, since a word and a patch
    of an image have no distance.

    The module runs fused attention unless its map is needed, and otherwise computes the map explicitly. Both add the
    same mask, and their results agree to rounding.
    heads: original indices of the heads that are left.
    window: the largest distance between a query and a key, in a local layer; None for any distance.
    query_rotation, key_rotation: rotate the queries and the keys by their positions; None without rotary positions.
    save_attention: True keeps the last map and its gradient in the module.
    knockouts: the attention knockouts of this layer. Those that are not renormalised need the explicit map.
    pattern_patches: attention patterns of another forward pass, which replace those of a head. They need it too.
    Source: Vaswani 2017 (arXiv:1706.03762), section 3.2; Devlin 2019 (arXiv:1810.04805), section 3.
    """

    def __init__(self, config: BertConfig, is_cross_attention: bool = False, layer_num: int = 0) -> None:
        super().__init__()
        self.config = config
        self.layer_num = layer_num
        self.is_cross_attention = is_cross_attention
        self.is_decoder = config.is_decoder
        self.heads = tuple(range(config.num_attention_heads))  # by original index: pruning leaves gaps
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.attention_head_size
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        key_width = (config.encoder_width or config.hidden_size) if is_cross_attention else config.hidden_size
        has_bias = config.layer_design.attention_bias
        self.query = nn.Linear(config.hidden_size, self.all_head_size, bias=has_bias)
        self.key = nn.Linear(key_width, self.all_head_size, bias=has_bias)
        self.value = nn.Linear(key_width, self.all_head_size, bias=has_bias)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.position_embedding_type = "absolute" if is_cross_attention else config.position_embedding_type
        self.max_position_embeddings = config.max_position_embeddings
        self.distances = None if is_cross_attention else config.position_scheme.distances
        if self.distances is not None:
            rows, width = self.distances.table_shape(
                config.max_position_embeddings, config.num_attention_heads, config.attention_head_size
            )
            self.add_module(self.distances.table, nn.Embedding(rows, width))
            if self.distances.norm is not None:
                self.add_module(self.distances.norm, nn.LayerNorm(width, eps=config.layer_norm_eps))
            for name in self.distances.own_projections:
                self.add_module(name, nn.Linear(width, self.all_head_size))
        rotation = None if is_cross_attention else config.position_scheme.rotation
        self.window = None if rotation is None else rotation.window(layer_num)
        self.query_rotation, self.key_rotation = (
            None
            if rotation is None
            else RotaryPositions(rotation.base(layer_num), self.attention_head_size, config.max_position_embeddings)
            for _ in range(2)
        )
        self.knockouts: tuple[AttentionKnockout, ...] = ()
        self.pattern_patches: tuple[ActivationPatch, ...] = ()
        self.save_attention = False
        self.token_range: tuple[int, int] | None = None  # a module keeps whole maps, unlike a recording
        self._attention_map: Tensor | None = None
        self._attn_gradients: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A saved map belongs to the autograd graph of its forward pass, so a copy of the module starts without one.
        return {**self.__dict__, "_attention_map": None, "_attn_gradients": None}

    def save_attention_map(self, attention_map: Tensor) -> None:
        """Save the attention map (batch, head, query, key) of a forward pass, and discard the last gradient."""
        self._attention_map = attention_map
        self._attn_gradients = None

    def get_attention_map(self) -> Tensor | None:
        """Return the last saved map (batch, head, query, key), or None if no map was saved."""
        return self._attention_map

    def save_attn_gradients(self, attn_gradients: Tensor) -> None:
        """Save the gradient (batch, head, query, key) of the last saved map."""
        self._attn_gradients = attn_gradients

    def get_attn_gradients(self) -> Tensor | None:
        """Return the gradient (batch, head, query, key) of the last saved map, or None before a backward pass."""
        return self._attn_gradients

    @property
    def head_linears(self) -> tuple[str, ...]:
        """Names of the linear layers whose outputs are the vectors of all heads."""
        return ("query", "key", "value", *(() if self.distances is None else self.distances.own_projections))

    @property
    def score_scale(self) -> float:
        """Factor of the dot products: 1 over the root of the head size, times the `root_terms` of a position scheme."""
        terms = 1 if self.distances is None else self.distances.root_terms
        return 1.0 / math.sqrt(terms * self.attention_head_size)

    def transpose_for_scores(self, x: Tensor) -> Tensor:
        """Split (batch, seq, heads * head size) into heads, (batch, head, seq, head size)."""
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
        """Compute the attention-weighted sum of the value vectors at each query.

        hidden_states: (batch, query, hidden).
        attention_mask, encoder_attention_mask: additive, broadcast to (batch, head, query, key), 0 to attend and
            -10000 not to. Cross-attention uses the second.
        head_mask: gates of all heads, pruned ones included, (batch or 1, head, 1, 1). 1 leaves a head unchanged and
            0 switches it off.
        encoder_hidden_states: (batch, key, encoder_width), for cross-attention.
        past_key_value: keys and values of earlier tokens. In cross-attention, those of the encoder's states.
        output_attentions: return the attention probabilities.
        positions: (batch, position), the queries whose context is returned; None returns all. The map is not reduced.
        Returns the context, the probabilities and the keys and values.
        Raises ValueError if the encoder's states are missing or have another width.
        Raises Refused if a knockout names a position beyond the text, or blocks every key of a renormalised row.
        """
        watcher = find_watcher(self)
        token_range = None if watcher is None else watcher.token_range
        if self.training and self.dropout.p:
            token_range = None  # the map is needed to drop the same edges from it
        needs_map = bool(self.pattern_patches) or any(not cut.renormalised for cut in self.knockouts)
        explicit = output_attentions or needs_map or (watcher is not None and token_range is None)
        if not self.heads:
            return self._without_heads(hidden_states, encoder_hidden_states, past_key_value, positions, watcher)
        # The queries that are computed; those whose context is not returned are needed for the map.
        query_positions = None if explicit or token_range is not None else positions
        query_states = hidden_states if query_positions is None else gather_positions(hidden_states, query_positions)
        query_layer = self.queries(query_states, query_positions)
        if self.is_cross_attention:
            attention_mask = encoder_attention_mask
            key_layer, value_layer = past_key_value or self._keys_and_values(self._check_width(encoder_hidden_states))
        else:
            key_layer, value_layer = self._keys_and_values(hidden_states)
            if past_key_value is not None:
                key_layer = torch.cat([past_key_value[0], key_layer], dim=2)
                value_layer = torch.cat([past_key_value[1], value_layer], dim=2)
        bias = attention_mask
        queries, keys = hidden_states.shape[1], key_layer.shape[2]
        blocked = self.blocked_edges(queries, keys, renormalised=True)
        if blocked is not None:
            blocked_scores = blocked.to(query_layer.dtype) * MASKED_SCORE
            bias = blocked_scores if bias is None else bias + blocked_scores
        # A local layer is computed in blocks of queries, unless its scores have terms for each query and key.
        in_blocks = (
            not explicit and query_positions is None and self.distances is None and queries == keys
            and self.window is not None and keys > 4 * block_size(self.window)
            and (bias is None or bias.shape[-2] == 1)
        )  # fmt: skip
        if not in_blocks and self.window is not None and keys - 1 > self.window:
            scores_of_window = _cached_window_scores if keys <= CACHED_WINDOW_KEYS else window_scores
            far_scores = scores_of_window(self.window, queries, keys, query_layer.device, query_layer.dtype)
            bias = far_scores if bias is None else bias + far_scores
        if query_positions is not None and bias is not None and bias.shape[-2] > 1:
            bias = gather_positions(bias.expand(max(len(bias), len(query_positions)), -1, -1, -1), query_positions)
        if self.distances is not None:
            distance_scores = self.position_scores(query_layer, key_layer, queries, query_positions, self.heads)
            bias = distance_scores if bias is None else distance_scores + bias

        attention_probs: Tensor | None = None
        if not explicit:
            dropout_p = self.dropout.p if self.training else 0.0
            bias = None if bias is None else bias.to(query_layer.dtype)
            if in_blocks and self.window is not None:
                context_layer = local_attention(
                    query_layer, key_layer, value_layer, bias, self.window, dropout_p=dropout_p, scale=self.score_scale
                )
            else:
                context_layer = F.scaled_dot_product_attention(
                    query_layer, key_layer, value_layer, attn_mask=bias, dropout_p=dropout_p, scale=self.score_scale
                )
            if watcher is not None and token_range is not None:
                self._save_range(watcher, token_range, query_layer, key_layer, value_layer, bias, context_layer)
                context_layer = context_layer if positions is None else gather_positions(context_layer, positions)
        else:
            scaled_query = query_layer * self.score_scale
            attention_scores = scaled_query @ key_layer.transpose(-1, -2)  # (batch, head, query, key)
            # In place if no gradient needs the scores, because at 512 tokens a second map takes much memory.
            needs_grad = attention_scores.requires_grad or (bias is not None and bias.requires_grad)
            in_place = not needs_grad and attention_scores.dtype == torch.float32
            if bias is not None:
                attention_scores = attention_scores.add_(bias) if in_place else attention_scores + bias
            attention_probs = torch.softmax(attention_scores, dim=-1, out=attention_scores if in_place else None)
            removed = self.blocked_edges(queries, keys, renormalised=False)
            if removed is not None:
                attention_probs = attention_probs.masked_fill(removed, 0)
            for patch in self.pattern_patches:
                attention_probs = self._replace_pattern(attention_probs, patch)
            if watcher is not None:
                save_map(watcher, attention_probs)
            query_probs = attention_probs if positions is None else gather_positions(attention_probs, positions)
            context_layer = self.dropout(query_probs).to(value_layer.dtype) @ value_layer

        if head_mask is not None:
            if len(self.heads) < self.config.num_attention_heads:
                head_mask = head_mask[..., list(self.heads), :, :]
            # A head has one gate, so gating its context equals gating its map, and the context is smaller.
            context_layer = context_layer * head_mask
        context_layer = context_layer.transpose(1, 2).flatten(2)  # (batch, query, heads * head size)
        return AttentionOutput(context_layer, attention_probs if output_attentions else None, (key_layer, value_layer))

    def _save_range(
        self,
        watcher: Watcher,
        token_range: tuple[int, int],
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        bias: Tensor | None,
        context: Tensor,
    ) -> None:
        """Compute and save the block of the map for a range of tokens; later also its gradient.

        queries, keys, values: (batch, head, seq, head size). bias: what is added to the scores, except for the window
        of a layer that is computed in blocks. context: (batch, head, query, head size), what attention returned.
        The gradient of the map is exactly that of the context multiplied by the values, so no whole map is needed.
        """
        rows = slice(*token_range)
        with torch.no_grad():
            scores = queries[:, :, rows] * self.score_scale @ keys.transpose(-1, -2)  # (batch, head, row, key)
            if bias is not None:
                scores = scores + (bias[..., rows, :] if bias.shape[-2] > 1 else bias)
            if self.window is not None:  # only for these rows: those of all queries of a long text take much memory
                first = keys.shape[2] - queries.shape[2]
                positions = range(first + token_range[0], first + token_range[1])
                scores.masked_fill_(_far_keys(self.window, positions, keys.shape[2], scores.device), -math.inf)
            watcher.save_attention_map(scores.softmax(-1)[..., rows].clone())
        if context.requires_grad:
            block_values = values[:, :, rows].detach()
            save_gradient(watcher, context, lambda gradient: gradient[:, :, rows] @ block_values.transpose(-1, -2))

    def _replace_pattern(self, probs: Tensor, patch: ActivationPatch) -> Tensor:
        """Return the map (batch, head, query, key) with the pattern of one head replaced by that of a patch."""
        patched, index = probs.clone(), [head == patch.head for head in self.heads].index(True)
        patched[:, index, patch.rows] = 0  # also the keys of padding tokens
        patched[:, index, patch.rows, : patch.tokens] = probs.new_tensor(patch.values)
        return patched

    def blocked_edges(self, queries: int, keys: int, *, renormalised: bool) -> Tensor | None:
        """Return the blocked attention edges of the heads that are left, boolean (1, head, query, key).

        queries, keys: number of queries and of keys. The last query is at the position of the last key.
        renormalised: return the edges of knockouts with this value only.
        Returns None if no edge is blocked. Raises Refused as `edits.blocked_edges` does.
        """
        edges = blocked_edges(self.knockouts, self.heads, keys, renormalised=renormalised, window=self.window)
        if edges is None:
            return None
        return torch.from_numpy(edges[None, :, keys - queries :]).to(self.key.weight.device)

    def _without_heads(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None,
        past_key_value: KeyValue | None,
        positions: Tensor | None,
        watcher: Watcher | None,
    ) -> AttentionOutput:
        """Return empty results for a module whose heads were all pruned; every head axis has size 0."""
        batch, queries, _ = hidden_states.shape
        states = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        past = 0 if past_key_value is None else past_key_value[0].shape[2]
        keys = past if self.is_cross_attention and past else past + states.shape[1]
        cache = hidden_states.new_empty(batch, 0, keys, self.attention_head_size)
        attention_probs = hidden_states.new_empty(batch, 0, queries, keys)
        if watcher is not None:
            save_map(watcher, attention_probs)
        rows = queries if positions is None else positions.shape[1]
        return AttentionOutput(hidden_states.new_empty(batch, rows, 0), attention_probs, (cache, cache))

    def queries(self, states: Tensor, positions: Tensor | None = None) -> Tensor:
        """Compute the queries (batch, head, query, head size) of states (batch, query, hidden), rotated if rotary.

        positions: (batch, query), the positions of the states; None if they are those of a whole text.
        """
        queries = self.query(states)
        if self.query_rotation is not None:
            queries = self.query_rotation(queries, positions)
        return self.transpose_for_scores(queries)

    def keys(self, states: Tensor) -> Tensor:
        """Compute the keys (batch, head, key, head size) of states (batch, key, width), rotated if rotary."""
        keys = self.key(states)
        if self.key_rotation is not None:
            keys = self.key_rotation(keys)
        return self.transpose_for_scores(keys)

    def outside_window(self, queries: int, keys: int) -> Tensor | None:
        """Return which keys are too far from each query in a local layer, boolean (1, 1, query, key).

        Returns None if no key is: in a global layer, and for a short text.
        """
        if self.window is None or keys - 1 <= self.window:
            return None
        return _far_keys(self.window, range(keys - queries, keys), keys, self.key.weight.device)

    def _keys_and_values(self, states: Tensor) -> KeyValue:
        """Compute the keys and values (batch, head, key, head size) of states (batch, key, width)."""
        return self.keys(states), self.transpose_for_scores(self.value(states))

    def _check_width(self, encoder_hidden_states: Tensor | None) -> Tensor:
        """Return the encoder's states; raise ValueError if they are missing or of another width."""
        if encoder_hidden_states is None:
            raise ValueError("cross-attention needs encoder_hidden_states (batch, key, encoder_width)")
        width = self.key.in_features
        if encoder_hidden_states.dim() != 3 or encoder_hidden_states.shape[-1] != width:
            raise ValueError(
                f"encoder_hidden_states has shape {tuple(encoder_hidden_states.shape)}: it must be "
                f"(batch, key, {width}), and the last size is the encoder_width of this model"
            )
        return encoder_hidden_states

    @renamed_parameters(places="positions")
    def position_scores(
        self, query_layer: Tensor, key_layer: Tensor, queries: int, positions: Tensor | None, heads: Heads
    ) -> Tensor:
        """Compute what the relative positions add to the scaled scores, (batch, head, query, key).

        It is the sum of `position_terms`, which has the same arguments and raises the same errors.
        """
        terms = [*self.position_terms(query_layer, key_layer, queries, positions, heads).values()]
        return sum(terms[1:], terms[0])

    def position_terms(
        self, query_layer: Tensor, key_layer: Tensor, queries: int, positions: Tensor | None, heads: Heads
    ) -> dict[str, Tensor]:
        """Compute the terms that the relative positions add to the scaled scores, by name.

        query_layer, key_layer: (batch, head, query, head size) and (batch, head, key, head size).
        queries: length of the sequence of the queries. Its last token is at the position of the last key.
        positions: (batch, query), the positions in that sequence of the given queries; None if all are given.
        heads: original indices of the heads, as for `positions.select_heads`.
        Returns tensors (batch or 1, head, query, key), see `positions.DistanceScores.terms`.
        Raises Refused if the sequence is longer than the model allows, and AttributeError if the model has no
        relative positions.
        """
        scheme, device = self.distances, query_layer.device
        if scheme is None:
            raise AttributeError("this attention module has no relative positions")
        keys = key_layer.shape[2]
        if keys > self.max_position_embeddings:
            raise Refused(f"the sequence has {keys} tokens: this model takes at most {self.max_position_embeddings}")
        # A graph that is traced for any length has the rows of the longest text.
        longest = keys if isinstance(keys, int) else self.max_position_embeddings
        rows, row_of_distance = (
            torch.tensor(part, device=device) for part in used_rows(scheme, longest, self.max_position_embeddings)
        )
        key_positions = torch.arange(keys, device=device)
        query_positions = key_positions[None, keys - queries :] if positions is None else positions + keys - queries
        distances = (query_positions[..., None] - key_positions)[:, None] + longest - 1  # (batch or 1, 1, query, key)
        vectors = self._distance_vectors(rows, heads)
        return scheme.terms(query_layer, key_layer, vectors, row_of_distance[distances], _take_along)

    def _distance_vectors(self, rows: Tensor, heads: Heads) -> list[Tensor]:
        """Compute the vectors for `positions.DistanceScores.terms` from some rows of the table.

        Projected rows have the dropout of the embeddings in training. A projection is called as a function, because
        hooks on the query and key layers are for the states of tokens.
        """
        scheme = self.distances
        assert scheme is not None  # only called by position_terms
        table: Tensor = self.get_submodule(scheme.table)(rows)  # (row, width)
        if scheme.norm is not None:
            table = self.get_submodule(scheme.norm)(table)
        if any(addend.projection is not None for addend in scheme.addends):
            table = F.dropout(table, self.config.hidden_dropout_prob, self.training)
        vectors = []
        for addend in scheme.addends:
            if addend.factor is None:  # a number for each head
                by_head, available = table.T[:, None], range(self.config.num_attention_heads)
                selected = select_heads(by_head, available, heads)
            elif addend.projection is None:
                selected = table[None, None]
            else:
                linear = cast("nn.Linear", self.get_submodule(addend.projection))
                projected = self.transpose_for_scores(F.linear(table, linear.weight, linear.bias)[None])[0]
                selected = select_heads(projected, self.heads, heads)
            vectors.append(selected * self.score_scale if scheme.scaled else selected)
        return vectors

    cuts = RenamedAttribute("knockouts")
    put = RenamedAttribute("pattern_patches")
    arrows_cut = RenamedAttribute("blocked_edges")


def block_size(window: int) -> int:
    """Return the number of queries in a block of a local layer. Short blocks would compute few scores at once."""
    return max(window, 64)


def local_attention(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, window: int, *, dropout_p: float, scale: float
) -> Tensor:
    """Compute scaled dot-product attention to the keys within a window around each query, in blocks of queries.

    Memory and time grow with seq * window instead of seq * seq.
    queries, keys, values: (batch, head, seq, head size). bias: added to the scores of each key, (batch or 1, 1, 1,
    seq). window: the largest distance. dropout_p, scale: as for PyTorch's `scaled_dot_product_attention`.
    Returns the context, (batch, head, seq, head size).
    Source: Beltagy 2020 (arXiv:2004.05150), section 3.1.
    """
    batch, _, length, _ = queries.shape
    size = block_size(window)
    blocks, width = -(-length // size), size + 2 * window
    padding = blocks * size - length
    # Each block of queries, and the keys and values up to `window` before and after it: (batch * block, head, ...).
    query_blocks = _split(F.pad(queries, (0, 0, 0, padding)), 2, size).transpose(1, 2).flatten(0, 1)
    key_blocks, value_blocks = (
        F.pad(part, (0, 0, window, padding + window))
        .unfold(2, width, size)  # (batch, head, block, head size, key)
        .permute(0, 2, 1, 4, 3)
        .flatten(0, 1)
        for part in (keys, values)
    )
    offsets = torch.arange(width, device=queries.device) - window
    is_near = (offsets - torch.arange(size, device=queries.device)[:, None]).abs() <= window  # (query, key)
    positions = torch.arange(0, blocks * size, size, device=queries.device)[:, None, None] + offsets  # (block, 1, key)
    allowed = is_near & (positions >= 0) & (positions < length)  # (block, query, key)
    key_bias = queries.new_zeros(1, 1, 1, length) if bias is None else bias
    block_bias = F.pad(key_bias, (window, padding + window)).unfold(-1, width, size)  # (batch or 1, 1, 1, block, key)
    mask = block_bias.permute(0, 3, 1, 2, 4).expand(batch, -1, -1, -1, -1).flatten(0, 1)  # (batch * block, 1, 1, key)
    # A finite value, because the rows after the end of the text may have no key, and NaN would reach their gradients.
    mask = mask.masked_fill(~allowed[:, None].repeat(batch, 1, 1, 1), torch.finfo(queries.dtype).min)
    context = F.scaled_dot_product_attention(
        query_blocks, key_blocks, value_blocks, attn_mask=mask, dropout_p=dropout_p, scale=scale
    )
    return _split(context, 0, blocks).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _split(x: Tensor, axis: int, size: int) -> Tensor:
    """Split an axis into two, the second of the given size."""
    return x.reshape(*x.shape[:axis], -1, size, *x.shape[axis + 1 :])


def _take_along(products: Tensor, index: Tensor, axis: int) -> Tensor:
    """Return the products (batch or 1, head, ...) at an index (batch or 1, 1, query, key) along an axis, -1 or -2.

    `torch.take_along_dim` does the same, but copies the index for each head.
    """
    batch, heads = max(len(products), len(index)), products.shape[1]
    index = index.expand(batch, heads, -1, -1)
    rows = index.shape[-2] if axis == -1 else products.shape[-2]
    return products.expand(batch, -1, rows, -1).gather(axis, index)


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Return the rows of x (batch, ..., seq, width) at positions (batch, position), (batch, ..., position, width)."""
    inner_axes = [1] * (x.dim() - 3)
    index = positions.reshape(len(positions), *inner_axes, -1, 1).expand(len(x), *x.shape[1:-2], -1, x.shape[-1])
    return x.gather(-2, index)


def find_pruneable_heads_and_indices(
    heads: Collection[int], n_heads: int, head_size: int, already_pruned_heads: Collection[int]
) -> tuple[set[int], Tensor]:
    """Find the heads that can be pruned, and the rows of the query, key and value weights that stay without them.

    heads: the heads to prune. already_pruned_heads: the heads pruned before. Both are given by original index.
    n_heads: number of heads that are left. head_size: width of a head.
    Returns those of `heads` that are left, and the indices (row,) of the remaining rows.
    """
    remaining = [head for head in range(n_heads + len(already_pruned_heads)) if head not in already_pruned_heads]
    pruneable = set(heads) & set(remaining)
    rows = torch.arange(n_heads * head_size).view(n_heads, head_size)
    selected = [index for index, head in enumerate(remaining) if head not in pruneable]
    return pruneable, rows[selected].flatten()


def prune_linear_layer(layer: nn.Linear, index: Tensor, dim: int = 0) -> nn.Linear:
    """Return a linear layer with a subset of the outputs or inputs of another.

    index: (entry,), the rows or columns that stay. dim: 0 selects rows (outputs, with their biases), and 1 columns
        (inputs).
    """
    index, requires_grad = index.to(layer.weight.device), layer.weight.requires_grad
    smaller = nn.Linear(1, 1)  # its weights are replaced: initialising a layer without rows would warn
    smaller.weight = nn.Parameter(layer.weight.detach().index_select(dim, index), requires_grad)
    bias = None if layer.bias is None else layer.bias.detach()
    if bias is None:
        smaller.register_parameter("bias", None)
    else:
        smaller.bias = nn.Parameter(bias[index] if dim == 0 else bias.clone(), requires_grad)
    smaller.out_features, smaller.in_features = smaller.weight.shape
    return smaller.train(layer.training)


class BertSelfOutput(nn.Module):
    """The output projection of the heads, with dropout, residual connection and, in a post-norm layer, layer norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        design, width = config.layer_design, config.num_attention_heads * config.attention_head_size
        self.dense = nn.Linear(width, config.hidden_size, bias=design.attention_bias)
        self.LayerNorm = (
            cast("nn.LayerNorm", nn.Identity()) if design.pre_norm else build_norm(config, config.hidden_size)
        )
        self.dropout = nn.Dropout(
            config.attention_probs_dropout_prob if design.pre_norm else config.hidden_dropout_prob
        )

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Project the heads' context, and add it to the residual stream.

        hidden_states: (batch, seq, heads * head size). input_tensor: (batch, seq, hidden), the residual stream.
        Returns (batch, seq, hidden).
        """
        hidden_states = self.dropout(self.dense(hidden_states))
        normalised: Tensor = self.LayerNorm(hidden_states + input_tensor)
        return normalised


class BertAttention(nn.Module):
    """Self-attention, or cross-attention to an encoder's states, with its output projection.

    input_norm: the layer norm before attention in a pre-norm layer other than the first; the identity in all others.
    """

    def __init__(self, config: BertConfig, is_cross_attention: bool = False, layer_num: int = 0) -> None:
        super().__init__()
        has_norm = config.layer_design.pre_norm and layer_num > 0
        self.input_norm = build_norm(config, config.hidden_size) if has_norm else nn.Identity()
        self.self = BertSelfAttention(config, is_cross_attention, layer_num)
        self.output = BertSelfOutput(config)
        self.pruned_heads: set[int] = set()
        if not is_cross_attention:
            self.prune_heads(config.pruned_heads.get(layer_num, ()))

    def check_head(self, head: int) -> None:
        """Raise Refused unless the layer has, or had before pruning, a head of this index."""
        last = self.self.config.num_attention_heads - 1
        if head not in range(last + 1):
            pruned = ", ".join(map(str, sorted(self.pruned_heads)))
            raise Refused(
                f"head {head} does not exist in layer {self.self.layer_num}: this model has heads 0 to {last}"
                + (f" ({pruned} pruned)" if pruned else "")
            )

    def prune_heads(self, heads: Collection[int]) -> None:
        """Prune heads in place, so that the weight matrices become smaller.

        A layer without heads adds only the bias of its output projection to the residual stream.
        heads: original indices, which the other heads keep. Heads that are pruned already are skipped.
        Raises Refused for a head that never existed.
        """
        attention = self.self
        for head in heads:
            self.check_head(head)
        pruneable, index = find_pruneable_heads_and_indices(
            heads, attention.num_attention_heads, attention.attention_head_size, self.pruned_heads
        )
        if not pruneable:
            return
        for name in attention.head_linears:
            setattr(attention, name, prune_linear_layer(getattr(attention, name), index))
        self.output.dense = prune_linear_layer(self.output.dense, index, dim=1)
        attention.heads = tuple(head for head in attention.heads if head not in pruneable)
        attention.num_attention_heads = len(attention.heads)
        attention.all_head_size = attention.num_attention_heads * attention.attention_head_size
        self.pruned_heads |= pruneable

    @property
    def head_projections(self) -> Tensor:
        """The weight of the output projection split by head, a view of shape (hidden, head, head size)."""
        weight = self.output.dense.weight
        return weight.view(len(weight), len(self.self.heads), self.self.attention_head_size)

    def head_outputs(self, values: Tensor) -> Tensor:
        """Project the value vectors of each head (..., head, key, head size) by its part of the output projection.

        Returns (..., head, key, hidden). The bias of the projection belongs to no head and is not added.
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
        """Apply attention to the residual stream.

        The arguments are those of BertSelfAttention.forward. The context that is returned is the residual stream
        after attention, (batch, query, hidden).
        """
        attended = self.self(
            self.input_norm(hidden_states),
            attention_mask,
            head_mask,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_value,
            output_attentions,
            positions,
        )
        residual = hidden_states if positions is None else gather_positions(hidden_states, positions)
        return AttentionOutput(
            self.output(attended.context, residual), attended.attention_probs, attended.past_key_value
        )

    output_maps = RenamedAttribute("head_projections")

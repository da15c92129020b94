"""The encoder: activation functions, embeddings, layers, the stack of layers and the pooler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from bert_core.attention import BertAttention, KeyValue, gather_positions, prune_linear_layer
from bert_core.config import BertConfig
from bert_core.edits import ScaledNeuron
from bert_core.modeling.outputs import BertEncoderOutput, LayerCache
from bert_core.recording import check_recorded_layers, find_watcher
from bert_core.refused import Refused

States = Tensor | Sequence[Tensor]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# Activations by the names that published configurations use.
ACT2FN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_new": _gelu_tanh, "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu, "silu": F.silu, "swish": F.silu, "tanh": torch.tanh,
}  # fmt: skip


def _activation(act: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return ACT2FN[act] if isinstance(act, str) else act


# ---------------------------------------------------------------------------- embeddings


class BertEmbeddings(nn.Module):
    """Token + segment + position embeddings, layer norm, dropout (Devlin 2019, figure 2).

    Where they have another width than the states, a linear map brings them to it (Clark 2020, arXiv:2003.10555, 3.2).
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        # Where positions are counted from the padding token's number, the first row is that of padding tokens.
        self.position_embeddings = nn.Embedding(config.max_position_embeddings + config.padding_rows, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.embeddings_project = None if width == config.hidden_size else nn.Linear(width, config.hidden_size)
        self.position_embedding_type = config.position_embedding_type
        self.adds_positions = config.position_scheme.adds_vectors

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values_length: int = 0,
    ) -> Tensor:
        """input_ids, token_type_ids, position_ids: (batch, seq). inputs_embeds: (batch, seq, embedding).

        Returns (batch, seq, hidden). Without token_type_ids every token is in segment 0; without position_ids tokens
        are counted as `positions_of` says, which needs input_ids where a padding token may be among them.
        Raises ValueError unless exactly one of input_ids and inputs_embeds is given, if the sequence is longer
        than the position table, or if segments are given to a model that has none.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds, and not both")
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        seq_length = inputs_embeds.shape[1]
        embeddings = inputs_embeds
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                embeddings = embeddings + self.token_type_embeddings.weight[0]
            else:
                embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        elif token_type_ids is not None:
            raise ValueError("token_type_ids were given, but this model has type_vocab_size 0: it has no segments")
        if self.adds_positions:
            if position_ids is None:
                end = past_key_values_length + seq_length
                if end > self.config.max_position_embeddings:
                    raise Refused(
                        f"the sequence has {end} tokens: this model takes at most {self.config.max_position_embeddings}"
                    )
                if input_ids is not None:
                    position_ids = self.create_position_ids(input_ids, past_key_values_length)
            if position_ids is None:
                position_ids = torch.arange(past_key_values_length, end, device=inputs_embeds.device)[None]
            embeddings = embeddings + self.position_embeddings(position_ids + self.config.padding_rows)
        elif position_ids is not None:
            raise ValueError(
                f"position_ids were given, but this model's positions are {self.position_embedding_type!r}: "
                "they are counted from token to token"
            )
        normalised: Tensor = self.dropout(self.LayerNorm(embeddings))
        return normalised if self.embeddings_project is None else self.embeddings_project(normalised)

    def create_position_ids(self, input_ids: Tensor, past_key_values_length: int = 0) -> Tensor | None:
        """The places (batch, seq) of tokens where padding tokens are not counted, theirs -1; None where they are.

        RoBERTa and its relatives do not count them, also where they are typed (Liu 2019, as in fairseq).
        """
        if not self.config.padding_rows or not self.adds_positions:
            return None
        counted = input_ids != self.config.pad_token_id
        return torch.where(counted, counted.cumsum(1) - 1 + past_key_values_length, -1)

    @property
    def output_module(self) -> nn.Module:
        """The module that gives what enters the first layer, but for dropout."""
        return self.LayerNorm if self.embeddings_project is None else self.embeddings_project


# ---------------------------------------------------------------------------- layers


class BertIntermediate(nn.Module):
    """First half of the feed-forward network: dense layer and activation, hidden -> intermediate."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = _activation(config.hidden_act)
        self.neurons: Sequence[int] = range(config.intermediate_size)  # by their first numbers: pruning leaves gaps
        self.scaled_neurons: tuple[ScaledNeuron, ...] = ()  # neurons whose activation is multiplied
        self.gates: Tensor | None = None  # (batch or 1, 1, intermediate), what all activations are multiplied by

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, seq, intermediate)."""
        return self.activate(self.dense(hidden_states))

    def activate(self, before: Tensor) -> Tensor:
        """What the neurons pass on, of what they take; both (..., intermediate)."""
        after: Tensor = self.intermediate_act_fn(before)
        if self.scaled_neurons:
            factors = dict.fromkeys(self.neurons, 1.0)
            for one in self.scaled_neurons:
                factors[one.neuron] *= one.factor
            after = after * after.new_tensor(list(factors.values()))
        return after if self.gates is None else after * self.gates


class BertOutput(nn.Module):
    """Second half of the feed-forward network: dense layer, dropout, residual connection, layer norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """hidden_states: (batch, seq, intermediate); input_tensor and the result: (batch, seq, hidden)."""
        normalised: Tensor = self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)
        return normalised


class LayerOutput(NamedTuple):
    """What a layer gives: as AttentionOutput, with the maps of both attentions and the cache of both."""

    hidden_states: Tensor
    attention_probs: Tensor | None
    cross_attention_probs: Tensor | None
    past_key_value: LayerCache


class BlockActivations(NamedTuple):
    """What one block computes in a pass; the same for every kind of block.

    states, after_attention, output: (batch, seq, hidden), the residual stream before attention, between attention and
        the feed-forward network, and after that.
    attention_map: (batch, head, query, key), after the softmax, without the gates.
    head_outputs: (batch, head, key, hidden), the value vectors of each head through its part of the output projection,
        times its gate.
    neurons: (batch, seq, intermediate), the feed-forward network after its activation.
    """

    states: Tensor
    attention_map: Tensor
    head_outputs: Tensor
    after_attention: Tensor
    neurons: Tensor
    output: Tensor

    @property
    def contribution_norms(self) -> Tensor:
        """The length of what each head adds to the residual stream at a query from a key, (batch, head, query, key).

        Source: Kobayashi 2020 (arXiv:2004.10102), equation 4.
        """
        norms: Tensor = self.head_outputs.norm(dim=-1)  # (batch, head, key)
        return self.attention_map * norms[:, :, None]


class Block(nn.Module, ABC):
    """One layer of an encoder: attention and a feed-forward network, each of which adds to the residual stream.

    A kind of block says where its norms stand and what its feed-forward network is; everything else asks a block for
    its steps, which are these methods in this order, and for its recorded points.
    """

    attention: BertAttention

    @abstractmethod
    def attention_input(self, states: Tensor) -> Tensor:
        """What queries, keys and values are made from, of the states that enter; both (batch, seq, hidden)."""

    @abstractmethod
    def attention_update(self, context: Tensor) -> Tensor:
        """What attention adds to the residual stream: (batch, seq, heads * head size) -> (batch, seq, hidden)."""

    @abstractmethod
    def after_attention(self, update: Tensor, states: Tensor) -> Tensor:
        """The residual stream after attention, of its update and the states that entered; all (batch, seq, hidden)."""

    @abstractmethod
    def neurons(self, after_attention: Tensor) -> Tensor:
        """The neurons after their activation, (batch, seq, hidden) -> (batch, seq, intermediate)."""

    @abstractmethod
    def feed_forward_update(self, neurons: Tensor) -> Tensor:
        """What the feed-forward network adds: (batch, seq, intermediate) -> (batch, seq, hidden)."""

    @abstractmethod
    def output_states(self, update: Tensor, after_attention: Tensor) -> Tensor:
        """The residual stream after the feed-forward network, of its update and the states before it."""

    def compute_activations(
        self, states: Tensor, attention_mask: Tensor | None = None, head_mask: Tensor | None = None
    ) -> BlockActivations:
        """The recorded points of a pass over states (batch, seq, hidden).

        attention_mask, head_mask: as for BertSelfAttention.forward.
        """
        attention = self.attention.self
        seen = attention(self.attention_input(states), attention_mask, head_mask, output_attentions=True)
        assert seen.attention_probs is not None  # which was asked for
        head_outputs = self.attention.head_outputs(seen.past_key_value[1])
        if head_mask is not None:
            head_outputs = head_outputs * head_mask[..., list(attention.heads), :, :]
        after_attention = self.after_attention(self.attention_update(seen.context), states)
        neurons = self.neurons(after_attention)
        output = self.output_states(self.feed_forward_update(neurons), after_attention)
        return BlockActivations(states, seen.attention_probs, head_outputs, after_attention, neurons, output)


class BertLayer(Block):
    """The block of BERT: a norm after each addition to the residual stream, and a network of two dense layers.

    Attention, cross-attention where the configuration adds it, feed-forward network; after each a residual and norm.

    mode "multimodal" cross-attends wherever there is cross-attention; mode "text" never does.
    A layer that was taken out (`gone`) keeps its number, and passes on what it is given.
    """

    def __init__(self, config: BertConfig, layer_num: int = 0) -> None:
        super().__init__()
        self.config = config
        self.layer_num = layer_num
        self.is_decoder = config.is_decoder
        self.add_cross_attention = config.add_cross_attention
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.seq_len_dim = 1
        self.attention = BertAttention(config, layer_num=layer_num)
        if self.add_cross_attention:
            self.crossattention = BertAttention(config, is_cross_attention=True, layer_num=layer_num)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config)
        self.computes_all_positions = (
            False  # whether every position is computed, in one piece, also where only some are asked for
        )
        self.removed = False
        self.prune_neurons(cast("Collection[int]", config.pruned_neurons.get(layer_num, ())))
        if layer_num in config.pruned_layers:
            self.remove()

    def prune_neurons(self, neurons: Collection[int]) -> None:
        """Take neurons of the feed-forward network out for good, in place: smaller matrices.

        neurons: by their first numbers, which the others keep; those that are gone already are passed over.
        """
        if not neurons:  # before a layer is counted whose size only a file says
            return
        going, there = set(neurons), self.intermediate.neurons
        kept = [place for place, neuron in enumerate(there) if neuron not in going]
        if len(kept) == len(there):
            return
        index = torch.tensor(kept, dtype=torch.long)
        self.intermediate.dense = prune_linear_layer(self.intermediate.dense, index)
        self.output.dense = prune_linear_layer(self.output.dense, index, dim=1)
        self.intermediate.neurons = tuple(there[place] for place in kept)

    def remove(self) -> None:
        """Take the layer out for good, in place: without heads, neurons, biases and norms only the residual is left.

        Raises Refused for a layer with cross-attention.
        """
        if self.add_cross_attention:
            raise Refused("a layer with cross-attention cannot be taken out: take out its heads and neurons")
        self.attention.prune_heads(self.attention.self.heads)
        self.prune_neurons(self.intermediate.neurons)
        for output in (self.attention.output, self.output):
            output.dense.register_parameter("bias", None)
            output.LayerNorm = cast("nn.LayerNorm", nn.Identity())
        attention = self.attention.self
        if attention.distances is not None:
            delattr(attention, attention.distances.table)
            attention.position_embedding_type, attention.distances = "absolute", None
        self.removed = True

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_value: LayerCache | None = None,
        output_attentions: bool = False,
        mode: str = "multimodal",
        positions: Tensor | None = None,
    ) -> LayerOutput:
        """As BertSelfAttention.forward, with the residual stream (batch, seq, hidden) in and out.

        The head mask gates a head's self-attention and its cross-attention alike.
        Raises ValueError for another mode, or without the encoder's states where they are attended to.
        """
        if mode not in ("multimodal", "text"):
            raise ValueError(f"mode {mode!r} is unknown: 'multimodal' or 'text'")
        past = past_key_value or ()
        asked, positions = positions, None if self.computes_all_positions else positions
        if self.removed and not self.computes_all_positions:
            seen = self.attention.self(hidden_states, past_key_value=past or None, positions=positions)
            passed = hidden_states if positions is None else gather_positions(hidden_states, positions)
            maps = seen.attention_probs if output_attentions else None
            return LayerOutput(passed, maps, None, seen.past_key_value)
        mixed = self.attention(
            hidden_states,
            attention_mask,
            head_mask,
            past_key_value=cast("KeyValue | None", past[:2] or None),
            output_attentions=output_attentions,
            positions=positions,
        )
        attention_output, cache, cross_attention_probs = mixed.context, mixed.past_key_value, None
        if mode == "multimodal" and self.add_cross_attention:
            crossed = self.crossattention(
                attention_output,
                None,
                head_mask,
                encoder_hidden_states,
                encoder_attention_mask,
                cast("KeyValue | None", past[2:] or None),
                output_attentions,
            )
            attention_output, cross_attention_probs = crossed.context, crossed.attention_probs
            cache = (*cache, *crossed.past_key_value)
        if self.chunk_size_feed_forward and not self.computes_all_positions:
            chunks = attention_output.split(self.chunk_size_feed_forward, dim=self.seq_len_dim)
            layer_output = torch.cat([self.feed_forward_chunk(chunk) for chunk in chunks], dim=self.seq_len_dim)
        else:
            layer_output = self.feed_forward_chunk(attention_output)
        if self.computes_all_positions and asked is not None:
            layer_output = gather_positions(layer_output, asked)
        return LayerOutput(layer_output, mixed.attention_probs, cross_attention_probs, cache)

    def feed_forward_chunk(self, attention_output: Tensor) -> Tensor:
        """The feed-forward network on some positions: (batch, some, hidden) -> the same shape."""
        fed: Tensor = self.output(self.intermediate(attention_output), attention_output)
        return fed

    def attention_input(self, states: Tensor) -> Tensor:
        """The states as they are."""
        return states

    def attention_update(self, context: Tensor) -> Tensor:
        """Through the output projection and its dropout."""
        update: Tensor = self.attention.output.dropout(self.attention.output.dense(context))
        return update

    def after_attention(self, update: Tensor, states: Tensor) -> Tensor:
        """The norm of the sum."""
        normed: Tensor = self.attention.output.LayerNorm(update + states)
        return normed

    def neurons(self, after_attention: Tensor) -> Tensor:
        """The first dense layer and the activation."""
        activated: Tensor = self.intermediate(after_attention)
        return activated

    def feed_forward_update(self, neurons: Tensor) -> Tensor:
        """Through the second dense layer and its dropout."""
        update: Tensor = self.output.dropout(self.output.dense(neurons))
        return update

    def output_states(self, update: Tensor, after_attention: Tensor) -> Tensor:
        """The norm of the sum."""
        normed: Tensor = self.output.LayerNorm(update + after_attention)
        return normed


class BertEncoder(nn.Module):
    """The stack of layers.

    With `gradient_checkpointing = True`, training computes a layer again on the way back instead of keeping what is
    inside it; a layer that somebody watches keeps it all the same.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.ModuleList(BertLayer(config, layer_num) for layer_num in range(config.num_hidden_layers))
        for layer_num, layer in enumerate(self.layer):
            _share(layer, self.layer[config.first_of_group(layer_num)])
        distances = config.position_scheme.distances
        if distances is not None and distances.shared_by_layers:
            attentions = [
                layer.attention.self for layer in cast("list[BertLayer]", list(self.layer)) if not layer.removed
            ]
            for attention in attentions[1:]:
                _share(attention.get_submodule(distances.table), attentions[0].get_submodule(distances.table))
        self.gradient_checkpointing = False

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        encoder_hidden_states: States | None = None,
        encoder_attention_mask: States | None = None,
        past_key_values: Sequence[LayerCache] | None = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = True,
        mode: str = "multimodal",
        positions: Tensor | None = None,
    ) -> BertEncoderOutput | tuple[Any, ...]:
        """hidden_states: (batch, seq, hidden). head_mask: (layer, batch or 1, head, 1, 1). The masks are additive.

        encoder_hidden_states, encoder_attention_mask: for all layers, or a list: layer l takes element l modulo its
        length. return_dict False gives a tuple of what is there.
        positions: (batch, some), where the last layer is wanted; None wants it everywhere.
        The first document's "all encoded layers" are the hidden_states of the result.
        Raises ValueError as its layers do, and for a cache that is asked for while layers are computed again, and
        Refused where `record` names a layer that does not exist.
        """
        check_recorded_layers(len(self.layer))
        checkpointing = self.gradient_checkpointing and self.training
        if checkpointing and (use_cache or past_key_values is not None):
            raise ValueError("gradient checkpointing keeps no keys and values: train with use_cache=False")
        all_hidden_states: list[Tensor] = [hidden_states]
        attentions: list[Tensor | None] = []
        cross_attentions: list[Tensor | None] = []
        caches: list[LayerCache] = []
        for layer_num, layer in enumerate(self.layer):
            arguments = (
                hidden_states,
                attention_mask,
                None if head_mask is None else head_mask[layer_num],
                _of_layer(encoder_hidden_states, layer_num),
                _of_layer(encoder_attention_mask, layer_num),
                None if past_key_values is None else past_key_values[layer_num],
                output_attentions,
                mode,
                positions if layer_num == self.config.num_hidden_layers - 1 else None,
            )
            if checkpointing and not _is_watched(cast("BertLayer", layer)):
                done = LayerOutput(*recompute(layer, *arguments, use_reentrant=False))
            else:
                done = layer(*arguments)
            hidden_states = done.hidden_states
            if output_hidden_states:
                all_hidden_states.append(hidden_states)
            if output_attentions:
                attentions.append(done.attention_probs)
                cross_attentions.append(done.cross_attention_probs)
            if use_cache:
                caches.append(done.past_key_value)
        crossed = bool(cross_attentions) and cross_attentions[0] is not None
        encoded = BertEncoderOutput(
            last_hidden_state=hidden_states,
            past_key_values=tuple(caches) if use_cache else None,
            hidden_states=tuple(all_hidden_states) if output_hidden_states else None,
            attentions=cast("tuple[Tensor, ...]", tuple(attentions)) if output_attentions else None,
            cross_attentions=cast("tuple[Tensor, ...]", tuple(cross_attentions)) if crossed else None,
        )
        return encoded if return_dict else encoded.to_tuple()


def _share(module: nn.Module, first: nn.Module) -> None:
    """Give a module the weights of another: what is seen and changed of it stays its own."""
    if module is not first:
        for own, other in zip(module.modules(), first.modules(), strict=True):
            for name, parameter in other.named_parameters(recurse=False):
                setattr(own, name, parameter)


def _of_layer(states: States | None, layer_num: int) -> Tensor | None:
    return states if states is None or isinstance(states, Tensor) else states[layer_num % len(states)]


def map_states(function: Callable[[Tensor], Tensor], states: States | None) -> States | None:
    """The function of an encoder's states or mask, or of each in a list of them; None for None."""
    if states is None or isinstance(states, Tensor):
        return None if states is None else function(states)
    return [function(one) for one in states]


def _is_watched(layer: BertLayer) -> bool:
    attentions = [layer.attention.self]
    if layer.add_cross_attention:
        attentions.append(layer.crossattention.self)
    return any(find_watcher(attention) is not None for attention in attentions)


class BertPooler(nn.Module):
    """The first token's hidden state through a dense layer and tanh, or in other families a ReLU or GELU."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}[config.pooler_act]()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, hidden)."""
        pooled: Tensor = self.activation(self.dense(hidden_states[:, 0]))
        return pooled

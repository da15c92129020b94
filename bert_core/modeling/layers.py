"""The encoder: activation functions, embeddings, layers, the stack of layers and the pooler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from bert_core.attention import BertAttention, KeyValue, build_norm, gather_positions, prune_linear_layer
from bert_core.config import BertConfig
from bert_core.deprecation import RenamedAttribute
from bert_core.edits import ScaledNeuron
from bert_core.modeling.outputs import BertEncoderOutput, LayerCache
from bert_core.recording import check_recorded_layers, find_watcher
from bert_core.refused import Refused

States = Tensor | Sequence[Tensor]


def _gelu_tanh(x: Tensor) -> Tensor:
    """Compute the tanh approximation of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2)."""
    return F.gelu(x, approximate="tanh")


# Activation functions by their names in published configurations.
ACT2FN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_new": _gelu_tanh, "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu, "silu": F.silu, "swish": F.silu, "tanh": torch.tanh,
}  # fmt: skip


def _activation(act: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the activation function of a name; a function is returned unchanged."""
    return ACT2FN[act] if isinstance(act, str) else act


# ---------------------------------------------------------------------------- embeddings


class BertEmbeddings(nn.Module):
    """The sum of token, segment and position embeddings, with layer norm and dropout.

    If the embeddings are narrower or wider than the hidden states, a linear map follows.
    Source: Devlin 2019 (arXiv:1810.04805), figure 2; of the linear map, Clark 2020 (arXiv:2003.10555), section 3.2.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        # In families that count positions from the padding token's id, the first row belongs to padding tokens.
        rows = config.max_position_embeddings + config.padding_rows
        self.position_embeddings = nn.Embedding(rows, width) if config.position_scheme.has_table else None
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.LayerNorm = build_norm(config, width)
        # ModernBERT has a dropout of its own there, which is always 0: `hidden_dropout_prob` is that of its networks.
        self.dropout = nn.Dropout(0.0 if config.layer_design.pre_norm else config.hidden_dropout_prob)
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
        """Compute the embeddings that enter the first layer.

        input_ids: (batch, seq). inputs_embeds: (batch, seq, embedding), token embeddings in place of input_ids.
        token_type_ids: (batch, seq), the segments; None puts every token in segment 0.
        position_ids: (batch, seq), counted from 0; None counts the tokens as `create_position_ids` does. With
            inputs_embeds, None counts padding tokens too.
        past_key_values_length: number of tokens in the cache of a decoder, before the given ones.
        Returns (batch, seq, hidden).
        Raises ValueError unless exactly one of input_ids and inputs_embeds is given, and for segments or positions
        that the model does not have. Raises Refused if the sequence is longer than the position table.
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
        if self.adds_positions and self.position_embeddings is not None:
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
                f"position_ids were given, but position_embedding_type is {self.position_embedding_type!r}: this model "
                "uses the distances between tokens only"
            )
        normalised: Tensor = self.dropout(self.LayerNorm(embeddings))
        return normalised if self.embeddings_project is None else self.embeddings_project(normalised)

    def create_position_ids(self, input_ids: Tensor, past_key_values_length: int = 0) -> Tensor | None:
        """Count the positions of tokens for a model that skips padding tokens, as RoBERTa and its variants do.

        input_ids: (batch, seq). past_key_values_length: number of tokens in the cache, before the given ones.
        Returns (batch, seq), -1 at padding tokens; None for a model that counts every token.
        Source: Liu 2019 (arXiv:1907.11692), as implemented in fairseq.
        """
        if not self.config.padding_rows or not self.adds_positions:
            return None
        is_token = input_ids != self.config.pad_token_id
        return torch.where(is_token, is_token.cumsum(1) - 1 + past_key_values_length, -1)

    @property
    def output_module(self) -> nn.Module:
        """The last module before the first layer apart from dropout: the linear map or, without one, the layer norm."""
        return self.LayerNorm if self.embeddings_project is None else self.embeddings_project

    last = RenamedAttribute("output_module")
    positions_of = RenamedAttribute("create_position_ids")


# ---------------------------------------------------------------------------- layers


class BertIntermediate(nn.Module):
    """The first half of the feed-forward network: a dense layer and the activation function.

    input_norm: the layer norm before the dense layer in a pre-norm layer; the identity in all others.
    gate: the dense layer of a gated network, whose outputs multiply the activations; None in all others.
    neurons: original indices of the neurons that are left.
    scaled_neurons: neurons whose activation is multiplied by a factor.
    gates: (batch or 1, 1, intermediate), factors of all activations; None leaves them unchanged.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        design, sizes = config.layer_design, (config.hidden_size, config.intermediate_size)
        self.input_norm = build_norm(config, config.hidden_size) if design.pre_norm else nn.Identity()
        self.dense = nn.Linear(*sizes, bias=design.feed_forward_bias)
        self.gate = nn.Linear(*sizes, bias=design.feed_forward_bias) if design.gated else None
        self.intermediate_act_fn = _activation(config.hidden_act)
        self.neurons: Sequence[int] = range(config.intermediate_size)  # by original index: pruning leaves gaps
        self.scaled_neurons: tuple[ScaledNeuron, ...] = ()
        self.gates: Tensor | None = None

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Compute the activations (batch, seq, intermediate) of hidden states (batch, seq, hidden)."""
        normalised = self.input_norm(hidden_states)
        return self.activate(self.dense(normalised), None if self.gate is None else self.gate(normalised))

    def gated_inputs(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the two inputs of the neurons of a gated network: after the activation function, and the gate.

        hidden_states: (..., hidden), as for `forward`. Returns (..., intermediate) each.
        """
        assert self.gate is not None  # of a gated network
        normalised = self.input_norm(hidden_states)
        return self.intermediate_act_fn(self.dense(normalised)), self.gate(normalised)

    @property
    def linears(self) -> tuple[str, ...]:
        """Names of the dense layers whose outputs are the inputs of the neurons."""
        return ("dense",) if self.gate is None else ("dense", "gate")

    def activate(self, inputs: Tensor, multipliers: Tensor | None = None) -> Tensor:
        """Compute the activations of the neurons from their inputs, with factors and gates, (..., intermediate).

        multipliers: the second inputs of the neurons of a gated network.
        """
        activations: Tensor = self.intermediate_act_fn(inputs)
        if multipliers is not None:
            activations = activations * multipliers
        if self.scaled_neurons:
            factors = dict.fromkeys(self.neurons, 1.0)
            for scaled in self.scaled_neurons:
                factors[scaled.neuron] *= scaled.factor
            activations = activations * activations.new_tensor(list(factors.values()))
        return activations if self.gates is None else activations * self.gates

    scaled = RenamedAttribute("scaled_neurons")
    activated = RenamedAttribute("activate")


class BertOutput(nn.Module):
    """The second half of the feed-forward network: a dense layer, dropout, residual connection and layer norm.

    LayerNorm: in a post-norm layer the norm of the sum. Of the pre-norm layers the last one has it, as the norm of the
        final hidden states, and in all others it is the identity.
    neuron_dropout: dropout before the dense layer, in pre-norm layers, instead of dropout after it.
    """

    def __init__(self, config: BertConfig, layer_num: int = 0) -> None:
        super().__init__()
        design = config.layer_design
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size, bias=design.feed_forward_bias)
        has_norm = not design.pre_norm or layer_num == config.num_hidden_layers - 1
        self.LayerNorm = build_norm(config, config.hidden_size) if has_norm else cast("nn.LayerNorm", nn.Identity())
        self.neuron_dropout = nn.Dropout(config.hidden_dropout_prob if design.pre_norm else 0.0)
        self.dropout = nn.Dropout(0.0 if design.pre_norm else config.hidden_dropout_prob)

    def update(self, hidden_states: Tensor) -> Tensor:
        """Project the activations of the neurons (batch, seq, intermediate) to (batch, seq, hidden)."""
        update: Tensor = self.dropout(self.dense(self.neuron_dropout(hidden_states)))
        return update

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """Project the activations of the neurons, and add them to the residual stream.

        hidden_states: (batch, seq, intermediate). input_tensor: (batch, seq, hidden), the residual stream.
        Returns (batch, seq, hidden).
        """
        normalised: Tensor = self.LayerNorm(self.update(hidden_states) + input_tensor)
        return normalised


class LayerOutput(NamedTuple):
    """The result of a layer.

    hidden_states: (batch, seq, hidden), at the requested positions only if some were given.
    attention_probs, cross_attention_probs: (batch, head, query, key), after the softmax and before dropout and the
        head mask; None unless requested, and the second without cross-attention.
    past_key_value: keys and values of self-attention, then of cross-attention, if any.
    """

    hidden_states: Tensor
    attention_probs: Tensor | None
    cross_attention_probs: Tensor | None
    past_key_value: LayerCache


class BlockActivations(NamedTuple):
    """The activations of one block in a forward pass; they are the same for every kind of block.

    states, after_attention, output: (batch, seq, hidden), the residual stream before attention, between attention and
        the feed-forward network, and after the feed-forward network.
    attention_map: (batch, head, query, key), after the softmax and before the head gates.
    head_outputs: (batch, head, key, hidden), the value vectors of each head after its part of the output projection,
        multiplied by its gate.
    neurons: (batch, seq, intermediate), the neurons after the activation function.
    """

    states: Tensor
    attention_map: Tensor
    head_outputs: Tensor
    after_attention: Tensor
    neurons: Tensor
    output: Tensor

    @property
    def contribution_norms(self) -> Tensor:
        """Value-weighted attention (batch, head, query, key): the norms of the vectors that are summed at each query.

        Source: Kobayashi 2020 (arXiv:2004.10102), equation 4.
        """
        norms: Tensor = self.head_outputs.norm(dim=-1)  # (batch, head, key)
        return self.attention_map * norms[:, :, None]


class Block(nn.Module, ABC):
    """Base class of the layers of an encoder.

    Attention and a feed-forward network each add an update to the residual stream. A subclass defines where the layer
    norms are and what the feed-forward network is. All other code uses the steps below, in this order, or
    `compute_activations`.
    """

    attention: BertAttention

    @abstractmethod
    def attention_input(self, states: Tensor) -> Tensor:
        """Compute the input of attention from the hidden states that enter the block; both (batch, seq, hidden)."""

    @abstractmethod
    def attention_update(self, context: Tensor) -> Tensor:
        """Compute the update (batch, seq, hidden) by attention from its context (batch, seq, heads * head size)."""

    @abstractmethod
    def after_attention(self, update: Tensor, states: Tensor) -> Tensor:
        """Compute the residual stream after attention.

        update: (batch, seq, hidden), by attention. states: (batch, seq, hidden), which entered the block.
        Returns (batch, seq, hidden).
        """

    @abstractmethod
    def neurons(self, after_attention: Tensor) -> Tensor:
        """Compute the activations of the neurons (batch, seq, intermediate) from (batch, seq, hidden)."""

    @abstractmethod
    def feed_forward_update(self, neurons: Tensor) -> Tensor:
        """Compute the update (batch, seq, hidden) by the feed-forward network from (batch, seq, intermediate)."""

    @abstractmethod
    def output_states(self, update: Tensor, after_attention: Tensor) -> Tensor:
        """Compute the residual stream after the feed-forward network.

        update: (batch, seq, hidden), by the feed-forward network. after_attention: (batch, seq, hidden).
        Returns (batch, seq, hidden).
        """

    def compute_activations(
        self, states: Tensor, attention_mask: Tensor | None = None, head_mask: Tensor | None = None
    ) -> BlockActivations:
        """Run the block on hidden states, and return its activations.

        states: (batch, seq, hidden). attention_mask, head_mask: as in BertSelfAttention.forward.
        """
        attention = self.attention.self
        attended = attention(self.attention_input(states), attention_mask, head_mask, output_attentions=True)
        assert attended.attention_probs is not None  # output_attentions is set
        head_outputs = self.attention.head_outputs(attended.past_key_value[1])
        if head_mask is not None:
            head_outputs = head_outputs * head_mask[..., list(attention.heads), :, :]
        after_attention = self.after_attention(self.attention_update(attended.context), states)
        neurons = self.neurons(after_attention)
        output = self.output_states(self.feed_forward_update(neurons), after_attention)
        return BlockActivations(states, attended.attention_probs, head_outputs, after_attention, neurons, output)

    points = RenamedAttribute("compute_activations")


class BertLayer(Block):
    """The layer of an encoder: attention, cross-attention if configured, and a feed-forward network.

    A residual connection follows each of them. `config.layer_design` gives the layer norms and the kind of network.
    computes_all_positions: True computes every position in one piece, even if only some are requested, because a hook
        needs them all.
    removed: True for a layer that was pruned as a whole. It keeps its index, and returns its input.
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
        self.output = BertOutput(config, layer_num)
        self.computes_all_positions = False
        self.removed = False
        self.prune_neurons(cast("Collection[int]", config.pruned_neurons.get(layer_num, ())))
        if layer_num in config.pruned_layers:
            self.remove()

    def prune_neurons(self, neurons: Collection[int]) -> None:
        """Prune neurons of the feed-forward network in place, so that the weight matrices become smaller.

        neurons: original indices, which the other neurons keep. Neurons that are pruned already are skipped.
        """
        if not neurons:  # return before the neurons are listed: the size may come from an unchecked file
            return
        pruned, remaining = set(neurons), self.intermediate.neurons
        selected = [index for index, neuron in enumerate(remaining) if neuron not in pruned]
        if len(selected) == len(remaining):
            return
        rows = torch.tensor(selected, dtype=torch.long)
        for name in self.intermediate.linears:
            setattr(self.intermediate, name, prune_linear_layer(getattr(self.intermediate, name), rows))
        self.output.dense = prune_linear_layer(self.output.dense, rows, dim=1)
        self.intermediate.neurons = tuple(remaining[index] for index in selected)

    def remove(self) -> None:
        """Prune the layer as a whole, in place, so that only its residual connection is left.

        Raises Refused for a layer with cross-attention.
        """
        if self.add_cross_attention:
            raise Refused("a layer with cross-attention cannot be removed: prune its heads and neurons instead")
        self.attention.prune_heads(self.attention.self.heads)
        self.prune_neurons(self.intermediate.neurons)
        for output in (self.attention.output, self.output):
            output.dense.register_parameter("bias", None)
            if not self.config.layer_design.pre_norm:  # in which only the norm of the final hidden states is left
                output.LayerNorm = cast("nn.LayerNorm", nn.Identity())
        self.attention.input_norm = self.intermediate.input_norm = nn.Identity()
        attention = self.attention.self
        if attention.distances is not None:
            for name in (*attention.distances.shared_modules, *attention.distances.own_projections):
                delattr(attention, name)
            attention.position_embedding_type, attention.distances = "absolute", None
        self.removed = True

    def restore(self) -> None:
        """Give a removed pre-norm layer the layer norms and biases of a new one, in place, so that it is a usual layer.

        Without heads and neurons it still returns its input.
        """
        if not self.removed:
            return
        config, weight, design = self.config, self.output.dense.weight, self.config.layer_design
        if self.layer_num:
            self.attention.input_norm = build_norm(config, config.hidden_size).to(weight)
        self.intermediate.input_norm = build_norm(config, config.hidden_size).to(weight)
        outputs = ((self.attention.output, design.attention_bias), (self.output, design.feed_forward_bias))
        for output, has_bias in outputs:
            if has_bias:
                output.dense.bias = nn.Parameter(weight.new_zeros(config.hidden_size), weight.requires_grad)
        self.removed = False

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
        """Apply the layer to the residual stream.

        The other arguments are those of BertSelfAttention.forward; the head mask gates a head's self-attention and its
        cross-attention.
        mode: "multimodal" uses cross-attention if the layer has it, and "text" never does.
        Raises ValueError for another mode, and if cross-attention is used without the encoder's states.
        """
        if mode not in ("multimodal", "text"):
            raise ValueError(f"mode {mode!r} is unknown: it must be 'multimodal' or 'text'")
        past = past_key_value or ()
        output_positions, positions = positions, None if self.computes_all_positions else positions
        if self.removed and not self.computes_all_positions:
            attended = self.attention.self(hidden_states, past_key_value=past or None, positions=positions)
            residual = hidden_states if positions is None else gather_positions(hidden_states, positions)
            residual = self.output.LayerNorm(residual)  # the identity, except for a norm of the final hidden states
            maps = attended.attention_probs if output_attentions else None
            return LayerOutput(residual, maps, None, attended.past_key_value)
        attended = self.attention(
            hidden_states,
            attention_mask,
            head_mask,
            past_key_value=cast("KeyValue | None", past[:2] or None),
            output_attentions=output_attentions,
            positions=positions,
        )
        attention_output, cache, cross_attention_probs = attended.context, attended.past_key_value, None
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
        if self.computes_all_positions and output_positions is not None:
            layer_output = gather_positions(layer_output, output_positions)
        return LayerOutput(layer_output, attended.attention_probs, cross_attention_probs, cache)

    def feed_forward_chunk(self, attention_output: Tensor) -> Tensor:
        """Apply the feed-forward network to a chunk of positions (batch, position, hidden), and keep the shape."""
        chunk_output: Tensor = self.output(self.intermediate(attention_output), attention_output)
        return chunk_output

    def attention_input(self, states: Tensor) -> Tensor:
        """Apply the layer norm before attention, if the layer has one."""
        normed: Tensor = self.attention.input_norm(states)
        return normed

    def attention_update(self, context: Tensor) -> Tensor:
        """Apply the output projection and dropout."""
        update: Tensor = self.attention.output.dropout(self.attention.output.dense(context))
        return update

    def after_attention(self, update: Tensor, states: Tensor) -> Tensor:
        """Add the update, and apply the layer norm after attention, if the layer has one."""
        normed: Tensor = self.attention.output.LayerNorm(update + states)
        return normed

    def neurons(self, after_attention: Tensor) -> Tensor:
        """Apply the first dense layer and the activation function."""
        activated: Tensor = self.intermediate(after_attention)
        return activated

    def feed_forward_update(self, neurons: Tensor) -> Tensor:
        """Apply the last dense layer and dropout."""
        return self.output.update(neurons)

    def output_states(self, update: Tensor, after_attention: Tensor) -> Tensor:
        """Add the update, and apply the layer norm after the feed-forward network, if the layer has one."""
        normed: Tensor = self.output.LayerNorm(update + after_attention)
        return normed

    whole = RenamedAttribute("computes_all_positions")
    gone = RenamedAttribute("removed")
    take_out = RenamedAttribute("remove")


class BertEncoder(nn.Module):
    """The stack of layers.

    gradient_checkpointing: True recomputes the activations of a layer in the backward pass of training instead of
        keeping them, unless its attention map is recorded.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.ModuleList(BertLayer(config, layer_num) for layer_num in range(config.num_hidden_layers))
        for layer_num, layer in enumerate(self.layer):
            _share_weights(layer, self.layer[config.first_of_group(layer_num)])
        distances = config.position_scheme.distances
        if distances is not None and distances.shared_by_layers:
            attentions = [
                layer.attention.self for layer in cast("list[BertLayer]", list(self.layer)) if not layer.removed
            ]
            for attention in attentions[1:]:
                for name in distances.shared_modules:
                    _share_weights(attention.get_submodule(name), attentions[0].get_submodule(name))
        self.gradient_checkpointing = False

    @property
    def final_norm(self) -> nn.Module:
        """The layer norm of the final hidden states, which the last layer applies; the identity in post-norm models.

        A head that reads the states of an earlier layer needs it.
        """
        has_norm = self.config.layer_design.pre_norm and len(self.layer)
        return cast("BertLayer", self.layer[-1]).output.LayerNorm if has_norm else nn.Identity()

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
        """Apply the layers in turn. What the first published code calls all encoded layers are the hidden_states.

        hidden_states: (batch, seq, hidden). head_mask: (layer, batch or 1, head, 1, 1).
        attention_mask, encoder_attention_mask: additive, as in BertSelfAttention.forward.
        encoder_hidden_states, encoder_attention_mask: one for all layers, or lists. Layer l takes element l modulo the
            length of the list.
        past_key_values: the cache of each layer. use_cache: return the keys and values of each layer.
        output_attentions, output_hidden_states: return these of every layer.
        return_dict: False returns a tuple of the fields that are not None.
        mode: as in BertLayer.forward.
        positions: (batch, position), those of the last layer that are computed; None computes all.
        Raises ValueError as the layers do, and for a cache together with gradient checkpointing. Raises Refused if
        `record` names a layer that does not exist.
        """
        check_recorded_layers(len(self.layer))
        checkpointing = self.gradient_checkpointing and self.training
        if checkpointing and (use_cache or past_key_values is not None):
            raise ValueError("gradient checkpointing excludes a cache of keys and values: train with use_cache=False")
        all_hidden_states: list[Tensor] = [hidden_states]
        attentions: list[Tensor | None] = []
        cross_attentions: list[Tensor | None] = []
        caches: list[LayerCache] = []
        for layer_num, layer in enumerate(self.layer):
            arguments = (
                hidden_states,
                attention_mask,
                None if head_mask is None else head_mask[layer_num],
                _select_layer(encoder_hidden_states, layer_num),
                _select_layer(encoder_attention_mask, layer_num),
                None if past_key_values is None else past_key_values[layer_num],
                output_attentions,
                mode,
                positions if layer_num == self.config.num_hidden_layers - 1 else None,
            )
            if checkpointing and not _is_watched(cast("BertLayer", layer)):
                outputs = LayerOutput(*recompute(layer, *arguments, use_reentrant=False))
            else:
                outputs = layer(*arguments)
            hidden_states = outputs.hidden_states
            if output_hidden_states:
                all_hidden_states.append(hidden_states)
            if output_attentions:
                attentions.append(outputs.attention_probs)
                cross_attentions.append(outputs.cross_attention_probs)
            if use_cache:
                caches.append(outputs.past_key_value)
        has_cross_attentions = bool(cross_attentions) and cross_attentions[0] is not None
        encoded = BertEncoderOutput(
            last_hidden_state=hidden_states,
            past_key_values=tuple(caches) if use_cache else None,
            hidden_states=tuple(all_hidden_states) if output_hidden_states else None,
            attentions=cast("tuple[Tensor, ...]", tuple(attentions)) if output_attentions else None,
            cross_attentions=cast("tuple[Tensor, ...]", tuple(cross_attentions)) if has_cross_attentions else None,
        )
        return encoded if return_dict else encoded.to_tuple()


def _share_weights(module: nn.Module, first: nn.Module) -> None:
    """Give a module the parameters of another, in place; recordings and edits of the two stay separate."""
    if module is not first:
        for target, source in zip(module.modules(), first.modules(), strict=True):
            for name, parameter in source.named_parameters(recurse=False):
                setattr(target, name, parameter)


def _select_layer(states: States | None, layer_num: int) -> Tensor | None:
    """Return the states or mask for a layer: one for all layers, or the element of a list."""
    return states if states is None or isinstance(states, Tensor) else states[layer_num % len(states)]


def map_states(function: Callable[[Tensor], Tensor], states: States | None) -> States | None:
    """Apply a function to an encoder's states or mask, or to each of a list of them; None stays None."""
    if states is None or isinstance(states, Tensor):
        return None if states is None else function(states)
    return [function(tensor) for tensor in states]


def _is_watched(layer: BertLayer) -> bool:
    """Return whether an attention map of a layer is saved in the current context."""
    attentions = [layer.attention.self]
    if layer.add_cross_attention:
        attentions.append(layer.crossattention.self)
    return any(find_watcher(attention) is not None for attention in attentions)


class BertPooler(nn.Module):
    """A dense layer and tanh on the hidden state of the first token; some families use ReLU or GELU instead.

    In families with one design of all heads, a layer norm follows, and the mean of the hidden states can be the input.
    pooling: "cls" or "mean", see `BertConfig.classifier_pooling`.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.layer_design.head_bias)
        self.activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}[config.pooler_act]()
        self.LayerNorm = build_norm(config, config.hidden_size) if config.family.one_head_design else nn.Identity()
        self.pooling = config.classifier_pooling

    def text_states(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Compute the states (..., hidden) that the dense layer reads, from hidden states (..., seq, hidden).

        attention_mask: (..., seq), 0 at padding, which a mean excludes, and 1 elsewhere; None without padding.
        """
        if self.pooling == "cls":
            return hidden_states[..., 0, :]
        if attention_mask is None:
            return hidden_states.mean(-2)
        weights = attention_mask.to(hidden_states)[..., None]
        return (hidden_states * weights).sum(-2) / weights.sum(-2)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Compute the pooled output (batch, hidden) of hidden states (batch, seq, hidden), see `text_states`."""
        pooled: Tensor = self.transform(self.text_states(hidden_states, attention_mask))
        return pooled

    def transform(self, states: Tensor) -> Tensor:
        """Apply all layers to states (..., hidden)."""
        transformed: Tensor = self.LayerNorm(self.activation(self.dense(states)))
        return transformed

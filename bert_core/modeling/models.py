"""The models: their base class, the encoder, and the encoder with each prediction head."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core import checkpoint
from bert_core.attention import MASKED_SCORE, BertSelfAttention, gather_positions
from bert_core.config import BertConfig, check_part_number
from bert_core.deprecation import RenamedAttribute
from bert_core.modeling.heads import (
    IGNORED_LABEL,
    BertDiscriminatorPredictions,
    BertLMPredictionHead,
    BertOnlyMLMHead,
    BertOnlyNSPHead,
    BertPreTrainingHeads,
    build_token_transform,
    classification_loss,
    masked_lm_loss,
    span_loss,
)
from bert_core.modeling.layers import BertEmbeddings, BertEncoder, BertLayer, BertPooler, States, map_states
from bert_core.modeling.outputs import (
    BertForPreTrainingOutput,
    BertModelOutput,
    CausalLMOutput,
    LayerCache,
    MaskedLMOutput,
    MultipleChoiceOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringOutput,
    ReplacedTokenOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from bert_core.refused import Refused


class BertPreTrainedModel(nn.Module):
    """Base class of the models: initialisation, tied weights, pruning, and checkpoint folders.

    load_report: the keys that were missing or unexpected in the checkpoint, of a model read by `from_pretrained`.
    """

    config_class = BertConfig
    base_model_prefix = "bert"
    # Patterns of keys that the report leaves out when they are missing or unexpected.
    _keys_to_ignore_on_load_missing: tuple[str, ...] = ()
    _keys_to_ignore_on_load_unexpected: tuple[str, ...] = checkpoint.IGNORED_KEYS
    load_report: checkpoint.LoadReport

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config

    def _init_head(self, *parts: nn.Module, with_encoder: bool) -> None:
        """Initialise the weights of the parts of a head, in place, and those of a newly created encoder too."""
        if with_encoder:
            self.init_weights()
        else:
            for part in parts:
                part.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialise a module in place: normal weights of std initializer_range, zero biases, identity layer norms."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx].detach())
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:  # None in a removed layer
            nn.init.zeros_(module.bias)

    def init_weights(self) -> None:
        """Initialise all weights in place, then tie those that are one parameter."""
        self.apply(self._init_weights)
        self.tie_weights()

    @property
    def base_model(self) -> BertModel:
        """The encoder (BertModel) of this model, or the model itself if it is one."""
        return cast("BertModel", getattr(self, self.base_model_prefix, self))

    @property
    def prediction_head(self) -> BertLMPredictionHead | None:
        """The masked language modelling head; None if the model has none."""
        head: BertLMPredictionHead | None = getattr(getattr(self, "cls", None), "predictions", None)
        return head

    def tie_weights(self) -> None:
        """Use the word embeddings as the weight of the MLM decoder, if the configuration ties them."""
        head = self.prediction_head
        if head is not None and self.config.tie_word_embeddings:
            head.decoder.weight = self.base_model.embeddings.word_embeddings.weight

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings (vocab, embedding)."""
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embeddings, in place; the decoder of a prediction head follows.

        Another size of the vocabulary also changes the configuration, `decoder.bias` and an untied decoder's weight.
        These grow by word pieces with logit 0, or lose the last ones.
        value: (vocab, embedding). Raises ValueError if it has another width than the embeddings.
        """
        vocab_size, width = value.weight.shape
        if width != self.config.embedding_width:
            raise ValueError(f"the new embeddings are {width} wide: this model needs {self.config.embedding_width}")
        self.base_model.embeddings.word_embeddings = value
        if vocab_size != self.config.vocab_size:
            self._change_config(vocab_size=vocab_size)
            if self.prediction_head is not None:
                self.prediction_head.resize(vocab_size)
        self.tie_weights()

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Change the size of the vocabulary in place: add newly initialised word embeddings, or drop the last ones.

        new_num_tokens: size of the new vocabulary.
        Returns the new word embeddings (new_num_tokens, embedding).
        Raises ValueError if the vocabulary would not contain the padding token.
        """
        padding = self.config.pad_token_id
        if new_num_tokens <= padding:
            raise ValueError(f"a vocabulary of {new_num_tokens} tokens is too small: the padding token is {padding}")
        old = self.get_input_embeddings()
        table = nn.Embedding(new_num_tokens, self.config.embedding_width, padding_idx=old.padding_idx).to(old.weight)
        self._init_weights(table)
        common = min(new_num_tokens, old.num_embeddings)
        with torch.no_grad():
            table.weight[:common] = old.weight[:common]
        table.weight.requires_grad_(old.weight.requires_grad)
        self.set_input_embeddings(table)
        return table

    @property
    def pruned_heads(self) -> dict[int, tuple[int, ...]]:
        """The pruned self-attention heads by layer, as original indices; layers without pruned heads are left out."""
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        pruned = {number: tuple(sorted(layer.attention.pruned_heads)) for number, layer in enumerate(layers)}
        return {number: heads for number, heads in pruned.items() if heads}

    def unshare_layers(self) -> None:
        """Give every layer its own copy of the weights that it shares with others, in place."""
        if self.config.layers_per_group == 1:
            return
        for number, layer in enumerate(self.base_model.encoder.layer):
            if number != self.config.first_of_group(number):
                for module in layer.modules():
                    for name, shared in list(module.named_parameters(recurse=False)):
                        setattr(module, name, nn.Parameter(shared.detach().clone(), shared.requires_grad))
        self._change_config(num_hidden_groups=None)

    def prune_heads(self, heads_to_prune: Mapping[int, Collection[int]]) -> None:
        """Prune self-attention heads in place; `bert_core.pruned` returns a new model instead.

        Layers that share their weights get their own copies first.
        heads_to_prune: layer -> heads, as original indices, which the other heads keep. Heads that are pruned already
            are skipped.
        Raises Refused for a head that never existed, before anything is pruned.
        """
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        for layer, heads in heads_to_prune.items():
            if layer not in range(len(layers)):
                raise Refused(f"layer {layer} does not exist: this model has layers 0 to {len(layers) - 1}")
            for head in heads:
                layers[layer].attention.check_head(head)
        if any(heads_to_prune.values()):
            self.unshare_layers()
        for layer, heads in heads_to_prune.items():
            layers[layer].attention.prune_heads(heads)
        self._change_config()

    def prune_neurons(self, neurons_to_prune: Mapping[int, Collection[int]]) -> None:
        """Prune neurons of feed-forward networks in place, as `prune_heads` prunes heads.

        neurons_to_prune: layer -> neurons, as original indices.
        Raises Refused for a neuron that never existed, before anything is pruned.
        """
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        for layer, neurons in neurons_to_prune.items():
            for neuron in neurons:
                check_part_number("neuron", layer, neuron, len(layers), self.config.intermediate_size)
        if any(neurons_to_prune.values()):
            self.unshare_layers()
        for layer, neurons in neurons_to_prune.items():
            layers[layer].prune_neurons(neurons)
        self._change_config()

    def prune_layers(self, layers_to_prune: Collection[int]) -> None:
        """Prune whole layers in place; they keep their indices and return their inputs.

        Layers that are removed already are skipped.
        Raises Refused for a layer that does not exist or has cross-attention, before anything is pruned.
        """
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        for layer in layers_to_prune:
            check_part_number("head", layer, 0, len(layers), self.config.num_attention_heads)
        if layers_to_prune:
            self.unshare_layers()
        for layer in layers_to_prune:
            if not layers[layer].removed:
                layers[layer].remove()
        self._change_config()

    @property
    def pruned_parts(self) -> dict[str, Any]:
        """The pruned parts of all layers: the fields pruned_heads, pruned_neurons and pruned_layers of a BertConfig."""
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        size, pruned_neurons = self.config.intermediate_size, {}
        for number, layer in enumerate(layers):
            if len(layer.intermediate.neurons) < size:
                pruned_neurons[number] = sorted(set(range(size)).difference(layer.intermediate.neurons))
        return {
            "pruned_heads": self.pruned_heads,
            "pruned_neurons": pruned_neurons,
            "pruned_layers": [number for number, layer in enumerate(layers) if layer.removed],
        }

    def _change_config(self, **changes: Any) -> None:
        """Change the configuration of all modules of this model; its pruned parts are taken from the layers."""
        new_config = self.config.replace(**changes, **self.pruned_parts)
        for module in self.modules():
            if isinstance(getattr(module, "config", None), BertConfig):
                setattr(module, "config", new_config)  # noqa: B010

    @property
    def attention_modules(self) -> list[BertSelfAttention]:
        """The self-attention module of every layer, in the order of the layers."""
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        return [layer.attention.self for layer in layers]

    @classmethod
    def from_pretrained(cls, folder: str | Path, **model_arguments: Any) -> Self:
        """Read a model from a checkpoint folder, in evaluation mode; its `load_report` accounts for all keys.

        model_arguments: further arguments of the class.
        Raises checkpoint.CheckpointError if the folder is not a BERT checkpoint, a shape does not fit, or a weight of
        the encoder is missing. A missing prediction head or pooler is only reported.
        """
        config, weights = checkpoint.read(folder)
        with checkpoint.on_meta_device():
            model = cls(config, **model_arguments)
        model.load_report = checkpoint.load_weights(
            model,
            weights,
            source=str(folder),
            ignored_missing=cls._keys_to_ignore_on_load_missing,
            ignored_unexpected=cls._keys_to_ignore_on_load_unexpected,
        )
        return model.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` to a folder, each of them completely or not at all."""
        # The pruned parts are taken from the layers, since the encoder may have been pruned through another model.
        checkpoint.write(self, self.config.replace(**self.pruned_parts), folder)

    without = RenamedAttribute("pruned_parts")


PreTrainedBertModel = BertPreTrainedModel  # the name in the first published code


class BertModel(BertPreTrainedModel):
    """Embeddings, encoder and, unless add_pooling_layer is False, the pooler.

    With `is_decoder` it is a decoder with a causal mask, which can cache its keys and values. With
    `add_cross_attention` in the configuration each layer also attends to the states of another encoder.

    >>> import torch
    >>> import bert_core
    >>> config = bert_core.BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> output = bert_core.BertModel(config)(torch.arange(1, 9).view(2, 4))
    >>> output.last_hidden_state.shape
    torch.Size([2, 4, 64])
    """

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.init_weights()

    def get_extended_attention_mask(
        self,
        attention_mask: Tensor,
        input_shape: tuple[int, int],
        device: torch.device | None = None,
        is_decoder: bool | None = None,
    ) -> Tensor:
        """Compute the additive mask of self-attention.

        attention_mask: 1 to attend and 0 not to, (batch, key) for padding or (batch, query, key).
        input_shape: (batch, query). A decoder with a cache has more keys than queries, and the cached ones come first.
        device: the device of the mask; None keeps its device.
        is_decoder: also mask later positions in a (batch, key) mask; None uses the configuration. A
            (batch, query, key) mask is not changed.
        Returns (batch, 1, query or 1, key), 0 to attend and -10000 not to.
        Raises ValueError for a mask of another shape.
        """
        batch, queries = input_shape
        causal = self.config.is_decoder if is_decoder is None else is_decoder
        keys = attention_mask.shape[-1] if attention_mask.dim() else 0
        fits = keys >= queries if causal else keys == queries
        dtype = self.embeddings.word_embeddings.weight.dtype
        if fits and attention_mask.shape == (batch, keys):
            allowed = attention_mask[:, None, None, :].to(device=device, dtype=dtype)
            if causal:
                all_pairs = torch.ones(queries, keys, dtype=dtype, device=allowed.device)
                allowed = allowed * all_pairs.tril(keys - queries)
        elif fits and attention_mask.shape == (batch, queries, keys):
            allowed = attention_mask[:, None, :, :].to(device=device, dtype=dtype)
        else:
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}: for this input it must be "
                f"{(batch, queries)} or {(batch, queries, queries)}"
            )
        return (1.0 - allowed) * MASKED_SCORE

    def invert_attention_mask(self, encoder_attention_mask: Tensor) -> Tensor:
        """Compute the additive mask of cross-attention.

        encoder_attention_mask: 1 to attend and 0 not to, (batch, key) or (batch, query, key).
        Returns (batch, 1, query or 1, key), 0 to attend and -10000 not to.
        Raises ValueError for a mask of another number of axes.
        """
        if encoder_attention_mask.dim() not in (2, 3):
            raise ValueError(
                f"encoder_attention_mask has shape {tuple(encoder_attention_mask.shape)}: it must be (batch, key) or "
                "(batch, query, key)"
            )
        has_queries = encoder_attention_mask.dim() == 3
        allowed = encoder_attention_mask[:, None] if has_queries else encoder_attention_mask[:, None, None]
        return (1.0 - allowed.to(self.embeddings.word_embeddings.weight.dtype)) * MASKED_SCORE

    def _prune_heads(self, heads_to_prune: Mapping[int, Collection[int]]) -> None:
        """Prune self-attention heads in place: `prune_heads` under its name in the first published code."""
        self.prune_heads(heads_to_prune)

    def get_head_mask(self, head_mask: Tensor | None, batch: int) -> Tensor | None:
        """Return the head gates in the shape that the layers use, in the dtype of the model.

        head_mask: (head,) for all layers, (layer, head), or (layer, batch, head). batch: number of texts.
        Returns (layer, batch or 1, head, 1, 1); None without a mask.
        Raises ValueError for a mask of another shape.
        """
        if head_mask is None:
            return None
        layers, heads = self.config.num_hidden_layers, self.config.num_attention_heads
        gates = head_mask.to(self.embeddings.word_embeddings.weight)
        if gates.shape == (heads,):
            gates = gates.expand(layers, 1, heads)
        elif gates.shape == (layers, heads):
            gates = gates[:, None, :]
        elif gates.shape != (layers, batch, heads):
            raise ValueError(
                f"head_mask has shape {tuple(head_mask.shape)}: for this input it must be ({heads},), "
                f"({layers}, {heads}) or ({layers}, {batch}, {heads})"
            )
        return gates[..., None, None]

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        head_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_embeds: Tensor | None = None,
        encoder_hidden_states: States | None = None,
        encoder_attention_mask: States | None = None,
        past_key_values: Sequence[LayerCache] | None = None,
        use_cache: bool | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = True,
        is_decoder: bool | None = None,
        mode: str = "multimodal",
        positions: Tensor | None = None,
    ) -> BertModelOutput:
        """Compute the hidden states of every token.

        input_ids, token_type_ids, position_ids: (batch, seq).
        inputs_embeds: (batch, seq, embedding), in place of input_ids; positions and segments are added to them.
        encoder_embeds: (batch, seq, hidden), in place of input_ids; they enter the first layer unchanged.
        attention_mask: (batch, key) or (batch, query, key), 1 to attend and 0 not to; None attends to every token.
        head_mask: (head,), (layer, head) or (layer, batch, head); 1 leaves a head unchanged and 0 switches it off.
        encoder_hidden_states: (batch, key, encoder_width), the states for cross-attention. encoder_attention_mask:
            (batch, key) or (batch, query, key). Both can be lists, of which layer l takes element l modulo the length.
        past_key_values: the cache of an earlier call with use_cache; the other arguments are then those of the tokens
            that follow.
        use_cache: return past_key_values; None uses the configuration, for a decoder.
        output_attentions, output_hidden_states: return these of every layer.
        return_dict: False returns a tuple of the fields that are not None.
        is_decoder: mask later positions; None uses the configuration.
        mode: "multimodal" uses cross-attention if the model has it, and "text" never does.
        positions: (batch, position), those of the last layer that are computed; None computes all. The shape of
            last_hidden_state is then (batch, position, hidden). The pooler reads the first, so [CLS] comes first; a
            pooler that reads the mean has no output.
        Raises ValueError unless exactly one input is given, and for a mask, a cache or encoder states that do not fit.
        Raises Refused if the sequence is longer than the position table.
        """
        inputs = [tensor for tensor in (input_ids, inputs_embeds, encoder_embeds) if tensor is not None]
        if len(inputs) != 1:
            raise ValueError("give exactly one of input_ids, inputs_embeds and encoder_embeds")
        causal = self.config.is_decoder if is_decoder is None else is_decoder
        self._check_encoder_states(encoder_hidden_states, past_key_values, mode)
        past = self._past_length(past_key_values, inputs[0].shape[0], causal)
        if use_cache is None:
            use_cache = causal and self.config.use_cache and not (self.training and self.encoder.gradient_checkpointing)
        elif use_cache and not causal:
            raise ValueError("use_cache needs is_decoder: an encoder also attends to later tokens, which a cache lacks")

        embedding_output = encoder_embeds
        if embedding_output is None:
            embedding_output = self.embeddings(
                input_ids, token_type_ids=token_type_ids, position_ids=position_ids, inputs_embeds=inputs_embeds,
                past_key_values_length=past,
            )  # fmt: skip
        elif token_type_ids is not None or position_ids is not None:
            raise ValueError(
                "encoder_embeds enter the first layer unchanged: leave out token_type_ids and position_ids"
            )
        batch, seq_length, _ = embedding_output.shape
        if attention_mask is None and causal:
            attention_mask = embedding_output.new_ones(batch, past + seq_length)
        if past and attention_mask is not None and attention_mask.shape[-1] != past + seq_length:
            raise ValueError(
                f"attention_mask has shape {tuple(attention_mask.shape)}: with {past} tokens in the cache and "
                f"{seq_length} in the input it must be {(batch, past + seq_length)}"
            )
        extended_mask = None
        if attention_mask is not None:
            extended_mask = self.get_extended_attention_mask(
                attention_mask, (batch, seq_length), embedding_output.device, is_decoder=causal
            )
        encoded = self.encoder(
            embedding_output,
            extended_mask,
            self.get_head_mask(head_mask, batch),
            encoder_hidden_states,
            map_states(self.invert_attention_mask, encoder_attention_mask),
            past_key_values,
            use_cache,
            output_attentions,
            output_hidden_states,
            mode=mode,
            positions=positions,
        )
        outputs = BertModelOutput(
            last_hidden_state=encoded.last_hidden_state,
            pooler_output=self._pooled(encoded.last_hidden_state, attention_mask, positions),
            hidden_states=encoded.hidden_states,
            past_key_values=encoded.past_key_values,
            attentions=encoded.attentions,
            cross_attentions=encoded.cross_attentions,
        )
        # The declared type is that of the default; only callers that set return_dict to False get a tuple.
        return outputs if return_dict else cast("BertModelOutput", outputs.to_tuple())

    def _pooled(self, states: Tensor, attention_mask: Tensor | None, positions: Tensor | None) -> Tensor | None:
        """Compute the output of the pooler; None without a pooler, or if it reads positions that are not computed."""
        if self.pooler is None or (self.pooler.pooling != "cls" and positions is not None):
            return None
        if attention_mask is not None and attention_mask.dim() == 3:  # a token that no query attends to is padding
            attention_mask = attention_mask.amax(1)
        pooled: Tensor = self.pooler(states, attention_mask)
        return pooled

    def _check_encoder_states(
        self, states: States | None, past_key_values: Sequence[LayerCache] | None, mode: str
    ) -> None:
        """Raise ValueError if an encoder's states are missing for cross-attention, or are given without it."""
        if mode != "multimodal":
            return
        if self.config.add_cross_attention and states is None and past_key_values is None:
            raise ValueError(
                "encoder_hidden_states are missing: this model has cross-attention; mode='text' leaves it out"
            )
        if not self.config.add_cross_attention and states is not None:
            raise ValueError("encoder_hidden_states were given, but this model has add_cross_attention false")

    def _past_length(self, past_key_values: Sequence[LayerCache] | None, batch: int, causal: bool) -> int:
        """Return the number of tokens in a cache; raise ValueError if it does not fit the model and the batch."""
        if past_key_values is None:
            return 0
        if not causal:
            raise ValueError("past_key_values were given without is_decoder: only a decoder can continue from a cache")
        modules, sizes = self.attention_modules, [tuple(layer[0].shape) for layer in past_key_values]
        length = sizes[0][2] if sizes else 0
        expected = [(batch, module.num_attention_heads, length, module.attention_head_size) for module in modules]
        if sizes != expected:
            actual_text, expected_text = (", ".join(map(str, sorted(set(shapes)))) for shapes in (sizes, expected))
            raise ValueError(
                f"past_key_values has {len(sizes)} layers with keys of shape {actual_text}: this model and batch need "
                f"{len(expected)} layers with keys of shape {expected_text}"
            )
        return length


class BertForPreTraining(BertPreTrainedModel):
    """BERT with both pre-training heads.

    >>> import torch
    >>> import bert_core
    >>> config = bert_core.BertConfig(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> output = bert_core.BertForPreTraining(config)(torch.arange(1, 9).view(2, 4))
    >>> output.prediction_logits.shape, output.seq_relationship_logits.shape
    (torch.Size([2, 4, 100]), torch.Size([2, 2]))
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertPreTrainingHeads(config)
        self.init_weights()

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        **model_arguments: Any,
    ) -> BertForPreTrainingOutput:
        """Compute the logits of both heads, and the sum of the losses whose labels are given.

        labels: (batch, seq), ids of word pieces, -100 at positions without a label.
        next_sentence_label: (batch,), 0 if sentence B follows sentence A, and 1 if not.
        model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        prediction_logits, seq_relationship_logits = self.cls(outputs.last_hidden_state, outputs.pooler_output)
        losses = []
        if labels is not None:
            losses.append(masked_lm_loss(prediction_logits, labels))
        if next_sentence_label is not None:
            losses.append(F.cross_entropy(seq_relationship_logits.float(), next_sentence_label.view(-1)))
        return BertForPreTrainingOutput(
            loss=torch.stack(losses).sum() if losses else None,
            prediction_logits=prediction_logits,
            seq_relationship_logits=seq_relationship_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForMaskedLM(BertPreTrainedModel):
    """BERT with the masked language modelling head and without a pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.init_weights()

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> MaskedLMOutput:
        """Compute the logits of word pieces, and the loss if labels are given.

        labels: (batch, seq), ids of word pieces, -100 at positions without a label.
        model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.cls(outputs.last_hidden_state)
        return MaskedLMOutput(
            loss=None if labels is None else masked_lm_loss(logits, labels),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForNextSentencePrediction(BertPreTrainedModel):
    """BERT with the next-sentence prediction head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertOnlyNSPHead(config)
        self.init_weights()

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> NextSentencePredictorOutput:
        """Compute the logits of the two classes, and the loss if labels are given.

        labels: (batch,), 0 if sentence B follows sentence A, and 1 if not.
        model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.cls(outputs.pooler_output)
        return NextSentencePredictorOutput(
            loss=None if labels is None else F.cross_entropy(logits.float(), labels.view(-1)),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForSequenceClassification(BertPreTrainedModel):
    """BERT with a classifier of texts or pairs of texts on the pooler; its classes are `config.labels`."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder, shared with another model and not modified; None creates one.

        Raises ValueError if the configuration's classes or problem_type are invalid.
        """
        super().__init__(config)
        self.num_labels, self.problem_type = config.num_labels, config.problem_type
        self.bert = BertModel(config) if bert is None else bert
        self.dropout = nn.Dropout(config.dropout_before_classifier)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self._init_head(self.classifier, with_encoder=bert is None)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> SequenceClassifierOutput:
        """Compute the logits of the classes, and the loss if labels are given.

        labels: as in classification_loss. model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        return SequenceClassifierOutput(
            loss=None if labels is None else classification_loss(logits, labels, self.problem_type),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForTokenClassification(BertPreTrainedModel):
    """BERT with a classifier of tokens and without a pooler; its tags are `config.labels`."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder, shared with another model and not modified; None creates one.

        Raises ValueError if the configuration's tags are invalid.
        """
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.transform = build_token_transform(config)
        self.dropout = nn.Dropout(config.dropout_before_classifier)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self._init_head(self.transform, self.classifier, with_encoder=bert is None)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> TokenClassifierOutput:
        """Compute the logits of the tags, and the loss if labels are given.

        labels: (batch, seq), indices of tags, -100 at positions without a label.
        model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.classifier(self.dropout(self.transform(outputs.last_hidden_state)))
        return TokenClassifierOutput(
            loss=None if labels is None else F.cross_entropy(logits.float().flatten(0, 1), labels.flatten()),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForQuestionAnswering(BertPreTrainedModel):
    """BERT for extractive question answering, without a pooler: it scores every token as start and end of the answer.

    Source: Devlin 2019, section 4.2 (arXiv:1810.04805).
    """

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder, shared with another model and not modified; None creates one."""
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.transform = build_token_transform(config)
        self.dropout = nn.Dropout(config.dropout_before_classifier if config.family.one_head_design else 0.0)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self._init_head(self.transform, self.qa_outputs, with_encoder=bert is None)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **model_arguments: Any,
    ) -> QuestionAnsweringOutput:
        """Compute the start and end logits of every token, and the loss if both positions are given.

        start_positions, end_positions: (batch,), as in span_loss. model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        start_logits, end_logits = self.qa_outputs(self.dropout(self.transform(outputs.last_hidden_state))).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start_logits, end_logits, start_positions, end_positions)
        return QuestionAnsweringOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForMultipleChoice(BertPreTrainedModel):
    """BERT for multiple choice: a score on the pooler for each pair of a question and an answer option.

    The option with the largest score is the prediction.
    Source: Devlin 2019, section 4.4 (arXiv:1810.04805).
    """

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder, shared with another model and not modified; None creates one."""
        super().__init__(config)
        self.bert = BertModel(config) if bert is None else bert
        self.dropout = nn.Dropout(config.dropout_before_classifier)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self._init_head(self.classifier, with_encoder=bert is None)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **model_arguments: Any,
    ) -> MultipleChoiceOutput:
        """Compute the logit of each answer option, and the loss if labels are given.

        input_ids, attention_mask, token_type_ids, position_ids: (batch, choice, seq), the question with each option.
        inputs_embeds: (batch, choice, seq, embedding), in place of input_ids.
        labels: (batch,), the index of the correct option.
        model_arguments: as in BertModel.forward, for batch * choice texts.
        Raises ValueError for an input with another number of axes.
        """
        tensors = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
        texts: dict[str, Tensor] = {}
        choices = 0
        for name, tensor in zip(names, tensors, strict=True):
            if tensor is None:
                continue
            if tensor.dim() != (4 if name == "inputs_embeds" else 3):
                last_axis = ", embedding" * (name == "inputs_embeds")
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}: for multiple choice it must be (batch, choice, "
                    f"seq{last_axis})"
                )
            choices = choices or tensor.shape[1]
            texts[name] = tensor.flatten(0, 1)
        outputs = self.bert(**texts, **model_arguments)
        pooled, mask = outputs.pooler_output, texts.get("attention_mask")
        if self.config.family.one_head_design and self.config.classifier_pooling == "cls" and mask is not None:
            # As in transformers, the first token is the first that is not padding.
            first = mask.long().argmax(-1)[:, None]
            assert self.bert.pooler is not None  # the encoder of this model has one
            pooled = self.bert.pooler(gather_positions(outputs.last_hidden_state, first))
        logits = self.classifier(self.dropout(pooled)).view(-1, choices)
        return MultipleChoiceOutput(
            loss=None if labels is None else F.cross_entropy(logits.float(), labels.view(-1)),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForReplacedTokenDetection(BertPreTrainedModel):
    """BERT with the discriminator head of ELECTRA, which detects replaced tokens, and without a pooler."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder, shared with another model and not modified; None creates one."""
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.discriminator_predictions = BertDiscriminatorPredictions(config)
        self._init_head(self.discriminator_predictions, with_encoder=bert is None)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> ReplacedTokenOutput:
        """Compute the logit of each token, and the loss if labels are given.

        labels: (batch, seq), 1 for a replaced token and 0 for an original one. Tokens with an attention_mask other
            than 1, such as padding, are left out of the loss.
        model_arguments: as in BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.discriminator_predictions(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            mask = model_arguments.get("attention_mask")
            is_token = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask == 1
            loss = F.binary_cross_entropy_with_logits(logits[is_token].float(), labels[is_token].float())
        return ReplacedTokenOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertLMHeadModel(BertPreTrainedModel):
    """A decoder: BERT with a causal mask and a language modelling head, trained to predict the next token.

    With `add_cross_attention` it is the text decoder of a captioner, which attends to the patches of an image.

    >>> import torch
    >>> import bert_core
    >>> config = bert_core.BertConfig(
    ...     vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, is_decoder=True
    ... )
    >>> model = bert_core.BertLMHeadModel(config)
    >>> bert_core.generate(model, torch.tensor([[1, 2, 3]]), max_new_tokens=5).shape
    torch.Size([1, 8])
    """

    _keys_to_ignore_on_load_unexpected = (*checkpoint.IGNORED_KEYS, r"^bert\.pooler\.", r"^cls\.seq_relationship\.")

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.label_smoothing = config.label_smoothing
        self.init_weights()

    def get_output_embeddings(self) -> nn.Linear:
        """Return the linear layer that computes the logits (..., vocab) from (..., embedding)."""
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the linear layer that computes the logits, in place, with its bias."""
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool = True,
        return_logits: bool = False,
        is_decoder: bool | None = True,
        reduction: str = "mean",
        **model_arguments: Any,
    ) -> CausalLMOutput:
        """Compute the logits of the token after each token, and the loss if labels are given.

        labels: (batch, seq), usually the input_ids, -100 at positions without a label. The logits of position t are
            compared with label t + 1.
        use_cache, is_decoder: as in BertModel.forward; with labels nothing is cached.
        return_dict: False returns a tuple of the fields that are not None.
        return_logits: return only the logits (batch, seq - 1, vocab) of all positions but the last.
        reduction: "mean" or "sum" for a scalar loss, or "none" for the sum of each row, (batch,). The loss uses the
            configuration's `label_smoothing`.
        model_arguments: as in BertModel.forward.
        Raises ValueError for another reduction.
        """
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction {reduction!r} is unknown: it must be 'mean', 'sum' or 'none'")
        outputs = self.bert(
            input_ids, use_cache=False if labels is not None else use_cache, is_decoder=is_decoder, **model_arguments
        )
        logits = self.cls(outputs.last_hidden_state)
        if return_logits:
            return cast("CausalLMOutput", logits[:, :-1].contiguous())
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(),
                ignore_index=IGNORED_LABEL, reduction=reduction, label_smoothing=self.label_smoothing,
            )  # fmt: skip
            if reduction == "none":
                loss = loss.view(len(labels), -1).sum(1)
        result = CausalLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
        )
        return result if return_dict else cast("CausalLMOutput", result.to_tuple())

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past: Sequence[LayerCache] | None = None,
        attention_mask: Tensor | None = None,
        **model_kwargs: Any,
    ) -> dict[str, Any]:
        """Return the arguments of `forward` that compute the next token; with a cache only the last token is an input.

        input_ids: (batch, seq), all tokens so far. past: the cache of the tokens before the last; None without a cache.
        attention_mask: (batch, seq), 0 at padding and 1 elsewhere. Positions are then counted without the padding.
        model_kwargs: encoder_hidden_states and encoder_attention_mask are passed through, and others ignored.
        """
        position_ids = None
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        elif self.config.position_scheme.adds_vectors:
            position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)
        if past is not None:
            input_ids = input_ids[:, -1:]
            position_ids = None if position_ids is None else position_ids[:, -1:]
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "past_key_values": past,
            "encoder_hidden_states": model_kwargs.get("encoder_hidden_states"),
            "encoder_attention_mask": model_kwargs.get("encoder_attention_mask"),
            "is_decoder": True,
        }

    def _reorder_cache(self, past: Sequence[LayerCache], beam_idx: Tensor) -> tuple[LayerCache, ...]:
        """Return the cache of the rows that a beam search keeps; row i of the result is row beam_idx[i] of `past`."""
        return tuple(tuple(state.index_select(0, beam_idx.to(state.device)) for state in layer) for layer in past)

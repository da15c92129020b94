"""The models: the base class of all, the encoder, and the encoder with each prediction head."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core import checkpoint
from bert_core.attention import MASKED_SCORE, BertSelfAttention
from bert_core.config import BertConfig, check_part_number
from bert_core.modeling.heads import (
    IGNORED_LABEL,
    BertDiscriminatorPredictions,
    BertLMPredictionHead,
    BertOnlyMLMHead,
    BertOnlyNSPHead,
    BertPreTrainingHeads,
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
    """What every model shares: initialisation, tied weights, reading and writing checkpoint folders."""

    config_class = BertConfig
    base_model_prefix = "bert"
    # Patterns of keys that a checkpoint may lack, or have too many, without a word in the report.
    _keys_to_ignore_on_load_missing: tuple[str, ...] = ()
    _keys_to_ignore_on_load_unexpected: tuple[str, ...] = checkpoint.IGNORED_KEYS
    load_report: checkpoint.LoadReport

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config

    def _draw(self, head: nn.Module, *, alone: bool) -> None:
        """Draw the weights of a head; alone: and those of the encoder that was made for it."""
        if alone:
            self.init_weights()
        else:
            head.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        """Normal weights of width initializer_range, zero biases, layer norms that do nothing."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx].detach())
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:  # None: of a layer that is gone
            nn.init.zeros_(module.bias)

    def init_weights(self) -> None:
        """Draw all weights anew, then tie those that are one parameter."""
        self.apply(self._init_weights)
        self.tie_weights()

    @property
    def base_model(self) -> BertModel:
        """The BertModel inside, or the model itself."""
        return cast("BertModel", getattr(self, self.base_model_prefix, self))

    @property
    def prediction_head(self) -> BertLMPredictionHead | None:
        """The masked-word head, if the model has one."""
        head: BertLMPredictionHead | None = getattr(getattr(self, "cls", None), "predictions", None)
        return head

    def tie_weights(self) -> None:
        """Make the MLM decoder's weight the word embedding table, where the configuration says so."""
        head = self.prediction_head
        if head is not None and self.config.tie_word_embeddings:
            head.decoder.weight = self.base_model.embeddings.word_embeddings.weight

    def get_input_embeddings(self) -> nn.Embedding:
        """The word embedding table (vocab, embedding)."""
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embedding table (vocab, embedding); the decoder of a prediction head follows.

        A table of another vocabulary changes the configuration, and `decoder.bias` (and an untied decoder's weight)
        grow by words of score zero, or lose the last ones.
        Raises ValueError if the table has another width.
        """
        vocab_size, width = value.weight.shape
        if width != self.config.embedding_width:
            raise ValueError(f"the new embedding table is {width} wide: this model needs {self.config.embedding_width}")
        self.base_model.embeddings.word_embeddings = value
        if vocab_size != self.config.vocab_size:
            self._change_config(vocab_size=vocab_size)
            if self.prediction_head is not None:
                self.prediction_head.resize(vocab_size)
        self.tie_weights()

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """Grow the vocabulary by freshly drawn rows, or drop the last ones; returns the new table.

        Raises ValueError for fewer than one token, or for a vocabulary without the padding token.
        """
        padding = self.config.pad_token_id
        if new_num_tokens <= padding:
            raise ValueError(f"a vocabulary of {new_num_tokens} tokens is too small: the padding token is {padding}")
        old = self.get_input_embeddings()
        table = nn.Embedding(new_num_tokens, self.config.embedding_width, padding_idx=old.padding_idx).to(old.weight)
        self._init_weights(table)
        kept = min(new_num_tokens, old.num_embeddings)
        with torch.no_grad():
            table.weight[:kept] = old.weight[:kept]
        table.weight.requires_grad_(old.weight.requires_grad)
        self.set_input_embeddings(table)
        return table

    @property
    def pruned_heads(self) -> dict[int, tuple[int, ...]]:
        """Layer -> the self-attention heads that it has lost, by their first numbers; only layers that lost any."""
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        gone = {number: tuple(sorted(layer.attention.pruned_heads)) for number, layer in enumerate(layers)}
        return {number: heads for number, heads in gone.items() if heads}

    def unshare_layers(self) -> None:
        """Give every layer weights of its own, in place, equal to those that it shared; the model grows by them."""
        if self.config.layers_per_group == 1:
            return
        for number, layer in enumerate(self.base_model.encoder.layer):
            if number != self.config.first_of_group(number):
                for module in layer.modules():
                    for name, shared in list(module.named_parameters(recurse=False)):
                        setattr(module, name, nn.Parameter(shared.detach().clone(), shared.requires_grad))
        self._change_config(num_hidden_groups=None)

    def prune_heads(self, heads_to_prune: Mapping[int, Collection[int]]) -> None:
        """Take self-attention heads out for good, in place; `bert_core.pruned` makes a new model instead.

        heads_to_prune: layer -> its heads, by their first numbers, which the others keep; those that are gone already
        are passed over. Layers that share their weights get their own first.
        Raises ValueError for one that never was, and then nothing is pruned.
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
        """Take neurons of feed-forward networks out for good, in place, as `prune_heads` takes heads."""
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
        """Take whole layers out for good, in place: they keep their numbers, and pass on what they are given.

        Those that are gone already are passed over. Raises Refused for one that does not exist, or has
        cross-attention, and then nothing is pruned.
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
        """What the layers have lost, as the configuration says it: its pruned_heads, _neurons and _layers."""
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        size, gone = self.config.intermediate_size, {}
        for number, layer in enumerate(layers):
            if len(layer.intermediate.neurons) < size:
                gone[number] = sorted(set(range(size)).difference(layer.intermediate.neurons))
        return {
            "pruned_heads": self.pruned_heads,
            "pruned_neurons": gone,
            "pruned_layers": [number for number, layer in enumerate(layers) if layer.removed],
        }

    def _change_config(self, **changes: Any) -> None:
        """Change the configuration that all modules of this model share; what is pruned the layers say."""
        new = self.config.replace(**changes, **self.pruned_parts)
        for module in self.modules():
            if isinstance(getattr(module, "config", None), BertConfig):
                setattr(module, "config", new)  # noqa: B010

    @property
    def attention_modules(self) -> list[BertSelfAttention]:
        """The self-attention module of every layer, from the bottom up."""
        layers = cast("list[BertLayer]", list(self.base_model.encoder.layer))
        return [layer.attention.self for layer in layers]

    @classmethod
    def from_pretrained(cls, folder: str | Path, **model_arguments: Any) -> Self:
        """A model in evaluation mode from a checkpoint folder; `load_report` says what was missing or left over.

        Raises checkpoint.CheckpointError if the folder is not a BERT checkpoint, a shape does not fit, or a weight
        of the encoder itself is missing; a missing prediction head or pooler is only reported.
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
        """Write `config.json` and `model.safetensors`, whole or not at all."""
        # Asked of the layers: the BertModel inside may have been pruned by itself.
        checkpoint.write(self, self.config.replace(**self.pruned_parts), folder)


PreTrainedBertModel = BertPreTrainedModel  # its name in the first published code


class BertModel(BertPreTrainedModel):
    """Embeddings, encoder and, unless add_pooling_layer is False, the pooler.

    It is an encoder, or with `is_decoder` a decoder that sees no later position and can keep its keys and values; with
    `add_cross_attention` in the configuration each layer also attends to another encoder's states.
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
        """The additive mask (batch, 1, query or 1, key): 0 where a key may be attended to, -10000 where not.

        attention_mask: 1 to attend and 0 not to; (batch, key) for padding or (batch, query, key).
        input_shape: (batch, query); a decoder with a cache has more keys than queries, the earlier ones first.
        is_decoder: hide later positions from a (batch, key) mask; None asks the configuration. A (batch, query, key)
            mask is taken as it is.
        Raises ValueError for a mask of any other shape.
        """
        batch, queries = input_shape
        causal = self.config.is_decoder if is_decoder is None else is_decoder
        keys = attention_mask.shape[-1] if attention_mask.dim() else 0
        fits = keys >= queries if causal else keys == queries
        dtype = self.embeddings.word_embeddings.weight.dtype
        if fits and attention_mask.shape == (batch, keys):
            allowed = attention_mask[:, None, None, :].to(device=device, dtype=dtype)
            if causal:
                seen = torch.ones(queries, keys, dtype=dtype, device=allowed.device)
                allowed = allowed * seen.tril(keys - queries)
        elif fits and attention_mask.shape == (batch, queries, keys):
            allowed = attention_mask[:, None, :, :].to(device=device, dtype=dtype)
        else:
            raise ValueError(
                f"attention_mask is {tuple(attention_mask.shape)}: for this input it is "
                f"{(batch, queries)} or {(batch, queries, queries)}"
            )
        return (1.0 - allowed) * MASKED_SCORE

    def invert_attention_mask(self, encoder_attention_mask: Tensor) -> Tensor:
        """The additive mask (batch, 1, query or 1, key) over an encoder's states.

        encoder_attention_mask: 1 to attend and 0 not to, (batch, key) or (batch, query, key); ValueError otherwise.
        """
        if encoder_attention_mask.dim() not in (2, 3):
            raise ValueError(
                f"encoder_attention_mask is {tuple(encoder_attention_mask.shape)}: (batch, key) or (batch, query, key)"
            )
        for_each_query = encoder_attention_mask.dim() == 3
        allowed = encoder_attention_mask[:, None] if for_each_query else encoder_attention_mask[:, None, None]
        return (1.0 - allowed.to(self.embeddings.word_embeddings.weight.dtype)) * MASKED_SCORE

    def _prune_heads(self, heads_to_prune: Mapping[int, Collection[int]]) -> None:
        """Take self-attention heads out for good, in place; see BertAttention.prune_heads.

        As `prune_heads`, by its name in the first published code.
        """
        self.prune_heads(heads_to_prune)

    def get_head_mask(self, head_mask: Tensor | None, batch: int) -> Tensor | None:
        """Gates of every head as (layer, batch or 1, head, 1, 1), in the dtype of the model.

        head_mask: (head,) for every layer alike, (layer, head), or (layer, batch, head) for each example.
        Raises ValueError for any other shape.
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
                f"head_mask is {tuple(head_mask.shape)}: for this input it is ({heads},), ({layers}, {heads}) "
                f"or ({layers}, {batch}, {heads})"
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
        """Contextual vectors of every token.

        input_ids, token_type_ids, position_ids: (batch, seq). In their place inputs_embeds (batch, seq, embedding), to
            which positions and segments are added, or encoder_embeds (batch, seq, hidden), which enter the first layer
            as they are.
        attention_mask: (batch, key) or (batch, query, key), 1 to attend; None attends to everything.
        head_mask: (head,), (layer, head) or (layer, batch, head); 1 keeps a head, 0 switches it off.
        encoder_hidden_states: (batch, key, encoder_width), what cross-attention attends to, with its
            encoder_attention_mask, (batch, key) or (batch, query, key); or lists, of which layer l takes element l
            modulo the length.
        past_key_values: what an earlier call with use_cache gave; this call then takes only the tokens that follow.
        use_cache: give past_key_values; None asks the configuration, for a decoder.
        is_decoder: hide later positions; None asks the configuration, any other value overrides it.
        mode: "multimodal" attends to the encoder's states where the configuration adds cross-attention; "text" never.
        return_dict: False gives a plain tuple of what is there.
        positions: (batch, some), the only positions of the last layer that are wanted, and computed:
            last_hidden_state is (batch, some, hidden), and the pooler reads the first of them, so [CLS] goes first.
        Raises ValueError for no input or two, an overlong sequence, a mask, a cache or encoder states that do not fit.
        """
        given = [one for one in (input_ids, inputs_embeds, encoder_embeds) if one is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of input_ids, inputs_embeds and encoder_embeds")
        causal = self.config.is_decoder if is_decoder is None else is_decoder
        self._check_encoder_states(encoder_hidden_states, past_key_values, mode)
        past = self._past_length(past_key_values, given[0].shape[0], causal)
        if use_cache is None:
            use_cache = causal and self.config.use_cache and not (self.training and self.encoder.gradient_checkpointing)
        elif use_cache and not causal:
            raise ValueError("use_cache needs is_decoder: an encoder's tokens also see later ones, which a cache lacks")

        embedding_output = encoder_embeds
        if embedding_output is None:
            embedding_output = self.embeddings(
                input_ids, token_type_ids=token_type_ids, position_ids=position_ids, inputs_embeds=inputs_embeds,
                past_key_values_length=past,
            )  # fmt: skip
        elif token_type_ids is not None or position_ids is not None:
            raise ValueError(
                "encoder_embeds enter the first layer as they are: leave token_type_ids and position_ids out"
            )
        batch, seq_length, _ = embedding_output.shape
        if attention_mask is None and causal:
            attention_mask = embedding_output.new_ones(batch, past + seq_length)
        if past and attention_mask is not None and attention_mask.shape[-1] != past + seq_length:
            raise ValueError(
                f"attention_mask is {tuple(attention_mask.shape)}: the cache holds {past} tokens and {seq_length} more "
                f"follow, so it is {(batch, past + seq_length)}"
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
            pooler_output=None if self.pooler is None else self.pooler(encoded.last_hidden_state),
            hidden_states=encoded.hidden_states,
            past_key_values=encoded.past_key_values,
            attentions=encoded.attentions,
            cross_attentions=encoded.cross_attentions,
        )
        # The type says what every caller here gets; a plain tuple is for those who ask for one.
        return outputs if return_dict else cast("BertModelOutput", outputs.to_tuple())

    def _check_encoder_states(
        self, states: States | None, past_key_values: Sequence[LayerCache] | None, mode: str
    ) -> None:
        if mode != "multimodal":
            return
        if self.config.add_cross_attention and states is None and past_key_values is None:
            raise ValueError(
                "encoder_hidden_states are missing: this model has cross-attention; mode='text' leaves it out"
            )
        if not self.config.add_cross_attention and states is not None:
            raise ValueError("encoder_hidden_states were given, but this model has add_cross_attention false")

    def _past_length(self, past_key_values: Sequence[LayerCache] | None, batch: int, causal: bool) -> int:
        """Number of tokens in a cache, checked against this model and batch."""
        if past_key_values is None:
            return 0
        if not causal:
            raise ValueError("past_key_values were given without is_decoder: only a decoder can go on from a cache")
        modules, sizes = self.attention_modules, [tuple(layer[0].shape) for layer in past_key_values]
        length = sizes[0][2] if sizes else 0
        expected = [(batch, one.num_attention_heads, length, one.attention_head_size) for one in modules]
        if sizes != expected:
            held, needed = (", ".join(map(str, sorted(set(shapes)))) for shapes in (sizes, expected))
            raise ValueError(
                f"past_key_values hold {len(sizes)} layers of keys {held}: this model and batch need {len(expected)} "
                f"layers of {needed}"
            )
        return length


class BertForPreTraining(BertPreTrainedModel):
    """BERT with both pre-training heads."""

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
        """Scores of every word at every position, and of B following A.

        labels: (batch, seq), -100 where there is none. next_sentence_label: (batch,), 0 if B follows A.
        model_arguments: as BertModel.forward. The loss is MLM + NSP, or the one whose labels were given.
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
    """BERT with the masked-word head; it has no pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.init_weights()

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> MaskedLMOutput:
        """labels: (batch, seq), -100 where there is none. model_arguments: as BertModel.forward."""
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.cls(outputs.last_hidden_state)
        return MaskedLMOutput(
            loss=None if labels is None else masked_lm_loss(logits, labels),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForNextSentencePrediction(BertPreTrainedModel):
    """BERT with the next-sentence head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertOnlyNSPHead(config)
        self.init_weights()

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> NextSentencePredictorOutput:
        """labels: (batch,), 0 if B follows A and 1 if not. model_arguments: as BertModel.forward."""
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.cls(outputs.pooler_output)
        return NextSentencePredictorOutput(
            loss=None if labels is None else F.cross_entropy(logits.float(), labels.view(-1)),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForSequenceClassification(BertPreTrainedModel):
    """BERT with a classifier of whole texts, or pairs, over the pooler; its classes are those of `config.labels`."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder to stand on, shared with another model and left as it is; None makes one.

        Raises ValueError if the configuration's classes or problem_type mean nothing.
        """
        super().__init__(config)
        self.num_labels, self.problem_type = config.num_labels, config.problem_type
        self.bert = BertModel(config) if bert is None else bert
        self.dropout = nn.Dropout(config.dropout_before_classifier)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self._draw(self.classifier, alone=bert is None)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> SequenceClassifierOutput:
        """labels: as classification_loss takes them. model_arguments: as BertModel.forward."""
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        return SequenceClassifierOutput(
            loss=None if labels is None else classification_loss(logits, labels, self.problem_type),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForTokenClassification(BertPreTrainedModel):
    """BERT with a classifier of every token, without a pooler; its tags are those of `config.labels`."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder to stand on, shared with another model and left as it is; None makes one.

        Raises ValueError if the configuration's tags mean nothing.
        """
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.dropout = nn.Dropout(config.dropout_before_classifier)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self._draw(self.classifier, alone=bert is None)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> TokenClassifierOutput:
        """labels: (batch, seq), -100 where there is none. model_arguments: as BertModel.forward."""
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        return TokenClassifierOutput(
            loss=None if labels is None else F.cross_entropy(logits.float().flatten(0, 1), labels.flatten()),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForQuestionAnswering(BertPreTrainedModel):
    """BERT with two scores of every token, as the first and as the last of an answer, without a pooler.

    Source: Devlin 2019, section 4.2 (arXiv:1810.04805).
    """

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder to stand on, shared with another model and left as it is; None makes one."""
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self._draw(self.qa_outputs, alone=bert is None)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **model_arguments: Any,
    ) -> QuestionAnsweringOutput:
        """start_positions, end_positions: as span_loss takes them. model_arguments: as BertModel.forward."""
        outputs = self.bert(input_ids, **model_arguments)
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
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
    """BERT with one score of a question and an answer to choose, over the pooler: the choice with the largest counts.

    Source: Devlin 2019, section 4.4 (arXiv:1810.04805).
    """

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder to stand on, shared with another model and left as it is; None makes one."""
        super().__init__(config)
        self.bert = BertModel(config) if bert is None else bert
        self.dropout = nn.Dropout(config.dropout_before_classifier)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self._draw(self.classifier, alone=bert is None)

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
        """input_ids, attention_mask, token_type_ids, position_ids: (batch, choice, seq), each question with a choice.

        inputs_embeds: (batch, choice, seq, embedding). labels: (batch,), the number of the right choice.
        model_arguments: as BertModel.forward, of batch x choice texts. Raises ValueError for another number of axes.
        """
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
        texts: dict[str, Tensor] = {}
        choices = 0
        for name, tensor in zip(names, given, strict=True):
            if tensor is None:
                continue
            if tensor.dim() != (4 if name == "inputs_embeds" else 3):
                more = ", embedding" * (name == "inputs_embeds")
                raise ValueError(f"{name} is {tuple(tensor.shape)}: of choices it is (batch, choice, seq{more})")
            choices = choices or tensor.shape[1]
            texts[name] = tensor.flatten(0, 1)
        outputs = self.bert(**texts, **model_arguments)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, choices)
        return MultipleChoiceOutput(
            loss=None if labels is None else F.cross_entropy(logits.float(), labels.view(-1)),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertForReplacedTokenDetection(BertPreTrainedModel):
    """BERT with an ELECTRA's discriminator head: whether each token was replaced; it has no pooler."""

    def __init__(self, config: BertConfig, bert: BertModel | None = None) -> None:
        """bert: the encoder to stand on, shared with another model and left as it is; None makes one."""
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False) if bert is None else bert
        self.discriminator_predictions = BertDiscriminatorPredictions(config)
        self._draw(self.discriminator_predictions, alone=bert is None)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> ReplacedTokenOutput:
        """labels: (batch, seq), 1 where a token was replaced and 0 where not; padding has no part in the loss.

        model_arguments: as BertModel.forward.
        """
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.discriminator_predictions(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            mask = model_arguments.get("attention_mask")
            there = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask == 1
            loss = F.binary_cross_entropy_with_logits(logits[there].float(), labels[there].float())
        return ReplacedTokenOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertLMHeadModel(BertPreTrainedModel):
    """A decoder: BERT with a causal mask and the word head, trained on the next token.

    The published captioners are of this form: with `add_cross_attention` it reads an image's patches.
    """

    _keys_to_ignore_on_load_unexpected = (*checkpoint.IGNORED_KEYS, r"^bert\.pooler\.", r"^cls\.seq_relationship\.")

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.label_smoothing = config.label_smoothing
        self.init_weights()

    def get_output_embeddings(self) -> nn.Linear:
        """The decoder (embedding -> vocab)."""
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the decoder, weight and bias together."""
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
        """Scores of the token after each token.

        labels: (batch, seq), usually the input_ids, -100 where there is none: position t is scored against label t + 1.
        reduction: of the loss, smoothed by `label_smoothing`: "mean", "sum", or "none" for one sum a row, (batch,).
        return_logits: give only the scores (batch, seq - 1, vocab) of all positions but the last.
        model_arguments: as BertModel.forward. With labels nothing is cached.
        Raises ValueError for an unknown reduction.
        """
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction {reduction!r} is unknown: 'mean', 'sum' or 'none'")
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
        """The arguments of `forward` for the next token: with a cache only the last token goes in.

        input_ids: (batch, seq), all tokens so far. attention_mask: (batch, seq), 1 except at padding; positions are
        then counted from the first token that is none.
        model_kwargs: encoder_hidden_states and encoder_attention_mask are passed on.
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
        """The cache of the rows that a beam search keeps: row i of the result is row beam_idx[i] of `past`."""
        return tuple(tuple(state.index_select(0, beam_idx.to(state.device)) for state in layer) for layer in past)

"""BERT, top to bottom in the order data flows: embeddings, layer, encoder, pooler, heads, models.

The module tree is the tree of the published checkpoints, so their state dicts load as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core import checkpoint
from bert_core.attention import BertAttention, BertSelfAttention
from bert_core.config import BertConfig

IGNORED_LABEL = -100  # a position with this label has no part in a loss
MASKED_SCORE = -10000.0  # added to the score of a key that must not be attended to


def _activation(act: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(act):
        return act
    if act in ("gelu_new", "gelu_pytorch_tanh"):
        return lambda x: F.gelu(x, approximate="tanh")
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "gelu": F.gelu, "relu": F.relu, "silu": F.silu, "swish": F.silu, "tanh": torch.tanh,
    }  # fmt: skip
    return functions[act]


# ---------------------------------------------------------------------------- outputs


@dataclass
class ModelOutput:
    """Named results that can also be unpacked or indexed as a tuple, absent ones left out."""

    def to_tuple(self) -> tuple[Any, ...]:
        """The results that are there, in the order of their names."""
        return tuple(v for f in fields(self) if (v := getattr(self, f.name)) is not None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_tuple())

    def __len__(self) -> int:
        return len(self.to_tuple())

    def __getitem__(self, key: int | slice | str) -> Any:
        if not isinstance(key, str):
            return self.to_tuple()[key]
        value = getattr(self, key) if key in {f.name for f in fields(self)} else None
        if value is None:
            raise KeyError(key)
        return value


@dataclass
class BertEncoderOutput(ModelOutput):
    """What the stack of layers gives.

    last_hidden_state: (batch, seq, hidden).
    hidden_states: one (batch, seq, hidden) for the embeddings and one for each layer.
    attentions: one (batch, head, query, key) for each layer: after the softmax, before dropout and head mask.
    """

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class BertModelOutput(ModelOutput):
    """As BertEncoderOutput, with pooler_output (batch, hidden): [CLS] through a dense layer and tanh."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class BertForPreTrainingOutput(ModelOutput):
    """Both pre-training predictions.

    loss: scalar, MLM + NSP, when labels were given.
    prediction_logits: (batch, seq, vocab).
    seq_relationship_logits: (batch, 2); index 0 means that B follows A.
    """

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class MaskedLMOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, seq, vocab)."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class NextSentencePredictorOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, 2); index 0 means that B follows A."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass
class SequenceClassifierOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, label)."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


# ---------------------------------------------------------------------------- input


class BertEmbeddings(nn.Module):
    """Token + segment + position embeddings, layer norm, dropout (Devlin 2019, figure 2)."""

    position_ids: Tensor

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = (
            nn.Embedding(config.type_vocab_size, config.hidden_size) if config.type_vocab_size else None
        )
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.position_embedding_type = config.position_embedding_type
        self.register_buffer("position_ids", torch.arange(config.max_position_embeddings)[None], persistent=False)

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values_length: int = 0,
    ) -> Tensor:
        """input_ids, token_type_ids, position_ids: (batch, seq). inputs_embeds: (batch, seq, hidden).

        Returns (batch, seq, hidden). Without token_type_ids every token is in segment 0.
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
        if self.position_embedding_type == "absolute":
            if position_ids is None:
                end = past_key_values_length + seq_length
                if end > self.config.max_position_embeddings:
                    raise ValueError(
                        f"the sequence has {end} tokens: this model takes at most {self.config.max_position_embeddings}"
                    )
                position_ids = self.position_ids[:, past_key_values_length:end]
            embeddings = embeddings + self.position_embeddings(position_ids)
        normalised: Tensor = self.dropout(self.LayerNorm(embeddings))
        return normalised


# ---------------------------------------------------------------------------- layers


class BertIntermediate(nn.Module):
    """First half of the feed-forward network: dense layer and activation, hidden -> intermediate."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = _activation(config.hidden_act)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, seq, intermediate)."""
        return self.intermediate_act_fn(self.dense(hidden_states))


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


class BertLayer(nn.Module):
    """One encoder layer: attention, then the feed-forward network, each with a residual and a layer norm."""

    def __init__(self, config: BertConfig, layer_num: int = 0) -> None:
        super().__init__()
        self.config = config
        self.layer_num = layer_num
        self.attention = BertAttention(config, layer_num)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        *,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As BertSelfAttention.forward, with the residual stream (batch, seq, hidden) in and out."""
        attention_output, attention_probs = self.attention(
            hidden_states, attention_mask, head_mask, output_attentions=output_attentions
        )
        return self.output(self.intermediate(attention_output), attention_output), attention_probs


class BertEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.ModuleList(BertLayer(config, layer_num) for layer_num in range(config.num_hidden_layers))

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        *,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> BertEncoderOutput:
        """hidden_states: (batch, seq, hidden). head_mask: (layer, batch or 1, head, 1, 1).

        The first document's "all encoded layers" are the hidden_states of the result.
        """
        all_hidden_states, attentions = [hidden_states], []
        for layer_num, layer in enumerate(self.layer):
            layer_mask = None if head_mask is None else head_mask[layer_num]
            hidden_states, attention_probs = layer(
                hidden_states, attention_mask, layer_mask, output_attentions=output_attentions
            )
            if output_hidden_states:
                all_hidden_states.append(hidden_states)
            if output_attentions:
                attentions.append(attention_probs)
        return BertEncoderOutput(
            last_hidden_state=hidden_states,
            hidden_states=tuple(all_hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )


class BertPooler(nn.Module):
    """The first token's hidden state through a dense layer and tanh."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = nn.Tanh()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, hidden)."""
        pooled: Tensor = self.activation(self.dense(hidden_states[:, 0]))
        return pooled


# ---------------------------------------------------------------------------- prediction heads


class BertPredictionHeadTransform(nn.Module):
    """Dense layer, activation, layer norm: what a hidden state passes before it is compared with the words."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.transform_act_fn = _activation(config.hidden_act)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., hidden) -> (..., hidden)."""
        normalised: Tensor = self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))
        return normalised


class BertLMPredictionHead(nn.Module):
    """A score for every word piece; `bias` and `decoder.bias` are one parameter under two published names."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = self.decoder.bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab)."""
        scores: Tensor = self.decoder(self.transform(hidden_states))
        return scores


class BertOnlyMLMHead(nn.Module):
    """The masked-word head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)

    def forward(self, sequence_output: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, seq, vocab)."""
        scores: Tensor = self.predictions(sequence_output)
        return scores


class BertOnlyNSPHead(nn.Module):
    """The next-sentence head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled_output: Tensor) -> Tensor:
        """(batch, hidden) -> (batch, 2); index 0 means that B follows A."""
        scores: Tensor = self.seq_relationship(pooled_output)
        return scores


class BertPreTrainingHeads(nn.Module):
    """The masked-word head and the next-sentence head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, sequence_output: Tensor, pooled_output: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (batch, seq, vocab) and (batch, 2) from the two outputs of BertModel."""
        return self.predictions(sequence_output), self.seq_relationship(pooled_output)


# ---------------------------------------------------------------------------- models


class BertPreTrainedModel(nn.Module):
    """What every model shares: initialisation, tied weights, reading and writing checkpoint folders."""

    config_class = BertConfig
    base_model_prefix = "bert"
    load_report: checkpoint.LoadReport

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config

    def _init_weights(self, module: nn.Module) -> None:
        """Normal weights of width initializer_range, zero biases, layer norms that do nothing."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx].detach())
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm):
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
        """The word embedding table (vocab, hidden)."""
        return self.base_model.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embedding table; a tied decoder follows.

        Raises ValueError if the table has another size: the decoder's bias would no longer fit.
        """
        expected = (self.config.vocab_size, self.config.hidden_size)
        if tuple(value.weight.shape) != expected:
            raise ValueError(f"the new embedding table is {tuple(value.weight.shape)}: this model needs {expected}")
        self.base_model.embeddings.word_embeddings = value
        self.tie_weights()

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
        config, weights = checkpoint.read_config(folder), checkpoint.read_weights(folder)
        model = cls(config, **model_arguments)
        model.load_report = checkpoint.fill(model, weights, source=str(folder))
        return model.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors`, whole or not at all."""
        checkpoint.write(self, self.config, folder)


class BertModel(BertPreTrainedModel):
    """Embeddings, encoder and, unless add_pooling_layer is False, the pooler."""

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
        is_decoder: also hide later positions; None asks the configuration.
        Raises ValueError for a mask of any other shape.
        """
        batch, seq_length = input_shape
        if attention_mask.shape == (batch, seq_length):
            allowed = attention_mask[:, None, None, :]
        elif attention_mask.shape == (batch, seq_length, seq_length):
            allowed = attention_mask[:, None, :, :]
        else:
            raise ValueError(
                f"attention_mask is {tuple(attention_mask.shape)}: for this input it is "
                f"{(batch, seq_length)} or {(batch, seq_length, seq_length)}"
            )
        dtype = self.embeddings.word_embeddings.weight.dtype
        allowed = allowed.to(device=device, dtype=dtype)
        if self.config.is_decoder if is_decoder is None else is_decoder:
            allowed = allowed * torch.ones(seq_length, seq_length, dtype=dtype, device=allowed.device).tril()
        return (1.0 - allowed) * MASKED_SCORE

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
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        is_decoder: bool | None = None,
    ) -> BertModelOutput:
        """Contextual vectors of every token.

        input_ids, token_type_ids, position_ids: (batch, seq). inputs_embeds: (batch, seq, hidden), instead of ids.
        attention_mask: (batch, seq) or (batch, query, key), 1 to attend; None attends to everything.
        head_mask: (head,), (layer, head) or (layer, batch, head); 1 keeps a head, 0 switches it off.
        is_decoder: hide later positions; None asks the configuration, any other value overrides it.
        Raises ValueError for ids and embeddings together, an overlong sequence or a mask that does not fit.
        """
        embedding_output = self.embeddings(
            input_ids, token_type_ids=token_type_ids, position_ids=position_ids, inputs_embeds=inputs_embeds
        )
        batch, seq_length, _ = embedding_output.shape
        causal = self.config.is_decoder if is_decoder is None else is_decoder
        if attention_mask is None and causal:
            attention_mask = embedding_output.new_ones(batch, seq_length)
        encoded = self.encoder(
            embedding_output,
            None
            if attention_mask is None
            else self.get_extended_attention_mask(
                attention_mask, (batch, seq_length), embedding_output.device, is_decoder=causal
            ),
            self.get_head_mask(head_mask, batch),
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
        )
        return BertModelOutput(
            last_hidden_state=encoded.last_hidden_state,
            pooler_output=None if self.pooler is None else self.pooler(encoded.last_hidden_state),
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )


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
        """bert: the encoder to stand on, shared with another model and left as it is; None makes one."""
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config) if bert is None else bert
        share = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(share)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        if bert is None:
            self.init_weights()
        else:
            self._init_weights(self.classifier)

    def forward(
        self, input_ids: Tensor | None = None, *, labels: Tensor | None = None, **model_arguments: Any
    ) -> SequenceClassifierOutput:
        """labels: as classification_loss takes them. model_arguments: as BertModel.forward."""
        outputs = self.bert(input_ids, **model_arguments)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        return SequenceClassifierOutput(
            loss=None if labels is None else classification_loss(logits, labels, self.config.problem_type),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None = None) -> Tensor:
    """Mean loss of a classifier's logits (batch, label).

    labels: (batch,) numbers of classes, for cross-entropy; floats (batch, label), 0 or 1 for each class by itself, for
        binary cross-entropy; with one output, or for a regression, the numbers themselves, for the mean square.
    problem_type: which of the three; None asks the number of outputs and the type of the labels.
    """
    if problem_type is None and logits.shape[-1] == 1:
        problem_type = "regression"
    elif problem_type is None:
        problem_type = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
    if problem_type == "single_label_classification":
        return F.cross_entropy(logits.float(), labels.view(-1))
    loss = F.mse_loss if problem_type == "regression" else F.binary_cross_entropy_with_logits
    return loss(logits.float(), labels.float().view_as(logits))


def masked_lm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the labelled positions, in nats.

    logits: (..., vocab). labels: (...), -100 where there is none.
    """
    return F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED_LABEL)

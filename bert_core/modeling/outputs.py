"""The outputs of models: dataclasses that can also be unpacked as tuples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

LayerCache = tuple[Tensor, ...]  # keys and values of the sequence, then those of an encoder's states, if any


# Outputs are compared by identity, because `==` of two tensors is a tensor and not a bool.
@dataclass(eq=False)
class ModelOutput:
    """Base class of outputs, whose fields can also be unpacked or indexed as a tuple without those that are None."""

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the fields that are not None, in the order of their definition."""
        return tuple(value for field in fields(self) if (value := getattr(self, field.name)) is not None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_tuple())

    def __len__(self) -> int:
        return len(self.to_tuple())

    def __getitem__(self, key: int | slice | str) -> Any:
        if not isinstance(key, str):
            return self.to_tuple()[key]
        value = getattr(self, key) if key in {field.name for field in fields(self)} else None
        if value is None:
            raise KeyError(key)
        return value


@dataclass(eq=False)
class BertEncoderOutput(ModelOutput):
    """The output of the stack of layers. Fields that were not requested are None.

    last_hidden_state: (batch, seq, hidden).
    past_key_values: for each layer its keys and values (batch, head, key, head size), those of self-attention first.
    hidden_states: (batch, seq, hidden) of the embeddings and of each layer.
    attentions: (batch, head, query, key) of each layer, after the softmax and before dropout and the head mask.
    cross_attentions: the same for attention to the encoder's states.
    """

    last_hidden_state: Tensor
    past_key_values: tuple[LayerCache, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class BertModelOutput(ModelOutput):
    """The output of BertModel: the fields of BertEncoderOutput and the pooler's output.

    pooler_output: (batch, hidden), the hidden state of the first token after a dense layer and tanh.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    past_key_values: tuple[LayerCache, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class BertForPreTrainingOutput(ModelOutput):
    """The output of a model with both pre-training heads.

    loss: scalar, the sum of the MLM and NSP losses; None without labels.
    prediction_logits: (batch, seq, vocab).
    seq_relationship_logits: (batch, 2); index 0 means that sentence B follows sentence A.
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class MaskedLMOutput(ModelOutput):
    """The output of a model with a masked language modelling head.

    loss: scalar; None without labels.
    logits: (batch, seq, vocab).
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class NextSentencePredictorOutput(ModelOutput):
    """The output of a model with a next-sentence head.

    loss: scalar; None without labels.
    logits: (batch, 2); index 0 means that sentence B follows sentence A.
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class SequenceClassifierOutput(ModelOutput):
    """The output of a classifier of texts.

    loss: scalar; None without labels.
    logits: (batch, label).
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class TokenClassifierOutput(ModelOutput):
    """The output of a classifier of tokens.

    loss: scalar; None without labels.
    logits: (batch, seq, label).
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class QuestionAnsweringOutput(ModelOutput):
    """The output of a model for extractive question answering.

    loss: scalar; None unless the first and last positions of the answers are given.
    start_logits, end_logits: (batch, seq), scores of each token as the first and as the last of the answer.
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class MultipleChoiceOutput(ModelOutput):
    """The output of a model for multiple choice.

    loss: scalar; None without labels.
    logits: (batch, choice).
    hidden_states, attentions: as in BertEncoderOutput, for a batch of batch * choice texts.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class ReplacedTokenOutput(ModelOutput):
    """The output of a detector of replaced tokens.

    loss: scalar; None without labels.
    logits: (batch, seq); above 0, the token is more likely replaced than original.
    hidden_states, attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class CausalLMOutput(ModelOutput):
    """The output of a decoder with a language modelling head.

    loss: scalar, or (batch,) with reduction "none"; None without labels.
    logits: (batch, seq, vocab), scores of the token after each token.
    past_key_values, hidden_states, attentions, cross_attentions: as in BertEncoderOutput.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    past_key_values: tuple[LayerCache, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None

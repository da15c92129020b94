"""The outputs of models: dataclasses that can also be unpacked as tuples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

LayerCache = tuple[Tensor, ...]  # keys and values of the sequence, then of the encoder's states where there are any


# Outputs are compared by identity, as modules are: `==` of their tensors has an entry for each number.
@dataclass(eq=False)
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


@dataclass(eq=False)
class BertEncoderOutput(ModelOutput):
    """What the stack of layers gives.

    last_hidden_state: (batch, seq, hidden).
    past_key_values: for each layer its keys and values (batch, head, key, head size), those of self-attention first.
    hidden_states: one (batch, seq, hidden) for the embeddings and one for each layer.
    attentions: one (batch, head, query, key) for each layer: after the softmax, before dropout and head mask.
    cross_attentions: the same over the encoder's states.
    """

    last_hidden_state: Tensor
    past_key_values: tuple[LayerCache, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class BertModelOutput(ModelOutput):
    """As BertEncoderOutput, with pooler_output (batch, hidden): [CLS] through a dense layer and tanh."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    past_key_values: tuple[LayerCache, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
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


@dataclass(eq=False)
class MaskedLMOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, seq, vocab)."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class NextSentencePredictorOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, 2); index 0 means that B follows A."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class SequenceClassifierOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, label)."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class TokenClassifierOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, seq, label)."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class QuestionAnsweringOutput(ModelOutput):
    """loss: scalar, when both positions were given. start_logits, end_logits: (batch, seq)."""

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class MultipleChoiceOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, choice). The rest as of a batch of batch x choice texts."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class ReplacedTokenOutput(ModelOutput):
    """loss: scalar, when labels were given. logits: (batch, seq); above 0 a token rather was replaced."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


@dataclass(eq=False)
class CausalLMOutput(ModelOutput):
    """loss: scalar, or (batch,) with reduction "none". logits: (batch, seq, vocab). The rest as BertEncoderOutput."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    past_key_values: tuple[LayerCache, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    cross_attentions: tuple[Tensor, ...] | None = None

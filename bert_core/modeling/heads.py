"""The prediction heads and their loss functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.attention import build_norm
from bert_core.config import BertConfig
from bert_core.modeling.layers import _activation

IGNORED_LABEL = -100  # positions with this label are left out of a loss


class BertPredictionHeadTransform(nn.Module):
    """The transform of hidden states before the scores of word pieces: dense layer, activation function, layer norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        has_bias = config.layer_design.head_bias
        self.dense = nn.Linear(config.hidden_size, config.embedding_width, bias=has_bias)
        self.transform_act_fn = _activation(config.mlm_act)
        self.LayerNorm = build_norm(config, config.embedding_width)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Transform hidden states (..., hidden) to the width of the embeddings, (..., embedding)."""
        normalised: Tensor = self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))
        return normalised


def build_token_transform(config: BertConfig) -> nn.Module:
    """Return the layers before a classifier of tokens: the identity, unless all heads have one design."""
    return BertPredictionHeadTransform(config) if config.family.one_head_design else nn.Identity()


class BertLMPredictionHead(nn.Module):
    """The scores of all word pieces; `bias` and `decoder.bias` are one parameter under two published names."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.bias = self.decoder.bias

    def resize(self, vocab_size: int) -> None:
        """Change the size of the vocabulary in place.

        New word pieces get weights and bias 0. A smaller vocabulary drops the last ones.
        """
        old = self.decoder
        common = min(vocab_size, old.out_features)
        self.decoder = nn.Linear(old.in_features, vocab_size).to(old.weight).requires_grad_(old.weight.requires_grad)
        with torch.no_grad():
            for new_tensor, old_tensor in ((self.decoder.weight, old.weight), (self.decoder.bias, old.bias)):
                new_tensor.zero_()
                new_tensor[:common] = old_tensor[:common]
        self.bias = self.decoder.bias

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Compute the logits (..., vocab) of hidden states (..., hidden)."""
        scores: Tensor = self.decoder(self.transform(hidden_states))
        return scores


class BertOnlyMLMHead(nn.Module):
    """The masked language modelling (MLM) head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)

    def forward(self, sequence_output: Tensor) -> Tensor:
        """Compute the logits (batch, seq, vocab) of hidden states (batch, seq, hidden)."""
        scores: Tensor = self.predictions(sequence_output)
        return scores


class BertOnlyNSPHead(nn.Module):
    """The next-sentence prediction (NSP) head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled_output: Tensor) -> Tensor:
        """Compute the logits (batch, 2) of pooled outputs (batch, hidden); index 0 means that B follows A."""
        scores: Tensor = self.seq_relationship(pooled_output)
        return scores


class BertPreTrainingHeads(nn.Module):
    """Both pre-training heads: masked language modelling and next-sentence prediction."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, sequence_output: Tensor, pooled_output: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the logits of both heads.

        sequence_output: (batch, seq, hidden). pooled_output: (batch, hidden).
        Returns the MLM logits (batch, seq, vocab) and the NSP logits (batch, 2).
        """
        return self.predictions(sequence_output), self.seq_relationship(pooled_output)


class BertDiscriminatorPredictions(nn.Module):
    """The head of a discriminator, which scores whether each token replaced the original one.

    In DeBERTa-v3, it reads the sum of the hidden states of a token and of the first token, after a layer norm
    (`Family.detector_adds_first_token`).
    Source: Clark 2020 (arXiv:2003.10555), section 3.1; He 2021 (arXiv:2111.09543) and the code published with it.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.LayerNorm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            if config.family.detector_adds_first_token
            else None
        )
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = _activation(config.hidden_act)
        self.dense_prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_states: Tensor, first_states: Tensor | None = None) -> Tensor:
        """Compute the logits (...) of hidden states (..., hidden); above 0, a token is more likely replaced.

        first_states: (..., hidden), hidden state of the first token of each text, for a model that adds it. None: the
            hidden states (..., seq, hidden) are those of whole texts.
        """
        if self.LayerNorm is not None:
            first_states = hidden_states[..., :1, :] if first_states is None else first_states
            hidden_states = self.LayerNorm(hidden_states + first_states)
        scores: Tensor = self.dense_prediction(self.activation(self.dense(hidden_states)))
        return scores.squeeze(-1)


# ---------------------------------------------------------------------------- losses


def masked_lm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross-entropy over the labelled positions, in nats.

    logits: (..., vocab). labels: (...), ids of word pieces, -100 at positions without a label.
    Returns a scalar.
    """
    return F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED_LABEL)


def span_loss(start_logits: Tensor, end_logits: Tensor, start_positions: Tensor, end_positions: Tensor) -> Tensor:
    """Compute the mean of two cross-entropies, of the first and of the last position of each answer, in nats.

    start_logits, end_logits: (batch, seq).
    start_positions, end_positions: (batch,). A position beyond the text is left out of the loss.
    Returns a scalar.
    """
    ignored = start_logits.shape[-1]
    losses = [
        F.cross_entropy(logits.float(), positions.view(-1).clamp(0, ignored), ignore_index=ignored)
        for logits, positions in ((start_logits, start_positions), (end_logits, end_positions))
    ]
    return torch.stack(losses).mean()


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None = None) -> Tensor:
    """Compute the mean loss of a classifier.

    logits: (batch, label).
    labels: (batch,), class indices, for cross-entropy ("single_label_classification"). Floats (batch, label), 0 or 1
        for each class, for binary cross-entropy ("multi_label_classification"). Target values, as
        many as there are logits, for the mean squared error ("regression").
    problem_type: one of these three. None uses the regression for one output, and otherwise the type of the labels.
    Returns a scalar.
    """
    if problem_type is None and logits.shape[-1] == 1:
        problem_type = "regression"
    elif problem_type is None:
        problem_type = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
    if problem_type == "single_label_classification":
        return F.cross_entropy(logits.float(), labels.view(-1))
    loss = F.mse_loss if problem_type == "regression" else F.binary_cross_entropy_with_logits
    return loss(logits.float(), labels.float().view_as(logits))

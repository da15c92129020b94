"""Prediction heads, and the losses of their scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.modeling.layers import _activation

IGNORED_LABEL = -100  # a position with this label has no part in a loss


class BertPredictionHeadTransform(nn.Module):
    """Dense layer, activation, layer norm: what a hidden state passes before it is compared with the words."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_width)
        self.transform_act_fn = _activation(config.mlm_act)
        self.LayerNorm = nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., hidden) -> (..., embedding)."""
        normalised: Tensor = self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))
        return normalised


class BertLMPredictionHead(nn.Module):
    """A score for every word piece; `bias` and `decoder.bias` are one parameter under two published names."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.bias = self.decoder.bias

    def resize(self, vocab_size: int) -> None:
        """Make room for another vocabulary: new words get weight and bias zero, lost ones are the last."""
        old = self.decoder
        kept = min(vocab_size, old.out_features)
        self.decoder = nn.Linear(old.in_features, vocab_size).to(old.weight).requires_grad_(old.weight.requires_grad)
        with torch.no_grad():
            for new_one, old_one in ((self.decoder.weight, old.weight), (self.decoder.bias, old.bias)):
                new_one.zero_()
                new_one[:kept] = old_one[:kept]
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


class BertDiscriminatorPredictions(nn.Module):
    """A score for every token: whether it was put in the place of another (Clark 2020, arXiv:2003.10555, 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = _activation(config.hidden_act)
        self.dense_prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., hidden) -> (...)."""
        scores: Tensor = self.dense_prediction(self.activation(self.dense(hidden_states)))
        return scores.squeeze(-1)


# ---------------------------------------------------------------------------- losses


def masked_lm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the labelled positions, in nats.

    logits: (..., vocab). labels: (...), -100 where there is none.
    """
    return F.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), ignore_index=IGNORED_LABEL)


def span_loss(start_logits: Tensor, end_logits: Tensor, start_positions: Tensor, end_positions: Tensor) -> Tensor:
    """The mean of the two cross-entropies, of the first and of the last place of each answer.

    start_logits, end_logits: (batch, seq). start_positions, end_positions: (batch,); one beyond the text has no part.
    """
    ignored = start_logits.shape[-1]
    losses = [
        F.cross_entropy(logits.float(), places.view(-1).clamp(0, ignored), ignore_index=ignored)
        for logits, places in ((start_logits, start_positions), (end_logits, end_positions))
    ]
    return torch.stack(losses).mean()


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

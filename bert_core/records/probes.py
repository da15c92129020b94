"""Result of a linear probe: how well a label of words can be predicted from the hidden states at one depth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bert_core.records.tables import Tabular


@dataclass(frozen=True)
class ProbePoint(Tabular):
    """Result of a linear probe at one depth for one seed, with its baselines.

    depth: 0 for the embeddings, n + 1 for the output of layer n.
    seed: random seed of the split and of the control labels.
    labels: number of labels.
    learned, asked: number of words of the training sentences and of the test sentences.
    accuracy: accuracy on the test words, 0 to 1.
    majority: share of the test words with the most frequent label.
    lookup: accuracy of predicting the most frequent label of each word type, without hidden states.
    control: accuracy of a probe for random labels of word types (control task).
    bits, control_bits: online code length in bits of the training labels, and of the control labels.
    uniform_bits: code length with uniform probabilities.
    erased: accuracy of a new probe after the label was erased. rank: number of erased directions.
    loss, loss_erased, loss_random: loss in nats of masked tokens with unmodified states, with the label erased at this
        depth, and with as many random directions erased.
    guessed, guessed_erased, guessed_random: accuracy of masked tokens, 0 to 1, in the same three cases.
    Fields about erasure are NaN if nothing was erased, and those about masked tokens also without an MLM head.
    """

    depth: int
    seed: int
    labels: int
    learned: int
    asked: int
    accuracy: float
    majority: float
    lookup: float
    control: float
    bits: float
    control_bits: float
    uniform_bits: float
    erased: float = math.nan
    rank: float = math.nan
    loss: float = math.nan
    loss_erased: float = math.nan
    loss_random: float = math.nan
    guessed: float = math.nan
    guessed_erased: float = math.nan
    guessed_random: float = math.nan

    @property
    def selectivity(self) -> float:
        """Accuracy of the probe minus accuracy in the control task (Hewitt & Liang 2019)."""
        return self.accuracy - self.control

    @property
    def compression(self) -> float:
        """Uniform code length divided by the code length of the labels (Voita & Titov 2020)."""
        return self.uniform_bits / self.bits

    @property
    def control_compression(self) -> float:
        """Uniform code length divided by the code length of the control labels."""
        return self.uniform_bits / self.control_bits

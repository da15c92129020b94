"""How well a label of words can be read off the states at one depth."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ProbePoint:
    """A linear probe at one depth, beside what it could have found without the model; of one seed.

    depth: 0 for the embeddings, n + 1 for what leaves layer n. seed: of the split and of the random labels.
    labels: how many there are. learned, asked: words of the sentences that the probe learned from, and of the others.
    accuracy: share of the words asked whose label the probe says. majority: the share that has the commonest label.
    lookup: what a table finds that knows no state, only the commonest label of each word type.
    control: the share that a probe says right of random labels, one for each word type.
    bits, control_bits: length of the labels, and of the random ones, of the words learned from, sent with the probe as
        a code that is learned on the way. uniform_bits: of a code in which all labels are as likely.
    erased: accuracy of a new probe when the label was erased; rank: how many directions went.
    loss, loss_erased, loss_random: of hidden pieces, nats, with the states as they are, with the label erased at this
        depth, and with as many random directions erased. guessed, guessed_erased, guessed_random: share of them
        that come first. All of these are NaN where nothing was erased, and what asks for words without a word head.
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
        """How much better the probe says the label than random labels of the word types (Hewitt & Liang 2019)."""
        return self.accuracy - self.control

    @property
    def compression(self) -> float:
        """How many times shorter the code is than the uniform one (Voita & Titov 2020)."""
        return self.uniform_bits / self.bits

    @property
    def control_compression(self) -> float:
        """The same of the random labels."""
        return self.uniform_bits / self.control_bits

"""What each token of a text is given: scores for a target, shares of each other, log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.targets import Target
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class Attribution:
    """What one method gives each token for one target.

    method: its name. scores: (seq,) float32.
    target_value: the value of the target (for DecompX, of a word's logit).
    signed: whether a negative score speaks against the target; else it only has no part in it.
    baseline: what the tokens were compared with, "pad", "mask" or "zero", and its target value; None without one.
    complete: whether the scores should sum to the target's way from the baseline, or to its value if there is none.
    """

    encoding: Encoding
    target: Target
    method: str
    scores: np.ndarray = field(repr=False)
    target_value: float
    signed: bool
    baseline: str | None = None
    baseline_value: float | None = None
    complete: bool = False

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def gap(self) -> float | None:
        """By how much the scores miss what they should sum to; None where they need not sum to anything."""
        if not self.complete:
            return None
        return float(self.scores.sum(dtype=np.float64)) - (self.target_value - (self.baseline_value or 0.0))


@compared_by_value
@dataclass(frozen=True)
class TokenMaps:
    """What each position gives to each other, layer by layer, by a method that needs the weights.

    method: its name. maps: (layer, query, key) float32, never negative; rows are as the method leaves them.
    residual: whether the residual connection is in the maps.
    heads: (layer, head, query, key), the same for each head; or None.
    mixing: (layer, query), which share of a position comes from others, 0 to 1; or None.
    """

    encoding: Encoding
    method: str
    maps: np.ndarray = field(repr=False)
    residual: bool
    heads: np.ndarray | None = field(default=None, repr=False)
    mixing: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)


@compared_by_value
@dataclass(frozen=True)
class SentenceScore:
    """How likely each piece of a text is, given the rest of it.

    variant: "original", all other pieces are seen; or "within word", not the later ones of its own word.
    log_probabilities: (seq,) float32, nats; NaN at the added [CLS] and [SEP].
    """

    encoding: Encoding
    variant: str
    log_probabilities: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood, nats."""
        return float(np.nansum(self.log_probabilities, dtype=np.float64))

    @property
    def perplexity(self) -> float:
        """The pseudo-perplexity, exp(-mean): 1 for a text whose every piece is certain."""
        return float(np.exp(-np.nanmean(self.log_probabilities, dtype=np.float64)))


class PairRow(NamedTuple):
    """One row of a table as it was given: its number from 1, its two sentences, and what is wrong with it, if it is."""

    row: int
    first: str
    second: str
    problem: str | None = None


@dataclass(frozen=True)
class PairScore:
    """Two sentences that are compared, as one row of a table.

    row: its number. sentences: as they were given. first, second: None where there is a problem.
    problem: why the pair could not be scored; None if it was.
    """

    row: int
    sentences: tuple[str, str]
    first: SentenceScore | None = None
    second: SentenceScore | None = None
    problem: str | None = None

    @property
    def both(self) -> tuple[SentenceScore, SentenceScore]:
        """The two scores. Raises Refused, with the problem, where there are none."""
        if self.first is None or self.second is None:
            raise Refused(self.problem or "the pair was not scored")
        return self.first, self.second

    @property
    def difference(self) -> float:
        """By how many nats the first is likelier. Raises Refused as `both`."""
        first, second = self.both
        return first.total - second.total

    @property
    def preferred(self) -> str | None:
        """Which is likelier: "first", "second", or "neither" where both are alike; None where there is a problem."""
        if self.problem is not None:
            return None
        difference = self.difference
        return "neither" if difference == 0 else "first" if difference > 0 else "second"

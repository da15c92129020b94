"""Results for the tokens of a text: attributions, contribution maps, and log-probabilities of sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from bert_core.deprecation import RenamedAttribute
from bert_core.records.base import compared_by_value, make_read_only
from bert_core.records.tables import Tables, Tabular
from bert_core.records.targets import Target
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding


@compared_by_value
@dataclass(frozen=True)
class Attribution(Tabular):
    """Scores of one attribution method for the tokens of a text and one target.

    method: name of the method.
    scores: (seq,) float32.
    target_value: value of the target, or of the logit of the word for DecompX.
    signed: whether a negative score opposes the target. Otherwise scores are not signed.
    baseline: baseline of the tokens, "pad", "mask" or "zero". None for methods without one.
    baseline_value: target of the baseline, or None.
    complete: whether the scores should sum to the target minus that of the baseline, or to the target without one.
    """

    TABLES: ClassVar[Tables] = (("position", {"score": "scores"}),)

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
        """Completeness error: the sum of the scores minus its expected value. None for methods without completeness."""
        if not self.complete:
            return None
        return float(self.scores.sum(dtype=np.float64)) - (self.target_value - (self.baseline_value or 0.0))


@compared_by_value
@dataclass(frozen=True)
class TokenMaps(Tabular):
    """Contribution of each position to each other position in every layer, by a method that uses the weights.

    method: name of the method.
    maps: (layer, query, key) float32, not negative. Rows are normalised as the method defines.
    residual: whether the maps include the residual connection.
    heads: (layer, head, query, key), the same for each head, or None.
    mixing: (layer, query), share of a position that comes from other positions, 0 to 1, or None.
    """

    TABLES: ClassVar[Tables] = (
        ("layer query key", {"contribution": "maps"}),
        ("layer head query key", {"head_contribution": "heads"}),
        ("layer query", {"mixing": "mixing"}),
    )

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
class SentenceScore(Tabular):
    """Log-probability of each token of a sentence, given the other tokens.

    variant: "original" if each token is predicted from all others, or "within word" if the later pieces of its own word
        are also masked.
    log_probabilities: (seq,) float32 in nats, NaN at [CLS] and [SEP].
    """

    TABLES: ClassVar[Tables] = (("position", {"log_probability": "log_probabilities"}),)

    encoding: Encoding
    variant: str
    log_probabilities: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def total(self) -> float:
        """Pseudo-log-likelihood of the sentence in nats."""
        return float(np.nansum(self.log_probabilities, dtype=np.float64))

    @property
    def perplexity(self) -> float:
        """Pseudo-perplexity, exp of minus the mean log-probability. It is 1 if every token has probability 1."""
        return float(np.exp(-np.nanmean(self.log_probabilities, dtype=np.float64)))


class PairRow(NamedTuple):
    """One row of a table of sentence pairs.

    row: number of the row, from 1. first, second: the sentences. problem: why the pair cannot be scored, or None.
    category: name of the group of pairs to which it belongs, or "".
    """

    row: int
    first: str
    second: str
    problem: str | None = None
    category: str = ""


@dataclass(frozen=True)
class PairScore(Tabular):
    """Scores of two sentences, as one row of a table.

    row: number of the row. sentences: the sentences as given.
    first, second: scores of either sentence. None if the pair was not scored.
    problem: why the pair was not scored, or None.
    category: that of the row.
    """

    row: int
    sentences: tuple[str, str]
    first: SentenceScore | None = None
    second: SentenceScore | None = None
    problem: str | None = None
    category: str = ""

    @property
    def scores(self) -> tuple[SentenceScore, SentenceScore]:
        """The scores of both sentences. Raises Refused with the problem if the pair was not scored."""
        if self.first is None or self.second is None:
            raise Refused(self.problem or "the pair was not scored: both sentences need a score")
        return self.first, self.second

    @property
    def difference(self) -> float:
        """Log-probability of the first sentence minus that of the second, in nats.

        Raises Refused if the pair was not scored.
        """
        first, second = self.scores
        return first.total - second.total

    @property
    def preferred(self) -> str | None:
        """The more probable sentence, "first", "second", or "neither" if equal. None if the pair was not scored."""
        if self.problem is not None:
            return None
        difference = self.difference
        return "neither" if difference == 0 else "first" if difference > 0 else "second"

    @property
    def cells(self) -> dict[str, int | float | str | None]:
        """The scores as one row of a table, by the names of its columns. Missing numbers are None.

        `first_nats` and `second_nats` are log-probabilities in nats.
        """
        numbers: tuple[float | None, ...] = (None,) * 5
        if self.problem is None:
            first, second = self.scores
            numbers = (first.total, second.total, self.difference, first.perplexity, second.perplexity)
        names = ("first_nats", "second_nats", "difference", "first_perplexity", "second_perplexity")
        first_text, second_text = self.sentences
        return {
            "row": self.row, "first": first_text, "second": second_text, **dict(zip(names, numbers, strict=True)),
            "believed": self.preferred or "", "problem": self.problem or "",
        }  # fmt: skip

    def _tables(self) -> Tables:
        row = {name: np.nan if cell is None else cell for name, cell in self.cells.items()}
        return (("", {name: np.array(cell, object if isinstance(cell, str) else None) for name, cell in row.items()}),)

    believed = RenamedAttribute("preferred")
    both = RenamedAttribute("scores")

"""Faithfulness of attribution methods: change of the prediction when the tokens with the highest scores are removed.

The evaluation has two steps, because the model runs between them:

    plan = plan_removals(scores, removable_units(encoding, target), len(encoding))
    values = values_without(loaded, encoding, target, plan.removed, probability=True)  # of bert_core.run.perturbation
    measures = evaluate_removals(plan, values)

Source: DeYoung 2020, section 4 (ERASER, arXiv:1911.03429). The removal curve is that of Samek 2017 (arXiv:1509.06321).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_core.analysis.units import scores_of_units, word_units
from bert_core.records import Target
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, short_repr
from bert_core.tokenizer import Encoding

REMOVED_SHARES = tuple(tenth / 10 for tenth in range(1, 10))  # shares of the removable units, for the removal curve
TOP_SHARES = REMOVED_SHARES[:5]  # shares that count as the top of a ranking
RANDOM_RANKINGS = 100
MEASURES = ("comprehensiveness", "sufficiency", "aopc")


@compared_by_value
@dataclass(frozen=True)
class RemovalPlan:
    """Copies of a text with tokens removed, for the ranking of each method and then for random rankings.

    removed: (copy, token) boolean. The first copy is the whole text. For each ranking follow the copies without its top
        units, one for each of `REMOVED_SHARES`, and those with only its top units, one for each of `TOP_SHARES`. Equal
        copies are computed once by `values_without`.
    methods: number of rankings that are of methods.
    rankings: (ranking, unit), numbers of units in the order in which they are removed.
    """

    removed: np.ndarray
    methods: int
    rankings: np.ndarray


@compared_by_value
@dataclass(frozen=True)
class Faithfulness:
    """One faithfulness measure of every method, with that of random rankings as a baseline.

    measure: "comprehensiveness", the mean fall of the probability without the top tokens (higher is better),
        "sufficiency", the mean fall with only the top tokens (lower is better), or
        "aopc", the same as comprehensiveness over the whole removal curve.
    scores: (method,). random: (random ranking,).
    band: 2.5% and 97.5% quantiles of the random rankings.
    """

    measure: str
    scores: np.ndarray
    random: np.ndarray
    band: tuple[float, float]

    @property
    def more_is_better(self) -> bool:
        """Whether a higher score means a more faithful method."""
        return self.measure != "sufficiency"

    @property
    def verdicts(self) -> tuple[str, ...]:
        """For each method, "better" or "worse" than the band of random rankings, or "chance" if inside it."""
        low, high = self.band if self.more_is_better else (-self.band[1], -self.band[0])
        signed = self.scores if self.more_is_better else -self.scores
        return tuple("better" if score > high else "worse" if score < low else "chance" for score in signed.tolist())


def removable_units(encoding: Encoding, target: Target, *, words: bool = False) -> tuple[tuple[int, ...], ...]:
    """Return the positions of the units that can be removed, without [CLS], [SEP] and the masks of the target.

    words: return whole words instead of word pieces.
    """
    pieces = target.removable(encoding)
    if not words:
        return tuple((piece,) for piece in pieces)
    return tuple(unit for unit in word_units(encoding) if set(unit) <= set(pieces))


def plan_removals(
    scores: np.ndarray,
    units: Sequence[Sequence[int]],
    length: int,
    *,
    random_rankings: int = RANDOM_RANKINGS,
    seed: int = 0,
) -> RemovalPlan:
    """Rank the units by each method and at random, and plan which tokens to remove.

    scores: (method, token), signed. Tokens that oppose the target are removed last. Equal scores are ranked at random.
    units: positions of the tokens of each unit, as returned by `removable_units`.
    length: number of tokens of the text.
    random_rankings: number of random rankings. They come in pairs, each with its reverse.
    seed: random seed.
    Raises Refused if there are no units, the scores do not fit the text or contain NaN, or a number is negative.
    """
    if not units:
        raise Refused("the text has no removable word besides the one that is explained: enter a longer text")
    try:
        numbers = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise Refused(f"the scores are {short_repr(scores)}: they must be numbers (method, token)") from error
    if numbers.ndim != 2 or numbers.shape[1] <= max(map(max, units)):
        raise Refused(f"the shape of the scores is {numbers.shape}: it must be (method, {length}) for this text")
    if random_rankings < 0 or seed < 0:
        raise Refused(
            f"the number of random rankings is {random_rankings} and the seed is {seed}: neither may be negative"
        )
    unit_scores = scores_of_units(numbers, units)
    if np.isnan(unit_scores).any():
        method = int(np.isnan(unit_scores).any(-1).argmax())
        raise Refused(f"the scores of method {method} contain NaN: every token needs a number")
    generator = np.random.default_rng(seed)
    count = len(units)
    rankings = [np.lexsort((generator.permutation(count), -row)) for row in unit_scores]
    # Each random ranking is followed by its reverse. What one removes the other keeps, so half of the copies are equal
    # to others and run only once.
    permutations = [generator.permutation(count) for _ in range((random_rankings + 1) // 2)]
    rankings += [ranking for order in permutations for ranking in (order, order[::-1])][:random_rankings]

    tokens = np.zeros((count, length), bool)  # (unit, token)
    for row, unit in zip(tokens, units, strict=True):
        row[list(unit)] = True
    removed_units: list[np.ndarray] = [np.array([], int)]  # numbers of units for each copy
    for ranking in rankings:
        removed_units += [ranking[: _count(share, count)] for share in REMOVED_SHARES]
        removed_units += [ranking[_count(share, count) :] for share in TOP_SHARES]
    removed = np.array([tokens[unit_numbers].any(0) for unit_numbers in removed_units])
    return RemovalPlan(removed, len(unit_scores), np.array(rankings))


def _count(share: float, units: int) -> int:
    """Return the number of units for a share, rounded and at least one."""
    return max(1, int(share * units + 0.5))


def evaluate_removals(plan: RemovalPlan, values: np.ndarray) -> dict[str, Faithfulness]:
    """Compute each faithfulness measure from the probability of the target for every copy of a plan.

    values: (copy,), probabilities.
    Returns the measures by their names.
    Raises ValueError if the number of values is wrong, or the plan has no random rankings.
    """
    if values.shape != (len(plan.removed),):
        raise ValueError(f"the shape of the values is {values.shape}: the plan has {len(plan.removed)} copies")
    if len(plan.rankings) == plan.methods:
        raise ValueError("the plan has no random rankings: a measure needs them as a baseline")
    falls = (values[0] - values[1:]).reshape(len(plan.rankings), -1)
    removal_falls, top_falls = falls[:, : len(REMOVED_SHARES)], falls[:, len(REMOVED_SHARES) :]
    measured = (removal_falls[:, : len(TOP_SHARES)].mean(-1), top_falls.mean(-1), removal_falls.mean(-1))
    measures = {}
    for name, ranking_scores in zip(MEASURES, measured, strict=True):
        random = ranking_scores[plan.methods :]
        low, high = np.quantile(random, [0.025, 0.975]).tolist()
        measures[name] = Faithfulness(name, ranking_scores[: plan.methods], random, (low, high))
    return measures

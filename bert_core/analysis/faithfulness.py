"""How far to trust a method on one text: what happens to the prediction when the tokens it names are taken away.

The model is asked in between, so there are two steps here:

    plan = plan_removals(scores, removable_units(encoding, target), len(encoding))
    values = values_without(loaded, encoding, target, plan.removed, probability=True)  # of bert_core.run.perturbation
    found = judge(plan, values)

Source: DeYoung 2020, section 4 (ERASER, arXiv:1911.03429); the curve: Samek 2017 (arXiv:1509.06321).
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

REMOVED_SHARES = tuple(tenth / 10 for tenth in range(1, 10))  # of the tokens that may go: the curve of removals
TOP_SHARES = REMOVED_SHARES[:5]  # what may be called the top of a ranking
RANDOM_RANKINGS = 100
MEASURES = ("comprehensiveness", "sufficiency", "aopc")


@compared_by_value
@dataclass(frozen=True)
class RemovalPlan:
    """What to take away, ranking by ranking: the methods' own first, then random ones.

    removed: boolean (copy, token); the first copy is the whole text, then follow for each ranking the text without its
        top, at every removed share, and its top alone, at every top share. Many are alike: `values_without` knows.
    methods: how many of the rankings are of methods. rankings: (ranking, unit), numbers of units, the first goes first.
    """

    removed: np.ndarray
    methods: int
    rankings: np.ndarray


@compared_by_value
@dataclass(frozen=True)
class Faithfulness:
    """One measure of every method, beside that of random rankings.

    measure: "comprehensiveness", the mean fall of the probability without the top tokens, more is better;
        "sufficiency", the mean fall with nothing but the top tokens, less is better; or
        "aopc", as comprehensiveness, over the whole curve of removals.
    scores: (method,). random: (random ranking,). band: 95% of the random ones lie between.
    """

    measure: str
    scores: np.ndarray
    random: np.ndarray
    band: tuple[float, float]

    @property
    def more_is_better(self) -> bool:
        """Whether a larger number speaks for a method."""
        return self.measure != "sufficiency"

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Of each method, whether it is "better" or "worse" than the random rankings' band, or inside it: "chance"."""
        low, high = self.band if self.more_is_better else (-self.band[1], -self.band[0])
        signed = self.scores if self.more_is_better else -self.scores
        return tuple("better" if score > high else "worse" if score < low else "chance" for score in signed.tolist())


def removable_units(encoding: Encoding, target: Target, *, words: bool = False) -> tuple[tuple[int, ...], ...]:
    """What may be taken away: pieces, or whole words, without [CLS], [SEP] and the target's own."""
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
    """Rank the units by each method, and at random, and say which tokens are then taken away.

    scores: (method, token), signed ones as they are: what speaks against the target is taken last. Equal scores are
        ranked at random. units: positions that go together, of `removable_units`. length: tokens of the text.
    random_rankings: come in pairs, each with its reverse.
    Raises Refused if there are no units, or a score that is no number.
    """
    if not units:
        raise Refused("the text has no word to hide besides the one that is explained: type a longer text")
    try:
        numbers = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise Refused(f"the scores are {short_repr(scores)}: they must be numbers (method, token)") from error
    if numbers.ndim != 2 or numbers.shape[1] <= max(map(max, units)):
        raise Refused(f"the scores are {numbers.shape}: they must be (method, {length}) for this text")
    if random_rankings < 0 or seed < 0:
        raise Refused(f"{random_rankings} random rankings from the seed {seed}: neither may be below 0")
    of_units = scores_of_units(numbers, units)
    if np.isnan(of_units).any():
        raise Refused(f"method {int(np.isnan(of_units).any(-1).argmax())} gives no number for a token")
    draw = np.random.default_rng(seed)
    count = len(units)
    rankings = [np.lexsort((draw.permutation(count), -one)) for one in of_units]
    # Every second one is the one before it turned around: what the one takes away the other leaves, and what is
    # alike is asked of the model once.
    drawn = [draw.permutation(count) for _ in range((random_rankings + 1) // 2)]
    rankings += [ranking for one in drawn for ranking in (one, one[::-1])][:random_rankings]

    tokens = np.zeros((count, length), bool)  # of each unit
    for row, unit in zip(tokens, units, strict=True):
        row[list(unit)] = True
    gone: list[np.ndarray] = [np.array([], int)]  # units, copy by copy
    for ranking in rankings:
        gone += [ranking[: _count(share, count)] for share in REMOVED_SHARES]
        gone += [ranking[_count(share, count) :] for share in TOP_SHARES]
    return RemovalPlan(np.array([tokens[some].any(0) for some in gone]), len(of_units), np.array(rankings))


def _count(share: float, units: int) -> int:
    """How many units a share is: rounded, at least one."""
    return max(1, int(share * units + 0.5))


def evaluate_removals(plan: RemovalPlan, values: np.ndarray) -> dict[str, Faithfulness]:
    """Each measure by its name, from the target's probability for every copy of the plan, (copy,).

    Raises Refused for another number of values, or a plan without random rankings to stand beside.
    """
    if values.shape != (len(plan.removed),):
        raise ValueError(f"values are {values.shape}: the plan has {len(plan.removed)} copies")
    if len(plan.rankings) == plan.methods:
        raise ValueError("the plan has no random rankings: without them a measure says nothing")
    falls = (values[0] - values[1:]).reshape(len(plan.rankings), -1)
    without, alone = falls[:, : len(REMOVED_SHARES)], falls[:, len(REMOVED_SHARES) :]
    measured = (without[:, : len(TOP_SHARES)].mean(-1), alone.mean(-1), without.mean(-1))
    measures = {}
    for name, of_rankings in zip(MEASURES, measured, strict=True):
        random = of_rankings[plan.methods :]
        low, high = np.quantile(random, [0.025, 0.975]).tolist()
        measures[name] = Faithfulness(name, of_rankings[: plan.methods], random, (low, high))
    return measures

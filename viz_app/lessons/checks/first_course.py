"""The checks of the first course, and the records that they are asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from bert_core.analysis.pruning import removable_head_count
from bert_core.analysis.roles import THRESHOLDS, heads_by_role, roles_of_heads
from bert_core.records import CurvePoint
from bert_core.refused import Refused
from viz_app.lessons import Option
from viz_app.lessons.checks.verdicts import Bar, Check, Figures, Head, Phrase, Verdict, bar_mark, best_head, head_name

FIXED = ("previous", "next", "self", "cls", "sep")  # roles of heads that look at one fixed place
PERCENT_TOLERANCE = 15  # how far a guessed share may be from the true one, in points
HEADS_TOLERANCE = 9  # how far a guessed number of heads may be
MIN_HEADS_OFF = 12  # heads that are to be switched off
TOLERANCE = 0.01  # by what share the loss may rise
# What a head may look at, in the order in which a choice numbers it.
JOBS = {
    "previous": Phrase("the token before"), "next": Phrase("the next token"), "self": Phrase("the token itself"),
    "ends": Phrase("[CLS] or [SEP]"), "governor": Phrase("the word it depends on"),
    "dependent": Phrase("a word that depends on it"),
}  # fmt: skip
SAME_HEAD = Phrase("what you seek; but it is the head that you saw")


@dataclass(frozen=True)
class WordDrops:
    """What the first guess for one gap loses when one more word is hidden.

    words: the text's. gap: the number of the word that is hidden. guess, probability: what stands first in the gap.
    drops: (word,), by how much its probability falls when this word is hidden too; NaN for the gap itself.
    firsts: what then stands first.
    """

    words: tuple[str, ...]
    gap: int
    guess: str
    probability: float
    drops: np.ndarray = field(repr=False)
    firsts: tuple[str, ...]


@dataclass(frozen=True)
class Guesses:
    """The first guess for a gap as the lesson began, and now. hidden: the words that were hidden since."""

    before: str
    after: str
    hidden: tuple[str, ...]


@dataclass(frozen=True)
class RoleScores:
    """Where every head looks: scores as `analysis.roles.role_scores` gives them. asked: the head of the lesson."""

    scores: Mapping[str, np.ndarray] = field(repr=False)
    lesson_head: Head


@dataclass(frozen=True)
class HeadContribution:
    """Of one head: the share of its attention that goes to [CLS], and the share of what it brings from there.

    What it brings is measured by length: attention times the length of the value vector behind the head's output.
    """

    head: Head
    attention: float
    contribution: float


@dataclass(frozen=True)
class Losses:
    """The loss with all heads and with those that are on now, nats. off: how many are off."""

    before: float
    after: float
    heads_off: int


@dataclass(frozen=True)
class HeadJobs:
    """What the heads look at from the tokens of a corpus where they are most active, as their profiles count it.

    shares, chances: by the names in `JOBS`, (layer, head), of how many tokens, and of how many by chance; NaN for a
    head without a profile. rests: the share of all tokens from which a head looks at an added one. clear: by how much a
    share must be above chance to stand out. asked: the head of the lesson.
    """

    shares: Mapping[str, np.ndarray] = field(repr=False)
    chances: Mapping[str, np.ndarray] = field(repr=False)
    special_shares: np.ndarray = field(repr=False)
    min_excess: float
    lesson_head: Head

    def job_of(self, head: Head) -> str:
        """The job whose share is farthest above chance. Raises Refused for a head without a profile."""
        above = {name: float(self.shares[name][head] - self.chances[name][head]) for name in JOBS}
        if np.isnan(list(above.values())).any():
            raise Refused(f"there is no profile of {head_name(head)}: choose another head")
        return max(above, key=above.__getitem__)

    def stands_out(self, head: Head, job: str) -> bool:
        """Whether a head does this clearly more often than chance would."""
        return bool(self.shares[job][head] - self.chances[job][head] > self.min_excess)


@dataclass(frozen=True)
class FirstWordAttention:
    """Where one head looks from the first word of a text.

    words: the text's. shares: (word,) of its attention; NaN for the first word itself. rest: what added tokens get.
    """

    words: tuple[str, ...]
    head: Head
    shares: np.ndarray = field(repr=False)
    special_share: float


# ---------------------------------------------------------------------------- checks


def largest_drop(found: WordDrops, answer: int) -> Verdict:
    """Whether the answer, the number of a word, is the one that the first guess needs most."""
    if answer == found.gap or answer not in range(len(found.words)):
        raise Refused(f"word {answer} cannot be the answer: choose another word than the hidden one")
    best = int(np.nanargmax(found.drops))
    order = [n for n in np.argsort(-found.drops).tolist() if n != found.gap]
    shown = order[:5] if answer in order[:5] else [*order[:4], answer]

    return Verdict(
        answer == best,
        (found.words[best],),
        {
            "word": found.words[best], "yours": found.words[answer], "guess": found.guess,
            "probability": found.probability, "drop": float(found.drops[best]), "own": float(found.drops[answer]),
            "left": found.probability - float(found.drops[best]),
            "own_left": found.probability - float(found.drops[answer]),
            "then": found.firsts[best],
        },
        tuple(
            Bar(found.words[word], float(found.drops[word]), bar_mark(word, true=best, yours=answer)) for word in shown
        ),
        claim_holds=best > found.gap,
    )  # fmt: skip


def guess_changes(found: Guesses, answer: None = None) -> Verdict:
    """Whether hiding more words put another word first."""
    figures = {"before": found.before, "now": found.after, "hidden": ", ".join(found.hidden)}
    return Verdict(bool(found.hidden) and found.after != found.before, (found.after,), figures)


def fixed_places(found: RoleScores, answer: Option) -> Verdict:
    """Whether the answer's range holds the number of heads that look at one fixed place."""
    roles = heads_by_role(roles_of_heads(found.scores))
    counts = {name: len(heads) for name, heads in roles.items()}
    fixed, all_heads = sum(counts[name] for name in FIXED), sum(counts.values())
    nearest = min(max(float(fixed), answer.minimum), answer.maximum)
    bars = [Bar("yours", nearest, "yours"), Bar("fixed", fixed, "true"), *(Bar(name, counts[name]) for name in FIXED)]
    return Verdict(
        answer.minimum <= fixed <= answer.maximum,
        (float(fixed),),
        {
            "yours": answer.label, "fixed": fixed, "heads": all_heads, "rest": all_heads - fixed,
            **{name: counts[name] for name in FIXED},
        },
        tuple(bars),
        claim_holds=counts["next"] > 0,
    )  # fmt: skip


def next_token_head(found: RoleScores, answer: Head) -> Verdict:
    """Whether the chosen head gives half of its attention, or more, to the next token."""
    scores = found.scores["next"]
    best = best_head(scores)
    figures: Figures = {
        "head": head_name(answer), "share": float(scores[answer]), "best": head_name(best), "most": float(scores[best]),
    }  # fmt: skip
    return Verdict(
        float(scores[answer]) >= THRESHOLDS["next"],
        (best,),
        figures,
        claim_holds=float(scores[best]) >= THRESHOLDS["next"],
    )


def another_sink(found: RoleScores, answer: Head) -> Verdict:
    """Whether the chosen head is another one that gives most of its attention to [CLS]."""
    scores = found.scores["cls"].copy()
    share = float(scores[answer])
    scores[found.lesson_head] = -1.0
    best = best_head(scores)
    figures: Figures = {
        "head": head_name(answer), "share": share, "best": head_name(best), "most": float(scores[best]),
        "asked": head_name(found.lesson_head),
    }  # fmt: skip
    right = answer != found.lesson_head and share >= THRESHOLDS["cls"]
    return Verdict(right, (best,), figures, claim_holds=float(scores[best]) >= THRESHOLDS["cls"])


def brought_share(found: HeadContribution, answer: float) -> Verdict:
    """Whether a guessed share, in percent, is near that of what the head brings from [CLS]."""
    brought, attention = 100 * found.contribution, 100 * found.attention
    return Verdict(
        abs(answer - brought) <= PERCENT_TOLERANCE,
        (brought,),
        {
            "head": head_name(found.head), "yours": answer, "brought": brought, "attention": attention,
            "away": abs(answer - brought), "near": PERCENT_TOLERANCE,
        },
        (Bar("attention", attention), Bar("yours", answer, "yours"), Bar("brought", brought, "true")),
        claim_holds=attention - brought >= PERCENT_TOLERANCE,
    )  # fmt: skip


def heads_that_can_go(found: tuple[CurvePoint, ...], answer: float) -> Verdict:
    """Whether a guessed number of heads is near to how many can go by the gradient's order at a loss 1% higher."""
    gradient, single = (removable_head_count(found, order, TOLERANCE) for order in ("importance", "ablation"))
    heads = max(point.removed for point in found)
    return Verdict(
        abs(answer - gradient) <= HEADS_TOLERANCE,
        (float(gradient),),
        {
            "yours": answer, "gradient": gradient, "single": single, "heads": heads, "near": HEADS_TOLERANCE,
            "away": abs(answer - gradient), "left": heads - gradient,
        },
        (Bar("yours", answer, "yours"), Bar("gradient", gradient, "true"), Bar("single", single)),
        claim_holds=gradient >= heads / 6,
    )  # fmt: skip


def few_missed(found: Losses, answer: None = None) -> Verdict:
    """Whether so many heads are off as are asked for, and the loss has risen by 1% at most."""
    rise = found.after / found.before - 1
    figures: Figures = {
        "off": found.heads_off, "least": MIN_HEADS_OFF, "rise": rise, "before": found.before, "now": found.after,
    }  # fmt: skip
    return Verdict(found.heads_off >= MIN_HEADS_OFF and rise <= TOLERANCE, (found.after,), figures)


def job_of_head(found: HeadJobs, answer: Option) -> Verdict:
    """Whether the answer, the number of a job in `JOBS`, is what the head does in a corpus, farthest above chance."""
    names = list(JOBS)
    chosen, best = names[min(int(answer.minimum), len(names) - 1)], found.job_of(found.lesson_head)
    shares, chances = (
        {name: float(of[name][found.lesson_head]) for name in names} for of in (found.shares, found.chances)
    )  # fmt: skip
    bars = [Bar(name, shares[name], bar_mark(name, true=best, yours=chosen)) for name in names]
    return Verdict(
        chosen == best,
        (JOBS[best],),
        {
            "head": head_name(found.lesson_head), "job": JOBS[best], "yours": answer.label, "share": shares[best],
            "chance": chances[best], "own": shares[chosen], "own_chance": chances[chosen],
            "rests": float(found.special_shares[found.lesson_head]),
        },
        (*bars, Bar("chance", chances[best])),
        claim_holds=found.stands_out(found.lesson_head, best),
    )  # fmt: skip


def same_job(found: HeadJobs, answer: Head) -> Verdict:
    """Whether the chosen head is another one that does in a corpus what the lesson's head does there."""
    wanted, job = found.job_of(found.lesson_head), found.job_of(answer)
    figures: Figures = {
        "head": head_name(answer), "job": JOBS[job] if answer != found.lesson_head else SAME_HEAD,
        "share": float(found.shares[job][answer]), "chance": float(found.chances[job][answer]),
    }  # fmt: skip
    return Verdict(
        answer != found.lesson_head and job == wanted and found.stands_out(answer, job), (JOBS[job],), figures
    )


def first_word_looks_at(found: FirstWordAttention, answer: int) -> Verdict:
    """Whether the answer, the number of a word, is the one that the head looks at most from the first word."""
    if answer not in range(1, len(found.words)):
        raise Refused(f"word {answer} cannot be the answer: choose another word than the first one")
    best = int(np.nanargmax(found.shares))
    return Verdict(
        answer == best,
        (found.words[best],),
        {
            "head": head_name(found.head), "first": found.words[0], "word": found.words[best],
            "yours": found.words[answer], "share": float(found.shares[best]), "own": float(found.shares[answer]),
            "rest": found.special_share,
        },
    )  # fmt: skip


CHECKS: Mapping[str, Check] = MappingProxyType({
    "largest_drop": Check(
        largest_drop, "drops", ("word",), ("word", "yours", "guess", "then"),
        ("probability", "drop", "own", "left", "own_left"),
    ),
    "guess_changes": Check(guess_changes, "guesses", ("page",), ("before", "now", "hidden"), ()),
    "fixed_places": Check(
        fixed_places, "looks", ("choice",), ("yours",), ("fixed", "heads", "rest", *FIXED), ("yours", "fixed", *FIXED)
    ),
    "next_token_head": Check(
        next_token_head, "looks", ("page",), ("head", "best"), ("share", "most"), page_choice="head"
    ),
    "another_sink": Check(
        another_sink, "looks", ("page",), ("head", "best", "asked"), ("share", "most"), page_choice="head"
    ),
    "brought_share": Check(
        brought_share, "brought", ("number",), ("head",), ("yours", "brought", "attention", "away", "near"),
        ("attention", "yours", "brought"),
    ),
    "heads_that_can_go": Check(
        heads_that_can_go, "curves", ("number",), (), ("yours", "gradient", "single", "heads", "near", "away", "left"),
        ("yours", "gradient", "single"),
    ),
    "few_missed": Check(few_missed, "losses", ("page",), (), ("off", "least", "rise", "before", "now")),
    "job_of_head": Check(
        job_of_head, "jobs", ("choice",), ("head", "job", "yours"), ("share", "chance", "own", "own_chance", "rests"),
        (*JOBS, "chance"),
    ),
    "same_job": Check(same_job, "jobs", ("page",), ("head", "job"), ("share", "chance"), page_choice="head"),
    "first_word_looks_at": Check(
        first_word_looks_at, "first_look", ("word",), ("head", "first", "word", "yours"), ("share", "own", "rest")
    ),
})  # fmt: skip

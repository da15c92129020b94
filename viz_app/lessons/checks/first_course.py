"""The checks of the first course, and their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bert_core.analysis.pruning import removable_head_count
from bert_core.analysis.roles import THRESHOLDS, heads_by_role, roles_of_heads
from bert_core.records import CurvePoint
from bert_core.refused import Refused
from viz_app.lessons import Option
from viz_app.lessons.checks.verdicts import (
    Bar,
    Figures,
    Head,
    Phrase,
    Verdict,
    bar_mark,
    best_head,
    check,
    estimate_verdict,
    head_name,
    marked_bars,
    require_other_word,
)

FIXED = ("previous", "next", "self", "cls", "sep")  # roles of heads that attend to one fixed position
PERCENT_TOLERANCE = 15  # of an estimated share, in percentage points
HEADS_TOLERANCE = 9  # of an estimated number of heads
MIN_HEADS_OFF = 12  # heads to be switched off
TOLERANCE = 0.01  # the largest relative increase of the loss
# What a head can attend to, in the order of the options of a choice.
JOBS = {
    "previous": Phrase("the token before"),
    "next": Phrase("the next token"),
    "self": Phrase("the token itself"),
    "ends": Phrase("[CLS] or [SEP]"),
    "governor": Phrase("the word it depends on"),
    "dependent": Phrase("a word that depends on it"),
}
SAME_HEAD = Phrase("what you seek; but it is the head that you saw")


@dataclass(frozen=True)
class WordDrops:
    """Decreases of the probability of the first guess for a gap, each with one further word hidden.

    gap: number of the hidden word. guess, probability: the first guess. drops: (word,), NaN for the gap. firsts: the
    first guess with the further word hidden.
    """

    words: tuple[str, ...]
    gap: int
    guess: str
    probability: float
    drops: np.ndarray = field(repr=False)
    firsts: tuple[str, ...]


@dataclass(frozen=True)
class Guesses:
    """The first guess for a gap before and after further words were hidden, and these words."""

    before: str
    after: str
    hidden: tuple[str, ...]


@dataclass(frozen=True)
class RoleScores:
    """Scores of all heads as returned by `analysis.roles.role_scores`, and the head of the lesson."""

    scores: Mapping[str, np.ndarray] = field(repr=False)
    lesson_head: Head


@dataclass(frozen=True)
class HeadContribution:
    """Shares of [CLS] in the attention of a head and in its output, from 0 to 1.

    The contribution to the output is the norm of attention times the value vector behind the output of the head.
    """

    head: Head
    attention: float
    contribution: float


@dataclass(frozen=True)
class Losses:
    """The loss in nats with all heads and without those that are off, and the number of these."""

    before: float
    after: float
    heads_off: int


@dataclass(frozen=True)
class HeadJobs:
    """What heads attend to in a corpus, from the tokens at which they are most active, as counted by their profiles.

    shares, chances: by the names in `JOBS`, (layer, head): the share of these tokens, and that expected by chance; NaN
    for a head without a profile. special_shares: the share of all tokens from which a head attends to a special token.
    min_excess: the difference above chance from which a share stands out.
    """

    shares: Mapping[str, np.ndarray] = field(repr=False)
    chances: Mapping[str, np.ndarray] = field(repr=False)
    special_shares: np.ndarray = field(repr=False)
    min_excess: float
    lesson_head: Head

    def job_of(self, head: Head) -> str:
        """Return the job with the largest share above chance. Raises Refused for a head without a profile."""
        excess = {name: float(self.shares[name][head] - self.chances[name][head]) for name in JOBS}
        if np.isnan(list(excess.values())).any():
            raise Refused(f"there is no profile of {head_name(head)}: choose another head")
        return max(excess, key=excess.__getitem__)

    def stands_out(self, head: Head, job: str) -> bool:
        """Return whether the share of a job is clearly above chance."""
        return bool(self.shares[job][head] - self.chances[job][head] > self.min_excess)


@dataclass(frozen=True)
class FirstWordAttention:
    """The attention of one head from the first word of a text.

    shares: (word,), NaN for the first word itself. special_share: the attention to special tokens.
    """

    words: tuple[str, ...]
    head: Head
    shares: np.ndarray = field(repr=False)
    special_share: float


# ---------------------------------------------------------------------------- checks


@check("drops", "word", "word yours guess then", "probability drop own left own_left")
def largest_drop(record: WordDrops, answer: int) -> Verdict:
    """Check whether the answer, the number of a word, is the word that the first guess depends on most."""
    words, drops = record.words, record.drops.tolist()
    require_other_word(answer, words, record.gap, "the hidden one")
    best = int(np.nanargmax(record.drops))
    order = [word for word in np.argsort(-record.drops).tolist() if word != record.gap]
    charted = order[:5] if answer in order[:5] else [*order[:4], answer]
    figures: Figures = {
        **{"word": words[best], "yours": words[answer], "guess": record.guess, "then": record.firsts[best]},
        **{"probability": record.probability, "drop": drops[best], "own": drops[answer]},
        **{"left": record.probability - drops[best], "own_left": record.probability - drops[answer]},
    }
    bars = tuple(Bar(words[word], drops[word], bar_mark(word, true=best, answer=answer)) for word in charted)
    return Verdict(answer == best, (words[best],), figures, bars, claim_holds=best > record.gap)


@check("guesses", "page", "before now hidden")
def guess_changes(record: Guesses, answer: None = None) -> Verdict:
    """Check whether hiding further words changes the first guess."""
    figures: Figures = {"before": record.before, "now": record.after, "hidden": ", ".join(record.hidden)}
    return Verdict(bool(record.hidden) and record.after != record.before, (record.after,), figures)


@check("looks", "choice", "yours", f"fixed heads rest {' '.join(FIXED)}", bars=f"yours fixed {' '.join(FIXED)}")
def fixed_places(record: RoleScores, answer: Option) -> Verdict:
    """Check whether the answer contains the number of heads that attend to one fixed position."""
    counts = {name: len(heads) for name, heads in heads_by_role(roles_of_heads(record.scores)).items()}
    fixed, total = sum(counts[name] for name in FIXED), sum(counts.values())
    figures: Figures = {"yours": answer.label, "fixed": fixed, "heads": total, "rest": total - fixed}
    bars = {"yours": answer.nearest_to(float(fixed)), "fixed": float(fixed), **{name: counts[name] for name in FIXED}}
    return Verdict(
        answer.contains(fixed),
        (float(fixed),),
        {**figures, **{name: counts[name] for name in FIXED}},
        marked_bars(bars, true="fixed"),
        claim_holds=counts["next"] > 0,
    )


def _role_verdict(role: str, scores: np.ndarray, answer: Head, share: float, **figures: str) -> Verdict:
    """Return the verdict on a head that should have at least the threshold of a role."""
    best = best_head(scores)
    largest = float(scores[best])
    heads = {"head": head_name(answer), "best": head_name(best)}
    all_figures: Figures = {**figures, **heads, "share": share, "most": largest}
    return Verdict(share >= THRESHOLDS[role], (best,), all_figures, claim_holds=largest >= THRESHOLDS[role])


@check("looks", "page", "head best", "share most", page_choice="head")
def next_token_head(record: RoleScores, answer: Head) -> Verdict:
    """Check whether the chosen head gives at least half of its attention to the next token."""
    scores = record.scores["next"]
    return _role_verdict("next", scores, answer, float(scores[answer]))


@check("looks", "page", "head best asked", "share most", page_choice="head")
def another_sink(record: RoleScores, answer: Head) -> Verdict:
    """Check whether the chosen head is another one that gives most of its attention to [CLS]."""
    scores = record.scores["cls"].copy()
    share = float(scores[answer])
    scores[record.lesson_head] = -1.0
    verdict = _role_verdict("cls", scores, answer, share, asked=head_name(record.lesson_head))
    return replace(verdict, right=verdict.right and answer != record.lesson_head)


@check("brought", "number", "head", "yours brought attention away near", bars="attention yours brought")
def brought_share(record: HeadContribution, answer: float) -> Verdict:
    """Check an estimate, in percent, of the share of [CLS] in the output of the head."""
    shares = {"attention": 100 * record.attention, "yours": answer, "brought": 100 * record.contribution}
    return estimate_verdict(
        answer,
        shares["brought"],
        PERCENT_TOLERANCE,
        {"head": head_name(record.head), **shares},
        marked_bars(shares, true="brought"),
        claim_holds=shares["attention"] - shares["brought"] >= PERCENT_TOLERANCE,
    )


@check("curves", "number", "", "yours gradient single heads near away left", bars="yours gradient single")
def heads_that_can_go(record: tuple[CurvePoint, ...], answer: float) -> Verdict:
    """Check an estimate of how many heads can be removed, in the order of the gradient, at a loss 1% higher."""
    gradient, single = (removable_head_count(record, order, TOLERANCE) for order in ("importance", "ablation"))
    heads = max(point.removed for point in record)
    bars = marked_bars({"yours": answer, "gradient": gradient, "single": single}, true="gradient")
    figures: Figures = {"gradient": gradient, "single": single, "heads": heads, "left": heads - gradient}
    return estimate_verdict(answer, gradient, HEADS_TOLERANCE, figures, bars, claim_holds=gradient >= heads / 6)


@check("losses", "page", "", "off least rise before now")
def few_missed(record: Losses, answer: None = None) -> Verdict:
    """Check whether enough heads are off at a loss that is at most 1% higher."""
    rise = record.after / record.before - 1
    figures: Figures = {"off": record.heads_off, "least": MIN_HEADS_OFF, "before": record.before, "now": record.after}
    right = record.heads_off >= MIN_HEADS_OFF and rise <= TOLERANCE
    return Verdict(right, (record.after,), {**figures, "rise": rise})


@check("jobs", "choice", "head job yours", "share chance own own_chance rests", bars=f"{' '.join(JOBS)} chance")
def job_of_head(record: HeadJobs, answer: Option) -> Verdict:
    """Check whether the answer, the number of a job in `JOBS`, is the job of the head that is most above chance."""
    head, names = record.lesson_head, list(JOBS)
    guess, best = names[min(int(answer.minimum), len(names) - 1)], record.job_of(head)
    shares, chances = (
        {name: float(by_job[name][head]) for name in names} for by_job in (record.shares, record.chances)
    )
    figures: Figures = {
        **{"head": head_name(head), "job": JOBS[best], "yours": answer.label},
        **{"share": shares[best], "chance": chances[best], "own": shares[guess], "own_chance": chances[guess]},
        "rests": float(record.special_shares[head]),
    }
    bars = (*marked_bars(shares, true=best, answer=guess), Bar("chance", chances[best]))
    return Verdict(guess == best, (JOBS[best],), figures, bars, claim_holds=record.stands_out(head, best))


@check("jobs", "page", "head job", "share chance", page_choice="head")
def same_job(record: HeadJobs, answer: Head) -> Verdict:
    """Check whether the chosen head is another one with the job of the head of the lesson."""
    expected, job = record.job_of(record.lesson_head), record.job_of(answer)
    is_other = answer != record.lesson_head
    figures: Figures = {
        **{"head": head_name(answer), "job": JOBS[job] if is_other else SAME_HEAD},
        **{"share": float(record.shares[job][answer]), "chance": float(record.chances[job][answer])},
    }
    return Verdict(is_other and job == expected and record.stands_out(answer, job), (JOBS[job],), figures)


@check("first_look", "word", "head first word yours", "share own rest")
def first_word_looks_at(record: FirstWordAttention, answer: int) -> Verdict:
    """Check whether the answer, the number of a word, has most of the attention of the head from the first word."""
    words, shares = record.words, record.shares.tolist()
    require_other_word(answer, words, 0, "the first one")
    best = int(np.nanargmax(record.shares))
    figures: Figures = {
        **{"head": head_name(record.head), "first": words[0], "word": words[best], "yours": words[answer]},
        **{"share": shares[best], "own": shares[answer], "rest": record.special_share},
    }
    return Verdict(answer == best, (words[best],), figures)

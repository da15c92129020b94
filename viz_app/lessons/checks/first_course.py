"""The checks of the first course: for each, the record that it needs, how it is computed, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_core.analysis.attribution import normalise_rows
from bert_core.analysis.pruning import removable_head_count
from bert_core.analysis.roles import THRESHOLDS, heads_by_role, role_scores, roles_of_heads
from bert_core.analysis.units import map_of_units
from bert_core.fingerprint import fingerprint
from bert_core.loading import ASSETS
from bert_core.progress import Progress
from bert_core.records import CurvePoint
from bert_core.refused import Refused
from bert_core.run.capture import capture, captures
from bert_core.run.costs import curve_points, score
from bert_core.run.decomposition import attention_norms
from bert_core.run.inputs import head_mask_without
from bert_core.run.losses import masked_examples
from bert_core.run.plans import propose_plan
from bert_core.studies.profiles import INSTALLED_FILE, MIN_EXCESS, read_profiles
from viz_app.lessons import Option
from viz_app.lessons.checks.context import (
    CheckContext,
    Head,
    Unsuitable,
    first_guess,
    hidden_word,
    phrase,
    record,
    require_three_words,
    require_word_head,
)
from viz_app.lessons.checks.verdicts import (
    Bar,
    Figures,
    Verdict,
    bar_mark,
    best_head,
    check,
    estimate_verdict,
    head_name,
    marked_bars,
    require_other_word,
)

# ---------------------------------------------------------------------------- both sides


class WordDrops(NamedTuple):
    """Decreases of the probability of the first guess for a gap, each with one further word hidden.

    gap: number of the hidden word. guess, probability: the first guess. drops: (word,), NaN for the gap. firsts: the
    first guess with the further word hidden.
    """

    words: tuple[str, ...]
    gap: int
    guess: str
    probability: float
    drops: np.ndarray
    firsts: tuple[str, ...]


@record("without each word", lambda context: context.original.word_count, hidden_word)
def _word_drops(context: CheckContext, _: Progress) -> WordDrops:
    loaded, original, gap = context.loaded, context.original, hidden_word(context)
    words = [word for word in range(original.word_count) if word != gap]
    texts = [loaded.tokenizer.mask_words(original, (gap, word)) for word in words]
    base, *masked = captures(loaded, [context.encoding, *texts], top_k=1)
    position = base.predictions[0].position
    guess, probability = first_guess(base, position)
    drops = np.full(original.word_count, np.nan)
    firsts = [""] * original.word_count
    for word, run in zip(words, masked, strict=True):
        prediction = run.prediction_at(position)
        assert prediction is not None  # the gap is masked in every copy
        drops[word] = probability - float(prediction.probabilities[guess])
        firsts[word] = loaded.tokenizer.token_of(prediction.top[0][0])
    return WordDrops(context.words, gap, loaded.tokenizer.token_of(guess), probability, drops, tuple(firsts))


@check(_word_drops, "word", "word yours guess then", "probability drop own left own_left")
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


def _lesson_gap(context: CheckContext) -> int:
    """Return the position of the gap of the lesson. Raises Refused without it, and for another sentence."""
    if require_word_head(context).is_own:
        raise Unsuitable("lesson_sentence")
    if not context.lesson_encoding.mask_positions:
        raise Unsuitable("no_gap")
    gap = context.lesson_encoding.mask_positions[0]
    if gap not in context.encoding.mask_positions:
        raise Unsuitable("gap_filled")
    return gap


@record("reads the sentence", 2, lambda context: (_lesson_gap(context), context.lesson_encoding))
def _guesses(context: CheckContext, _: Progress) -> tuple[str, str, tuple[str, ...]]:
    """Return the first guess for the gap before and after further words were hidden, and these words."""
    encoding, lesson, gap = context.encoding, context.lesson_encoding, _lesson_gap(context)
    runs = captures(context.loaded, [lesson, encoding], top_k=1)
    before, after = (context.loaded.tokenizer.token_of(first_guess(run, gap)[0]) for run in runs)
    added = [position for position in encoding.mask_positions if position not in lesson.mask_positions]
    hidden = dict.fromkeys(context.original.words[position] for position in added)
    return before, after, tuple(context.words[word] for word in hidden if word is not None)


@check(_guesses, "page", "before now hidden")
def guess_changes(record: tuple[str, str, tuple[str, ...]], answer: None = None) -> Verdict:
    """Check whether hiding further words changes the first guess. record: of `_guesses`."""
    before, now, hidden = record
    figures = {"before": before, "now": now, "hidden": ", ".join(hidden)}
    return Verdict(bool(hidden) and now != before, (now,), figures)


# ---------------------------------------------------------------------------- one head, one job

FIXED = ("previous", "next", "self", "cls", "sep")  # roles of heads that attend to one fixed position


class RoleScores(NamedTuple):
    """Scores of all heads as returned by `analysis.roles.role_scores`, and the head of the lesson."""

    scores: Mapping[str, np.ndarray]
    lesson_head: Head


@record("reads the sentence", key=lambda context: context.lesson_head)
def _role_scores(context: CheckContext, _: Progress) -> RoleScores:
    run = capture(context.loaded, context.encoding, positions=())
    return RoleScores(role_scores(run.attention, context.encoding, windows=run.windows), context.lesson_head)


@check(_role_scores, "choice", "yours", f"fixed heads rest {' '.join(FIXED)}", bars=f"yours fixed {' '.join(FIXED)}")
def fixed_places(record: RoleScores, answer: Option) -> Verdict:
    """Check whether the answer contains the number of heads that attend to one fixed position."""
    by_role = {name: len(heads) for name, heads in heads_by_role(roles_of_heads(record.scores)).items()}
    counts = {name: by_role[name] for name in FIXED}
    fixed, total = sum(counts.values()), sum(by_role.values())
    return Verdict(
        answer.contains(fixed),
        (float(fixed),),
        {"yours": answer.label, "fixed": fixed, "heads": total, "rest": total - fixed, **counts},
        marked_bars({"yours": answer.nearest_to(float(fixed)), "fixed": float(fixed), **counts}, true="fixed"),
        claim_holds=counts["next"] > 0,
    )


def _role_verdict(role: str, scores: np.ndarray, answer: Head, share: float, **figures: str) -> Verdict:
    """Return the verdict on a head that should have at least the threshold of a role."""
    best = best_head(scores)
    largest = float(scores[best])
    heads = {"head": head_name(answer), "best": head_name(best)}
    all_figures: Figures = {**figures, **heads, "share": share, "most": largest}
    return Verdict(share >= THRESHOLDS[role], (best,), all_figures, claim_holds=largest >= THRESHOLDS[role])


@check(_role_scores, "page", "head best", "share most", page_choice="head")
def next_token_head(record: RoleScores, answer: Head) -> Verdict:
    """Check whether the chosen head gives at least half of its attention to the next token."""
    scores = record.scores["next"]
    return _role_verdict("next", scores, answer, float(scores[answer]))


# ---------------------------------------------------------------------------- the bin

PERCENT_TOLERANCE = 15  # of an estimated share, in percentage points


@check(_role_scores, "page", "head best asked", "share most", page_choice="head")
def another_sink(record: RoleScores, answer: Head) -> Verdict:
    """Check whether the chosen head is another one that gives most of its attention to [CLS]."""
    scores = record.scores["cls"].copy()
    share = float(scores[answer])
    scores[record.lesson_head] = -1.0
    verdict = _role_verdict("cls", scores, answer, share, asked=head_name(record.lesson_head))
    return replace(verdict, right=verdict.right and answer != record.lesson_head)


class HeadContribution(NamedTuple):
    """Shares of [CLS] in the attention of a head and in its output, from 0 to 1.

    The contribution to the output is the norm of attention times the value vector behind the output of the head.
    """

    head: Head
    attention: float
    contribution: float


@record("measures the output of a head", 3, lambda context: context.head)
def _contribution(context: CheckContext, _: Progress) -> HeadContribution:
    encoding, head = context.encoding, context.head
    norms = attention_norms(context.loaded, encoding).heads
    assert norms is not None  # this method has them
    run = capture(context.loaded, encoding, positions=())
    maps = run.attention, normalise_rows(norms)
    shares = (role_scores(values, encoding, windows=run.windows)["cls"][head] for values in maps)
    return HeadContribution(head, *map(float, shares))


@check(_contribution, "number", "head", "yours brought attention away near", bars="attention yours brought")
def brought_share(record: HeadContribution, answer: float) -> Verdict:
    """Check an estimate, in percent, of the share of [CLS] in the output of the head."""
    shares = {"attention": 100 * record.attention, "yours": answer, "brought": 100 * record.contribution}
    claim_holds = shares["attention"] - shares["brought"] >= PERCENT_TOLERANCE
    figures: Figures = {"head": head_name(record.head), **shares}
    return estimate_verdict(answer, "brought", PERCENT_TOLERANCE, figures, shares, claim_holds=claim_holds)


# ---------------------------------------------------------------------------- fewer heads

HEADS_TOLERANCE = 9  # of an estimated number of heads
MIN_HEADS_OFF = 12  # heads to be switched off
TOLERANCE = 0.01  # the largest relative increase of the loss
CURVE_STEPS = 12  # points of a curve after the first, as on the page Prune
ORDERS = ("importance", "ablation")


def _head_count(context: CheckContext) -> int:
    config = context.loaded.config
    return sum(len(config.heads_of(layer)) for layer in range(config.num_hidden_layers))


@record(
    "without more and more heads",
    lambda context: len(context.original) * (_head_count(context) + 2 * (CURVE_STEPS + 1)),
    lambda context: require_word_head(context).original,
)
def _curves(context: CheckContext, report: Progress) -> tuple[CurvePoint, ...]:
    loaded, heads = context.loaded, _head_count(context)
    batches = masked_examples(loaded, context.original)
    orders = {order: propose_plan(loaded, batches, order).order for order in ORDERS}
    removed = sorted({round(heads * number / CURVE_STEPS) for number in range(CURVE_STEPS + 1)})
    return tuple(curve_points(loaded, batches, orders, removed, report=report))


@check(_curves, "number", "", "yours gradient single heads near away left", bars="yours gradient single")
def heads_that_can_go(record: tuple[CurvePoint, ...], answer: float) -> Verdict:
    """Check an estimate of how many heads can be removed, in the order of the gradient, at a loss 1% higher."""
    gradient, single = (removable_head_count(record, order, TOLERANCE) for order in ORDERS)
    heads = max(point.removed for point in record)
    counts = {"yours": answer, "gradient": gradient, "single": single}
    figures: Figures = {**counts, "heads": heads, "left": heads - gradient}
    claim_holds = gradient >= heads / 6
    return estimate_verdict(answer, "gradient", HEADS_TOLERANCE, figures, counts, claim_holds=claim_holds)


@record(
    "is tested",
    lambda context: 2 * len(context.original),
    lambda context: (require_word_head(context).original, context.off),
)
def _losses(context: CheckContext, _: Progress) -> tuple[float, float, int]:
    """Return the loss in nats with all heads and without those that are off, and the number of these."""
    loaded, off = context.loaded, context.off
    batches = masked_examples(loaded, context.original)
    masks = (head_mask_without(loaded.config, heads) for heads in ((), off))
    before, after = (score(loaded, batches, head_mask=mask).loss for mask in masks)
    return before, after, len(off)


@check(_losses, "page", "", "off least rise before now")
def few_missed(record: tuple[float, float, int], answer: None = None) -> Verdict:
    """Check whether enough heads are off at a loss that is at most 1% higher. record: of `_losses`."""
    before, after, heads_off = record
    rise = after / before - 1
    figures: Figures = {"off": heads_off, "least": MIN_HEADS_OFF, "before": before, "now": after, "rise": rise}
    return Verdict(heads_off >= MIN_HEADS_OFF and rise <= TOLERANCE, (after,), figures)


# ---------------------------------------------------------------------------- ten looks

# What a head can attend to, in the order of the options of a choice.
JOBS = {
    "previous": phrase("previous"),
    "next": phrase("next"),
    "self": phrase("self"),
    "ends": phrase("ends"),
    "governor": phrase("governor"),
    "dependent": phrase("dependent"),
}
# For each job, the question of the profiles and the answers to it.
PROFILE_QUESTIONS = {
    "previous": ("offset", ("-1",)),
    "next": ("offset", ("+1",)),
    "self": ("kind", ("itself",)),
    "ends": ("kind", ("first", "end")),
    "governor": ("relation", ("its governor",)),
    "dependent": ("relation", ("its dependent",)),
}
SAME_HEAD = phrase("same_head")


class HeadJobs(NamedTuple):
    """What heads attend to in a corpus, from the tokens at which they are most active, as counted by their profiles.

    shares, chances: by the names in `JOBS`, (layer, head): the share of these tokens, and that expected by chance; NaN
    for a head without a profile. special_shares: the share of all tokens from which a head attends to a special token.
    min_excess: the difference above chance from which a share stands out.
    """

    shares: Mapping[str, np.ndarray]
    chances: Mapping[str, np.ndarray]
    special_shares: np.ndarray
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


def _profiles_file(context: CheckContext) -> Path:
    path = ASSETS / context.loaded.name / INSTALLED_FILE
    if not path.is_file():
        raise _no_profiles()
    return path


def _no_profiles() -> Unsuitable:
    return Unsuitable("no_profiles")


@record("opens its profiles", key=lambda context: (_profiles_file(context), context.lesson_head))
def _jobs(context: CheckContext, _: Progress) -> HeadJobs:
    loaded, profiles = context.loaded, read_profiles(_profiles_file(context))
    if profiles.weights != fingerprint(loaded):
        raise _no_profiles()
    size = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    shares, chances = ({name: np.full(size, np.nan) for name in PROFILE_QUESTIONS} for _ in range(2))
    special_shares = np.full(size, np.nan)
    for profile in profiles.heads:
        head = profile.layer, profile.head
        special_shares[head] = profile.sink_share
        for name, (question, answers) in PROFILE_QUESTIONS.items():
            bars = [bar for bar in profile.active.get(question, ()) if bar.name in answers]
            shares[name][head] = sum(bar.share for bar in bars)
            chances[name][head] = sum(bar.chance for bar in bars)
    return HeadJobs(shares, chances, special_shares, MIN_EXCESS, context.lesson_head)


@check(_jobs, "choice", "head job yours", "share chance own own_chance rests", bars=f"{' '.join(JOBS)} chance")
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


@check(_jobs, "page", "head job", "share chance", page_choice="head")
def same_job(record: HeadJobs, answer: Head) -> Verdict:
    """Check whether the chosen head is another one with the job of the head of the lesson."""
    expected, job = record.job_of(record.lesson_head), record.job_of(answer)
    is_other = answer != record.lesson_head
    figures: Figures = {
        **{"head": head_name(answer), "job": JOBS[job] if is_other else SAME_HEAD},
        **{"share": float(record.shares[job][answer]), "chance": float(record.chances[job][answer])},
    }
    return Verdict(is_other and job == expected and record.stands_out(answer, job), (JOBS[job],), figures)


class FirstWordAttention(NamedTuple):
    """The attention of one head from the first word of a text.

    shares: (word,), NaN for the first word itself. special_share: the attention to special tokens.
    """

    words: tuple[str, ...]
    head: Head
    shares: np.ndarray
    special_share: float


@record("reads the sentence", key=lambda context: require_three_words(context).head)
def _first_look(context: CheckContext, _: Progress) -> FirstWordAttention:
    encoding, words = context.encoding, context.words
    run = capture(context.loaded, encoding, positions=())
    row = map_of_units(run.attention[context.head], [encoding.pieces_of(word) for word in range(len(words))])[0]
    shares = np.where(np.arange(len(words)) == 0, np.nan, row)
    return FirstWordAttention(words, context.head, shares, 1 - float(row.sum()))


@check(_first_look, "word", "head first word yours", "share own rest")
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

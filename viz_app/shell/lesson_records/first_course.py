"""The records of the first course, each as a `Work` for the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_core.analysis.attribution import normalise_rows
from bert_core.analysis.roles import role_scores
from bert_core.analysis.units import map_of_units
from bert_core.records import CurvePoint
from bert_core.refused import Refused
from bert_core.run.capture import capture, captures
from bert_core.run.costs import curve_points, score
from bert_core.run.decomposition import attention_norms
from bert_core.run.inputs import head_mask_without
from bert_core.run.losses import masked_examples
from bert_core.run.plans import propose_plan
from bert_core.studies.profiles import MIN_EXCESS
from viz_app.lessons.checks.first_course import (
    FirstWordAttention,
    Guesses,
    HeadContribution,
    HeadJobs,
    Losses,
    RoleScores,
    WordDrops,
)
from viz_app.shell.language import translate
from viz_app.shell.lesson_records.context import (
    CheckContext,
    first_guess,
    hidden_word,
    record_work,
    require_three_words,
    require_word_head,
)
from viz_app.shell.profiles import has_profiles, profiles_of
from viz_app.shell.work import Work

CURVE_STEPS = 12  # points of a curve after the first, as on the page Prune
ORDERS = ("importance", "ablation")
# For each job of a lesson, the question of the profiles and the answers to it.
PROFILE_QUESTIONS = {
    "previous": ("offset", ("-1",)),
    "next": ("offset", ("+1",)),
    "self": ("kind", ("itself",)),
    "ends": ("kind", ("first", "end")),
    "governor": ("relation", ("its governor",)),
    "dependent": ("relation", ("its dependent",)),
}


def _drops(context: CheckContext) -> Work[WordDrops]:
    loaded, encoding, original = context.loaded, context.encoding, context.original
    gap = hidden_word(context)

    def compute(_: object) -> WordDrops:
        words = [word for word in range(original.word_count) if word != gap]
        texts = [loaded.tokenizer.mask_words(original, (gap, word)) for word in words]
        base, *masked = captures(loaded, [encoding, *texts], top_k=1)
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

    return record_work(context, "drops", "without each word", compute, original.word_count)


def _guesses(context: CheckContext) -> Work[Guesses]:
    require_word_head(context)
    if context.is_own:
        raise Refused(translate("this step is about the lesson's own sentence: set the page up again"))
    loaded, encoding, lesson = context.loaded, context.encoding, context.lesson_encoding
    if not lesson.mask_positions:
        raise Refused(translate("the lesson hides no word, so there is no gap to guess"))
    gap = lesson.mask_positions[0]
    if gap not in encoding.mask_positions:
        raise Refused(translate("the gap is filled again: hide its word, or set the page up again"))
    added = [position for position in encoding.mask_positions if position not in lesson.mask_positions]
    hidden = dict.fromkeys(context.original.words[position] for position in added)

    def compute(_: object) -> Guesses:
        runs = captures(loaded, [lesson, encoding], top_k=1)
        before, after = (loaded.tokenizer.token_of(first_guess(run, gap)[0]) for run in runs)
        return Guesses(before, after, tuple(context.words[word] for word in hidden if word is not None))

    return record_work(context, "guesses", "reads the sentence", compute, 2, lesson)


def _role_scores(context: CheckContext) -> Work[RoleScores]:
    def compute(_: object) -> RoleScores:
        run = capture(context.loaded, context.encoding, positions=())
        return RoleScores(role_scores(run.attention, context.encoding), context.lesson_head)

    return record_work(context, "looks", "reads the sentence", compute, 1, context.lesson_head)


def _contribution(context: CheckContext) -> Work[HeadContribution]:
    def compute(_: object) -> HeadContribution:
        encoding, head = context.encoding, context.head
        norms = attention_norms(context.loaded, encoding).heads
        assert norms is not None  # this method has them
        run = capture(context.loaded, encoding, positions=())
        shares = (role_scores(maps, encoding)["cls"][head] for maps in (run.attention, normalise_rows(norms)))
        return HeadContribution(head, *map(float, shares))

    return record_work(context, "brought", "weighs what a head brings", compute, 3, context.head)


def _curves(context: CheckContext) -> Work[tuple[CurvePoint, ...]]:
    require_word_head(context)
    loaded, original = context.loaded, context.original
    heads = sum(len(loaded.config.heads_of(layer)) for layer in range(loaded.config.num_hidden_layers))

    def compute(report: Any) -> tuple[CurvePoint, ...]:
        batches = masked_examples(loaded, original)
        orders = {order: propose_plan(loaded, batches, order).order for order in ORDERS}
        removed = sorted({round(heads * number / CURVE_STEPS) for number in range(CURVE_STEPS + 1)})
        return tuple(curve_points(loaded, batches, orders, removed, report=report))

    passes = len(original) * (heads + 2 * (CURVE_STEPS + 1))
    return record_work(context, "curves", "without more and more heads", compute, passes, original)


def _losses(context: CheckContext) -> Work[Losses]:
    require_word_head(context)
    loaded, original, off = context.loaded, context.original, context.off

    def compute(_: object) -> Losses:
        batches = masked_examples(loaded, original)
        masks = (head_mask_without(loaded.config, heads) for heads in ((), off))
        before, after = (score(loaded, batches, head_mask=mask).loss for mask in masks)
        return Losses(before, after, len(off))

    return record_work(context, "losses", "is tested", compute, 2 * len(original), original, off)


def _jobs(context: CheckContext) -> Work[HeadJobs]:
    loaded = context.loaded
    missing = translate("nobody has counted what the heads of this model do over a corpus: choose the bundled model")
    if not has_profiles(loaded):
        raise Refused(missing)

    def compute(_: object) -> HeadJobs:
        profiles = profiles_of(loaded)
        if profiles is None:
            raise Refused(missing)
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

    return record_work(context, "jobs", "opens its profiles", compute, 1, context.lesson_head)


def _first_look(context: CheckContext) -> Work[FirstWordAttention]:
    encoding, head, words = context.encoding, context.head, context.words
    require_three_words(context)

    def compute(_: object) -> FirstWordAttention:
        run = capture(context.loaded, encoding, positions=())
        row = map_of_units(run.attention[head], [encoding.pieces_of(word) for word in range(len(words))])[0]
        shares = np.where(np.arange(len(words)) == 0, np.nan, row)
        return FirstWordAttention(words, head, shares, 1 - float(row.sum()))

    return record_work(context, "first look", "reads the sentence", compute, 1, head)


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType(
    {
        **{"drops": _drops, "guesses": _guesses, "looks": _role_scores, "brought": _contribution},
        **{"curves": _curves, "losses": _losses, "jobs": _jobs, "first_look": _first_look},
    }
)

"""The records of the first course, from the model: each as a piece of slow work."""

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
from viz_app.shell.lesson_records.context import CheckContext, hidden_word, record_work, require_word_head
from viz_app.shell.profiles import has_profiles, profiles_of
from viz_app.shell.work import Work

CURVE_STEPS = 12  # points of a curve after the first, as many as the page Prune draws
ORDERS = ("importance", "ablation")
# What profiles call the jobs of a lesson: of each, the question and its answers.
PROFILE_QUESTIONS = {
    "previous": ("offset", ("-1",)), "next": ("offset", ("+1",)), "self": ("kind", ("itself",)),
    "ends": ("kind", ("first", "end")), "governor": ("relation", ("its governor",)),
    "dependent": ("relation", ("its dependent",)),
}  # fmt: skip


def _drops(asked: CheckContext) -> Work[WordDrops]:
    loaded, encoding, original = asked.loaded, asked.encoding, asked.original
    gap = hidden_word(asked)

    def do(_: object) -> WordDrops:
        others = [word for word in range(original.word_count) if word != gap]
        texts = [loaded.tokenizer.mask_words(original, (gap, word)) for word in others]
        base, *without = captures(loaded, [encoding, *texts], top_k=1)
        at = base.predictions[0].position
        ((guess, probability),) = base.predictions[0].top
        drops = np.full(original.word_count, np.nan)
        firsts = [""] * original.word_count
        for word, run in zip(others, without, strict=True):
            found = run.prediction_at(at)
            assert found is not None  # the gap is a mask in every copy
            drops[word] = probability - float(found.probabilities[guess])
            firsts[word] = loaded.tokenizer.token_of(found.top[0][0])
        words = tuple(original.word_text(word) for word in range(original.word_count))
        return WordDrops(words, gap, loaded.tokenizer.token_of(guess), probability, drops, tuple(firsts))

    return record_work(asked, "drops", "without each word", do, original.word_count)


def _guesses(asked: CheckContext) -> Work[Guesses]:
    require_word_head(asked)
    if asked.is_own:
        raise Refused(translate("this step is about the lesson's own sentence: set the page up again"))
    loaded, now, began, original = asked.loaded, asked.encoding, asked.lesson_encoding, asked.original
    if not began.mask_positions:
        raise Refused(translate("the lesson hides no word, so there is no gap to guess"))
    gap = began.mask_positions[0]
    if gap not in now.mask_positions:
        raise Refused(translate("the gap is filled again: hide its word, or set the page up again"))
    words = dict.fromkeys(original.words[at] for at in now.mask_positions if at not in began.mask_positions)

    def do(_: object) -> Guesses:
        firsts = []
        for run in captures(loaded, [began, now], top_k=1):
            found = run.prediction_at(gap)
            assert found is not None
            firsts.append(loaded.tokenizer.token_of(found.top[0][0]))
        return Guesses(firsts[0], firsts[1], tuple(original.word_text(word) for word in words if word is not None))

    return record_work(asked, "guesses", "reads the sentence", do, 2, began)


def _looks(asked: CheckContext) -> Work[RoleScores]:
    def do(_: object) -> RoleScores:
        run = capture(asked.loaded, asked.encoding, positions=())
        return RoleScores(role_scores(run.attention, asked.encoding), asked.lesson_head)

    return record_work(asked, "looks", "reads the sentence", do, 1, asked.lesson_head)


def _brought(asked: CheckContext) -> Work[HeadContribution]:
    def do(_: object) -> HeadContribution:
        encoding, head = asked.encoding, asked.head
        norms = attention_norms(asked.loaded, encoding).heads
        assert norms is not None  # this method has them
        run = capture(asked.loaded, encoding, positions=())
        shares = (role_scores(maps, encoding)["cls"][head] for maps in (run.attention, normalise_rows(norms)))
        return HeadContribution(head, *map(float, shares))

    return record_work(asked, "brought", "weighs what a head brings", do, 3, asked.head)


def _curves(asked: CheckContext) -> Work[tuple[CurvePoint, ...]]:
    require_word_head(asked)
    loaded, original = asked.loaded, asked.original
    there = sum(len(loaded.config.heads_of(layer)) for layer in range(loaded.config.num_hidden_layers))

    def do(report: Any) -> tuple[CurvePoint, ...]:
        batches = masked_examples(loaded, original)
        orders = {order: propose_plan(loaded, batches, order).order for order in ORDERS}
        removed = sorted({round(there * number / CURVE_STEPS) for number in range(CURVE_STEPS + 1)})
        return tuple(curve_points(loaded, batches, orders, removed, report=report))

    passes = len(original) * (there + 2 * (CURVE_STEPS + 1))
    return record_work(asked, "curves", "without more and more heads", do, passes, original)


def _losses(asked: CheckContext) -> Work[Losses]:
    require_word_head(asked)
    loaded, original, off = asked.loaded, asked.original, asked.off

    def do(_: object) -> Losses:
        batches = masked_examples(loaded, original)
        before, now = (
            score(loaded, batches, head_mask=head_mask_without(loaded.config, gone)).loss for gone in ((), off)
        )
        return Losses(before, now, len(off))

    return record_work(asked, "losses", "is tested", do, 2 * len(original), original, off)


def _jobs(asked: CheckContext) -> Work[HeadJobs]:
    loaded = asked.loaded
    none = translate("nobody has counted what the heads of this model do over a corpus: choose the bundled model")
    if not has_profiles(loaded):
        raise Refused(none)

    def do(_: object) -> HeadJobs:
        found = profiles_of(loaded)
        if found is None:
            raise Refused(none)
        size = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
        shares, chances = ({name: np.full(size, np.nan) for name in PROFILE_QUESTIONS} for _ in range(2))
        rests = np.full(size, np.nan)
        for one in found.heads:
            rests[one.layer, one.head] = one.sink_share
            for name, (question, answers) in PROFILE_QUESTIONS.items():
                bars = [bar for bar in one.active.get(question, ()) if bar.name in answers]
                shares[name][one.layer, one.head] = sum(bar.share for bar in bars)
                chances[name][one.layer, one.head] = sum(bar.chance for bar in bars)
        return HeadJobs(shares, chances, rests, MIN_EXCESS, asked.lesson_head)

    return record_work(asked, "jobs", "opens its profiles", do, 1, asked.lesson_head)


def _first_look(asked: CheckContext) -> Work[FirstWordAttention]:
    encoding, original, head = asked.encoding, asked.original, asked.head
    words = tuple(original.word_text(word) for word in range(original.word_count))
    if len(words) < 3:
        raise Refused(translate("the sentence is too short: write three words or more"))

    def do(_: object) -> FirstWordAttention:
        run = capture(asked.loaded, encoding, positions=())
        row = map_of_units(run.attention[head], [encoding.pieces_of(word) for word in range(len(words))])[0]
        shares = np.where(np.arange(len(words)) == 0, np.nan, row)
        return FirstWordAttention(words, head, shares, 1 - float(row.sum()))

    return record_work(asked, "first look", "reads the sentence", do, 1, head)


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType({
    "drops": _drops, "guesses": _guesses, "looks": _looks, "brought": _brought, "curves": _curves, "losses": _losses,
    "jobs": _jobs, "first_look": _first_look,
})  # fmt: skip

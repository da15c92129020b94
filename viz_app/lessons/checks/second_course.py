"""The checks of the second course, and the records that they are asked of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

import numpy as np

from bert_core.refused import Refused
from viz_app.lessons.checks.verdicts import Bar, Check, Figures, Phrase, Verdict, bar_mark

RANKED_METHODS = ("attention", "rollout", "DecompX", "occlusion")  # methods that are put in order
TIE = 0.01  # of a fall of the probability: methods that are nearer to each other count as alike
MAX_SWAPPED_PAIRS = 1  # pairs of methods that an order may have the wrong way round
DEPTH_TOLERANCE = 1  # how far a guessed number of layers may be from the true one
MIN_LAYER_DIFFERENCE = 2  # layers that two readings must differ by
MIN_MEANING_GAP = 0.05  # of cosines, within a meaning above between meanings
PERCENT_TOLERANCE = 15  # how far a guessed share may be from the true one, in points
NEAR_CHANCE_ACCURACY = 0.6  # share of right verbs that is hardly better than guessing
MIN_ATTRACTION = 0.2  # by how much more often the verb must be wrong where the nearest noun has the other number


@dataclass(frozen=True)
class MethodScores:
    """How far the probability of the first guess falls as the words that each method names are hidden.

    guess, probability: what stands first in the gap. methods: by name. falls: (method,), the mean over the whole curve
    of removals (AOPC). most: the upper end of the band in which 95% of random orders lie.
    """

    guess: str
    probability: float
    methods: tuple[str, ...]
    falls: np.ndarray = field(repr=False)
    random_upper: float


@dataclass(frozen=True)
class LensReadings:
    """After how many layers the word that the model ends with stands first for good, read in two ways.

    word: that word. layers: how many there are. plain, tuned: how many it takes, with the states as they are and with
    each brought to the last layer by the tuned lens; without such a lens both are alike. firsts: of the plain way,
    what stands first at each depth. place: where the gap is. has_tuned: whether there is a tuned lens.
    lens, depth, position: what is chosen on the page.
    """

    word: str
    layers: int
    plain: int
    tuned: int
    firsts: tuple[str, ...]
    place: int
    has_tuned: bool
    lens: str
    depth: int
    position: int


@dataclass(frozen=True)
class Meanings:
    """How alike a word is in sentences of one meaning and of another, depth by depth.

    word: which. within, between: (depth,), the mean cosine of two places of one meaning, and of two meanings.
    sorted: (depth,), how many places are most alike to one of their own meaning. places: how many there are.
    depth: the chosen one.
    """

    word: str
    within_meaning: np.ndarray = field(repr=False)
    between_meanings: np.ndarray = field(repr=False)
    matched: np.ndarray = field(repr=False)
    places: int
    depth: int


@dataclass(frozen=True)
class VerbAccuracy:
    """How often the verb in the number of its subject is likelier than in the other number, from 0 to 1.

    same, other: where a noun between them has the number of the subject, and where it has the other. count: sentences
    of each kind. chance is one half.
    """

    same_number: float
    other_number: float
    count: int


@dataclass(frozen=True)
class SentencePair:
    """Two sentences, and by how many nats the first is likelier.

    parted: the words in which the two differ. asked: those in which the lesson's two differ.
    """

    difference: float
    differing: tuple[str, str]
    lesson_differing: tuple[str, str]


# ---------------------------------------------------------------------------- is attention an explanation?


def order_of_methods(found: MethodScores, answer: tuple[str, ...]) -> Verdict:
    """Whether an order of methods, best first, is that of what their words are worth."""
    falls = {
        name: fall for name, fall in zip(found.methods, found.falls.tolist(), strict=True) if name in RANKED_METHODS
    }
    if sorted(answer) != sorted(falls):
        raise Refused(f"the order is {', '.join(answer)}: each of {', '.join(falls)} once")
    true = sorted(falls, key=lambda name: -falls[name])
    swapped = sum(falls[later] - falls[earlier] > TIE for earlier, later in combinations(answer, 2))
    better = [name for name in true if falls[name] > found.random_upper]

    bars = [Bar(name, falls[name], bar_mark(name, true=true[0], yours=answer[0])) for name in true]
    bars.append(Bar("chance", found.random_upper))
    return Verdict(
        swapped <= MAX_SWAPPED_PAIRS,
        tuple(true),
        {
            "guess": found.guess, "probability": found.probability, "yours": ", ".join(answer),
            "order": ", ".join(true), "swapped": swapped, "chance": found.random_upper, "best": true[0],
            "better": ", ".join(better) or Phrase("none of them"),
            **{name: falls[name] for name in ("attention", "occlusion")},
        },
        tuple(sorted(bars, key=lambda bar: -bar.value)),
        claim_holds=falls["attention"] <= found.random_upper < falls[true[0]],
    )  # fmt: skip


def better_than_chance(found: MethodScores, answer: str) -> Verdict:
    """Whether the words that the chosen method names are worth more than those that random orders name."""
    fall = float(found.falls[found.methods.index(answer)])
    figures: Figures = {"method": answer, "fall": fall, "chance": found.random_upper, "guess": found.guess}
    return Verdict(fall > found.random_upper, (fall,), figures)


# ---------------------------------------------------------------------------- when does it know?


def known_after(found: LensReadings, answer: float) -> Verdict:
    """Whether a guessed number of layers is near to that after which the answer stands first, read as it is."""
    before = found.firsts[found.plain - 1] if found.plain else found.word
    return Verdict(
        abs(answer - found.plain) <= DEPTH_TOLERANCE,
        (float(found.plain),),
        {**_readings(found), "yours": answer, "before": before},
        (Bar("yours", answer, "yours"), Bar("plain", found.plain, "true"), Bar("tuned", found.tuned)),
        claim_holds=found.plain - found.tuned >= MIN_LAYER_DIFFERENCE,
    )


def cell_of_the_answer(found: LensReadings, answer: None = None) -> Verdict:
    """Whether the chosen cell is the first of the gap in which the tuned lens reads the answer for good."""
    right = (found.lens, found.position, found.depth) == ("tuned", found.place, found.tuned) and found.has_tuned
    return Verdict(right, (float(found.tuned),), _readings(found))


def readings_differ(found: LensReadings, answer: None = None) -> Verdict:
    """Whether the two ways of reading differ by two layers or more."""
    return Verdict(
        abs(found.plain - found.tuned) >= MIN_LAYER_DIFFERENCE,
        (float(found.plain), float(found.tuned)),
        _readings(found),
    )


def _readings(found: LensReadings) -> Figures:
    chosen = "the token of the gap" if found.position == found.place else "another token than the gap"
    return {
        "word": found.word, "layers": found.layers, "plain": found.plain, "tuned": found.tuned,
        "apart": MIN_LAYER_DIFFERENCE,
        "lens": f"{found.lens} lens", "depth": found.depth, "token": chosen,
    }  # fmt: skip


# ---------------------------------------------------------------------------- bank and bank


def parted_after(found: Meanings, answer: float) -> Verdict:
    """Whether a guessed number of layers is near to that after which the meanings are apart, for good."""
    gaps, layers = found.within_meaning - found.between_meanings, len(found.matched) - 1
    after, is_sorted = _parted(found)
    yours = min(int(answer), layers)
    # A depth has one bar, under the name that says most.
    names = {0: "start", layers: "end", yours: "yours", after: "true"}

    return Verdict(
        is_sorted and abs(answer - after) <= DEPTH_TOLERANCE,
        (float(after),),
        {**_meanings(found), "yours": answer, "after": after, "gap": float(gaps[after]), "start": float(gaps[0])},
        tuple(
            Bar(name, float(gaps[depth]), bar_mark(depth, true=after, yours=yours))
            for depth, name in sorted(names.items())
        ),
        claim_holds=is_sorted and after < layers and found.matched[0] < found.places,
    )


def first_apart(found: Meanings, answer: None = None) -> Verdict:
    """Whether the chosen depth is the first from which on each place is most alike to one of its own meaning."""
    after, is_sorted = _parted(found)
    return Verdict(is_sorted and found.depth == after, (float(after),), _meanings(found))


def meanings_are_separate(found: Meanings, answer: None = None) -> Verdict:
    """Whether at the end each place is most alike to one of its own meaning, with a clear gap."""
    gap = float(found.within_meaning[-1] - found.between_meanings[-1])
    return Verdict(bool(found.matched[-1] == found.places) and gap > MIN_MEANING_GAP, (gap,), _meanings(found))


def _parted(found: Meanings) -> tuple[int, bool]:
    """After how many layers all places are sorted and stay so, and whether that is ever the case; else the last."""
    wrong = np.flatnonzero(found.matched != found.places)
    after = int(wrong[-1]) + 1 if len(wrong) else 0
    return min(after, len(found.matched) - 1), after < len(found.matched)


def _meanings(found: Meanings) -> Figures:
    return {
        "word": found.word, "layers": len(found.matched) - 1, "places": found.places, "depth": found.depth,
        "sorted": int(found.matched[found.depth]), "end": float(found.within_meaning[-1] - found.between_meanings[-1]),
        "sorted_at_end": int(found.matched[-1]), "least": MIN_MEANING_GAP,
    }  # fmt: skip


# ---------------------------------------------------------------------------- the keys to the cabinet


def verbs_right(found: VerbAccuracy, answer: float) -> Verdict:
    """Whether a guessed share, in percent, is near that of verbs that fit their subject past a noun of other number."""
    same, other = 100 * found.same_number, 100 * found.other_number
    return Verdict(
        abs(answer - other) <= PERCENT_TOLERANCE,
        (other,),
        {"yours": answer, "same": same, "other": other, "count": found.count, "near": PERCENT_TOLERANCE},
        (Bar("same", same), Bar("yours", answer, "yours"), Bar("other", other, "true")),
        claim_holds=found.other_number < NEAR_CHANCE_ACCURACY
        and found.same_number - found.other_number >= MIN_ATTRACTION,
    )


def verb_pulled_over(found: SentencePair, answer: None = None) -> Verdict:
    """Whether the second sentence is the likelier one, with the two verbs where the lesson has them."""
    return Verdict(
        found.differing == found.lesson_differing and found.difference < 0, (found.difference,), _pair(found)
    )


def second_is_likelier(found: SentencePair, answer: None = None) -> Verdict:
    """Whether the second of two sentences, which differ in a word each, is the likelier one."""
    return Verdict(found.difference < 0, (found.difference,), _pair(found))


def _pair(found: SentencePair) -> Figures:
    believed = found.differing[0] if found.difference > 0 else found.differing[1]
    first, second = found.lesson_differing
    return {
        "believed": believed, "one": found.differing[0], "two": found.differing[1], "first": first, "second": second,
        "nats": abs(found.difference),
    }  # fmt: skip


# ---------------------------------------------------------------------------- by name

_READINGS = (("word", "lens", "token"), ("layers", "plain", "tuned", "depth", "apart"))
_MEANINGS = (("word",), ("layers", "places", "depth", "sorted", "end", "sorted_at_end", "least"))
_PAIR = (("believed", "one", "two", "first", "second"), ("nats",))

CHECKS: Mapping[str, Check] = MappingProxyType({
    "order_of_methods": Check(
        order_of_methods, "judged", ("order",), ("guess", "yours", "order", "best", "better"),
        ("probability", "swapped", "chance", "attention", "occlusion"), (*RANKED_METHODS, "chance"),
        items=RANKED_METHODS,
    ),
    "better_than_chance": Check(
        better_than_chance, "judged", ("page",), ("method", "guess"), ("fall", "chance"), page_choice="method",
    ),
    "known_after": Check(
        known_after, "reading", ("number",), (*_READINGS[0], "before"), (*_READINGS[1], "yours"),
        ("yours", "plain", "tuned"),
    ),
    "cell_of_the_answer": Check(cell_of_the_answer, "reading", ("page",), *_READINGS),
    "readings_differ": Check(readings_differ, "reading", ("page",), *_READINGS),
    "parted_after": Check(
        parted_after, "meanings", ("number",), _MEANINGS[0], (*_MEANINGS[1], "yours", "after", "gap", "start"),
        ("start", "yours", "true", "end"),
    ),
    "first_apart": Check(first_apart, "meanings", ("page",), *_MEANINGS),
    "told_apart": Check(meanings_are_separate, "meanings", ("page",), *_MEANINGS),
    "verbs_right": Check(
        verbs_right, "agreed", ("number",), (), ("yours", "same", "other", "count", "near"), ("same", "yours", "other"),
    ),
    "verb_pulled_over": Check(verb_pulled_over, "pair", ("page",), *_PAIR),
    "second_is_likelier": Check(second_is_likelier, "pair", ("page",), *_PAIR),
})  # fmt: skip

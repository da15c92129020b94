"""The checks of the second course, and their records."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from bert_core.refused import Refused
from viz_app.lessons.checks.verdicts import (
    Bar,
    Figures,
    Phrase,
    Verdict,
    bar_mark,
    check,
    estimate_verdict,
    marked_bars,
)

RANKED_METHODS = ("attention", "rollout", "DecompX", "occlusion")
TIE = 0.01  # of a decrease of the probability: methods that differ by less count as equal
MAX_SWAPPED_PAIRS = 1  # pairs of methods in the wrong order
DEPTH_TOLERANCE = 1  # of an estimated number of layers
MIN_LAYER_DIFFERENCE = 2  # between the two lenses
MIN_MEANING_GAP = 0.05  # of cosines, within a meaning minus between meanings
PERCENT_TOLERANCE = 15  # of an estimated share, in percentage points
NEAR_CHANCE_ACCURACY = 0.6  # share of right verbs below which a model is hardly better than chance
MIN_ATTRACTION = 0.2  # decrease of the accuracy if the nearest noun has the other number


@dataclass(frozen=True)
class MethodScores:
    """The decrease of the probability of the first guess while the words that each method ranks first are hidden.

    guess, probability: the first guess for the gap. methods: names. falls: (method,), the mean over the curve of
    removals (AOPC). random_upper: the upper end of the 95% band of random rankings.
    """

    guess: str
    probability: float
    methods: tuple[str, ...]
    falls: np.ndarray = field(repr=False)
    random_upper: float


@dataclass(frozen=True)
class LensReadings:
    """The number of layers after which the final prediction remains the first guess, by two lenses.

    word: the final prediction. layers: of the model. plain, tuned: that number by the logit lens and by the tuned lens;
    equal without a tuned lens. firsts: the first guess of the logit lens at each depth. place: position of the gap.
    lens, depth, position: the choices on the page.
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

    def figures(self, **values: str | float) -> Figures:
        """Return the figures of all checks of this record, with further ones."""
        names = ("word", "layers", "plain", "tuned", "depth")
        is_gap = self.position == self.place
        return {
            **{name: getattr(self, name) for name in names},
            "apart": MIN_LAYER_DIFFERENCE,
            "lens": f"{self.lens} lens",
            "token": "the token of the gap" if is_gap else "another token than the gap",
            **values,
        }


@dataclass(frozen=True)
class Meanings:
    """Similarities of the states of a word in sentences of two meanings, at each depth.

    within_meaning, between_meanings: (depth,), the mean cosine of two sentences of one meaning and of two meanings.
    matched: (depth,), the number of sentences whose most similar one has the same meaning. places: the number of
    sentences. depth: the chosen one.
    """

    word: str
    within_meaning: np.ndarray = field(repr=False)
    between_meanings: np.ndarray = field(repr=False)
    matched: np.ndarray = field(repr=False)
    places: int
    depth: int

    @property
    def gaps(self) -> np.ndarray:
        """The mean cosine within a meaning minus that between meanings, (depth,)."""
        gaps: np.ndarray = self.within_meaning - self.between_meanings
        return gaps

    @property
    def separation(self) -> tuple[int, bool]:
        """The number of layers after which all sentences remain matched, and whether they ever do; else the last."""
        wrong = np.flatnonzero(self.matched != self.places)
        after = int(wrong[-1]) + 1 if len(wrong) else 0
        return min(after, len(self.matched) - 1), after < len(self.matched)

    def figures(self, **values: str | float) -> Figures:
        """Return the figures of all checks of this record, with further ones."""
        counts = {"places": self.places, "depth": self.depth, "layers": len(self.matched) - 1}
        matched = {"sorted": int(self.matched[self.depth]), "sorted_at_end": int(self.matched[-1])}
        gaps = {"end": float(self.gaps[-1]), "least": MIN_MEANING_GAP}
        return {"word": self.word, **counts, **matched, **gaps, **values}


@dataclass(frozen=True)
class VerbAccuracy:
    """How often the verb in the number of its subject is more probable than in the other number, from 0 to 1.

    same_number, other_number: with a noun between them in the number of the subject, and in the other number. count:
    sentences of each kind. Chance is 0.5.
    """

    same_number: float
    other_number: float
    count: int


@dataclass(frozen=True)
class SentencePair:
    """Two sentences, and the log-probability of the first minus that of the second, in nats.

    differing: the two words in which they differ. lesson_differing: those of the sentences of the lesson.
    """

    difference: float
    differing: tuple[str, str]
    lesson_differing: tuple[str, str]

    def figures(self) -> Figures:
        """Return the figures of all checks of this record."""
        more_probable = self.differing[0] if self.difference > 0 else self.differing[1]
        words = zip(("one", "two", "first", "second"), (*self.differing, *self.lesson_differing), strict=True)
        return {"believed": more_probable, **dict(words), "nats": abs(self.difference)}


# ---------------------------------------------------------------------------- is attention an explanation?


@check(
    "judged",
    "order",
    "guess yours order best better",
    "probability swapped chance attention occlusion",
    bars=f"{' '.join(RANKED_METHODS)} chance",
    items=RANKED_METHODS,
)
def order_of_methods(record: MethodScores, answer: tuple[str, ...]) -> Verdict:
    """Check whether an order of methods, best first, is that of the decreases of the probability."""
    all_falls = dict(zip(record.methods, record.falls.tolist(), strict=True))
    falls = {name: fall for name, fall in all_falls.items() if name in RANKED_METHODS}
    if sorted(answer) != sorted(falls):
        raise Refused(f"the order is {', '.join(answer)}: each of {', '.join(falls)} once")
    true = sorted(falls, key=lambda name: -falls[name])
    swapped = sum(falls[later] - falls[earlier] > TIE for earlier, later in combinations(answer, 2))
    better = [name for name in true if falls[name] > record.random_upper]
    figures: Figures = {
        **{"guess": record.guess, "probability": record.probability, "chance": record.random_upper},
        **{"yours": ", ".join(answer), "order": ", ".join(true), "swapped": swapped, "best": true[0]},
        "better": ", ".join(better) or Phrase("none of them"),
        **{name: falls[name] for name in ("attention", "occlusion")},
    }
    bars = [*marked_bars(falls, true=true[0], answer=answer[0]), Bar("chance", record.random_upper)]
    return Verdict(
        swapped <= MAX_SWAPPED_PAIRS,
        tuple(true),
        figures,
        tuple(sorted(bars, key=lambda bar: -bar.value)),
        claim_holds=falls["attention"] <= record.random_upper < falls[true[0]],
    )


@check("judged", "page", "method guess", "fall chance", page_choice="method")
def better_than_chance(record: MethodScores, answer: str) -> Verdict:
    """Check whether the words of the chosen method decrease the probability more than random rankings do."""
    fall = float(record.falls[record.methods.index(answer)])
    figures: Figures = {"method": answer, "fall": fall, "chance": record.random_upper, "guess": record.guess}
    return Verdict(fall > record.random_upper, (fall,), figures)


# ---------------------------------------------------------------------------- when does it know?

_LENS_WORDS, _LENS_NUMBERS = "word lens token", "layers plain tuned depth apart"


@check("reading", "number", f"{_LENS_WORDS} before", f"{_LENS_NUMBERS} yours", bars="yours plain tuned")
def known_after(record: LensReadings, answer: float) -> Verdict:
    """Check an estimate of the number of layers after which the answer is first, by the logit lens."""
    before = record.firsts[record.plain - 1] if record.plain else record.word
    return estimate_verdict(
        answer,
        record.plain,
        DEPTH_TOLERANCE,
        record.figures(before=before),
        marked_bars({"yours": answer, "plain": record.plain, "tuned": record.tuned}, true="plain"),
        claim_holds=record.plain - record.tuned >= MIN_LAYER_DIFFERENCE,
    )


@check("reading", "page", _LENS_WORDS, _LENS_NUMBERS)
def cell_of_the_answer(record: LensReadings, answer: None = None) -> Verdict:
    """Check whether the chosen cell is the first of the gap from which the tuned lens reads the final prediction."""
    right = (record.lens, record.position, record.depth) == ("tuned", record.place, record.tuned) and record.has_tuned
    return Verdict(right, (float(record.tuned),), record.figures())


@check("reading", "page", _LENS_WORDS, _LENS_NUMBERS)
def readings_differ(record: LensReadings, answer: None = None) -> Verdict:
    """Check whether the two lenses differ by at least two layers."""
    truth = float(record.plain), float(record.tuned)
    return Verdict(abs(record.plain - record.tuned) >= MIN_LAYER_DIFFERENCE, truth, record.figures())


# ---------------------------------------------------------------------------- bank and bank

_MEANING_NUMBERS = "layers places depth sorted end sorted_at_end least"


@check("meanings", "number", "word", f"{_MEANING_NUMBERS} yours after gap start", bars="start yours true end")
def parted_after(record: Meanings, answer: float) -> Verdict:
    """Check an estimate of the number of layers after which the meanings are and remain separate."""
    gaps, layers = record.gaps.tolist(), len(record.matched) - 1
    after, is_separate = record.separation
    guess = min(int(answer), layers)
    # Each depth has one bar, under the most specific name.
    names = sorted({0: "start", layers: "end", guess: "yours", after: "true"}.items())
    return Verdict(
        is_separate and abs(answer - after) <= DEPTH_TOLERANCE,
        (float(after),),
        record.figures(yours=answer, after=after, gap=gaps[after], start=gaps[0]),
        tuple(Bar(name, gaps[depth], bar_mark(depth, true=after, answer=guess)) for depth, name in names),
        claim_holds=is_separate and after < layers and bool(record.matched[0] < record.places),
    )


@check("meanings", "page", "word", _MEANING_NUMBERS)
def first_apart(record: Meanings, answer: None = None) -> Verdict:
    """Check whether the chosen depth is the first from which every sentence remains matched."""
    after, is_separate = record.separation
    return Verdict(is_separate and record.depth == after, (float(after),), record.figures())


@check("meanings", "page", "word", _MEANING_NUMBERS, name="told_apart")
def meanings_are_separate(record: Meanings, answer: None = None) -> Verdict:
    """Check whether every sentence is matched after the last layer, with a clear gap."""
    gap = float(record.gaps[-1])
    return Verdict(bool(record.matched[-1] == record.places) and gap > MIN_MEANING_GAP, (gap,), record.figures())


# ---------------------------------------------------------------------------- the keys to the cabinet

_PAIR_WORDS = "believed one two first second"


@check("agreed", "number", "", "yours same other count near", bars="same yours other")
def verbs_right(record: VerbAccuracy, answer: float) -> Verdict:
    """Check an estimate, in percent, of the accuracy on verbs after a noun of the other number."""
    shares = {"same": 100 * record.same_number, "yours": answer, "other": 100 * record.other_number}
    is_attracted = record.same_number - record.other_number >= MIN_ATTRACTION
    return estimate_verdict(
        answer,
        shares["other"],
        PERCENT_TOLERANCE,
        {**shares, "count": record.count},
        marked_bars(shares, true="other"),
        claim_holds=record.other_number < NEAR_CHANCE_ACCURACY and is_attracted,
    )


@check("pair", "page", _PAIR_WORDS, "nats")
def verb_pulled_over(record: SentencePair, answer: None = None) -> Verdict:
    """Check whether the second sentence is more probable, with the two verbs of the lesson."""
    right = record.differing == record.lesson_differing and record.difference < 0
    return Verdict(right, (record.difference,), record.figures())


@check("pair", "page", _PAIR_WORDS, "nats")
def second_is_likelier(record: SentencePair, answer: None = None) -> Verdict:
    """Check whether the second of two sentences that differ in one word is more probable."""
    return Verdict(record.difference < 0, (record.difference,), record.figures())

"""The checks of the second course: for each, the record that it needs, how it is computed, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bert_core.agreement import sentences
from bert_core.analysis.lens import cosine_similarities, settled_depth
from bert_core.checkpoint import CheckpointError
from bert_core.loading import LoadedModel
from bert_core.methods import faithfulness, token_scores
from bert_core.progress import Progress
from bert_core.records import Target
from bert_core.refused import Refused
from bert_core.run.capture import capture, captures
from bert_core.run.lens import layer_states, logit_lens
from bert_core.run.scoring import score_pairs
from bert_core.tokenizer import Encoding
from bert_core.translators import Translators, read_translators
from viz_app.lessons.checks.context import (
    CheckContext,
    Unsuitable,
    check_length,
    first_guess,
    hidden_word,
    phrase,
    record,
    require_word_head,
)
from viz_app.lessons.checks.verdicts import Bar, Figures, Verdict, bar_mark, check, estimate_verdict, marked_bars

LONG_SENTENCE = "sentence_too_long"

# ---------------------------------------------------------------------------- is attention an explanation?

RANKED_METHODS = ("attention", "rollout", "DecompX", "occlusion")
TIE = 0.01  # of a decrease of the probability: methods that differ by less count as equal
MAX_SWAPPED_PAIRS = 1  # pairs of methods in the wrong order
MAX_SCORED_TOKENS = 32  # of a text of which hundreds of copies are processed


class MethodScores(NamedTuple):
    """The decrease of the probability of the first guess while the words that each method ranks first are hidden.

    guess, probability: the first guess for the gap. methods: names. falls: (method,), the mean over the curve of
    removals (AOPC). random_upper: the upper end of the 95% band of random rankings.
    """

    guess: str
    probability: float
    methods: tuple[str, ...]
    falls: np.ndarray
    random_upper: float


def _methods(context: CheckContext) -> tuple[str, ...]:
    """Return the ranked methods, and the chosen one if it is not among them. Raises Refused for a long text."""
    hidden_word(context)
    check_length(len(context.encoding), "text_too_long_here", MAX_SCORED_TOKENS)
    return tuple(dict.fromkeys((*RANKED_METHODS, context.choices.get("method", RANKED_METHODS[0]))))


@record("tests methods by hiding words", lambda context: 40 * len(context.encoding), _methods)
def _method_scores(context: CheckContext, report: Progress) -> MethodScores:
    loaded, encoding, methods = context.loaded, context.encoding, _methods(context)
    gap = encoding.mask_positions[0]
    guess, probability = first_guess(capture(loaded, encoding, top_k=1), gap)
    target = Target("mlm", gap, guess)
    scores = token_scores(loaded, encoding, target, methods)
    aopc = faithfulness(loaded, encoding, target, scores, words=True, report=report)["aopc"]
    return MethodScores(loaded.tokenizer.token_of(guess), probability, methods, aopc.scores, aopc.band[1])


@check(
    _method_scores,
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
        "better": ", ".join(better) or phrase("none_of_them"),
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


@check(_method_scores, "page", "method guess", "fall chance", page_choice="method")
def better_than_chance(record: MethodScores, answer: str) -> Verdict:
    """Check whether the words of the chosen method decrease the probability more than random rankings do."""
    fall = float(record.falls[record.methods.index(answer)])
    figures: Figures = {"method": answer, "fall": fall, "chance": record.random_upper, "guess": record.guess}
    return Verdict(fall > record.random_upper, (fall,), figures)


# ---------------------------------------------------------------------------- when does it know?

DEPTH_TOLERANCE = 1  # of an estimated number of layers
MIN_LAYER_DIFFERENCE = 2  # between the two lenses
_LENS_WORDS, _LENS_NUMBERS = "word lens token", "layers plain tuned depth apart"


class LensReadings(NamedTuple):
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


def _lens_choices(context: CheckContext) -> tuple[str, int, int]:
    """Return the chosen lens, depth and position, at first those of the final prediction of the gap."""
    hidden_word(context)
    end = context.loaded.config.num_hidden_layers, context.encoding.mask_positions[0]
    depth, position = context.numbers("cell", *end)
    return context.choices.get("lens", "logit"), depth, position


@record("read at every layer", 3, _lens_choices)
def _readings(context: CheckContext, _: Progress) -> LensReadings:
    loaded, place, tuned = context.loaded, context.encoding.mask_positions[0], _translators(context.loaded)
    lenses = [
        logit_lens(loaded, context.encoding, positions=[place], translators=translators, top_k=1)
        for translators in (None, tuned)
    ]
    plain, after = (int(settled_depth(run.final_rank)[0]) for run in lenses)
    firsts = tuple(loaded.tokenizer.token_of(int(piece)) for piece in lenses[0].top[:, 0, 0])
    layers, choices = loaded.config.num_hidden_layers, _lens_choices(context)
    return LensReadings(firsts[-1], layers, plain, after, firsts, place, tuned is not None, *choices)


def _translators(loaded: LoadedModel) -> Translators | None:
    """Return the translators of the tuned lens, or None without suitable ones, which the page reports."""
    try:
        return read_translators(loaded)
    except CheckpointError:
        return None


@check(_readings, "number", f"{_LENS_WORDS} before", f"{_LENS_NUMBERS} yours", bars="yours plain tuned")
def known_after(record: LensReadings, answer: float) -> Verdict:
    """Check an estimate of the number of layers after which the answer is first, by the logit lens."""
    figures = record.figures(before=record.firsts[record.plain - 1] if record.plain else record.word)
    depths = {"yours": answer, "plain": record.plain, "tuned": record.tuned}
    claim_holds = record.plain - record.tuned >= MIN_LAYER_DIFFERENCE
    return estimate_verdict(answer, "plain", DEPTH_TOLERANCE, figures, depths, claim_holds=claim_holds)


@check(_readings, "page", _LENS_WORDS, _LENS_NUMBERS)
def cell_of_the_answer(record: LensReadings, answer: None = None) -> Verdict:
    """Check whether the chosen cell is the first of the gap from which the tuned lens reads the final prediction."""
    right = (record.lens, record.position, record.depth) == ("tuned", record.place, record.tuned) and record.has_tuned
    return Verdict(right, (float(record.tuned),), record.figures())


@check(_readings, "page", _LENS_WORDS, _LENS_NUMBERS)
def readings_differ(record: LensReadings, answer: None = None) -> Verdict:
    """Check whether the two lenses differ by at least two layers."""
    truth = float(record.plain), float(record.tuned)
    return Verdict(abs(record.plain - record.tuned) >= MIN_LAYER_DIFFERENCE, truth, record.figures())


# ---------------------------------------------------------------------------- bank and bank

MIN_MEANING_GAP = 0.05  # of cosines, within a meaning minus between meanings
MAX_LINES = 8  # sentences with one word in two meanings
_MEANING_NUMBERS = "layers places depth sorted end sorted_at_end least"


class Meanings(NamedTuple):
    """Similarities of the states of a word in sentences of two meanings, at each depth.

    within_meaning, between_meanings: (depth,), the mean cosine of two sentences of one meaning and of two meanings.
    matched: (depth,), the number of sentences whose most similar one has the same meaning. places: the number of
    sentences. depth: the chosen one.
    """

    word: str
    within_meaning: np.ndarray
    between_meanings: np.ndarray
    matched: np.ndarray
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


def _word_places(context: CheckContext) -> tuple[tuple[Encoding, tuple[int, ...]], ...]:
    """Return each sentence with the positions of the word in it. Raises Refused for a sentence without the word."""
    loaded, word = context.loaded, context.choices["common_word"].strip()
    lines = [line.strip() for line in context.choices["sentences"].splitlines() if line.strip()]
    if not 4 <= len(lines) <= MAX_LINES or len(lines) % 2:
        raise Unsuitable(
            "sentence_count",
            many=len(lines),
            most=MAX_LINES,
        )
    places = []
    for number, line in enumerate(lines, 1):
        encoding = loaded.tokenizer.encode(line)
        words = [encoding.word_text(index).casefold() for index in range(encoding.word_count)]
        if word.casefold() not in words:
            raise Unsuitable("sentence_without_word", number=number, word=word)
        check_length(len(encoding), LONG_SENTENCE, number=number)
        places.append((encoding, encoding.pieces_of(words.index(word.casefold()))))
    return tuple(places)


def _word_and_depth(context: CheckContext) -> tuple[str, int]:
    layers = context.loaded.config.num_hidden_layers
    return context.choices["common_word"].strip(), min(*context.numbers("depth", layers), layers)


@record(
    "reads the sentences",
    lambda context: sum(bool(line.strip()) for line in context.choices["sentences"].splitlines()),
    lambda context: (_word_places(context), _word_and_depth(context)),
)
def _meanings(context: CheckContext, _: Progress) -> Meanings:
    places, (word, depth) = _word_places(context), _word_and_depth(context)
    word_states = [layer_states(context.loaded, line).states[:, list(pieces)].mean(1) for line, pieces in places]
    cosines = cosine_similarities(np.stack(word_states, 1))  # (depth, sentence, sentence)
    meaning = np.arange(len(places)) >= len(places) // 2
    is_pair = ~np.eye(len(places), dtype=bool)
    is_same = meaning[:, None] == meaning
    nearest = np.where(is_pair, cosines, -2.0).argmax(-1)
    matched = (meaning[nearest] == meaning).sum(-1)
    within_meaning, between_meanings = (cosines[:, pairs].mean(-1) for pairs in (is_same & is_pair, ~is_same))
    return Meanings(word, within_meaning, between_meanings, matched, len(places), depth)


@check(_meanings, "number", "word", f"{_MEANING_NUMBERS} yours after gap start", bars="start yours true end")
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


@check(_meanings, "page", "word", _MEANING_NUMBERS)
def first_apart(record: Meanings, answer: None = None) -> Verdict:
    """Check whether the chosen depth is the first from which every sentence remains matched."""
    after, is_separate = record.separation
    return Verdict(is_separate and record.depth == after, (float(after),), record.figures())


@check(_meanings, "page", "word", _MEANING_NUMBERS, name="told_apart")
def meanings_are_separate(record: Meanings, answer: None = None) -> Verdict:
    """Check whether every sentence is matched after the last layer, with a clear gap."""
    gap = float(record.gaps[-1])
    return Verdict(bool(record.matched[-1] == record.places) and gap > MIN_MEANING_GAP, (gap,), record.figures())


# ---------------------------------------------------------------------------- the keys to the cabinet

PERCENT_TOLERANCE = 15  # of an estimated share, in percentage points
NEAR_CHANCE_ACCURACY = 0.6  # share of right verbs below which a model is hardly better than chance
MIN_ATTRACTION = 0.2  # decrease of the accuracy if the nearest noun has the other number
FRAMES = 40  # of bert-agreement, each with four sentences


class VerbAccuracy(NamedTuple):
    """How often the verb in the number of its subject is more probable than in the other number, from 0 to 1.

    same_number, other_number: with a noun between them in the number of the subject, and in the other number.
    sentence_count: of each kind. Chance is 0.5.
    """

    same_number: float
    other_number: float
    sentence_count: int


@record("is asked for verbs", 4 * FRAMES, lambda context: bool(require_word_head(context)))
def _verb_accuracy(context: CheckContext, _: Progress) -> VerbAccuracy:
    tokenizer = context.loaded.tokenizer
    phrases = [sentence for sentence in sentences() if sentence.structure == "phrase"]
    sample = [sentence for sentence in phrases if sentence.frame < phrases[0].frame + FRAMES]
    runs = captures(context.loaded, [tokenizer.encode(sentence.text) for sentence in sample], top_k=1)
    is_right: dict[bool, list[bool]] = {True: [], False: []}  # by whether both nouns have the same number
    for sentence, run in zip(sample, runs, strict=True):
        right, wrong = (
            run.predictions[0].probabilities[tokenizer.id_of(verb)] for verb in (sentence.right, sentence.wrong)
        )
        is_right[sentence.subject == sentence.attractor].append(bool(right > wrong))
    return VerbAccuracy(float(np.mean(is_right[True])), float(np.mean(is_right[False])), len(is_right[False]))


@check(_verb_accuracy, "number", "", "yours same other count near", bars="same yours other")
def verbs_right(record: VerbAccuracy, answer: float) -> Verdict:
    """Check an estimate, in percent, of the accuracy on verbs after a noun of the other number."""
    shares = {"same": 100 * record.same_number, "yours": answer, "other": 100 * record.other_number}
    is_attracted = record.same_number - record.other_number >= MIN_ATTRACTION
    claim_holds = record.other_number < NEAR_CHANCE_ACCURACY and is_attracted
    figures: Figures = {**shares, "count": record.sentence_count}
    return estimate_verdict(answer, "other", PERCENT_TOLERANCE, figures, shares, claim_holds=claim_holds)


class SentencePair(NamedTuple):
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


def _pair(context: CheckContext) -> tuple[str, str]:
    """Return the two sentences. Raises Refused for an empty one, and for a long one."""
    require_word_head(context)
    pair = context.choices["sentence_a"], context.choices["sentence_b"]
    for number, sentence in enumerate(pair, 1):
        if not sentence.strip():
            raise Unsuitable("sentence_empty", number=number)
        check_length(len(context.loaded.tokenizer.encode(sentence)), LONG_SENTENCE, number=number)
    return pair


def _differing_words(context: CheckContext, choices: Mapping[str, str]) -> tuple[str, str]:
    """Return the two words in which two sentences differ. Raises Refused if they differ in more or less."""
    encodings = [context.loaded.tokenizer.encode(choices[name]) for name in ("sentence_a", "sentence_b")]
    words = [[encoding.word_text(index) for index in range(encoding.word_count)] for encoding in encodings]
    differing = [(a, b) for a, b in zip(*words, strict=False) if a.casefold() != b.casefold()]
    if len(words[0]) != len(words[1]) or len(differing) != 1:
        raise Unsuitable("one_verb_differs")
    return differing[0]


def _both_differences(context: CheckContext) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the differing words of the sentences, and of those of the lesson."""
    return _differing_words(context, context.choices), _differing_words(context, context.lesson_choices)


@record(
    "scores two sentences",
    lambda context: sum(len(sentence.split()) for sentence in _pair(context)) + 4,
    lambda context: (_pair(context), *_both_differences(context)),
)
def _sentence_pair(context: CheckContext, _: Progress) -> SentencePair:
    (score,) = score_pairs(context.loaded, [_pair(context)])
    if score.problem is not None:
        raise Refused(score.problem)
    return SentencePair(score.difference, *_both_differences(context))


_PAIR_WORDS = "believed one two first second"


@check(_sentence_pair, "page", _PAIR_WORDS, "nats")
def verb_pulled_over(record: SentencePair, answer: None = None) -> Verdict:
    """Check whether the second sentence is more probable, with the two verbs of the lesson."""
    right = record.differing == record.lesson_differing and record.difference < 0
    return Verdict(right, (record.difference,), record.figures())


@check(_sentence_pair, "page", _PAIR_WORDS, "nats")
def second_is_likelier(record: SentencePair, answer: None = None) -> Verdict:
    """Check whether the second of two sentences that differ in one word is more probable."""
    return Verdict(record.difference < 0, (record.difference,), record.figures())

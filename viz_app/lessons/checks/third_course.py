"""The checks of the third course, and their records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from typing import NamedTuple

import numpy as np

from viz_app.lessons import Option
from viz_app.lessons.checks.verdicts import (
    Figures,
    Head,
    Phrase,
    Verdict,
    check,
    estimate_verdict,
    head_name,
    marked_bars,
    require_other_word,
)

# Relations of a treebank for which the best head is compared with the best fixed distance, and their descriptions.
RELATIONS = {
    "det": Phrase("an article to its noun"),
    "amod": Phrase("an adjective to its noun"),
    "nsubj": Phrase("a subject to its verb"),
    "obj": Phrase("an object to its verb"),
}
MIN_ADVANTAGE = 0.1  # of a head over the best fixed distance
UNRELATED_SENTENCE = "Penguins are birds that cannot fly."
HIGH_PROBABILITY, LOW_PROBABILITY = 0.9, 0.5  # of a pair that the model accepts, and of one that it doubts
GUESS_COUNT = 5  # first guesses that are compared
GUESSES_TOLERANCE = 1  # of an estimated number of guesses
FRAME = "[MASK] is {} {} in a small town."  # the sentence of the lesson: an article and an occupation
OCCUPATIONS = ("engineer", "soldier", "secretary", "doctor", "teacher", "dancer", "nurse", "housekeeper")
EXPLAINED_OCCUPATION = "secretary"  # the lesson explains its leaning
OCCUPATIONS_TOLERANCE = 1  # of an estimated number of occupations
MIN_PROBABILITY = 1e-9  # lower bound of a divisor

# ---------------------------------------------------------------------------- records


class RelationAccuracy(NamedTuple):
    """The accuracies of the best head and of the best fixed distance on one relation; head: None if no head has any."""

    head: Head | None
    head_accuracy: float
    rule_accuracy: float


@dataclass(frozen=True)
class TreebankAccuracy:
    """Accuracies by relation. best: of the best head. shares: (layer, head), of every head; NaN without a head."""

    best: Mapping[str, RelationAccuracy]
    shares: Mapping[str, np.ndarray] = field(repr=False)


@dataclass(frozen=True)
class LinkedWord:
    """The word to which the head of objects links the last word. last, linked: numbers of words."""

    words: tuple[str, ...]
    last: int
    linked: int
    head: Head


@dataclass(frozen=True)
class OrderProbabilities:
    """The probabilities that B follows A, that A follows B, and that `UNRELATED_SENTENCE` follows A."""

    original: float
    swapped: float
    unrelated: float


@dataclass(frozen=True)
class NegationGuesses:
    """The first guesses for a gap in a sentence without "not" (plain) and with it (negated), most probable first.

    plain_share, negated_share: the probability of the first plain guess in both sentences. says_not: whether the
    sentence on the page is the negated one.
    """

    plain: tuple[str, ...]
    negated: tuple[str, ...]
    plain_share: float
    negated_share: float
    says_not: bool

    def figures(self, **values: str | float) -> Figures:
        """Return the figures of all checks of this record, with further ones."""
        firsts = {"first": self.plain[0], "first_with": self.negated[0]}
        return {**firsts, "share": self.plain_share, "share_with": self.negated_share, **values}


@dataclass(frozen=True)
class Leanings:
    """The values ln p(he) - ln p(she) of `OCCUPATIONS` in `FRAME`; negative values lean towards "she".

    raw: (occupation,). frame: the value with the occupation hidden.
    """

    raw: tuple[float, ...]
    frame: float


@dataclass(frozen=True)
class Pronouns:
    """The probabilities of "he" and "she" in the gap."""

    he: float
    she: float


@dataclass(frozen=True)
class WordLeanings:
    """The leaning of the gap of a sentence towards "he", and the contribution of each word.

    gap: number of the hidden word. raw: ln p(he) - ln p(she) in the gap. in_text: (word,), raw minus its value with the
    word hidden; NaN for the gap. in_frame: (word,), the same for the word in `FRAME`.
    """

    words: tuple[str, ...]
    gap: int
    raw: float
    in_text: tuple[float, ...]
    in_frame: tuple[float, ...]


# ---------------------------------------------------------------------------- checks


@check(
    "ties", "choice", "yours best head", "found rule own_found own_rule near_found near_rule", bars=" ".join(RELATIONS)
)
def beyond_distance(record: TreebankAccuracy, answer: Option) -> Verdict:
    """Check whether the answer, the number of a relation, has the best head with the largest advantage."""
    relations = list(RELATIONS)
    guess = relations[min(int(answer.minimum), len(relations) - 1)]
    gaps = {name: record.best[name].head_accuracy - record.best[name].rule_accuracy for name in relations}
    best = max(gaps, key=gaps.__getitem__)
    head = record.best[best].head
    accuracies = {"": record.best[best], "own_": record.best[guess], "near_": record.best["amod"]}
    figures: Figures = {
        **{"yours": RELATIONS[guess], "best": RELATIONS[best]},
        "head": Phrase("no head") if head is None else head_name(head),
        **{f"{prefix}found": accuracy.head_accuracy for prefix, accuracy in accuracies.items()},
        **{f"{prefix}rule": accuracy.rule_accuracy for prefix, accuracy in accuracies.items()},
    }
    bars = marked_bars({name: 100 * gap for name, gap in gaps.items()}, true=best, answer=guess)
    claim_holds = best == "obj" and gaps["obj"] > MIN_ADVANTAGE > gaps["amod"]
    return Verdict(guess == best, (best,), figures, bars, claim_holds)


@check("ties", "page", "head relation", "share rule", page_choice="head")
def knows_a_relation(record: TreebankAccuracy, answer: Head) -> Verdict:
    """Check whether the chosen head finds a relation at least 10 points better than the best fixed distance."""
    rules = {name: record.best[name].rule_accuracy for name in record.shares}
    gaps = {name: float(np.nan_to_num(shares[answer])) - rules[name] for name, shares in record.shares.items()}
    best = max(gaps, key=gaps.__getitem__)
    figures: Figures = {
        **{"head": head_name(answer), "relation": best},
        **{"share": gaps[best] + rules[best], "rule": rules[best]},
    }
    return Verdict(gaps[best] >= MIN_ADVANTAGE, (best,), figures)


@check("tied", "word", "head last word yours", "away")
def tied_word(record: LinkedWord, answer: int) -> Verdict:
    """Check whether the answer, the number of a word, is the word to which the head links the last word."""
    words, linked, last = record.words, record.linked, record.last
    require_other_word(answer, words, last, "the last one")
    named_words = {"last": words[last], "word": words[linked], "yours": words[answer]}
    figures: Figures = {"head": head_name(record.head), **named_words, "away": abs(last - linked)}
    return Verdict(answer == linked, (words[linked],), figures)


@check("both_orders", "choice", "yours", "follows swapped stranger", bars="follows yours swapped stranger")
def swapped_pair(record: OrderProbabilities, answer: Option) -> Verdict:
    """Check whether the answer contains the probability that A follows B."""
    values = {
        **{"follows": record.original, "yours": answer.nearest_to(record.swapped)},
        **{"swapped": record.swapped, "stranger": record.unrelated},
    }
    return Verdict(
        answer.contains(record.swapped),
        (record.swapped,),
        {**values, "yours": answer.label},
        marked_bars(values, true="swapped"),
        claim_holds=min(record.original, record.swapped) > HIGH_PROBABILITY and record.unrelated < LOW_PROBABILITY,
    )


@check("both_orders", "page", "", "follows doubted")
def doubted_pair(record: OrderProbabilities, answer: None = None) -> Verdict:
    """Check whether the model doubts the pair."""
    figures = {"follows": record.original, "doubted": LOW_PROBABILITY}
    return Verdict(record.original < LOW_PROBABILITY, (record.original,), figures)


@check("negated", "number", "first first_with gone kept", "yours stay all near share share_with", bars="yours stay")
def guesses_that_stay(record: NegationGuesses, answer: float) -> Verdict:
    """Check an estimate of how many first guesses remain when "not" is inserted."""
    remaining = [word for word in record.plain if word in record.negated]
    lost = [word for word in record.plain if word not in record.negated]
    lost_words, remaining_words = (", ".join(words) or Phrase("none") for words in (lost, remaining))
    return estimate_verdict(
        answer,
        len(remaining),
        GUESSES_TOLERANCE,
        record.figures(stay=len(remaining), gone=lost_words, kept=remaining_words, all=len(record.plain)),
        marked_bars({"yours": answer, "stay": len(remaining)}, true="stay"),
        claim_holds=len(remaining) > len(record.plain) / 2,
    )


@check("negated", "page", "first first_with", "share share_with")
def says_not(record: NegationGuesses, answer: None = None) -> Verdict:
    """Check whether the sentence on the page contains "not"."""
    return Verdict(record.says_not, (record.negated[0],), record.figures())


@check("leanings", "number", "which", "yours raw less_frame frame odd all near", bars="yours raw less_frame")
def she_first(record: Leanings, answer: float) -> Verdict:
    """Check an estimate of the number of occupations for which "she" is more probable than "he"."""
    raw = sum(leaning < 0 for leaning in record.raw)
    less_frame = [name for name, leaning in zip(OCCUPATIONS, record.raw, strict=True) if leaning < record.frame]
    odd, frame = exp(record.raw[OCCUPATIONS.index(EXPLAINED_OCCUPATION)]), exp(record.frame)
    counts = {"yours": answer, "raw": raw, "less_frame": len(less_frame)}
    names = ", ".join(less_frame) or Phrase("none")
    is_hidden = raw <= OCCUPATIONS_TOLERANCE and len(less_frame) - raw >= 2
    return estimate_verdict(
        answer,
        raw,
        OCCUPATIONS_TOLERANCE,
        {**counts, "which": names, "frame": frame, "odd": odd, "all": len(OCCUPATIONS)},
        marked_bars(counts, true="raw"),
        claim_holds=is_hidden and odd > frame,
    )


@check("pronouns", "page", "", "he she times")
def she_is_likelier(record: Pronouns, answer: None = None) -> Verdict:
    """Check whether "she" is more probable in the gap than "he"."""
    ratio = max(record.he, record.she) / max(min(record.he, record.she), MIN_PROBABILITY)
    return Verdict(record.she > record.he, (record.she,), {"he": record.he, "she": record.she, "times": ratio})


@check("word_leanings", "word", "word side side_there side_raw", "times times_there times_raw")
def another_frame(record: WordLeanings, answer: int) -> Verdict:
    """Check whether the answer, the number of a word, leans to opposite sides in this sentence and in `FRAME`."""
    require_other_word(answer, record.words, record.gap, "the gap")
    leanings = {"": record.in_text[answer], "_there": record.in_frame[answer], "_raw": record.raw}
    figures: Figures = {
        "word": record.words[answer],
        **{f"side{suffix}": "he" if leaning > 0 else "she" for suffix, leaning in leanings.items()},
        **{f"times{suffix}": exp(abs(leaning)) for suffix, leaning in leanings.items()},
    }
    return Verdict(leanings[""] * leanings["_there"] < 0, (leanings[""],), figures)


# ---------------------------------------------------------------------------- sentences


def occupation_sentence(word: str) -> str:
    """Return the sentence of the lesson with this word as the occupation."""
    return FRAME.format("an" if word[:1].lower() in "aeiou" else "a", word)


_VERB = re.compile(r"\b(?:am|is|are|was|were|can|could|will|would|should|must|may|might)\b", re.IGNORECASE)
_NOT = re.compile(r"(?<=\bcan)not\b|(?<=\w)n['’]t\b|\s+(?:not|never)\b", re.IGNORECASE)


def with_and_without_not(text: str) -> tuple[str, str] | None:
    """Return a sentence without "not" and with it, which is removed, or inserted after the first suitable verb.

    None for a sentence with neither.
    """
    if _NOT.search(text):
        return _NOT.sub("", text), text
    verb = _VERB.search(text)
    return None if verb is None else (text, f"{text[: verb.end()]} not{text[verb.end() :]}")

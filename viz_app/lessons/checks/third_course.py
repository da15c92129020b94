"""The third course: what does it know?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bert_core.refused import Refused
from viz_app.lessons import Option
from viz_app.lessons.checks.verdicts import Bar, Check, Figures, Head, Phrase, Verdict, bar_mark, head_name

# Relations of a treebank whose best head is set against the best rule of distance, with what ties them to what.
RELATIONS = {
    "det": Phrase("an article to its noun"), "amod": Phrase("an adjective to its noun"),
    "nsubj": Phrase("a subject to its verb"), "obj": Phrase("an object to its verb"),
}  # fmt: skip
MIN_ADVANTAGE = 0.1  # by how much a head must beat a rule to know more than distance
UNRELATED_SENTENCE = "Penguins are birds that cannot fly."  # a sentence that hardly follows another
HIGH_PROBABILITY, LOW_PROBABILITY = 0.9, 0.5  # a pair is believed above, and doubted below this probability
GUESS_COUNT = 5  # first guesses that are compared
GUESSES_TOLERANCE = 1  # how far a guessed number of them may be
FRAME = "[MASK] is {} {} in a small town."  # of the lesson on he and she: the article and the occupation
OCCUPATIONS = ("engineer", "soldier", "secretary", "doctor", "teacher", "dancer", "nurse", "housekeeper")
EXPLAINED_OCCUPATION = "secretary"  # the occupation of which the lesson says why it leans as it does
OCCUPATIONS_TOLERANCE = 1  # how far a guessed number of them may be
MIN_PROBABILITY = 1e-9  # that one probability is divided by

# ---------------------------------------------------------------------------- records


class RelationAccuracy(NamedTuple):
    """How often the best head finds the word that words of a relation belong to, and how often the best rule does.

    head: None where none finds any. rule: the share of the best fixed distance.
    """

    head: Head | None
    head_accuracy: float
    rule_accuracy: float


@dataclass(frozen=True)
class TreebankAccuracy:
    """What heads find in a treebank, by relation. shares: (layer, head), how often each finds it; NaN where none is."""

    best: Mapping[str, RelationAccuracy]
    shares: Mapping[str, np.ndarray] = field(repr=False)


@dataclass(frozen=True)
class LinkedWord:
    """The word of a text to which the head that finds objects ties the last one.

    words: the text's. last, tied: numbers of words.
    """

    words: tuple[str, ...]
    last: int
    linked: int
    head: Head


@dataclass(frozen=True)
class OrderProbabilities:
    """How probable it is that B follows A, that A follows B, and that `STRANGER` follows A."""

    original: float
    swapped: float
    unrelated: float


@dataclass(frozen=True)
class NegationGuesses:
    """The first guesses for a gap in a sentence without "not" and with it, the likeliest first.

    share, share_with: the probability of the first of the guesses without "not", in both sentences. says_not: whether
    the sentence that was asked about is the one with "not".
    """

    plain: tuple[str, ...]
    negated: tuple[str, ...]
    plain_share: float
    negated_share: float
    says_not: bool


@dataclass(frozen=True)
class Leanings:
    """How far each of `OCCUPATIONS` leans to "he" in `FRAME`: ln p(he) - ln p(she); below 0 it leans to "she".

    raw: (occupation,), as it is. frame: what the sentence leans to when the occupation is hidden as well.
    """

    raw: tuple[float, ...]
    frame: float


@dataclass(frozen=True)
class Pronouns:
    """The probability of "he" and of "she" in the gap."""

    he: float
    she: float


@dataclass(frozen=True)
class WordLeanings:
    """How far the gap of a sentence leans to "he": raw, and what stays of it for each word.

    words: the text's. gap: the number of the word that is hidden. raw: ln p(he) - ln p(she) in the gap.
    own: (word,), raw less what it is when this word is hidden too; NaN for the gap.
    there: (word,), the same for this word in `FRAME`, less what that leans to with the word hidden.
    """

    words: tuple[str, ...]
    gap: int
    raw: float
    in_text: tuple[float, ...]
    in_frame: tuple[float, ...]


# ---------------------------------------------------------------------------- verdicts


def beyond_distance(found: TreebankAccuracy, answer: Option) -> Verdict:
    """Whether the answer, the number of a relation in `TIES`, is the one whose best head beats the best rule most."""
    relations = list(RELATIONS)
    chosen = relations[min(int(answer.minimum), len(relations) - 1)]
    gaps = {name: found.best[name].head_accuracy - found.best[name].rule_accuracy for name in relations}
    best = max(gaps, key=gaps.__getitem__)
    tie, own, near = found.best[best], found.best[chosen], found.best["amod"]

    return Verdict(
        chosen == best,
        (best,),
        {
            "yours": RELATIONS[chosen], "best": RELATIONS[best],
            "head": Phrase("no head") if tie.head is None else head_name(tie.head),
            "found": tie.head_accuracy, "rule": tie.rule_accuracy, "own_found": own.head_accuracy,
            "own_rule": own.rule_accuracy,
            "near_found": near.head_accuracy, "near_rule": near.rule_accuracy,
        },
        tuple(Bar(name, 100 * gaps[name], bar_mark(name, true=best, yours=chosen)) for name in relations),
        claim_holds=best == "obj" and gaps["obj"] > MIN_ADVANTAGE > gaps["amod"],
    )  # fmt: skip


def knows_a_relation(found: TreebankAccuracy, answer: Head) -> Verdict:
    """Whether the chosen head finds some relation better than the best rule, by 10 points or more."""
    gaps = {
        name: float(np.nan_to_num(shares[answer])) - found.best[name].rule_accuracy
        for name, shares in found.shares.items()
    }
    best = max(gaps, key=gaps.__getitem__)
    figures: Figures = {
        "head": head_name(answer), "relation": best, "share": gaps[best] + found.best[best].rule_accuracy,
        "rule": found.best[best].rule_accuracy,
    }  # fmt: skip
    return Verdict(gaps[best] >= MIN_ADVANTAGE, (best,), figures)


def tied_word(found: LinkedWord, answer: int) -> Verdict:
    """Whether the answer, the number of a word, is the one to which the head ties the last word."""
    if answer == found.last or answer not in range(len(found.words)):
        raise Refused(f"word {answer} cannot be the answer: choose another word than the last one")
    return Verdict(
        answer == found.linked,
        (found.words[found.linked],),
        {
            "head": head_name(found.head), "last": found.words[found.last], "word": found.words[found.linked],
            "yours": found.words[answer], "away": abs(found.last - found.linked),
        },
    )  # fmt: skip


def swapped_pair(found: OrderProbabilities, answer: Option) -> Verdict:
    """Whether the answer's range holds the probability that A follows B."""
    nearest = min(max(found.swapped, answer.minimum), answer.maximum)
    return Verdict(
        answer.minimum <= found.swapped <= answer.maximum,
        (found.swapped,),
        {"yours": answer.label, "follows": found.original, "swapped": found.swapped, "stranger": found.unrelated},
        (
            Bar("follows", found.original), Bar("yours", nearest, "yours"), Bar("swapped", found.swapped, "true"),
            Bar("stranger", found.unrelated),
        ),
        claim_holds=min(found.original, found.swapped) > HIGH_PROBABILITY and found.unrelated < LOW_PROBABILITY,
    )  # fmt: skip


def doubted_pair(found: OrderProbabilities, answer: None = None) -> Verdict:
    """Whether the pair is one that the model does not believe."""
    return Verdict(
        found.original < LOW_PROBABILITY, (found.original,), {"follows": found.original, "doubted": LOW_PROBABILITY}
    )


def guesses_that_stay(found: NegationGuesses, answer: float) -> Verdict:
    """Whether a guessed number is near to how many first guesses stay when "not" is put in."""
    stay = [word for word in found.plain if word in found.negated]
    gone = [word for word in found.plain if word not in found.negated]
    return Verdict(
        abs(answer - len(stay)) <= GUESSES_TOLERANCE,
        (float(len(stay)),),
        {
            **_of_negated(found), "yours": answer, "stay": len(stay), "gone": ", ".join(gone) or Phrase("none"),
            "kept": ", ".join(stay) or Phrase("none"), "all": len(found.plain), "near": GUESSES_TOLERANCE,
        },
        (Bar("yours", answer, "yours"), Bar("stay", len(stay), "true")),
        claim_holds=len(stay) > len(found.plain) / 2,
    )  # fmt: skip


def says_not(found: NegationGuesses, answer: None = None) -> Verdict:
    """Whether the sentence on the page says "not"."""
    return Verdict(found.says_not, (found.negated[0],), _of_negated(found))


def _of_negated(found: NegationGuesses) -> Figures:
    return {
        "first": found.plain[0], "first_with": found.negated[0], "share": found.plain_share,
        "share_with": found.negated_share,
    }  # fmt: skip


def she_first(found: Leanings, answer: float) -> Verdict:
    """Whether a guessed number is near to that of the occupations for which "she" is likelier than "he"."""
    raw = sum(leaning < 0 for leaning in found.raw)
    less_frame = [name for name, leaning in zip(OCCUPATIONS, found.raw, strict=True) if leaning < found.frame]
    odd = exp(found.raw[OCCUPATIONS.index(EXPLAINED_OCCUPATION)])
    return Verdict(
        abs(answer - raw) <= OCCUPATIONS_TOLERANCE,
        (float(raw),),
        {
            "yours": answer, "raw": raw, "less_frame": len(less_frame),
            "which": ", ".join(less_frame) or Phrase("none"),
            "frame": exp(found.frame), "odd": odd, "all": len(OCCUPATIONS), "near": OCCUPATIONS_TOLERANCE,
        },
        (Bar("yours", answer, "yours"), Bar("raw", raw, "true"), Bar("less_frame", len(less_frame))),
        claim_holds=raw <= OCCUPATIONS_TOLERANCE and len(less_frame) - raw >= 2 and odd > exp(found.frame),
    )  # fmt: skip


def she_is_likelier(found: Pronouns, answer: None = None) -> Verdict:
    """Whether "she" is likelier in the gap than "he"."""
    more, less = max(found.he, found.she), min(found.he, found.she)
    figures: Figures = {"he": found.he, "she": found.she, "times": more / max(less, MIN_PROBABILITY)}
    return Verdict(found.she > found.he, (found.she,), figures)


def another_frame(found: WordLeanings, answer: int) -> Verdict:
    """Whether the answer, the number of a word, leans to the other side in this sentence than in the lesson's."""
    if answer == found.gap or answer not in range(len(found.words)):
        raise Refused(f"word {answer} cannot be the answer: choose another word than the gap")
    own, there = found.in_text[answer], found.in_frame[answer]
    return Verdict(
        own * there < 0,
        (own,),
        {
            "word": found.words[answer], "side": _side(own), "side_there": _side(there), "side_raw": _side(found.raw),
            "times": exp(abs(own)), "times_there": exp(abs(there)), "times_raw": exp(abs(found.raw)),
        },
    )  # fmt: skip


def occupation_sentence(word: str) -> str:
    """The lesson's sentence on he and she, with this word as the occupation."""
    return FRAME.format("an" if word[:1].lower() in "aeiou" else "a", word)


def _side(leaning: float) -> str:
    return "he" if leaning > 0 else "she"


# ---------------------------------------------------------------------------- a sentence without "not" and with it

_VERB = re.compile(r"\b(?:am|is|are|was|were|can|could|will|would|should|must|may|might)\b", re.IGNORECASE)
_NOT = re.compile(r"(?<=\bcan)not\b|(?<=\w)n['’]t\b|\s+(?:not|never)\b", re.IGNORECASE)


def with_and_without_not(text: str) -> tuple[str, str] | None:
    """A sentence without "not" and with it: what it says is taken away, or put behind the first verb that takes it.

    None for a sentence that has neither.
    """
    if _NOT.search(text):
        return _NOT.sub("", text), text
    verb = _VERB.search(text)
    return None if verb is None else (text, f"{text[: verb.end()]} not{text[verb.end() :]}")


# ---------------------------------------------------------------------------- by name

CHECKS: Mapping[str, Check] = MappingProxyType({
    "beyond_distance": Check(
        beyond_distance, "ties", ("choice",), ("yours", "best", "head"),
        ("found", "rule", "own_found", "own_rule", "near_found", "near_rule"), tuple(RELATIONS),
    ),
    "knows_a_relation": Check(
        knows_a_relation, "ties", ("page",), ("head", "relation"), ("share", "rule"), page_choice="head"
    ),
    "tied_word": Check(tied_word, "tied", ("word",), ("head", "last", "word", "yours"), ("away",)),
    "swapped_pair": Check(
        swapped_pair, "both_orders", ("choice",), ("yours",), ("follows", "swapped", "stranger"),
        ("follows", "yours", "swapped", "stranger"),
    ),
    "doubted_pair": Check(doubted_pair, "both_orders", ("page",), (), ("follows", "doubted")),
    "guesses_that_stay": Check(
        guesses_that_stay, "negated", ("number",), ("first", "first_with", "gone", "kept"),
        ("yours", "stay", "all", "near", "share", "share_with"), ("yours", "stay"),
    ),
    "says_not": Check(says_not, "negated", ("page",), ("first", "first_with"), ("share", "share_with")),
    "she_first": Check(
        she_first, "leanings", ("number",), ("which",), ("yours", "raw", "less_frame", "frame", "odd", "all", "near"),
        ("yours", "raw", "less_frame"),
    ),
    "she_is_likelier": Check(she_is_likelier, "pronouns", ("page",), (), ("he", "she", "times")),
    "another_frame": Check(
        another_frame, "word_leanings", ("word",), ("word", "side", "side_there", "side_raw"),
        ("times", "times_there", "times_raw"),
    ),
})  # fmt: skip

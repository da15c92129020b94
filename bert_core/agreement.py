"""bert-agreement: sentences whose verb must agree with its subject, each beside others that differ in one word.

Made from the word lists below, by a rule without chance in it, so that the set is the same everywhere. Every form is
one piece of the usual uncased vocabulary, and so the texts of a frame stand token under token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import TypeVar

from bert_core import csv_cells
from bert_core.tokenizer import MASK

_Choice = TypeVar("_Choice")

STRUCTURES = ("alone", "adverb", "phrase", "clause")
"""What stands between the subject and its verb: nothing, an adverb, a prepositional phrase, a relative clause."""

NUMBERS = ("singular", "plural")
FRAME_COUNTS = {"alone": 180, "adverb": 180, "phrase": 240, "clause": 240}

_SUBJECTS = tuple(
    (word, f"{word}s") for word in (
        "author", "actor", "doctor", "teacher", "farmer", "artist", "lawyer", "student", "soldier", "driver", "singer",
        "dancer", "writer", "painter", "worker", "officer", "manager", "customer", "boy", "girl", "king", "queen",
        "friend", "guard", "captain", "pilot", "nurse", "judge", "poet", "player", "leader", "visitor", "minister",
        "senator", "hunter", "sailor", "prince", "guest", "parent", "neighbor",
    )
)  # fmt: skip
# As many of each as have no factor in common with the verbs, so that each of them meets each verb.
_ADVERBS = ("certainly", "probably", "clearly", "usually", "obviously", "apparently", "still", "now")
_PREPOSITIONS = ("near", "behind", "beside", "with", "opposite", "facing", "before")
# In the past, so that the verb of the clause does not tell the number of its subject.
_PAST = ("saw", "met", "helped", "loved", "hated", "followed", "called", "remembered", "trusted", "admired", "feared")
_ADJECTIVES = (
    "old", "tall", "young", "tired", "happy", "ready", "angry", "rich", "famous", "late", "afraid", "ill", "busy",
    "alone", "quiet", "strong", "careful", "proud", "honest", "hungry",
)  # fmt: skip
_POSSESSIONS = ("a garden", "no money", "a plan", "no choice", "a house", "little time", "a secret", "many books")
# The verb with a singular and with a plural subject, and what may follow it.
_VERBS = (
    ("is", "are", _ADJECTIVES), ("was", "were", _ADJECTIVES), ("has", "have", _POSSESSIONS),
)  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """One sentence, with its verb behind [MASK].

    frame: a number that its neighbours share, which differ from it in the number of one noun.
    structure: one of `STRUCTURES`. subject, attractor: "singular" or "plural"; attractor is "" where there is none.
    right, wrong: the verb in the number of the subject, and in the other.
    """

    frame: int
    structure: str
    subject: str
    attractor: str
    text: str
    right: str
    wrong: str

    @property
    def condition(self) -> str:
        """The structure, and whether a noun between subject and verb has the same number or the other."""
        if not self.attractor:
            return self.structure
        return f"{self.structure}, {'same' if self.attractor == self.subject else 'other'} number"


@cache
def sentences() -> tuple[Agreement, ...]:
    """All 2,640 sentences, frame after frame; in each frame every noun stands in either number."""
    return tuple(_sentences())


def conditions() -> tuple[str, ...]:
    """The conditions, in the order in which the sentences name them."""
    return tuple(dict.fromkeys(item.condition for item in sentences()))


def as_csv() -> str:
    """The set as a CSV file with the fields of `Agreement` as columns."""
    return csv_cells.as_csv([[field.name for field in fields(Agreement)], *map(astuple, sentences())])


def as_word_csv() -> str:
    """The set as a CSV file for probes: a row a word, and its labels.

    subject: of every word but the subject, the number of the subject, which its form does not tell; the verb is hidden.
    number: of every noun, its own, which its form tells.
    """
    rows: list[tuple[int | str, ...]] = [("sentence", "word", "subject", "number")]
    numbers = {form: number for forms in _SUBJECTS for form, number in zip(forms, NUMBERS, strict=True)}
    for sentence, item in enumerate(sentences()):
        for place, word in enumerate(item.text.rstrip(".").split()):
            rows.append((sentence, word, "" if place == 1 else item.subject, numbers.get(word, "")))
    return csv_cells.as_csv(rows)


def _sentences() -> Iterator[Agreement]:
    frame = 0
    for structure, frames in FRAME_COUNTS.items():
        for number in range(frames):
            subject = _turn(_SUBJECTS, number)
            # 40 nouns and a step of 7 a round: no subject stands twice beside the same other noun.
            other = _turn(_SUBJECTS, number + 1 + 7 * (number // len(_SUBJECTS)))
            singular, plural, predicates = _turn(_VERBS, number)
            rest = _turn(predicates, number // len(_VERBS) + number // len(_SUBJECTS))
            for of_subject, one, right, wrong in zip(
                NUMBERS, subject, (singular, plural), (plural, singular), strict=True
            ):
                for of_other, between in _between(structure, other, number):
                    text = f"The {one}{between} {MASK} {rest}."
                    yield Agreement(frame, structure, of_subject, of_other, text, right, wrong)
            frame += 1


def _between(structure: str, nouns: tuple[str, str], number: int) -> list[tuple[str, str]]:
    """The number of the noun between subject and verb, and the words there."""
    if structure == "alone":
        return [("", "")]
    if structure == "adverb":
        return [("", f" {_turn(_ADVERBS, number)}")]
    if structure == "phrase":
        words = [f" {_turn(_PREPOSITIONS, number)} the {noun}" for noun in nouns]
    else:
        words = [f" that the {noun} {_turn(_PAST, number)}" for noun in nouns]
    return list(zip(NUMBERS, words, strict=True))


def _turn(choices: tuple[_Choice, ...], number: int) -> _Choice:
    return choices[number % len(choices)]


if __name__ == "__main__":
    print(as_csv(), end="")

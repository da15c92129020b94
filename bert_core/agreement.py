"""The data set bert-agreement: minimal pairs for subject-verb agreement in English.

The sentences are generated from the word lists below without randomness, so that the set is always the same. Every
word is one token of BERT's uncased vocabulary, so the sentences of a frame have equal lengths and aligned tokens.
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
"""What separates the subject from its verb: nothing, an adverb, a prepositional phrase or a relative clause."""

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
# The lengths of these lists are coprime to the number of verbs, so that each word occurs with each verb.
_ADVERBS = ("certainly", "probably", "clearly", "usually", "obviously", "apparently", "still", "now")
_PREPOSITIONS = ("near", "behind", "beside", "with", "opposite", "facing", "before")
# These verbs are in the past tense, so that the verb of the relative clause does not reveal the number of its subject.
_PAST = ("saw", "met", "helped", "loved", "hated", "followed", "called", "remembered", "trusted", "admired", "feared")
_ADJECTIVES = (
    "old", "tall", "young", "tired", "happy", "ready", "angry", "rich", "famous", "late", "afraid", "ill", "busy",
    "alone", "quiet", "strong", "careful", "proud", "honest", "hungry",
)  # fmt: skip
_POSSESSIONS = ("a garden", "no money", "a plan", "no choice", "a house", "little time", "a secret", "many books")
# Each verb with a singular and with a plural subject, and its possible predicates.
_VERBS = (
    ("is", "are", _ADJECTIVES), ("was", "were", _ADJECTIVES), ("has", "have", _POSSESSIONS),
)  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """A sentence with [MASK] in place of its verb.

    frame: number of the frame. Sentences of one frame differ only in the number of their nouns.
    structure: one of `STRUCTURES`.
    subject: grammatical number of the subject, "singular" or "plural".
    attractor: grammatical number of the noun between subject and verb; "" if there is none.
    text: the sentence.
    right, wrong: form of the verb that agrees with the subject, and form that does not.
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
        """Structure, and whether a noun between subject and verb has the same number as the subject or the other."""
        if not self.attractor:
            return self.structure
        return f"{self.structure}, {'same' if self.attractor == self.subject else 'other'} number"


@cache
def sentences() -> tuple[Agreement, ...]:
    """Return all 2,640 sentences, frame by frame. Each frame has every combination of the numbers of its nouns."""
    return tuple(_generate_sentences())


def conditions() -> tuple[str, ...]:
    """Return the conditions, in the order of their first sentences."""
    return tuple(dict.fromkeys(item.condition for item in sentences()))


def as_csv() -> str:
    """Return the data set as CSV text, with the fields of `Agreement` as columns."""
    return csv_cells.as_csv([[field.name for field in fields(Agreement)], *map(astuple, sentences())])


def as_word_csv() -> str:
    """Return the words of the data set with labels for probes as CSV text, one row per word.

    The column `subject` has the number of the subject, for every word except the subject itself. The number must be
    inferred from the context, because the verb is masked. The column `number` has each noun's own number, which its
    form shows.
    """
    rows: list[tuple[int | str, ...]] = [("sentence", "word", "subject", "number")]
    numbers = {form: number for forms in _SUBJECTS for form, number in zip(forms, NUMBERS, strict=True)}
    for sentence, item in enumerate(sentences()):
        for position, word in enumerate(item.text.rstrip(".").split()):
            rows.append((sentence, word, "" if position == 1 else item.subject, numbers.get(word, "")))
    return csv_cells.as_csv(rows)


def _generate_sentences() -> Iterator[Agreement]:
    """Yield the sentences of all frames."""
    frame = 0
    for structure, frames in FRAME_COUNTS.items():
        for number in range(frames):
            subject_forms = _cycle(_SUBJECTS, number)
            # With 40 nouns and an offset that grows by 7 each round, no pair of subject and attractor repeats.
            attractor_forms = _cycle(_SUBJECTS, number + 1 + 7 * (number // len(_SUBJECTS)))
            singular, plural, predicates = _cycle(_VERBS, number)
            predicate = _cycle(predicates, number // len(_VERBS) + number // len(_SUBJECTS))
            for subject, noun, right, wrong in zip(
                NUMBERS, subject_forms, (singular, plural), (plural, singular), strict=True
            ):
                for attractor, words in _interveners(structure, attractor_forms, number):
                    text = f"The {noun}{words} {MASK} {predicate}."
                    yield Agreement(frame, structure, subject, attractor, text, right, wrong)
            frame += 1


def _interveners(structure: str, nouns: tuple[str, str], number: int) -> list[tuple[str, str]]:
    """Return (number of the attractor, words) for each text between subject and verb in a frame."""
    if structure == "alone":
        return [("", "")]
    if structure == "adverb":
        return [("", f" {_cycle(_ADVERBS, number)}")]
    if structure == "phrase":
        words = [f" {_cycle(_PREPOSITIONS, number)} the {noun}" for noun in nouns]
    else:
        words = [f" that the {noun} {_cycle(_PAST, number)}" for noun in nouns]
    return list(zip(NUMBERS, words, strict=True))


def _cycle(choices: tuple[_Choice, ...], number: int) -> _Choice:
    """Return the choice with a number, counted cyclically."""
    return choices[number % len(choices)]


if __name__ == "__main__":
    print(as_csv(), end="")

"""Sentences with one predicted word, whose relevant words are known."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core.refused import Refused, require_int, require_sequence, short_repr
from bert_core.tokenizer import MASK


@dataclass(frozen=True)
class TruthSentence:
    """A sentence with [MASK] in place of one word, and the words that determine this word.

    text: the sentence.
    relevant: (start, end) of each relevant word, in characters of the text.
    right, wrong: the word that belongs at [MASK], and the word that it is compared with.
    condition: kind of the sentence, such as "phrase, other number".
    group: name of the group of sentences that share their words; empty for a sentence that shares none.
    Raises Refused unless the text has exactly one [MASK], and each relevant word is inside the text.
    """

    text: str
    relevant: tuple[tuple[int, int], ...]
    right: str
    wrong: str
    condition: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "right", "wrong", "condition", "group"):
            if not isinstance(getattr(self, name), str):
                raise Refused(f"{name} is {short_repr(getattr(self, name))}: it must be a text")
        if self.text.count(MASK) != 1:
            raise Refused(f"the sentence {self.text!r:.60} has {self.text.count(MASK)} {MASK}: it must have one")
        spans = require_sequence("relevant", self.relevant, "pairs (start, end)")
        for span in spans:
            pair = [
                require_int("a relevant word", limit)
                for limit in require_sequence("a relevant word", span, "two numbers, (start, end)")
            ]
            if len(pair) != 2 or not 0 <= pair[0] < pair[1] <= len(self.text):
                raise Refused(
                    f"the relevant word {short_repr(span)} is not inside the text of {len(self.text)} characters"
                )
        if not spans:
            raise Refused(f"the sentence {self.text!r:.60} has no relevant word: give at least one")

"""Texts to start from; each was chosen because the bundled model gets it right (see its model card)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bert_core.loading import ASSETS
from viz_app.shell.language import translate

FILE = ASSETS / "headlight-mini" / "examples.json"
TREES = Path(__file__).parent / "trees.conllu"  # sixty sentences with their dependency trees


@dataclass(frozen=True)
class Example:
    """A text, perhaps a second one, and the words that are masked in it.

    target, contrast: as in the address bar; empty for the first there is, and for no other word. remark: what there is
    to see, in Markdown.
    follows: whether the second text follows the first.
    """

    text: str
    pair: str = ""
    masked: tuple[int, ...] = ()
    target: str = ""
    contrast: str = ""
    remark: str = ""
    is_continuation: bool = False

    @property
    def title(self) -> str:
        """What is hidden, and what comes after it."""
        words = re.findall(r"\w+|[^\w\s]", self.text)
        names = ", ".join(words[number] for number in self.masked)
        hidden = translate("{piece}, hidden").format(piece=names) if self.masked else translate("Nothing hidden")
        return hidden + (translate("; B follows") if self.is_continuation else translate("; B does not follow")) * bool(
            self.pair
        )

    @property
    def full_text(self) -> str:
        """The text, and the second one behind a bar."""
        return f"{self.text} | {self.pair}" if self.pair else self.text


@cache
def all_examples() -> tuple[Example, ...]:
    """The examples that come with the bundled model."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Example(e["text"], e.get("pair", ""), tuple(e.get("masked", ())), is_continuation=e["follows"]) for e in entries
    )


def first_example() -> Example:
    """What a new visitor sees."""
    return all_examples()[0]


def by_kind(surprises: Iterable[Example]) -> dict[str, list[Example]]:
    """The examples to choose from, under a heading each. surprises: those of pages, the simplest to explain first."""
    return {
        "With a surprise": sorted(surprises, key=lambda example: len(example.remark)),
        "The second sentence follows": [example for example in all_examples() if example.is_continuation],
        "The second sentence comes from elsewhere": [
            example for example in all_examples() if not example.is_continuation
        ],
    }


# What stands in for a head that is taken out by mean or resample, until other texts are given.
REFERENCE = "\n".join(
    (
        "She opened the window and looked out at the garden.",
        "The train left the station at noon, and nobody was late.",
        "He wrote a long letter to his sister about the war.",
        "Most of the water in the lake comes from the mountains.",
    )
)

"""Texts to start from; each was chosen because the bundled model gets it right (see its model card)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from bert_core.loading import ASSETS

FILE = ASSETS / "headlight-mini" / "examples.json"


@dataclass(frozen=True)
class Example:
    """A text, perhaps a second one, and the words that are masked in it."""

    text: str
    pair: str = ""
    masked: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """What the button says."""
        return f"{self.text} | {self.pair}" if self.pair else self.text


@cache
def all_examples() -> tuple[Example, ...]:
    """The examples that come with the bundled model."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(Example(e["text"], e.get("pair", ""), tuple(e.get("masked", ()))) for e in entries)


def first() -> Example:
    """What a new visitor sees."""
    return all_examples()[0]

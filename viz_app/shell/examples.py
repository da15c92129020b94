"""Example texts, chosen because the bundled model predicts them correctly (see its model card)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from bert_core.loading import ASSETS
from viz_app.texts import page_texts

TEXTS = page_texts("frame")
FILE = ASSETS / "headlight-mini" / "examples.json"


@dataclass(frozen=True)
class Example:
    """A text, an optional second one, and the numbers of its masked words.

    target, contrast: as in the address; "" for the first target, and for no contrast. remark: explanation in Markdown.
    is_continuation: whether the second text follows the first.
    """

    text: str
    pair: str = ""
    masked: tuple[int, ...] = ()
    target: str = ""
    contrast: str = ""
    remark: str = ""
    is_continuation: bool = False

    @property
    def masked_words(self) -> str:
        """The hidden words, separated by commas."""
        words = re.findall(r"\w+|[^\w\s]", self.text)
        return ", ".join(words[number] for number in self.masked)

    @property
    def title(self) -> str:
        """The hidden words, and whether the second text follows."""
        hidden = TEXTS["tokens.masked"].format(piece=self.masked_words) if self.masked else TEXTS["examples.no_mask"]
        if not self.pair:
            return hidden
        return hidden + (TEXTS["examples.follows"] if self.is_continuation else TEXTS["examples.does_not_follow"])

    @property
    def full_text(self) -> str:
        """The text, followed by a bar and the second one."""
        return f"{self.text} | {self.pair}" if self.pair else self.text


@cache
def all_examples() -> tuple[Example, ...]:
    """Return the examples of the bundled model."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Example(e["text"], e.get("pair", ""), tuple(e.get("masked", ())), is_continuation=e["follows"]) for e in entries
    )


def first_example() -> Example:
    """Return the example of a new visitor."""
    return all_examples()[0]


def by_kind(surprises: Iterable[Example]) -> dict[str, list[Example]]:
    """Return examples by the key of their heading. surprises: those of pages, sorted by the length of their remarks."""
    return {
        "surprise": sorted(surprises, key=lambda example: len(example.remark)),
        "continuation": [example for example in all_examples() if example.is_continuation],
        "no_continuation": [example for example in all_examples() if not example.is_continuation],
    }


# Default texts for the replacement of a removed head by mean or resample.
REFERENCE = "\n".join(
    (
        "She opened the window and looked out at the garden.",
        "The train left the station at noon, and nobody was late.",
        "He wrote a long letter to his sister about the war.",
        "Most of the water in the lake comes from the mountains.",
    )
)

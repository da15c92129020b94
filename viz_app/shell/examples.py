"""Texts to start from; each was chosen because the bundled model gets it right (see its model card)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache

from bert_core.loading import ASSETS

FILE = ASSETS / "headlight-mini" / "examples.json"


@dataclass(frozen=True)
class Example:
    """A text, perhaps a second one, and the words that are masked in it.

    target: as in the address bar; empty for the first there is. remark: what there is to see, in Markdown.
    follows: whether the second text follows the first.
    """

    text: str
    pair: str = ""
    masked: tuple[int, ...] = ()
    target: str = ""
    remark: str = ""
    follows: bool = False

    @property
    def title(self) -> str:
        """What is hidden, and what comes after it."""
        words = re.findall(r"\w+|[^\w\s]", self.text)
        hidden = f"{', '.join(words[number] for number in self.masked)}, hidden" if self.masked else "Nothing hidden"
        return hidden + ("; B follows" if self.follows else "; B does not follow") * bool(self.pair)

    @property
    def both(self) -> str:
        """The text, and the second one behind a bar."""
        return f"{self.text} | {self.pair}" if self.pair else self.text


# What the bundled model does here was looked up by masking each word in turn; a test does it again.
SURPRISE = Example(
    "He drank a cup of tea with milk.",
    masked=(5,),
    target="6:tea",
    remark="**Look at “milk”:** it gets the most attention of all words. But did it lead to “tea”? DecompX says yes; "
    "gradient x attention and occlusion say no: hide “milk”, and “tea” rises from 0.17 to 0.33. All are right: “milk” "
    "adds 2.8 to the score of “tea”, but 5.6 to the score of “milk”, which the model would rather put in the gap. "
    "Explain “tea” *rather than “milk”*, above, and DecompX says no, too.",
)


def is_shown(example: Example, text: str, pair: str, masked: tuple[int, ...]) -> bool:
    """Whether this is what is chosen."""
    return (example.text, example.pair, example.masked) == (text, pair, masked)


@cache
def all_examples() -> tuple[Example, ...]:
    """The examples that come with the bundled model."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Example(e["text"], e.get("pair", ""), tuple(e.get("masked", ())), follows=e["follows"]) for e in entries
    )


def first() -> Example:
    """What a new visitor sees."""
    return all_examples()[0]


# Found by a search through the examples and prompts of the model card, for pages where another text shows more.
_OF_PAGES = {
    "layers": Example(
        "The ship sailed from England to America.",
        masked=(5,),
        remark="With the logit lens, L2 to L4 read “England and America”, as if only the last layer knew the answer. "
        "With the tuned lens “to” comes first after L1 already: earlier layers may know it in another form.",
    ),
    "why": SURPRISE,
}


def by_kind() -> dict[str, list[Example]]:
    """The examples to choose from, under a heading each."""
    return {
        "With a surprise": list(_OF_PAGES.values()),
        "The second sentence follows": [example for example in all_examples() if example.follows],
        "The second sentence comes from elsewhere": [example for example in all_examples() if not example.follows],
    }


def of_page(page: str) -> Example:
    """What a visitor sees on a page who has not chosen a text."""
    return _OF_PAGES.get(page, first())


# What stands in for a head that is taken out by mean or resample, until other texts are given.
REFERENCE = "\n".join(
    (
        "She opened the window and looked out at the garden.",
        "The train left the station at noon, and nobody was late.",
        "He wrote a long letter to his sister about the war.",
        "Most of the water in the lake comes from the mountains.",
    )
)

# One word in four sentences, and two sentences to compare, for the pages that do not read the shared text.
LIKE = "bank"
SEVERAL = "\n".join(
    (
        "They sat on the bank of the river and looked at the water.",
        "The boat was tied up at the bank of the stream.",
        "She put her money in the bank every month.",
        "The bank raised its interest rates and lent less money.",
    )
)
# Another text, to compare one's own with.
OTHER = "She closed the window and sat down."
COMPARED = Example(
    "The picture of the children is on the wall.",
    "The picture of the children are on the wall.",
    remark="The second sentence is wrong, yet the model prefers it: the verb agrees with the nearest noun, “children”, "
    "and not with “picture”; and next to “are”, “children” is far likelier too. People make the same mistake.",
)

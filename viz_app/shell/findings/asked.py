"""What a check of a lesson is asked about, and how long its record should take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.lessons import View
from viz_app.shell import question
from viz_app.shell.choices import Head, parse_head
from viz_app.shell.models import shown_name
from viz_app.shell.question import Question
from viz_app.shell.work import Work, seconds_of


@dataclass(frozen=True)
class Asked:
    """What a check is asked about: a text on a model, and what is chosen on the page.

    encoding: as the model reads it. original: without the masks. began: the text of the lesson, as it began.
    head: the chosen one. first: that of the lesson. off: the heads that are off.
    """

    loaded: LoadedModel
    encoding: Encoding
    original: Encoding
    began: Encoding
    head: Head
    first: Head
    off: tuple[Head, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the text is another one than that of the lesson."""
        return (self.original.text, self.original.pair) != (self.began.text, self.began.pair)


def of_lesson(loaded: LoadedModel, view: View) -> Asked:
    """What a step asks about by its own address, whatever is on the page."""
    address = view.address
    original = loaded.tokenizer.encode(
        address["text"], address.get("pair", ""), max_length=loaded.config.max_position_embeddings
    )
    masked = question.parse_words(address.get("masked", ""))
    encoding = loaded.tokenizer.mask_words(original, [word for word in masked if word < original.word_count])
    layer, number = parse_head(address.get("head", "0.0"))
    # Of a smaller model the last head that it has.
    head = (min(layer, loaded.config.num_hidden_layers - 1), min(number, loaded.config.num_attention_heads - 1))
    return Asked(loaded, encoding, original, encoding, head, head)


def of_page(current: Question, view: View, head: Head) -> Asked:
    """What is on the page now, beside the text of the lesson. head: the chosen one."""
    began = of_lesson(current.loaded, view)
    return Asked(
        current.loaded, current.encoding, current.original, began.encoding, head, began.head, current.off
    )  # fmt: skip


def work_of(asked: Asked, what: str, label: str, do: Callable[..., Any], passes: float, *more: Any) -> Work[Any]:
    """A record as work for the queue. more: what it is asked of besides the text and the model."""
    encoding, loaded = asked.encoding, asked.loaded
    key = ("lesson", what, loaded.name, encoding, *more)
    return Work(key, f"{shown_name(loaded.name)} {label}", do, seconds_of(loaded, len(encoding), passes))


def has_words(asked: Asked) -> None:
    """Raise Refused for a model that cannot guess words."""
    if not asked.loaded.has_mlm:
        raise Refused("this model was not trained to guess hidden words: choose another model")

"""What a check of a lesson is asked about, and how long its record should take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.tokenizer import Encoding
from viz_app.lessons import View
from viz_app.shell import selection
from viz_app.shell.language import translate
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Head, parse_head
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, estimate_seconds

MAX_TOKENS = 64  # of a text in a lesson
TEXT_CHOICES = ("several", "one", "two")  # what a page asks about that is not about the shared text


@dataclass(frozen=True)
class CheckContext:
    """What a check is asked about: a text on a model, and what is chosen on the page.

    encoding: as the model reads it. original: without the masks. began: the text of the lesson, as it began.
    head: the chosen one. first: that of the lesson. off: the heads that are off.
    chosen: the choices of the page, by their names, as its address writes them. begins: those of the lesson.
    """

    loaded: LoadedModel
    encoding: Encoding
    original: Encoding
    lesson_encoding: Encoding
    head: Head
    lesson_head: Head
    off: tuple[Head, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    lesson_choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def hidden(self) -> set[int | None]:
        """The numbers of the words that the model does not see."""
        return {self.original.words[at] for at in self.encoding.mask_positions}

    @property
    def is_own(self) -> bool:
        """Whether the text, or what a page has in its place, is another one than that of the lesson."""
        texts = [name for name in TEXT_CHOICES if name in self.lesson_choices]
        if texts:
            return any(self.choices.get(name) != self.lesson_choices[name] for name in texts)
        return (self.original.text, self.original.pair) != (self.lesson_encoding.text, self.lesson_encoding.pair)


def lesson_context(loaded: LoadedModel, view: View, begins: Mapping[str, str] | None = None) -> CheckContext:
    """What a step asks about by its own address, whatever is on the page.

    begins: the address of the page that the lesson works on, if it is another one.
    """
    address = view.address
    original = loaded.tokenizer.encode(
        address["text"], address.get("pair", ""), max_length=loaded.config.max_position_embeddings
    )
    masked = selection.parse_words(address.get("masked", ""))
    encoding = loaded.tokenizer.mask_words(original, [word for word in masked if word < original.word_count])
    layer, number = parse_head(address.get("head", "0.0"))
    # Of a smaller model the last head that it has.
    head = (min(layer, loaded.config.num_hidden_layers - 1), min(number, loaded.config.num_attention_heads - 1))
    begins = address if begins is None else begins
    return CheckContext(loaded, encoding, original, encoding, head, head, choices=begins, lesson_choices=begins)


def page_context(began: CheckContext, current: Selection | None, head: Head, chosen: Mapping[str, str]) -> CheckContext:
    """What is on the page now, beside what the lesson began with.

    current: None on a page that is not about the shared text. head: the chosen one. chosen: as in `Asked`.
    """
    if current is None:
        return replace(began, head=head, choices=chosen)
    return replace(
        began, encoding=current.encoding, original=current.original, head=head, off=current.off, choices=chosen
    )


def record_work(
    asked: CheckContext, what: str, label: str, do: Callable[..., Any], passes: float, *more: Any
) -> Work[Any]:
    """A record as work for the queue. more: what it is asked of besides the text and the model."""
    encoding, loaded = asked.encoding, asked.loaded
    memory = forward_bytes(loaded, len(encoding), math.ceil(passes))
    key = ("lesson", what, loaded.weights_key, encoding, *more)
    return Work(
        key, f"{shown_name(loaded.name)} {label}", do, estimate_seconds(loaded, len(encoding), passes), memory=memory
    )


def require_word_head(asked: CheckContext) -> None:
    """Raise Refused for a model that cannot guess words."""
    if not asked.loaded.has_head("words"):
        raise Refused(translate("this model was not trained to guess hidden words: choose another model"))


def hidden_word(asked: CheckContext) -> int:
    """The one word that is hidden. Raises Refused where it is none, or more than one."""
    require_word_head(asked)
    encoding, original = asked.encoding, asked.original
    hidden = {original.words[at] for at in encoding.mask_positions if encoding.tokens[at] != original.tokens[at]}
    word = next(iter(hidden), None)
    if len(hidden) != 1 or word is None or len(encoding.mask_positions) != 1:
        raise Refused(translate("hide exactly one short word of the sentence on top of the page: click it"))
    if original.word_count < 3:
        raise Refused(translate("the sentence is too short: write three words or more"))
    return word

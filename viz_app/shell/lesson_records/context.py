"""The context in which an answer is checked, and the cost of its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bert_core.loading import LoadedModel
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.tokenizer import Encoding
from viz_app.lessons import Lesson, View
from viz_app.shell import selection
from viz_app.shell.language import translate
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Head, parse_head
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, estimate_seconds

MAX_TOKENS = 64  # of a text in a lesson
TEXT_CHOICES = ("sentences", "sentence_a", "sentence_b")  # choices of a page that replace the shared text
# The names of choices that a check reads by those of version 0.2, as lessons may contain them; see `Param.old_name`.
CURRENT_NAMES = {"several": "sentences", "like": "common_word", "one": "sentence_a", "two": "sentence_b"}


@dataclass(frozen=True)
class CheckContext:
    """A text on a model, and the choices of the page.

    encoding, original: the text with and without its masks. lesson_encoding: the text of the lesson with its masks.
    head, lesson_head: the chosen head and that of the lesson. off: heads that are off. choices, lesson_choices: the
    choices of the page and those of the lesson, by name, as an address contains them.
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
    def words(self) -> tuple[str, ...]:
        """The words of the text."""
        return tuple(self.original.word_text(word) for word in range(self.original.word_count))

    @property
    def hidden(self) -> set[int | None]:
        """The numbers of the words that are hidden from the model."""
        return {self.original.words[position] for position in self.encoding.mask_positions}

    @property
    def is_own(self) -> bool:
        """Whether the text, or the choices that replace it, differ from those of the lesson."""
        names = [name for name in TEXT_CHOICES if name in self.lesson_choices]
        if names:
            return any(self.choices.get(name) != self.lesson_choices[name] for name in names)
        lesson = self.lesson_encoding
        return (self.original.text, self.original.pair) != (lesson.text, lesson.pair)


def lesson_context(loaded: LoadedModel, view: View, lesson_choices: Mapping[str, str] | None = None) -> CheckContext:
    """Return the context at the address of a view, independent of the page.

    lesson_choices: the address of the page of the exercise, if that is another one; names of version 0.2 are replaced.
    """
    address, config = view.address, loaded.config
    original = loaded.tokenizer.encode(
        address["text"], address.get("pair", ""), max_length=config.max_position_embeddings
    )
    masked = selection.parse_words(address.get("masked", ""))
    encoding = loaded.tokenizer.mask_words(original, [word for word in masked if word < original.word_count])
    layer, number = parse_head(address.get("head", "0.0"))
    # A smaller model has its last head instead.
    head = (min(layer, config.num_hidden_layers - 1), min(number, config.num_attention_heads - 1))
    choices = address if lesson_choices is None else lesson_choices
    choices = {CURRENT_NAMES.get(name, name): value for name, value in choices.items()}
    return CheckContext(loaded, encoding, original, encoding, head, head, choices=choices, lesson_choices=choices)


def prediction_context(loaded: LoadedModel, lesson: Lesson) -> CheckContext:
    """Return the context of the prediction of a lesson."""
    return lesson_context(loaded, lesson.predict.view, lesson.exercise.view.address)


def page_context(
    lesson: CheckContext, current: Selection | None, head: Head, choices: Mapping[str, str]
) -> CheckContext:
    """Return the context of the page beside that of the lesson.

    current: None on a page without the shared text. head: the chosen one. choices: as in `CheckContext`.
    """
    context = replace(lesson, head=head, choices=choices)
    if current is None:
        return context
    return replace(context, encoding=current.encoding, original=current.original, off=current.off)


def record_work(
    context: CheckContext, name: str, label: str, compute: Callable[..., Any], passes: float, *key: Any
) -> Work[Any]:
    """Return the work that computes a record.

    passes: forward passes that it needs. key: its inputs besides the text and the model.
    """
    encoding, loaded = context.encoding, context.loaded
    return Work(
        ("lesson", name, loaded.weights_key, encoding, *key),
        f"{shown_name(loaded.name)} {label}",
        compute,
        estimate_seconds(loaded, len(encoding), passes),
        memory=forward_bytes(loaded, len(encoding), math.ceil(passes)),
    )


def check_length(tokens: int, sentence: str, maximum: int = MAX_TOKENS, **values: int) -> None:
    """Raise Refused for too many tokens. sentence: with {tokens}, {most} and the names of `values`."""
    if tokens > maximum:
        raise Refused(sentence.format(tokens=tokens, most=maximum, **values))


def require_word_head(context: CheckContext) -> None:
    """Raise Refused for a model that does not predict words."""
    if not context.loaded.has_head("words"):
        raise Refused(translate("this model was not trained to guess hidden words: choose another model"))


def hidden_word(context: CheckContext) -> int:
    """Return the number of the only hidden word. Raises Refused for none or several, or for a short sentence."""
    require_word_head(context)
    encoding, original = context.encoding, context.original
    positions = encoding.mask_positions
    hidden = {original.words[place] for place in positions if encoding.tokens[place] != original.tokens[place]}
    word = next(iter(hidden), None)
    if len(hidden) != 1 or word is None or len(positions) != 1:
        raise Refused(translate("hide exactly one short word of the sentence on top of the page: click it"))
    require_three_words(context)
    return word


def require_three_words(context: CheckContext) -> None:
    """Raise Refused for a sentence of fewer than three words."""
    if context.original.word_count < 3:
        raise Refused(translate("the sentence is too short: write three words or more"))


def first_guess(run: ModelRun, position: int) -> tuple[int, float]:
    """Return the token id and the probability of the first guess at a masked position."""
    prediction = run.prediction_at(position)
    assert prediction is not None  # the position is masked
    return prediction.top[0]

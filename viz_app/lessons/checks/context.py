"""The context in which an answer is checked, and the records that checks compute from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding

Head = tuple[int, int]  # layer, head
MAX_TOKENS = 64  # of a text in a lesson
TEXT_CHOICES = ("sentences", "sentence_a", "sentence_b")  # choices of a page that replace the shared text


class Phrase(str):
    """A sentence or a part of one that is of Headlight, not of the text or the model, and is therefore translated."""


class Unsuitable(Refused):
    """A text or a model that a check cannot be applied to. sentence: with the names of `values` in braces."""

    def __init__(self, sentence: str, **values: object) -> None:
        super().__init__(sentence.format(**values))
        self.sentence, self.values = sentence, values


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

    def numbers(self, choice: str, *default: int) -> tuple[int, ...]:
        """Return the whole numbers in a choice, separated by points, as many as there are default ones."""
        parts = self.choices.get(choice, ".".join(map(str, default))).split(".")
        try:
            numbers = tuple(map(int, parts))
        except ValueError:
            numbers = ()
        if len(numbers) != len(default):
            raise Refused(f"{choice}={self.choices[choice][:60]!r} is not possible: {len(default)} whole numbers")
        return numbers


@dataclass(frozen=True)
class Record:
    """How the data that a check needs are computed from a model.

    compute: returns them. label: of the work, after the name of the model. passes: forward passes that it needs. key:
    what they depend on besides the text and the model; raises Refused where they cannot be computed.
    """

    compute: Callable[[CheckContext, Progress], Any]
    label: str
    passes: Callable[[CheckContext], float]
    key: Callable[[CheckContext], object]


def record(
    label: str,
    passes: float | Callable[[CheckContext], float] = 1,
    key: Callable[[CheckContext], object] = lambda _: None,
) -> Callable[[Callable[[CheckContext, Progress], Any]], Record]:
    """Return a decorator that makes a `Record` of the function that computes it."""
    count = passes if callable(passes) else lambda _: passes
    return lambda compute: Record(compute, label, count, key)


def check_length(tokens: int, sentence: Phrase, maximum: int = MAX_TOKENS, **values: int) -> None:
    """Raise Refused for too many tokens. sentence: with {tokens}, {most} and the names of `values`."""
    if tokens > maximum:
        raise Unsuitable(sentence, tokens=tokens, most=maximum, **values)


def require_word_head(context: CheckContext) -> CheckContext:
    """Return the context. Raises Refused for a model that does not predict words."""
    if not context.loaded.has_head("words"):
        raise Unsuitable("this model was not trained to predict masked words: choose another model")
    return context


def hidden_word(context: CheckContext) -> int:
    """Return the number of the only hidden word. Raises Refused for none or several, or for a short sentence."""
    require_word_head(context)
    encoding, original = context.encoding, context.original
    positions = encoding.mask_positions
    hidden = {original.words[place] for place in positions if encoding.tokens[place] != original.tokens[place]}
    word = next(iter(hidden), None)
    if len(hidden) != 1 or word is None or len(positions) != 1:
        raise Unsuitable("mask exactly one short word of the sentence on top of the page: click it")
    require_three_words(context)
    return word


def require_three_words(context: CheckContext) -> CheckContext:
    """Return the context. Raises Refused for a sentence of fewer than three words."""
    if context.original.word_count < 3:
        raise Unsuitable("the sentence is too short: write three words or more")
    return context


def first_guess(run: ModelRun, position: int) -> tuple[int, float]:
    """Return the token id and the probability of the first guess at a masked position."""
    prediction = run.prediction_at(position)
    assert prediction is not None  # the position is masked
    return prediction.top[0]

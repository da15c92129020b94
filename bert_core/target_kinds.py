"""What can be asked of a task head, in words: the kinds of targets, and the questions that studies ask of every text.

A row of either table names its task head, which `bert_core.task_heads` declares. `register_head` adds rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, nan, tanh
from string import Formatter

from bert_core.refused import Refused, require_sequence, short_repr
from bert_core.registry import Table

# ---------------------------------------------------------------------------- targets

# Values that a target may need -> what an error calls them.
TARGET_VALUES: Mapping[str, str] = {
    "position": "a position", "token_id": "a token_id", "against": "the one it stands against", "label": "a label",
    "pieces": "the pieces that it asks for", "last": "a last place",
    "other": "another text", "pooled": "the positions that are pooled",
}  # fmt: skip
# Values that a target written as text can have -> what its form calls them.
TEXT_VALUES: Mapping[str, str] = {"position": "POSITION", "last": "LAST", "label": "LABEL"}
RESERVED_NAMES = ("like", "alike")  # beginnings of targets that no kind may have as its name
# Names that the sentences of a kind may be formatted with.
_TEMPLATE_NAMES = ("word", "other", "label", "text", "first", "last", "count")
_ALLOWED_NAMES: Mapping[str, tuple[str, ...]] = {
    "title": _TEMPLATE_NAMES, "question": (*_TEMPLATE_NAMES, "verdict"), "supports": _TEMPLATE_NAMES, "value_text": ("value", "probability", "loss"),
}  # fmt: skip


@dataclass(frozen=True)
class TargetKind:
    """One kind of target: the head that computes it, the values that it needs, and the sentences about it.

    needs: names of the fields that a `Target` of this kind must have. head: name of the task head that computes it.
    unit: of its value. link: "exp" or "sigmoid", the function that makes a probability of the value; None if the value
    alone does not determine one. mean: whether the value is the mean over the pieces of the target, not their sum.
    offer: its name in a list of targets. question: what is asked. supports: what a positive contribution supports.
    value_text: how confident the model is. `offer`, `question` and `supports` are formatted with the names that
    `TaskHead.template_values` returns (word, other, label, text, first, last, count), `question` also with verdict, and `value_text`
    with value, probability and loss.
    Raises Refused for a value, a function or a name in a sentence that does not exist.
    """

    needs: tuple[str, ...]
    head: str
    unit: str
    link: str | None
    title: str
    question: str
    supports: str
    value_text: str
    mean: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", require_sequence("needs", self.needs, "names of values"))
        for need in self.needs:
            if not isinstance(need, str) or need not in TARGET_VALUES:
                raise Refused(f"a target cannot need {short_repr(need)}: its values are {', '.join(TARGET_VALUES)}")
        if self.link is not None and (not isinstance(self.link, str) or self.link not in ("exp", "sigmoid")):
            raise Refused(f"the link is {short_repr(self.link)}: it must be 'exp', 'sigmoid' or None")
        for sentence, allowed in _ALLOWED_NAMES.items():
            if unknown := set(_template_names(sentence, getattr(self, sentence))) - set(allowed):
                raise Refused(f"{sentence} names {short_repr(sorted(unknown)[0])}: it may name {', '.join(allowed)}")

    @property
    def has_text_form(self) -> bool:
        """Whether a target of this kind is written as the name of the kind and the values that it needs."""
        return all(need in TEXT_VALUES for need in self.needs)

    def probability(self, value: float) -> float | None:
        """The probability that belongs to a value (nats); None if the value alone does not determine one."""
        if self.link is None:
            return None
        return exp(value) if self.link == "exp" else (1 + tanh(value / 2)) / 2

    def format_value(self, value: float, written: Callable[[float], str]) -> str:
        """The sentence `value_text` for a value. written: formats a number."""
        probability = self.probability(value)
        numbers = {"value": value, "loss": -value, "probability": nan if probability is None else probability}
        return self.value_text.format(**{name: written(number) for name, number in numbers.items()})


def _template_names(sentence: str, template: str) -> list[str]:
    """The names that a template is formatted with. Raises Refused for one that is no template."""
    try:
        return [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except (TypeError, ValueError) as error:
        raise Refused(
            f"{sentence} is {short_repr(template)}: it must be a text with names in braces ({error})"
        ) from error


_NATS, _WORD, _LOGIT = "nats of log-probability", "“{word}”", "units of its logit"
_KINDS: dict[str, TargetKind] = {
    "mlm": TargetKind(
        ("position", "token_id"), "words", _NATS, "exp",
        "“{word}” at {first}", "Why “{word}” at position {first}?", _WORD, "probability {probability}",
    ),
    "contrast": TargetKind(
        ("position", "token_id", "against"), "words", "nats between the two words", "sigmoid",
        "“{word}” at {first} rather than “{other}”", "Why “{word}” rather than “{other}” at position {first}?", _WORD,
        "difference of the two logits {value}",
    ),
    "joint": TargetKind(
        ("pieces",), "words", _NATS, "exp",
        "“{word}” at {first} to {last}, whole", "Why “{word}” at positions {first} to {last}?", _WORD,
        "probability {probability}",
    ),
    "loss": TargetKind(
        ("pieces",), "words", f"{_NATS} per piece", "exp",
        "all hidden words together", "Which words help to guess all {count} hidden pieces?", "the hidden words",
        "loss {loss} nats per piece", mean=True,
    ),
    # A difference of logits is one of log-odds, so in nats too.
    "nsp": TargetKind(
        (), "next", "nats of log-odds", "sigmoid",
        "“B follows A”", "Why does it {verdict} B?", "“B follows A”", "probability that B follows A: {probability}",
    ),
    "class": TargetKind(
        ("label",), "classifier", _LOGIT, None,
        "class “{label}”", "Why the class “{label}”?", "the class “{label}”", "logit {value}",
    ),
    "tag": TargetKind(
        ("position", "label"), "tagger", _LOGIT, None,
        "“{word}” as {label}", "Why “{label}” for “{word}”?", "the tag “{label}” of “{word}”", "logit {value}",
    ),
    # What answers are ranked by: Devlin 2019, section 4.2 (arXiv:1810.04805).
    "span": TargetKind(
        ("position", "last"), "reader", "units of its two logits", None,
        "answer “{word}”", "Why the answer “{word}”?", "the answer “{word}”", "sum of its two logits {value}",
    ),
    # The logit of one choice alone determines no probability.
    "choice": TargetKind(
        (), "chooser", _LOGIT, None,
        "choice “{text}”", "Why the choice “{text}”?", "the choice “{text}”", "logit {value}",
    ),
    # A cosine is no probability: the cosine itself is followed.
    "similarity": TargetKind(
        ("other", "pooled"), "pooling", "units of the cosine", None,
        "like “{text}”", "What makes it like “{text}”?", "being like “{text}”", "cosine {value}",
    ),
    "replaced": TargetKind(
        ("position",), "detector", "nats of log-odds", "sigmoid",
        "“{word}” at {first} replaced", "Why does “{word}” at position {first} look replaced, or not?",
        "“{word}” being replaced", "probability {probability}",
    ),
}  # fmt: skip
TARGET_KINDS = Table(_KINDS)


def text_form(name: str, kind: TargetKind) -> str | None:
    """How targets of a kind are written, as in "tag:POSITION:LABEL"; None where a value cannot be written."""
    return ":".join([name, *map(TEXT_VALUES.__getitem__, kind.needs)]) if kind.has_text_form else None


# ---------------------------------------------------------------------------- questions about a file


@dataclass(frozen=True)
class FileQuestion:
    """A question that studies ask of every text of a file: of its heads, of its explanation, of a method.

    head: name of the task head that answers. loss: unit of the mean loss, after its number, as in "nats a class to
    tell". judged: kinds of a study of methods -> their titles. of_target: whether the loss is minus the mean value of
    the targets of the text; else it is a cross-entropy. explained: whether `explain_file` asks it. pairs: whether it is
    about two texts. apart: whether these two are read one by one. takes_word: whether one word for all texts restricts
    it. takes_answer: whether a column of the table may hold the answers.
    Raises Refused for a `judged` that is no mapping.
    """

    head: str
    loss: str
    faithfulness_kinds: Mapping[str, str] = field(default_factory=dict)
    loss_from_targets: bool = True
    explained: bool = True
    pairs: bool = False
    separate_texts: bool = False
    takes_word: bool = False
    takes_answer: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.faithfulness_kinds, Mapping):
            raise Refused(f"judged is {short_repr(self.faithfulness_kinds)}: it must be a mapping of kinds to titles")


_QUESTIONS: dict[str, FileQuestion] = {
    "words": FileQuestion(
        "words", "nats a hidden piece", {"content": "A masked content word", "function": "A masked function word"},
        loss_from_targets=False, explained=False,
    ),
    "next": FileQuestion("next", "nats a pair to tell", {"nsp": "B follows A"}, loss_from_targets=False, pairs=True),
    "word": FileQuestion(
        "words", "nats a piece of the word", {"word": "A word at a mask"},
        loss_from_targets=False, takes_word=True, takes_answer=True,
    ),
    "class": FileQuestion(
        "classifier", "nats a class to tell", {"class": "The class of a text"}, loss_from_targets=False, takes_answer=True
    ),
    "tag": FileQuestion("tagger", "of a logit a tag", {"tag": "The tag of a word"}, takes_word=True),
    "span": FileQuestion("reader", "of two logits an answer", {"span": "The answer to a question"}, pairs=True),
    "replaced": FileQuestion(
        "detector", "nats of log-odds a token", {"replaced": "A token that looks replaced"}, takes_word=True
    ),
    "similarity": FileQuestion(
        "pooling", "of the cosine a pair", {"similarity": "How alike two sentences are"}, pairs=True, separate_texts=True
    ),
}  # fmt: skip
FILE_QUESTIONS = Table(_QUESTIONS)


def target_questions() -> tuple[str, ...]:
    """Names of the file questions whose loss is minus the value of targets."""
    return tuple(name for name, question in FILE_QUESTIONS.items() if question.loss_from_targets)


def faithfulness_kinds() -> dict[str, str]:
    """Kinds of a study of methods -> their titles, in the order of the questions."""
    return {kind: title for question in FILE_QUESTIONS.values() for kind, title in question.faithfulness_kinds.items()}


# ---------------------------------------------------------------------------- registration


def add_rows(kinds: Mapping[str, TargetKind], questions: Mapping[str, FileQuestion]) -> None:
    """Add the kinds and questions of a task head; `task_heads.register_head` calls it after its checks."""
    _KINDS.update(kinds)
    _QUESTIONS.update(questions)


def remove_rows(head: str) -> None:
    """Remove all kinds and questions of a task head."""
    for rows in (_KINDS, _QUESTIONS):
        for name in [name for name, row in rows.items() if row.head == head]:
            del rows[name]

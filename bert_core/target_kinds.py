"""Kinds of targets and questions about files: the texts and settings of task heads that need no model.

Each row of `TARGET_KINDS` and `FILE_QUESTIONS` names its task head, which `bert_core.task_heads` declares.
`register_head` adds rows. The command line reads these tables without importing torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, nan, tanh
from string import Formatter

from bert_core.deprecation import RenamedAttribute, renamed_fields
from bert_core.refused import Refused, require_sequence, short_repr
from bert_core.registry import Table

# ---------------------------------------------------------------------------- targets

# Fields of a target that a kind may need -> their names in error messages.
TARGET_VALUES: Mapping[str, str] = {
    "position": "a position", "token_id": "a token_id", "against": "a second token_id (against)", "label": "a label",
    "pieces": "the masked pieces and their tokens", "last": "a last position",
    "other": "a second text", "pooled": "the pooled positions", "name": "a name", "function": "a function",
}  # fmt: skip
# Fields of a target that its text form can have -> their placeholders in that form.
TEXT_VALUES: Mapping[str, str] = {"position": "POSITION", "last": "LAST", "label": "LABEL"}
CUSTOM = "custom"  # kind of targets whose value is a function, and name of their head
RESERVED_NAMES = ("like", "alike")  # first words of other text forms of targets
_TEMPLATE_NAMES = ("word", "other", "label", "text", "first", "last", "count")
# Template of a target kind -> the names that it may contain.
_ALLOWED_NAMES: Mapping[str, tuple[str, ...]] = {
    "title": _TEMPLATE_NAMES,
    "question": (*_TEMPLATE_NAMES, "verdict"),
    "supports": _TEMPLATE_NAMES,
    "value_text": ("value", "probability", "loss"),
}


@renamed_fields(offer="title", speaks_for="supports", says="value_text")
@dataclass(frozen=True)
class TargetKind:
    """One kind of target: the head that computes it, the fields that it needs, and the texts about it.

    needs: names of the fields that a `Target` of this kind must have, keys of `TARGET_VALUES`.
    head: name of the task head that computes it.
    unit: unit of its value.
    link: "exp" or "sigmoid", the function from the value to a probability; None if the value alone has no probability.
    title: its title in a list of targets.
    question: the question that an explanation answers.
    supports: what a positive contribution supports.
    value_text: sentence about the value.
    mean: whether the value is the mean over the pieces of the target instead of their sum.

    `title`, `question`, `supports` and `value_text` are templates of `str.format`. The first three may contain the
    names that `TaskHead.template_values` returns (word, other, label, text, first, last, count). `question` may also
    contain verdict. `value_text` may contain value, probability and loss.
    Raises Refused for an unknown field, link function or name in a template.
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
        object.__setattr__(self, "needs", require_sequence("needs", self.needs, "names of fields"))
        for need in self.needs:
            if not isinstance(need, str) or need not in TARGET_VALUES:
                raise Refused(f"needs contains {short_repr(need)}: a target has the fields {', '.join(TARGET_VALUES)}")
        if self.link is not None and (not isinstance(self.link, str) or self.link not in ("exp", "sigmoid")):
            raise Refused(f"link is {short_repr(self.link)}: it must be 'exp', 'sigmoid' or None")
        for field_name, allowed in _ALLOWED_NAMES.items():
            if unknown := set(_template_names(field_name, getattr(self, field_name))) - set(allowed):
                raise Refused(
                    f"{field_name} contains {{{sorted(unknown)[0]}}}: it may contain {', '.join(allowed)}, in braces"
                )

    @property
    def has_text_form(self) -> bool:
        """Whether targets of this kind have a text form: the name of the kind, followed by the fields that it needs."""
        return all(need in TEXT_VALUES for need in self.needs)

    def probability(self, value: float) -> float | None:
        """Return the probability for a value in nats, or None if the value alone does not determine one."""
        if self.link is None:
            return None
        return exp(value) if self.link == "exp" else (1 + tanh(value / 2)) / 2

    def format_value(self, value: float, format_number: Callable[[float], str]) -> str:
        """Return `value_text` filled in for a value. format_number: function that formats a number."""
        probability = self.probability(value)
        numbers = {"value": value, "loss": -value, "probability": nan if probability is None else probability}
        return self.value_text.format(**{name: format_number(number) for name, number in numbers.items()})

    is_written = RenamedAttribute("has_text_form")
    said = RenamedAttribute("format_value")


def _template_names(field_name: str, template: str) -> list[str]:
    """Return the names in a template. Raises Refused for an invalid template, with the name of its field."""
    try:
        return [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except (TypeError, ValueError) as error:
        raise Refused(
            f"{field_name} is {short_repr(template)}: it must be a text with names in braces ({error})"
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
        "all masked words together", "Which words do the predictions of all {count} masked tokens depend on?",
        "the masked words",
        "loss {loss} nats per piece", mean=True,
    ),
    # The difference of the two logits is the log-odds, in nats.
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
    # The sum of the two logits is the score of an answer: Devlin 2019, section 4.2 (arXiv:1810.04805).
    "span": TargetKind(
        ("position", "last"), "reader", "units of its two logits", None,
        "answer “{word}”", "Why the answer “{word}”?", "the answer “{word}”", "sum of its two logits {value}",
    ),
    # The probability depends on the logits of all answer options, so one logit alone has none.
    "choice": TargetKind(
        (), "chooser", _LOGIT, None,
        "choice “{text}”", "Why the choice “{text}”?", "the choice “{text}”", "logit {value}",
    ),
    # A cosine has no probability, so methods report the cosine itself.
    "similarity": TargetKind(
        ("other", "pooled"), "pooling", "units of the cosine", None,
        "like “{text}”", "What makes it like “{text}”?", "being like “{text}”", "cosine {value}",
    ),
    "replaced": TargetKind(
        ("position",), "detector", "nats of log-odds", "sigmoid",
        "“{word}” at {first} replaced", "Why does “{word}” at position {first} look replaced, or not?",
        "“{word}” being replaced", "probability {probability}",
    ),
    CUSTOM: TargetKind(
        ("name", "function"), CUSTOM, "units of the target", None,
        "“{word}”", "Why this value of “{word}”?", "a larger value of “{word}”", "value {value}",
    ),
}  # fmt: skip
TARGET_KINDS = Table(_KINDS)


def text_form(name: str, kind: TargetKind) -> str | None:
    """Return the text form of a kind, for example "tag:POSITION:LABEL", or None if it has none."""
    return ":".join([name, *map(TEXT_VALUES.__getitem__, kind.needs)]) if kind.has_text_form else None


# ---------------------------------------------------------------------------- questions about a file


@renamed_fields(judged="faithfulness_kinds", of_target="loss_from_targets", apart="separate_texts")
@dataclass(frozen=True)
class FileQuestion:
    """A question that studies of files evaluate for every text: its loss, its explanation and a check of methods.

    head: name of the task head that answers it.
    loss: unit of the mean loss, printed after its number, for example "nats per text".
    faithfulness_kinds: kinds of rows in a study of the faithfulness of methods -> their titles.
    loss_from_targets: whether the loss is minus the mean value of the targets of the text. Otherwise it is a
        cross-entropy.
    explained: whether `explain_file` supports the question.
    pairs: whether the question is about two texts.
    separate_texts: whether the two texts are encoded separately.
    takes_word: whether one word for all texts can restrict the targets.
    takes_answer: whether a column of the table can hold the answers.
    Raises Refused if `faithfulness_kinds` is not a mapping.
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
            raise Refused(
                f"faithfulness_kinds is {short_repr(self.faithfulness_kinds)}: it must be a mapping of kinds to titles"
            )


_QUESTIONS: dict[str, FileQuestion] = {
    "words": FileQuestion(
        "words", "nats per masked piece", {"content": "A masked content word", "function": "A masked function word"},
        loss_from_targets=False, explained=False,
    ),
    "next": FileQuestion("next", "nats per pair", {"nsp": "B follows A"}, loss_from_targets=False, pairs=True),
    "word": FileQuestion(
        "words", "nats per piece of the word", {"word": "A word at a mask"},
        loss_from_targets=False, takes_word=True, takes_answer=True,
    ),
    "class": FileQuestion(
        "classifier", "nats per text", {"class": "The class of a text"},
        loss_from_targets=False, takes_answer=True,
    ),
    "tag": FileQuestion("tagger", "units of the logit per tag", {"tag": "The tag of a word"}, takes_word=True),
    "span": FileQuestion(
        "reader", "units of the two logits per answer", {"span": "The answer to a question"}, pairs=True
    ),
    "replaced": FileQuestion(
        "detector", "nats of log-odds per token", {"replaced": "A replaced token"}, takes_word=True
    ),
    "similarity": FileQuestion(
        "pooling", "units of the cosine per pair", {"similarity": "The similarity of two sentences"},
        pairs=True, separate_texts=True,
    ),
}  # fmt: skip
FILE_QUESTIONS = Table(_QUESTIONS)


def target_questions() -> tuple[str, ...]:
    """Return the names of the questions whose loss is minus the mean value of their targets."""
    return tuple(name for name, question in FILE_QUESTIONS.items() if question.loss_from_targets)


def faithfulness_kinds() -> dict[str, str]:
    """Return the kinds of rows of a study of the faithfulness of methods -> their titles, in the order of questions.

    The last kind is that of a custom target.
    """
    titles = {kind: name for row in FILE_QUESTIONS.values() for kind, name in row.faithfulness_kinds.items()}
    return {**titles, CUSTOM: "A custom target"}


# ---------------------------------------------------------------------------- registration


def add_rows(kinds: Mapping[str, TargetKind], questions: Mapping[str, FileQuestion]) -> None:
    """Add the kinds and questions of a task head, after the checks of `task_heads.register_head`."""
    _KINDS.update(kinds)
    _QUESTIONS.update(questions)


def remove_rows(head: str) -> None:
    """Remove all kinds and questions of a task head."""
    for rows in (_KINDS, _QUESTIONS):
        for name in [name for name, row in rows.items() if row.head == head]:
            del rows[name]

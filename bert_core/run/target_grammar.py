"""Targets as text: one grammar for the library, the `--target` option of commands, and addresses of pages.

WORD                  the word at the only mask, or at the first masks that it fits
WORD at POSITION      the word at this mask; POSITION:WORD means the same
... rather than WORD  compared with another word
loss                  all hidden words together
nsp, choice           a kind without further values
class:LABEL           a kind with its values in the order of `TargetKind.needs`; a label by number or name:
tag:POSITION:LABEL    tag:4:B-PER, tag:4:1, span:7:9, replaced:3
like:TEXT             how alike the text and another are
alike:A, alike:B      how alike the texts of a pair are, A or B being explained; each is read by itself

A name alone that is also a piece of the vocabulary means the kind if the model has its head; with a position, the word.
"""

from __future__ import annotations

from typing import NamedTuple

from bert_core.loading import LoadedModel
from bert_core.records import Target, hidden_pieces, word_target
from bert_core.refused import Refused, short_repr, validate_arguments
from bert_core.run.similarity import read_sentence, similarity_target
from bert_core.target_kinds import TARGET_KINDS, text_form
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding, join_pieces

CONTRAST_SEPARATOR = " rather than "
MAX_DIGITS = 9  # of a position or the number of a label


class TextTarget(NamedTuple):
    """A target, and the text that it is about: the given one, or for `alike` one text of the pair by itself."""

    target: Target
    encoding: Encoding


def target_forms(loaded: LoadedModel | None = None) -> list[str]:
    """How each kind of target is written, of all kinds or of those of the trained heads of a model."""
    heads = [name for name, head in TASK_HEADS.items() if loaded is None or head.is_trained(loaded)]
    forms = ["POSITION:WORD"] * ("words" in heads)
    forms += [form for name, kind in TARGET_KINDS.items() if kind.head in heads and (form := text_form(name, kind))]
    return [*forms, "like:TEXT"]


@validate_arguments
def parse_target(
    loaded: LoadedModel,
    encoding: Encoding,
    text: str,
    *,
    original: Encoding | None = None,
    label: str = "the target",
) -> TextTarget:
    """The target that a text in the grammar of this module stands for.

    original: the text before words were hidden; without it nothing counts as hidden, and `loss` is a word.
    what: how errors name the text, as the option of a command.
    Raises Refused, with the allowed forms, for anything else; whether the model can compute it, `check_target` says.
    """
    name, colon, values = text.partition(":")
    name = name.strip()
    if name == "like" and values:  # of the other text every space counts
        return TextTarget(similarity_target(loaded, encoding, read_sentence(loaded, values)), encoding)
    values = values.strip()
    if name == "alike" and values in ("A", "B"):
        if encoding.pair is None:
            raise Refused(f"{label} is {short_repr(text)}: that needs a second text")
        both = [
            encode_pair_text(loaded, encoding, original or encoding, side)
            for side in (values, "BA"["AB".index(values)])
        ]
        return TextTarget(similarity_target(loaded, *both), both[0])
    if name == "loss" and not colon and original is not None and (pieces := hidden_pieces(encoding, original)):
        return TextTarget(Target("loss", pieces=pieces), encoding)
    if name in TARGET_KINDS and TARGET_KINDS[name].has_text_form:
        head = TASK_HEADS[TARGET_KINDS[name].head]
        # A name alone may also be a word that fits the gap.
        is_word = (
            not colon and encoding.mask_positions and loaded.tokenizer.has_token(name) and loaded.has_head("words")
        )
        if head.is_trained(loaded) or not is_word:
            return TextTarget(_of_kind(loaded, name, values, text, label), encoding)
    return TextTarget(_word(loaded, encoding, text, label), encoding)


def _of_kind(loaded: LoadedModel, name: str, values: str, written: str, what: str) -> Target:
    needs, labels = TARGET_KINDS[name].needs, TASK_HEADS[TARGET_KINDS[name].head].labels(loaded)
    given: dict[str, int] = {}
    rest = values
    for number, need in enumerate(needs):
        value, _, rest = rest.partition(":") if number < len(needs) - 1 else (rest, "", "")
        if need == "label" and value in labels and not value.isdecimal():
            given[need] = labels.index(value)
        elif need == "label" and value and not value.isdecimal():
            raise Refused(f"the {name} {value!r:.60} does not exist: {loaded.name} has {', '.join(labels) or 'none'}")
        elif _is_number(value):
            given[need] = int(value)
    if len(given) < len(needs) or (values and not needs):
        raise Refused(f"{what} is {short_repr(written)}: write {text_form(name, TARGET_KINDS[name])}")
    return Target(name, **given)  # type: ignore[arg-type]


def _is_number(text: str) -> bool:
    """Whether a text is a position or the number of a label; Python reads no numbers of thousands of digits."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


def _word(loaded: LoadedModel, encoding: Encoding, written: str, what: str) -> Target:
    """The target of a word. A piece of the vocabulary may also be asked for at a position that is not hidden."""
    tokenizer = loaded.tokenizer
    text, _, against = written.partition(CONTRAST_SEPARATOR)
    place, colon, word = text.partition(":")
    if not (colon and _is_number(place) and word):
        word, at, place = text.rpartition(" at ")
        if not (at and _is_number(place.strip())):
            word, place = text, ""
    if not word.strip() or (colon and not place and not tokenizer.has_token(word.strip())):
        raise Refused(f"{what} is {short_repr(written)}: write {', '.join(target_forms(loaded))}")
    position = int(place) if place else None
    if position is None and not encoding.mask_positions:
        forms = ", ".join(target_forms(loaded))
        raise Refused(f"{what} is {short_repr(written)}: no word is hidden, so hide one, or write {forms}")
    if position is not None and position not in encoding.mask_positions and not against:
        if not tokenizer.has_token(word):
            raise Refused(
                f"{what} is {short_repr(written)}: the vocabulary of {loaded.name} has no piece {word!r:.60}, and no word "
                f"is hidden at position {position}"
            )
        return Target("mlm", position, tokenizer.id_of(word))
    return word_target(tokenizer, encoding, word, position=position, against=against or None)


@validate_arguments
def format_target(loaded: LoadedModel, target: Target) -> str:
    """The text from which `parse_target` makes a target again: a word with its position, labels as numbers."""
    if target.other is not None:
        return f"like:{target.other.text}"
    if target.target_kind.has_text_form:
        return ":".join([target.kind, *(str(getattr(target, need)) for need in target.target_kind.needs)])
    if target.kind == "loss":
        return target.kind
    token_of = loaded.tokenizer.token_of
    word = f"{target.rows[0]}:{join_pieces(token_of(token) for _, token in target.target_pieces)}"
    return word if target.against is None else f"{word}{CONTRAST_SEPARATOR}{token_of(target.against)}"


def encode_pair_text(loaded: LoadedModel, encoding: Encoding, original: Encoding, side: str) -> Encoding:
    """One text of a pair, "A" or "B", by itself, with the words hidden that are hidden in the pair.

    original: the pair before words were hidden.
    """
    alone = read_sentence(loaded, encoding.text if side == "A" else encoding.pair or "")
    own = dict.fromkeys(word for word, of in zip(encoding.words, encoding.sides, strict=True) if of == side)
    pieces = zip(encoding.words, encoding.tokens, original.tokens, strict=True)
    changed = {word for word, token, typed in pieces if token != typed}
    hidden = [number for number, word in enumerate(own) if word in changed and number < alone.word_count]
    return loaded.tokenizer.mask_words(alone, hidden)

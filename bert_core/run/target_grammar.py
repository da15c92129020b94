"""Text form of targets: one grammar for the library, the `--target` option of commands, and addresses of pages.

WORD                  the word at the only mask, or at the only run of masks as long as the word
WORD at POSITION      the word at this mask; POSITION:WORD means the same
... rather than WORD  contrast with another word
loss                  all masked words together
nsp, choice           a kind of target without values
class:LABEL           a kind with its values in the order of `TargetKind.needs`; a label is a number or a name:
tag:POSITION:LABEL    tag:4:B-PER, tag:4:1, span:7:9, replaced:3
like:TEXT             cosine similarity of the text and another text
alike:A, alike:B      cosine similarity of the texts of a pair, encoded separately; text A or B is explained

If the name of a kind is also a token of the vocabulary, the name alone means the kind if the model has its head. The
name with a position means the word.
"""

from __future__ import annotations

from typing import NamedTuple

from bert_core.deprecation import renamed_parameters
from bert_core.loading import LoadedModel
from bert_core.records import Target, masked_pieces, word_target
from bert_core.refused import Refused, short_repr, validate_arguments
from bert_core.run.similarity import read_sentence, similarity_target
from bert_core.target_kinds import CUSTOM, TARGET_KINDS, text_form
from bert_core.task_heads import TASK_HEADS
from bert_core.tokenizer import Encoding, join_pieces

CONTRAST_SEPARATOR = " rather than "
MAX_DIGITS = 9  # of a position or a label number


class TextTarget(NamedTuple):
    """A target and its text: the given text, or for `alike` one text of the pair encoded separately."""

    target: Target
    encoding: Encoding


def target_forms(loaded: LoadedModel | None = None) -> list[str]:
    """List the text forms of all kinds of targets, or of those for which a model has a trained head."""
    heads = [name for name, head in TASK_HEADS.items() if loaded is None or head.is_trained(loaded)]
    forms = ["POSITION:WORD"] * ("words" in heads)
    forms += [form for name, kind in TARGET_KINDS.items() if kind.head in heads and (form := text_form(name, kind))]
    return [*forms, "like:TEXT"]


@renamed_parameters(written="text", what="label")
@validate_arguments
def parse_target(
    loaded: LoadedModel,
    encoding: Encoding,
    text: str,
    *,
    original: Encoding | None = None,
    label: str = "the target",
) -> TextTarget:
    """Parse a target in the grammar of this module.

    encoding: the text that the target belongs to. text: the text form of the target.
    original: the text before words were masked; without it no word counts as masked, and "loss" means the word.
    label: how messages name the text form, such as the option of a command.
    Raises Refused, with the allowed forms, for any other text. `check_target` checks whether a model can compute the
    target.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> encoding = loaded.tokenizer.encode("She opened the [MASK] and walked in.")
    >>> target, _ = bert_core.parse_target(loaded, encoding, "door rather than window")
    >>> target.kind
    'contrast'
    >>> bert_core.format_target(loaded, target)
    '4:door rather than window'
    """
    name, colon, values = text.partition(":")
    name = name.strip()
    if name == "like" and values:  # spaces belong to the text
        return TextTarget(similarity_target(loaded, encoding, read_sentence(loaded, values)), encoding)
    values = values.strip()
    if name == "alike" and values in ("A", "B"):
        if encoding.pair is None:
            raise Refused(f"{label} is {short_repr(text)}: this target needs a second text")
        encodings = [
            encode_pair_text(loaded, encoding, original or encoding, side)
            for side in (values, "BA"["AB".index(values)])
        ]
        return TextTarget(similarity_target(loaded, *encodings), encodings[0])
    if name == "loss" and not colon and original is not None and (pieces := masked_pieces(encoding, original)):
        return TextTarget(Target("loss", pieces=pieces), encoding)
    if name == CUSTOM and colon:
        raise Refused(f"{label} is {short_repr(text)}: a function has no text form, so give the Target in Python")
    if name in TARGET_KINDS and TARGET_KINDS[name].has_text_form:
        head = TASK_HEADS[TARGET_KINDS[name].head]
        # The name of a kind may also be a word for the mask.
        is_word = (
            not colon and encoding.mask_positions and loaded.tokenizer.has_token(name) and loaded.has_head("words")
        )
        if head.is_trained(loaded) or not is_word:
            return TextTarget(_kind_target(loaded, name, values, text, label), encoding)
    return TextTarget(_word_target(loaded, encoding, text, label), encoding)


def _kind_target(loaded: LoadedModel, name: str, values: str, text: str, label: str) -> Target:
    """Parse the values of a named kind of target."""
    needs, labels = TARGET_KINDS[name].needs, TASK_HEADS[TARGET_KINDS[name].head].labels(loaded)
    fields: dict[str, int] = {}
    remainder = values
    for number, need in enumerate(needs):
        value, _, remainder = remainder.partition(":") if number < len(needs) - 1 else (remainder, "", "")
        if need == "label" and value in labels and not value.isdecimal():
            fields[need] = labels.index(value)
        elif need == "label" and value and not value.isdecimal():
            raise Refused(f"the {name} {value!r:.60} does not exist: {loaded.name} has {', '.join(labels) or 'none'}")
        elif _is_number(value):
            fields[need] = int(value)
    if len(fields) < len(needs) or (values and not needs):
        raise Refused(f"{label} is {short_repr(text)}: write {text_form(name, TARGET_KINDS[name])}")
    return Target(name, **fields)  # type: ignore[arg-type]


def _is_number(text: str) -> bool:
    """Return whether a text is a position or a label number; very long numbers would make `int` raise an error."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


def _word_target(loaded: LoadedModel, encoding: Encoding, text: str, label: str) -> Target:
    """Parse a word target; a token of the vocabulary may also be the target at a position that is not masked."""
    tokenizer = loaded.tokenizer
    word_text, _, contrast_word = text.partition(CONTRAST_SEPARATOR)
    place, colon, word = word_text.partition(":")
    if not (colon and _is_number(place) and word):
        word, separator, place = word_text.rpartition(" at ")
        if not (separator and _is_number(place.strip())):
            word, place = word_text, ""
    if not word.strip() or (colon and not place and not tokenizer.has_token(word.strip())):
        raise Refused(f"{label} is {short_repr(text)}: write {', '.join(target_forms(loaded))}")
    position = int(place) if place else None
    if position is None and not encoding.mask_positions:
        forms = ", ".join(target_forms(loaded))
        raise Refused(f"{label} is {short_repr(text)}: no word is masked, so mask one, or write {forms}")
    if position is not None and position not in encoding.mask_positions and not contrast_word:
        if not tokenizer.has_token(word):
            raise Refused(
                f"{label} is {short_repr(text)}: the vocabulary of {loaded.name} has no token {word!r:.60}, and no "
                f"word is masked at position {position}"
            )
        return Target("mlm", position, tokenizer.id_of(word))
    return word_target(tokenizer, encoding, word, position=position, against=contrast_word or None)


@validate_arguments
def format_target(loaded: LoadedModel, target: Target) -> str:
    """Format a target as the text that `parse_target` parses, with words at positions and labels as numbers.

    A custom target has no such text: the result is "custom:NAME", which `parse_target` refuses.
    """
    if target.function is not None:
        return f"{target.kind}:{target.name}"
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
    """Encode one text of a pair separately, with the words masked that are masked in the pair.

    encoding: the pair. original: the pair before words were masked. side: "A" or "B".
    """
    single = read_sentence(loaded, encoding.text if side == "A" else encoding.pair or "")
    side_words = dict.fromkeys(
        word for word, word_side in zip(encoding.words, encoding.sides, strict=True) if word_side == side
    )
    pieces = zip(encoding.words, encoding.tokens, original.tokens, strict=True)
    changed = {word for word, token, original_token in pieces if token != original_token}
    masked_words = [number for number, word in enumerate(side_words) if word in changed and number < single.word_count]
    return loaded.tokenizer.mask_words(single, masked_words)

"""Tags of tokens, words and spans: from the predictions of a token classifier to named entities and their counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bert_core.deprecation import renamed_fields
from bert_core.records import ModelRun
from bert_core.refused import Refused, require_sequence, short_repr, validate_arguments
from bert_core.tokenizer import Side

OUTSIDE_TAG = "O"
_TAG_PATTERN = re.compile(r"([BIES])(?:-(.+))?", re.DOTALL)
_BEGIN_MARKS = ("B", "S")  # of the first word of a span
_INNER_MARKS = ("I", "E")  # of a later word of a span
_OPEN_MARKS = ("B", "I")  # of a word that is not the last of its span


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text with the predicted tag of its first word piece.

    word: number of the word. position: position of its first word piece.
    label: the most probable tag. probability: probability of this tag.
    """

    word: int
    text: str
    side: Side
    position: int
    label: str
    probability: float


@renamed_fields(begun="has_begin_tag")
@dataclass(frozen=True)
class TagSpan:
    """Consecutive words that form one unit, such as a name of two words.

    kind: kind of the span, as "PER".
    first, last: numbers of the first and the last word.
    has_begin_tag: whether the first tag marks a beginning (B- or S-). Otherwise the span starts with an I- or E- tag.
    """

    kind: str
    first: int
    last: int
    has_begin_tag: bool = True


@validate_arguments
def tagged_words(run: ModelRun) -> tuple[TaggedWord, ...]:
    """Return the words of a text with the tags of their first word pieces.

    The tags of later word pieces are ignored, because the model was not trained on them.

    Raises Refused if the run has no predictions of a token classifier.
    Source: Devlin 2019, section 5.3 (arXiv:1810.04805).
    """
    if not isinstance(run, ModelRun) or run.tags is None:
        description = "of a model without a token classifier" if isinstance(run, ModelRun) else short_repr(run)
        raise Refused(f"the run is {description}: it must be a result of `capture` for a model with a token classifier")
    encoding = run.encoding
    words: list[TaggedWord] = []
    for position, (word, side) in enumerate(zip(encoding.words, encoding.sides, strict=True)):
        if word is not None and side is not None and (not words or words[-1].word != word):
            label = run.tags.order_at(position)[0]
            probability = float(run.tags.probabilities[position, label])
            tag = run.tags.labels[label]
            words.append(TaggedWord(word, encoding.word_text(word), side, position, tag, probability))
    return tuple(words)


@validate_arguments
def tags_mark_spans(tags: Sequence[str]) -> bool:
    """Return whether tags mark spans, in one of the schemes IOB1, IOB2 (BIO) or IOBES.

    Each tag must be O or start with B-, I-, E- or S-, and at least one must not be O. Part-of-speech tags do not mark
    spans.
    """
    tag_set = set(require_sequence("tags", tags, "texts"))
    return bool(tag_set - {OUTSIDE_TAG}) and all(_parse_tag(tag) is not None for tag in tag_set)


@validate_arguments
def tag_spans(tags: Sequence[str]) -> tuple[TagSpan, ...]:
    """Return the spans that the tags of consecutive words mark, with word numbers from zero.

    A continuation tag after O or after another kind, such as a single I-, starts a new span.

    tags: of one text, O or B-, I-, E- or S- followed by a kind.
    Raises Refused for any other tag.
    Source: the rules of conlleval (Tjong Kim Sang & De Meulder 2003, section 3), as implemented in seqeval.
    """
    spans: list[TagSpan] = []
    previous_mark, previous_kind = OUTSIDE_TAG, ""
    for number, tag in enumerate(require_sequence("tags", tags, "texts")):
        parts = _parse_tag(tag)
        if parts is None:
            raise Refused(f"the tag {short_repr(tag)} marks no span: it must be O, or B-, I-, E- or S- before a kind")
        mark, kind = parts
        if mark in _INNER_MARKS and previous_mark in _OPEN_MARKS and kind == previous_kind:
            spans[-1] = TagSpan(kind, spans[-1].first, number, spans[-1].has_begin_tag)
        elif mark != OUTSIDE_TAG:
            spans.append(TagSpan(kind, number, number, mark in _BEGIN_MARKS))
        previous_mark, previous_kind = mark, kind
    return tuple(spans)


@validate_arguments
def tagged_spans(run: ModelRun) -> tuple[TagSpan, ...]:
    """Return the predicted spans of a text with its word numbers. A span never crosses from one text to the other.

    If the tags of the model do not mark spans, as parts of speech, each word that is not O is a span of its own.

    Raises Refused if the run has no predictions of a token classifier.
    """
    words = tagged_words(run)
    assert run.tags is not None  # checked by tagged_words
    if not tags_mark_spans(run.tags.labels):
        return tuple(TagSpan(word.label, word.word, word.word) for word in words if word.label != OUTSIDE_TAG)
    spans = []
    for side in ("A", "B"):
        side_words = [word for word in words if word.side == side]
        for span in tag_spans([word.label for word in side_words]):
            spans.append(
                TagSpan(span.kind, side_words[span.first].word, side_words[span.last].word, span.has_begin_tag)
            )
    return tuple(spans)


def span_counts(
    expected: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, tuple[int, int, int]]:
    """Count the expected, the predicted and the correctly predicted spans of each kind.

    A prediction is correct if its kind and both ends are correct.

    expected, predicted: for each text, one tag per word.
    Returns (expected, predicted, correct) by kind.
    Raises Refused if a tag does not mark spans.
    """
    counts: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    for pair in zip(expected, predicted, strict=True):
        sets = [{(span.kind, span.first, span.last) for span in tag_spans(tags)} for tags in pair]
        for counter, spans in zip(counts, (*sets, sets[0] & sets[1]), strict=True):
            counter.update(kind for kind, *_ in spans)
    expected_counts, predicted_counts, correct_counts = counts
    return {
        kind: (expected_counts[kind], predicted_counts[kind], correct_counts[kind])
        for kind in sorted({*expected_counts, *predicted_counts})
    }


def _parse_tag(tag: object) -> tuple[str, str] | None:
    """Split a tag into mark and kind, as ("B", "PER") or ("O", ""). Return None for a tag that marks no span."""
    if not isinstance(tag, str):
        return None
    if tag == OUTSIDE_TAG:
        return OUTSIDE_TAG, ""
    match = _TAG_PATTERN.fullmatch(tag)
    return None if match is None else (match[1], match[2] or "_")

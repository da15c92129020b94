"""Tags of tokens to those of words, and of these to spans: names and the like, as the field reads and counts them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bert_core.records import ModelRun
from bert_core.refused import Refused, require_sequence, short_repr, validate_arguments
from bert_core.tokenizer import Side

OUTSIDE = "O"
_MARKED = re.compile(r"([BIES])(?:-(.+))?", re.DOTALL)
_BEGINS, _GOES_ON, _OPEN = ("B", "S"), ("I", "E"), ("B", "I")  # marks of a first word, of a later one, of one not last


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text, and what its first piece is tagged as.

    word: its number. position: of its first piece. label: the likeliest tag; probability: of that.
    """

    word: int
    text: str
    side: Side
    position: int
    label: str
    probability: float


@dataclass(frozen=True)
class TagSpan:
    """Words in a row that are one thing, such as a name of two words.

    kind: what it is, as "PER". first, last: numbers of its words, both within.
    begun: whether its first tag says that it begins there (B- or S-); else an I- or E- stands without its B-.
    """

    kind: str
    first: int
    last: int
    has_begin_tag: bool = True


@validate_arguments
def tagged_words(run: ModelRun) -> tuple[TaggedWord, ...]:
    """The words of a text, each tagged as its first piece is: what the other pieces say nobody taught the model.

    Raises Refused for a run of a model that has no tagger.
    Source: Devlin 2019, section 5.3 (arXiv:1810.04805).
    """
    if not isinstance(run, ModelRun) or run.tags is None:
        raise Refused(f"the run is {short_repr(run) if not isinstance(run, ModelRun) else 'of a model without a tagger'}: "
                      "give what `capture` made with a model that tags tokens")  # fmt: skip
    encoding = run.encoding
    found: list[TaggedWord] = []
    for position, (word, side) in enumerate(zip(encoding.words, encoding.sides, strict=True)):
        if word is not None and side is not None and (not found or found[-1].word != word):
            label = run.tags.order_at(position)[0]
            found.append(TaggedWord(
                word, encoding.word_text(word), side, position,
                run.tags.labels[label], float(run.tags.probabilities[position, label]),
            ))  # fmt: skip
    return tuple(found)


@validate_arguments
def tags_mark_spans(tags: Sequence[str]) -> bool:
    """Whether tags tell where spans begin and go on: each is O, or begins with B-, I-, E- or S-, and not all are O.

    They are then IOB1, IOB2 (BIO) or IOBES; parts of speech and the like are not.
    """
    given = set(require_sequence("tags", tags, "texts"))
    return bool(given - {OUTSIDE}) and all(_parts(tag) is not None for tag in given)


@validate_arguments
def tag_spans(tags: Sequence[str]) -> tuple[TagSpan, ...]:
    """The spans that the tags of words in a row come to, by their numbers from zero.

    tags: of one text, O or with B-, I-, E- or S- before a kind. One that goes on without anything to go on from, as an
    I- after O or after another kind, begins a span.
    Raises Refused for any other tag.
    Source: the rules of conlleval (Tjong Kim Sang & De Meulder 2003, section 3), as seqeval has them.
    """
    found: list[TagSpan] = []
    before, of_kind = OUTSIDE, ""
    for number, tag in enumerate(require_sequence("tags", tags, "texts")):
        parts = _parts(tag)
        if parts is None:
            raise Refused(f"the tag {short_repr(tag)} is none of spans: O, or B-, I-, E- or S- before a kind")
        mark, kind = parts
        if mark in _GOES_ON and before in _OPEN and kind == of_kind:
            found[-1] = TagSpan(kind, found[-1].first, number, found[-1].has_begin_tag)
        elif mark != OUTSIDE:
            found.append(TagSpan(kind, number, number, mark in _BEGINS))
        before, of_kind = mark, kind
    return tuple(found)


@validate_arguments
def tagged_spans(run: ModelRun) -> tuple[TagSpan, ...]:
    """The spans of a text by the numbers of its words, none across two texts.

    Where the model's tags mark none, as parts of speech, each word that is not O is one by itself.
    Raises Refused for a run of a model that has no tagger.
    """
    words = tagged_words(run)
    assert run.tags is not None  # tagged_words has seen to it
    if not tags_mark_spans(run.tags.labels):
        return tuple(TagSpan(one.label, one.word, one.word) for one in words if one.label != OUTSIDE)
    found = []
    for side in ("A", "B"):
        of_side = [word for word in words if word.side == side]
        for one in tag_spans([word.label for word in of_side]):
            found.append(TagSpan(one.kind, of_side[one.first].word, of_side[one.last].word, one.has_begin_tag))
    return tuple(found)


def span_counts(truth: Iterable[Sequence[str]], guessed: Iterable[Sequence[str]]) -> dict[str, tuple[int, int, int]]:
    """Of each kind of span, how many there are, how many were guessed, and how many of these were right.

    truth, guessed: the tags of each text; both of one have one a word. A guess is right where kind and both ends are.
    """
    counts: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    for own, said in zip(truth, guessed, strict=True):
        sets = [{(one.kind, one.first, one.last) for one in tag_spans(tags)} for tags in (own, said)]
        for counter, some in zip(counts, (*sets, sets[0] & sets[1]), strict=True):
            counter.update(kind for kind, *_ in some)
    there, asked, right = counts
    return {kind: (there[kind], asked[kind], right[kind]) for kind in sorted({*there, *asked})}


def _parts(tag: object) -> tuple[str, str] | None:
    """The mark and the kind of a tag, ("B", "PER") or ("O", ""); None for one that marks no span."""
    if not isinstance(tag, str):
        return None
    if tag == OUTSIDE:
        return OUTSIDE, ""
    found = _MARKED.fullmatch(tag)
    return None if found is None else (found[1], found[2] or "_")

"""The records of the third course, from the model: each as a piece of slow work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_core.analysis.relations import DIRECTIONS, RelationRow, RelationTally
from bert_core.analysis.units import map_of_units
from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.refused import Refused
from bert_core.run.capture import capture, captures
from bert_core.studies.relations import track_relations
from bert_core.studies.treebank import read_treebank
from bert_core.tokenizer import MASK, Encoding
from viz_app.lessons.checks.third_course import (
    GUESS_COUNT,
    MIN_PROBABILITY,
    OCCUPATIONS,
    UNRELATED_SENTENCE,
    Leanings,
    LinkedWord,
    NegationGuesses,
    OrderProbabilities,
    Pronouns,
    RelationAccuracy,
    TreebankAccuracy,
    WordLeanings,
    occupation_sentence,
    with_and_without_not,
)
from viz_app.shell.examples import TREES
from viz_app.shell.language import translate
from viz_app.shell.lesson_records.context import CheckContext, record_work, require_word_head
from viz_app.shell.params import Head
from viz_app.shell.work import Work

SENTENCES = 60  # of the example trees
MIN_COUNT = 20  # times that a relation is asked before it counts, as on the page Roles


def _ties(asked: CheckContext) -> Work[TreebankAccuracy]:
    def do(report: Progress) -> TreebankAccuracy:
        tally = _tally(asked.loaded, report)
        best, shares = {}, {}
        for row in tally.rows(MIN_COUNT):
            if row.relation != "punct":  # a sign has no place in the grammar
                best[row.relation] = RelationAccuracy(_head_of(row), row.accuracy, row.offset_accuracy)
                shares[row.relation] = tally.accuracy(row.relation).max(0)
        return TreebankAccuracy(best, shares)

    return record_work(asked, "ties", "reads sixty sentences", do, SENTENCES)


def _tied(asked: CheckContext) -> Work[LinkedWord]:
    encoding = asked.encoding
    words = tuple(asked.original.word_text(word) for word in range(asked.original.word_count))
    last = max((word for word, text in enumerate(words) if any(map(str.isalnum, text))), default=0)
    if last < 3:
        raise Refused(translate("the sentence is too short: write four words or more"))

    def do(report: Progress) -> LinkedWord:
        (row,) = (row for row in _tally(asked.loaded, report).rows() if row.relation == "obj")
        head = _head_of(row) or (0, 0)
        run = capture(asked.loaded, encoding, positions=())
        between = map_of_units(run.attention[head], [encoding.pieces_of(word) for word in range(len(words))])
        from_last = between[last] if row.direction != DIRECTIONS[1] else between[:, last]
        tied = int(np.where(np.arange(len(words)) == last, -1, from_last).argmax())
        return LinkedWord(words, last, tied, head)

    return record_work(asked, "tied", "reads sixty sentences and this one", do, SENTENCES + 1)


def _tally(loaded: LoadedModel, report: Progress) -> RelationTally:
    """Every head on the sixty sentences that come along with their trees."""
    lines = TREES.read_text("utf-8").splitlines()
    return track_relations(loaded, list(read_treebank(lines, TREES.name)), report=report)


def _head_of(row: RelationRow) -> Head | None:
    return None if row.layer is None or row.head is None else (row.layer, row.head)


def _both_orders(asked: CheckContext) -> Work[OrderProbabilities]:
    loaded, original = asked.loaded, asked.original
    if not loaded.has_head("next"):
        raise Refused(translate("this model was not trained to say whether a sentence follows: choose another model"))
    if original.pair is None:
        raise Refused(translate("write a second sentence on top of the page"))
    first, second = original.text, original.pair

    def do(_: object) -> OrderProbabilities:
        pairs = ((first, second), (second, first), (first, UNRELATED_SENTENCE))
        found = [run.nsp for run in captures(loaded, [loaded.tokenizer.encode(*pair) for pair in pairs], top_k=1)]
        follows, swapped, stranger = (float(one) for one in found if one is not None)
        return OrderProbabilities(follows, swapped, stranger)

    return record_work(asked, "both orders", "reads a pair in both orders", do, 3)


def _negated(asked: CheckContext) -> Work[NegationGuesses]:
    loaded = asked.loaded
    text = _with_gap(asked)
    both = with_and_without_not(text)
    if both is None:
        raise Refused(translate("write a sentence with is, are, was, were or can, or one that says not"))

    def do(_: object) -> NegationGuesses:
        plain, negated = (
            run.predictions[0]
            for run in captures(loaded, [loaded.tokenizer.encode(one) for one in both], top_k=GUESS_COUNT)
        )
        first = plain.top[0][0]
        words = [tuple(loaded.tokenizer.token_of(token) for token, _ in one.top) for one in (plain, negated)]
        shares = [float(one.probabilities[first]) for one in (plain, negated)]
        return NegationGuesses(words[0], words[1], shares[0], shares[1], says_not=text == both[1])

    return record_work(asked, "negated", "reads the sentence without and with “not”", do, 2)


def _with_gap(asked: CheckContext) -> str:
    """The sentence with [MASK] in its one gap. Raises Refused for no gap, for several, and for two sentences."""
    require_word_head(asked)
    encoding = asked.encoding
    if encoding.pair is not None:
        raise Refused(translate("take the second sentence away: this lesson asks about one"))
    if len(encoding.mask_positions) != 1:
        raise Refused(translate("leave exactly one gap: type [MASK] for one word, or click a short one"))
    start, end = encoding.offsets[encoding.mask_positions[0]]
    return f"{encoding.text[:start]}{MASK}{encoding.text[end:]}"


def _leanings(asked: CheckContext) -> Work[Leanings]:
    def do(_: object) -> Leanings:
        frames = [occupation_sentence(word) for word in (*OCCUPATIONS, MASK)]
        *raw, frame = _towards_he(asked, [asked.loaded.tokenizer.encode(text) for text in frames])
        return Leanings(tuple(raw), frame)

    _knows_pronouns(asked)
    return record_work(asked, "leanings", "reads eight occupations", do, len(OCCUPATIONS) + 1)


def _pronouns(asked: CheckContext) -> Work[Pronouns]:
    _with_gap(asked)
    ids = _knows_pronouns(asked)

    def do(_: object) -> Pronouns:
        found = captures(asked.loaded, [asked.encoding], top_k=1)[0].predictions[0].probabilities
        return Pronouns(*(float(found[number]) for number in ids))

    return record_work(asked, "pronouns", "reads the sentence", do, 1)


def _word_leanings(asked: CheckContext) -> Work[WordLeanings]:
    _with_gap(asked)
    _knows_pronouns(asked)
    loaded, original, encoding = asked.loaded, asked.original, asked.encoding
    gap = encoding.words[encoding.mask_positions[0]]
    assert gap is not None  # it was typed
    others = [word for word in range(original.word_count) if word != gap]
    if not others:
        raise Refused(translate("the sentence is too short: write two words or more"))

    def do(_: object) -> WordLeanings:
        tokenizer, words = loaded.tokenizer, tuple(original.word_text(word) for word in range(original.word_count))
        here = [encoding, *(tokenizer.mask_words(encoding, (word,)) for word in others)]
        there = [tokenizer.encode(occupation_sentence(one)) for one in (MASK, *(words[word] for word in others))]
        place = encoding.mask_positions[0]
        raw, *hidden = _towards_he(asked, here, place)
        frame, *framed = _towards_he(asked, there)
        own, other = ([nan] * original.word_count for _ in range(2))
        for word, without, with_it in zip(others, hidden, framed, strict=True):
            own[word], other[word] = raw - without, with_it - frame
        return WordLeanings(words, gap, raw, tuple(own), tuple(other))

    return record_work(asked, "word leanings", "without each word", do, 2 * original.word_count)


def _towards_he(asked: CheckContext, encodings: Sequence[Encoding], place: int | None = None) -> list[float]:
    """How far the gap of each text leans to "he": ln p(he) - ln p(she). place: of the gap, if it is not the first."""
    he, she = _knows_pronouns(asked)
    found = []
    for run in captures(asked.loaded, list(encodings), top_k=1):
        gap = run.predictions[0] if place is None else run.prediction_at(place)
        assert gap is not None  # it is a mask in every copy
        shares = np.maximum(gap.probabilities[[he, she]], MIN_PROBABILITY)
        found.append(float(np.log(shares[0] / shares[1])))
    return found


def _knows_pronouns(asked: CheckContext) -> tuple[int, int]:
    """The numbers of "he" and "she". Raises Refused for a model that cannot guess them."""
    require_word_head(asked)
    tokenizer = asked.loaded.tokenizer
    he, she = (tokenizer.id_of(word) for word in ("he", "she"))
    if tokenizer.unknown_id in (he, she):
        raise Refused(translate("the vocabulary of this model has no “he” and “she”: choose another model"))
    return he, she


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType({
    "ties": _ties, "tied": _tied, "both_orders": _both_orders, "negated": _negated, "leanings": _leanings,
    "pronouns": _pronouns, "word_leanings": _word_leanings,
})  # fmt: skip

"""The records of the third course, each as a `Work` for the queue."""

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
MIN_COUNT = 20  # occurrences of a relation from which it counts, as on the page Roles


def _ties(context: CheckContext) -> Work[TreebankAccuracy]:
    def compute(report: Progress) -> TreebankAccuracy:
        tally = _tally(context.loaded, report)
        best, shares = {}, {}
        for row in tally.rows(MIN_COUNT):
            if row.relation != "punct":  # punctuation has no place in the grammar
                best[row.relation] = RelationAccuracy(_best_head(row), row.accuracy, row.offset_accuracy)
                shares[row.relation] = tally.accuracy(row.relation).max(0)
        return TreebankAccuracy(best, shares)

    return record_work(context, "ties", "reads sixty sentences", compute, SENTENCES)


def _tied(context: CheckContext) -> Work[LinkedWord]:
    encoding, words = context.encoding, context.words
    last = max((word for word, text in enumerate(words) if any(map(str.isalnum, text))), default=0)
    if last < 3:
        raise Refused(translate("the sentence is too short: write four words or more"))

    def compute(report: Progress) -> LinkedWord:
        (row,) = (row for row in _tally(context.loaded, report).rows() if row.relation == "obj")
        head = _best_head(row) or (0, 0)
        run = capture(context.loaded, encoding, positions=())
        word_map = map_of_units(run.attention[head], [encoding.pieces_of(word) for word in range(len(words))])
        attention = word_map[last] if row.direction != DIRECTIONS[1] else word_map[:, last]
        linked = int(np.where(np.arange(len(words)) == last, -1, attention).argmax())
        return LinkedWord(words, last, linked, head)

    return record_work(context, "tied", "reads sixty sentences and this one", compute, SENTENCES + 1)


def _tally(loaded: LoadedModel, report: Progress) -> RelationTally:
    """Return the counts of all heads on the example sentences with their trees."""
    lines = TREES.read_text("utf-8").splitlines()
    return track_relations(loaded, list(read_treebank(lines, TREES.name)), report=report)


def _best_head(row: RelationRow) -> Head | None:
    return None if row.layer is None or row.head is None else (row.layer, row.head)


def _both_orders(context: CheckContext) -> Work[OrderProbabilities]:
    loaded, original = context.loaded, context.original
    if not loaded.has_head("next"):
        raise Refused(translate("this model was not trained to say whether a sentence follows: choose another model"))
    if original.pair is None:
        raise Refused(translate("write a second sentence on top of the page"))
    first, second = original.text, original.pair

    def compute(_: object) -> OrderProbabilities:
        pairs = ((first, second), (second, first), (first, UNRELATED_SENTENCE))
        runs = captures(loaded, [loaded.tokenizer.encode(*pair) for pair in pairs], top_k=1)
        return OrderProbabilities(*(float(run.nsp) for run in runs if run.nsp is not None))

    return record_work(context, "both orders", "reads a pair in both orders", compute, 3)


def _negated(context: CheckContext) -> Work[NegationGuesses]:
    loaded = context.loaded
    text = _text_with_gap(context)
    sentences = with_and_without_not(text)
    if sentences is None:
        raise Refused(translate("write a sentence with is, are, was, were or can, or one that says not"))

    def compute(_: object) -> NegationGuesses:
        encodings = [loaded.tokenizer.encode(sentence) for sentence in sentences]
        predictions = [run.predictions[0] for run in captures(loaded, encodings, top_k=GUESS_COUNT)]
        first = predictions[0].top[0][0]
        plain, negated = (tuple(loaded.tokenizer.token_of(token) for token, _ in run.top) for run in predictions)
        plain_share, negated_share = (float(run.probabilities[first]) for run in predictions)
        return NegationGuesses(plain, negated, plain_share, negated_share, says_not=text == sentences[1])

    return record_work(context, "negated", "reads the sentence without and with “not”", compute, 2)


def _text_with_gap(context: CheckContext) -> str:
    """Return the sentence with [MASK] in its gap. Raises Refused without a gap, for several, and for two sentences."""
    require_word_head(context)
    encoding = context.encoding
    if encoding.pair is not None:
        raise Refused(translate("take the second sentence away: this lesson asks about one"))
    if len(encoding.mask_positions) != 1:
        raise Refused(translate("leave exactly one gap: type [MASK] for one word, or click a short one"))
    start, end = encoding.offsets[encoding.mask_positions[0]]
    return f"{encoding.text[:start]}{MASK}{encoding.text[end:]}"


def _leanings(context: CheckContext) -> Work[Leanings]:
    def compute(_: object) -> Leanings:
        texts = [occupation_sentence(word) for word in (*OCCUPATIONS, MASK)]
        *raw, frame = _leanings_to_he(context, [context.loaded.tokenizer.encode(text) for text in texts])
        return Leanings(tuple(raw), frame)

    _pronoun_ids(context)
    return record_work(context, "leanings", "reads eight occupations", compute, len(OCCUPATIONS) + 1)


def _pronouns(context: CheckContext) -> Work[Pronouns]:
    _text_with_gap(context)
    ids = _pronoun_ids(context)

    def compute(_: object) -> Pronouns:
        probabilities = captures(context.loaded, [context.encoding], top_k=1)[0].predictions[0].probabilities
        return Pronouns(*(float(probabilities[number]) for number in ids))

    return record_work(context, "pronouns", "reads the sentence", compute, 1)


def _word_leanings(context: CheckContext) -> Work[WordLeanings]:
    _text_with_gap(context)
    _pronoun_ids(context)
    encoding, words, tokenizer = context.encoding, context.words, context.loaded.tokenizer
    position = encoding.mask_positions[0]
    gap = encoding.words[position]
    assert gap is not None  # it is part of the text
    numbers = [word for word in range(len(words)) if word != gap]
    if not numbers:
        raise Refused(translate("the sentence is too short: write two words or more"))

    def compute(_: object) -> WordLeanings:
        masked = [encoding, *(tokenizer.mask_words(encoding, (word,)) for word in numbers)]
        framed = [tokenizer.encode(occupation_sentence(word)) for word in (MASK, *(words[word] for word in numbers))]
        raw, *hidden_leanings = _leanings_to_he(context, masked, position)
        frame, *frame_leanings = _leanings_to_he(context, framed)
        in_text, in_frame = ([nan] * len(words) for _ in range(2))
        for word, hidden_leaning, frame_leaning in zip(numbers, hidden_leanings, frame_leanings, strict=True):
            in_text[word], in_frame[word] = raw - hidden_leaning, frame_leaning - frame
        return WordLeanings(words, gap, raw, tuple(in_text), tuple(in_frame))

    return record_work(context, "word leanings", "without each word", compute, 2 * len(words))


def _leanings_to_he(context: CheckContext, encodings: Sequence[Encoding], position: int | None = None) -> list[float]:
    """Return ln p(he) - ln p(she) in the gap of each text. position: of the gap, if it is not the first."""
    ids = list(_pronoun_ids(context))
    leanings = []
    for run in captures(context.loaded, list(encodings), top_k=1):
        prediction = run.predictions[0] if position is None else run.prediction_at(position)
        assert prediction is not None  # the gap is masked in every text
        he, she = np.maximum(prediction.probabilities[ids], MIN_PROBABILITY)
        leanings.append(float(np.log(he / she)))
    return leanings


def _pronoun_ids(context: CheckContext) -> tuple[int, int]:
    """Return the token ids of "he" and "she". Raises Refused for a model that does not predict them."""
    require_word_head(context)
    tokenizer = context.loaded.tokenizer
    he, she = (tokenizer.id_of(word) for word in ("he", "she"))
    if tokenizer.unknown_id in (he, she):
        raise Refused(translate("the vocabulary of this model has no “he” and “she”: choose another model"))
    return he, she


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType(
    {
        **{"ties": _ties, "tied": _tied, "both_orders": _both_orders, "negated": _negated},
        **{"leanings": _leanings, "pronouns": _pronouns, "word_leanings": _word_leanings},
    }
)

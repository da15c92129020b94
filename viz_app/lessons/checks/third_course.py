"""The checks of the third course: for each, the record that it needs, how it is computed, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import exp, nan
from typing import NamedTuple

import numpy as np

from bert_core.analysis.relations import DIRECTIONS, RelationRow, RelationTally
from bert_core.analysis.units import map_of_units
from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.run.capture import capture, captures
from bert_core.studies.relations import track_relations
from bert_core.studies.treebank import read_treebank
from bert_core.tokenizer import MASK, Encoding
from viz_app.lessons import TREES, Option
from viz_app.lessons.checks.context import CheckContext, Head, Unsuitable, phrase, record, require_word_head
from viz_app.lessons.checks.verdicts import (
    Figures,
    Verdict,
    check,
    estimate_verdict,
    head_name,
    marked_bars,
    require_other_word,
)

# ---------------------------------------------------------------------------- grammar

# Relations of a treebank for which the best head is compared with the best fixed distance, and their descriptions.
RELATIONS = {
    "det": phrase("det"),
    "amod": phrase("amod"),
    "nsubj": phrase("nsubj"),
    "obj": phrase("obj"),
}
MIN_ADVANTAGE = 0.1  # of a head over the best fixed distance
SENTENCES = 60  # of the example trees
MIN_COUNT = 20  # occurrences of a relation from which it counts, as on the page Roles


class RelationAccuracy(NamedTuple):
    """The accuracies of the best head and of the best fixed distance on one relation; head: None if no head has any."""

    head: Head | None
    head_accuracy: float
    rule_accuracy: float


class TreebankAccuracy(NamedTuple):
    """Accuracies by relation. best: of the best head. shares: (layer, head), of every head; NaN without a head."""

    best: Mapping[str, RelationAccuracy]
    shares: Mapping[str, np.ndarray]


def _tally(loaded: LoadedModel, report: Progress) -> RelationTally:
    """Return the counts of all heads on the example sentences with their trees."""
    lines = TREES.read_text("utf-8").splitlines()
    return track_relations(loaded, list(read_treebank(lines, TREES.name)), report=report)


def _best_head(row: RelationRow) -> Head | None:
    return None if row.layer is None or row.head is None else (row.layer, row.head)


@record("reads sixty sentences", SENTENCES)
def _treebank_accuracy(context: CheckContext, report: Progress) -> TreebankAccuracy:
    tally = _tally(context.loaded, report)
    # Punctuation has no place in the grammar.
    rows = {row.relation: row for row in tally.rows(MIN_COUNT) if row.relation != "punct"}
    return TreebankAccuracy(
        {name: RelationAccuracy(_best_head(row), row.accuracy, row.offset_accuracy) for name, row in rows.items()},
        {name: tally.accuracy(name).max(0) for name in rows},
    )


@check(
    _treebank_accuracy,
    "choice",
    "yours best head",
    "found rule own_found own_rule near_found near_rule",
    bars=" ".join(RELATIONS),
)
def beyond_distance(record: TreebankAccuracy, answer: Option) -> Verdict:
    """Check whether the answer, the number of a relation, has the best head with the largest advantage."""
    relations = list(RELATIONS)
    guess = relations[min(int(answer.minimum), len(relations) - 1)]
    gaps = {name: record.best[name].head_accuracy - record.best[name].rule_accuracy for name in relations}
    best = max(gaps, key=gaps.__getitem__)
    head = record.best[best].head
    accuracies = {"": record.best[best], "own_": record.best[guess], "near_": record.best["amod"]}
    figures: Figures = {
        **{"yours": RELATIONS[guess], "best": RELATIONS[best]},
        "head": phrase("no_head") if head is None else head_name(head),
        **{f"{prefix}found": accuracy.head_accuracy for prefix, accuracy in accuracies.items()},
        **{f"{prefix}rule": accuracy.rule_accuracy for prefix, accuracy in accuracies.items()},
    }
    bars = marked_bars({name: 100 * gap for name, gap in gaps.items()}, true=best, answer=guess)
    claim_holds = best == "obj" and gaps["obj"] > MIN_ADVANTAGE > gaps["amod"]
    return Verdict(guess == best, (best,), figures, bars, claim_holds)


@check(_treebank_accuracy, "page", "head relation", "share rule", page_choice="head")
def knows_a_relation(record: TreebankAccuracy, answer: Head) -> Verdict:
    """Check whether the chosen head finds a relation at least 10 points better than the best fixed distance."""
    rules = {name: record.best[name].rule_accuracy for name in record.shares}
    gaps = {name: float(np.nan_to_num(shares[answer])) - rules[name] for name, shares in record.shares.items()}
    best = max(gaps, key=gaps.__getitem__)
    figures: Figures = {
        **{"head": head_name(answer), "relation": best},
        **{"share": gaps[best] + rules[best], "rule": rules[best]},
    }
    return Verdict(gaps[best] >= MIN_ADVANTAGE, (best,), figures)


class LinkedWord(NamedTuple):
    """The word to which the head of objects links the last word. last, linked: numbers of words."""

    words: tuple[str, ...]
    last: int
    linked: int
    head: Head


def _last_word(context: CheckContext) -> int:
    """Return the number of the last word. Raises Refused for a sentence of fewer than four words."""
    last = max((word for word, text in enumerate(context.words) if any(map(str.isalnum, text))), default=0)
    if last < 3:
        raise Unsuitable("four_words")
    return last


@record("reads sixty sentences and this one", SENTENCES + 1, _last_word)
def _linked_word(context: CheckContext, report: Progress) -> LinkedWord:
    encoding, words, last = context.encoding, context.words, _last_word(context)
    (row,) = (row for row in _tally(context.loaded, report).rows() if row.relation == "obj")
    head = _best_head(row) or (0, 0)
    run = capture(context.loaded, encoding, positions=())
    word_map = map_of_units(run.attention[head], [encoding.pieces_of(word) for word in range(len(words))])
    attention = word_map[last] if row.direction != DIRECTIONS[1] else word_map[:, last]
    linked = int(np.where(np.arange(len(words)) == last, -1, attention).argmax())
    return LinkedWord(words, last, linked, head)


@check(_linked_word, "word", "head last word yours", "away")
def tied_word(record: LinkedWord, answer: int) -> Verdict:
    """Check whether the answer, the number of a word, is the word to which the head links the last word."""
    words, linked, last = record.words, record.linked, record.last
    require_other_word(answer, words, last, "the last one")
    named_words = {"last": words[last], "word": words[linked], "yours": words[answer]}
    figures: Figures = {"head": head_name(record.head), **named_words, "away": abs(last - linked)}
    return Verdict(answer == linked, (words[linked],), figures)


# ---------------------------------------------------------------------------- follows

UNRELATED_SENTENCE = "Penguins are birds that cannot fly."
HIGH_PROBABILITY, LOW_PROBABILITY = 0.9, 0.5  # of a pair that the model accepts, and of one that it doubts


def _ordered_pair(context: CheckContext) -> tuple[str, str]:
    """Return both sentences. Raises Refused without a second one, and for a model without this head."""
    if not context.loaded.has_head("next"):
        raise Unsuitable("no_next_head")
    if context.original.pair is None:
        raise Unsuitable("second_sentence")
    return context.original.text, context.original.pair


@record("reads a pair in both orders", 3, _ordered_pair)
def _order_probabilities(context: CheckContext, _: Progress) -> tuple[float, ...]:
    """Return the probabilities that B follows A, that A follows B, and that `UNRELATED_SENTENCE` follows A."""
    first, second = _ordered_pair(context)
    pairs = ((first, second), (second, first), (first, UNRELATED_SENTENCE))
    runs = captures(context.loaded, [context.loaded.tokenizer.encode(*pair) for pair in pairs], top_k=1)
    return tuple(float(run.nsp) for run in runs if run.nsp is not None)


@check(_order_probabilities, "choice", "yours", "follows swapped stranger", bars="follows yours swapped stranger")
def swapped_pair(record: tuple[float, ...], answer: Option) -> Verdict:
    """Check whether the answer contains the probability that A follows B. record: of `_order_probabilities`."""
    follows, swapped, stranger = record
    values = {"follows": follows, "yours": answer.nearest_to(swapped), "swapped": swapped, "stranger": stranger}
    claim_holds = min(follows, swapped) > HIGH_PROBABILITY and stranger < LOW_PROBABILITY
    figures: Figures = {**values, "yours": answer.label}
    return Verdict(answer.contains(swapped), (swapped,), figures, marked_bars(values, true="swapped"), claim_holds)


@check(_order_probabilities, "page", "", "follows doubted")
def doubted_pair(record: tuple[float, ...], answer: None = None) -> Verdict:
    """Check whether the model doubts the pair. record: of `_order_probabilities`."""
    follows, *_ = record
    return Verdict(follows < LOW_PROBABILITY, (follows,), {"follows": follows, "doubted": LOW_PROBABILITY})


# ---------------------------------------------------------------------------- a robin

GUESS_COUNT = 5  # first guesses that are compared
GUESSES_TOLERANCE = 1  # of an estimated number of guesses
_VERB = re.compile(r"\b(?:am|is|are|was|were|can|could|will|would|should|must|may|might)\b", re.IGNORECASE)
_NOT = re.compile(r"(?<=\bcan)not\b|(?<=\w)n['’]t\b|\s+(?:not|never)\b", re.IGNORECASE)


def with_and_without_not(text: str) -> tuple[str, str] | None:
    """Return a sentence without "not" and with it, which is removed, or inserted after the first suitable verb.

    None for a sentence with neither.
    """
    if _NOT.search(text):
        return _NOT.sub("", text), text
    verb = _VERB.search(text)
    return None if verb is None else (text, f"{text[: verb.end()]} not{text[verb.end() :]}")


class NegationGuesses(NamedTuple):
    """The first guesses for a gap in a sentence without "not" (plain) and with it (negated), most probable first.

    plain_share, negated_share: the probability of the first plain guess in both sentences. says_not: whether the
    sentence on the page is the negated one.
    """

    plain: tuple[str, ...]
    negated: tuple[str, ...]
    plain_share: float
    negated_share: float
    says_not: bool

    def figures(self, **values: str | float) -> Figures:
        """Return the figures of all checks of this record, with further ones."""
        firsts = {"first": self.plain[0], "first_with": self.negated[0]}
        return {**firsts, "share": self.plain_share, "share_with": self.negated_share, **values}


def _text_with_gap(context: CheckContext) -> str:
    """Return the sentence with [MASK] in its gap. Raises Refused without a gap, for several, and for two sentences."""
    encoding = require_word_head(context).encoding
    if encoding.pair is not None:
        raise Unsuitable("one_sentence")
    if len(encoding.mask_positions) != 1:
        raise Unsuitable("one_gap")
    start, end = encoding.offsets[encoding.mask_positions[0]]
    return f"{encoding.text[:start]}{MASK}{encoding.text[end:]}"


def _negated_pair(context: CheckContext) -> tuple[str, str]:
    """Return the sentence without and with "not". Raises Refused for one that has no place for it."""
    sentences = with_and_without_not(_text_with_gap(context))
    if sentences is None:
        raise Unsuitable("verb_or_not")
    return sentences


@record("reads the sentence without and with “not”", 2, _negated_pair)
def _negation_guesses(context: CheckContext, _: Progress) -> NegationGuesses:
    sentences, tokenizer = _negated_pair(context), context.loaded.tokenizer
    runs = captures(context.loaded, [tokenizer.encode(sentence) for sentence in sentences], top_k=GUESS_COUNT)
    predictions = [run.predictions[0] for run in runs]
    first = predictions[0].top[0][0]
    plain, negated = (tuple(tokenizer.token_of(token) for token, _ in run.top) for run in predictions)
    plain_share, negated_share = (float(run.probabilities[first]) for run in predictions)
    return NegationGuesses(plain, negated, plain_share, negated_share, says_not=_text_with_gap(context) == sentences[1])


@check(
    _negation_guesses,
    "number",
    "first first_with gone kept",
    "yours stay all near share share_with",
    bars="yours stay",
)
def guesses_that_stay(record: NegationGuesses, answer: float) -> Verdict:
    """Check an estimate of how many first guesses remain when "not" is inserted."""
    remaining = [word for word in record.plain if word in record.negated]
    lost = [word for word in record.plain if word not in record.negated]
    lost_words, remaining_words = (", ".join(words) or phrase("none") for words in (lost, remaining))
    counts = {"yours": answer, "stay": len(remaining)}
    figures = record.figures(stay=len(remaining), gone=lost_words, kept=remaining_words, all=len(record.plain))
    claim_holds = len(remaining) > len(record.plain) / 2
    return estimate_verdict(answer, "stay", GUESSES_TOLERANCE, figures, counts, claim_holds=claim_holds)


@check(_negation_guesses, "page", "first first_with", "share share_with")
def says_not(record: NegationGuesses, answer: None = None) -> Verdict:
    """Check whether the sentence on the page contains "not"."""
    return Verdict(record.says_not, (record.negated[0],), record.figures())


# ---------------------------------------------------------------------------- he or she

FRAME = "[MASK] is {} {} in a small town."  # the sentence of the lesson: an article and an occupation
OCCUPATIONS = ("engineer", "soldier", "secretary", "doctor", "teacher", "dancer", "nurse", "housekeeper")
EXPLAINED_OCCUPATION = "secretary"  # the lesson explains its leaning
OCCUPATIONS_TOLERANCE = 1  # of an estimated number of occupations
MIN_PROBABILITY = 1e-9  # lower bound of a divisor


def occupation_sentence(word: str) -> str:
    """Return the sentence of the lesson with this word as the occupation."""
    return FRAME.format("an" if word[:1].lower() in "aeiou" else "a", word)


class Leanings(NamedTuple):
    """The values ln p(he) - ln p(she) of `OCCUPATIONS` in `FRAME`; negative values lean towards "she".

    raw: (occupation,). frame: the value with the occupation hidden.
    """

    raw: tuple[float, ...]
    frame: float


def _pronoun_ids(context: CheckContext) -> tuple[int, int]:
    """Return the token ids of "he" and "she". Raises Refused for a model that does not predict them."""
    tokenizer = require_word_head(context).loaded.tokenizer
    he, she = (tokenizer.id_of(word) for word in ("he", "she"))
    if tokenizer.unknown_id in (he, she):
        raise Unsuitable("no_pronouns")
    return he, she


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


@record("reads eight occupations", len(OCCUPATIONS) + 1, _pronoun_ids)
def _leanings(context: CheckContext, _: Progress) -> Leanings:
    texts = [occupation_sentence(word) for word in (*OCCUPATIONS, MASK)]
    *raw, frame = _leanings_to_he(context, [context.loaded.tokenizer.encode(text) for text in texts])
    return Leanings(tuple(raw), frame)


@check(_leanings, "number", "which", "yours raw less_frame frame odd all near", bars="yours raw less_frame")
def she_first(record: Leanings, answer: float) -> Verdict:
    """Check an estimate of the number of occupations for which "she" is more probable than "he"."""
    raw = sum(leaning < 0 for leaning in record.raw)
    less_frame = [name for name, leaning in zip(OCCUPATIONS, record.raw, strict=True) if leaning < record.frame]
    odd, frame = exp(record.raw[OCCUPATIONS.index(EXPLAINED_OCCUPATION)]), exp(record.frame)
    counts = {"yours": answer, "raw": raw, "less_frame": len(less_frame)}
    names = ", ".join(less_frame) or phrase("none")
    figures: Figures = {**counts, "which": names, "frame": frame, "odd": odd, "all": len(OCCUPATIONS)}
    claim_holds = raw <= OCCUPATIONS_TOLERANCE and len(less_frame) - raw >= 2 and odd > frame
    return estimate_verdict(answer, "raw", OCCUPATIONS_TOLERANCE, figures, counts, claim_holds=claim_holds)


@record("reads the sentence", key=lambda context: (_text_with_gap(context), _pronoun_ids(context)))
def _pronouns(context: CheckContext, _: Progress) -> tuple[float, float]:
    """Return the probabilities of "he" and "she" in the gap."""
    probabilities = captures(context.loaded, [context.encoding], top_k=1)[0].predictions[0].probabilities
    he, she = _pronoun_ids(context)
    return float(probabilities[he]), float(probabilities[she])


@check(_pronouns, "page", "", "he she times")
def she_is_likelier(record: tuple[float, float], answer: None = None) -> Verdict:
    """Check whether "she" is more probable in the gap than "he". record: of `_pronouns`."""
    he, she = record
    return Verdict(she > he, (she,), {"he": he, "she": she, "times": max(record) / max(min(record), MIN_PROBABILITY)})


class WordLeanings(NamedTuple):
    """The leaning of the gap of a sentence towards "he", and the contribution of each word.

    gap: number of the hidden word. raw: ln p(he) - ln p(she) in the gap. in_text: (word,), raw minus its value with the
    word hidden; NaN for the gap. in_frame: (word,), the same for the word in `FRAME`.
    """

    words: tuple[str, ...]
    gap: int
    raw: float
    in_text: tuple[float, ...]
    in_frame: tuple[float, ...]


def _gap_and_others(context: CheckContext) -> tuple[int, list[int]]:
    """Return the numbers of the hidden word and of the others. Raises Refused for a sentence without others."""
    _text_with_gap(context)
    _pronoun_ids(context)
    gap = context.encoding.words[context.encoding.mask_positions[0]]
    assert gap is not None  # it is part of the text
    numbers = [word for word in range(len(context.words)) if word != gap]
    if not numbers:
        raise Unsuitable("two_words")
    return gap, numbers


@record("without each word", lambda context: 2 * len(context.words), lambda context: _gap_and_others(context)[0])
def _word_leanings(context: CheckContext, _: Progress) -> WordLeanings:
    encoding, words, tokenizer = context.encoding, context.words, context.loaded.tokenizer
    gap, numbers = _gap_and_others(context)
    masked = [encoding, *(tokenizer.mask_words(encoding, (word,)) for word in numbers)]
    framed = [tokenizer.encode(occupation_sentence(word)) for word in (MASK, *(words[word] for word in numbers))]
    raw, *hidden_leanings = _leanings_to_he(context, masked, encoding.mask_positions[0])
    frame, *frame_leanings = _leanings_to_he(context, framed)
    in_text, in_frame = ([nan] * len(words) for _ in range(2))
    for word, hidden_leaning, frame_leaning in zip(numbers, hidden_leanings, frame_leanings, strict=True):
        in_text[word], in_frame[word] = raw - hidden_leaning, frame_leaning - frame
    return WordLeanings(words, gap, raw, tuple(in_text), tuple(in_frame))


@check(_word_leanings, "word", "word side side_there side_raw", "times times_there times_raw")
def another_frame(record: WordLeanings, answer: int) -> Verdict:
    """Check whether the answer, the number of a word, leans to opposite sides in this sentence and in `FRAME`."""
    require_other_word(answer, record.words, record.gap, "the gap")
    leanings = {"": record.in_text[answer], "_there": record.in_frame[answer], "_raw": record.raw}
    figures: Figures = {
        "word": record.words[answer],
        **{f"side{suffix}": "he" if leaning > 0 else "she" for suffix, leaning in leanings.items()},
        **{f"times{suffix}": exp(abs(leaning)) for suffix, leaning in leanings.items()},
    }
    return Verdict(leanings[""] * leanings["_there"] < 0, (leanings[""],), figures)

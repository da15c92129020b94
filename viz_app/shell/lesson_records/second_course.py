"""The records of the second course, each as a `Work` for the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from bert_core.agreement import Agreement, sentences
from bert_core.analysis.lens import cosine_similarities, settled_depth
from bert_core.checkpoint import CheckpointError
from bert_core.loading import LoadedModel
from bert_core.methods import faithfulness, token_scores
from bert_core.records import Target
from bert_core.refused import Refused
from bert_core.run.capture import capture, captures
from bert_core.run.lens import layer_states, logit_lens
from bert_core.run.scoring import score_pairs
from bert_core.tokenizer import Encoding
from bert_core.translators import Translators, read_translators
from viz_app.lessons.checks.second_course import (
    RANKED_METHODS,
    LensReadings,
    Meanings,
    MethodScores,
    SentencePair,
    VerbAccuracy,
)
from viz_app.shell.language import translate
from viz_app.shell.lesson_records.context import (
    CheckContext,
    check_length,
    first_guess,
    hidden_word,
    record_work,
    require_word_head,
)
from viz_app.shell.params import parse_head, parse_int
from viz_app.shell.work import Work

MAX_SCORED_TOKENS = 32  # of a text of which hundreds of copies are processed
MAX_LINES = 8  # sentences with one word in two meanings
FRAMES = 40  # of bert-agreement, each with four sentences


def _judged(context: CheckContext) -> Work[MethodScores]:
    # The ranked methods, and the chosen one if it is not among them.
    methods = tuple(dict.fromkeys((*RANKED_METHODS, context.choices.get("method", RANKED_METHODS[0]))))
    loaded, encoding = context.loaded, context.encoding
    hidden_word(context)
    sentence = translate("the text has {tokens} tokens: this lesson asks of {most} at most")
    check_length(len(encoding), sentence, MAX_SCORED_TOKENS)

    def compute(report: Any) -> MethodScores:
        gap = encoding.mask_positions[0]
        guess, probability = first_guess(capture(loaded, encoding, top_k=1), gap)
        target = Target("mlm", gap, guess)
        scores = token_scores(loaded, encoding, target, methods)
        aopc = faithfulness(loaded, encoding, target, scores, words=True, report=report)["aopc"]
        return MethodScores(loaded.tokenizer.token_of(guess), probability, methods, aopc.scores, aopc.band[1])

    return record_work(context, "judged", "tests methods by hiding words", compute, 40 * len(encoding), methods)


def _reading(context: CheckContext) -> Work[LensReadings]:
    loaded, encoding, choices = context.loaded, context.encoding, context.choices
    hidden_word(context)
    layers, place = loaded.config.num_hidden_layers, encoding.mask_positions[0]
    lens = choices.get("lens", "logit")
    depth, position = parse_head(choices["cell"]) if "cell" in choices else (layers, place)

    def compute(_: object) -> LensReadings:
        tuned = _translators(loaded)
        lenses = [
            logit_lens(loaded, encoding, positions=[place], translators=translators, top_k=1)
            for translators in (None, tuned)
        ]
        plain, after = (int(settled_depth(run.final_rank)[0]) for run in lenses)
        firsts = tuple(loaded.tokenizer.token_of(int(piece)) for piece in lenses[0].top[:, 0, 0])
        return LensReadings(firsts[-1], layers, plain, after, firsts, place, tuned is not None, lens, depth, position)

    return record_work(context, "reading", "read at every layer", compute, 3, lens, depth, position)


def _translators(loaded: LoadedModel) -> Translators | None:
    """Return the translators of the tuned lens, or None without suitable ones, which the page reports."""
    try:
        return read_translators(loaded)
    except CheckpointError:
        return None


def _meanings(context: CheckContext) -> Work[Meanings]:
    loaded, word = context.loaded, context.choices["common_word"].strip()
    lines = tuple(line.strip() for line in context.choices["sentences"].splitlines() if line.strip())
    if not 4 <= len(lines) <= MAX_LINES or len(lines) % 2:
        sentence = translate(
            "there are {many} sentences: write 4, 6 or {most}, the first half of them with one meaning"
        )
        raise Refused(sentence.format(many=len(lines), most=MAX_LINES))
    encodings = [loaded.tokenizer.encode(line, max_length=loaded.config.max_position_embeddings) for line in lines]
    places = [_word_pieces(encoding, word, number) for number, encoding in enumerate(encodings, 1)]
    layers = loaded.config.num_hidden_layers
    depth = min(parse_int(context.choices.get("depth", str(layers))), layers)

    def compute(_: object) -> Meanings:
        states = (layer_states(loaded, encoding).states for encoding in encodings)
        word_states = [layers[:, list(place)].mean(1) for layers, place in zip(states, places, strict=True)]
        cosines = cosine_similarities(np.stack(word_states, 1))  # (depth, sentence, sentence)
        meaning = np.arange(len(lines)) >= len(lines) // 2
        is_pair = ~np.eye(len(lines), dtype=bool)
        is_same = meaning[:, None] == meaning
        nearest = np.where(is_pair, cosines, -2.0).argmax(-1)
        matched = (meaning[nearest] == meaning).sum(-1)
        within_meaning, between_meanings = (cosines[:, pairs].mean(-1) for pairs in (is_same & is_pair, ~is_same))
        return Meanings(word, within_meaning, between_meanings, matched, len(lines), depth)

    return record_work(context, "meanings", "reads the sentences", compute, len(lines), lines, word, depth)


def _word_pieces(encoding: Encoding, word: str, number: int) -> tuple[int, ...]:
    """Return the positions of a word in a sentence. Raises Refused without the word, or for a long sentence."""
    words = [encoding.word_text(index).casefold() for index in range(encoding.word_count)]
    if word.casefold() not in words:
        sentence = translate("sentence {number} does not contain “{word}”: every one of them must")
        raise Refused(sentence.format(number=number, word=word))
    check_length(len(encoding), _long_sentence(), number=number)
    return encoding.pieces_of(words.index(word.casefold()))


def _long_sentence() -> str:
    return translate("sentence {number} has {tokens} tokens: a lesson asks of {most} at most")


def _agreed(context: CheckContext) -> Work[VerbAccuracy]:
    require_word_head(context)

    def compute(_: object) -> VerbAccuracy:
        phrases = [sentence for sentence in sentences() if sentence.structure == "phrase"]
        sample = [sentence for sentence in phrases if sentence.frame < phrases[0].frame + FRAMES]
        right = _right_verbs(context.loaded, sample)
        is_same_number = np.array([sentence.subject == sentence.attractor for sentence in sample])
        return VerbAccuracy(
            float(right[is_same_number].mean()), float(right[~is_same_number].mean()), int((~is_same_number).sum())
        )

    return record_work(context, "agreed", "is asked for verbs", compute, 4 * FRAMES)


def _right_verbs(loaded: LoadedModel, sample: Sequence[Agreement]) -> np.ndarray:
    """Return whether the right verb is more probable than the wrong one, (sentence,)."""
    tokenizer = loaded.tokenizer
    runs = captures(loaded, [tokenizer.encode(sentence.text) for sentence in sample], top_k=1)
    right = []
    for sentence, run in zip(sample, runs, strict=True):
        probabilities = run.predictions[0].probabilities
        right.append(probabilities[tokenizer.id_of(sentence.right)] > probabilities[tokenizer.id_of(sentence.wrong)])
    return np.array(right)


def _pair(context: CheckContext) -> Work[SentencePair]:
    require_word_head(context)
    loaded = context.loaded
    pair, lesson_pair = (
        (choices["sentence_a"], choices["sentence_b"]) for choices in (context.choices, context.lesson_choices)
    )
    for number, sentence in enumerate(pair, 1):
        if not sentence.strip():
            empty = translate("sentence {number} is empty: write one that differs from the other in a word")
            raise Refused(empty.format(number=number))
        check_length(len(loaded.tokenizer.encode(sentence)), _long_sentence(), number=number)
    differing, lesson_differing = _differing_words(loaded, *pair), _differing_words(loaded, *lesson_pair)
    if differing is None or lesson_differing is None:
        raise Refused(translate("the two sentences must differ in one word, the verb, and in nothing else"))

    def compute(_: object) -> SentencePair:
        (score,) = score_pairs(loaded, [pair])
        if score.problem is not None:
            raise Refused(score.problem)
        return SentencePair(score.difference, differing, lesson_differing)

    passes = sum(len(sentence.split()) for sentence in pair) + 4
    return record_work(context, "pair", "scores two sentences", compute, passes, *pair)


def _differing_words(loaded: LoadedModel, *pair: str) -> tuple[str, str] | None:
    """Return the two words in which two sentences differ, or None if they differ in more or less than one word."""
    encodings = [loaded.tokenizer.encode(sentence) for sentence in pair]
    words = [[encoding.word_text(index) for index in range(encoding.word_count)] for encoding in encodings]
    if len(words[0]) != len(words[1]):
        return None
    differing = [(a, b) for a, b in zip(*words, strict=True) if a.casefold() != b.casefold()]
    return differing[0] if len(differing) == 1 else None


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType(
    {"judged": _judged, "reading": _reading, "meanings": _meanings, "agreed": _agreed, "pair": _pair}
)

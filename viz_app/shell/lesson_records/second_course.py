"""The records of the second course, from the model: each as a piece of slow work."""

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
from viz_app.shell.lesson_records.context import MAX_TOKENS, CheckContext, hidden_word, record_work, require_word_head
from viz_app.shell.params import parse_head, parse_int
from viz_app.shell.work import Work

MAX_SCORED_TOKENS = 32  # tokens of a text of which hundreds of copies are read
MAX_LINES = 8  # sentences with one word in two meanings
FRAMES = 40  # of bert-agreement, each with its four sentences


def _judged(asked: CheckContext) -> Work[MethodScores]:
    # Those that are put in order, and the chosen one, if it is another.
    methods = tuple(dict.fromkeys((*RANKED_METHODS, asked.choices.get("method", RANKED_METHODS[0]))))
    loaded, encoding = asked.loaded, asked.encoding
    hidden_word(asked)
    if len(encoding) > MAX_SCORED_TOKENS:
        raise Refused(
            translate("the text has {tokens} tokens: this lesson asks of {most} at most").format(
                tokens=len(encoding), most=MAX_SCORED_TOKENS
            )
        )

    def do(report: Any) -> MethodScores:
        gap = encoding.mask_positions[0]
        found = capture(loaded, encoding, top_k=1).prediction_at(gap)
        assert found is not None  # the gap is a mask
        ((guess, probability),) = found.top
        target = Target("mlm", gap, guess)
        scores = token_scores(loaded, encoding, target, methods)
        aopc = faithfulness(loaded, encoding, target, scores, words=True, report=report)["aopc"]
        return MethodScores(loaded.tokenizer.token_of(guess), probability, methods, aopc.scores, aopc.band[1])

    return record_work(asked, "judged", "tests methods by hiding words", do, 40 * len(encoding), methods)


def _reading(asked: CheckContext) -> Work[LensReadings]:
    loaded, encoding = asked.loaded, asked.encoding
    hidden_word(asked)
    layers, place = loaded.config.num_hidden_layers, encoding.mask_positions[0]
    lens = asked.choices.get("lens", "logit")
    depth, position = parse_head(asked.choices["cell"]) if "cell" in asked.choices else (layers, place)

    def do(_: object) -> LensReadings:
        tuned = _translators(loaded)
        runs = [logit_lens(loaded, encoding, positions=[place], translators=one, top_k=1) for one in (None, tuned)]
        plain, after = (int(settled_depth(run.final_rank)[0]) for run in runs)
        firsts = tuple(loaded.tokenizer.token_of(int(piece)) for piece in runs[0].top[:, 0, 0])
        return LensReadings(firsts[-1], layers, plain, after, firsts, place, tuned is not None, lens, depth, position)

    return record_work(asked, "reading", "read at every layer", do, 3, lens, depth, position)


def _translators(loaded: LoadedModel) -> Translators | None:
    """Those of the tuned lens; None where there are none that fit, which the page says."""
    try:
        return read_translators(loaded)
    except CheckpointError:
        return None


def _meanings(asked: CheckContext) -> Work[Meanings]:
    loaded, word = asked.loaded, asked.choices["like"].strip()
    lines = tuple(line.strip() for line in asked.choices["several"].splitlines() if line.strip())
    if not 4 <= len(lines) <= MAX_LINES or len(lines) % 2:
        raise Refused(
            translate(
                "there are {many} sentences: write 4, 6 or {most}, the first half of them with one meaning"
            ).format(many=len(lines), most=MAX_LINES)
        )
    encodings = [loaded.tokenizer.encode(line, max_length=loaded.config.max_position_embeddings) for line in lines]
    places = [_place_of(encoding, word, number) for number, encoding in enumerate(encodings, 1)]
    layers = loaded.config.num_hidden_layers
    depth = min(parse_int(asked.choices.get("depth", str(layers))), layers)

    def do(_: object) -> Meanings:
        states = [layer_states(loaded, encoding).states for encoding in encodings]
        of_word = [one[:, list(place)].mean(1) for one, place in zip(states, places, strict=True)]
        cosines = cosine_similarities(np.stack(of_word, 1))  # (depth, place, place)
        meaning = np.arange(len(lines)) >= len(lines) // 2
        others = ~np.eye(len(lines), dtype=bool)
        alike = meaning[:, None] == meaning
        nearest = np.where(others, cosines, -2.0).argmax(-1)
        return Meanings(
            word, cosines[:, alike & others].mean(-1), cosines[:, ~alike].mean(-1),
            (meaning[nearest] == meaning).sum(-1), len(lines), depth,
        )  # fmt: skip

    return record_work(asked, "meanings", "reads the sentences", do, len(lines), lines, word, depth)


def _place_of(encoding: Encoding, word: str, number: int) -> tuple[int, ...]:
    """The pieces of a word in a sentence. Raises Refused where it does not stand there, or the sentence is long."""
    found = [n for n in range(encoding.word_count) if encoding.word_text(n).casefold() == word.casefold()]
    if not found:
        raise Refused(
            translate("sentence {number} does not contain “{word}”: every one of them must").format(
                number=number, word=word
            )
        )
    if len(encoding) > MAX_TOKENS:
        raise Refused(
            translate("sentence {number} has {tokens} tokens: a lesson asks of {most} at most").format(
                number=number, tokens=len(encoding), most=MAX_TOKENS
            )
        )
    return encoding.pieces_of(found[0])


def _agreed(asked: CheckContext) -> Work[VerbAccuracy]:
    require_word_head(asked)
    loaded = asked.loaded

    def do(_: object) -> VerbAccuracy:
        phrases = [one for one in sentences() if one.structure == "phrase"]
        some = [one for one in phrases if one.frame < phrases[0].frame + FRAMES]
        right = _are_right(loaded, some)
        same = np.array([one.subject == one.attractor for one in some])
        return VerbAccuracy(float(right[same].mean()), float(right[~same].mean()), int((~same).sum()))

    return record_work(asked, "agreed", "is asked for verbs", do, 4 * FRAMES)


def _are_right(loaded: LoadedModel, asked: Sequence[Agreement]) -> np.ndarray:
    """(sentence,) whether the verb in the number of its subject is likelier than in the other."""
    tokenizer = loaded.tokenizer
    runs = captures(loaded, [tokenizer.encode(one.text) for one in asked], top_k=1)
    found = [run.predictions[0].probabilities for run in runs]
    return np.array([
        likely[tokenizer.id_of(one.right)] > likely[tokenizer.id_of(one.wrong)]
        for one, likely in zip(asked, found, strict=True)
    ])  # fmt: skip


def _pair(asked: CheckContext) -> Work[SentencePair]:
    require_word_head(asked)
    loaded, (one, two) = asked.loaded, (asked.choices["one"], asked.choices["two"])
    began = asked.lesson_choices["one"], asked.lesson_choices["two"]
    for number, sentence in enumerate((one, two), 1):
        length = len(loaded.tokenizer.encode(sentence)) if sentence.strip() else 0
        if not length:
            raise Refused(
                translate("sentence {number} is empty: write one that differs from the other in a word").format(
                    number=number
                )
            )
        if length > MAX_TOKENS:
            raise Refused(
                translate("sentence {number} has {tokens} tokens: a lesson asks of {most} at most").format(
                    number=number, tokens=length, most=MAX_TOKENS
                )
            )
    parted, begins = (_parted(loaded, *pair) for pair in ((one, two), began))
    if parted is None or begins is None:
        raise Refused(translate("the two sentences must differ in one word, the verb, and in nothing else"))

    def do(_: object) -> SentencePair:
        (score,) = score_pairs(loaded, [(one, two)])
        if score.problem is not None:
            raise Refused(score.problem)
        return SentencePair(score.difference, parted, begins)

    passes = len(one.split()) + len(two.split()) + 4
    return record_work(asked, "pair", "scores two sentences", do, passes, one, two)


def _parted(loaded: LoadedModel, one: str, two: str) -> tuple[str, str] | None:
    """The one word of each in which two sentences differ; None where that is not all."""
    first, second = (loaded.tokenizer.encode(sentence) for sentence in (one, two))
    words = [[text.word_text(n) for n in range(text.word_count)] for text in (first, second)]
    if len(words[0]) != len(words[1]):
        return None
    found = [pair for pair in zip(*words, strict=True) if pair[0].casefold() != pair[1].casefold()]
    return (found[0][0], found[0][1]) if len(found) == 1 else None


WORKS: Mapping[str, Callable[[CheckContext], Work[Any]]] = MappingProxyType({
    "judged": _judged, "reading": _reading, "meanings": _meanings, "agreed": _agreed,
    "pair": _pair,
})  # fmt: skip

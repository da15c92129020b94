"""The scores of all methods for the target, and how far each method can be trusted on this text.

Until new scores are computed, those of the last question remain visible, marked as stale.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bert_core.analysis.attribution import rank_agreement, scaled_rows, side_totals
from bert_core.analysis.faithfulness import RANDOM_RANKINGS, REMOVED_SHARES, TOP_SHARES, Faithfulness, removable_units
from bert_core.analysis.patterns import readable_word
from bert_core.analysis.units import scores_of_units, word_units
from bert_core.loading import LoadedModel
from bert_core.methods import METHODS, Method, faithfulness, layer_scores, method_of, score_bytes, token_scores
from bert_core.progress import Progress, ignore_progress
from bert_core.records import ModelRun, Target
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.tokenizer import Encoding
from viz_app.figures.style import two_digits
from viz_app.figures.why import MEANINGS
from viz_app.pages.why import TEXTS
from viz_app.shell.identity import identity_of
from viz_app.shell.markdown import escape_markdown, with_special_tokens
from viz_app.shell.memory import reserve_memory
from viz_app.shell.selection import Selection, TokenRange
from viz_app.shell.target import answer_name
from viz_app.shell.work import (
    UNCONFIRMED_SECONDS,
    ResultState,
    cached,
    earlier_result,
    estimate_seconds,
    is_requested,
    poll,
    queue,
    request,
    work,
)

MEASURES = TEXTS.control("measure")["options"]
SLOW, TRUST = "slow methods", "trust"  # slots of the two requests by a button
SCORES = "answers"  # slot of the scores of the quick methods
SMALLEST_SHOWN = 0.001  # probability
QUICK_PASSES = 3  # methods with as many forward passes never need a button
MARKS = {"better": "●", "chance": "○", "worse": "✕"}
# The methods for long texts: the others need maps or vectors of all pairs of tokens.
LONG_TEXT_METHODS = ("saliency", "input x gradient", "integrated gradients", "occlusion")


@dataclass(frozen=True)
class MethodScores:
    """The scores of some methods for the tokens of a text and one target.

    answer: the name of what the target explains, in Markdown. names: of the methods. scores: (method, token). refused:
    a sentence for each method that could not be computed. target_value: of the target. is_stale: whether they answer
    an earlier question. token_range: of a long text, the positions that are drawn.
    """

    encoding: Encoding
    target: Target
    answer: str
    names: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    refused: tuple[str, ...]
    target_value: float | None
    is_stale: bool = False
    token_range: TokenRange | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the array in bytes."""
        return int(self.scores.nbytes)

    @property
    def identity(self) -> tuple[object, ...]:
        """What determines a judgement of the methods."""
        return self.encoding, self.target, self.names, self.scores

    def units(self, words: bool) -> list[tuple[int, ...]]:
        """Return the positions of each word or piece."""
        return list(word_units(self.encoding)) if words else [(place,) for place in range(len(self.encoding))]

    def drawn_part(self, words: bool) -> slice:
        """Return the places of the words or pieces that are drawn: of a long text, those that its range contains."""
        if self.token_range is None:
            return slice(None)
        firsts = [unit[0] for unit in self.units(words)]
        return slice(*(bisect_left(firsts, position) for position in self.token_range))

    def labels(self, words: bool) -> list[str]:
        """Return the text of each word or piece."""
        return [readable_word(self.encoding, unit) for unit in self.units(words)]

    def unit_scores(self, words: bool) -> np.ndarray:
        """Return the scores of words or pieces, (method, unit); that of a word is the sum over its pieces."""
        return scores_of_units(self.scores, self.units(words))

    def shares(self, words: bool) -> np.ndarray:
        """Return the scores of words or pieces, (method, unit), each row divided by its largest absolute value."""
        return scaled_rows(self.unit_scores(words))

    def agreement(self, words: bool) -> np.ndarray:
        """Return Spearman's rank correlations (method, method) over the units that can be removed for the target."""
        removable = set(self.target.removable(self.encoding))
        columns = [number for number, unit in enumerate(self.units(words)) if set(unit) <= removable]
        if len(columns) < 2:
            return np.full((len(self.names),) * 2, np.nan)
        return rank_agreement(self.unit_scores(words)[:, columns])

    def describe(self, method: Method, words: bool) -> str:
        """Return which removable words have the largest and the lowest score of a method, in Markdown."""
        removable, row = set(self.target.removable(self.encoding)), self.names.index(method.name)
        units = zip(self.units(words), self.labels(words), self.unit_scores(words)[row].tolist(), strict=True)
        ranked = sorted((value, label) for unit, label, value in units if set(unit) <= removable)
        if not ranked:
            return ""
        (lowest, bottom), (highest, top) = ranked[0], ranked[-1]
        signs = {(True, True): "both", (True, False): "supports", (False, True): "opposes", (False, False): "supports"}
        return TEXTS[f"result.{signs[highest > 0, lowest < 0] if method.signed else 'unsigned'}"].format(
            method=method.name, answer=self.answer, highest=two_digits(highest), lowest=two_digits(lowest),
            top=escape_markdown(top), bottom=escape_markdown(bottom),
        )  # fmt: skip

    def side_sums(self, method: str) -> str:
        """Return the sums of the scores in A, in B and at the special tokens of a pair, in Markdown."""
        totals = side_totals(self.scores[self.names.index(method)], self.encoding)
        names = ((with_special_tokens(TEXTS[f"sides.{name}"]), total) for name, total in totals.items())
        return ", ".join(f"{name} **{two_digits(total)}**" for name, total in names)

    def total(self, method: str) -> str:
        """Return the sum of the scores of a method."""
        return two_digits(float(self.scores[self.names.index(method)].sum()))

    def tables(self) -> dict[str, np.ndarray]:
        """Return the scores (token, 1) of every method, for a file."""
        return {name: row[:, None] for name, row in zip(self.names, self.scores, strict=True)}

    def arrays(self, trust: Trust | None) -> dict[str, np.ndarray]:
        """Return the scores (method, token), and the measures and random rankings if they are known, for a file."""
        arrays = {"scores": self.scores, "input_ids": np.array(self.encoding.input_ids)}
        if trust is not None and not trust.is_stale:
            for name, result in trust.results.items():
                arrays |= {name: result.scores, f"{name}_random": result.random, f"{name}_band": np.array(result.band)}
        return arrays

    @property
    def probability(self) -> float | None:
        """The probability of the target; None for an earlier question, and for a value that has none."""
        if self.is_stale or self.target_value is None or "{probability}" not in self.target.target_kind.value_text:
            return None
        return self.target.target_kind.probability(self.target_value)

    @property
    def probability_text(self) -> str:
        """The probability of the target as a short number; empty without one."""
        if self.probability is None:
            return ""
        return two_digits(self.probability) if self.probability >= SMALLEST_SHOWN else f"< {SMALLEST_SHOWN}"

    @property
    def question(self) -> str:
        """The question that the scores answer, in Markdown."""
        return self._fill("question")

    @property
    def headline(self) -> str:
        """The question with the value of the target, in Markdown; without it for an earlier question."""
        if self.is_stale or self.target_value is None:
            return self.question
        value = self.target.target_kind.format_value(self.target_value, two_digits)
        return self._fill("headline", value=self.probability_text or value)

    def _fill(self, table: str, **values: str) -> str:
        texts = TEXTS.options(table)
        return texts.get(self.target.kind, texts["other"]).format(answer=self.answer, **values)

    @property
    def measured_value(self) -> str:
        """The name of the value that the test of the methods measures."""
        if self.target.other is not None:
            return "cosine"
        return "logit" if self.target.kind == "choice" else "probability"  # a single choice has no probability


@dataclass(frozen=True)
class Trust:
    """Three measures of some methods on one text, beside random rankings.

    question: the target in words. results: by measure. is_stale: as in `MethodScores`.
    """

    names: tuple[str, ...]
    question: str
    results: dict[str, Faithfulness]
    is_stale: bool = False

    def mark(self, method: str, measure: str) -> str:
        """Return the mark of the verdict on a method; empty without a verdict for the current question."""
        if self.is_stale or method not in self.names:
            return ""
        return MARKS[self.results[measure].verdicts[self.names.index(method)]]

    def describe_method(self, method: str, measure: str) -> str:
        """Return the verdict on one method with its numbers; empty without one."""
        if method not in self.names:
            return ""
        result, index = self.results[measure], self.names.index(method)
        low, high = (two_digits(float(end)) for end in result.band)
        values = {"method": method, "measure": MEASURES[measure], "value": two_digits(float(result.scores[index]))}
        return TEXTS[f"verdict.{result.verdicts[index]}"].format(low=low, high=high, **values)

    def describe(self, measure: str) -> str:
        """Return which methods are better than chance, no better, or worse, in Markdown."""
        sentences = []
        for verdict, meaning in MEANINGS.items():
            verdicts = zip(self.names, self.results[measure].verdicts, strict=True)
            if names := [name for name, method_verdict in verdicts if method_verdict == verdict]:
                sentences.append(f"**{meaning.capitalize()}:** {', '.join(names)}.")
        return " ".join(sentences)


# ---------------------------------------------------------------------------- cost


def quick_and_slow(selection: Selection) -> tuple[list[Method], list[Method]]:
    """Return the methods that are computed at once for a text of this length, and those that need a button."""
    quick: list[Method] = []
    slow: list[Method] = []
    remaining, tokens = UNCONFIRMED_SECONDS, len(selection.encoding)
    for method in sorted(methods_for(selection), key=lambda method: method.passes(tokens)):
        remaining -= selection.seconds(method.passes(tokens))
        (quick if remaining >= 0 or method.passes(tokens) <= QUICK_PASSES else slow).append(method)
    return sorted(quick, key=METHODS.index), sorted(slow, key=METHODS.index)


def methods_for(selection: Selection) -> list[Method]:
    """Return the methods that a text of this length has."""
    return [method for method in METHODS if selection.token_range is None or method.name in LONG_TEXT_METHODS]


def count_passes(methods: Sequence[Method], encoding: Encoding) -> int:
    """Return the number of forward passes of some methods."""
    return sum(method.passes(len(encoding)) for method in methods)


def trust_passes(scores: MethodScores, words: bool) -> int:
    """Return the number of copies of the text that are read to judge some methods."""
    # Random rankings come in pairs: what one removes first, the other removes last.
    copies = len(scores.names) * (len(REMOVED_SHARES) + len(TOP_SHARES)) + RANDOM_RANKINGS * len(REMOVED_SHARES)
    units = len(removable_units(scores.encoding, scores.target, words=words))
    return int(min(copies, 2**units))


# ---------------------------------------------------------------------------- requests and results


def request_for(slot: str, selection: Selection, *details: Hashable) -> None:
    """Request the slow methods or the test of trust for this question alone; a callback."""
    request(slot, _question_key(selection, *details))


def is_requested_for(slot: str, selection: Selection, *details: Hashable) -> bool:
    """Return whether the slow methods or the test of trust were requested for this question."""
    return is_requested(slot, _question_key(selection, *details))


def _question_key(selection: Selection, *details: Hashable) -> Hashable:
    return identity_of((selection.loaded, selection.encoding, selection.target, selection.head_mask, details))


def method_scores(selection: Selection) -> MethodScores | None:
    """Return the scores of the quick methods, and those of the slow ones if they were requested.

    Until they are computed, or without a target, the last scores, marked as stale; None without any.
    """
    target = selection.target
    if target is None:
        earlier: MethodScores | None = earlier_result(SCORES).value
        return None if earlier is None else replace(earlier, is_stale=True)
    model, drawn_range = selection.loaded, selection.token_range
    # The methods for long texts need no maps: whatever is drawn, the scores are those of one run.
    run = (selection if drawn_range is None else replace(selection, token_range=(0, 1))).run(gradients=True)
    answer = answer_name(selection, target)
    quick, slow = (tuple(method.name for method in methods) for methods in quick_and_slow(selection))
    polled = poll(_score_methods(model, run, quick, answer), slot=SCORES)
    if polled.value is None or polled.state is not ResultState.READY:
        return None if polled.value is None else replace(polled.value, is_stale=True)
    if slow and is_requested_for(SLOW, selection):
        slow_scores = poll(_score_methods(model, run, slow, answer), request_slot=SLOW).value
        if slow_scores is not None:
            return replace(_join(polled.value, slow_scores), token_range=drawn_range)
    return replace(polled.value, token_range=drawn_range)


def _join(first: MethodScores, second: MethodScores) -> MethodScores:
    rows = {name: row for scores in (first, second) for name, row in zip(scores.names, scores.scores, strict=True)}
    names = tuple(method.name for method in METHODS if method.name in rows)
    array = np.array([rows[name] for name in names])
    return replace(first, names=names, scores=array, refused=first.refused + second.refused)


@work(
    "{model}: {names} methods on one text",
    seconds=lambda model, run, names, answer: estimate_seconds(
        model, len(run.encoding), count_passes([method_of(name) for name in names], run.encoding)
    ),
)
def _score_methods(
    model: LoadedModel, run: ModelRun, names: tuple[str, ...], answer: str, report: Progress = ignore_progress
) -> MethodScores:
    """Compute the scores of some methods for the target of a run; those without enough memory are refused."""
    encoding, target = run.encoding, run.target
    assert target is not None  # the page requires one
    rows: dict[str, np.ndarray] = {}
    refused = []
    for number, name in enumerate(names):
        try:
            memory = score_bytes(model, name, len(encoding))
            with reserve_memory(memory, queue().drop_oldest, name, device=model.device):
                rows[name] = token_scores(model, encoding, target, [name], run=run, head_mask=run.head_mask)[0]
        except Refused as error:
            refused.append(str(error))
        report((number + 1) / len(names))
    scores = np.array(list(rows.values())).reshape(len(rows), len(encoding))
    return MethodScores(encoding, target, answer, tuple(rows), scores, tuple(refused), run.target_value)


def method_trust(selection: Selection, scores: MethodScores, words: bool) -> Trust | None:
    """Return the measures of the methods if they were requested, else the last ones, marked as stale, or None."""
    polled = earlier_result(TRUST)
    if is_requested_for(TRUST, selection, words) and not scores.is_stale:
        polled = poll(
            _judge_methods(selection.loaded, scores, words, selection.head_mask), slot=TRUST, request_slot=TRUST
        )
    trust: Trust | None = polled.value
    return trust if trust is None or polled.state is ResultState.READY else replace(trust, is_stale=True)


@work(
    "{model} tests the methods by hiding words",
    seconds=lambda model, scores, words, *_: estimate_seconds(model, len(scores.encoding), trust_passes(scores, words)),
    memory=lambda model, scores, words, *_: forward_bytes(model, len(scores.encoding), trust_passes(scores, words)),
)
def _judge_methods(
    model: LoadedModel, scores: MethodScores, words: bool, head_mask: np.ndarray, report: Progress = ignore_progress
) -> Trust:
    """Judge methods by masking the words that they score highest."""
    results = faithfulness(
        model, scores.encoding, scores.target, scores.scores, words=words, head_mask=head_mask, report=report
    )
    return Trust(scores.names, scores.question, results)


def scores_of_layers(selection: Selection, scores: MethodScores, method: str, words: bool) -> np.ndarray:
    """Return the scores (layer, unit) of a method that has them for each layer."""
    run = selection.run(gradients=True)
    return scores_of_units(_layer_scores(selection.loaded, run, method), scores.units(words))


@cached
def _layer_scores(model: LoadedModel, run: ModelRun, method: str) -> np.ndarray:
    assert run.target is not None  # the page requires one
    return layer_scores(model, run.encoding, run.target, method, run=run, head_mask=run.head_mask)

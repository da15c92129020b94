"""Accuracy of attribution methods on sentences with known relevant words: questions, a table of judgements, a summary.

Sources of sentences: `bert_core.agreement`, the models of `bert_core.circuits`, and treebanks or tables with subjects
and verbs (`bert_core.studies.subject_verb`). Only predictions that are right are explained, as in Arras 2025
(arXiv:2502.15886).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

import numpy as np

from bert_core.analysis.ground_truth import ACCURACIES, VARIANTS, truth_accuracy
from bert_core.analysis.intervals import bootstrap_interval
from bert_core.circuits import CIRCUITS, circuit_sentences, load_circuit
from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.methods import check_methods, supported_methods, token_scores
from bert_core.progress import Progress, ignore_progress, report_count
from bert_core.records import Target, TruthSentence, pieces_of
from bert_core.records.base import compared_by_value
from bert_core.refused import Refused, require_instances, validate_arguments
from bert_core.run.perturbation import values_without
from bert_core.studies.faithfulness import check_existing_table
from bert_core.studies.runner import STATE_VERSION, as_json_values, exclusive_lock, write_settings
from bert_core.studies.settings import GroundTruthSettings
from bert_core.studies.subject_verb import masked_agreement, read_truth_sentences
from bert_core.studies.tables import GrowingTable
from bert_core.tokenizer import Encoding

RANDOM = "random ranking"
SENTENCES_OF_CIRCUIT = 100
RANKED_BY = ("signed", "pointing")
"""The variant and the accuracy that rank the methods."""

_HEADER = (
    "number", "condition", "group", "tokens", "relevant", "difference", "method",
    *(f"{accuracy}_{variant}" for variant in VARIANTS for accuracy in ACCURACIES),
)  # fmt: skip


@dataclass(frozen=True)
class TruthJudgement:
    """Accuracy of one method on one sentence: a row of the table.

    number: number of the sentence in its set. condition, group: as for `TruthSentence`.
    tokens, relevant: number of ranked tokens, and of those that are relevant.
    difference: logit of the right word minus that of the wrong one, above 0.
    method: name of a method, or `RANDOM`.
    accuracies: (variant, accuracy) in the order of `VARIANTS` and `ACCURACIES`.
    """

    number: int
    condition: str
    group: str
    tokens: int
    relevant: int
    difference: float
    method: str
    accuracies: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class GroundTruth:
    """The judgements of a set of sentences.

    judgements: rows of the table. sentences: number of judged sentences.
    wrong: number of sentences that were skipped because the model predicts the wrong word.
    unusable: number of sentences that were skipped because a word is not one token, or the text is too long.
    """

    judgements: tuple[TruthJudgement, ...]
    sentences: int
    wrong: int
    unusable: int


@dataclass(frozen=True)
class TruthSummary:
    """Mean accuracies of one method over the sentences of a set.

    sentences: number of sentences.
    means, low, high: (variant, accuracy), and the 95% bootstrap interval of each mean over groups of sentences.
    """

    method: str
    sentences: int
    means: tuple[tuple[float, ...], ...]
    low: tuple[tuple[float, ...], ...]
    high: tuple[tuple[float, ...], ...]

    def value(self, variant: str, accuracy: str) -> tuple[float, float, float]:
        """Return a mean and the limits of its interval."""
        place = VARIANTS.index(variant), ACCURACIES.index(accuracy)
        mean, low, high = (table[place[0]][place[1]] for table in (self.means, self.low, self.high))
        return mean, low, high


@compared_by_value
@dataclass(frozen=True)
class _Question:
    """A sentence that a model answers correctly. is_relevant, is_ranked: (token,) boolean."""

    number: int
    sentence: TruthSentence
    encoding: Encoding
    target: Target
    difference: float
    is_relevant: np.ndarray
    is_ranked: np.ndarray


@validate_arguments
def judge_ground_truth(
    loaded: LoadedModel | None,
    source: str | Path,
    table: Path,
    settings: GroundTruthSettings,
    *,
    report: Progress = ignore_progress,
) -> GroundTruth:
    """Judge attribution methods on sentences whose relevant words are known.

    The judgements of each sentence are appended to the table at once, and the same call resumes an existing table.

    loaded: the model; None for the circuits, which are models themselves.
    source: "agreement" for the sentences of `bert_core.agreement`; "circuits" for the models of `bert_core.circuits`;
        or the path of a treebank or a table, see `read_truth_sentences`.
    table: CSV file of the judgements; the identity of the study is next to it in TABLE.settings.json.
    report: receives the number of judged sentences (see `Progress`).
    Raises Refused for an edited model, a method that the model does not support, a model beside the circuits or none
    beside other sentences, a table of another study, or a set in which the model predicts no word correctly.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import bert_core
    >>> settings = bert_core.GroundTruthSettings(sentences=6, methods=("occlusion", "attention"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = bert_core.judge_ground_truth(None, "circuits", Path(folder) / "table.csv", settings)
    >>> best = bert_core.summarise_truth(result.judgements)[0]
    >>> best.method, best.value("signed", "pointing")[0]
    ('occlusion', 1.0)
    """
    circuit = _cached_circuit(next(iter(CIRCUITS))) if source == "circuits" else None
    if (loaded is None) != (circuit is not None):
        raise Refused("the circuits are models themselves: give None as the model for them, and a model for other sets")
    model = loaded or circuit
    assert model is not None
    check_unedited(model.edits, "a study")
    methods = settings.methods or supported_methods(model)
    check_methods(model, methods)
    sentences = _sentences(source)
    model.require_head("words", "the verb at [MASK] cannot be predicted")
    identity = as_json_values(
        {
            "version": STATE_VERSION,
            "text": sha256(repr(sentences).encode()).hexdigest(),
            "weights": "" if loaded is None else fingerprint(loaded),
            **dataclasses.asdict(settings),
            "methods": methods,
        }
    )
    del identity["sentences"]  # a study with more sentences continues the same table
    check_existing_table(table, identity)
    table.parent.mkdir(parents=True, exist_ok=True)
    growing = GrowingTable(table, _HEADER, "table of ground truth")
    with exclusive_lock(table):
        if not table.exists():
            write_settings(table, identity)
        by_number = _complete(growing, methods)
        judgements: list[TruthJudgement] = []
        counts = {"right": 0, "wrong": 0, "unusable": 0}
        for number, sentence in _stratified(sentences, settings.seed):
            if counts["right"] == settings.sentences:
                break
            if number in by_number:
                rows = by_number[number]
            else:
                model = loaded or _cached_circuit(sentence.condition)
                question = _question(model, number, sentence, settings)
                if isinstance(question, str):
                    counts[question] += 1
                    continue
                rows = _judge(model, question, methods)
                growing.append_rows(map(_to_line, rows))
            judgements += rows
            counts["right"] += 1
            report_count(report, counts["right"], min(settings.sentences, len(sentences)), "sentences")
    if not counts["right"]:
        raise Refused(
            f"none of the {len(sentences):,} sentences can be judged: the model predicts the wrong word in "
            f"{counts['wrong']:,}, and {counts['unusable']:,} have a word of several tokens or are too long"
        )
    return GroundTruth(tuple(judgements), counts["right"], counts["wrong"], counts["unusable"])


_cached_circuit = cache(load_circuit)


def _sentences(source: str | Path) -> tuple[TruthSentence, ...]:
    """Return the sentences of a set."""
    if source == "agreement":
        return masked_agreement()
    if source == "circuits":
        return tuple(sentence for name in CIRCUITS for sentence in circuit_sentences(name, SENTENCES_OF_CIRCUIT))
    return read_truth_sentences(Path(source))


def _stratified(sentences: Sequence[TruthSentence], seed: int) -> Iterator[tuple[int, TruthSentence]]:
    """Yield (number, sentence) in random order, with the conditions in turn."""
    by_condition: dict[str, list[int]] = {}
    for number in np.random.default_rng(seed).permutation(len(sentences)).tolist():
        by_condition.setdefault(sentences[number].condition, []).append(number)
    for numbers in zip_longest(*(by_condition[name] for name in sorted(by_condition))):
        yield from ((number, sentences[number]) for number in numbers if number is not None)


def _question(
    loaded: LoadedModel, number: int, sentence: TruthSentence, settings: GroundTruthSettings
) -> _Question | str:
    """Return the question about a sentence, or "wrong" or "unusable" if it is skipped."""
    longest = min(settings.max_length, loaded.config.max_position_embeddings)
    try:
        encoding = loaded.tokenizer.encode(sentence.text, max_length=longest)
        pieces = [pieces_of(loaded.tokenizer, word) for word in (sentence.right, sentence.wrong)]
    except Refused:  # no character that the tokenizer knows
        return "unusable"
    if encoding.truncated_count or len(encoding.mask_positions) != 1 or any(len(word) != 1 for word in pieces):
        return "unusable"
    (position,) = encoding.mask_positions
    right, wrong = (loaded.tokenizer.id_of(word) for (word,) in pieces)
    is_added = np.array(encoding.special)
    is_relevant = np.array(
        [any(start < end_ and start_ < end for start_, end_ in sentence.relevant) for start, end in encoding.offsets]
    ) & ~is_added  # fmt: skip
    if not is_relevant.any() or right == wrong:
        return "unusable"
    target = Target("contrast", position, right, against=wrong)
    difference = float(values_without(loaded, encoding, target, np.zeros((1, len(encoding)), bool))[0])
    if difference <= 0:
        return "wrong"
    is_ranked = np.ones(len(encoding), bool)
    if not settings.special_tokens:
        is_ranked = ~is_added
        is_ranked[position] = False
    return _Question(number, sentence, encoding, target, difference, is_relevant, is_ranked)


def _judge(loaded: LoadedModel, question: _Question, methods: Sequence[str]) -> list[TruthJudgement]:
    """Return the judgement of each method on a question, and the expected accuracy of a random ranking."""
    scores = token_scores(loaded, question.encoding, question.target, methods)
    ranked = np.vstack([scores, np.ones(len(question.encoding))])[:, question.is_ranked]
    is_relevant = question.is_relevant[question.is_ranked]
    sentence, accuracies = question.sentence, truth_accuracy(ranked, is_relevant.astype(int))
    # The values are rounded as in the table, so that a resumed study returns the same ones.
    return [
        TruthJudgement(
            question.number, sentence.condition, sentence.group or f"{question.number}", len(is_relevant),
            int(is_relevant.sum()), _rounded(question.difference), name,
            tuple(tuple(map(_rounded, values)) for values in table),
        )
        for name, table in zip([*methods, RANDOM], accuracies.tolist(), strict=True)
    ]  # fmt: skip


def _rounded(number: float) -> float:
    """Return a number with six significant digits."""
    return float(f"{number:.6g}")


# ---------------------------------------------------------------------------- the table


def _complete(growing: GrowingTable, methods: Sequence[str]) -> Mapping[int, list[TruthJudgement]]:
    """Return the judgements of a table by sentence, and remove the rows of incomplete sentences from the file."""
    by_number: dict[int, list[TruthJudgement]] = {}
    for line in growing.read_rows():
        if (judgement := _from_line(line)) is not None:
            by_number.setdefault(judgement.number, []).append(judgement)
    complete = {
        number: rows for number, rows in by_number.items() if [row.method for row in rows] == [*methods, RANDOM]
    }
    growing.replace_rows(_to_line(row) for rows in complete.values() for row in rows)
    return complete


@validate_arguments
def read_truth_judgements(table: Path) -> list[TruthJudgement]:
    """Read the judgements of a table. Raises Refused for a file that is not such a table."""
    lines = GrowingTable(table, _HEADER, "table of ground truth").read_rows()
    return [judgement for line in lines if (judgement := _from_line(line)) is not None]


def _to_line(judgement: TruthJudgement) -> list[object]:
    """Return the row of a judgement in the order of `_HEADER`."""
    numbers = [value for values in judgement.accuracies for value in values]
    return [
        judgement.number, judgement.condition, judgement.group, judgement.tokens, judgement.relevant,
        judgement.difference, judgement.method, *numbers,
    ]  # fmt: skip


def _from_line(line: Sequence[str]) -> TruthJudgement | None:
    """Return the judgement of a line of the table; None for an incomplete line."""
    number, condition, group, tokens, relevant, difference, method, *measured = line
    try:
        accuracies = np.array(measured, np.float64).reshape(len(VARIANTS), len(ACCURACIES))
        return TruthJudgement(
            int(number), condition, group, int(tokens), int(relevant), float(difference), method,
            tuple(map(tuple, accuracies.tolist())),
        )  # fmt: skip
    except ValueError:
        return None


# ---------------------------------------------------------------------------- the summary


def summarise_truth(judgements: Iterable[TruthJudgement]) -> list[TruthSummary]:
    """Summarise judgements by method: best first by `RANKED_BY`, the random ranking last."""
    groups: dict[str, list[TruthJudgement]] = {}
    for judgement in require_instances("judgements", judgements, TruthJudgement):
        groups.setdefault(judgement.method, []).append(judgement)
    summaries = []
    for method, rows in groups.items():
        values = np.array([row.accuracies for row in rows])  # (sentence, variant, accuracy)
        limits = bootstrap_interval(values.reshape(len(rows), -1), [row.group for row in rows])
        arrays = (values.mean(0), *limits.reshape(2, *values.shape[1:]))
        tables = (tuple(map(tuple, array.tolist())) for array in arrays)
        summaries.append(TruthSummary(method, len(rows), *tables))
    return sorted(summaries, key=lambda summary: (summary.method == RANDOM, -summary.value(*RANKED_BY)[0]))


def truth_markdown(summaries: Sequence[TruthSummary]) -> str:
    """Format summaries as a Markdown table: signed pointing and rank, and the mass of each variant, with intervals."""
    columns = (
        *((f"{name}, {variant}", variant, accuracy) for name, variant, accuracy in (
            ("Pointing", "signed", "pointing"), ("Pointing", "absolute", "pointing"), ("Rank", "signed", "rank"),
            ("Reciprocal rank", "signed", "reciprocal_rank"), ("Mass", "signed", "mass"),
            ("Mass", "absolute", "mass"), ("Mass", "clipped", "mass"),
        )),
    )  # fmt: skip
    lines = [
        f"| Method | {' | '.join(title for title, _, _ in columns)} |",
        f"| --- |{' --- |' * len(columns)}",
    ]
    for summary in summaries:
        cells = ["{:.2f} ({:.2f}–{:.2f})".format(*summary.value(variant, name)) for _, variant, name in columns]
        lines.append(f"| {' | '.join([summary.method, *cells])} |")
    return "\n".join(lines) + "\n"


def method_ranks(summaries: Sequence[TruthSummary]) -> dict[str, int]:
    """Return the rank of each method, 1 for the best, by the variant and the accuracy of `RANKED_BY`."""
    names = [summary.method for summary in summaries if summary.method != RANDOM]
    return {name: rank for rank, name in enumerate(names, 1)}

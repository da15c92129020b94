"""Evaluation of a model on every text of a file: a table with the answer, the prediction and the loss of each text.

Each shard of the file is evaluated in padded batches into its own part file. The parts are concatenated in the order of
the file, so an interrupted evaluation resumes without loss.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_core.analysis.relations import pieces_of_words
from bert_core.analysis.spans import best_spans, span_at
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part
from bert_core.records import EvaluatedTexts, SpanPrediction, Target
from bert_core.records.evaluation import INTEGER_FIELDS, NUMBER_FIELDS, RESERVED_COLUMNS, TEXT_FIELDS
from bert_core.records.targets import OtherNumberOfWords, mask_groups, word_targets
from bert_core.refused import Refused, require_instances, validate_arguments
from bert_core.run.evaluation import WHOLE_TEXT, AnswerTarget, mean_surprisals, predict_spans, score_answers
from bert_core.studies.file_questions import check_model, shard_reader, targets_of
from bert_core.studies.lines import SHARD_LINES, Line, Shard
from bert_core.studies.rows import check_rows, join_names, other_columns_of
from bert_core.studies.runner import ShardStudy, run_to_end
from bert_core.studies.settings import EVALUATION_LOSSES, EvaluationSettings
from bert_core.studies.table_studies import TableStudyResult, is_table_complete, iter_table_study
from bert_core.studies.texts import check_texts, text_shards
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.task_heads import IS_NEXT, NO_ANSWER, NOT_NEXT, is_exclusive, is_number
from bert_core.tokenizer import Encoding, join_pieces

SHARD_TEXTS = 256  # of a part file; they are sorted by length and evaluated in batches
TEXTS_AT_ONCE = 4096  # whose encodings are in memory together
WORD_COLUMN = "word"  # column with the tagged word of each row
ROW_COLUMNS = ("question", "row", "text", "pair", "position", "answer", "prediction", *NUMBER_FIELDS)
TYPES = (
    dict.fromkeys(("question", *TEXT_FIELDS), "string")
    | dict.fromkeys(INTEGER_FIELDS, "int64")
    | dict.fromkeys(NUMBER_FIELDS, "float64")
)  # of the columns in Parquet; all other columns are texts
# Answers that a file may hold for the question "next" -> the names of the two classes.
NEXT_ANSWERS = {
    **dict.fromkeys((IS_NEXT, "yes", "true"), IS_NEXT),
    **dict.fromkeys((NOT_NEXT, "not", "no", "false"), NOT_NEXT),
}
_NEXT_CLASSES = (IS_NEXT, NOT_NEXT)


class _Answer(NamedTuple):
    """One answer about a text: what it is read from, its expected name (empty if unknown), and the tagged word."""

    target: AnswerTarget
    name: str = ""
    word: str = ""


class _Row(NamedTuple):
    """The values of one row that the model determines, in the order of the last columns of `ROW_COLUMNS`."""

    position: int
    answer: str
    prediction: str
    probability: float
    confidence: float
    loss: float
    word: str = ""


# ---------------------------------------------------------------------------- the answers of one text


def _answers(loaded: LoadedModel, encoding: Encoding, line: Line, settings: EvaluationSettings) -> list[_Answer]:
    """Return the answers about one text to the question of the settings, in the order of the text.

    Raises Refused if the question does not apply to the text, or the model does not have its answer.
    """
    if settings.question == "tag":
        return _tag_answers(loaded, encoding, line, settings.word)
    if settings.question == "word":
        return _word_answers(loaded, encoding, settings.word or line.answer)
    names: Sequence[str] = loaded.labels
    name = line.answer
    if settings.question == "next":
        if encoding.pair is None:
            raise Refused("the text has no second text")
        names, name = _NEXT_CLASSES, NEXT_ANSWERS.get(line.answer or IS_NEXT, line.answer)
    return [_Answer(AnswerTarget((WHOLE_TEXT,), (_number_of(name, names),) if name else ()), name)]


def _number_of(name: str, names: Sequence[str]) -> int:
    """Return the number of an answer. Raises Refused if the model does not have it."""
    if name not in names:
        raise Refused(f"the answer {name!r:.60} does not exist: the model has {join_names(names)}")
    return list(names).index(name)


def _word_answers(loaded: LoadedModel, encoding: Encoding, words: str) -> list[_Answer]:
    """Return the answers at the [MASK] tokens, one for each group of adjacent ones.

    words: the expected word; several, separated by spaces, are those of the groups in order. Empty if unknown.
    """
    if not encoding.mask_positions:
        raise Refused("the text has no [MASK]")
    if not words:
        return [_Answer(AnswerTarget(group)) for group in mask_groups(encoding)]
    targets = word_targets(loaded.tokenizer, encoding, words)
    return [_Answer(_target_at_masks(target), name) for name, target in targets]


def _target_at_masks(target: Target) -> AnswerTarget:
    """Return the positions and token ids of a masked word."""
    positions, tokens = zip(*target.target_pieces, strict=True)
    return AnswerTarget(positions, tokens)


def _tag_answers(loaded: LoadedModel, encoding: Encoding, line: Line, word: str) -> list[_Answer]:
    """Return the answers at the first piece of each word, also of words outside of entities.

    word: only this word, in any case; empty for all.
    """
    if line.marks is None:
        numbers = range(encoding.word_count)
        tagged = [(encoding.pieces_of(number)[0], "", encoding.word_text(number)) for number in numbers]
    else:
        pieces = pieces_of_words(encoding, [(start, end) for start, end, _ in line.marks])
        tagged = [
            (positions[0], label, line.text[start:end])
            for positions, (start, end, label) in zip(pieces, line.marks, strict=True)
            if positions  # truncation removes the words at the end
        ]
    return [
        _Answer(AnswerTarget((position,), (_number_of(label, loaded.tags),) if label else ()), label, text)
        for position, label, text in tagged
        if not word or text.casefold() == word.casefold()
    ]


def _class_name(loaded: LoadedModel, question: str, classes: tuple[int, ...]) -> str:
    """Return the name of a prediction. classes: the predicted class at each position of its target."""
    if question == "word":
        return join_pieces(loaded.tokenizer.token_of(token) for token in classes)
    names = {"class": loaded.labels, "next": _NEXT_CLASSES, "tag": loaded.tags}[question]
    return names[classes[0]]


def _span_row(loaded: LoadedModel, encoding: Encoding, line: Line, prediction: SpanPrediction) -> _Row | None:
    """Return the row of a question about a second text; None if truncation removed the answer."""
    no_answer = span_at(encoding, prediction, 0, 0)
    best = max((no_answer, *best_spans(encoding, prediction, 1)), key=lambda span: span.score)
    name, answer, probability = best.text if best.last else NO_ANSWER, "", math.nan
    if line.marks is not None:
        targets = targets_of(loaded, encoding, line, "span")
        if not targets:
            return None
        (first, last), answer = targets[0].target.rows, targets[0].name
        probability = span_at(encoding, prediction, first, last).probability
        name = answer if (first, last) == (best.first, best.last) else name
    loss = -math.log(probability) if probability > 0 else math.nan if math.isnan(probability) else math.inf
    return _Row(best.first, answer, name, probability, best.probability, loss)


# ---------------------------------------------------------------------------- many texts


def _evaluate_lines(
    loaded: LoadedModel, lines: Sequence[Line], settings: EvaluationSettings, report: Progress, *, strict: bool = False
) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Evaluate texts in padded batches.

    strict: raise Refused for a text to which the question does not apply, instead of counting it.
    Returns the columns of a table, and the counts of `evaluate_shard` apart from those of the shard.
    """
    counts: Counter[str] = Counter()
    texts: list[tuple[Line, Encoding, list[_Answer]]] = []
    for line in lines:
        reason, answers = "unreadable", list[_Answer]()
        try:
            encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=settings.max_length)
            reason = "without the word"
            if settings.question == "surprise":
                if encoding.mask_positions:
                    reason = "with a mask"
                    raise Refused(f"the text contains {encoding.special_tokens.mask}, whose surprisal is not defined")
            elif settings.question == "span":
                if encoding.pair is None:
                    raise Refused("the text has no second text")
            else:
                answers = _answers(loaded, encoding, line, settings)
        except Refused as error:
            if strict:
                raise
            counts["other number of words" if isinstance(error, OtherNumberOfWords) else reason] += 1
            continue
        texts.append((line, encoding, answers))
    rows_of_texts = _predict(loaded, texts, settings.question, report)
    columns: dict[str, list[Any]] = {name: [] for name in ROW_COLUMNS}
    other_names = list(dict.fromkeys(name for line in lines for name in line.columns or ()))
    word_columns = [WORD_COLUMN] if settings.question == "tag" else []
    columns |= {name: [] for name in (*word_columns, *other_names)}
    for (line, encoding, _), rows in zip(texts, rows_of_texts, strict=True):
        if not rows:
            counts["without an answer"] += 1
            continue
        counts["texts"] += 1
        counts["tokens"] += len(encoding)
        counts["questions"] += len(rows)
        counts["shortened"] += bool(encoding.truncated_count)
        line_values = [(line.columns or {}).get(name, "") for name in other_names]
        for row in rows:
            values = (settings.question, line.number, line.text, line.pair or "", *row[:-1])
            words = [row.word for _ in word_columns]
            for column, value in zip(columns.values(), (*values, *words, *line_values), strict=True):
                column.append(value)
    return columns, counts


def _predict(
    loaded: LoadedModel, texts: Sequence[tuple[Line, Encoding, list[_Answer]]], question: str, report: Progress
) -> list[list[_Row]]:
    """Return the rows of each text, without rows where truncation removed the answers."""
    encodings = [encoding for _, encoding, _ in texts]
    if question == "surprise":
        surprisals = mean_surprisals(loaded, encodings, report).tolist()
        nan = math.nan
        return [[] if math.isnan(loss) else [_Row(WHOLE_TEXT, "", "", nan, nan, loss)] for loss in surprisals]
    if question == "span":
        predictions = predict_spans(loaded, encodings, report)
        rows = [
            _span_row(loaded, encoding, line, prediction)
            for (line, encoding, _), prediction in zip(texts, predictions, strict=True)
        ]
        return [[] if row is None else [row] for row in rows]
    targets = [[answer.target for answer in answers] for _, _, answers in texts]
    scores = score_answers(loaded, FILE_QUESTIONS[question].head, encodings, targets, report)
    return [
        [
            _Row(
                answer.target.positions[0],
                answer.name,
                answer.name if score.classes == answer.target.classes else _class_name(loaded, question, score.classes),
                score.probability,
                score.confidence,
                score.loss,
                answer.word,
            )
            for answer, score in zip(answers, text_scores, strict=True)
        ]
        for (_, _, answers), text_scores in zip(texts, scores, strict=True)
    ]


@validate_arguments
def evaluate_texts(
    loaded: LoadedModel,
    rows: Sequence[Line],
    settings: EvaluationSettings | None = None,
    report: Progress = ignore_progress,
) -> EvaluatedTexts:
    """Evaluate a model on texts in memory, in padded batches; the result is that of `evaluate_file`, up to rounding.

    rows: the texts with their second texts, answers and other columns, for example from `lines_to_evaluate`.
    settings: None means `EvaluationSettings()`. Its columns and tags have no effect.
    report: see `Progress`.
    Texts to which the question does not apply are left out, such as texts without a [MASK].
    Raises Refused if no text can be evaluated, with the reason for the first, and as `evaluate_file`.

    >>> import bert_core
    >>> loaded = bert_core.load("headlight-mini")
    >>> lines = [bert_core.Line(1, "She opened the [MASK] and walked in.", answer="door")]
    >>> settings = bert_core.EvaluationSettings("word")
    >>> table = bert_core.evaluate_texts(loaded, lines, settings)
    >>> print(f"{table.prediction[0]} {table.probability[0]:.2f} {table.loss[0]:.2f}")
    door 0.69 0.37
    """
    lines = require_instances("rows", rows, Line)
    settings = STUDY.checked_settings(loaded, settings or EvaluationSettings())
    if not lines:
        raise Refused("rows is empty: give at least one text")
    return _evaluate_parts(loaded, lines, settings, report)[0]


def evaluate_in_memory(
    path: Path, loaded: LoadedModel, settings: EvaluationSettings, report: Progress = ignore_progress
) -> tuple[EvaluatedTexts, Counter[str]]:
    """Evaluate a model on all texts of a file in memory.

    Returns two values: the table of `evaluate_texts`, and the counts of `evaluate_shard` summed over the file.
    Raises Refused as `evaluate_texts`, and for a file without a text.
    """
    settings = STUDY.checked_settings(loaded, settings)
    shards = list(_make_reader(path, loaded, settings)())
    lines = [line for shard in shards for line in shard.lines]
    if not lines:
        raise Refused(f"{path.name} has no text to evaluate")
    table, counts = _evaluate_parts(loaded, lines, settings, report)
    return table, sum((shard.counts for shard in shards), counts)


def _evaluate_parts(
    loaded: LoadedModel, lines: Sequence[Line], settings: EvaluationSettings, report: Progress
) -> tuple[EvaluatedTexts, Counter[str]]:
    """Return the table of some texts and the counts of `_evaluate_lines`. Raises Refused as `evaluate_texts`."""
    parts = [lines[first : first + TEXTS_AT_ONCE] for first in range(0, len(lines), TEXTS_AT_ONCE)]
    evaluated_parts = [
        _evaluate_lines(loaded, part, settings, progress_of_part(report, number, len(parts)))
        for number, part in enumerate(parts)
    ]
    tables = [table for table, _ in evaluated_parts]
    counts = sum((part_counts for _, part_counts in evaluated_parts), Counter[str]())
    if not any(table["row"] for table in tables):
        _evaluate_lines(loaded, lines[:1], settings, ignore_progress, strict=True)
        raise Refused("none of the texts has an answer that can be evaluated")
    names = dict.fromkeys(name for table in tables for name in table)
    columns = {
        name: [value for table in tables for value in table.get(name) or [""] * len(table["row"])] for name in names
    }
    arrays = {name: np.array(values, object) for name, values in columns.items()}
    return table_of_columns(settings.question, arrays), counts


def table_of_columns(question: str, columns: dict[str, np.ndarray]) -> EvaluatedTexts:
    """Return the record of a table. columns: those of `ROW_COLUMNS` without "question", and the other columns."""
    fields = {name: columns[name] for name in ROW_COLUMNS if name != "question"}
    other_names = {name: values for name, values in columns.items() if name not in ROW_COLUMNS}
    return EvaluatedTexts(question, EVALUATION_LOSSES[question], **fields, columns=other_names)


@validate_arguments
def lines_to_evaluate(path: Path, loaded: LoadedModel, settings: EvaluationSettings) -> list[Line]:
    """Read all texts of a file for `evaluate_texts`, with their answers and other columns.

    Raises Refused as `evaluate_file`.
    """
    settings = STUDY.checked_settings(loaded, settings)
    return [line for shard in _make_reader(path, loaded, settings)() for line in shard.lines]


# ---------------------------------------------------------------------------- a file


def evaluate_shard(
    loaded: LoadedModel, shard: Shard, settings: EvaluationSettings
) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Evaluate every text of a shard.

    Returns two values. The first is a table as columns, `ROW_COLUMNS` and the other columns of the file, with one row
    for each answer. The second holds the counts of `lines.Shard` and these.
        "texts", "tokens", "questions": texts, tokens and answers that were evaluated.
        "shortened": texts cut to `max_length` tokens.
        "shortened values": values of other columns that were cut.
        "unreadable": texts without a character that the tokenizer knows.
        "without the word": texts to which the question does not apply, such as those without a [MASK].
        "other number of words": texts with several groups of [MASK] whose answer has another number of words.
        "with a mask": texts with a [MASK], which have no surprisal.
        "without an answer": texts without an answer, or whose answer was cut off.
    """
    columns, counts = _evaluate_lines(loaded, shard.lines, settings, ignore_progress)
    for name in NUMBER_FIELDS:
        columns[name] = [None if math.isnan(value) else value for value in columns[name]]
    return columns, Counter(shard.counts) + counts


def _check(loaded: LoadedModel, settings: EvaluationSettings) -> None:
    """Raise Refused if a model cannot answer the question of the settings."""
    if settings.question == "surprise":
        loaded.require_head("words", "the surprisal of its tokens cannot be computed")
        return
    check_model(loaded, settings.question)
    if settings.question == "class":
        config = loaded.config
        if is_number(config) or not is_exclusive(config) or len(loaded.labels) < 2:
            kind = "predicts a number" if is_number(config) else "does not give one class of several to each text"
            raise Refused(f"{loaded.name} {kind}: only classes that exclude each other can be evaluated")


def _complete(loaded: LoadedModel, settings: EvaluationSettings) -> EvaluationSettings:
    """Return the settings with at most as many tokens as the model reads."""
    return replace(settings, max_length=min(settings.max_length, loaded.config.max_position_embeddings))


STUDY = ShardStudy(evaluate_shard, _check, _complete)


def _make_reader(path: Path, loaded: LoadedModel, settings: EvaluationSettings) -> Callable[..., Iterator[Shard]]:
    """Return the function that reads the shards of a file. Raises Refused as `shard_reader`."""
    columns, size = settings.columns, SHARD_LINES if settings.question == "surprise" else SHARD_TEXTS
    reserved_names = (*RESERVED_COLUMNS, WORD_COLUMN)
    other_names = None if columns is None else other_columns_of(path, columns, reserved_names)
    if settings.question == "surprise":
        check_texts(path, columns)
        return partial(text_shards, path, columns, size=size, other_columns=other_names)
    if settings.question == "next" and columns is not None and columns.answer is not None:
        check_rows(path, columns, tuple(NEXT_ANSWERS), pairs=True)
    return shard_reader(path, loaded, settings.question, columns, settings.tags, size=size, other_columns=other_names)


@validate_arguments
def evaluate_file(
    path: Path,
    out: Path,
    model: str = "headlight-mini",
    settings: EvaluationSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    overwrite: bool = False,
    on_progress: Callable[[Counter[str], float], None] | None = None,
) -> TableStudyResult:
    """Evaluate a model on every text of a file, and write a table with one row for each answer.

    The call may be interrupted at any moment, and the same call resumes: finished shards are in the folder OUT.parts.
    They become the table when the file is complete, with the identity of the study next to it in OUT.settings.json.
    The table keeps up to 50 other columns of the file as texts of at most 200 characters. `read_evaluation` reads it.

    path: plain text with one text per line, a table with one text per row, or an annotated file.
    out: the `.csv` or `.parquet` table.
    model: as for `load`.
    settings: None means `EvaluationSettings()`.
    engine, device: as for `iter_heads`.
    overwrite: whether to overwrite the table of another study.
    on_progress: called after each shard with the counts of `evaluate_shard` so far and the share of the file, 0 to 1.
    Raises Refused for a question that the model cannot answer, for classes or tags that it does not have, and for a
    model that predicts a number or several classes at once. Raises Refused for an input table with empty fields, if no
    text could be evaluated, and as `iter_table_study`.
    """
    was_complete = is_table_complete(out, overwrite=overwrite)
    steps = iter_evaluation(path, out, model, settings, engine=engine, device=device, overwrite=overwrite)
    return TableStudyResult(run_to_end(steps, on_progress, Counter[str]()), was_complete)


@validate_arguments
def iter_evaluation(
    path: Path,
    out: Path,
    model: str = "headlight-mini",
    settings: EvaluationSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    overwrite: bool = False,
) -> Iterator[tuple[Counter[str], float]]:
    """Run `evaluate_file` step by step: yield its counts and the share of the file after each shard.

    The last step writes the table. Arguments and exceptions are those of `evaluate_file`.
    """
    settings = EvaluationSettings() if settings is None else settings
    yield from iter_table_study(
        STUDY, path, out, model, settings, partial(_make_reader, path), TYPES, "evaluated",
        engine=engine, device=device, overwrite=overwrite,
    )  # fmt: skip

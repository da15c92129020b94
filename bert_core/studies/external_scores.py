"""Evaluation of attribution scores computed elsewhere, compared with Headlight's methods and random rankings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.methods import check_methods, default_methods, token_scores
from bert_core.progress import Progress, ignore_progress
from bert_core.records import Target, word_target
from bert_core.refused import Refused, require_int, require_sequence, validate_arguments
from bert_core.studies.explain import BASE_COLUMNS
from bert_core.studies.explanation_tables import explained_rows
from bert_core.studies.faithfulness import (
    Judgement,
    StudyQuestion,
    check_existing_table,
    evaluate_scores,
    fill_table,
)
from bert_core.studies.lines import Line
from bert_core.studies.rows import Columns
from bert_core.studies.runner import STATE_VERSION, SourceFile, as_json_values
from bert_core.studies.texts import check_texts, text_shards
from bert_core.task_heads import IS_NEXT
from bert_core.tokenizer import Encoding

REQUIRED_COLUMNS = ("text", "start", "end", "asked")
MAX_TEXTS = 10_000

Rows = list[dict[str, Any]]


@validate_arguments
def judge_scores(
    loaded: LoadedModel,
    path: Path,
    scores: Path,
    table: Path,
    *,
    columns: Columns | None = None,
    methods: Sequence[str] | None = None,
    texts: int = 150,
    words: bool = True,
    random_rankings: int = 100,
    max_length: int = 128,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> list[Judgement]:
    """Measure the faithfulness of attribution scores from any source, and write them to a table like `judge_file`.

    The table of scores has one row per span of a text, and is sorted by text. Its columns are:
    `text`, the zero-based number of the line, or for a table the number of the row, where the header is row 1;
    `start` and `end`, the span in characters;
    `side`, "A" or "B" for a pair of texts (optional);
    `asked`, the explained answer, which is a class, the word at [MASK], or "follows" for next sentence prediction.
    Each other numeric column contains the scores of a method. The table that `explain_file` writes has this form.
    A score is divided equally among the tokens that overlap its span. A span without tokens is ignored.
    loaded: the unedited model.
    path: the texts, one per line, or a table with `columns`.
    scores: the table of scores, .csv or .parquet.
    table: the .csv to write. If it exists, the study is resumed.
    columns: names of the columns if `path` is a table.
    methods: Headlight's methods to compare with; None: those of DecompX and occlusion that the model supports.
    texts: number of texts to use, the first ones in the table of scores.
    words, random_rankings, max_length, seed: as in `StudySettings`.
    report: called with the progress, see `Progress`.

    Returns a judgement per text and method.
    Raises Refused for an invalid table of scores, for scores of texts that `path` does not have, for answers that the
    model cannot predict, and if a column has the name of one of `methods`. Raises Refused also if `table` was made with
    other settings.
    """
    check_unedited(loaded.edits, "a study")
    check_texts(path, columns)
    own_methods = default_methods(loaded) if methods is None else tuple(require_sequence("methods", methods, "names"))
    check_methods(loaded, own_methods)
    texts = require_int("texts", texts, 1, MAX_TEXTS)
    rows_by_text = _read_scores(scores, texts)
    score_columns = next(iter(rows_by_text.values()))[0]
    external_methods = tuple(name for name in score_columns if name not in (*BASE_COLUMNS, *REQUIRED_COLUMNS))
    if duplicates := set(external_methods) & set(own_methods):
        raise Refused(
            f"{min(duplicates)!r} is both a column of {scores.name} and one of the methods to compare with: rename the "
            "column, or choose other methods"
        )
    names = (*external_methods, *own_methods)
    questions = _read_questions(loaded, path, columns, rows_by_text, max_length)
    by_key = {(question.kind, question.number): (question, rows) for question, rows in questions}
    source, scores_source = SourceFile(path), SourceFile(scores)
    identity = as_json_values({
        "version": STATE_VERSION, "text": source.digest, "scores": scores_source.digest, "weights": fingerprint(loaded),
        "methods": names, "words": words, "max_length": max_length, "seed": seed, "random_rankings": random_rankings,
    })  # fmt: skip
    check_existing_table(table, identity)

    def judge(key: tuple[str, int]) -> list[Judgement]:
        source.check_unchanged()
        question, rows = by_key[key]
        own_scores = (
            token_scores(loaded, question.encoding, question.target, own_methods)
            if own_methods
            else np.empty((0, len(question.encoding)))
        )
        all_scores = np.concatenate([scores_per_token(question.encoding, rows, external_methods), own_scores])
        return evaluate_scores(
            loaded, question, names, all_scores, words=words, random_rankings=random_rankings, seed=seed
        )

    return fill_table(table, identity, names, list(by_key), judge, report=report)


def scores_per_token(encoding: Encoding, rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> np.ndarray:
    """Return the scores of text spans as scores of tokens, (method, token).

    Each score is divided equally among the tokens that overlap its span.
    encoding: the text.
    rows: the spans, each with "start", "end", optionally "side", and a score for each method.
    methods: the names of the scores.
    """
    token_values = np.zeros((len(methods), len(encoding)))
    for row in rows:
        side = row.get("side") or "A"
        positions = [
            position
            for position, (start, end) in enumerate(encoding.offsets)
            if encoding.sides[position] == side and start < row["end"] and row["start"] < end
        ]
        for position in positions:
            token_values[:, position] += [row[name] / len(positions) for name in methods]
    return token_values


def _read_scores(scores: Path, texts: int) -> dict[int, Rows]:
    """Return the rows of the first texts in a table of scores, by text.

    Raises Refused if the table is empty, is not sorted by text, or has several answers for a text.
    """
    rows_by_text: dict[int, Rows] = {}

    def iterate_rows() -> Iterator[dict[str, Any]]:
        for batch in explained_rows(scores, required_columns=REQUIRED_COLUMNS):
            yield from (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))

    for number, group in itertools.groupby(iterate_rows(), key=lambda row: row["text"]):
        if number in rows_by_text:
            raise Refused(f"the rows of text {number} of {scores.name} are not consecutive: sort the table by text")
        if len(rows_by_text) == texts:
            break
        rows_by_text[number] = list(group)
        answers = {row["asked"] for row in rows_by_text[number]}
        if len(answers) > 1:
            raise Refused(
                f"text {number} of {scores.name} has scores for {len(answers)} answers: a text must have one answer"
            )
    if not rows_by_text:
        raise Refused(f"{scores.name} has no rows: there are no scores to evaluate")
    return rows_by_text


def _read_questions(
    loaded: LoadedModel, path: Path, columns: Columns | None, rows_by_text: dict[int, Rows], max_length: int
) -> list[tuple[StudyQuestion, Rows]]:
    """Return the question of each text that has scores, with its rows. Raises Refused for a text that is missing."""
    questions = []
    for line in (line for shard in text_shards(path, columns) for line in shard.lines):
        if line.number in rows_by_text:
            rows = rows_by_text[line.number]
            questions.append((_make_question(loaded, line, rows[0]["asked"], max_length), rows))
        if len(questions) == len(rows_by_text):
            return questions
    missing = min(set(rows_by_text) - {question.number for question, _ in questions})
    raise Refused(f"there are scores of text {missing}, which {path.name} does not have")


def _make_question(loaded: LoadedModel, line: Line, answer: str, max_length: int) -> StudyQuestion:
    """Return the question whose answer is explained. Raises Refused if the model cannot predict the answer."""
    encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=max_length)
    if answer == IS_NEXT and encoding.pair is not None:
        return StudyQuestion(line.number, "nsp", encoding, Target("nsp"), answer)
    if answer in loaded.labels:
        target = Target("class", label=loaded.labels.index(answer))
        return StudyQuestion(line.number, "class", encoding, target, answer)
    if not encoding.mask_positions:
        classes = ", ".join(loaded.labels) or "none"
        raise Refused(
            f"the answer of text {line.number} is {answer!r:.60}, and the text has no [MASK] for a word: the answer "
            f"must be a class of the model ({classes})"
        )
    return StudyQuestion(line.number, "word", encoding, word_target(loaded.tokenizer, encoding, answer), answer)

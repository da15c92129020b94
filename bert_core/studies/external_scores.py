"""Attributions that somebody else computed, judged beside ours and random rankings on the same texts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_core.edits import check_unedited
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.methods import token_scores
from bert_core.progress import Progress, ignore_progress
from bert_core.records import Target, word_target
from bert_core.refused import Refused, require_int, require_sequence, validate_arguments
from bert_core.studies.explain import BASE_COLUMNS
from bert_core.studies.explanation_tables import explained_rows
from bert_core.studies.faithfulness import Judgement, StudyQuestion, check_existing_table, evaluate_scores, fill_table
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
    methods: Sequence[str] = ("DecompX", "occlusion"),
    texts: int = 150,
    words: bool = True,
    random_rankings: int = 100,
    max_length: int = 128,
    seed: int = 0,
    report: Progress = ignore_progress,
) -> list[Judgement]:
    """How far to trust scores of a file's texts, whoever made them: a table as that of `judge_file`, which goes on.

    path: the texts, one a line or a row (`columns`). scores: .csv or .parquet, a row for a stretch of a text:
    `text`, the number of its line from zero, or of its row, the header being 1; `start` and `end`, its characters;
    `side`, "A" or "B" of a pair; `asked`, what was explained: a class, the word at the [MASK], or "follows"; every
    other column of numbers is a method. The table of `explain_file` is one. A stretch is shared out evenly among the
    tokens that it touches, and what touches none is left out.
    methods: ours, beside them. texts: at most, the first of the scores. The rest as in `StudySettings`.
    Raises Refused for a file of scores that is none, or of texts that are not there, answers that the model has not,
    methods of one name, and settings that are not those of the table.
    """
    check_unedited(loaded.edits, "a study")
    check_texts(path, columns)
    ours = tuple(require_sequence("methods", methods, "names"))
    texts = require_int("texts", texts, 1, MAX_TEXTS)
    given = _given(scores, texts)
    theirs = tuple(name for name in next(iter(given.values()))[0] if name not in (*BASE_COLUMNS, *REQUIRED_COLUMNS))
    if both := set(theirs) & set(ours):
        raise Refused(f"the method {min(both)!r} is both among the scores and among ours: name others, or rename it")
    names = (*theirs, *ours)
    asked = _questions(loaded, path, columns, given, max_length)
    by_key = {(one.kind, one.number): (one, rows) for one, rows in asked}
    source, given_scores = SourceFile(path), SourceFile(scores)
    identity = as_json_values({
        "version": STATE_VERSION, "text": source.digest, "scores": given_scores.digest, "weights": fingerprint(loaded),
        "methods": names, "words": words, "max_length": max_length, "seed": seed, "random_rankings": random_rankings,
    })  # fmt: skip
    check_existing_table(table, identity)

    def judge(key: tuple[str, int]) -> list[Judgement]:
        source.check_unchanged()
        question, rows = by_key[key]
        own = (
            token_scores(loaded, question.encoding, question.target, ours)
            if ours
            else np.empty((0, len(question.encoding)))
        )
        both = np.concatenate([scores_per_token(question.encoding, rows, theirs), own])
        return evaluate_scores(loaded, question, names, both, words=words, random_rankings=random_rankings, seed=seed)

    return fill_table(table, identity, names, list(by_key), judge, report=report)


def scores_per_token(encoding: Encoding, rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> np.ndarray:
    """Scores of stretches of a text as scores of its tokens (method, token): each shared out among those it touches."""
    found = np.zeros((len(methods), len(encoding)))
    for row in rows:
        side = row.get("side") or "A"
        touched = [
            position
            for position, (start, end) in enumerate(encoding.offsets)
            if encoding.sides[position] == side and start < row["end"] and row["start"] < end
        ]
        for position in touched:
            found[:, position] += [row[name] / len(touched) for name in methods]
    return found


def _given(scores: Path, texts: int) -> dict[int, Rows]:
    """The rows of the first texts of a file of scores, text by text."""
    found: dict[int, Rows] = {}

    def rows() -> Iterator[dict[str, Any]]:
        for batch in explained_rows(scores, required_columns=REQUIRED_COLUMNS):
            yield from (dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True))

    for number, some in itertools.groupby(rows(), key=lambda row: row["text"]):
        if number in found:
            raise Refused(f"the rows of text {number} of {scores.name} do not stand together: sort it by text")
        if len(found) == texts:
            break
        found[number] = list(some)
        asked = {row["asked"] for row in found[number]}
        if len(asked) > 1:
            raise Refused(f"text {number} of {scores.name} asks for {len(asked)} answers: one for a text")
    if not found:
        raise Refused(f"{scores.name} has no rows: there is nothing to judge")
    return found


def _questions(
    loaded: LoadedModel, path: Path, columns: Columns | None, given: dict[int, Rows], max_length: int
) -> list[tuple[StudyQuestion, Rows]]:
    found = []
    for line in (line for shard in text_shards(path, columns) for line in shard.lines):
        if line.number in given:
            found.append((_question(loaded, line, given[line.number][0]["asked"], max_length), given[line.number]))
        if len(found) == len(given):
            return found
    missing = min(set(given) - {one.number for one, _ in found})
    raise Refused(f"there are scores of text {missing}, which {path.name} does not have")


def _question(loaded: LoadedModel, line: Line, answer: str, max_length: int) -> StudyQuestion:
    encoding = loaded.tokenizer.encode(line.text, line.pair, max_length=max_length)
    if answer == IS_NEXT and encoding.pair is not None:
        return StudyQuestion(line.number, "nsp", encoding, Target("nsp"), answer)
    if answer in loaded.labels:
        target = Target("class", label=loaded.labels.index(answer))
        return StudyQuestion(line.number, "class", encoding, target, answer)
    if not encoding.mask_positions:
        classes = ", ".join(loaded.labels) or "none"
        raise Refused(
            f"text {line.number} is asked for {answer!r:.60}, and has no [MASK] at which it could stand; the classes "
            f"of this model: {classes}"
        )
    return StudyQuestion(line.number, "word", encoding, word_target(loaded.tokenizer, encoding, answer), answer)

"""Explanations of every text of a file: a table with the score of each token by each attribution method.

Each shard of the file is explained into its own part file, in this process or on another machine. The parts are
concatenated in the order of the file, so the table depends neither on the engine nor on interruptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bert_core.analysis.causes import words_with_positions
from bert_core.loading import LoadedModel
from bert_core.methods import DEFAULT_METHODS, check_methods, default_methods, token_scores
from bert_core.records import Target
from bert_core.records.targets import OtherNumberOfWords
from bert_core.refused import Refused, validate_arguments
from bert_core.studies.faithfulness import answer_probability
from bert_core.studies.file_questions import (
    check_length,
    check_model,
    encode_line,
    shard_reader,
    targets_of,
)
from bert_core.studies.lines import Shard
from bert_core.studies.runner import ShardStudy, run_to_end
from bert_core.studies.settings import ExplainSettings
from bert_core.studies.table_studies import TableStudyResult, is_table_complete, iter_table_study
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.task_heads import NamedTarget
from bert_core.tokenizer import Encoding

# Kind of the target, and the first and last position that it is read from; tables of earlier versions lack these.
TARGET_COLUMNS = ("kind", "first", "last")
BASE_COLUMNS = ("text", "position", "side", "token", "word", "start", "end", "asked", *TARGET_COLUMNS, "probability")
TEXT_COLUMNS = ("side", "token", "word", "asked", "kind")
INTEGER_COLUMNS = ("text", "position", "start", "end", "first", "last")
_TYPES = dict.fromkeys(TEXT_COLUMNS, "string") | dict.fromkeys(INTEGER_COLUMNS, "int64")  # column types in Parquet


# ---------------------------------------------------------------------------- one shard


def explain_shard(
    loaded: LoadedModel, shard: Shard, settings: ExplainSettings
) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Explain every text of a shard.

    Returns two values. The first is a table as columns, `BASE_COLUMNS` and the methods, with one row per token; a text
    with several targets has its rows once for each target. The second holds the counts of `lines.Shard` and these.
        "texts", "tokens", "questions": texts, tokens and targets that were explained.
        "shortened": texts cut to `max_length` tokens.
        "unreadable": texts without a character that the tokenizer knows.
        "without the word": texts to which the question does not apply, such as those without a [MASK].
        "other number of words": texts with several groups of [MASK] whose answer has another number of words.
        "without an answer": texts without a target.
    """
    columns: dict[str, list[Any]] = {name: [] for name in (*BASE_COLUMNS, *settings.methods)}
    counts = Counter(shard.counts)
    for line in shard.lines:
        try:
            encoding = encode_line(loaded, line, settings.asked, settings.max_length)
        except Refused:  # no character that the tokenizer knows
            counts["unreadable"] += 1
            continue
        try:
            if settings.target is not None:
                questions = [NamedTarget(settings.target, settings.target.name)]
            else:
                questions = targets_of(loaded, encoding, line, settings.asked, settings.word)
        except OtherNumberOfWords:
            counts["other number of words"] += 1
            continue
        except Refused:  # too few [MASK] tokens for the word, or no second text
            counts["without the word"] += 1
            continue
        if not questions:
            counts["without an answer"] += 1
            continue
        counts["texts"] += 1
        counts["tokens"] += len(encoding)
        counts["questions"] += len(questions)
        counts["shortened"] += bool(encoding.truncated_count)
        for target, answer in questions:
            scores = token_scores(loaded, encoding, target, settings.methods)
            words = _words(encoding, target)
            probability = answer_probability(loaded, encoding, target)
            for position, (start, end) in enumerate(encoding.offsets):
                row = (
                    line.number, position, encoding.sides[position] or "", encoding.tokens[position], words[position],
                    start, end, answer, target.kind, target.rows[0], target.rows[-1], probability,
                    *scores[:, position].tolist(),
                )  # fmt: skip
                for name, value in zip(columns, row, strict=True):
                    columns[name].append(value)
    return columns, counts


def _words(encoding: Encoding, target: Target) -> list[str]:
    """Return the word of each token; an empty text for special tokens and for the masked positions of the target."""
    masked = [position for position, _ in target.target_pieces]
    words = [""] * len(encoding)
    for word, positions in words_with_positions(encoding):
        for position in positions:
            words[position] = "" if encoding.special[position] or position in masked else word
    return words


# ---------------------------------------------------------------------------- a file


def _check(loaded: LoadedModel, settings: ExplainSettings) -> None:
    """Raise Refused if a model cannot answer the question of the settings, or not with their methods or length."""
    if settings.target is not None:
        pass  # the function requires the heads that it reads
    elif settings.asked == "class" and not loaded.has_head("classifier"):
        # The class is the default question, so the message names the options for the questions that this model answers.
        options = {"word": "--word or --guess", "next": "--follows"}
        usable_options = ", ".join(
            options.get(name, f"--ask {name}") for name, question in FILE_QUESTIONS.items()
            if question.explained and loaded.has_head(question.head)
        )  # fmt: skip
        raise Refused(
            f"{loaded.name} has no trained classifier, so there is no class to explain: "
            + (f"ask with {usable_options}" if usable_options else "none of its heads was trained")
        )
    else:
        check_model(loaded, settings.asked)
    check_length(loaded, settings.max_length)
    check_methods(loaded, settings.methods, settings.target)


def _complete(loaded: LoadedModel, settings: ExplainSettings) -> ExplainSettings:
    """Return the settings without the default methods that a model does not support."""
    is_default = settings.methods == DEFAULT_METHODS
    return replace(settings, methods=default_methods(loaded, settings.target)) if is_default else settings


STUDY = ShardStudy(explain_shard, _check, _complete)


@validate_arguments
def explain_file(
    path: Path,
    out: Path,
    model: str = "headlight-mini",
    settings: ExplainSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    overwrite: bool = False,
    on_progress: Callable[[Counter[str], float], None] | None = None,
) -> TableStudyResult:
    """Explain every text of a file, and write a table with one row per token.

    The call may be interrupted at any moment, and the same call resumes: finished shards are in the folder OUT.parts.
    They become the table when the file is complete, with the identity of the study next to it in OUT.settings.json.

    path: plain text with one text per line, a table with one text per row, or an annotated file.
    out: the `.csv` or `.parquet` table.
    model: as for `load`.
    settings: None means `ExplainSettings()`.
    engine, device: as for `iter_heads`.
    overwrite: whether to overwrite the table of another study.
    on_progress: called after each shard with the counts of `explain_shard` so far and the share of the file, 0 to 1.
    Raises Refused for a table of another study, for parts of another study, and for a file that another run is writing.
    Raises Refused for a question that the model cannot answer, and for an input table with empty fields. Raises Refused
    if no text could be explained, and if the file or the model changes during the run.
    """
    was_complete = is_table_complete(out, overwrite=overwrite)
    steps = iter_explanations(path, out, model, settings, engine=engine, device=device, overwrite=overwrite)
    return TableStudyResult(run_to_end(steps, on_progress, Counter[str]()), was_complete)


@validate_arguments
def iter_explanations(
    path: Path,
    out: Path,
    model: str = "headlight-mini",
    settings: ExplainSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
    overwrite: bool = False,
) -> Iterator[tuple[Counter[str], float]]:
    """Run `explain_file` step by step: yield its counts and the share of the file after each shard.

    The last step writes the table. Arguments and exceptions are those of `explain_file`.
    """
    settings = ExplainSettings() if settings is None else settings
    yield from iter_table_study(
        STUDY, path, out, model, settings,
        lambda loaded, study: shard_reader(path, loaded, study.asked, study.columns, study.tags),
        _TYPES, "explained", engine=engine, device=device, overwrite=overwrite,
    )  # fmt: skip

"""Why, of every text of a file: a number for each token by each method, and what speaks for an answer over them all.

A shard is explained by one function, here or on another machine, into a part of its own; the parts are put together in
the order of the file, so the table does not depend on who did the work, nor on where it was stopped and went on.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bert_core.analysis.causes import words_with_positions
from bert_core.loading import LoadedModel
from bert_core.methods import method_of, token_scores
from bert_core.records import Target
from bert_core.refused import Refused, require_int, require_sequence, short_repr, validate_arguments
from bert_core.studies.faithfulness import answer_probability
from bert_core.studies.file_questions import (
    check_length,
    check_model,
    check_question,
    encode_line,
    shard_reader,
    targets_of,
)
from bert_core.studies.lines import Shard
from bert_core.studies.rows import Columns
from bert_core.studies.runner import (
    ResumePoint,
    ShardRun,
    ShardStudy,
    StateFile,
    exclusive_lock,
    is_complete,
    read_json,
    run_to_end,
    settings_path,
    write_settings,
)
from bert_core.studies.tables import check_table_suffix, concatenate_tables, write_columns
from bert_core.target_kinds import FILE_QUESTIONS
from bert_core.tokenizer import Encoding

TARGET_COLUMNS = ("kind", "first", "last")  # of the target, and where its answer is read; a table of before has none
BASE_COLUMNS = ("text", "position", "side", "token", "word", "start", "end", "asked", *TARGET_COLUMNS, "probability")
TEXT_COLUMNS = ("side", "token", "word", "asked", "kind")
INTEGER_COLUMNS = ("text", "position", "start", "end", "first", "last")
_TYPES = dict.fromkeys(TEXT_COLUMNS, "string") | dict.fromkeys(INTEGER_COLUMNS, "int64")  # of .parquet


@dataclass(frozen=True)
class ExplainSettings:
    """What is explained of every text, and how.

    asked: a question of `FILE_QUESTIONS` that is explained. Of a class and of a word what the model itself says first,
    unless `columns` names a column of answers, or `word` gives one word for all texts; of a tag and a span likewise,
    unless the file says them: with `tags`, the label of a file of words, as `read_labelled_words` takes it, or a
    `.json` file of SQuAD. Of tags and replaced tokens `word` asks of that word alone. methods: names, as for
    `token_scores`. max_length: tokens of a text that are read. columns: of a table; None means one text a line.
    Raises Refused for settings that cannot be.
    """

    asked: str = "class"
    methods: tuple[str, ...] = ("DecompX", "occlusion")
    word: str = ""
    columns: Columns | None = None
    max_length: int = 128
    tags: str = ""

    def __post_init__(self) -> None:
        known = [name for name, question in FILE_QUESTIONS.items() if question.explained]
        if not isinstance(self.asked, str) or self.asked not in known:
            raise Refused(f"asked {short_repr(self.asked)} is unknown: one of {', '.join(known)}")
        object.__setattr__(self, "methods", tuple(require_sequence("methods", self.methods, "names")))
        if not self.methods:
            raise Refused("there is nothing to explain with: name at least one method")
        for name in self.methods:
            method_of(name)
        if len(set(self.methods)) < len(self.methods):
            raise Refused(f"the methods {', '.join(self.methods)} are not all different: name each once")
        if not isinstance(self.word, str):
            raise Refused(f"the word is {short_repr(self.word)}: it must be a text")
        if not isinstance(self.columns, Columns | None):
            raise Refused(
                f"the columns are {short_repr(self.columns)}: they must be Columns, or None for one text a line"
            )
        object.__setattr__(self, "max_length", require_int("max_length", self.max_length, 3))
        if not isinstance(self.tags, str):
            raise Refused(f"the label of the tags is {short_repr(self.tags)}: it must be a text")
        check_question(self.asked, self.columns, self.tags, self.word)
        if self.asked == "next" and (self.columns is None or self.columns.pair is None):
            raise Refused("whether B follows A needs a column of second texts")


# ---------------------------------------------------------------------------- one shard


def explain_shard(
    loaded: LoadedModel, shard: Shard, settings: ExplainSettings
) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Every token of the texts of a shard as columns, `PLACES` and the methods; and what was read.

    A text of which several things are asked stands there once for each.
    counts: of `lines.Shard`, and of "texts" and "tokens" explained, "questions" of them, texts "shortened" to the
    length that is read, "unreadable", and "without the word" or "without an answer", where it cannot be asked for.
    """
    columns: dict[str, list[Any]] = {name: [] for name in (*BASE_COLUMNS, *settings.methods)}
    counts = Counter(shard.counts)
    for line in shard.lines:
        try:
            encoding = encode_line(loaded, line, settings.asked, settings.max_length)
        except Refused:  # nothing in it that can be read
            counts["unreadable"] += 1
            continue
        try:
            questions = targets_of(loaded, encoding, line, settings.asked, settings.word)
        except Refused:  # no [MASK], not as many as the word has pieces, or no second text
            counts["without the word"] += 1
            continue
        if not questions:
            counts["without an answer"] += 1
            continue
        counts["texts"] += 1
        counts["tokens"] += len(encoding)
        counts["questions"] += len(questions)
        counts["shortened"] += bool(encoding.truncated_count)
        for target, asked in questions:
            scores = token_scores(loaded, encoding, target, settings.methods)
            words = _words(encoding, target)
            whole = answer_probability(loaded, encoding, target)
            for position, (start, end) in enumerate(encoding.offsets):
                place = (
                    line.number, position, encoding.sides[position] or "", encoding.tokens[position], words[position],
                    start, end, asked, target.kind, target.rows[0], target.rows[-1], whole,
                    *scores[:, position].tolist(),
                )  # fmt: skip
                for name, value in zip(columns, place, strict=True):
                    columns[name].append(value)
    return columns, counts


def _words(encoding: Encoding, target: Target) -> list[str]:
    """The word of each token; none of what is added, nor where the word itself is asked for."""
    hidden = [position for position, _ in target.target_pieces]
    words = [""] * len(encoding)
    for word, positions in words_with_positions(encoding):
        for position in positions:
            words[position] = "" if encoding.special[position] or position in hidden else word
    return words


# ---------------------------------------------------------------------------- a file


def _check(loaded: LoadedModel, settings: ExplainSettings) -> None:
    """Raise Refused if a model cannot answer the question."""
    if settings.asked == "class" and not loaded.has_head("classifier"):
        # The class is what is explained by default: say which options explain something else of this model.
        options = {"word": "--word or --guess", "next": "--follows"}
        ways = ", ".join(
            options.get(name, f"--ask {name}") for name, question in FILE_QUESTIONS.items()
            if question.explained and loaded.has_head(question.head)
        )  # fmt: skip
        raise Refused(
            f"{loaded.name} has no trained classifier, so there is no class to explain: "
            + (f"ask with {ways}" if ways else "none of its heads was trained")
        )
    check_model(loaded, settings.asked)
    check_length(loaded, settings.max_length)


STUDY = ShardStudy(explain_shard, _check)


class ExplainResult(NamedTuple):
    """What a table of explanations is of. counts: as `explain_shard` has them. was_complete: it was there already."""

    counts: Counter[str]
    was_complete: bool = False


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
) -> ExplainResult:
    """Explain every text of a file, one a line or a row, into a table, .csv or .parquet, of a row a token.

    What is done lies in the folder OUT.parts, from which the same call goes on; it may be stopped at any moment. Only
    when the whole file is done the parts become the table, beside which OUT.settings.json says what it was made with.
    engine, device: as for `heads_over`. overwrite: write over the table of another study. on_progress: called after
    each shard with what was read so far, as `explain_shard` counts, and the share of the file.
    Raises Refused for the table of another study, parts of other settings, another text or other weights, what the
    model cannot be asked, a table in which something is missing, where no text could be explained, where the file or
    the model changes meanwhile, and where another run writes there now.
    """
    was_complete = out.exists() and not _parts_of(out).exists() and not overwrite
    steps = iter_explanations(path, out, model, settings, engine=engine, device=device, overwrite=overwrite)
    return ExplainResult(run_to_end(steps, on_progress, Counter[str]()), was_complete)


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
    """What `explain_file` has read after each shard, and the share of the file; the last step makes the table."""
    settings = ExplainSettings() if settings is None else settings
    check_table_suffix(out)
    with exclusive_lock(out):
        run = ShardRun(STUDY, path, model, settings, engine=engine, device=device)
        folder, identity = _parts_of(out), run.identity()
        if not folder.exists() and is_complete(out, identity, overwrite=overwrite):
            yield Counter(read_json(settings_path(out))["counts"]), 1.0
            return
        if (folder / "state.json").exists():
            raise Refused(f"{folder} was left by an earlier version of Headlight: delete it to begin anew")
        shards_from = shard_reader(path, run.loaded, settings.asked, settings.columns, settings.tags)
        folder.mkdir(parents=True, exist_ok=True)
        state, counts, place = StateFile(folder / "state.npz", identity), Counter[str](), ResumePoint()
        if (before := state.read()) is not None:
            place, counts = before[0], Counter(before[1])
            yield counts, place.read / run.source.size
        for part in folder.iterdir():  # of a shard that was written, but not yet counted
            if part.stem.isdigit() and int(part.stem) >= place.number:
                part.unlink()
        for shard, (columns, read) in run.measure_shards(shards_from(**place.shard_arguments)):
            if columns["text"]:
                write_columns(columns, folder / f"{shard.number:08d}{out.suffix}", _TYPES)
            counts, place = counts + read, ResumePoint.after(shard)
            state.write(place, counts, {})
            yield counts, place.read / run.source.size
        if not counts["texts"]:
            shutil.rmtree(folder)
            raise Refused(f"none of {counts['lines']:,} lines of {path.name} could be explained{_why_none(counts)}")
        concatenate_tables(sorted(folder.glob(f"[0-9]*{out.suffix}")), out)
        write_settings(out, {**identity, "counts": counts})
        shutil.rmtree(folder)


def _parts_of(out: Path) -> Path:
    return Path(f"{out}.parts")


def _why_none(counts: Mapping[str, int]) -> str:
    reasons = {
        "without the word": "without a [MASK] at which it could be asked",
        "without an answer": "without an answer to ask for",
        "unreadable": "without a sign to read",
    }
    said = [f"{counts[name]:,} {words}" for name, words in reasons.items() if counts.get(name)]
    return f": {', '.join(said)}" if said else ""

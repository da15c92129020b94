"""Why, of every text of a file: a number for each token by each method, and what speaks for an answer over them all.

A shard is explained by one function, here or on another machine, into a part of its own; the parts are put together in
the order of the file, so the table does not depend on who did the work, nor on where it was stopped and went on.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bert_core import checkpoint
from bert_core.analysis.causes import words_of
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel, files_of, load
from bert_core.methods import method_of, token_scores
from bert_core.records import FILE_QUESTIONS, Target
from bert_core.refused import Refused, checked, several, shown, whole
from bert_core.studies.asked import check_length, check_model, check_question, encoded, read_from, targets_of
from bert_core.studies.engines import check_engine, device_of_workers, on_ray
from bert_core.studies.faithfulness import probability_of
from bert_core.studies.files import check_file
from bert_core.studies.lines import Shard
from bert_core.studies.resume import check_same, identity
from bert_core.studies.rows import Columns
from bert_core.studies.table import check_kind
from bert_core.tokenizer import Encoding

QUESTION = ("kind", "first", "last")  # of the target, and where its answer is read; a table of before has none
PLACES = ("text", "position", "side", "token", "word", "start", "end", "asked", *QUESTION, "probability")
TEXT_COLUMNS = ("side", "token", "word", "asked", "kind")
WHOLE_COLUMNS = ("text", "position", "start", "end", "first", "last")


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
            raise Refused(f"asked {shown(self.asked)} is unknown: one of {', '.join(known)}")
        object.__setattr__(self, "methods", tuple(several("methods", self.methods, "names")))
        if not self.methods:
            raise Refused("there is nothing to explain with: name at least one method")
        for name in self.methods:
            method_of(name)
        if len(set(self.methods)) < len(self.methods):
            raise Refused(f"the methods {', '.join(self.methods)} are not all different: name each once")
        if not isinstance(self.word, str):
            raise Refused(f"the word is {shown(self.word)}: it must be a text")
        if not isinstance(self.columns, Columns | None):
            raise Refused(f"the columns are {shown(self.columns)}: they must be Columns, or None for one text a line")
        object.__setattr__(self, "max_length", whole("max_length", self.max_length, 3))
        if not isinstance(self.tags, str):
            raise Refused(f"the label of the tags is {shown(self.tags)}: it must be a text")
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
    columns: dict[str, list[Any]] = {name: [] for name in (*PLACES, *settings.methods)}
    counts = Counter(shard.counts)
    for line in shard.lines:
        try:
            encoding = encoded(loaded, line, settings.asked, settings.max_length)
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
        counts["shortened"] += bool(encoding.cut)
        for target, asked in questions:
            scores = token_scores(loaded, encoding, target, settings.methods)
            words = _words(encoding, target)
            whole = probability_of(loaded, encoding, target)
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
    hidden = [position for position, _ in target.asked]
    words = [""] * len(encoding)
    for word, positions in words_of(encoding):
        for position in positions:
            words[position] = "" if encoding.special[position] or position in hidden else word
    return words


# ---------------------------------------------------------------------------- a file


@checked
def explain_file(
    path: Path,
    out: Path,
    model: str = "headlight-mini",
    settings: ExplainSettings | None = None,
    *,
    engine: str = "local",
    device: str | None = None,
) -> Iterator[tuple[Counter[str], float]]:
    """Explain every text of a file, one a line or a row, into a table, .csv or .parquet, of a row a token.

    What is done lies in the folder OUT.parts, from which the same call goes on; it may be stopped at any moment. Only
    when the whole file is done the parts become the table. engine, device: as for `heads_over`.
    Yields what was read so far, as `explain_shard` counts, and the share of the file.
    Raises Refused for a table that is there already, parts of other settings, another text or model, what the model
    cannot be asked, a table in which something is missing, and where no text could be explained.
    """
    settings = ExplainSettings() if settings is None else settings
    check_engine(engine)
    check_kind(out)
    check_file(path)
    if out.exists():
        raise Refused(f"{out} is there already: choose another name")
    if engine == "ray":
        device = device_of_workers(device)
    loaded = _ready(model, files_of(model).version, device if engine == "local" else "cpu", settings)
    shards_from = read_from(path, loaded, settings.asked, settings.columns, settings.tags)
    parts, weights = Path(f"{out}.parts"), fingerprint(loaded)
    counts, place = _begun(parts, identity(path, model, weights, settings))
    size = max(path.stat().st_size, 1)
    if counts:
        yield counts, place["start"] / size
    rest = shards_from(**place)
    found: Iterable[tuple[Shard, tuple[dict[str, list[Any]], Counter[str]]]]
    if engine == "local":
        found = ((shard, explain_shard(loaded, shard, settings)) for shard in rest)
    else:
        found = on_ray(_explain_by_name, (model, device, settings), rest, device)
    for shard, (columns, read) in found:
        if columns["text"]:
            _write_part(parts / f"{shard.number:08d}{out.suffix}", columns, settings)
        counts = counts + read
        header = {"number": shard.number + 1, "start": shard.end, "line": shard.next_line}
        _write_state(parts, identity(path, model, weights, settings), counts, header)
        yield counts, shard.read / size
    if not counts["texts"]:
        shutil.rmtree(parts)
        raise Refused(f"none of {counts['lines']:,} lines of {path.name} could be explained{_why_none(counts)}")
    _put_together(parts, out)
    shutil.rmtree(parts)


def _why_none(counts: Mapping[str, int]) -> str:
    reasons = {
        "without the word": "without a [MASK] at which it could be asked",
        "without an answer": "without an answer to ask for",
        "unreadable": "without a sign to read",
    }
    said = [f"{counts[name]:,} {words}" for name, words in reasons.items() if counts.get(name)]
    return f": {', '.join(said)}" if said else ""


def _explain_by_name(
    model: str, device: str | None, settings: ExplainSettings, shard: Shard
) -> tuple[dict[str, list[Any]], Counter[str]]:
    return explain_shard(_ready(model, files_of(model).version, device, settings), shard, settings)


@lru_cache(maxsize=1)
def _ready(model: str, version: str, device: str | None, settings: ExplainSettings) -> LoadedModel:
    """The model, once in a process while its files stay the same. Raises Refused if it cannot answer what is asked."""
    loaded = load(model, device=device)
    if settings.asked == "class" and not loaded.has_head("classifier"):
        # The class is what is explained by default: say which options explain something else of this model.
        options = {"word": "--word or --guess", "next": "--follows"}
        ways = ", ".join(
            options.get(name, f"--ask {name}") for name, question in FILE_QUESTIONS.items()
            if question.explained and loaded.has_head(question.head)
        )  # fmt: skip
        raise Refused(
            f"{model} has no trained classifier, so there is no class to explain: "
            + (f"ask with {ways}" if ways else "none of its heads was trained")
        )
    check_model(loaded, settings.asked)
    check_length(loaded, settings.max_length)
    return loaded


# ---------------------------------------------------------------------------- parts, and the table


def _begun(parts: Path, asked: Mapping[str, Any]) -> tuple[Counter[str], dict[str, int]]:
    """What was read before, and where to go on. Raises Refused for parts of something else."""
    state, place = parts / "state.json", {"number": 0, "start": 0, "line": 0}
    if not state.is_file():
        parts.mkdir(parents=True, exist_ok=True)
        _write_state(parts, asked, Counter(), place)
        return Counter(), place
    try:
        kept = json.loads(state.read_text(encoding="utf-8"))
        counts, place, before = Counter(kept["counts"]), dict(kept["place"]), kept["asked"]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"{parts} is not what an earlier run left: delete it to begin anew") from error
    check_same(before, asked, parts)
    for part in parts.iterdir():  # of a shard that was written, but not yet counted
        if part.stem.isdigit() and int(part.stem) >= place["number"]:
            part.unlink()
    return counts, place


def _write_state(parts: Path, asked: Mapping[str, Any], counts: Counter[str], place: Mapping[str, int]) -> None:
    checkpoint.write_whole(
        parts / "state.json", json.dumps({"asked": asked, "counts": counts, "place": place}, indent=1) + "\n"
    )


def _write_part(path: Path, columns: Mapping[str, Sequence[Any]], settings: ExplainSettings) -> None:
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        kinds = {name: pyarrow.string() for name in TEXT_COLUMNS} | {name: pyarrow.int64() for name in WHOLE_COLUMNS}
        rows = pyarrow.table(
            {name: pyarrow.array(values, kinds.get(name, pyarrow.float64())) for name, values in columns.items()}
        )
        checkpoint.write_whole(path, lambda temporary: parquet.write_table(rows, temporary))
        return
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(zip(*columns.values(), strict=True))
    checkpoint.write_whole(path, out.getvalue())


def _put_together(parts: Path, out: Path) -> None:
    """One table of all parts, in the order of the file; the memory is that of one part."""
    settings = json.loads((parts / "state.json").read_text(encoding="utf-8"))["asked"]
    pieces = sorted(parts.glob(f"*{out.suffix}"))

    def as_parquet(temporary: str) -> None:
        from pyarrow import parquet

        with parquet.ParquetWriter(temporary, parquet.read_schema(pieces[0])) as writer:
            for piece in pieces:
                writer.write_table(parquet.read_table(piece))

    def as_csv(temporary: str) -> None:
        with Path(temporary).open("wb") as whole:
            header = io.StringIO(newline="")
            csv.writer(header, lineterminator="\n").writerow((*PLACES, *settings["methods"]))
            whole.write(header.getvalue().encode())
            for piece in pieces:
                with piece.open("rb") as part:
                    shutil.copyfileobj(part, whole)

    checkpoint.write_whole(out, as_parquet if out.suffix == ".parquet" else as_csv)

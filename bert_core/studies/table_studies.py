"""Studies that write a table with rows for every text of a file, shard by shard, and resume after an interruption."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.lines import Shard
from bert_core.studies.runner import (
    ResumePoint,
    ShardRun,
    ShardStudy,
    StateFile,
    exclusive_lock,
    is_complete,
    read_json,
    settings_path,
    write_settings,
)
from bert_core.studies.tables import check_table_suffix, concatenate_tables, write_columns


class TableStudyResult(NamedTuple):
    """Result of a study that writes a table.

    counts: counts of the shards, summed over the file.
    was_complete: whether the complete table existed before the call.
    """

    counts: Counter[str]
    was_complete: bool = False


def is_table_complete(out: Path, *, overwrite: bool) -> bool:
    """Return whether a table exists completely and is kept. overwrite: as for `iter_table_study`."""
    return out.exists() and not _parts_folder(out).exists() and not overwrite


def _parts_folder(out: Path) -> Path:
    """Return the folder with the finished shards of a table that is not complete."""
    return Path(f"{out}.parts")


def iter_table_study(
    study: ShardStudy[Any, tuple[dict[str, list[Any]], Counter[str]]],
    path: Path,
    out: Path,
    model: str,
    settings: Any,
    make_reader: Callable[[LoadedModel, Any], Callable[..., Iterator[Shard]]],
    types: Mapping[str, str],
    action: str,
    *,
    engine: str = "local",
    device: str | None = None,
    overwrite: bool = False,
) -> Iterator[tuple[Counter[str], float]]:
    """Run a study that writes a table: yield its counts and the share of the file after each shard.

    The last step writes the table, and next to it the identity of the study with its counts in OUT.settings.json.
    study: computes the columns of a shard, all with the same number of rows, and its counts. The count "texts" is the
        number of texts in the columns.
    path, out: the input file and the table. model, engine, device: as for `ShardRun`. settings: of the study.
    make_reader: returns the function that reads shards, as `shard_reader`, for a model and its complete settings.
    types: as for `write_columns`.
    action: what the study does to a text, a participle such as "explained", for the message if there is no such text.
    overwrite: whether to overwrite the table of another study.
    Raises Refused for a table or parts of another study, for a file that another run is writing, if the file or the
    model changes during the run, and if the table would have no rows.
    """
    check_table_suffix(out)
    with exclusive_lock(out):
        run = ShardRun(study, path, model, settings, engine=engine, device=device)
        folder, identity = _parts_folder(out), run.identity()
        if not folder.exists() and is_complete(out, identity, overwrite=overwrite):
            yield Counter(read_json(settings_path(out))["counts"]), 1.0
            return
        if (folder / "state.json").exists():
            raise Refused(f"{folder} was left by an earlier version of Headlight: delete it to begin anew")
        read_shards = make_reader(run.loaded, run.settings)
        folder.mkdir(parents=True, exist_ok=True)
        state, counts, place = StateFile(folder / "state.npz", identity), Counter[str](), ResumePoint()
        if (saved_state := state.read()) is not None:
            place, counts = saved_state[0], Counter(saved_state[1])
            yield counts, place.read / run.source.size
        for part in folder.iterdir():  # an interrupted run may have written a part without counting it
            if part.stem.isdigit() and int(part.stem) >= place.number:
                part.unlink()
        for shard, (columns, shard_counts) in run.measure_shards(read_shards(**place.shard_arguments)):
            if shard_counts["texts"]:
                write_columns(columns, folder / f"{shard.number:08d}{out.suffix}", types)
            counts, place = counts + shard_counts, ResumePoint.after(shard)
            state.write(place, counts, {})
            yield counts, place.read / run.source.size
        if not counts["texts"]:
            shutil.rmtree(folder)
            raise Refused(f"none of {counts['lines']:,} lines of {path.name} could be {action}{_skipped_texts(counts)}")
        concatenate_tables(sorted(folder.glob(f"[0-9]*{out.suffix}")), out)
        write_settings(out, {**identity, "counts": counts})
        shutil.rmtree(folder)


def _skipped_texts(counts: Mapping[str, int]) -> str:
    """Return the end of a sentence with the number of skipped texts for each reason; empty if there are none."""
    reasons = {
        "without the word": "without the [MASK] tokens or the second text that the question needs",
        "other number of words": "with several groups of [MASK] and another number of words in the answer",
        "with a mask": "with a [MASK], which has no surprisal",
        "without an answer": "without an answer",
        "unreadable": "without a character that the tokenizer knows",
    }
    phrases = [f"{counts[name]:,} {reason}" for name, reason in reasons.items() if counts.get(name)]
    return f": {', '.join(phrases)}" if phrases else ""

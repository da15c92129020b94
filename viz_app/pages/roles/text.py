"""What the page about roles asks: the heads of a text beside each other, a treebank, a table of a whole file."""

from __future__ import annotations

import io
import itertools
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.relations import DIRECTIONS, RelationTally
from bert_core.analysis.roles import (
    IN_WORDS,
    THRESHOLDS,
    Example,
    Role,
    classical_scaling,
    head_distances,
    head_figures,
    heads_by_role,
    nearest_heads,
    role_of,
    roles_of_heads,
    strongest_examples,
)
from bert_core.loading import LoadedModel
from bert_core.records import HeadTable, ModelRun
from bert_core.refused import Refused
from bert_core.studies.heads import CorpusSettings, HeadSums, measure_shard
from bert_core.studies.lines import SHARD_LINES, shards
from bert_core.studies.relations import relations_csv, track_relations
from bert_core.studies.table import KINDS, LARGEST_FILE, check_fits, read_table
from bert_core.studies.treebank import TreeSentence, read_treebank
from viz_app.components.head_grid import HeadClick
from viz_app.shell import examples
from viz_app.shell.controls import Upload
from viz_app.shell.heads import choose_head
from viz_app.shell.jobs import Job
from viz_app.shell.question import Question
from viz_app.shell.session import Head, as_written, asked_for, queue, result_of, shown_name, still_running

LARGEST_TREEBANK = 5  # megabytes
TEXT_SHARDS = 3  # of a text file, from its beginning: what the page measures while somebody waits
TEXT_LINES = TEXT_SHARDS * SHARD_LINES
TEXT_PASSES = 4  # forward, for each token: the maps, and the loss forward and back
LARGEST_TABLE = LARGEST_FILE  # megabytes
LEAST = 20  # times that a relation was asked before a head is said to find it
EXAMPLE_TEXT = Upload("four-sentences.txt", examples.REFERENCE.encode())
EXAMPLE_TREES = Upload("ten-sentences.conllu", (Path(__file__).parent / "trees.conllu").read_bytes())
EXAMINED = "_examined"  # model, name and tally of the treebank that was read last
TABLES = "HEADLIGHT_TABLES"  # a folder of tables, named at start


@dataclass(frozen=True)
class RolesOfText:
    """Every head on one text.

    figures: as `head_figures` gives them. roles: layer by layer; None for a head that is not there.
    distances: (layer * head, layer * head). points: (layer, head, 2), near to those that attend alike.
    """

    run: ModelRun
    figures: Mapping[str, np.ndarray]
    roles: list[list[Role | None]]
    distances: np.ndarray
    points: np.ndarray

    def by_role(self) -> dict[str, list[Head]]:
        """Role -> its heads."""
        return heads_by_role(self.roles)

    def scores(self, head: Head) -> list[float]:
        """How far a head fills each role, in the order of `THRESHOLDS`."""
        return [float(self.figures[name][head]) for name in THRESHOLDS]

    def nearest(self, head: Head) -> list[tuple[Head, float]]:
        """The heads that attend most like this one, and how far they are."""
        heads = self.run.head_mask.shape[1]
        number = head[0] * heads + head[1]
        return [
            ((n // heads, n % heads), float(self.distances[number, n])) for n in nearest_heads(self.distances, number)
        ]

    def examples(self, head: Head) -> list[Example]:
        """Where in the text the head shows best."""
        return strongest_examples(self.run.attention[head], self.run.encoding)


def roles_of_text(current: Question) -> RolesOfText:
    """Every head on the shared text; the distances come from the queue."""
    run = current.run(gradients=current.target is not None, all_heads_on=True)
    encoding = current.encoding
    job = queue().submit(
        ("distances", current.loaded.name, encoding),
        f"{run.head_mask.size} heads are compared with each other",
        lambda job: head_distances(run.attention, report=job.report),
    )
    distances: np.ndarray = result_of(job)
    figures = head_figures(run.attention, encoding)
    points = classical_scaling(distances).reshape(*run.head_mask.shape, 2)
    return RolesOfText(run, figures, roles_of_heads(figures), distances, points)


def does(role: Role | None) -> str:
    """A role as the end of a sentence that begins with the name of the head."""
    return "was pruned" if role is None else f"{IN_WORDS[role.name]} ({role.score:.2f})"


def choose_point(key: str) -> None:
    """Make the head that was clicked in a figure the chosen one."""
    points = st.session_state[key].selection.points
    if points and len(found := points[0].get("customdata", ())) == 2:
        choose_head(HeadClick(int(found[0]), int(found[1])))


# ---------------------------------------------------------------------------- files


def relations_of(loaded: LoadedModel, data: bytes, name: str) -> RelationTally:
    """Every head on a treebank that was uploaded, from the queue.

    Raises Refused, in one sentence, for a file that is no treebank in CoNLL-U.
    """
    key = ("relations", loaded.name, sha256(data).digest())

    def work(job: Job) -> RelationTally:
        sentences = _sentences(data, name)
        return track_relations(loaded, sentences, report=job.report)

    tally: RelationTally = result_of(queue().submit(key, f"{loaded.name} reads {name}", work))
    st.session_state[EXAMINED] = (loaded.name, name, tally)
    return tally


def relations_found(loaded: LoadedModel, head: Head) -> str:
    """What a head finds best of all in the treebank that this visitor examined with this model, as a sentence; or none.

    A relation counts where the head is better than the best fixed offset.
    """
    model, name, tally = st.session_state.get(EXAMINED, ("", "", None))
    if tally is None or model != loaded.name:
        return ""
    found = tally.of_head(*head, least=LEAST)
    if not found:
        return f"In {as_written(name)} there is no relation that this head finds best."
    said = ", ".join(
        f"**{as_written(row.relation)}** ({row.accuracy:.2f}; fixed offset {row.offset_accuracy:.2f})" for row in found
    )
    return f"In {as_written(name)} this head is the best of all at {said}."


def _sentences(data: bytes, name: str) -> list[TreeSentence]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"the file {name} is not UTF-8: {error.reason} at byte {error.start:,}") from error
    return list(read_treebank(io.StringIO(text), name))


def as_csv(tally: RelationTally) -> str:
    """The table with every number in full."""
    return relations_csv(tally.rows())


def by_relation(tally: RelationTally) -> list[dict[str, Any]]:
    """The table that a reader sees: a row for each relation."""
    return [
        {
            "relation": row.relation,
            "asked": row.asked,
            "best head": "–" if row.layer is None else f"L{row.layer} H{row.head}",
            "found": row.accuracy,
            "best offset": f"{row.offset:+d}",
            "by offset": row.offset_accuracy,
            "direction": row.direction,
        }
        for row in tally.rows()
    ]


def best_direction(tally: RelationTally, relation: str) -> tuple[np.ndarray, list[list[str]]]:
    """The share of right answers (layer, head) in each head's better direction, and which that is."""
    shares = tally.accuracy(relation)
    better = shares.argmax(0)
    return shares.max(0), [[DIRECTIONS[number] for number in row] for row in better]


def tables_at_start() -> list[Path]:
    """The tables in the folder that was named at start, by name."""
    folder = os.environ.get(TABLES)
    if not folder:
        return []
    return sorted(path for path in Path(folder).glob("*") if path.suffix in KINDS)


def table_of(loaded: LoadedModel, data: bytes, name: str) -> HeadTable:
    """A table of heads, of this model. Raises Refused for any other."""
    table = read_table(data, name)
    check_fits(table, loaded.name, loaded.config.num_hidden_layers, loaded.config.num_attention_heads)
    return table


def text_measured(current: Question, data: bytes, name: str) -> HeadTable | None:
    """Every head over the first lines of a text file, without any removal, when its button was clicked; None before.

    Raises Refused for a file without a text.
    """
    loaded = current.loaded
    settings = CorpusSettings(importance=loaded.has_mlm, ablation=False)
    key = ("heads over a text", loaded.name, sha256(data).digest())
    lines = data.splitlines()[:TEXT_LINES]
    current.run()  # to time it
    tokens = sum(min(len(line) / 4, settings.max_length) for line in lines)  # about four letters to a piece
    seconds = TEXT_PASSES * tokens / len(current.encoding) * st.session_state["_seconds"]
    label = f"Measure the first {len(lines)} lines, about {max(1, round(seconds))} s"
    if not asked_for("text_measured", key, label):
        return None

    def work(job: Any) -> HeadTable:
        total = HeadSums({})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text.txt"
            path.write_bytes(data)
            for shard in itertools.islice(shards(path), TEXT_SHARDS):
                total = total + measure_shard(loaded, shard, settings)
                job.report((shard.number + 1) * SHARD_LINES / (len(lines) + SHARD_LINES))
        return total.table(loaded.name, settings)

    job = queue().submit(key, f"{shown_name(loaded.name)} reads {name}", work)
    if still_running(job, lambda: st.session_state.pop("_asked_text_measured", None)):
        return None
    table: HeadTable = job.result
    return table


def table_at_start(loaded: LoadedModel, path: Path) -> HeadTable:
    """A table of the folder that was named at start. Raises Refused as `table_of`, and for one that is too large."""
    if path.stat().st_size > LARGEST_FILE * 1_000_000:
        raise Refused(f"the file {path.name} is too large: a table of heads has {LARGEST_FILE} MB at most")
    return table_of(loaded, path.read_bytes(), path.name)


def role_in_table(table: HeadTable, head: Head) -> Role | None:
    """What a head does over the whole file; None where the table does not say."""
    if any(name not in table.figures or not np.isfinite(table.figures[name][head]) for name in THRESHOLDS):
        return None
    return role_of({name: float(table.figures[name][head]) for name in THRESHOLDS})

"""What every head does over a text file, whose beginning is measured here, or in a table of `headlight heads`."""

from __future__ import annotations

import itertools
import os
from hashlib import sha256
from pathlib import Path

import numpy as np
import streamlit as st

from bert_core.analysis.heads import heads_agreement
from bert_core.analysis.roles import THRESHOLDS, Role, role_of
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.records import HeadTable
from bert_core.refused import Refused
from bert_core.studies.head_tables import MAX_MEGABYTES, check_fits, read_table
from bert_core.studies.heads import CorpusSettings, HeadSums, measure_shard
from bert_core.studies.lines import SHARD_LINES
from bert_core.studies.tables import TABLE_SUFFIXES
from bert_core.studies.texts import text_shards
from viz_app.figures.heads import sweep_scatter
from viz_app.pages.roles.shared import LABELS, does, grid
from viz_app.shell import examples, screen
from viz_app.shell.controls import Upload, control, example_button, file_control, set_choice
from viz_app.shell.models import shown_name
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, confirm, estimate_seconds, poll

TEXT_SHARDS = 3  # of a text file, from its beginning: what the page measures while somebody waits
TEXT_LINES = TEXT_SHARDS * SHARD_LINES
TEXT_PASSES = 4  # forward, for each token: the maps, and the loss forward and back
LARGEST_TABLE = MAX_MEGABYTES  # megabytes
EXAMPLE_TEXT = Upload("four-sentences.txt", examples.REFERENCE.encode())
TABLES = "HEADLIGHT_TABLES"  # a folder of tables, named at start
FIGURES = {
    "importance": "Importance", "importance_in_layer": "Importance within its layer",
    "loss_change": "What its removal costs", "confidence": "Confidence", "entropy": "Entropy", "distance": "Distance",
    **{name: f"Share: {LABELS[name]}" for name in THRESHOLDS},
}  # fmt: skip


def draw(current: Selection) -> None:
    """A text file, whose beginning is measured here, or a table of `headlight heads`."""
    state = st.session_state
    there = {path.name: path for path in tables_at_start()}
    if there:
        control(st.selectbox, "Table", "table", options=[*there, "upload"], first=[*there, "upload"][0])
    if there and state.table != "upload":
        table = table_at_start(current.plain, there[state.table])
    else:
        upload = file_control(
            st, "Text file, one text per line; or a table of heads (CSV, Parquet)", "table_upload",
            types=["txt", "csv", "parquet"], megabytes=LARGEST_TABLE,
        )  # fmt: skip
        screen.write_note(
            f"Of a text file, the first {TEXT_LINES} lines are measured here. For a whole file, and for what the "
            "removal of each head costs, make a table, which also opens here: "
            "`headlight heads corpus.txt --importance --ablation --out heads.parquet`"
        )
        if upload is None:
            example_button("No file yet.", "Take four example sentences", set_choice, "table_upload", EXAMPLE_TEXT)
            return
        of_text = upload.name.lower().endswith(".txt")
        measured = (
            text_measured(current, upload.data, upload.name)
            if of_text
            else table_of(current.plain, upload.data, upload.name)
        )
        if measured is None:
            return
        table = measured
    figures = {name: words for name, words in FIGURES.items() if name in table.figures}
    if table.method != "zero" and "loss_change" in figures:
        figures["loss_change"] += f", by {table.method}"
    left, right = screen.picture().columns(2, gap="large")
    with left:
        shown = control(
            st.selectbox, "Figure", "file_figure", options=list(figures), first=next(iter(figures)),
            format_func=figures.__getitem__,
        )  # fmt: skip
        grid(current, table.figures[shown], figures[shown].lower(), "grid_file")
        layer, head = state.head
        role = role_in_table(table, (layer, head))
        if role is not None:
            st.markdown(f"**L{layer} H{head}** {does(role)}, over {table.texts:,} texts.")
    with right:
        if "importance" in table.figures and "loss_change" in table.figures:
            importance, change = table.figures["importance"], table.figures["loss_change"]
            rank = heads_agreement(importance, change)
            screen.write_heading(
                f"Does the gradient predict the cost of removal? Rank correlation {rank:+.2f} (Spearman)"
            )
            screen.chart(
                sweep_scatter(
                    importance, change, estimate="importance: mean size of the gradient (nats)",
                    finding="found: change of the loss without the head (nats)",
                ),
                key="file_scatter",
                alt=f"Importance against the change of the loss for every head, rank correlation {rank:.2f}",
            )  # fmt: skip
    loss = "" if table.loss is None else f", whose loss is {table.loss_text}"
    screen.write_reading(
        f"**How to read this:** each number is a mean over {table.texts:,} texts with {table.tokens:,} tokens{loss}. "
        "If the loss rises without a head, the model needs it. **How it can mislead:** heads are removed one at a "
        "time: two that do the same job cost nothing alone, but much together."
    )


def tables_at_start() -> list[Path]:
    """The tables in the folder that was named at start, by name."""
    folder = os.environ.get(TABLES)
    if not folder:
        return []
    return sorted(path for path in Path(folder).glob("*") if path.suffix in TABLE_SUFFIXES)


def table_of(loaded: LoadedModel, data: bytes, name: str) -> HeadTable:
    """A table of heads, of this model. Raises Refused for any other."""
    table = read_table(data, name)
    config = loaded.config
    check_fits(table, loaded.name, config.num_hidden_layers, config.num_attention_heads, fingerprint(loaded))
    return table


def text_measured(current: Selection, data: bytes, name: str) -> HeadTable | None:
    """Every head over the first lines of a text file, without any removal, when its button was clicked; None before.

    Raises Refused for a file without a text.
    """
    loaded = current.plain
    settings = CorpusSettings(importance=loaded.has_head("words"), ablation=False)
    key = ("heads over a text", loaded.weights_key, sha256(data).digest())
    lines = data.splitlines()[:TEXT_LINES]
    tokens = [round(min(len(line) / 4, settings.max_length)) for line in lines]  # about four letters to a piece
    seconds = sum(estimate_seconds(loaded, length, TEXT_PASSES) for length in tokens)
    if not confirm("text_measured", key, f"Measure the first {len(lines)} lines", seconds, quick=0):
        return None

    def measure(report: Progress) -> HeadTable:
        total = HeadSums({})
        with Upload(name, data).on_disk() as path:
            for shard in itertools.islice(text_shards(path), TEXT_SHARDS):
                total = total + measure_shard(loaded, shard, settings)
                report((shard.number + 1) * SHARD_LINES / (len(lines) + SHARD_LINES))
        return total.table(loaded.name, settings)

    return poll(Work(key, f"{shown_name(loaded.name)} reads {name}", measure, seconds), asked="text_measured").value


def table_at_start(loaded: LoadedModel, path: Path) -> HeadTable:
    """A table of the folder that was named at start. Raises Refused as `table_of`, and for one that is too large."""
    if path.stat().st_size > MAX_MEGABYTES * 1_000_000:
        raise Refused(f"the file {path.name} is too large: a table of heads has {MAX_MEGABYTES} MB at most")
    return table_of(loaded, path.read_bytes(), path.name)


def role_in_table(table: HeadTable, head: Head) -> Role | None:
    """What a head does over the whole file; None where the table does not say."""
    if any(name not in table.figures or not np.isfinite(table.figures[name][head]) for name in THRESHOLDS):
        return None
    return role_of({name: float(table.figures[name][head]) for name in THRESHOLDS})

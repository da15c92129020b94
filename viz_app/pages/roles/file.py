"""Roles over a text file, whose beginning is measured here, or in a table of `headlight heads`."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.heads import heads_agreement
from bert_core.analysis.roles import THRESHOLDS, Role, role_of
from bert_core.fingerprint import fingerprint
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import HeadTable
from bert_core.refused import Refused
from bert_core.studies.head_tables import MAX_MEGABYTES, check_fits, read_table
from bert_core.studies.heads import HeadSums, measure_shard
from bert_core.studies.lines import SHARD_LINES
from bert_core.studies.settings import CorpusSettings
from bert_core.studies.tables import TABLE_SUFFIXES
from bert_core.studies.texts import text_shards
from viz_app.figures.heads import sweep_scatter
from viz_app.pages.roles import FIGURES, TEXTS, figure, table
from viz_app.pages.roles.shared import describe_role, draw_grid, draw_scores, first_head, upload_control
from viz_app.shell import examples
from viz_app.shell.controls import Upload
from viz_app.shell.heads import selected_head
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_line
from viz_app.shell.work import confirm, estimate_seconds, wait_for, work

TEXT_SHARDS = 3  # shards of a text file that are measured while a visitor waits
TEXT_LINES = TEXT_SHARDS * SHARD_LINES
TEXT_PASSES = 4  # forward passes per token: the maps, and the loss forward and back
EXAMPLE_TEXT = Upload("four-sentences.txt", examples.REFERENCE.encode())
TABLES = "HEADLIGHT_TABLES"  # environment variable: a folder of tables
UPLOAD = "upload"  # option of `table`: a file of the visitor


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw a figure of every head over a file, and importance against the effect of ablation.

    row: the row of the controls.
    """
    with page.figure():
        head_table = _select_table(page, row)
    if head_table is None:
        return
    selection = page.selection
    names = {name: title for name, title in FIGURES.items() if name in head_table.figures}
    if head_table.method != "zero" and "loss_change" in names:
        names["loss_change"] += f", {head_table.method} ablation"
    name = figure(row, options=list(names), format_func=names.__getitem__)
    left, right = page.figure().columns([3, 2], gap="large")
    layer, head = place = selected_head(lambda: first_head(head_table.figures[name]))
    role = role_in_table(head_table, place)
    with left:
        draw_grid(selection, head_table.figures[name], names[name].lower(), "grid_file", selected=place)
    with right:
        if role is not None:
            sentence = TEXTS["sentences.role_in_file"]
            write_line(sentence.format(head=f"L{layer} H{head}", role=describe_role(role), texts=head_table.texts))
            draw_scores(head_table.figures, place, selection.encoding.special_tokens)
        if "importance" in head_table.figures and "loss_change" in head_table.figures:
            _draw_agreement(head_table)
    loss = "" if head_table.loss is None else f", whose loss is {head_table.loss_text}"
    reading = TEXTS["file.reading"].format(texts=head_table.texts, tokens=head_table.tokens, loss=loss)
    page.read(reading, TEXTS["file.misleads"])


def _draw_agreement(head_table: HeadTable) -> None:
    importance, change = head_table.figures["importance"], head_table.figures["loss_change"]
    rank = heads_agreement(importance, change)
    write_line(TEXTS["file.agreement"].format(rank=rank))
    titles = {
        "estimate": "importance: mean absolute gradient (nats)",
        "finding": "change of the loss without the head (nats)",
    }
    alt = f"Importance against the change of the loss for every head, rank correlation {rank:.2f}"
    chart(sweep_scatter(importance, change, **titles), key="file_scatter", alt=alt)


def _select_table(page: View, row: DeltaGenerator) -> HeadTable | None:
    """Draw the controls of the file, and return its table; None until the button of a text file is pressed."""
    selection, paths = page.selection, {path.name: path for path in tables_at_start()}
    if paths and table(row, options=[*paths, UPLOAD]) != UPLOAD:
        return read_table_file(selection.plain, paths[table.value])
    with row:
        upload = upload_control(
            TEXTS["file.upload"],
            "table_upload",
            EXAMPLE_TEXT,
            types=["txt", "csv", "parquet"],
            megabytes=MAX_MEGABYTES,
            hint=TEXTS["file.hint"].format(lines=TEXT_LINES),
        )
    if upload.name.lower().endswith(".txt"):
        return measure_text(selection, upload)
    return parse_table(selection.plain, upload.data, upload.name)


def tables_at_start() -> list[Path]:
    """Return the tables in the folder of the environment variable `TABLES`, by name."""
    folder = os.environ.get(TABLES)
    if not folder:
        return []
    return sorted(path for path in Path(folder).glob("*") if path.suffix in TABLE_SUFFIXES)


def parse_table(model: LoadedModel, data: bytes, name: str) -> HeadTable:
    """Return a table of the heads of a model. Raises Refused for any other."""
    head_table = read_table(data, name)
    config = model.config
    check_fits(head_table, model.name, config.num_hidden_layers, config.num_attention_heads, fingerprint(model))
    return head_table


def _text_settings(model: LoadedModel) -> CorpusSettings:
    return CorpusSettings(importance=model.has_head("words"), ablation=False)


def _text_lines(upload: Upload) -> list[bytes]:
    return upload.data.splitlines()[:TEXT_LINES]


def _text_seconds(model: LoadedModel, upload: Upload) -> float:
    max_length = _text_settings(model).max_length
    tokens = [round(min(len(line) / 4, max_length)) for line in _text_lines(upload)]  # about four letters per piece
    return sum(estimate_seconds(model, length, TEXT_PASSES) for length in tokens)


@work("Measuring {upload} with {model}", seconds=_text_seconds)
def _measured_text(model: LoadedModel, upload: Upload, report: Progress = ignore_progress) -> HeadTable:
    sums, lines = HeadSums({}), _text_lines(upload)
    with upload.on_disk() as path:
        for shard in itertools.islice(text_shards(path), TEXT_SHARDS):
            sums = sums + measure_shard(model, shard, _text_settings(model))
            report((shard.number + 1) * SHARD_LINES / (len(lines) + SHARD_LINES))
    return sums.table(model.name, _text_settings(model))


def measure_text(selection: Selection, upload: Upload) -> HeadTable | None:
    """Return every head over the first lines of a text file, without ablations; the example is measured at once.

    None for other files until their button is pressed.
    Raises Refused for a file without a text.
    """
    if upload is EXAMPLE_TEXT:
        return wait_for(_measured_text(selection.plain, upload))
    label = f"Measure the first {len(_text_lines(upload))} lines"
    head_table: HeadTable | None = confirm(label, _measured_text(selection.plain, upload), quick=0)
    return head_table


def read_table_file(model: LoadedModel, path: Path) -> HeadTable:
    """Return a table of the folder `TABLES`. Raises Refused as `parse_table`, and for one that is too large."""
    if path.stat().st_size > MAX_MEGABYTES * 1_000_000:
        raise Refused(f"the file {path.name} is too large: a table of heads has {MAX_MEGABYTES} MB at most")
    return parse_table(model, path.read_bytes(), path.name)


def role_in_table(head_table: HeadTable, head: Head) -> Role | None:
    """Return the role of a head over a whole file; None if the table does not contain the figures of roles."""
    figures = head_table.figures
    if any(name not in figures or not np.isfinite(figures[name][head]) for name in THRESHOLDS):
        return None
    return role_of({name: float(figures[name][head]) for name in THRESHOLDS})

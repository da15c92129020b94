"""Relations of an uploaded treebank, and the head that finds each of them best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.relations import DIRECTIONS, RelationTally
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.studies.relations import relations_csv, track_relations
from bert_core.studies.texts import read_trees
from viz_app.lessons import TREES
from viz_app.pages.roles import TEXTS, relation
from viz_app.pages.roles.shared import draw_grid, first_head, upload_control
from viz_app.shell.controls import Upload
from viz_app.shell.heads import selected_head
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.models import ModelReference
from viz_app.shell.params import Head
from viz_app.shell.view import View, add_file, write_line
from viz_app.shell.work import earlier_result, estimate_seconds, remember_works, wait_for, work

MAX_MEGABYTES = 5  # of a treebank
SENTENCE_BYTES, SENTENCE_TOKENS = 1250, 25  # of a typical sentence in a treebank
MIN_COUNT = 20  # occurrences of a relation in a summary of a head
EXAMPLE_TREES = Upload("sixty-sentences.conllu", TREES.read_bytes())
DIRECTION_NAMES = TEXTS.options("treebank.directions")
TABLE_HEIGHT = 560  # pixels
COLUMNS = {  # of the table of relations
    "relation": st.column_config.TextColumn(width=80),
    "words": st.column_config.NumberColumn(width=58),
    "best head": st.column_config.TextColumn(width=78),
    "found": st.column_config.NumberColumn(width=58, format="%.2f"),
    "fixed offset": st.column_config.TextColumn("offset", width=56),
    "by fixed offset": st.column_config.NumberColumn("by offset", width=74, format="%.2f"),
    "direction": st.column_config.TextColumn(width=134),
}
TALLY = "examined"  # session key: weights and name of the treebank that was read last; slot of its tally


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the accuracy of every head for the selected relation, beside the table of all relations.

    row: the row of the controls.
    """
    selection = page.selection
    with row:
        upload = upload_control(
            TEXTS["treebank.upload"], "treebank", EXAMPLE_TREES, types=["conllu", "conll"], megabytes=MAX_MEGABYTES
        )
    with page.figure():
        tally = read_relations(selection.plain, upload)
    rows = relation_rows(tally)
    model = ModelReference(selection.plain)
    add_file("Relations (CSV)", lambda: relations_csv(wait_for(_tally(model.get(), upload)).rows()), "relations.csv")
    with row:
        name = relation(options=[entry["relation"] for entry in rows])
    shares, directions = best_direction(tally, name)
    titles = [
        [f"L{layer} H{head}: {shares[layer, head]:.0%}, {direction}" for head, direction in enumerate(line)]
        for layer, line in enumerate(directions)
    ]
    place = selected_head(lambda: first_head(shares))
    left, right = page.figure().columns(2, gap="medium")
    with left:
        draw_grid(selection, shares, "share of words found", "grid_relation", titles, selected=place)
    with right:
        write_line(_head_sentence(rows, name, shares, directions, place))
        st.dataframe(rows, hide_index=True, key="relations", height=TABLE_HEIGHT, column_config=COLUMNS)
    reading, misleads = TEXTS["treebank.reading"], TEXTS["treebank.misleads"]
    page.read(reading.format(sentences=tally.sentences), misleads.format(left_out=tally.left_out))


def _head_sentence(
    rows: Sequence[Mapping[str, Any]], name: str, shares: np.ndarray, directions: Sequence[Sequence[str]], place: Head
) -> str:
    """Return what the selected head and the best one find of a relation. Arguments: as `best_direction` returns."""
    layer, head = place
    row = next(entry for entry in rows if entry["relation"] == name)
    sentence = TEXTS["sentences.found"].format(
        relation=escape_markdown(name),
        head=f"L{layer} H{head}",
        share=shares[place],
        asked=f"{row['words']:,} words",
        direction=directions[layer][head],
        offset=int(row["fixed offset"]),
        by_offset=row["by fixed offset"],
    )
    if row["best head"] == f"L{layer} H{head}":
        return f"{sentence} {TEXTS['sentences.is_best'].format(heads=int(np.isfinite(shares).sum()))}"
    return f"{sentence} {TEXTS['sentences.best'].format(head=row['best head'], share=np.nanmax(shares))}"


def _tally_seconds(model: LoadedModel, upload: Upload) -> float:
    return estimate_seconds(model, SENTENCE_TOKENS, len(upload.data) / SENTENCE_BYTES)


@work("Analysing {upload} with {model}", seconds=_tally_seconds)
def _tally(model: LoadedModel, upload: Upload, report: Progress = ignore_progress) -> RelationTally:
    with upload.on_disk() as path:
        sentences = [tree for tree, _ in read_trees(path)]
    return track_relations(model, sentences, report=report)


def read_relations(model: LoadedModel, upload: Upload) -> RelationTally:
    """Return the accuracy of every head for every relation of a treebank. Raises Refused for any other file."""
    tally_work = _tally(model, upload)
    tally = wait_for(tally_work)
    st.session_state[TALLY] = (model.weights_key, upload.name)
    remember_works(TALLY, tally_work)
    return tally


def relations_of_head(model: LoadedModel, head: Head) -> str:
    """Return a sentence on the relations that a head finds best in the treebank that was read last; "" without one.

    A relation counts if the head is better than the best fixed offset.
    """
    weights_key, name = st.session_state.get(TALLY, (("", ""), ""))
    tally: RelationTally | None = earlier_result(TALLY).value
    if tally is None or weights_key != model.weights_key:
        return ""
    rows = tally.rows_of_head(*head, min_count=MIN_COUNT)
    if not rows:
        return TEXTS["sentences.no_relation"].format(name=escape_markdown(name))
    relations = ", ".join(
        f"**{escape_markdown(row.relation)}** ({row.accuracy:.2f}; fixed offset {row.offset_accuracy:.2f})"
        for row in rows
    )
    return TEXTS["sentences.relations"].format(name=escape_markdown(name), relations=relations)


def relation_rows(tally: RelationTally) -> list[dict[str, Any]]:
    """Return the table of relations that the page shows."""
    return [
        {
            "relation": row.relation,
            "words": row.asked,
            "best head": "–" if row.layer is None else f"L{row.layer} H{row.head}",
            "found": row.accuracy,
            "fixed offset": f"{row.offset:+d}",
            "by fixed offset": row.offset_accuracy,
            "direction": "" if row.direction is None else DIRECTION_NAMES[row.direction],
        }
        for row in tally.rows()
    ]


def best_direction(tally: RelationTally, name: str) -> tuple[np.ndarray, list[list[str]]]:
    """Return the accuracy (layer, head) for a relation in the better direction of each head, and that direction."""
    shares = tally.accuracy(name)
    return shares.max(0), [[DIRECTION_NAMES[DIRECTIONS[direction]] for direction in row] for row in shares.argmax(0)]

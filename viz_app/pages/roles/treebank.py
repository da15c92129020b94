"""Relations of an uploaded treebank, and the head that finds each of them best."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.relations import DIRECTIONS, RelationTally
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.studies.relations import relations_csv, track_relations
from bert_core.studies.texts import read_trees
from viz_app.pages.roles import relation
from viz_app.pages.roles.shared import draw_grid
from viz_app.shell import examples
from viz_app.shell.controls import Upload, example_button, file_control, set_choice
from viz_app.shell.downloads import file_button
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.models import ModelReference
from viz_app.shell.params import Head
from viz_app.shell.view import View
from viz_app.shell.work import earlier_result, estimate_seconds, remember_works, wait_for, work

MAX_MEGABYTES = 5  # of a treebank
SENTENCE_BYTES, SENTENCE_TOKENS = 1250, 25  # of a typical sentence in a treebank
MIN_COUNT = 20  # occurrences of a relation in a summary of a head
EXAMPLE_TREES = Upload("sixty-sentences.conllu", examples.TREES.read_bytes())
TALLY = "examined"  # session key: weights and name of the treebank that was read last; slot of its tally
READING = (
    "**How to read this:** {sentences:,} sentences. “found”: for how many words the head's strongest attention to (or "
    "from) another word points to the word they depend on. “by offset”: the best guess that always points the same "
    "number of words away. Words without tokens of their own are left out ({left_out:,}). **How it can mislead:** the "
    "best head is chosen on the same sentences that it is scored on; and a relation at a fixed distance is found by a "
    "head that knows only distance."
)


def draw(page: View) -> None:
    """Draw the table of relations, and the accuracy of every head for the selected one."""
    selection = page.selection
    upload = file_control(
        page.controls(), "Treebank, CoNLL-U", "treebank", types=["conllu", "conll"], megabytes=MAX_MEGABYTES
    )
    if upload is None:
        hint = "Upload sentences with their dependency trees (CoNLL-U, at most 5 MB)."
        example_button(hint, "Take sixty example sentences", set_choice, "treebank", EXAMPLE_TREES)
        return
    tally = read_relations(selection.plain, upload)
    rows = relation_rows(tally)
    left, right = page.figure().columns([1.9, 1], gap="medium")
    percent = st.column_config.NumberColumn(format="percent")
    formats = {"found": percent, "by offset": percent}
    with left:
        st.dataframe(rows, hide_index=True, key="relations", height=520, column_config=formats)
        model = ModelReference(selection.plain)
        file_button("Table (CSV)", lambda: relations_csv(wait_for(_tally(model.get(), upload)).rows()), "relations.csv")
    with right:
        name = relation(options=[row["relation"] for row in rows])
        shares, directions = best_direction(tally, name)
        titles = [
            [f"L{layer} H{head}: {shares[layer, head]:.0%}, {direction}" for head, direction in enumerate(row)]
            for layer, row in enumerate(directions)
        ]
        draw_grid(selection, shares, "found", "grid_relation", titles)
    page.read(READING.format(sentences=tally.sentences, left_out=tally.left_out))


def _tally_seconds(model: LoadedModel, upload: Upload) -> float:
    return estimate_seconds(model, SENTENCE_TOKENS, len(upload.data) / SENTENCE_BYTES)


@work("{model} reads {upload}", seconds=_tally_seconds)
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
        return f"In {escape_markdown(name)} there is no relation that this head finds best."
    relations = ", ".join(
        f"**{escape_markdown(row.relation)}** ({row.accuracy:.2f}; fixed offset {row.offset_accuracy:.2f})"
        for row in rows
    )
    return f"In {escape_markdown(name)} this head is the best of all at {relations}."


def relation_rows(tally: RelationTally) -> list[dict[str, Any]]:
    """Return the table of relations that the page shows."""
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


def best_direction(tally: RelationTally, name: str) -> tuple[np.ndarray, list[list[str]]]:
    """Return the accuracy (layer, head) for a relation in the better direction of each head, and that direction."""
    shares = tally.accuracy(name)
    return shares.max(0), [[DIRECTIONS[direction] for direction in row] for row in shares.argmax(0)]

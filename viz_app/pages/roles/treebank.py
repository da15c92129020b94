"""Which head finds which relation of an uploaded treebank."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.relations import DIRECTIONS, RelationTally
from bert_core.loading import LoadedModel
from bert_core.progress import Progress
from bert_core.studies.relations import relations_csv, track_relations
from bert_core.studies.texts import read_trees
from bert_core.studies.treebank import TreeSentence
from viz_app.pages.roles.shared import grid
from viz_app.shell import examples, screen
from viz_app.shell.controls import Upload, control, example_button, file_control, set_choice
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.models import ModelReference
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, earlier_result, estimate_seconds, remember_works, wait_for

LARGEST_TREEBANK = 5  # megabytes
SENTENCE_BYTES, SENTENCE_TOKENS = 1250, 25  # of a treebank, about
LEAST = 20  # times that a relation was asked before a head is said to find it
EXAMPLE_TREES = Upload("sixty-sentences.conllu", examples.TREES.read_bytes())
EXAMINED = "examined"  # the treebank that was read last: model and name, and the slot of its tally


def draw(current: Selection) -> None:
    """Which head finds which relation."""
    layers, heads = current.head_mask.shape
    upload = file_control(st, "Treebank, CoNLL-U", "treebank", types=["conllu", "conll"], megabytes=LARGEST_TREEBANK)
    if upload is None:
        example_button(
            "Upload sentences with their dependency trees (CoNLL-U, at most 5 MB).", "Take sixty example sentences",
            set_choice, "treebank", EXAMPLE_TREES,
        )  # fmt: skip
        return
    tally = relations_of(current.plain, upload.data, upload.name)
    table = by_relation(tally)
    left, right = screen.picture().columns([1.9, 1], gap="medium")
    percent = st.column_config.NumberColumn(format="percent")
    with left:
        st.dataframe(
            table, hide_index=True, key="relations", height=520,
            column_config={"found": percent, "by offset": percent},
        )  # fmt: skip
        st.download_button(
            "Table (CSV)",
            partial(_csv, ModelReference(current.plain), upload.data, upload.name),
            "relations.csv",
            "text/csv",
            icon=":material/table:",
        )
    with right:
        relation = control(
            st.selectbox, "Relation", "relation", options=(relations := [row["relation"] for row in table]),
            first=relations[0],
        )  # fmt: skip
        shares, directions = best_direction(tally, relation)
        titles = [
            [f"L{layer} H{head}: {shares[layer, head]:.0%}, {directions[layer][head]}" for head in range(heads)]
            for layer in range(layers)
        ]
        grid(current, shares, "found", "grid_relation", titles)
    screen.write_reading(
        f"**How to read this:** {tally.sentences:,} sentences. “found”: for how many words the head's strongest "
        "attention to (or from) another word points to the word they depend on. “by offset”: the best guess that "
        "always points the same number of words away. Words without tokens of their own are left out "
        f"({tally.left_out:,}). "
        "**How it can mislead:** the best head is chosen on the same sentences that it is scored on; and a relation at "
        "a fixed distance is found by a head that knows only distance."
    )


def relations_of(loaded: LoadedModel, data: bytes, name: str) -> RelationTally:
    """Every head on a treebank that was uploaded, from the queue.

    Raises Refused, in one sentence, for a file that is no treebank in CoNLL-U.
    """
    work = _work(loaded, data, name)
    tally = wait_for(work)
    st.session_state[EXAMINED] = (loaded.weights_key, name)
    remember_works(EXAMINED, work)
    return tally


def _work(loaded: LoadedModel, data: bytes, name: str) -> Work[RelationTally]:
    def track(report: Progress) -> RelationTally:
        return track_relations(loaded, _sentences(data, name), report=report)

    key = ("relations", loaded.weights_key, sha256(data).digest())
    seconds = estimate_seconds(loaded, SENTENCE_TOKENS, len(data) / SENTENCE_BYTES)
    return Work(key, f"{loaded.name} reads {name}", track, seconds)


def _csv(model: ModelReference, data: bytes, name: str) -> str:
    return as_csv(wait_for(_work(model.get(), data, name)))


def relations_found(loaded: LoadedModel, head: Head) -> str:
    """What a head finds best of all in the treebank that this visitor examined with this model, as a sentence; or none.

    A relation counts where the head is better than the best fixed offset.
    """
    weights_key, name = st.session_state.get(EXAMINED, (("", ""), ""))
    tally: RelationTally | None = earlier_result(EXAMINED).value
    if tally is None or weights_key != loaded.weights_key:
        return ""
    found = tally.rows_of_head(*head, min_count=LEAST)
    if not found:
        return f"In {escape_markdown(name)} there is no relation that this head finds best."
    said = ", ".join(
        f"**{escape_markdown(row.relation)}** ({row.accuracy:.2f}; fixed offset {row.offset_accuracy:.2f})"
        for row in found
    )
    return f"In {escape_markdown(name)} this head is the best of all at {said}."


def _sentences(data: bytes, name: str) -> list[TreeSentence]:
    with Upload(name, data).on_disk() as path:
        return [tree for tree, _ in read_trees(path)]


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

"""The queries and keys of a head over a corpus in one plane, if it is better than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.records import QueryKeyPlane
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.run.query_keys import MAX_TOKENS
from bert_core.studies.query_keys import query_keys_file
from viz_app.components.head_grid.view import head_grid
from viz_app.export.query_keys import measures_in_words, plane_snippet, points_file
from viz_app.figures.query_keys import query_key_map
from viz_app.pages.profiles import FIRST_HEAD, TEXTS, plane_colour, plane_text
from viz_app.shell import own_corpus
from viz_app.shell.controls import Upload
from viz_app.shell.heads import choose_head, existing_heads, selected_head
from viz_app.shell.markdown import error_sentence, with_help
from viz_app.shell.params import Head
from viz_app.shell.view import View, add_file, chart, write_note, write_result
from viz_app.shell.work import confirm, estimate_seconds, work

SENTENCE_TOKENS = 32  # typical
MEASURES_SECONDS = 4.0  # of the correlations and neighbourhoods with their shuffles and rotations
QUICK_SECONDS = 10.0  # work that takes longer is started by a button
MAX_WORDS = 6  # of a text in its list
SIDE = 480  # pixels of the square with the points
KEY = "query_key_plane"  # of the figure


def draw(page: View, model: LoadedModel, row: Any) -> None:
    """Draw the plane of the selected head beside the grid of all heads. row: container of the controls."""
    off = existing_heads(model)
    layer, head = selected_head(lambda: _first_head(model))
    with row:
        own_corpus.corpus_control(model)
        text_place = st.container(width="content")
        with page.options(plane_colour):
            plane_colour()
    corpus = own_corpus.selected_corpus()
    left, right = page.figure().columns([3, 2], gap="large")
    with right:
        _draw_grid(model, (layer, head))
    with left:
        try:
            plane = confirm(
                TEXTS["plane.fit"].format(layer=layer, head=head),
                _fit(model, corpus, layer, head),
                quick=QUICK_SECONDS,
                slot="plane",
            )
        except Refused as error:
            st.info(with_help(error_sentence(error)), icon=":material/info:")
            return
        if plane is None:
            return
        add_file("Points (CSV)", lambda: points_file(plane, "csv"), "query_keys.csv")
        add_file("Points (NPZ)", lambda: points_file(plane, "npz"), "query_keys.npz")
        add_file("Python code", lambda: plane_snippet(plane, model.name, corpus.name), "query_keys.py")
        if off:
            write_note(TEXTS["plane.heads_off"])
        if not plane.is_better_than_chance:
            sentence = TEXTS["plane.refused"].format(layer=layer, head=head, measures=measures_in_words(plane))
            st.info(with_help(sentence), icon=":material/info:")
            return
        with text_place:
            number = _select_text(plane)
        _draw_plane(plane, None if number == 0 else number - 1)
    page.read(
        TEXTS["plane.reading"],
        TEXTS["plane.misleads"].format(size=len(plane.shift), rotated=plane.largest_rotated_correlation),
    )
    if model.config.position_scheme.distances is not None:
        write_note(TEXTS["plane.relative"])


def _first_head(model: LoadedModel) -> Head:
    """Return the head with which the page opens: `FIRST_HEAD`, or else the first that exists."""
    layer, head = FIRST_HEAD
    config = model.config
    if layer < config.num_hidden_layers and head in config.heads_of(layer):
        return FIRST_HEAD
    return next((layer, heads[0]) for layer in range(config.num_hidden_layers) if (heads := config.heads_of(layer)))


def _draw_grid(model: LoadedModel, selected: Head) -> None:
    """Draw all heads; a click selects one."""
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    existing = np.array([[head in model.config.heads_of(layer) for head in range(heads)] for layer in range(layers)])
    head_grid(
        layers=layers, heads=heads, selected=selected, existing=existing, key="plane_grid", on_click=choose_head,
        titles=[[f"L{layer} H{head}" for head in range(heads)] for layer in range(layers)],
    )  # fmt: skip
    write_note(TEXTS["plane.grid_note"])


def _draw_plane(plane: QueryKeyPlane, selected_text: int | None) -> None:
    """Draw the points with their measures above them."""
    names = {"layer": plane.layer, "head": plane.head}
    line = TEXTS["plane.line"].format(
        shuffled=plane.largest_shuffled_correlation,
        rotated=plane.largest_rotated_correlation,
        trust=plane.trustworthiness,
        shuffled_trust=plane.shuffled_trustworthiness.max(),
        variance=plane.explained_variance,
        tokens=len(plane.labels),
        texts=len(set(plane.texts.tolist())),
    )
    write_result(TEXTS["plane.heading"].format(correlation=plane.correlation, **names), line)
    figure = query_key_map(
        plane.queries, plane.keys, plane.labels, plane.texts, plane.positions, selected_text=selected_text,
        by_position=plane_colour.value == "position",
    )  # fmt: skip
    alt = f"Queries and keys of L{plane.layer} H{plane.head} for {len(plane.labels):,} tokens in one plane"
    chart(figure, key=KEY, alt=alt, side=SIDE, on_select=_select_clicked_text, selection_mode="points")


def _select_text(plane: QueryKeyPlane) -> int:
    """Draw the list of texts, and return the line of the selected one, from 1; 0 for all texts."""
    words: dict[int, list[str]] = {}
    for label, text in zip(plane.labels, plane.texts.tolist(), strict=True):
        words.setdefault(text, []).append(label)
    names = {0: TEXTS["plane.all_texts"]}
    for text, labels in words.items():
        names[text + 1] = TEXTS["plane.text"].format(number=text + 1, words=" ".join(labels[1 : MAX_WORDS + 1]))
    return plane_text(
        options=list(names), format_func=names.__getitem__, label_visibility="collapsed", width=220
    )  # fmt: skip


def _select_clicked_text() -> None:
    """Select the text of the point that was clicked; a callback."""
    if points := st.session_state[KEY].selection.points:
        plane_text.set(int(points[0]["customdata"]) + 1)


def _seconds(model: LoadedModel, corpus: Upload, layer: int, head: int) -> float:
    return estimate_seconds(model, SENTENCE_TOKENS, MAX_TOKENS / SENTENCE_TOKENS) + MEASURES_SECONDS


def _memory(model: LoadedModel, corpus: Upload, layer: int, head: int) -> int:
    distances = 4 * 8 * (2 * MAX_TOKENS) ** 2  # of all pairs of queries and keys, measured: four arrays at the peak
    return forward_bytes(model, model.config.max_position_embeddings, 1) + distances


@work("Projecting the queries and keys of L{layer} H{head}", seconds=_seconds, memory=_memory)
def _fit(
    model: LoadedModel, corpus: Upload, layer: int, head: int, report: Progress = ignore_progress
) -> QueryKeyPlane:
    """Project the queries and keys of a head over a random sample of a corpus."""
    with corpus.on_disk() as path:
        (plane,) = query_keys_file(path, model, [(layer, head)], report=report)
    return plane

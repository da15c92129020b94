"""The queries and keys of a head over a corpus in one plane, if it is better than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress, progress_of_part
from bert_core.records import QueryKeyPlane
from bert_core.refused import Refused
from bert_core.run.memory import forward_bytes
from bert_core.run.query_keys import MAX_TOKENS
from bert_core.studies.query_keys import query_keys_file
from viz_app.components.head_grid.view import head_grid
from viz_app.export.query_keys import measures_in_words, plane_columns, plane_snippet, points_file
from viz_app.export.tables import labelled_csv
from viz_app.figures.query_keys import query_key_map
from viz_app.pages.profiles import FIRST_HEAD, TEXTS, plane_colour, plane_text
from viz_app.shell import own_corpus
from viz_app.shell.controls import Upload
from viz_app.shell.heads import choose_head, existing_heads, selected_head
from viz_app.shell.markdown import error_sentence, with_help
from viz_app.shell.params import Head
from viz_app.shell.view import View, add_file, chart, write_note, write_result
from viz_app.shell.work import Work, confirm, estimate_seconds, work

SENTENCE_TOKENS = 32  # typical
MEASURES_SECONDS = 2.0  # of a head: correlations and neighbourhoods with their shuffles and rotations
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
        planes = _draw_grid(model, corpus, (layer, head))
    with left:
        plane = planes.get((layer, head)) or _confirm_or_refuse(
            TEXTS["plane.fit"].format(layer=layer, head=head),
            _fit(model, corpus, layer, head),
            quick=QUICK_SECONDS,
            slot="plane",
        )
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


def _confirm_or_refuse(label: str, work: Work[Any], *, quick: float, slot: str) -> Any:
    """Return the result of `confirm`; write why there is none if the work is refused."""
    try:
        return confirm(label, work, quick=quick, slot=slot)
    except Refused as error:
        st.info(with_help(error_sentence(error)), icon=":material/info:")
        return None


def _draw_grid(model: LoadedModel, corpus: Upload, selected: Head) -> dict[Head, QueryKeyPlane]:
    """Draw all heads, and return their planes, or none until a button was pressed; a click selects a head.

    Once the planes exist, the colours are their correlations.
    """
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    pairs = [(layer, head) for layer in range(layers) for head in model.config.heads_of(layer)]
    place = st.container()
    label = TEXTS["plane.fit_all"].format(count=len(pairs))
    planes: dict[Head, QueryKeyPlane] = _confirm_or_refuse(label, _fit_all(model, corpus), quick=0, slot="planes") or {}
    values = np.full((layers, heads), np.nan)
    titles = [[f"L{layer} H{head}" for head in range(heads)] for layer in range(layers)]
    for (layer, head), plane in planes.items():
        values[layer, head] = max(plane.correlation, 0) if plane.is_better_than_chance else 0
        text = TEXTS["plane.better_title" if plane.is_better_than_chance else "plane.chance_title"]
        titles[layer][head] += text.format(correlation=plane.correlation)
    existing = np.zeros((layers, heads), bool)
    existing[tuple(np.transpose(pairs))] = True
    with place:
        head_grid(
            layers=layers, heads=heads, selected=selected, existing=existing, values=values if planes else None,
            unit=TEXTS["plane.grid"], titles=titles, key="plane_grid", on_click=choose_head,
        )  # fmt: skip
        if planes:
            better = sum(plane.is_better_than_chance for plane in planes.values())
            write_note(TEXTS["plane.grid_result"].format(better=better, count=len(planes)))
            columns = plane_columns([*planes.values()])
            add_file("All heads (CSV)", lambda: labelled_csv(columns), "query_key_planes.csv")
        else:
            write_note(TEXTS["plane.grid_note"])
    return planes


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


def _seconds_of_all(model: LoadedModel, corpus: Upload) -> float:
    heads = sum(len(model.config.heads_of(layer)) for layer in range(model.config.num_hidden_layers))
    return estimate_seconds(model, SENTENCE_TOKENS, MAX_TOKENS / SENTENCE_TOKENS) + heads * MEASURES_SECONDS


def _memory_of_all(model: LoadedModel, corpus: Upload) -> int:
    vectors = 2 * 4 * MAX_TOKENS * model.config.hidden_size * model.config.num_hidden_layers
    return _memory(model, corpus, 0, 0) + vectors


@work("Projecting the queries and keys of all heads", seconds=_seconds_of_all, memory=_memory_of_all)
def _fit_all(model: LoadedModel, corpus: Upload, report: Progress = ignore_progress) -> dict[Head, QueryKeyPlane]:
    """Project the queries and keys of every head, over the sample of `_fit`, which depends on the window of a layer."""
    heads_of_window: dict[int | None, list[Head]] = {}
    for layer, window in enumerate(model.config.windows):
        if heads := model.config.heads_of(layer):
            heads_of_window.setdefault(window, []).extend((layer, head) for head in heads)
    planes: list[QueryKeyPlane] = []
    with corpus.on_disk() as path:
        for number, pairs in enumerate(heads_of_window.values()):
            report_part = progress_of_part(report, number, len(heads_of_window))
            planes += query_keys_file(path, model, pairs, report=report_part)
    planes.sort(key=lambda plane: (plane.layer, plane.head))
    return {(plane.layer, plane.head): plane for plane in planes}

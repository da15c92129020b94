"""Draws the score of one query and one key by their distance, below the view Query-key of a rotary model."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.rotation import rotate_by_position, scores_by_distance
from bert_core.records import HeadVectors
from viz_app.figures.rotation import score_by_distance
from viz_app.figures.style import current_look
from viz_app.pages.attention import TEXTS
from viz_app.pages.attention.selected_maps import SelectedMaps
from viz_app.shell import downloads
from viz_app.shell.markdown import quoted_without_terms, with_help
from viz_app.shell.view import chart, write_heading, write_line, write_note


def draw_score_by_distance(maps: SelectedMaps) -> None:
    """Draw the score of the selected query and key at every allowed distance, in lecture mode in a popover.

    Draws nothing for a model without rotary positions.
    """
    vectors, heading = maps.vectors(maps.choice.layer, maps.choice.heads[0]), TEXTS["score_distance.heading"]
    if vectors is None or vectors.rotary_base is None:
        return
    if not current_look().lecture:
        write_heading(heading)
        _draw_scores(maps, vectors)
        return
    popover = st.popover(heading, icon=":material/timeline:", key="score_distances", on_change="rerun")
    if popover.open:
        with popover:
            _draw_scores(maps, vectors)
    else:
        popover.container(height=downloads.POPOVER_HEIGHT, border=False)  # its place depends on its height as it opens


def _draw_scores(maps: SelectedMaps, vectors: HeadVectors) -> None:
    choice, labels = maps.choice, maps.selection.encoding.labels
    query = maps.query(choice)
    selected = [position for position in choice.positions if choice.side == "key" and position < len(labels)]
    key = selected[0] if selected else int(vectors.attention[query].argmax())
    query_name, key_name = (f"{quoted_without_terms(labels[place])} ({place})" for place in (query, key))
    names = {"query": query_name, "key": key_name}
    if vectors.window is not None and abs(key - query) > vectors.window:
        st.info(with_help(TEXTS["score_distance.outside"].format(window=vectors.window, **names)))
        return
    distances, scores = scores_at_distances(vectors, query, key)
    numbers = vectors.scores[query, key], scores.min(), scores.max()
    score, low, high = (f"{number:.2f}".replace("-", "−") for number in numbers)
    distance = f"{key - query:+d}".replace("-", "−")
    result = TEXTS["score_distance.result"]
    write_line(result.format(score=score, distance=distance, low=low, high=high, **names))
    axis = TEXTS["score_distance.axis"].format(query=query, key=key)
    alt = f"Score of query {query} and key {key} at distances {distances[0]} to {distances[-1]}"
    chart(score_by_distance(distances, scores, key - query, title=axis), key="score_distance", alt=alt, grows=False)
    write_note(TEXTS["score_distance.note"])


def scores_at_distances(vectors: HeadVectors, query: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances that a layer allows within the text, and the scores of a query and a key there.

    vectors: of a model with rotary positions. Both arrays are (distance,).
    """
    assert vectors.rotary_base is not None
    farthest = len(vectors.keys) - 1
    if vectors.window is not None:
        farthest = min(vectors.window, farthest)
    distances = np.arange(-farthest, farthest + 1)
    first, second = (
        rotate_by_position(vector[None], np.array([-position]), vectors.rotary_base)[0]
        for vector, position in ((vectors.queries[query], query), (vectors.keys[key], key))
    )
    return distances, scores_by_distance(first, second, vectors.rotary_base, distances)

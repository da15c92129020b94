"""Draws the view Score terms: what is added to the score of each key, for one head and one query."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.records import HeadVectors
from viz_app.figures.score_terms import SCORE, TOP_KEYS, drawn_keys, term_bars, term_map
from viz_app.figures.stages import window
from viz_app.figures.style import current_look
from viz_app.pages.attention import TEXTS, view
from viz_app.pages.attention.selected_maps import SelectedMaps
from viz_app.shell import downloads
from viz_app.shell.controls import example_button
from viz_app.shell.markdown import quoted
from viz_app.shell.view import chart, write_note

MAX_ROWS = 24  # rows and columns of a map
MAP_WIDTH = 540  # of one of two maps side by side, in pixels


def adds_terms(loaded: LoadedModel) -> bool:
    """Return whether a model adds terms for distances to its scores."""
    return loaded.config.position_scheme.distances is not None


def head_terms(maps: SelectedMaps) -> HeadVectors | None:
    """Return the vectors of the selected head; None for a pruned head, and for a model without position terms."""
    choice = maps.choice
    return maps.vectors(choice.layer, choice.heads[0]) if adds_terms(maps.selection.loaded) else None


def draw_query_terms(maps: SelectedMaps) -> None:
    """Draw the result for the selected query, and the terms of its keys as bars; or why there are none."""
    choice, selection = maps.choice, maps.selection
    names: dict[str, str | int] = {"layer": choice.layer, "head": choice.heads[0]}
    if not adds_terms(selection.loaded):
        example_button(TEXTS["score_terms.missing"], TEXTS["score_terms.open"], view.set, "neuron")
        return
    vectors = head_terms(maps)
    if vectors is None:
        st.markdown(TEXTS["score_terms.pruned"].format(**names))
        return
    query, labels = maps.query(choice), selection.encoding.labels
    scores, addends = vectors.scores[query], vectors.addends
    keys = drawn_keys(scores, choice.positions)
    names["query"] = quoted(labels[query], query)
    if not keys:
        st.markdown(TEXTS["score_terms.no_scores"].format(**names))
        return
    highest = max(keys, key=scores.__getitem__)
    names["key"] = quoted(labels[highest], highest)
    parts = {name: float(values[query, highest]) for name, values in addends.items()}
    st.markdown(TEXTS["score_terms.result"].format(**names, sum=_write_sum(float(scores[highest]), parts)))
    if (choice.layer, choice.heads[0]) in selection.off:
        write_note(TEXTS["score_terms.off"].format(**names))
    if len(keys) < np.isfinite(scores).sum():
        write_note(TEXTS["score_terms.keys"].format(count=TOP_KEYS, all=len(scores)))
    terms = {name: values[query, keys] for name, values in addends.items()}
    figure = term_bars([f"{labels[key]} ({key})" for key in keys], terms, scores[keys])
    alt = f"Terms of the scores of {len(keys)} keys for the query {labels[query]} ({query})"
    chart(figure, key="score_terms", alt=alt)


def _write_sum(score: float, terms: Mapping[str, float]) -> str:
    """Return a score as the sum of its terms: "3.20 = 2.05 (content-to-content) − 0.25 (position)"."""
    rounded = [round(number, 2) + 0.0 for number in (score, *terms.values())]  # no −0.00
    total, *parts = (f"{number:.2f}".replace("-", "−") for number in rounded)
    equals = "=" if round(sum(rounded[1:]), 2) == rounded[0] else "≈"
    named_parts = " + ".join(f"{part} ({name})" for part, name in zip(parts, terms, strict=True))
    return f"{total} {equals} {named_parts.replace('+ −', '− ')}"


def draw_term_maps(maps: SelectedMaps) -> None:
    """Draw the map of each term and of the score of the selected head; in lecture mode in a popover."""
    vectors = head_terms(maps)
    if vectors is None:
        return
    if not current_look().lecture:
        _draw_maps(maps, vectors, columns=2)
        return
    popover = st.popover(
        TEXTS["score_terms.maps"], icon=":material/grid_on:", key="score_terms_maps", on_change="rerun"
    )
    if not popover.open:
        popover.container(height=downloads.POPOVER_HEIGHT, border=False)  # its place depends on its height as it opens
        return
    with popover:
        _draw_maps(maps, vectors, columns=1)


def _draw_maps(maps: SelectedMaps, vectors: HeadVectors, columns: int) -> None:
    """Draw the map of each term and of the score of a head, on one colour scale. columns: of maps side by side."""
    query, encoding = maps.query(maps.choice), maps.selection.encoding
    places = window(len(encoding), query, MAX_ROWS)
    if places.stop - places.start < len(encoding):
        first, last = places.start, places.stop - 1
        write_note(TEXTS["score_terms.window"].format(first=first, last=last, count=len(encoding)))
    scores, labels = vectors.scores, encoding.labels[places]
    values = {
        name: np.where(np.isfinite(scores), term, np.nan) for name, term in {**vectors.addends, SCORE: scores}.items()
    }
    limit = max(float(np.abs(np.nan_to_num(term)).max()) for term in values.values())
    names = list(values)
    for start in range(0, len(names), columns):
        for name, column in zip(names[start : start + columns], st.columns(columns, gap="medium"), strict=False):
            with column:
                st.markdown(f"**{name.capitalize()}**")
                row = query - places.start
                options: dict[str, Any] = {"selected_row": row, "first_row": places.start, "width": MAP_WIDTH}
                figure = term_map(values[name][places, places], labels, labels, name=name, limit=limit, **options)
                key = f"score_terms_{name}"
                alt = f"Map of {name} of L{vectors.layer} H{vectors.head} for {len(labels)} queries and keys"
                clicks: dict[str, Any] = {"on_select": partial(_select_query, key), "selection_mode": "points"}
                chart(figure, key=key, alt=alt, grows=False, **clicks)


def _select_query(key: str) -> None:
    """Select the query of the row that was clicked; a callback. key: of the map."""
    if points := st.session_state[key].selection.points:
        st.session_state.tokens = ("query", (int(points[0]["y"]),))

"""The view Hidden states: the states of all tokens in the plane, one depth at a time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.lens import MAX_NEIGHBOURS, Plane, neighbours_in_plane, states_in_plane
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_phrase, short_names, state_map
from viz_app.pages.layers import TEXTS, projection
from viz_app.pages.layers.shared import hidden_states
from viz_app.shell.depth import select_depth
from viz_app.shell.downloads import add_numbers
from viz_app.shell.markdown import with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_result
from viz_app.shell.work import wait_for, work

NEIGHBOURS_SECONDS = 5.0  # of a layout by neighbours, most of it for the compilation of UMAP
NEIGHBOURS = f"UMAP by cosine distance, with at most {MAX_NEIGHBOURS} neighbours and a fixed seed."


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the states at the selected depth. row: of the controls."""
    selection, encoding = page.selection, page.selection.encoding
    with row:
        slider = st.container(width="content")
        with page.options(projection):
            by_axes = _select_projection() == "axes"
    try:
        points = _points(selection, by_axes)
    except Refused as error:
        if by_axes:
            raise
        page.figure().info(with_help(f"{error}: choose principal components for this text."))
        return
    with slider:
        depth = select_depth(len(points))
    name = depth_phrase(depth)
    axes = ("first component", "second component") if by_axes else ("", "")
    with page.figure():
        if by_axes:
            variance = _principal_plane(selection).explained_variance[depth]
            share = f"{variance:.0%} of the variance of the hidden states {name}"
            write_result(f"Two principal components explain {share}", "")
        else:
            write_result(f"Hidden states {name}, laid out by similarity", NEIGHBOURS)
        part = slice(selection.positions.start, selection.positions.stop)
        figure = state_map(points[depth, part], encoding.labels[part], _groups(encoding)[part], axes=axes)
        chart(figure, key="plane", alt=f"Hidden states of {len(selection.positions)} tokens in a plane, {name}")
    add_numbers("states", lambda: _columns(selection, by_axes))


def _select_projection() -> str:
    if find_spec("umap") is not None:
        return projection(help=NEIGHBOURS)
    projection.set("axes")
    return projection(disabled=True, help=TEXTS["no_umap"])


def _groups(encoding: Encoding) -> list[str]:
    """Return the group of each token: masked, of the first or second sentence, or added by the model."""
    added = encoding.special_tokens.substitute_in("[CLS], [SEP]")
    names = {"A": "first sentence", "B": "second sentence", None: added}
    groups = [names.get(side, added) for side in encoding.sides]
    return ["masked" if place in encoding.mask_positions else group for place, group in enumerate(groups)]


def _columns(selection: Selection, by_axes: bool) -> dict[str, Sequence[object]]:
    """Return every point as the columns of a table, by depth and position."""
    points, encoding = _points(selection, by_axes), selection.encoding
    length, names = len(encoding), short_names(len(points))
    return {
        "depth": [name for name in names for _ in range(length)],
        "position": [*range(length)] * len(names),
        "token": [*encoding.tokens] * len(names),
        "first_axis": [*points[..., 0].flat],
        "second_axis": [*points[..., 1].flat],
    }


def _points(selection: Selection, by_axes: bool) -> np.ndarray:
    """Return the points (depth, seq, 2) by principal components or neighbours. Raises Refused for too short a text."""
    if by_axes:
        return _principal_plane(selection).points
    return wait_for(_lay_out_neighbours(selection.loaded, selection.encoding, selection.head_mask))


def _principal_plane(selection: Selection) -> Plane:
    return wait_for(_fit_plane(selection.loaded, selection.encoding, selection.head_mask))


@work("{encoding} tokens are laid out by principal components")
def _fit_plane(model: LoadedModel, encoding: Encoding, head_mask: np.ndarray) -> Plane:
    """Lay out the states by the two principal components of each depth."""
    return states_in_plane(wait_for(hidden_states(model, encoding, head_mask)).states)


@work("{encoding} tokens are laid out by their neighbours", seconds=NEIGHBOURS_SECONDS)
def _lay_out_neighbours(
    model: LoadedModel, encoding: Encoding, head_mask: np.ndarray, report: Progress = ignore_progress
) -> np.ndarray:
    """Lay out the states by UMAP, (depth, seq, 2). Raises Refused for a text that is too short."""
    states = wait_for(hidden_states(model, encoding, head_mask)).states
    return neighbours_in_plane(states, report=report)

"""The part States: the hidden states of all tokens in the plane, one depth at a time."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import streamlit as st

from bert_core.analysis.lens import MAX_NEIGHBOURS, Plane, neighbours_in_plane, states_in_plane
from bert_core.loading import LoadedModel
from bert_core.progress import Progress, ignore_progress
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_names, short_names, state_map
from viz_app.pages.layers import projection
from viz_app.pages.layers.shared import add_numbers, hidden_states, select_depth
from viz_app.shell.markdown import with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_note
from viz_app.shell.work import wait_for, work

NEIGHBOURS_SECONDS = 5.0  # of a layout by neighbours, most of it for the compilation of UMAP
NEIGHBOURS = f"UMAP by cosine distance, with at most {MAX_NEIGHBOURS} neighbours and a fixed seed."
READING = (
    "**How to read this:** each point is a token's state. PCA: the two directions in which the states of this depth "
    "differ most, rotated to match the layer before. UMAP: laid out so that similar states stay close, starting from "
    "the layer before. **How it can mislead:** only two of hundreds of directions: points that look close may be far "
    "apart, and each depth has its own axes. With UMAP, gaps and group sizes mean nothing, and chance shapes the "
    "picture."
)


def draw(page: View) -> None:
    """Draw the states at the selected depth."""
    selection, encoding = page.selection, page.selection.encoding
    with page.controls():
        by_axes = _select_projection() == "axes"
    try:
        points = _points(selection, by_axes)
    except Refused as error:
        if by_axes:
            raise
        st.info(with_help(f"{error}: choose principal components for this text."))
        return
    with page.controls():
        depth = select_depth(len(points))
    axes = ("first axis", "second axis") if by_axes else ("", "")
    alt = f"The states of {len(encoding)} tokens in the plane, {depth_names(len(points))[depth]}"
    with page.figure():
        figure = state_map(points[depth], encoding.labels, _groups(encoding), axes=axes)
        chart(figure, key="plane", alt=alt)
    if by_axes:
        variance = _principal_plane(selection).explained_variance[depth]
        write_note(f"These two axes hold {variance:.0%} of the variance at this depth.")
    else:
        write_note(NEIGHBOURS)
    add_numbers("states", lambda: _columns(selection, by_axes))


def _select_projection() -> str:
    if find_spec("umap") is not None:
        return projection(help=NEIGHBOURS)
    projection.set("axes")
    return projection(disabled=True, help="Neighbours need umap-learn: pip install 'headlight[umap]'")


def _groups(encoding: Encoding) -> list[str]:
    """Return the group of each token: masked, of the first or second sentence, or added by the model."""
    added = encoding.special_tokens.substitute_in("[CLS], [SEP]")
    names = {"A": "first sentence", "B": "second sentence", None: added}
    groups = [names.get(side, added) for side in encoding.sides]
    return ["hidden" if place in encoding.mask_positions else group for place, group in enumerate(groups)]


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

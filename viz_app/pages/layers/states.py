"""All tokens' states in the plane, one depth at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

import numpy as np
import streamlit as st

from bert_core.analysis.lens import MAX_NEIGHBOURS, Plane, neighbours_in_plane, states_in_plane
from bert_core.refused import Refused
from viz_app.figures.lens import depth_names, short_names, state_map
from viz_app.pages.layers import PLANES
from viz_app.pages.layers.shared import Part, depth_slider, states_of, take_along
from viz_app.shell.controls import control
from viz_app.shell.markdown import with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_note
from viz_app.shell.work import Work, wait_for

PLANE_NAMES = {"axes": "Principal components (PCA)", "neighbours": "Neighbours (UMAP)"}
LAYING_OUT = 5.0  # seconds by neighbours, most of them to get ready
NEIGHBOURS = f"UMAP by cosine distance, with at most {MAX_NEIGHBOURS} neighbours and a fixed seed."


def plane(current: Selection) -> None:
    """All tokens' states in the plane, one depth at a time."""
    encoding, state = current.encoding, st.session_state
    has_umap = find_spec("umap") is not None
    if not has_umap:
        state.laid = "axes"
    control(
        st.segmented_control, "Layout", "laid", options=PLANES,
        format_func=PLANE_NAMES.__getitem__, required=True, disabled=not has_umap,
        help=NEIGHBOURS if has_umap else "Neighbours need umap-learn: pip install 'headlight[umap]'",
    )  # fmt: skip
    by_axes = state.laid == "axes"
    try:
        points = _points(current, by_axes)
    except Refused as error:
        if by_axes:
            raise
        st.info(with_help(f"{error}: choose principal components for this text."))
        return
    axes = ("first axis", "second axis") if by_axes else ("", "")
    depth = depth_slider(len(points))
    groups = [
        "hidden"
        if place in encoding.mask_positions
        else {"A": "first sentence", "B": "second sentence"}.get(side or "")
        or encoding.special_tokens.substitute_in("[CLS], [SEP]")
        for place, side in enumerate(encoding.sides)
    ]
    chart(
        state_map(points[depth], encoding.labels, groups, axes=axes),
        key="plane", config={"displayModeBar": False},
        alt=f"The states of {len(encoding)} tokens in the plane, {depth_names(len(points))[depth]}",
    )  # fmt: skip
    if by_axes:
        write_note(
            f"These two axes hold {_plane(current).explained_variance[depth]:.0%} of the variance at this depth."
        )
    else:
        write_note(NEIGHBOURS)
    take_along("states", partial(_columns, current, by_axes))


def _columns(current: Selection, by_axes: bool) -> dict[str, Sequence[object]]:
    """Every point as the columns of a table, depth by depth."""
    points, encoding = _points(current, by_axes), current.encoding
    length, names = len(encoding), short_names(len(points))
    return {
        "depth": [name for name in names for _ in range(length)],
        "position": [*range(length)] * len(names),
        "token": [*encoding.tokens] * len(names),
        "first_axis": [*points[..., 0].flat],
        "second_axis": [*points[..., 1].flat],
    }


def _points(current: Selection, by_axes: bool) -> np.ndarray:
    """(depth, seq, 2), by principal components or by neighbours. Raises Refused for a text that is too short."""
    return _plane(current).points if by_axes else _neighbours(current)


def _plane(current: Selection) -> Plane:
    states = states_of(current, current.encoding).states
    made: Plane = current.kept("plane", make=lambda: states_in_plane(states))
    return made


def _neighbours(current: Selection) -> np.ndarray:
    """The layout by neighbours, from the queue. Raises Refused for a text that is too short."""
    states = states_of(current, current.encoding).states
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    work = Work(
        ("neighbours", loaded.identity, encoding, gates.tobytes()),
        f"{len(encoding)} tokens of {len(states)} depths are laid out by their neighbours",
        lambda report: neighbours_in_plane(states, report=report),
        LAYING_OUT,
    )
    return wait_for(work)


PART = Part(
    "States",
    plane,
    "each point is a token's state. PCA: the two directions in which the states of this depth differ most, rotated "
    "to match the layer before. UMAP: laid out so that similar states stay close, starting from the layer before.",
    "only two of hundreds of directions: points that look close may be far apart, and each depth has its own axes. "
    "With UMAP, gaps and group sizes mean nothing, and chance shapes the picture.",
)

"""The trace of a forward pass, and the chosen stage, layer and token of the page Step by step."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from bert_core.records import Walk
from bert_core.run.memory import capture_bytes
from bert_core.run.walk import walk, walk_at_position
from viz_app.components.stage_diagram import StageClick
from viz_app.pages.inside.stages import STAGES
from viz_app.shell.heads import set_head
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, poll, wait_for


def forward_trace(current: Selection, layer: int, position: int, pads: int, engine: str) -> Walk:
    """Return every value of a forward pass, from the queue; see `bert_core.run.walk.walk`."""
    return walk_at_position(current.loaded, wait_for(_trace_work(current, layer, pads, engine), timed=True), position)


def second_trace(current: Selection, layer: int, position: int, pads: int, engine: str, *, slot: str) -> Walk | None:
    """Return another trace, or None while it is computed; its place in the queue is shown.

    slot: that of the button that requested it.
    """
    trace = poll(_trace_work(current, layer, pads, engine), request_slot=slot).value
    return None if trace is None else walk_at_position(current.loaded, trace, position)


def _trace_work(current: Selection, layer: int, pads: int, engine: str) -> Work[Walk]:
    # One trace serves all tokens: `walk_at_position` computes only the masked-word head again.
    loaded, encoding, gates = current.loaded, current.encoding, current.head_mask
    return Work(
        ("walk", loaded.identity, encoding, layer, pads, engine, gates.tobytes()),
        f"{shown_name(loaded.name)} computes every step with {engine}",
        lambda report: walk(loaded, encoding, layer, head_mask=gates, pads=pads, engine=engine, report=report),
        memory=capture_bytes(loaded, len(encoding) + pads),
    )


def choose_layer_and_head(layer_key: str, head_key: str) -> None:
    """Choose the head that two controls hold."""
    state = st.session_state
    set_head((state[layer_key], state[head_key]), state.also)


def choose_token(key: str) -> None:
    """Choose the token that a control holds."""
    st.session_state.token = st.session_state[key]


def chosen_token(current: Selection) -> int:
    """Return the position of the chosen token; by default that of the first masked token, or of the first word."""
    token, encoding = st.session_state.token, current.encoding
    if token is not None and 0 <= token < len(encoding):
        return int(token)
    return next(iter(encoding.mask_positions), 1)


def existing_stages(current: Selection) -> tuple[str, ...]:
    """Return the names of the stages that the model has, in order; some models lack the pooler or the outputs."""
    loaded, missing = current.loaded, set[str]()
    if loaded.report.lacks("bert.pooler."):
        missing.add("pooler")
    if not (loaded.has_head("words") or loaded.has_head("next") or loaded.has_head("detector")):
        missing.add("heads")
    return tuple(name for name in STAGES if name not in missing)


def step_stage(names: Sequence[str], step: int) -> None:
    """Move some stages forward or back. names: those of the existing stages."""
    place = names.index(st.session_state.stage) + step
    st.session_state.stage = names[min(max(place, 0), len(names) - 1)]


def go_to_stage(click: StageClick) -> None:
    """Open the clicked stage of the floor plan."""
    st.session_state.stage = click.name


def enter_next_layer(layers: int) -> None:
    """Open the query, key and value of the same head in the next layer."""
    state = st.session_state
    set_head((min(state.head[0] + 1, layers - 1), state.head[1]), state.also)
    state.stage = "qkv"

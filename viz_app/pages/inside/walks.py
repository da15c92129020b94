"""The chosen stage, layer and token, and every value of the pass on the way there."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from bert_core.records import Walk
from bert_core.run.memory import capture_bytes
from bert_core.run.walk import walk, walk_at_position
from viz_app.components.stage_diagram import StageClick
from viz_app.pages.inside.stages import STAGES
from viz_app.shell.heads import set_head
from viz_app.shell.models import shown_name
from viz_app.shell.selection import Selection
from viz_app.shell.work import Work, poll, wait_for


def walk_of(current: Selection, layer: int, position: int, *, pads: int, engine: str) -> Walk:
    """The record of every value on the way, from the queue; see `bert_core.run.walk.walk`."""
    return walk_at_position(current.loaded, wait_for(_work(current, layer, pads, engine), timed=True), position)


def second_walk(current: Selection, layer: int, position: int, *, pads: int, engine: str, asked: str) -> Walk | None:
    """The same beside the first; None while it runs, and its place in the queue is shown here.

    asked: the slot of the button that asked for it.
    """
    seen = poll(_work(current, layer, pads, engine), asked=asked).value
    return None if seen is None else walk_at_position(current.loaded, seen, position)


def _work(current: Selection, layer: int, pads: int, engine: str) -> Work[Walk]:
    # One walk for every token: `asked_at` asks the masked-word head anew, and that alone.
    gates = current.head_mask
    return Work(
        ("walk", current.loaded.identity, current.encoding, layer, pads, engine, gates.tobytes()),
        f"{shown_name(current.loaded.name)} computes every step with {engine}",
        lambda report: walk(
            current.loaded, current.encoding, layer, head_mask=gates, pads=pads, engine=engine, report=report
        ),
        memory=capture_bytes(current.loaded, len(current.encoding) + pads),
    )  # fmt: skip


def choose_layer_and_head(layer_key: str, head_key: str) -> None:
    """Make the head of two controls the chosen one."""
    state = st.session_state
    set_head((state[layer_key], state[head_key]), state.also)


def choose_token(key: str) -> None:
    """Make the token of a control the chosen one."""
    st.session_state.token = st.session_state[key]


def chosen_token(current: Selection) -> int:
    """Where the chosen token is; the first hidden one, or the first word, if none was chosen that is there."""
    token, encoding = st.session_state.token, current.encoding
    if token is not None and 0 <= token < len(encoding):
        return int(token)
    return next(iter(encoding.mask_positions), 1)


def stages_of(current: Selection) -> tuple[str, ...]:
    """The stages that the model has, in their order: some have no pooler, or none of the outputs."""
    loaded, lacking = current.loaded, set[str]()
    if loaded.report.lacks("bert.pooler."):
        lacking.add("pooler")
    if not (loaded.has_head("words") or loaded.has_head("next") or loaded.has_head("detector")):
        lacking.add("heads")
    return tuple(name for name in STAGES if name not in lacking)


def step_stage(names: Sequence[str], by: int) -> None:
    """Go some stages on, or back; a click on a button. names: of the stages that there are."""
    place = names.index(st.session_state.stage) + by
    st.session_state.stage = names[min(max(place, 0), len(names) - 1)]


def go_to_stage(click: StageClick) -> None:
    """Go to the clicked stage; a click in the stage diagram."""
    st.session_state.stage = click.name


def enter_next_layer(layers: int) -> None:
    """Go to the same head's query, key and value one layer up; a click on a button."""
    state = st.session_state
    set_head((min(state.head[0] + 1, layers - 1), state.head[1]), state.also)
    state.stage = "qkv"

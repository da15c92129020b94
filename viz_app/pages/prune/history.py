"""Which heads were switched off on the page Prune, step by step, to go back and forth."""

from __future__ import annotations

import numpy as np
import streamlit as st

from viz_app.shell.params import Head

HISTORY, HISTORY_OF, PLACE = "_lab_history", "_lab_history_of", "_lab_place"


def remember(model: str) -> tuple[bool, bool]:
    """Keep the heads that are off as a step, wherever they were switched; whether one can go back, and forth.

    model: its name; the steps of another name heads that this one may not have, and are forgotten.
    """
    state = st.session_state
    if state.get(HISTORY_OF) != model:
        state[HISTORY_OF], state[HISTORY], state[PLACE] = model, [tuple(state.off)], 0
    history: list[tuple[Head, ...]] = state[HISTORY]
    place: int = state[PLACE]
    if history[place] != tuple(state.off):
        del history[place + 1 :]
        history.append(tuple(state.off))
        state[PLACE] = place = len(history) - 1
    return place > 0, place + 1 < len(history)


def step(by: int) -> None:
    """Go back (-1) or forth (1) in what was switched; a click on a button."""
    state = st.session_state
    state[PLACE] = min(max(state[PLACE] + by, 0), len(state[HISTORY]) - 1)
    state.off = state[HISTORY][state[PLACE]]


def switch_off_below(worth: np.ndarray, key: str) -> None:
    """Switch off the heads whose figure (layer, head) is less than the number in a control, and no other; a click."""
    st.session_state.off = tuple((int(layer), int(head)) for layer, head in np.argwhere(worth < st.session_state[key]))

"""What several of the ways to look at roles need."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.roles import ROLE_DESCRIPTIONS, Role
from viz_app.components.head_grid.view import head_grid
from viz_app.shell.heads import choose_head, head_title
from viz_app.shell.selection import Selection

LABELS = {
    "previous": "token before", "next": "next token", "self": "itself", "cls": "[CLS]", "sep": "[SEP]",
    "punctuation": "punctuation", "broad": "everywhere",
}  # fmt: skip


def grid(current: Selection, values: np.ndarray, what: str, key: str, titles: list[list[str]] | None = None) -> None:
    """Draw one figure of every head, (layer, head); a click chooses a head."""
    layers, heads = current.head_mask.shape
    head_grid(
        layers=layers, heads=heads, values=values, selected=st.session_state.head, key=key,
        titles=titles or [
            [head_title(current, layer, head, what, values) for head in range(heads)] for layer in range(layers)
        ],
        on_click=choose_head,
    )  # fmt: skip


def does(role: Role | None) -> str:
    """What a head of this role does, as the end of a sentence that begins with the head's name."""
    return "was pruned" if role is None else f"{ROLE_DESCRIPTIONS[role.name]} ({role.score:.2f})"

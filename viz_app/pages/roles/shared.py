"""Parts of the page that several sources of roles have in common."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.roles import ROLE_DESCRIPTIONS, Role
from viz_app.components.head_grid.view import head_grid
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.heads import choose_head, head_title
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import Selection


def draw_grid(
    selection: Selection, values: np.ndarray, name: str, key: str, titles: list[list[str]] | None = None
) -> None:
    """Draw a figure of every head, (layer, head), called `name`; a click selects a head."""
    layers, heads = selection.head_mask.shape
    if titles is None:
        titles = [
            [head_title(selection, layer, head, name, values) for head in range(heads)] for layer in range(layers)
        ]
    head_grid(
        layers=layers,
        heads=heads,
        values=values,
        unit=name,
        selected=st.session_state.head,
        key=key,
        titles=titles,
        on_click=choose_head,
    )


def upload_control(
    label: str, name: str, example: Upload, *, types: list[str], megabytes: int, hint: str = ""
) -> Upload:
    """Draw the button that opens the control of a file, and return the file, or an example while there is none."""
    current: Upload = st.session_state.get(name) or example
    with st.popover(escape_markdown(current.name), icon=":material/upload_file:", key=f"{name}_popover"):
        upload = file_control(st, label, name, types=types, megabytes=megabytes)
        if hint:
            st.caption(hint)
    return upload or example


def describe_role(role: Role | None) -> str:
    """Return what a head with a role does, as the end of a sentence that begins with the name of the head."""
    return "was pruned" if role is None else ROLE_DESCRIPTIONS[role.name]

"""Parts of the page that several sources of roles have in common."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st

from bert_core.analysis.heads import leading_heads
from bert_core.analysis.roles import ROLE_DESCRIPTIONS, THRESHOLDS, Role
from bert_core.tokenizer import SpecialTokens
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import role_bars
from viz_app.pages.roles import ROLE_LABELS
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.heads import choose_head, head_title
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart


def draw_grid(
    selection: Selection,
    values: np.ndarray,
    name: str,
    key: str,
    titles: list[list[str]] | None = None,
    *,
    selected: Head,
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
        selected=selected,
        key=key,
        titles=titles,
        on_click=choose_head,
    )


def draw_scores(figures: Mapping[str, np.ndarray], head: Head, special_tokens: SpecialTokens) -> None:
    """Draw the score of a head in each role. figures: name -> (layer, head)."""
    labels = [special_tokens.substitute_in(label) for label in ROLE_LABELS.values()]
    scores = [float(figures[name][head]) for name in THRESHOLDS]
    alt = f"Scores of L{head[0]} H{head[1]} for each role"
    chart(role_bars(scores, labels, list(THRESHOLDS.values())), key="role_bars", min_share=0.65, alt=alt)


def first_head(values: np.ndarray | None) -> Head | None:
    """Return the head with the largest value, (layer, head), with which a view opens; None without values."""
    return None if values is None else next(iter(leading_heads(values, 1)), None)


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

"""What does each head do?"""

import streamlit as st

from viz_app.pages.roles import ROLES_OVER, file, text, treebank
from viz_app.shell import frame, selection
from viz_app.shell.address import end_run
from viz_app.shell.controls import control
from viz_app.shell.markdown import with_help

LOOKS = {"text": "This text", "file": "A text file", "treebank": "A treebank"}


def draw() -> None:
    """Draw the page."""
    current = selection.current_selection()
    frame.title("What does each head do?", "Where every head looks, which heads are alike, and how much they matter.")
    if not any(current.loaded.config.heads_of(layer) for layer in range(len(current.head_mask))):
        st.info(with_help("All heads of this model were pruned: there is no attention to show."))
        end_run()
    control(
        st.segmented_control,
        "Over",
        "over",
        options=ROLES_OVER,
        format_func=LOOKS.__getitem__,
        required=True,
        label_visibility="collapsed",
    )
    {"text": text, "file": file, "treebank": treebank}[st.session_state.over].draw(current)

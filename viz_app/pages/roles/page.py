"""Draws the page Roles."""

import streamlit as st

from viz_app.pages.roles import TEXTS, file, over, text, treebank
from viz_app.shell.address import end_run
from viz_app.shell.markdown import with_help
from viz_app.shell.view import View

SOURCES = {"text": text, "file": file, "treebank": treebank}


def draw(page: View) -> None:
    """Draw the roles of all heads over the selected source."""
    config = page.selection.loaded.config
    if not any(config.heads_of(layer) for layer in range(config.num_hidden_layers)):
        st.info(with_help(TEXTS["all_pruned"]))
        end_run()
    row = page.controls()
    if over(row) != "text":
        page.hide_text()
    SOURCES[over.value].draw(page, row)

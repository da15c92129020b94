"""Draws the page Sentence scores."""

import streamlit as st

from viz_app.pages.score import TEXTS, bias, compared, pairs, variant
from viz_app.shell.address import end_run
from viz_app.shell.heads import heads_off
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import selected_model
from viz_app.shell.view import View


def draw(page: View) -> None:
    """Draw the scores of two sentences, those of a table of pairs, or the shares of its categories."""
    model = selected_model()
    if model is None:
        end_run()
    head_mask = heads_off(model)
    if not model.has_head("words"):
        name = escape_markdown(shown_name(model.name))
        st.info(with_help(TEXTS["no_mlm_head"].format(model=name)))
        end_run()
    with page.controls():
        compared()
        if compared.value == "bias":
            bias.draw_controls(page)
        else:
            variant()
    misleads = TEXTS["misleads_bias" if compared.value == "bias" else "misleads"]
    page.read(TEXTS[f"readings.{compared.value}"], misleads)
    views = {"pair": pairs.draw_pair, "table": pairs.draw_table, "bias": bias.draw}
    views[compared.value](page, model, head_mask)

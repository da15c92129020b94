"""The two selections that the page Compare compares."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from viz_app.pages.compare import EXAMPLE_TEXT
from viz_app.shell import selection
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import models_on_offer, shown_name
from viz_app.shell.models import loaded_model
from viz_app.shell.notices import show_no_mask
from viz_app.shell.selection import Selection


def compared_selections() -> tuple[Selection, Selection] | None:
    """Return the selections before and after; None if there is only one, and draw the reason.

    Raises Refused for a model that cannot be loaded or a text that cannot be read.
    """
    state, current = st.session_state, selection.current_selection()
    if state.against == "heads":
        if not (current.off or current.loaded.edits):
            layer, head = state.head
            hint = "All heads are on. Switch some off on the page Heads; then this page shows what changes."
            example_button(hint, f"Switch L{layer} H{head} off", set_choice, "off", (state.head,))
            return None
        return replace(current, off=()).with_model(current.plain), current
    if state.against == "masked":
        if current.encoding == current.original:
            show_no_mask(current, "No word is hidden. Click a word above; then this page shows how attention changes.")
            return None
        return replace(current, encoding=current.original, target=None), current
    loaded, text, pair = current.plain, current.original.text, current.original.pair  # knockouts apply to one text only
    if state.against == "text":
        if not state.other.strip():
            example_button(
                "Type another text to compare with this one.",
                f"Take “{EXAMPLE_TEXT}”",
                set_choice,
                "other",
                EXAMPLE_TEXT,
            )
            return None
        text, pair = state.other, None
    elif state.other_model == state.model:
        other_models = [name for name in models_on_offer() if name != state.model]
        if other_models:
            hint, label = "Both models are the same: choose another one.", escape_markdown(shown_name(other_models[0]))
            example_button(hint, f"Take {label}", set_choice, "other_model", other_models[0])
        else:
            st.info(with_help("This is the only model here: load another one under “Another model”."))
        return None
    else:
        loaded = loaded_model(state.other_model)
    original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    return current, replace(current, encoding=original, original=original, target=None).with_model(loaded)

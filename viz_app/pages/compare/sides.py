"""The two selections that the page Compare compares."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from viz_app.pages.compare import compared_with, other_model, other_text
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import models_on_offer, shown_name
from viz_app.shell.models import loaded_model
from viz_app.shell.notices import show_no_mask
from viz_app.shell.selection import Selection

EXAMPLE_TEXT = "She closed the window and sat down."


def compared_selections(current: Selection) -> tuple[Selection, Selection] | None:
    """Return the selections before and after; None if there is only one, and draw the reason.

    Raises Refused for a model that cannot be loaded or a text that cannot be read.
    """
    state = st.session_state
    if compared_with.value == "heads":
        if not (current.off or current.loaded.edits):
            layer, head = state.head
            hint = "All heads are on. Switch some off on the page Heads; then this page shows what changes."
            example_button(hint, f"Switch L{layer} H{head} off", set_choice, "off", (state.head,))
            return None
        return replace(current, off=()).with_model(current.plain), current
    if compared_with.value == "masked":
        if current.encoding == current.original:
            show_no_mask(current, "No word is hidden. Click a word above; then this page shows how attention changes.")
            return None
        return replace(current, encoding=current.original, target=None), current
    loaded, text, pair = current.plain, current.original.text, current.original.pair  # knockouts apply to one text only
    if compared_with.value == "text":
        if not other_text.value.strip():
            hint = "Type another text to compare with this one."
            example_button(hint, f"Take “{EXAMPLE_TEXT}”", other_text.set, EXAMPLE_TEXT)
            return None
        text, pair = other_text.value, None
    elif other_model.value == state.model:
        other_models = [name for name in models_on_offer() if name != state.model]
        if other_models:
            hint, label = "Both models are the same: choose another one.", escape_markdown(shown_name(other_models[0]))
            example_button(hint, f"Take {label}", other_model.set, other_models[0])
        else:
            st.info(with_help("This is the only model here: load another one under “Another model”."))
        return None
    else:
        loaded = loaded_model(other_model.value)
    original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    return current, replace(current, encoding=original, original=original, target=None).with_model(loaded)

"""The two sides that the page Compare puts beside each other."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from viz_app.pages.compare import OTHER
from viz_app.shell import question
from viz_app.shell.controls import missing, put
from viz_app.shell.markdown import as_written, helped
from viz_app.shell.models import loaded_model, models_on_offer, shown_name
from viz_app.shell.notices import say_no_word_hidden
from viz_app.shell.question import Question


def compared() -> tuple[Question, Question] | None:
    """The questions that the page puts side by side, before and after; None where there are no two, and why.

    Raises Refused for a model that cannot be loaded or a text that cannot be read.
    """
    state, drawn = st.session_state, question.current()
    if state.against == "heads":
        if not (drawn.off or drawn.loaded.edits):
            layer, head = state.head
            missing(
                "All heads are on. Switch some off on the page Heads; then this page shows what changes.",
                f"Switch L{layer} H{head} off", put, "off", (state.head,),
            )  # fmt: skip
            return None
        return replace(drawn, off=()).of_model(drawn.plain), drawn
    if state.against == "masked":
        if drawn.encoding == drawn.original:
            say_no_word_hidden(
                drawn, "No word is hidden. Click a word above; then this page shows how attention changes."
            )
            return None
        return replace(drawn, encoding=drawn.original, target=None), drawn
    loaded, text, pair = drawn.plain, drawn.original.text, drawn.original.pair  # what is cut is cut in one text
    if state.against == "text":
        if not state.other.strip():
            missing("Type another text to compare with this one.", f"Take “{OTHER}”", put, "other", OTHER)
            return None
        text, pair = state.other, None
    elif state.other_model == state.model:
        others = [name for name in models_on_offer() if name != state.model]
        if others:
            missing(
                "Both models are the same: choose another one.", f"Take {as_written(shown_name(others[0]))}",
                put, "other_model", others[0],
            )  # fmt: skip
        else:
            st.info(helped("This is the only model here: load another one under “Another model”."))
        return None
    else:
        loaded = loaded_model(state.other_model)
    original = loaded.tokenizer.encode(text, pair, max_length=loaded.config.max_position_embeddings)
    return drawn, replace(drawn, encoding=original, original=original, target=None).of_model(loaded)

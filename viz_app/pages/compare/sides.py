"""The two selections that the page Compare compares."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from bert_core.analysis.causes import mask_same_words
from bert_core.loading import LoadedModel
from viz_app.pages.compare import TEXTS, compared_with, other_model, other_text
from viz_app.pages.compare.swaps import guessed_text
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import models_on_offer, shown_name
from viz_app.shell.models import loaded_model
from viz_app.shell.notices import show_no_mask
from viz_app.shell.selection import Selection
from viz_app.shell.swaps import SWAPS, swap_word

PREFILLED = "_prefilled_other"  # session key: the other text that the page filled in last


def prefill_other_text(current: Selection) -> None:
    """Set the other text to this one with a word swapped, unless the visitor typed one."""
    state = st.session_state
    if compared_with.value != "text" or other_text.value.strip() not in ("", state.get(PREFILLED)):
        return
    text = swap_word(current.original, current.masked_words, SWAPS) or guessed_text(current) or ""
    state[PREFILLED] = text
    other_text.set(text)


def other_models() -> list[str]:
    """Return the names of the models on offer but the selected one."""
    return [name for name in models_on_offer() if name != st.session_state.model]


def compared_selections(current: Selection) -> tuple[Selection, Selection] | None:
    """Return the selections before and after; None if there is only one, and draw the reason.

    Raises Refused for a model that cannot be loaded or a text that cannot be read.
    """
    state = st.session_state
    if compared_with.value == "heads":
        if not (current.off or current.loaded.edits):
            layer, head = state.head
            example_button(TEXTS["no_heads_off"], f"Switch L{layer} H{head} off", set_choice, "off", (state.head,))
            return None
        return replace(current, off=()).with_model(current.plain), current
    if compared_with.value == "masked":
        if current.encoding == current.original:
            show_no_mask(current, TEXTS["no_mask"])
            return None
        return replace(current, encoding=current.original, target=None), current
    if compared_with.value == "text":
        if not other_text.value.strip():
            example = TEXTS["example_text"]
            example_button(TEXTS["no_text"], f"Compare with “{example}”", other_text.set, example)
            return None
        return current, _other_side(current, current.plain, other_text.value)  # knockouts apply to one text only
    if other_model.value == state.model:
        name = escape_markdown(shown_name(state.model))
        st.info(with_help(f"{name} is the only model available here, so there is no other one to compare with."))
        return None
    return current, _other_side(current, loaded_model(other_model.value), current.original.text)


def _other_side(current: Selection, loaded: LoadedModel, text: str) -> Selection:
    """Return the selection of another text or model, with the same second sentence and the same words masked."""
    tokenizer = loaded.tokenizer
    original = tokenizer.encode(text, current.original.pair)
    encoding = mask_same_words(tokenizer, original, current.original, current.masked_words)
    return replace(current, encoding=encoding, original=original, target=None).with_model(loaded)

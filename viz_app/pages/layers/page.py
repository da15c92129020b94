"""When does the model know its answer?"""

import streamlit as st

from viz_app.pages.layers import ELSEWHERE, THROUGH, elsewhere, kinds, sentences, states, words
from viz_app.shell import frame, selection
from viz_app.shell.controls import control
from viz_app.shell.view import View, page_place, write_reading

PARTS = {
    "words": words.WORDS,
    "answer": words.ANSWER,
    "states": states.PART,
    "sentences": sentences.PART,
    "kinds": kinds.PART,
    ELSEWHERE: elsewhere.PART,
}


def draw(page: View) -> None:
    """Draw the page."""
    current = selection.current_selection()
    frame.title(
        "When does the model know its answer?",
        "What the model would say after each layer, and how the words' vectors change on the way.",
    )
    control(
        page_place("controls").segmented_control, "Look at", "through", options=(*THROUGH, ELSEWHERE), required=True,
        label_visibility="collapsed", format_func=lambda name: PARTS[name].title,
    )  # fmt: skip
    part = PARTS[st.session_state.through]
    part.draw(current)
    write_reading(f"**How to read this:** {part.reading} **How it can mislead:** {part.misleading}")

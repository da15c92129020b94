"""When does the model know its answer?"""

import streamlit as st

from viz_app.door import is_own
from viz_app.pages.layers import ELSEWHERE, THROUGH, elsewhere, kinds, sentences, states, words
from viz_app.shell import corpus, frame, question, screen
from viz_app.shell.controls import control

PARTS = {
    "words": words.WORDS,
    "answer": words.ANSWER,
    "states": states.PART,
    "sentences": sentences.PART,
    "kinds": kinds.PART,
    ELSEWHERE: elsewhere.PART,
}


def draw() -> None:
    """Draw the page."""
    current = question.current()
    frame.title(
        "When does the model know its answer?",
        "What the model would say after each layer, and how the words' vectors change on the way.",
    )
    there = corpus.index_of(current) is not None
    ways = (*THROUGH, ELSEWHERE) if there else THROUGH
    if st.session_state.through not in ways:
        st.session_state.through = ways[0]
    control(
        screen.controls().segmented_control, "Look at", "through", options=ways, required=True,
        label_visibility="collapsed", format_func=lambda name: PARTS[name].title,
    )  # fmt: skip
    part = PARTS[st.session_state.through]
    part.draw(current)
    if not there and is_own() and st.session_state.through == "states":
        screen.note(f"Where else in a corpus is a token in such a state? Make an index: {elsewhere.HOW}.")
    screen.read(f"**How to read this:** {part.reading} **How it can mislead:** {part.misleading}")

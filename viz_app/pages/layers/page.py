"""Draws the page Layers."""

from viz_app.pages.layers import answer, kinds, layers_view, matches, states, word_sentences, words
from viz_app.shell.view import View

# Each has a function `draw` and a text `READING`.
PARTS = {
    "words": words,
    "answer": answer,
    "states": states,
    "sentences": word_sentences,
    "kinds": kinds,
    "elsewhere": matches,
}


def draw(page: View) -> None:
    """Draw the selected part of the page."""
    with page.controls():
        part = PARTS[layers_view()]
    part.draw(page)
    page.read(part.READING)

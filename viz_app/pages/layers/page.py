"""Draws the page Layers & logit lens."""

from viz_app.pages.layers import TEXTS, answer, kinds, layers_view, states, word_sentences, words
from viz_app.shell.view import View

# Each has a function `draw`, which gets the row of controls too.
PARTS = {"words": words, "answer": answer, "states": states, "sentences": word_sentences, "kinds": kinds}


def draw(page: View) -> None:
    """Draw the selected part of the page."""
    row = page.controls()
    with row:
        view = layers_view()
    page.read(TEXTS[f"readings.{view}.reading"], TEXTS[f"readings.{view}.misleads"])
    PARTS[view].draw(page, row)

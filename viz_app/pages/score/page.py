"""Draws the page Score."""

import streamlit as st

from viz_app.pages.score import compared, pairs, sentence_a, sentence_b, similarity, variant, words
from viz_app.shell.address import end_run
from viz_app.shell.heads import heads_off
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import selected_model
from viz_app.shell.view import View

SCORE_TITLE = (
    "Which sentence does the model find likelier?",
    "Each word is hidden in turn; the sentence whose words the model guesses better is likelier to it.",
)
SIMILARITY_TITLE = (
    "How alike does the model find two sentences?",
    "Each is read by itself and becomes one vector; the cosine of the two says how alike they are.",
)
READINGS = {
    "pair": "each bar shows how surprising a token is when it is hidden and all others are seen: minus its "
    "log-probability. Shaded columns are where the sentences differ. Minus the sum of the bars is the score of the "
    "sentence (pseudo-log-likelihood); perplexity is exp of the mean bar.",
    "table": "a positive difference means that the first sentence is likelier: the log-probabilities of its pieces, "
    "each hidden in turn, have the larger sum (pseudo-log-likelihood, nats).",
}


def draw(page: View) -> None:
    """Draw the scores or the similarity of two sentences, or the scores of a table of pairs."""
    model, is_similarity = selected_model(), compared.value == "alike"
    if model is None:
        end_run()
    head_mask = heads_off(model)
    with page.controls():
        compared()
        if is_similarity:
            words()
        elif model.has_head("words"):
            variant()
    if not is_similarity and not model.has_head("words"):
        name = escape_markdown(shown_name(model.name))
        st.info(with_help(f"{name} has no trained masked-word output, so it finds no sentence likelier than another."))
        end_run()
    if compared.value != "table":
        left, right = page.controls(horizontal=False).columns(2, gap="medium")
        sentence_a(left)
        sentence_b(right)
        if not (sentence_a.value.strip() and sentence_b.value.strip()):
            pairs.offer_example()
            end_run()
    if is_similarity:
        similarity.draw(page, model, head_mask)
        return
    page.read(
        f"**How to read this:** {READINGS[compared.value]} **How it can mislead:** shorter sentences score higher "
        "because fewer pieces count; a rare word costs much even in a true sentence; likely does not mean right."
    )
    {"pair": pairs.draw_pair, "table": pairs.draw_table}[compared.value](page, model, head_mask)

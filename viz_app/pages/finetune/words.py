"""What the word head reads at every layer, at the start of a run and at one of its kept steps."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.records import LensChange
from bert_core.tokenizer import Encoding, Tokenizer
from viz_app.figures.lens import ROWS_THAT_FIT, depth_names, layer_lines, lens_grid, short_names
from viz_app.pages.finetune import words_of
from viz_app.pages.finetune.changes import StepComparison, equal_word_shares, read_layers
from viz_app.shell.view import chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, wait_for

MIN_COLOUR_RANGE = 0.05  # nats
READING = (
    "**How to read this:** in each cell the word that the word head reads first; the colour says how far its reading "
    "at this step is from that at the start (Jensen-Shannon divergence, 0.69 nats at most), and hover both words. The "
    "line says how often both read the same word first. **How it can mislead:** this run teaches another head, and "
    "nothing holds the states to what the word head knows: a word that changes says that the state moved, not that it "
    "means the new word, nor that the old one is forgotten. The head itself stays, but its table of words is that of "
    "the embeddings, which learn too."
)


def draw_words(changes: StepComparison, encoding: Encoding, *, quick: float) -> None:
    """Draw the words at every depth of the shared text, and how many are equal in the first texts of the run.

    quick: duration in seconds up to which the latter needs no button.
    """
    write_heading("What the layers read as words")
    number, tokenizer = changes.number, changes.before.tokenizer
    if not changes.before.has_head("words"):
        write_note("This model has no trained word head: its layers cannot be read as words.")
        return
    change = wait_for(read_layers(changes, encoding))
    write_line(_summary(change, number))
    side = words_of(format_func={"step": f"at step {number:,}", "start": "at the start"}.__getitem__)
    _draw_grid(change, tokenizer, number, change.after if side == "step" else change.before)
    lines, reading = st.columns([1, 1], gap="large")
    with lines:
        shares = confirm(f"Read the first {changes.texts_name}", equal_word_shares(changes), quick=quick)
        if shares is not None:
            _draw_shares(changes, shares)
    with reading:
        write_note(READING)


def _draw_grid(change: LensChange, tokenizer: Tokenizer, number: int, words: np.ndarray) -> None:
    """Draw words, (depth, seq), in cells that are coloured by the divergence of the two readings."""
    encoding, depths = change.encoding, len(change.before)
    positions = range(len(encoding))[:ROWS_THAT_FIT]
    if len(positions) < len(encoding):
        write_note(f"The first {len(positions)} of {len(encoding)} tokens.")
    figure = lens_grid(
        [[tokenizer.token_of(int(word)) for word in words[:, position]] for position in positions],
        change.divergence[:, list(positions)].T,
        [encoding.labels[position] for position in positions],
        [[_hover_lines(change, tokenizer, depth, place, number) for depth in range(depths)] for place in positions],
        positions,
        highest=max(float(change.divergence.max()), MIN_COLOUR_RANGE),
        unit="distance to the start's reading (JS, nats)",
    )
    alt = (
        f"The word read first at each of {len(positions)} tokens and {depths} depths at step {number}, coloured by how "
        "far it is from the start's"
    )
    chart(figure, key="tuned_lens", alt=alt, grows=False)


def _draw_shares(changes: StepComparison, shares: np.ndarray) -> None:
    """Draw the share of tokens with the same first word, (depth,)."""
    lines, names = {f"first {changes.texts_name}": 100 * shares}, short_names(changes.depths)
    alt = f"Tokens at which the same word is read first, {shares[-1]:.0%} at the last depth"
    chart(layer_lines(lines, names, title="same word first (%)"), key="tuned_same_words", alt=alt, grows=False)


def _hover_lines(change: LensChange, tokenizer: Tokenizer, depth: int, place: int, number: int) -> list[str]:
    before, after = (tokenizer.token_of(int(side[depth, place])) for side in (change.before, change.after))
    return [
        f"{change.encoding.labels[place]} ({place}), {depth_names(len(change.before))[depth]}",
        f"at the start: {before} {change.shares_before[depth, place]:.3g}",
        f"at step {number:,}: {after} {change.shares_after[depth, place]:.3g}",
        f"JS {change.divergence[depth, place]:.4g} nats",
    ]


def _summary(change: LensChange, number: int) -> str:
    """Return a sentence with the number of words that differ at the last depth, and the depth where most do."""
    names, changed_counts = depth_names(len(change.before)), (~change.equal).sum(1)
    tokens, last, max_depth = len(change.encoding), int(changed_counts[-1]), int(changed_counts.argmax())
    if not changed_counts.any():
        return f"At step {number:,} the same word is read first at every token and depth as at the start."
    sentence = (
        f"At step {number:,} **{last} of {tokens}** tokens are read as another word than at the start {names[-1]}"
    )
    if max_depth == len(names) - 1:
        return f"{sentence}, more than at any depth before."
    return f"{sentence}; most, {int(changed_counts[max_depth])}, {names[max_depth]}."

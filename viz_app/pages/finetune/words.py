"""What the word head reads out of the layers, at the start of a run and at one of its kept steps."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.records import LensChange
from bert_core.tokenizer import Encoding, Tokenizer
from viz_app.figures.lens import ROWS_THAT_FIT, depth_names, layer_lines, lens_grid, lens_width, short_names
from viz_app.pages.finetune.changes import StepComparison
from viz_app.shell.controls import control
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_heading, write_line, write_note
from viz_app.shell.work import is_confirmed, poll, wait_for

SIDES = ("step", "start")  # whose words stand in the cells
MIN_COLOUR_RANGE = 0.05  # nats that the colours go over
READING = (
    "**How to read this:** in each cell the word that the word head reads first; the colour says how far its reading "
    "at this step is from that at the start (Jensen-Shannon divergence, 0.69 nats at most), and hover both words. The "
    "line says how often both read the same word first. **How it can mislead:** this run teaches another head, and "
    "nothing holds the states to what the word head knows: a word that changes says that the state moved, not that it "
    "means the new word, nor that the old one is forgotten. The head itself stays, but its table of words is that of "
    "the embeddings, which learn too."
)


def draw_words(current: Selection, changes: StepComparison, encoding: Encoding, *, quick: float) -> None:
    """Words at every depth of the text above, then and now, and how many stay in the first texts of the run.

    quick: seconds up to which those are read unasked.
    """
    write_heading("What the layers read as words")
    start, number = changes.start.load_model(), changes.step.number
    if not start.has_head("words"):
        write_note("This model has no trained word head: its layers cannot be read as words.")
        return
    change = wait_for(changes.lens_change(encoding))
    write_line(_summary(change, number))
    side = control(
        st.segmented_control, "Words", "tuned_words_of", options=SIDES, first=SIDES[0], required=True,
        format_func={"step": f"at step {number:,}", "start": "at the start"}.__getitem__,
    )  # fmt: skip
    _draw_grid(current, change, start.tokenizer, number, change.after if side == "step" else change.before)
    lines, reading = st.columns([1, 1], gap="large")
    with lines:
        work = changes.equal_word_shares()
        if is_confirmed("tuned_words", work.key, f"Read the first {changes.texts_name}", work.seconds, quick=quick):
            _draw_shares(current, changes, len(change.before))
    with reading:
        write_note(READING)


def _draw_grid(current: Selection, change: LensChange, tokenizer: Tokenizer, number: int, words: np.ndarray) -> None:
    """Words, (depth, seq), in cells that are coloured by how far the two readings are from each other."""
    encoding, names = change.encoding, depth_names(len(change.before))
    positions = range(len(encoding))[:ROWS_THAT_FIT]
    if len(positions) < len(encoding):
        write_note(f"The first {len(positions)} of {len(encoding)} tokens.")
    chart(
        lens_grid(
            [[tokenizer.token_of(int(word)) for word in words[:, position]] for position in positions],
            change.divergence[:, list(positions)].T,
            [encoding.labels[position] for position in positions],
            [
                [_hover_lines(change, tokenizer, depth, position, number) for depth in range(len(names))]
                for position in positions
            ],
            positions,
            highest=max(float(change.divergence.max()), MIN_COLOUR_RANGE),
            unit="distance to the start's reading (JS, nats)",
        ),
        key="tuned_lens", grows=False, min_width=lens_width(len(names)),
        config={"displayModeBar": False},
        alt=f"The word read first at each of {len(positions)} tokens and {len(names)} depths at step {number}, "
        "coloured by how far it is from the start's",
    )  # fmt: skip


def _draw_shares(current: Selection, changes: StepComparison, depths: int) -> None:
    shares = poll(changes.equal_word_shares(), slot="tuned_words", request_slot="tuned_words").value
    if shares is None:
        return
    chart(
        layer_lines(
            {f"first {changes.texts_name}": 100 * shares}, short_names(depths), title="same word first (%)",
        ),
        key="tuned_same_words", grows=False, config={"displayModeBar": False},
        alt=f"Tokens at which the same word is read first, {shares[-1]:.0%} at the last depth",
    )  # fmt: skip


def _hover_lines(change: LensChange, tokenizer: Tokenizer, depth: int, place: int, number: int) -> list[str]:
    before, after = (tokenizer.token_of(int(side[depth, place])) for side in (change.before, change.after))
    return [
        f"{change.encoding.labels[place]} ({place}), {depth_names(len(change.before))[depth]}",
        f"at the start: {before} {change.shares_before[depth, place]:.3g}",
        f"at step {number:,}: {after} {change.shares_after[depth, place]:.3g}",
        f"JS {change.divergence[depth, place]:.4g} nats",
    ]


def _summary(change: LensChange, number: int) -> str:
    """How many words are others at the last depth, and where most are."""
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

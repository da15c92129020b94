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
    found = wait_for(changes.lens_change(encoding))
    write_line(_summary(found, number))
    side = control(
        st.segmented_control, "Words", "tuned_words_of", options=SIDES, first=SIDES[0], required=True,
        format_func={"step": f"at step {number:,}", "start": "at the start"}.__getitem__,
    )  # fmt: skip
    _draw_grid(current, found, start.tokenizer, number, found.after if side == "step" else found.before)
    lines, reading = st.columns([1, 1], gap="large")
    with lines:
        work = changes.equal_word_shares()
        if is_confirmed("tuned_words", work.key, f"Read the first {changes.texts_name}", work.seconds, quick=quick):
            _draw_shares(current, changes, len(found.before))
    with reading:
        write_note(READING)


def _draw_grid(current: Selection, found: LensChange, tokenizer: Tokenizer, number: int, words: np.ndarray) -> None:
    """Words, (depth, seq), in cells that are coloured by how far the two readings are from each other."""
    encoding, names = found.encoding, depth_names(len(found.before))
    places = range(len(encoding))[:ROWS_THAT_FIT]
    if len(places) < len(encoding):
        write_note(f"The first {len(places)} of {len(encoding)} tokens.")
    chart(
        lens_grid(
            [[tokenizer.token_of(int(words[depth, place])) for depth in range(len(names))] for place in places],
            found.divergence[:, list(places)].T,
            [encoding.labels[place] for place in places],
            [[_hover_lines(found, tokenizer, depth, place, number) for depth in range(len(names))] for place in places],
            places,
            highest=max(float(found.divergence.max()), MIN_COLOUR_RANGE),
            unit="distance to the start's reading (JS, nats)",
        ),
        key="tuned_lens", grows=False, min_width=lens_width(len(names)),
        config={"displayModeBar": False},
        alt=f"The word read first at each of {len(places)} tokens and {len(names)} depths at step {number}, coloured "
        "by how far it is from the start's",
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


def _hover_lines(found: LensChange, tokenizer: Tokenizer, depth: int, place: int, number: int) -> list[str]:
    before, after = (tokenizer.token_of(int(side[depth, place])) for side in (found.before, found.after))
    return [
        f"{found.encoding.labels[place]} ({place}), {depth_names(len(found.before))[depth]}",
        f"at the start: {before} {found.shares_before[depth, place]:.3g}",
        f"at step {number:,}: {after} {found.shares_after[depth, place]:.3g}",
        f"JS {found.divergence[depth, place]:.4g} nats",
    ]


def _summary(found: LensChange, number: int) -> str:
    """How many words are others at the last depth, and where most are."""
    names, others = depth_names(len(found.before)), (~found.equal).sum(1)
    tokens, last, most = len(found.encoding), int(others[-1]), int(others.argmax())
    if not others.any():
        return f"At step {number:,} the same word is read first at every token and depth as at the start."
    said = f"At step {number:,} **{last} of {tokens}** tokens are read as another word than at the start {names[-1]}"
    if most == len(names) - 1:
        return f"{said}, more than at any depth before."
    return f"{said}; most, {int(others[most])}, {names[most]}."

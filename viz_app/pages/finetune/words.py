"""The logit lens at the start of a run and at one of its kept steps."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.records import LensChange
from bert_core.tokenizer import Encoding, Tokenizer
from viz_app.figures.lens import ROWS_THAT_FIT, depth_names, depth_phrase, layer_lines, lens_grid, short_names
from viz_app.pages.finetune import TEXTS, words_of
from viz_app.pages.finetune.changes import StepComparison, equal_word_shares, read_layers
from viz_app.shell.view import chart, how_to_read, write_heading, write_line, write_note
from viz_app.shell.work import confirm, wait_for

MIN_COLOUR_RANGE = 0.05  # nats


def draw_words(changes: StepComparison, encoding: Encoding, *, quick: float) -> None:
    """Draw the words at every depth of the shared text, and how many are equal in the first texts of the run.

    quick: duration in seconds up to which the latter needs no button.
    """
    write_heading("Logit lens before and after")
    number, tokenizer = changes.number, changes.before.tokenizer
    if not changes.before.has_head("words"):
        write_note(TEXTS["no_words"])
        return
    change = wait_for(read_layers(changes, encoding))
    write_line(_summary(change, number))
    side = words_of(format_func={"step": f"at step {number:,}", "start": "at the start"}.__getitem__)
    _draw_grid(change, tokenizer, number, change.after if side == "step" else change.before)
    lines, reading = st.columns([1, 1], gap="large")
    with lines:
        shares = confirm(
            f"Compare the top words of the first {changes.texts_name}", equal_word_shares(changes), quick=quick
        )
        if shares is not None:
            _draw_shares(changes, shares)
    with reading:
        write_note(how_to_read(TEXTS["words_reading"], TEXTS["words_misleads"]))


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
        unit="divergence from the start (JS, nats)",
    )
    alt = (
        f"Top word at each of {len(positions)} tokens and {depths} depths at step {number}, coloured by the divergence "
        "from the start"
    )
    chart(figure, key="tuned_lens", alt=alt, grows=False)


def _draw_shares(changes: StepComparison, shares: np.ndarray) -> None:
    """Draw the share of tokens with the same first word, (depth,)."""
    lines, names = {f"first {changes.texts_name}": 100 * shares}, short_names(changes.depths)
    alt = f"Tokens with the same top word, {shares[-1]:.0%} at the last depth"
    chart(layer_lines(lines, names, title="same top word (%)"), key="tuned_same_words", alt=alt, grows=False)


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
    changed_counts = (~change.equal).sum(1)
    tokens, last, max_depth = len(change.encoding), int(changed_counts[-1]), int(changed_counts.argmax())
    if not changed_counts.any():
        return f"At step {number:,} the top word is the same as at the start for every token and depth."
    last_depth = depth_phrase(len(changed_counts) - 1)
    sentence = f"At step {number:,} the top word {last_depth} differs from the start for **{last} of {tokens}** tokens"
    if max_depth == len(changed_counts) - 1:
        return f"{sentence}, more than at any other depth."
    return f"{sentence}; most differ {depth_phrase(max_depth)} ({int(changed_counts[max_depth])})."

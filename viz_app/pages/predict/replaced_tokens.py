"""The probability of each token that it was replaced, as ELECTRA's discriminator predicts it."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.records import ModelRun, Target
from bert_core.task_heads import rank_typed_tokens
from viz_app.components.token_strip import Chip, TokenClick
from viz_app.components.token_strip.view import token_strip
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import both_shades, two_digits
from viz_app.pages.predict import TEXTS
from viz_app.shell import downloads, frame
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown, quoted, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.target import set_target
from viz_app.shell.view import View, chart, lazy_expander

MAX_BARS = 6


def draw_replaced(page: View, run: ModelRun) -> None:
    """Draw the text with the probability of each token that it was replaced."""
    selection, probabilities = page.selection, run.replaced
    assert probabilities is not None  # the page checks it
    encoding = selection.encoding
    positions = rank_typed_tokens(probabilities, encoding)[:MAX_BARS]
    with page.figure():
        token_strip(
            _chips(selection, probabilities),
            key="replaced_strip",
            label=TEXTS["replaced.strip"],
            on_click=partial(_explain, selection, probabilities),
        )
        if st.session_state.masked:
            sentence = f"{TEXTS['replaced.unfit']} {TEXTS['replaced.show_words']}"
            example_button(sentence, "Show the words", set_choice, "masked", ())
        elif encoding.mask_positions:
            st.info(with_help(f"{TEXTS['replaced.unfit']} {TEXTS['replaced.type_word']}"))
        bars, answer = st.columns([3, 2], gap="large", vertical_alignment="center")
    with bars:
        labels = [f"{encoding.labels[position]} ({position})" for position in positions]
        figure = prediction_bars(labels, probabilities[list(positions)].tolist(), largest=1.0)
        alt = "Most probably replaced: " + ", ".join(encoding.labels[position] for position in positions)
        chart(figure, key="replaced_bars", alt=alt)
    with answer:
        _write_answer(selection, probabilities, positions[0])
    page.read(TEXTS["replaced.reading"], TEXTS["replaced.misleads"])
    with lazy_expander("replaced", "All numbers") as expander:
        if expander.open:
            rows = np.flatnonzero(~np.array(encoding.special)).tolist()
            tokens = [encoding.labels[position] for position in rows]
            columns = {"position": rows, "token": tokens, "probability": probabilities[rows].tolist()}
            config = {"probability": st.column_config.NumberColumn(format="%.4f")}
            st.dataframe(columns, hide_index=True, width="stretch", column_config=config)
    downloads.replaced(encoding, probabilities)


def _write_answer(selection: Selection, probabilities: np.ndarray, first: int) -> None:
    """Write the answer as a heading, with a link to its explanation. first: position of the most likely token."""
    labels, target = selection.encoding.labels, selection.target
    token, probability = escape_markdown(labels[first]), two_digits(float(probabilities[first]))
    is_typed = ~np.array(selection.encoding.special)
    count = int((probabilities[is_typed] >= 0.5).sum())
    if count > 1:
        st.markdown(f"#### {count} of {is_typed.sum()} tokens look replaced, “{token}” most: {probability}")
    elif count:
        st.markdown(f"#### “{token}” looks replaced: {probability}")
    else:
        st.markdown(f"#### No token looks replaced; the highest probability is that of “{token}”: {probability}")
    if target is not None and target.kind == "replaced":
        position = target.rows[0]
        label = f"Attribution of {two_digits(float(probabilities[position]))} for {quoted(labels[position])}"
        st.page_link(frame.streamlit_page("why"), label=label, icon=":material/help_center:")


def _explain(selection: Selection, probabilities: np.ndarray, click: TokenClick) -> None:
    """Make the most likely piece of the clicked word the target."""
    pieces = selection.encoding.pieces_of(click.word)
    set_target(Target("replaced", max(pieces, key=lambda position: probabilities[position])), selection)


def _chips(selection: Selection, probabilities: np.ndarray) -> list[Chip]:
    """Return the text as chips, each but the special tokens with its probability as number and colour."""
    encoding, target = selection.encoding, selection.target
    explained = target.rows[0] if target is not None and target.kind == "replaced" else None
    chips = []
    for position, label in enumerate(encoding.labels):
        special, probability = encoding.special[position], float(probabilities[position])
        chips.append(
            Chip(
                text=label,
                title=label if special else f"{label}: replaced with probability {probability:.4g}",
                word=encoding.words[position],
                side=encoding.sides[position],
                special=special,
                target=position == explained,
                number="" if special else two_digits(probability),
                shades=None if special else both_shades(probability, signed=False),
            )
        )
    return chips

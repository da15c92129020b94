"""Which token was replaced: what an ELECTRA's discriminator says of each token of the text."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.records import ModelRun, Target
from bert_core.task_heads import rank_typed_tokens
from viz_app.components.token_strip import Chip, TokenClick, token_strip
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import both_shades, two_digits
from viz_app.shell import downloads, frame
from viz_app.shell.controls import example_button, set_choice
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.target import set_target
from viz_app.shell.view import chart, page_place, write_reading

SHOWN_TOKENS = 6
NEVER_READ = "This model has never read a [MASK] in its training, so it judges such a text badly."


def draw_replaced(current: Selection, run: ModelRun) -> None:
    """The text with the probability of each token that it was replaced."""
    encoding, shares = current.encoding, run.replaced
    assert shares is not None  # the page checks it
    place = page_place("figure").container()
    likeliest = rank_typed_tokens(shares, encoding)
    with place:
        token_strip(
            _chips(current, shares), key="replaced_strip",
            label="Tokens with the probability that each was replaced; click a word to explain it",
            on_click=partial(_explain, current, shares),
        )  # fmt: skip
        if st.session_state.masked:
            example_button(f"{NEVER_READ} Show the hidden words.", "Show the words", set_choice, "masked", ())
        elif encoding.mask_positions:
            st.info(with_help(f"{NEVER_READ} Type a word in its place."))
        bars, said = st.columns([3, 2], gap="large", vertical_alignment="center")
    with bars:
        shown = likeliest[:SHOWN_TOKENS]
        chart(
            prediction_bars(
                [f"{encoding.labels[at]} ({at})" for at in shown], shares[list(shown)].tolist(), largest=1.0,
            ),
            key="replaced_bars", config={"displayModeBar": False},
            alt="Likeliest to be replaced: " + ", ".join(encoding.labels[at] for at in shown),
        )  # fmt: skip
    with said:
        _said(current, shares, likeliest[0])
    write_reading(
        "**How to read this:** the number under each token is the probability that it was put in the place of another "
        "one; each token is judged alone, and the stronger its colour, the likelier. Click a word to explain it. "
        "**How it can mislead:** the model was taught to find the words of one small generator, so it knows what does "
        "not fit its training texts, not what is false or misspelt."
    )
    with st.expander("All numbers", key="open_replaced", on_change="rerun") as opened:
        if opened.open:
            rows = [at for at in range(len(encoding)) if not encoding.special[at]]
            st.dataframe(
                {
                    "position": rows,
                    "token": [encoding.labels[at] for at in rows],
                    "probability": shares[rows].tolist(),
                },
                hide_index=True, width="stretch",
                column_config={"probability": st.column_config.NumberColumn(format="%.4f")},
            )  # fmt: skip
    downloads.replaced(encoding, shares)


def _said(current: Selection, shares: np.ndarray, first: int) -> None:
    """The answer in a sentence, and the way to its explanation. first: the position of the likeliest token."""
    token, share = escape_markdown(current.encoding.labels[first]), two_digits(float(shares[first]))
    typed = ~np.array(current.encoding.special)
    many = int((shares[typed] >= 0.5).sum())
    if many > 1:
        st.markdown(f"#### {many} of {typed.sum()} tokens look replaced, “{token}” most: {share}")
    elif many:
        st.markdown(f"#### “{token}” looks replaced: {share}")
    else:
        st.markdown(f"#### No token looks replaced; “{token}” rather than others: {share}")
    target = current.target
    if target is not None and target.kind == "replaced":
        at = target.rows[0]
        st.page_link(
            frame.streamlit_page("why"),
            label=f"Why {two_digits(float(shares[at]))} for “{current.encoding.labels[at]}”?",
            icon=":material/help_center:",
        )  # fmt: skip


def _explain(current: Selection, shares: np.ndarray, click: TokenClick) -> None:
    """Choose the likeliest piece of the word that was clicked as what is explained."""
    pieces = current.encoding.pieces_of(click.word)
    set_target(Target("replaced", max(pieces, key=lambda position: shares[position])), current)


def _chips(current: Selection, shares: np.ndarray) -> list[Chip]:
    """The text as chips, each shaded by its number; what was added by the model has none."""
    encoding, target = current.encoding, current.target
    asked = target.rows[0] if target is not None and target.kind == "replaced" else None
    return [
        Chip(
            text=label,
            title=label if encoding.special[at] else f"{label}: replaced with probability {shares[at]:.4g}",
            word=encoding.words[at],
            side=encoding.sides[at],
            special=encoding.special[at],
            target=at == asked,
            number="" if encoding.special[at] else two_digits(float(shares[at])),
            shades=None if encoding.special[at] else both_shades(float(shares[at]), signed=False),
        )
        for at, label in enumerate(encoding.labels)
    ]  # fmt: skip

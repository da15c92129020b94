"""The profile of a token on the page Profiles."""

from __future__ import annotations

from functools import partial

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import Profiles, TokenProfile
from viz_app.export.profiles import TYPICALITY_ENDS, depth_name, likeness_bars, token_in_words
from viz_app.pages.profiles.parts import (
    choose_from,
    choose_question,
    choose_tenth,
    draw_alike,
    draw_bars,
    draw_seen,
    draw_table,
    draw_words,
)
from viz_app.shell import frame
from viz_app.shell.controls import set_choice
from viz_app.shell.examples import Example
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import open_example_text
from viz_app.shell.view import write_heading, write_line, write_note


def choose(found: Profiles, _: object) -> TokenProfile:
    """The list of the tokens that have a profile, and that of the chosen one. Raises Refused where there are none."""
    if not found.tokens:
        raise Refused(
            "these profiles have none of tokens: `headlight profile INDEX --frequent 300` makes them, of those that "
            "stand there ten times or more"
        )
    piece = choose_from("Token", "piece", {one.piece: f"{one.piece} ({one.times:,} times)" for one in found.tokens})
    one = found.find_token(piece)
    known = {other.piece for other in found.tokens}
    draw_alike(
        one.piece, "Tokens like it",
        f"By the mean of their states {depth_name(one.depth)}, that of all tokens taken off.", ("token", "cosine"),
        [(other, cosine, other if other in known else None) for other, cosine in one.alike],
        partial(set_choice, "piece"),
    )  # fmt: skip
    return one


def draw(_: Profiles, one: TokenProfile) -> None:
    """What stands beside the list."""
    write_heading(f"“{escape_markdown(one.piece)}”")
    write_line(token_in_words(one))
    asked = choose_question(every := {"likeness": likeness_bars(one), **one.bars})
    if asked == "likeness":
        draw_bars(asked, every[asked], one.piece, of="this token", title="mean cosine of two states", form=".2f")
    else:
        draw_bars(asked, every[asked], one.piece, of="this token", title="share of its places")


def draw_below(one: TokenProfile) -> None:
    """Words, heads and sentences."""
    left, middle, right = st.columns(3, gap="large")
    with left:
        draw_words(one.before, "Words before it", "before")
    with middle:
        draw_words(one.after, "Words after it", "after")
    with right:
        write_heading("Heads that look at it")
        draw_table(
            [{"head": f"L{layer} H{head}", "times": times, "by chance": expected}
             for layer, head, times, expected in one.watched],
            "watched",
        )  # fmt: skip
    write_heading("In sentences, from the least usual to the most usual")
    tenth = choose_tenth(*TYPICALITY_ENDS)
    low, high = one.deciles[tenth], one.deciles[tenth + 1]
    write_note(
        f"The states of ‹this› token {depth_name(one.depth)} have a cosine of {low:.2f} to {high:.2f} with the mean of "
        "the others."
    )
    draw_seen(one.tenths[tenth], "cosine")


def draw_way(one: TokenProfile, loaded: LoadedModel) -> None:
    """The way on, to the first of the sentences that are shown, as the text, and to what is in such a state."""
    state = st.session_state
    shown = one.tenths[state.tenth - 1]
    if shown and st.button("Where else is a token like in the first of these?", icon=":material/travel_explore:"):
        seen = shown[0]
        open_example_text(Example(seen.text))
        offsets = loaded.tokenizer.encode(seen.text).offsets
        state.layers_view, state.alike = "elsewhere", "state"
        state.query_position = offsets.index(seen.at) if seen.at in offsets else None  # of a text that is cut
        frame.go_to("layers")

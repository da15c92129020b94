"""The profile of a head on the page Profiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import TENTHS, HeadExample, HeadProfile, Profiles
from viz_app.components.head_grid.view import head_grid
from viz_app.export.profiles import figures_in_words, in_words, mark_example, mark_guess
from viz_app.pages.profiles import FIRST_HEAD
from viz_app.pages.profiles.parts import choose_question, choose_tenth, draw_alike, draw_bars, draw_words
from viz_app.shell import frame
from viz_app.shell.address import HEAD_CHOSEN
from viz_app.shell.controls import control, set_choice
from viz_app.shell.heads import choose_head, existing_heads, set_head
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.profiles import examples_to_guess
from viz_app.shell.view import write_heading, write_line, write_note


def choose(found: Profiles, loaded: LoadedModel) -> HeadProfile:
    """The grid of all heads, and the profile of the selected one. Raises Refused for one that has none."""
    state = st.session_state
    existing_heads(loaded)
    if not state.get(HEAD_CHOSEN) and state.head == (0, 0) and loaded.name == "headlight-mini":
        state.head = FIRST_HEAD
    _grid(found, loaded)
    try:
        one = found.find_head(*state.head)
    except Refused as error:
        raise Refused(f"{error}: choose another one") from error
    if not state.hidden:
        draw_alike(
            f"L{one.layer} H{one.head}", "Heads alike",
            "By how often they look at the same token where this one is most active.",
            ("head", "same"), [(f"L{layer} H{head}", share, (layer, head)) for layer, head, share in one.alike],
            set_head, "percent",
        )  # fmt: skip
    return one


def draw(found: Profiles, one: HeadProfile) -> None:
    """What stands beside the grid."""
    write_heading(f"L{one.layer} H{one.head}")
    if st.session_state.hidden:
        _guess(one)
    else:
        _bars(found, one)


def draw_below(one: HeadProfile) -> None:
    """Words and sentences."""
    if st.session_state.hidden:
        return
    left, right = st.columns(2, gap="large")
    with left:
        draw_words(one.words, "Words it looks at", "words")
    with right:
        draw_words(one.pairs, "Words it joins", "pairs")
    _tenths(one)


def _grid(found: Profiles, loaded: LoadedModel) -> None:
    """All heads, by how seldom they rest on [CLS] or [SEP]; a click chooses one."""
    layers, heads = loaded.config.num_hidden_layers, loaded.config.num_attention_heads
    values = np.full((layers, heads), np.nan)
    for one in found.heads:
        if one.layer < layers and one.head < heads:
            values[one.layer, one.head] = 1 - one.sink_share
    hidden = bool(st.session_state.hidden)
    head_grid(
        layers=layers, heads=heads, values=None if hidden else values, selected=st.session_state.head,
        unit="share of tokens from which it looks at a typed token", key="profile_grid",
        titles=[
            [
                f"L{layer} H{head}{'' if hidden or np.isnan(value) else f': {value:.0%}'}"
                for head, value in enumerate(row.tolist())
            ]
            for layer, row in enumerate(values)
        ],
        on_click=choose_head,
    )  # fmt: skip
    rests = "" if hidden else " Those without colour look at [CLS] or [SEP] from almost every token."
    write_note(f"Click a head for its profile.{rests}")


def _bars(found: Profiles, one: HeadProfile) -> None:
    state = st.session_state
    write_line(in_words(one))
    if says := figures_in_words(found, one):
        write_note(escape_markdown(says))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        asked = choose_question(one.bars)
        control(
            st.toggle, "All tokens", "whole", help="Else only the tenth of the tokens where the head is most active."
        )
    bars = (one.bars if state.whole else one.active)[asked]
    draw_bars(asked, bars, f"L{one.layer} H{one.head}", of="this head", title="share of looks")


def _tenths(one: HeadProfile) -> None:
    write_heading("In sentences, from every tenth of its activity")
    tenth = choose_tenth()
    low, high = one.deciles[tenth], one.deciles[tenth + 1]
    write_note(
        f"What it brings to these tokens is {low:.2f} to {high:.2f} times its mean. From ‹this› token it looks most at "
        "«that»."
    )
    _sentences([*one.strongest, *one.tenths[-1]] if tenth == TENTHS - 1 else one.tenths[tenth])


def _sentences(looks: Sequence[HeadExample]) -> None:
    st.dataframe(
        [
            {
                "from": one.text[slice(*one.query)],
                "looks at": one.piece if one.key is None else one.text[slice(*one.key)],
                "share": one.share, "activity": one.activity, "sentence": mark_example(one), "line": one.line,
            }
            for one in looks
        ],
        hide_index=True, key="profile_tenth",
        column_config={
            "share": st.column_config.NumberColumn(format="percent"),
            "activity": st.column_config.NumberColumn(format="%.2f", help="1 is its mean over the corpus"),
            "sentence": st.column_config.TextColumn(width="large"),
        },
    )  # fmt: skip


def _guess(one: HeadProfile) -> None:
    """Ten looks and nothing else, until somebody wants to see."""
    write_line("What does this head do? From ‹this› token it looks most at «that», or at what stands behind the arrow.")
    # A list and no table: a narrow column wraps it, and would cut a cell before what is marked in it.
    st.markdown(
        "\n".join(
            f"{number}. {escape_markdown(mark_guess(look))}" for number, look in enumerate(examples_to_guess(one), 1)
        )
    )
    st.button("Show its profile", on_click=set_choice, args=("hidden", False), type="primary")


def draw_way(one: HeadProfile, _: LoadedModel) -> None:
    """The way on, to the head in a text."""
    st.page_link(
        frame.streamlit_page("attention"),
        label=f"See L{one.layer} H{one.head} in a text of yours",
        icon=":material/grid_view:",
    )

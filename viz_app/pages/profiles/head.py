"""The profile of a head."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import HeadProfile, Profiles
from viz_app.components.head_grid.view import head_grid
from viz_app.export.profiles import figures_in_words, in_words, mark_example, mark_guess, profile_name
from viz_app.pages.profiles import FIRST_HEAD, hidden, whole
from viz_app.pages.profiles.parts import (
    draw_bars,
    draw_sentences,
    draw_similar,
    draw_words,
    select_aspect,
    select_tenth,
)
from viz_app.shell import frame
from viz_app.shell.address import HEAD_CHOSEN
from viz_app.shell.heads import choose_head, existing_heads, set_head
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.profiles import guess_examples
from viz_app.shell.view import write_heading, write_line, write_note


def select_profile(profiles: Profiles, model: LoadedModel) -> HeadProfile:
    """Draw the grid of all heads, and return the profile of the selected one. Raises Refused if it has none."""
    state = st.session_state
    existing_heads(model)
    if not state.get(HEAD_CHOSEN) and state.head == (0, 0) and model.name == "headlight-mini":
        state.head = FIRST_HEAD
    _draw_grid(profiles, model)
    try:
        profile = profiles.find_head(*state.head)
    except Refused as error:
        raise Refused(f"{error}: choose another one") from error
    if not hidden.value:
        note = "By how often they look at the same token where this one is most active."
        draw_similar(profile, "Heads alike", note, ("head", "same"), set_head, form="percent")
    return profile


def _draw_grid(profiles: Profiles, model: LoadedModel) -> None:
    """Draw all heads, colored by how rarely they attend to [CLS] or [SEP]; a click selects one."""
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    values = np.full((layers, heads), np.nan)
    for profile in profiles.heads if not hidden.value else ():
        if profile.layer < layers and profile.head < heads:
            values[profile.layer, profile.head] = 1 - profile.sink_share
    head_grid(
        layers=layers,
        heads=heads,
        values=None if hidden.value else values,
        selected=st.session_state.head,
        unit="share of tokens from which it looks at a typed token",
        key="profile_grid",
        titles=[
            [f"L{layer} H{head}{'' if np.isnan(value) else f': {value:.0%}'}" for head, value in enumerate(row)]
            for layer, row in enumerate(values)
        ],
        on_click=choose_head,
    )
    note = "" if hidden.value else " Those without colour look at [CLS] or [SEP] from almost every token."
    write_note(f"Click a head for its profile.{note}")


def draw(profiles: Profiles, profile: HeadProfile) -> None:
    """Draw the bars of a profile, or examples from which the user guesses it."""
    write_heading(profile_name(profile))
    if hidden.value:
        _draw_guess(profile)
        return
    write_line(in_words(profile))
    if figures := figures_in_words(profiles, profile):
        write_note(escape_markdown(figures))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        name = select_aspect(profile.bars)
        bars = profile.bars if whole() else profile.active
    draw_bars(name, bars, profile, legend="this head", title="share of looks")


def _draw_guess(profile: HeadProfile) -> None:
    """Draw ten examples of a head, and a button for its profile."""
    write_line("What does this head do? From ‹this› token it looks most at «that», or at what stands behind the arrow.")
    examples = enumerate(guess_examples(profile), 1)
    # A list, because a narrow column of a table would cut the sentences before the marked words.
    st.markdown("\n".join(f"{number}. {escape_markdown(mark_guess(example))}" for number, example in examples))
    st.button("Show its profile", on_click=hidden.set, args=(False,), type="primary")


def draw_details(profile: HeadProfile) -> None:
    """Draw the words and the sentences of a profile."""
    if hidden.value:
        return
    draw_words(profile)
    note = (
        "What it brings to these tokens is {low:.2f} to {high:.2f} times its mean. From ‹this› token it looks most at "
        "«that»."
    )
    tenth = select_tenth(profile, note)
    rows = [
        {
            "from": example.text[slice(*example.query)],
            "looks at": example.piece if example.key is None else example.text[slice(*example.key)],
            "share": example.share,
            "activity": example.activity,
            "sentence": mark_example(example),
            "line": example.line,
        }
        for example in profile.examples_of_tenth(tenth)
    ]
    activity = st.column_config.NumberColumn(format="%.2f", help="1 is its mean over the corpus")
    draw_sentences(rows, share=st.column_config.NumberColumn(format="percent"), activity=activity)


def draw_link(profile: HeadProfile, model: LoadedModel) -> None:
    """Draw the link to the head in the selected text."""
    label = f"See {profile_name(profile)} in a text of yours"
    st.page_link(frame.streamlit_page("attention"), label=label, icon=":material/grid_view:")

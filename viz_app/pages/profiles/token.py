"""The profile of a token."""

from __future__ import annotations

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import Profiles, TokenProfile
from viz_app.export.profiles import depth_name, likeness_bars, token_in_words
from viz_app.pages.profiles import piece, tenth
from viz_app.pages.profiles.parts import (
    draw_bars,
    draw_examples,
    draw_similar,
    draw_table,
    draw_words,
    select_aspect,
    select_listed,
    select_tenth,
)
from viz_app.shell import corpus
from viz_app.shell.examples import Example
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import open_example_text
from viz_app.shell.view import write_heading, write_line


def select_profile(profiles: Profiles, model: LoadedModel) -> TokenProfile:
    """Draw the list of tokens, and return the profile of the selected one. Raises Refused if there are none."""
    if not profiles.tokens:
        raise Refused(
            "these profiles have none of tokens: `headlight profile INDEX --frequent 300` makes them, of those that "
            "stand there ten times or more"
        )
    labels = {token.piece: f"{token.piece} ({token.times:,} times)" for token in profiles.tokens}
    profile = profiles.find_token(select_listed(piece, labels))
    note = f"By the mean of their states {depth_name(profile.depth)}, that of all tokens taken off."
    pieces = [similar if similar in labels else None for similar, _ in profile.alike]
    draw_similar(profile, "Tokens like it", note, ("token", "cosine"), piece.set, pieces)
    return profile


def draw(profiles: Profiles, profile: TokenProfile) -> None:
    """Draw the bars of a profile."""
    write_heading(f"“{escape_markdown(profile.piece)}”")
    write_line(token_in_words(profile))
    bars = {"likeness": likeness_bars(profile), **profile.bars}
    name = select_aspect(bars)
    is_cosine = name == "likeness"
    title, form = ("mean cosine of two states", ".2f") if is_cosine else ("share of its places", ".0%")
    draw_bars(name, bars, profile, legend="this token", title=title, form=form)


def draw_details(profile: TokenProfile) -> None:
    """Draw the words, the heads and the sentences of a profile."""
    with draw_words(profile, more_columns=1):
        write_heading("Heads that look at it")
        rows = [
            {"head": f"L{layer} H{head}", "times": times, "by chance": expected}
            for layer, head, times, expected in profile.watched
        ]
        draw_table(rows, "watched")
    place, limits = depth_name(profile.depth), "{low:.2f} to {high:.2f}"
    note = f"The states of ‹this› token {place} have a cosine of {limits} with the mean of the others."
    draw_examples(profile.examples_of_tenth(select_tenth(profile, note)), "cosine")


def draw_link(profile: TokenProfile, model: LoadedModel) -> None:
    """Draw the button that opens the first example as the text, and searches the corpus for tokens like it."""
    examples = profile.tenths[tenth.value - 1]
    label = "Where else is a token like in the first of these?"
    if examples and st.button(label, icon=":material/travel_explore:"):
        example = examples[0]
        open_example_text(Example(example.text))
        offsets = model.tokenizer.encode(example.text).offsets
        # None if the text is truncated before the token.
        corpus.open_search("state", offsets.index(example.at) if example.at in offsets else None)

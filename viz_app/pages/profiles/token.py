"""The profile of a token."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import Profiles, TokenProfile
from viz_app.export.profiles import depth_name, likeness_bars, token_in_words
from viz_app.pages.profiles import TEXTS, parts, piece, tenth
from viz_app.pages.profiles.parts import ExtraTables, SimilarTable
from viz_app.shell import corpus
from viz_app.shell.examples import Example
from viz_app.shell.selection import open_example_text
from viz_app.shell.view import View, write_line

FREQUENT = 60  # tokens among which the first one is chosen


def first_token(profiles: Profiles) -> str:
    """Return the frequent word whose occurrences are farthest from the baseline in a property; a word has letters."""
    by_count = sorted(profiles.tokens, key=lambda token: token.times, reverse=True)
    words = [token for token in by_count[:FREQUENT] if token.piece.isalpha() and len(token.piece) > 1]
    return max(words or by_count, key=lambda token: parts.largest_excess(token.bars)).piece


def select_profile(page: View, profiles: Profiles, model: LoadedModel, row: Any, place: Any) -> TokenProfile:
    """Draw the list of tokens in a row, and return the profile of the selected one. Raises Refused without tokens."""
    if not profiles.tokens:
        raise Refused(TEXTS["no_tokens"])
    labels = {token.piece: f"{token.piece} ({token.times:,} times)" for token in profiles.tokens}
    return profiles.find_token(parts.select_listed(piece, labels, row, first=lambda: first_token(profiles)))


def draw_sentences(profiles: Profiles, profile: TokenProfile) -> None:
    """Draw how frequent and how context-dependent the token is, and its sentences."""
    write_line(token_in_words(profile))
    low, high = profile.deciles[0], profile.deciles[-1]
    parts.draw_sentences(
        profile,
        TEXTS["token.sentences"].replace("{place}", depth_name(profile.depth)),
        lambda example: (f"{example.value:.2f}", (example.value - low) / ((high - low) or 1.0)),
    )


def draw_bars(profile: TokenProfile) -> None:
    """Draw the occurrences of the token by a property."""
    bars = {"likeness": likeness_bars(profile), **profile.bars}
    name = parts.select_aspect(bars)
    parts.draw_bars(name, bars, profile, is_cosine=name == "likeness")


def tables(profiles: Profiles, profile: TokenProfile) -> tuple[SimilarTable, ExtraTables]:
    """Return the table of similar tokens, and that of the heads that attend to the token."""
    note = TEXTS["token.similar"].format(place=depth_name(profile.depth))
    pieces = {token.piece for token in profiles.tokens}
    values = [similar if similar in pieces else None for similar, _ in profile.alike]
    watched = [
        {"head": f"L{layer} H{head}", "times": times, "baseline": expected}
        for layer, head, times, expected in profile.watched
    ]
    similar = SimilarTable(TEXTS["token.similar_title"], note, ("token", "cosine"), piece.set, values)
    return similar, {TEXTS["token.watched"]: watched}


def draw_link(profile: TokenProfile, model: LoadedModel) -> None:
    """Draw the button that opens the first example as the text, and searches the corpus for similar tokens."""
    examples = profile.tenths[tenth.value - 1]
    if examples and st.button(TEXTS["token.open"], icon=":material/travel_explore:"):
        example = examples[0]
        open_example_text(Example(example.text))
        offsets = model.tokenizer.encode(example.text).offsets
        # None if the text is truncated before the token.
        corpus.open_search("state", offsets.index(example.at) if example.at in offsets else None)

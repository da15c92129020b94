"""The profile of a head."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import HeadProfile, Profiles
from viz_app.components.head_grid.view import head_grid
from viz_app.export.profiles import coloured_sentences, figures_in_words, in_words, profile_name
from viz_app.figures.style import current_look
from viz_app.pages.profiles import FIRST_HEAD, TEXTS, hidden, parts, whole
from viz_app.pages.profiles.parts import ExtraTables, SimilarTable
from viz_app.shell import frame
from viz_app.shell.heads import choose_head, existing_heads, selected_head, set_head
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.params import Head
from viz_app.shell.profiles import guess_examples
from viz_app.shell.view import View, write_line, write_note

SYNTACTIC_GROUPS = ("its governor", "its dependent")  # of keys, in a treebank


def opening_head(profiles: Profiles) -> Head | None:
    """Return the head with which the page opens: `FIRST_HEAD` if it has a profile; None without profiles."""
    existing = {(profile.layer, profile.head) for profile in profiles.heads}
    if FIRST_HEAD in existing or not existing:
        return FIRST_HEAD if existing else None
    return first_head(profiles)


def first_head(profiles: Profiles) -> Head:
    """Return the head whose keys are farthest above the baseline: words in a syntactic relation, or else any group."""
    best = max(
        profiles.heads,
        key=lambda profile: (
            parts.largest_excess(profile.active, SYNTACTIC_GROUPS),
            parts.largest_excess(profile.active),
        ),
    )
    return best.layer, best.head


def select_profile(page: View, profiles: Profiles, model: LoadedModel, row: Any, place: Any) -> HeadProfile:
    """Draw the grid of all heads, and return the profile of the selected one. Raises Refused if it has none.

    row: container of the controls. place: of the grid.
    """
    existing_heads(model)
    with row, page.options(hidden):
        hidden()
    selected = selected_head(lambda: opening_head(profiles))
    with place:
        _draw_grid(profiles, model, selected)
    try:
        return profiles.find_head(*selected)
    except Refused as error:
        raise Refused(f"{error}: choose another one") from error


def _draw_grid(profiles: Profiles, model: LoadedModel, selected: Head) -> None:
    """Draw all heads, coloured by how rarely they attend to [CLS] or [SEP]; a click selects one."""
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    values = np.full((layers, heads), np.nan)
    for profile in profiles.heads if not hidden.value else ():
        if profile.layer < layers and profile.head < heads:
            values[profile.layer, profile.head] = 1 - profile.sink_share
    head_grid(
        layers=layers,
        heads=heads,
        values=None if hidden.value else values,
        selected=selected,
        unit=TEXTS["head.grid"],
        key="profile_grid",
        titles=[
            [f"L{layer} H{head}{'' if np.isnan(value) else f': {value:.0%}'}" for head, value in enumerate(line)]
            for layer, line in enumerate(values)
        ],
        on_click=choose_head,
    )
    if not (hidden.value or current_look().lecture):
        write_note(TEXTS["head.grid_note"])


def draw_sentences(profiles: Profiles, profile: HeadProfile) -> None:
    """Draw what the head attends to as a sentence and in sentences, or examples from which the user guesses it."""
    if hidden.value:
        write_line(TEXTS["guess"])
        examples = guess_examples(profile)
        st.html(coloured_sentences(examples, [(f"{number}.", 0.5) for number, _ in enumerate(examples, 1)]))
        st.button("Show its profile", on_click=hidden.set, args=(False,), type="primary")
        return
    write_line(in_words(profile))
    parts.draw_sentences(
        profile,
        TEXTS["head.sentences"],
        lambda example: (f"{example.share:.0%}", example.share),
    )
    if figures := figures_in_words(profiles, profile):
        write_note(escape_markdown(figures))


def draw_bars(profile: HeadProfile) -> None:
    """Draw the keys of the head by a property, at the tokens where it is most active or at all tokens."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        name = parts.select_aspect(profile.bars)
        bars = profile.bars if whole() else profile.active
    parts.draw_bars(name, bars, profile)


def tables(profiles: Profiles, profile: HeadProfile) -> tuple[SimilarTable, ExtraTables]:
    """Return the table of similar heads."""
    texts = TEXTS["head.similar_title"], TEXTS["head.similar"]
    return SimilarTable(*texts, ("head", "same key"), set_head, form="percent"), {}


def draw_link(profile: HeadProfile, model: LoadedModel) -> None:
    """Draw the button that opens the head in the selected text."""
    label = TEXTS["head.open"].format(name=profile_name(profile))
    if st.button(label, icon=":material/grid_view:"):
        set_head((profile.layer, profile.head))
        frame.go_to("attention")

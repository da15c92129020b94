"""The profile of a neuron."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import NeuronProfile, Profiles
from viz_app.export.profiles import GROUP_NAMES, neuron_in_words, profile_name
from viz_app.pages.profiles import TEXTS, counted, firing, parts
from viz_app.pages.profiles.parts import ExtraTables, SimilarTable, reset_aspect
from viz_app.shell import frame
from viz_app.shell.controls import choose_neuron
from viz_app.shell.view import View, write_line, write_note


def select_profile(page: View, profiles: Profiles, model: LoadedModel, row: Any, place: Any) -> NeuronProfile:
    """Draw the list of neurons, the most distinctive first, and return the profile of the selected one.

    Raises Refused if there are none. row: container of the list. place: of the numbers of any neuron.
    """
    if not profiles.neurons:
        raise Refused(TEXTS["no_neurons"])
    by_excess = sorted(profiles.neurons, key=_excess, reverse=True)
    labels = {(profile.layer, profile.neuron): _label(profile) for profile in by_excess}
    neuron = parts.select_listed(firing, labels, row, first=lambda: next(iter(labels)), on_change=reset_aspect)
    profile = profiles.find_neuron(*neuron)
    if counted.value == "corpus":
        with place:
            write_note(TEXTS["random_neurons"].format(layer=profile.layer))
            select_any_neuron(model)
    return profile


def _select(neuron: tuple[int, int]) -> None:
    firing.set(neuron)
    reset_aspect()


def select_any_neuron(model: LoadedModel) -> None:
    """Draw the controls of any neuron by its numbers."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        choose_neuron(firing.name, firing.value or (0, 0), model, on_change=reset_aspect)


def _label(profile: NeuronProfile) -> str:
    if not profile.distinctive_groups:
        return profile_name(profile)
    bar = profile.distinctive_groups[0][1]
    return f"{profile_name(profile)}: {GROUP_NAMES.get(bar.name, bar.name)} {bar.share:.0%} ({bar.chance:.0%})"


def _excess(profile: NeuronProfile) -> float:
    """Return how far the share of the most distinctive group is above chance."""
    groups = profile.distinctive_groups
    return groups[0][1].share - groups[0][1].chance if groups else 0.0


def draw_sentences(profiles: Profiles, profile: NeuronProfile) -> None:
    """Draw how often the neuron is active, and sentences."""
    write_line(neuron_in_words(profile))
    top = max(profile.deciles[-1], 1e-9)
    parts.draw_sentences(
        profile,
        TEXTS["neuron.sentences"],
        lambda example: (f"{example.value:z.2f}", example.value / top),
    )


def draw_bars(profile: NeuronProfile) -> None:
    """Draw the tokens at which the activation of the neuron is largest by a property."""
    groups = profile.distinctive_groups
    name = parts.select_aspect(profile.bars, groups[0][0] if groups else None)
    parts.draw_bars(name, profile.bars, profile)


def tables(profiles: Profiles, profile: NeuronProfile) -> tuple[SimilarTable, ExtraTables]:
    """Return the table of similar neurons."""
    texts = TEXTS["neuron.similar_title"], TEXTS["neuron.similar"]
    return SimilarTable(*texts, ("neuron", "correlation"), _select), {}


def draw_link(profile: NeuronProfile, model: LoadedModel) -> None:
    """Draw the button that opens the neuron in the selected text."""
    if st.button(TEXTS["neuron.open"].format(name=profile_name(profile)), icon=":material/grid_view:"):
        st.session_state.neuron = profile.layer, profile.neuron
        frame.go_to("neurons")

"""The profile of a neuron."""

from __future__ import annotations

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import NeuronProfile, Profiles
from viz_app.export.profiles import GROUP_NAMES, neuron_in_words, profile_name
from viz_app.pages.profiles import counted, firing
from viz_app.pages.profiles.parts import (
    draw_bars,
    draw_examples,
    draw_similar,
    draw_words,
    reset_aspect,
    select_aspect,
    select_listed,
    select_tenth,
)
from viz_app.shell import frame
from viz_app.shell.controls import choose_neuron
from viz_app.shell.view import write_heading, write_line, write_note


def select_profile(profiles: Profiles, model: LoadedModel) -> NeuronProfile:
    """Draw the list of neurons, the most distinctive first, and return the profile of the selected one.

    Raises Refused if there are none.
    """
    if not profiles.neurons:
        raise Refused("these profiles have none of neurons: make them with `headlight profile INDEX --neurons 3.120`")
    by_excess = sorted(profiles.neurons, key=_excess, reverse=True)
    labels = {(profile.layer, profile.neuron): _label(profile) for profile in by_excess}
    profile = profiles.find_neuron(*select_listed(firing, labels, on_change=reset_aspect))
    note = "Those that are farthest above chance stand first in the list."
    if counted.value == "corpus":
        write_note(f"{note} They were drawn from L{profile.layer} by chance; or any other by its numbers:")
        select_any_neuron(model)
    else:
        write_note(note)
    note = "By the correlation of their activations, of those with a profile."
    draw_similar(profile, "Neurons that fire like it", note, ("neuron", "correlation"), _select)
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


def draw(profiles: Profiles, profile: NeuronProfile) -> None:
    """Draw the bars of a profile."""
    write_heading(profile_name(profile))
    write_line(neuron_in_words(profile))
    groups = profile.distinctive_groups
    name = select_aspect(profile.bars, groups[0][0] if groups else None)
    draw_bars(name, profile.bars, profile, legend="where it fires most", title="share of tokens")


def draw_details(profile: NeuronProfile) -> None:
    """Draw the words and the sentences of a profile."""
    draw_words(profile)
    note = "At ‹this› token its activation is {low:z.2f} to {high:z.2f}."
    draw_examples(profile.examples_of_tenth(select_tenth(profile, note)), "activation")


def draw_link(profile: NeuronProfile, model: LoadedModel) -> None:
    """Draw the button that opens the neuron in the selected text."""
    if st.button(f"See {profile_name(profile)} in a text of yours", icon=":material/grid_view:"):
        st.session_state.neuron = profile.layer, profile.neuron
        frame.go_to("neurons")

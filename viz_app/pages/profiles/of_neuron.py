"""The profile of a neuron on the page Profiles."""

from __future__ import annotations

import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.refused import Refused
from bert_core.studies.profiles import TENTHS, NeuronProfile, Profiles
from viz_app.export.profiles import GROUP_NAMES, neuron_in_words, neuron_name
from viz_app.pages.profiles.parts import (
    ask_anew,
    choose_from,
    choose_question,
    choose_tenth,
    draw_alike,
    draw_bars,
    draw_seen,
    draw_words,
)
from viz_app.shell import frame
from viz_app.shell.controls import choose_neuron
from viz_app.shell.view import write_heading, write_line, write_note


def choose(found: Profiles, loaded: LoadedModel) -> NeuronProfile:
    """The list of the neurons that have a profile, the most telling first, and that of the chosen one.

    Raises Refused where there are none.
    """
    if not found.neurons:
        raise Refused("these profiles have none of neurons: make them with `headlight profile INDEX --neurons 3.120`")
    over_a_corpus = st.session_state.counted == "corpus"
    there = {(one.layer, one.neuron): _named(one) for one in sorted(found.neurons, key=_far)}
    one = found.find_neuron(*choose_from("Neuron", "firing", there, on_change=ask_anew))
    write_note(
        "Those that are farthest above chance stand first in the list."
        + f" They were drawn from L{one.layer} by chance; or any other by its numbers:" * over_a_corpus
    )
    if over_a_corpus:
        choose_any(loaded)
    draw_alike(
        neuron_name(one.layer, one.neuron), "Neurons that fire like it",
        "By the correlation of their activations, of those with a profile.", ("neuron", "correlation"),
        [(neuron_name(layer, neuron), value, (layer, neuron)) for layer, neuron, value in one.alike], _take,
    )  # fmt: skip
    return one


def _take(neuron: tuple[int, int]) -> None:
    st.session_state.firing = neuron
    ask_anew()


def choose_any(loaded: LoadedModel) -> None:
    """The controls of any neuron by its numbers."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        choose_neuron("firing", st.session_state.firing or (0, 0), loaded, on_change=ask_anew)


def _named(one: NeuronProfile) -> str:
    clear = one.distinctive_groups
    if not clear:
        return neuron_name(one.layer, one.neuron)
    bar = clear[0][1]
    group = GROUP_NAMES.get(bar.name, bar.name)
    return f"{neuron_name(one.layer, one.neuron)}: {group} {bar.share:.0%} ({bar.chance:.0%})"


def _far(one: NeuronProfile) -> float:
    """How far what stands out most is above chance, less than 0."""
    clear = one.distinctive_groups
    return clear[0][1].chance - clear[0][1].share if clear else 0.0


def draw(_: Profiles, one: NeuronProfile) -> None:
    """What stands beside the list."""
    name = neuron_name(one.layer, one.neuron)
    write_heading(name)
    write_line(neuron_in_words(one))
    clear = one.distinctive_groups
    asked = choose_question(one.bars, clear[0][0] if clear else None)
    draw_bars(asked, one.bars[asked], name, of="where it fires most", title="share of tokens")


def draw_below(one: NeuronProfile) -> None:
    """Words and sentences."""
    left, right = st.columns(2, gap="large")
    with left:
        draw_words(one.words, "Words it fires at", "words")
    with right:
        draw_words(one.before, "Words before them", "before")
    write_heading("In sentences, from every tenth of its activation")
    tenth = choose_tenth()
    write_note(f"At ‹this› token its activation is {one.deciles[tenth]:z.2f} to {one.deciles[tenth + 1]:z.2f}.")
    draw_seen([*one.strongest, *one.tenths[-1]] if tenth == TENTHS - 1 else one.tenths[tenth], "activation")


def draw_way(one: NeuronProfile, _: LoadedModel) -> None:
    """The way on, to the neuron in a text."""
    name = neuron_name(one.layer, one.neuron)
    if st.button(f"See {name} in a text of yours", icon=":material/grid_view:"):
        st.session_state.neuron = one.layer, one.neuron
        frame.go_to("neurons")

"""Which neurons fire?"""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.edits import ScaledNeuron
from bert_core.records import NeuronAttribution, NeuronWords
from bert_core.refused import Refused
from viz_app.export.neurons import neuron_columns
from viz_app.export.tables import labelled_csv
from viz_app.figures.causes import map_width, two_places, value_bars
from viz_app.figures.neurons import neuron_map
from viz_app.figures.stages import ROWS_THAT_FIT, window
from viz_app.figures.style import two_digits
from viz_app.pages.neurons import EXAMPLE, NEURON, RANKED
from viz_app.pages.neurons.fired import DRAWS, fired, said, scores, strongest, without
from viz_app.shell import frame, selection
from viz_app.shell.controls import choose_neuron, control
from viz_app.shell.edits import add_scaled_neurons
from viz_app.shell.lenses import has_translators
from viz_app.shell.markdown import error_sentence, escape_markdown, protect_terms, with_help
from viz_app.shell.profiles import profiles_of
from viz_app.shell.selection import Selection
from viz_app.shell.target import escape_names, show_missing_target
from viz_app.shell.view import View, chart, page_place, write_heading, write_line, write_note, write_reading
from viz_app.shell.work import finished_result, is_confirmed, poll

OFF = 5  # neurons that are switched off together
LISTED_SCORES = 10
RANKED_NAMES = {"added": "What it adds", "fires": "How strongly it fires"}


def draw(page: View) -> None:
    """Draw the page."""
    asked = selection.current_selection()
    current = asked.of_model(asked.own)
    frame.title(
        "Which neurons fire?",
        "Half of each layer is its feed-forward network, a sum over neurons: each fires more or less at each token, "
        "and adds its own vector that many times.",
    )
    if asked.loaded.edits != current.loaded.edits:
        write_note("Here the text is read without what is put in; other pages keep it.")
    state = st.session_state
    if state.fired is None and state.neuron is None and selection.is_current_example(EXAMPLE):
        state.neuron = NEURON
    control(
        page_place("controls").segmented_control, "Rank by", "ranked", options=RANKED,
        format_func=RANKED_NAMES.__getitem__, required=True,
        help="How far a neuron moves the state of its token: how strongly it fires, times the length of its vector. Or "
        "how strongly it fires alone.",
    )  # fmt: skip
    layer, position = _cell(current)
    with page_place("figure"):
        _map(current, layer, position)
        if selection.is_current_example(EXAMPLE):
            st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")
    neuron = _listed(current, layer, position)
    if neuron is not None:
        _one(current, *neuron)
        _answer(current, *neuron)
    _files(current)
    write_reading(
        "**How to read this:** each cell has the number of the neuron that stands out most in a layer at a token; "
        "orange fires, blue is below its rest, and colours are compared within a layer. Click a cell for the ten "
        "strongest there, a line for one of them. **How it can mislead:** what a neuron adds need not be used further "
        "up; one that fires at every [CLS] says nothing of this text; and the words are a slope, right where the text "
        "stands, read directly behind the layer."
    )


def _cell(current: Selection) -> tuple[int, int]:
    """The layer and the token that are chosen; else those of the chosen neuron, or the gap in the last layer."""
    layers, tokens, state = len(current.head_mask), len(current.encoding), st.session_state
    if state.fired is not None and state.fired[0] < layers and state.fired[1] < tokens:
        return int(state.fired[0]), int(state.fired[1])
    chosen = _chosen(current)
    if chosen is not None:
        along = fired(current).activations[chosen[0], :, chosen[1]]
        return chosen[0], int(np.abs(along).argmax())
    return layers - 1, next(iter(current.encoding.mask_positions), min(1, tokens - 1))


def _chosen(current: Selection) -> tuple[int, int] | None:
    """The chosen neuron, if the model has it."""
    asked = st.session_state.neuron
    if asked is None:
        return None
    config = current.loaded.config
    inside = asked[0] < config.num_hidden_layers and asked[1] in config.neurons_of(asked[0])
    return (int(asked[0]), int(asked[1])) if inside else None


def _map(current: Selection, layer: int, position: int) -> None:
    found, encoding = strongest(current, st.session_state.ranked), current.encoding
    tokens = len(encoding)
    shown = window(tokens, position)
    if tokens > ROWS_THAT_FIT:
        write_note(f"Tokens {shown.start} to {shown.stop - 1} of {tokens}, around the chosen one.")
    neurons, values = found.neurons[..., 0].T, found.values[..., 0].T  # (token, layer)
    rows, columns = encoding.labels[shown], [f"L{number}" for number in range(len(values[0]))]
    chart(
        neuron_map(
            neurons[shown], values[shown], rows, columns, chosen=(position - shown.start, layer),
            what="adds" if st.session_state.ranked == "added" else "fires",
            limits=np.nanmax(np.abs(values[[not special for special in encoding.special]]), 0, initial=0).tolist(),
        ),
        key="neurons_map", grows=False, min_width=map_width(rows, len(columns)),
        on_select=partial(_take_cell, shown.start), selection_mode="points", config={"displayModeBar": False},
        alt=f"The strongest neuron of {len(columns)} layers at {len(rows)} tokens",
    )  # fmt: skip


def _take_cell(first: int) -> None:
    """Choose the cell that was clicked. first: the row that is drawn on top."""
    if points := st.session_state["neurons_map"].selection.points:
        st.session_state.fired = (int(points[0]["x"]), first + int(points[0]["y"]))
        st.session_state.neuron = None


def _listed(current: Selection, layer: int, position: int) -> tuple[int, int] | None:
    """The strongest neurons of the chosen cell with what they say; the neuron that is chosen, if there is any."""
    found, run = strongest(current, st.session_state.ranked), fired(current)
    neurons = [neuron for neuron in found.neurons[layer, position].tolist() if neuron >= 0]
    write_heading(f"L{layer} at {escape_markdown(current.encoding.labels[position])}")
    if not neurons:
        write_note(f"All neurons of L{layer} were pruned.")
        return _chosen(current)
    share = found.share[layer, position]
    what = "of all that the layer's neurons add here" if st.session_state.ranked == "added" else "of all firing here"
    write_note(f"The {len(neurons)} strongest neurons have {share:.0%} {what}, signs aside.")
    lenses = {
        name: said(current, layer, neurons, position, tuned=tuned) for name, tuned in _lenses(current, layer).items()
    }
    st.dataframe(
        [
            {
                "neuron": neuron,
                "fires": float(run.activations[layer, position, neuron]),
                "adds": float(run.contributions[layer, position, neuron]),
                **{
                    f"promotes ({name.lower()})": _words(current, one.raised[row], 4) for name, one in lenses.items()
                },
            }
            for row, neuron in enumerate(neurons)
        ],
        hide_index=True, key="neurons_listed", on_select=partial(_take_line, layer, neurons),
        selection_mode="single-row",
        column_config={name: st.column_config.NumberColumn(format="%.2f") for name in ("fires", "adds")},
    )  # fmt: skip
    return _chosen(current) or (layer, neurons[0])


def _take_line(layer: int, neurons: list[int]) -> None:
    """Choose the neuron of the line that was clicked."""
    if rows := st.session_state["neurons_listed"].selection.rows:
        st.session_state.neuron = (layer, neurons[rows[0]])


def _lenses(current: Selection, layer: int) -> dict[str, bool]:
    """By name, whether each lens that the model has is a tuned one; behind the last layer stands the word head."""
    if not current.loaded.has_head("words"):
        return {}
    if layer == len(current.head_mask) - 1:
        return {"Word head": False}
    return {"Tuned lens": True, "Logit lens": False} if has_translators(current.loaded) else {"Logit lens": False}


def _words(current: Selection, pieces: np.ndarray, most: int) -> str:
    return ", ".join(current.word(int(piece)) for piece in pieces[:most])


def _one(current: Selection, layer: int, neuron: int) -> None:
    """One neuron: where it fires in the text, what it says there, and a way to change it."""
    run, encoding = fired(current), current.encoding
    along = run.activations[layer, :, neuron]
    at = int(np.abs(along).argmax())
    write_heading(f"L{layer} neuron {neuron}")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        choose_neuron("neuron", (layer, neuron), current.loaded)
        _offer_profile(current, layer, neuron)
    left, right = st.columns([1, 1], gap="medium")
    shown = window(len(encoding), at)
    with left:
        if shown.stop - shown.start < len(encoding):
            write_note(f"Tokens {shown.start} to {shown.stop - 1} of {len(encoding)}, around the strongest.")
        chart(
            value_bars(
                encoding.labels[shown], along[shown].tolist(), title="fires", written=two_places,
                chosen=at - shown.start,
            ),
            key="neuron_along", grows=False, config={"displayModeBar": False},
            alt=f"How strongly neuron {neuron} of layer {layer} fires at each token",
        )  # fmt: skip
    with right:
        if not current.loaded.has_head("words"):
            write_note("This model has no trained word head, so there are no words that a neuron promotes.")
        for name, tuned in _lenses(current, layer).items():
            write_line(f"**{name}**, at {protect_terms(escape_markdown(encoding.labels[at]))}, where it fires most")
            _said(current, said(current, layer, [neuron], at, tuned=tuned))
            write_line(f"**{name}**, mean of all tokens")
            _said(current, said(current, layer, [neuron], None, tuned=tuned))
        _change(layer, neuron)


def _said(current: Selection, words: NeuronWords) -> None:
    """The words that a neuron makes likelier and unlikelier, in two lines."""
    raised, lowered = (
        protect_terms(escape_markdown(_words(current, one[0], len(one[0])))) for one in (words.raised, words.lowered)
    )
    up, down = (two_digits(float(slopes[0, 0])) for slopes in (words.raised_slopes, words.lowered_slopes))
    write_note(f"likelier: {raised} (at most {up} nats a unit)  \nunlikelier: {lowered} (at most {down})")


def _offer_profile(current: Selection, layer: int, neuron: int) -> None:
    """A button to what the neuron does over a corpus: one that comes with the model, or another."""
    state = st.session_state
    if st.button("Over a whole corpus", icon=":material/fingerprint:", help="What this neuron fires at, counted"):
        come = profiles_of(current.plain)
        known = come is not None and any((one.layer, one.neuron) == (layer, neuron) for one in come.neurons)
        state.profile_of, state.firing, state.counted = "neuron", (layer, neuron), "model" if known else "corpus"
        frame.go_to("profiles")


def _change(layer: int, neuron: int) -> None:
    """Switch it off, or scale it, on every page about this text."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        times: float = control(
            st.number_input, "Times", "times", min_value=-100.0, max_value=100.0, step=0.5, format="%g", width=130,
            help="What the neuron is multiplied by at every token: 0 switches it off, 2 doubles it.",
        )  # fmt: skip
        st.button(
            "Switch off" if times == 0 else f"Scale × {times:g}", icon=":material/tune:", key="neuron_scale",
            on_click=add_scaled_neurons, args=(ScaledNeuron(layer, neuron, times),), disabled=times == 1,
        )  # fmt: skip


def _answer(current: Selection, layer: int, neuron: int) -> None:
    """What the answer rests on in the neurons, and whether it rests on these more than on random ones."""
    target = current.target
    write_heading("What does the answer rest on?")
    if target is None:
        show_missing_target(current, "There is no answer yet that could rest on neurons")
        return
    work = scores(current)
    what = target.target_kind.supports.format(**escape_names(current, target))
    if not is_confirmed("neuron_scores", work.key, "Turn up the neurons of each layer", work.seconds):
        return
    found = poll(work, asked="neuron_scores").value
    if found is None:
        return
    summed = found.neuron_scores
    order = np.argsort(-np.abs(np.nan_to_num(summed)), axis=None, kind="stable")[:LISTED_SCORES].tolist()
    pairs = [divmod(place, summed.shape[1]) for place in order]
    names = [f"L{one} neuron {number}" for one, number in pairs]
    chart(
        value_bars(
            names, [float(summed[pair]) for pair in pairs], title=target.target_kind.unit, written=two_places,
            chosen=pairs.index((layer, neuron)) if (layer, neuron) in pairs else None,
        ),
        key="neuron_scores", grows=False, config={"displayModeBar": False},
        alt=f"The {len(pairs)} neurons that the answer rests on most",
    )  # fmt: skip
    way, missed = float(found.target_value - found.off_values[layer]), abs(float(found.gap[layer]))
    write_note(
        f"Integrated gradients: above 0 speaks for {what}. L{layer} neuron {neuron} has "
        f"**{two_digits(float(summed[layer, neuron]))}**. All neurons of L{layer} together: "
        f"{two_digits(float(np.nansum(summed[layer])))}, for a way of {two_digits(way)} from none of them firing "
        f"(missed by {two_digits(missed)})."
    )
    _suppressed(current, found, layer)


def _suppressed(current: Selection, found: NeuronAttribution, layer: int) -> None:
    """The strongest neurons of a layer switched off, beside random ones."""
    target = current.target
    assert target is not None
    many = max(1, min(OFF, len(current.loaded.config.neurons_of(layer)) // 20))  # a tenth, half of them left to draw
    best = np.argsort(-np.abs(np.nan_to_num(found.neuron_scores[layer])), kind="stable")[:many].tolist()
    pairs = [(layer, neuron) for neuron in best]
    works = [without(current, pairs, among) for among in ("all", "active")]
    label = f"Switch off the {many} strongest of L{layer}, and {DRAWS} times {many} random ones"
    if not is_confirmed("suppressed", works[0].key, label, sum(work.seconds for work in works)):
        return
    try:
        everywhere, active = (poll(work, asked="suppressed").value for work in works)
    except Refused as error:  # of a layer that has lost nearly all
        st.caption(with_help(error_sentence(error)))
        return
    if everywhere is None or active is None:
        return
    say = partial(target.target_kind.format_value, format_number=two_digits)
    ends = [(say(float(one.random.min())), say(float(one.random.max()))) for one in (everywhere, active)]
    verdict = (
        "further than any of them" if everywhere.beyond_chance and active.beyond_chance
        else "further than random ones, not than the active" if everywhere.beyond_chance
        else "no further than random ones: this choice has found nothing"
    )  # fmt: skip
    listed = ", ".join(map(str, best))
    write_line(
        f"**Beside chance:** {say(everywhere.base_value)}; without the neurons {listed} of L{layer} "
        f"**{say(everywhere.value)}**, {verdict}. Without {many} random neurons of L{layer}: {ends[0][0]} to "
        f"{ends[0][1]}; of the tenth of it that adds most here: {ends[1][0]} to {ends[1][1]} ({DRAWS} draws each)."
    )


def _files(current: Selection) -> None:
    ranked = st.session_state.ranked
    st.download_button(
        "Neurons (CSV)", partial(_csv, current, ranked), "neurons.csv", "text/csv", on_click="ignore",
        icon=":material/table:", key="neurons_csv",
    )  # fmt: skip


def _csv(current: Selection, ranked: str) -> bytes:
    known = None if current.target is None else finished_result(scores(current))
    return labelled_csv(neuron_columns(fired(current), strongest(current, ranked), known))

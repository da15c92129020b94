"""Draws the page Neurons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.edits import ScaledNeuron
from bert_core.records import NeuronAttribution, NeuronRun, NeuronWords, Target
from bert_core.refused import Refused
from viz_app.export.neurons import neuron_columns
from viz_app.export.tables import labelled_csv
from viz_app.figures.causes import map_width, two_places, value_bars
from viz_app.figures.neurons import neuron_map
from viz_app.figures.stages import ROWS_THAT_FIT, window
from viz_app.figures.style import two_digits
from viz_app.pages.neurons import EXAMPLE, NEURON, activations, neuron, neuron_cell, ranked, times
from viz_app.pages.neurons.activations import DRAWS, inputs, strongest
from viz_app.shell import frame
from viz_app.shell.controls import choose_neuron
from viz_app.shell.downloads import file_button
from viz_app.shell.edits import add_scaled_neurons
from viz_app.shell.lenses import has_translators
from viz_app.shell.markdown import error_sentence, escape_markdown, protect_terms, with_help
from viz_app.shell.profiles import profiles_of
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.target import escape_names, show_missing_target
from viz_app.shell.view import View, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, finished_result, wait_for

SUPPRESSED_NEURONS = 5  # switched off together
SCORED_NEURONS = 10  # shown with their scores
STATIC: Mapping[str, Any] = {"grows": False, "toolbar": False}
READING = (
    "**How to read this:** each cell has the number of the neuron that stands out most in a layer at a token; "
    "orange fires, blue is below its rest, and colours are compared within a layer. Click a cell for the ten "
    "strongest there, a line for one of them. **How it can mislead:** what a neuron adds need not be used further "
    "up; one that fires at every [CLS] says nothing of this text; and the words are a slope, right where the text "
    "stands, read directly behind the layer."
)


def draw(page: View) -> None:
    """Draw the strongest neuron of each layer at each token, the list of a cell, and one neuron in detail."""
    selection = page.selection.with_model(page.selection.without_patches)
    if page.selection.loaded.edits != selection.loaded.edits:
        write_note("Here the text is read without what is put in; other pages keep it.")
    is_example = is_current_example(EXAMPLE)
    if neuron_cell.value is None and neuron.value is None and is_example:
        neuron.set(NEURON)
    with page.controls():
        ranked()
    layer, position = _current_cell(selection)
    with page.figure():
        _draw_map(selection, layer, position)
        if is_example:
            st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")
    current_neuron = _draw_list(selection, layer, position)
    if current_neuron is not None:
        _draw_neuron(selection, *current_neuron)
        _draw_attribution(selection, *current_neuron)
    file_button("Neurons (CSV)", partial(_csv, selection, ranked.value), "neurons.csv")
    page.read(READING)


def _read(selection: Selection) -> NeuronRun:
    return wait_for(activations.read_activations(*inputs(selection)))


def _current_cell(selection: Selection) -> tuple[int, int]:
    """Return layer and position of the selected cell, else of the selected neuron, else the gap in the last layer."""
    layers, tokens = len(selection.head_mask), len(selection.encoding)
    cell = neuron_cell.value
    if cell is not None and cell[0] < layers and cell[1] < tokens:
        return cell
    selected = _selected_neuron(selection)
    if selected is not None:
        return selected[0], int(np.abs(_read(selection).activations[selected[0], :, selected[1]]).argmax())
    return layers - 1, next(iter(selection.encoding.mask_positions), min(1, tokens - 1))


def _selected_neuron(selection: Selection) -> tuple[int, int] | None:
    """Return layer and number of the selected neuron, or None if the model does not have it."""
    selected, config = neuron.value, selection.loaded.config
    if selected is None or selected[0] >= config.num_hidden_layers or selected[1] not in config.neurons_of(selected[0]):
        return None
    return selected


def _draw_map(selection: Selection, layer: int, position: int) -> None:
    encoding, numbers = selection.encoding, strongest(*inputs(selection), ranked.value)
    tokens = len(encoding)
    rows = window(tokens, position)
    if tokens > ROWS_THAT_FIT:
        write_note(f"Tokens {rows.start} to {rows.stop - 1} of {tokens}, around the chosen one.")
    neurons, values = numbers.neurons[..., 0].T, numbers.values[..., 0].T  # (token, layer)
    row_labels, column_labels = encoding.labels[rows], [f"L{number}" for number in range(len(values[0]))]
    not_special = [not special for special in encoding.special]
    figure = neuron_map(
        neurons[rows], values[rows], row_labels, column_labels, selected=(position - rows.start, layer),
        value_name="adds" if ranked.value == "added" else "fires",
        limits=np.nanmax(np.abs(values[not_special]), 0, initial=0).tolist(),
    )  # fmt: skip
    alt = f"The strongest neuron of {len(column_labels)} layers at {len(row_labels)} tokens"
    width, select = map_width(row_labels, len(column_labels)), partial(_select_cell, rows.start)
    chart(figure, key="neurons_map", min_width=width, on_select=select, selection_mode="points", alt=alt, **STATIC)


def _select_cell(first_row: int) -> None:
    """Select the cell that was clicked. first_row: the position of the token that is drawn on top."""
    if points := st.session_state["neurons_map"].selection.points:
        neuron_cell.set((int(points[0]["x"]), first_row + int(points[0]["y"])))
        neuron.set(None)


def _draw_list(selection: Selection, layer: int, position: int) -> tuple[int, int] | None:
    """Draw the strongest neurons of a cell with the words that they promote; return the neuron to show in detail."""
    numbers, run = strongest(*inputs(selection), ranked.value), _read(selection)
    neurons = [number for number in numbers.neurons[layer, position].tolist() if number >= 0]
    write_heading(f"L{layer} at {escape_markdown(selection.encoding.labels[position])}")
    if not neurons:
        write_note(f"All neurons of L{layer} were pruned.")
        return _selected_neuron(selection)
    total = "of all that the layer's neurons add here" if ranked.value == "added" else "of all firing here"
    share = numbers.share[layer, position]
    write_note(f"The {len(neurons)} strongest neurons have {share:.0%} {total}, signs aside.")
    columns: dict[str, list[Any]] = {
        "neuron": neurons,
        "fires": run.activations[layer, position, neurons].tolist(),
        "adds": run.contributions[layer, position, neurons].tolist(),
    }
    for name, tuned in _lenses(selection, layer).items():
        raised = wait_for(activations.promote_words(*inputs(selection), layer, neurons, [position], tuned)).raised
        columns[f"promotes ({name.lower()})"] = [_join_words(selection, pieces[:4]) for pieces in raised]
    st.dataframe(
        columns,
        hide_index=True,
        key="neurons_listed",
        on_select=partial(_select_row, layer, neurons),
        selection_mode="single-row",
        column_config=dict.fromkeys(("fires", "adds"), st.column_config.NumberColumn(format="%.2f")),
    )
    return _selected_neuron(selection) or (layer, neurons[0])


def _select_row(layer: int, neurons: list[int]) -> None:
    """Select the neuron of the row that was clicked."""
    if rows := st.session_state["neurons_listed"].selection.rows:
        neuron.set((layer, neurons[rows[0]]))


def _lenses(selection: Selection, layer: int) -> dict[str, bool]:
    """Return whether each lens of the model is a tuned one, by name; after the last layer it is the word head."""
    if not selection.loaded.has_head("words"):
        return {}
    if layer == len(selection.head_mask) - 1:
        return {"Word head": False}
    return {"Tuned lens": True, "Logit lens": False} if has_translators(selection.loaded) else {"Logit lens": False}


def _join_words(selection: Selection, pieces: np.ndarray) -> str:
    return ", ".join(selection.word(int(piece)) for piece in pieces)


def _draw_neuron(selection: Selection, layer: int, number: int) -> None:
    """Draw the activations of a neuron along the text, the words that it promotes, and the control that scales it."""
    encoding, values = selection.encoding, _read(selection).activations[layer, :, number]
    peak = int(np.abs(values).argmax())
    write_heading(f"L{layer} neuron {number}")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        choose_neuron(neuron.name, (layer, number), selection.loaded)
        _draw_profile_button(selection, layer, number)
    left, right = st.columns([1, 1], gap="medium")
    rows = window(len(encoding), peak)
    with left:
        if rows.stop - rows.start < len(encoding):
            write_note(f"Tokens {rows.start} to {rows.stop - 1} of {len(encoding)}, around the strongest.")
        labels, row_values = encoding.labels[rows], values[rows].tolist()
        figure = value_bars(labels, row_values, title="fires", format_value=two_places, selected=peak - rows.start)
        alt = f"How strongly neuron {number} of layer {layer} fires at each token"
        chart(figure, key="neuron_along", alt=alt, **STATIC)
    with right:
        if not selection.loaded.has_head("words"):
            write_note("This model has no trained word head, so there are no words that a neuron promotes.")
        for name, tuned in _lenses(selection, layer).items():
            token = protect_terms(escape_markdown(encoding.labels[peak]))
            for place, positions in ((f"at {token}, where it fires most", [peak]), ("mean of all tokens", None)):
                write_line(f"**{name}**, {place}")
                words = wait_for(activations.promote_words(*inputs(selection), layer, [number], positions, tuned))
                _write_words(selection, words)
        _draw_scaling(layer, number)


def _write_words(selection: Selection, words: NeuronWords) -> None:
    """Write the words that a neuron promotes and suppresses, in two lines."""
    raised, lowered = (
        protect_terms(escape_markdown(_join_words(selection, pieces[0]))) for pieces in (words.raised, words.lowered)
    )
    up, down = (two_digits(float(slopes[0, 0])) for slopes in (words.raised_slopes, words.lowered_slopes))
    write_note(f"likelier: {raised} (at most {up} nats a unit)  \nunlikelier: {lowered} (at most {down})")


def _draw_profile_button(selection: Selection, layer: int, number: int) -> None:
    """Draw a button to the profile of the neuron over a corpus, the one that comes with the model if it has it."""
    state = st.session_state
    if st.button("Over a whole corpus", icon=":material/fingerprint:", help="What this neuron fires at, counted"):
        profiles = profiles_of(selection.plain)
        has_profile = profiles is not None and any((p.layer, p.neuron) == (layer, number) for p in profiles.neurons)
        state.profile_of, state.firing, state.counted = "neuron", (layer, number), "model" if has_profile else "corpus"
        frame.go_to("profiles")


def _draw_scaling(layer: int, number: int) -> None:
    """Draw the control that switches a neuron off, or scales it, on every page about this text."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        factor = times()
        label, scaled = "Switch off" if factor == 0 else f"Scale × {factor:g}", ScaledNeuron(layer, number, factor)
        options: dict[str, Any] = {"icon": ":material/tune:", "key": "neuron_scale", "disabled": factor == 1}
        st.button(label, on_click=add_scaled_neurons, args=(scaled,), **options)


def _draw_attribution(selection: Selection, layer: int, number: int) -> None:
    """Draw the neurons that the answer rests on most, and what remains of it without those of the layer."""
    target = selection.target
    write_heading("What does the answer rest on?")
    if target is None:
        show_missing_target(selection, "There is no answer yet that could rest on neurons")
        return
    result = confirm("Turn up the neurons of each layer", activations.attribute_answer(*inputs(selection), target))
    if result is None:
        return
    scores = result.neuron_scores
    pairs = [divmod(index, scores.shape[1]) for index in _strongest_first(scores)[:SCORED_NEURONS]]
    names, values = [f"L{row} neuron {column}" for row, column in pairs], [float(scores[pair]) for pair in pairs]
    row = pairs.index((layer, number)) if (layer, number) in pairs else None
    figure = value_bars(names, values, title=target.target_kind.unit, format_value=two_places, selected=row)
    chart(figure, key="neuron_scores", alt=f"The {len(pairs)} neurons that the answer rests on most", **STATIC)
    answer = target.target_kind.supports.format(**escape_names(selection, target))
    difference, gap = float(result.target_value - result.off_values[layer]), abs(float(result.gap[layer]))
    write_note(
        f"Integrated gradients: above 0 speaks for {answer}. L{layer} neuron {number} has "
        f"**{two_digits(float(scores[layer, number]))}**. All neurons of L{layer} together: "
        f"{two_digits(float(np.nansum(scores[layer])))}, for a way of {two_digits(difference)} from none of them "
        f"firing (missed by {two_digits(gap)})."
    )
    _draw_suppression(selection, target, result, layer)


def _strongest_first(scores: np.ndarray) -> list[int]:
    """Return flat indices in the order of magnitude; NaN, of pruned neurons, counts as 0."""
    order: list[int] = np.argsort(-np.abs(np.nan_to_num(scores)), axis=None, kind="stable").tolist()
    return order


def _draw_suppression(selection: Selection, target: Target, result: NeuronAttribution, layer: int) -> None:
    """Write the answer without the strongest neurons of a layer, and without as many random ones."""
    # At most a tenth of the neurons, of which half remain for the random draws.
    count = max(1, min(SUPPRESSED_NEURONS, len(selection.loaded.config.neurons_of(layer)) // 20))
    numbers = _strongest_first(result.neuron_scores[layer])[:count]
    pairs = [(layer, number) for number in numbers]
    works = [activations.suppress(*inputs(selection), target, pairs, random_pool) for random_pool in ("all", "active")]
    try:
        results = confirm(
            f"Switch off the {count} strongest of L{layer}, and {DRAWS} times {count} random ones", *works
        )
    except Refused as error:  # of a layer that has lost nearly all
        st.caption(with_help(error_sentence(error)))
        return
    if results is None:
        return
    from_all, from_active = results
    value, base = (
        target.target_kind.format_value(number, two_digits) for number in (from_all.value, from_all.base_value)
    )
    ranges = [
        " to ".join(target.target_kind.format_value(float(end), two_digits) for end in (random.min(), random.max()))
        for random in (from_all.random, from_active.random)
    ]
    if not from_all.beyond_chance:
        verdict = "no further than random ones: this choice has found nothing"
    elif from_active.beyond_chance:
        verdict = "further than any of them"
    else:
        verdict = "further than random ones, not than the active"
    write_line(
        f"**Beside chance:** {base}; without the neurons {', '.join(map(str, numbers))} of L{layer} "
        f"**{value}**, {verdict}. Without {count} random neurons of L{layer}: {ranges[0]}; of the tenth of it that "
        f"adds most here: {ranges[1]} ({DRAWS} draws each)."
    )


def _csv(selection: Selection, order: str) -> bytes:
    result = (
        None
        if selection.target is None
        else finished_result(activations.attribute_answer(*inputs(selection), selection.target))
    )
    return labelled_csv(neuron_columns(_read(selection), strongest(*inputs(selection), order), result))

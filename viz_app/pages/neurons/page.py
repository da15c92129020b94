"""Draws the page MLP neurons."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from bert_core.edits import ScaledNeuron
from bert_core.records import NeuronAttribution, NeuronRun, NeuronWords, Target
from bert_core.refused import Refused
from viz_app.export.neurons import neuron_columns
from viz_app.export.profiles import neuron_name
from viz_app.export.tables import labelled_csv
from viz_app.figures.causes import value_bars
from viz_app.figures.neurons import input_bars, neuron_map
from viz_app.figures.stages import ROWS_THAT_FIT, window
from viz_app.figures.style import two_digits
from viz_app.pages.neurons import EXAMPLE, NEURON, TEXTS, activations, neuron, neuron_cell, ranked, times
from viz_app.pages.neurons.activations import DRAWS, inputs, strongest
from viz_app.shell import frame
from viz_app.shell.controls import choose_neuron
from viz_app.shell.edits import add_scaled_neurons
from viz_app.shell.lenses import has_translators
from viz_app.shell.markdown import error_sentence, escape_markdown, protect_terms, quoted_without_terms, with_help
from viz_app.shell.notices import selection_without_patches
from viz_app.shell.profiles import profiles_of
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.target import answer_name, show_missing_target
from viz_app.shell.view import View, add_file, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, finished_result, wait_for

SUPPRESSED_NEURONS = 5  # switched off together
SCORED_NEURONS = 10  # shown with their scores
MAP_WIDTH = 640  # of the map beside a neuron, in pixels


def draw(page: View) -> None:
    """Draw the strongest neuron of each layer at each token, the selected neuron beside it, and lists below."""
    selection = selection_without_patches(page, TEXTS["without_patch"])
    is_example = is_current_example(EXAMPLE)
    if neuron_cell.value is None and neuron.value is None and is_example:
        neuron.set(NEURON)
    layer, position = _current_cell(selection)
    numbers = strongest(*inputs(selection), ranked.value).neurons[layer, position].tolist()
    neurons = [number for number in numbers if number >= 0]
    current = _selected_neuron(selection) or ((layer, neurons[0]) if neurons else None)
    with page.controls():
        ranked()
        if current is not None:
            choose_neuron(neuron.name, current, selection.loaded)
    with page.figure():
        left, right = st.columns([3, 2], gap="medium")
        with left:
            _draw_map(selection, layer, position)
        with right:
            if current is None:
                write_note(TEXTS["all_pruned"].format(layer=layer))
            else:
                _draw_neuron(selection, *current)
    page.read(TEXTS["reading" if selection.loaded.has_head("words") else "reading_numbers"], TEXTS["misleads"])
    if is_example:
        write_note(EXAMPLE.remark)
    if current is not None:
        _draw_actions(selection, *current)
    if neurons:
        _draw_list(selection, layer, position, neurons)
    if current is not None:
        _draw_lenses(selection, *current)
        _draw_attribution(selection, *current)
    add_file("Neurons (CSV)", partial(_csv, selection, ranked.value), "neurons.csv")


def _read(selection: Selection) -> NeuronRun:
    return wait_for(activations.read_activations(*inputs(selection)))


def _peak(selection: Selection, layer: int, number: int) -> int:
    """Return the position where the activation of a neuron has the largest magnitude."""
    return int(np.abs(_read(selection).activations[layer, :, number]).argmax())


def _current_cell(selection: Selection) -> tuple[int, int]:
    """Return layer and position of the selected cell, else of the selected neuron, else the gap in the last layer."""
    layers, tokens = len(selection.head_mask), len(selection.encoding)
    cell = neuron_cell.value
    if cell is not None and cell[0] < layers and cell[1] < tokens:
        return cell
    selected = _selected_neuron(selection)
    if selected is not None:
        return selected[0], _peak(selection, *selected)
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
        write_note(TEXTS["window"].format(first=rows.start, last=rows.stop - 1, count=tokens))
    neurons, values = numbers.neurons[..., 0].T, numbers.values[..., 0].T  # (token, layer)
    row_labels, column_labels = encoding.labels[rows], [f"L{number}" for number in range(len(values[0]))]
    words = None
    if selection.loaded.has_head("words"):
        tuned = has_translators(selection.loaded)
        numbers_of_words = wait_for(activations.strongest_words(*inputs(selection), ranked.value, tuned)).T[rows]
        words = [["" if word < 0 else selection.word(word) for word in line] for line in numbers_of_words.tolist()]
    not_special = [not special for special in encoding.special]
    figure = neuron_map(
        neurons[rows], values[rows], row_labels, column_labels, selected=(position - rows.start, layer),
        value_name=TEXTS[f"quantity.{ranked.value}"], words=words, width=MAP_WIDTH,
        limits=np.nanmax(np.abs(values[not_special]), 0, initial=0).tolist(),
    )  # fmt: skip
    alt = f"The strongest neuron of {len(column_labels)} layers at {len(row_labels)} tokens"
    select = partial(_select_cell, rows.start)
    chart(figure, key="neurons_map", on_select=select, selection_mode="points", alt=alt)


def _select_cell(first_row: int) -> None:
    """Select the cell that was clicked. first_row: the position of the token that is drawn on top."""
    if points := st.session_state["neurons_map"].selection.points:
        neuron_cell.set((int(points[0]["x"]), first_row + int(points[0]["y"])))
        neuron.set(None)


def _draw_list(selection: Selection, layer: int, position: int, neurons: list[int]) -> None:
    """Draw the strongest neurons of a cell with the words that they promote."""
    numbers, run = strongest(*inputs(selection), ranked.value), _read(selection)
    token = escape_markdown(selection.encoding.labels[position])
    write_heading(TEXTS["list_heading"].format(layer=layer, token=token))
    share, quantity = f"{numbers.share[layer, position]:.0%}", TEXTS[f"quantity.{ranked.value}"]
    write_note(TEXTS["list_share"].format(count=len(neurons), share=share, quantity=quantity))
    columns: dict[str, list[Any]] = {
        "neuron": neurons,
        **{name: values[layer, position, neurons].tolist() for name, values in run.inputs.items()},
        "activation": run.activations[layer, position, neurons].tolist(),
        "contribution": run.contributions[layer, position, neurons].tolist(),
    }
    for name, tuned in _lenses(selection, layer).items():
        raised = wait_for(activations.promote_words(*inputs(selection), layer, neurons, [position], tuned)).raised
        columns[f"promotes ({name[:1].lower() + name[1:]})"] = [_join_words(selection, line[:4]) for line in raised]
    st.dataframe(
        columns,
        hide_index=True,
        key="neurons_listed",
        on_select=partial(_select_row, layer, neurons),
        selection_mode="single-row",
        column_config=dict.fromkeys(
            (*run.inputs, "activation", "contribution"), st.column_config.NumberColumn(format="%.2f")
        ),
    )


def _select_row(layer: int, neurons: list[int]) -> None:
    """Select the neuron of the row that was clicked."""
    if rows := st.session_state["neurons_listed"].selection.rows:
        neuron.set((layer, neurons[rows[0]]))


def _lenses(selection: Selection, layer: int) -> dict[str, bool]:
    """Return whether each lens of the model is a tuned one, by name; after the last layer it is the MLM head."""
    if not selection.loaded.has_head("words"):
        return {}
    if layer == len(selection.head_mask) - 1:
        return {TEXTS["lenses.head"]: False}
    tuned = {TEXTS["lenses.tuned"]: True} if has_translators(selection.loaded) else {}
    return tuned | {TEXTS["lenses.logit"]: False}


def _join_words(selection: Selection, pieces: np.ndarray) -> str:
    return ", ".join(selection.word(int(piece)) for piece in pieces)


def _draw_neuron(selection: Selection, layer: int, number: int) -> None:
    """Draw the words that a neuron promotes most, and its activations along the text."""
    encoding, values = selection.encoding, _read(selection).activations[layer, :, number]
    peak = _peak(selection, layer, number)
    write_heading(neuron_name(layer, number))
    token = quoted_without_terms(encoding.labels[peak])
    place = {"activation": two_digits(float(values[peak])), "token": token}
    lenses = list(_lenses(selection, layer).values())
    if lenses:
        words = wait_for(activations.promote_words(*inputs(selection), layer, [number], [peak], lenses[0]))
        write_line(TEXTS["promotes"].format(**place, **_word_texts(selection, words, 4)))
    else:
        write_line(TEXTS["active"].format(**place))
    if inputs_at_peak := {name: float(part[layer, peak, number]) for name, part in _read(selection).inputs.items()}:
        activated, gate = (two_digits(value) for value in inputs_at_peak.values())
        write_note(TEXTS["gated"].format(activated=activated, gate=gate, **place))
    rows = window(len(encoding), peak)
    if rows.stop - rows.start < len(encoding):
        write_note(TEXTS["window"].format(first=rows.start, last=rows.stop - 1, count=len(encoding)))
    labels, row_values = encoding.labels[rows], values[rows].tolist()
    input_values = {name: part[layer, rows, number].tolist() for name, part in _read(selection).inputs.items()}
    title, selected = TEXTS["quantity.fires"], peak - rows.start
    if input_values:
        figure = input_bars(labels, {**input_values, title: row_values}, selected=selected)
    else:
        figure = value_bars(labels, row_values, title=title, selected=selected)
    chart(figure, key="neuron_along", alt=f"Activation of neuron {number} of layer {layer} at each token")


def _word_texts(selection: Selection, words: NeuronWords, count: int) -> dict[str, str]:
    """Return the words that the only neuron promotes and suppresses, and its slopes, by their names in texts."""
    raised, lowered = (
        protect_terms(escape_markdown(_join_words(selection, pieces[0, :count])))
        for pieces in (words.raised, words.lowered)
    )
    up, down = (two_digits(float(slopes[0, 0])) for slopes in (words.raised_slopes, words.lowered_slopes))
    return {"raised": raised, "lowered": lowered, "up": up, "down": down}


def _draw_lenses(selection: Selection, layer: int, number: int) -> None:
    """Write the words that a neuron promotes and suppresses by each lens, at one token and on average."""
    peak, lenses = _peak(selection, layer, number), _lenses(selection, layer)
    if not lenses:
        write_note(TEXTS["no_mlm"])
        return
    token = protect_terms(escape_markdown(selection.encoding.labels[peak]))
    write_heading(neuron_name(layer, number))
    for column, (name, tuned) in zip(st.columns(2, gap="medium"), lenses.items(), strict=False):
        with column:
            for text, positions in (("lens_token", [peak]), ("lens_mean", None)):
                write_line(TEXTS[text].format(lens=name, token=token))
                words = wait_for(activations.promote_words(*inputs(selection), layer, [number], positions, tuned))
                write_note(TEXTS["lens_words"].format(**_word_texts(selection, words, activations.WORDS)))


def _draw_actions(selection: Selection, layer: int, number: int) -> None:
    """Draw the control that scales a neuron on every page about this text, and the button of its profile."""
    state = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        factor = times()
        label = TEXTS["switch_off"] if factor == 0 else TEXTS["scale"].format(factor=f"{factor:g}")
        options: dict[str, Any] = {"icon": ":material/tune:", "key": "neuron_scale", "disabled": factor == 1}
        st.button(label, on_click=_scale, args=(ScaledNeuron(layer, number, factor),), **options)
        if st.button(TEXTS["profile"], icon=":material/fingerprint:", help=TEXTS["profile_help"]):
            profiles = profiles_of(selection.plain)
            has_profile = profiles is not None and any((p.layer, p.neuron) == (layer, number) for p in profiles.neurons)
            state.profile_of, state.firing = "neuron", (layer, number)
            state.counted = "model" if has_profile else "corpus"
            frame.go_to("profiles")


def _scale(scaled: ScaledNeuron) -> None:
    """Scale a neuron and keep it selected, even if it is no longer the strongest of its cell."""
    neuron.set((scaled.layer, scaled.neuron))
    add_scaled_neurons(scaled)


def _draw_attribution(selection: Selection, layer: int, number: int) -> None:
    """Draw the neurons with the largest attributions, and the prediction without those of the layer."""
    target = selection.target
    if target is None:
        write_heading(TEXTS["attribution_missing"])
        show_missing_target(selection, TEXTS["missing"])
        return
    answer = answer_name(selection, target)
    write_heading(TEXTS["attribution"].format(answer=answer))
    result = confirm(TEXTS["attribute"], activations.attribute_answer(*inputs(selection), target))
    if result is None:
        return
    scores = result.neuron_scores
    pairs = [divmod(index, scores.shape[1]) for index in _strongest_first(scores)[:SCORED_NEURONS]]
    names, values = [neuron_name(*pair) for pair in pairs], [float(scores[pair]) for pair in pairs]
    row = pairs.index((layer, number)) if (layer, number) in pairs else None
    figure = value_bars(names, values, title=target.target_kind.unit, selected=row)
    chart(figure, key="neuron_scores", alt=f"The {len(pairs)} neurons with the largest attributions", grows=False)
    difference, gap = float(result.target_value - result.off_values[layer]), abs(float(result.gap[layer]))
    write_note(
        TEXTS["scores"].format(
            answer=answer,
            layer=layer,
            neuron=number,
            score=two_digits(float(scores[layer, number])),
            sum=two_digits(float(np.nansum(scores[layer]))),
            difference=two_digits(difference),
            gap=two_digits(gap),
        )
    )
    _draw_suppression(selection, target, result, layer)


def _strongest_first(scores: np.ndarray) -> list[int]:
    """Return flat indices in the order of magnitude; NaN, of pruned neurons, counts as 0."""
    order: list[int] = np.argsort(-np.abs(np.nan_to_num(scores)), axis=None, kind="stable").tolist()
    return order


def _draw_suppression(selection: Selection, target: Target, result: NeuronAttribution, layer: int) -> None:
    """Write the prediction without the strongest neurons of a layer, and without as many random ones."""
    # At most a tenth of the neurons, of which half remain for the random draws.
    count = max(1, min(SUPPRESSED_NEURONS, len(selection.loaded.config.neurons_of(layer)) // 20))
    numbers = _strongest_first(result.neuron_scores[layer])[:count]
    pairs = [(layer, number) for number in numbers]
    works = [activations.suppress(*inputs(selection), target, pairs, random_pool) for random_pool in ("all", "active")]
    try:
        results = confirm(TEXTS["suppress"].format(count=count, layer=layer, draws=DRAWS), *works)
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
    verdict = "beyond" if from_active.beyond_chance else "active"
    verdict = TEXTS[f"verdicts.{verdict if from_all.beyond_chance else 'chance'}"]
    write_line(
        TEXTS["suppressed"].format(
            base=base,
            value=value,
            neurons=", ".join(map(str, numbers)),
            layer=layer,
            verdict=verdict,
            count=count,
            random=ranges[0],
            active=ranges[1],
            draws=DRAWS,
        )
    )


def _csv(selection: Selection, order: str) -> bytes:
    result = (
        None
        if selection.target is None
        else finished_result(activations.attribute_answer(*inputs(selection), selection.target))
    )
    return labelled_csv(neuron_columns(_read(selection), strongest(*inputs(selection), order), result))

"""Draws the page Head ablation."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.heads import heads_agreement
from bert_core.analysis.spans import best_spans
from bert_core.records import ModelRun
from bert_core.refused import Refused
from bert_core.task_heads import TASK_HEADS, TaskHead
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import sweep_scatter
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import current_look
from viz_app.pages.heads import TEXTS, colour
from viz_app.shell import corpus, downloads, frame
from viz_app.shell.change import (
    ABLATION_TYPES,
    largest_probability,
    nsp_change,
    number_sentence,
    prediction_sentence,
    replaced_change,
    replacement,
    set_reference_texts,
    sweep,
    tags_change,
    word_change,
)
from viz_app.shell.heads import head_title, open_head, switch_heads
from viz_app.shell.markdown import error_sentence, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, chart, how_to_read, write_heading, write_note

MAX_MASKS = 3  # masked positions whose predictions are drawn
COLOURS = TEXTS.options("controls.colour.options")


def draw(page: View) -> None:
    """Draw the heads as switches, coloured by their contribution, and the predictions with and without them."""
    selection = page.selection
    full_run = _full_run(selection)
    run = selection.run()
    estimated = full_run.gate_gradient  # minus the estimated change of the target without the head
    _draw_controls(page, full_run)
    measures = colour.value == "removal" and selection.target is not None and full_run.existing_heads.any()
    grid, predictions = page.figure().columns([3, 2], gap="large")
    with grid:
        effect = sweep(selection).effect if measures else None
        measured = None if effect is None else -effect
        _draw_switches(selection, full_run, estimated, measured)
    with predictions:
        _draw_predictions(selection, full_run, run)
    page.read(TEXTS["reading"], TEXTS["misleads"])
    downloads.heads(full_run, selection.off, estimated, measured)
    if measured is not None and estimated is not None:
        _draw_agreement(estimated, measured)


def _full_run(selection: Selection) -> ModelRun:
    """Return the run with all heads on, without the estimates if a long text has no memory for its gradients."""
    try:
        return selection.run(gradients=selection.target is not None, all_heads_on=True)
    except Refused as error:
        if selection.token_range is None:
            raise
        st.info(with_help(f"{TEXTS['no_gradients']} {error_sentence(error)}"))
        return selection.run(all_heads_on=True)


def _draw_controls(page: View, full_run: ModelRun) -> None:
    if not full_run.existing_heads.any():
        st.info(with_help(TEXTS["pruned"]))
    elif page.selection.target is not None:
        labels = {name: label.format(count=full_run.existing_heads.sum()) for name, label in COLOURS.items()}
        with page.controls():
            if colour(format_func=labels.__getitem__) == "removal" and replacement() != "zero":
                set_reference_texts()


def _draw_switches(
    selection: Selection, full_run: ModelRun, estimated: np.ndarray | None, measured: np.ndarray | None
) -> None:
    """Draw every head as a switch. estimated, measured: contribution to the target, (layer, head), or None."""
    layers, heads = full_run.head_mask.shape
    values, label = (estimated, "contribution, about") if measured is None else (measured, "contribution")
    unit = "" if selection.target is None else selection.target.target_kind.unit
    titles = [
        [head_title(selection, layer, head, label, values, unit) for head in range(heads)] for layer in range(layers)
    ]
    head_grid(
        layers=layers,
        heads=heads,
        values=values,
        signed=True,
        unit=f"contribution, in {unit}",
        mode="switch",
        off=selection.off,
        existing=full_run.existing_heads,
        titles=titles,
        key="switches",
        on_click=switch_heads,
    )
    meaning = ""
    if values is not None:
        method = "slope" if measured is None else "removal"
        meaning = TEXTS[f"contribution.{method}"].format(type=ABLATION_TYPES[replacement.value].lower())
    write_note(f"{TEXTS['switches']} {meaning}")
    if selection.off:
        corpus.search_button(selection, selection.off[0], similarity="looks")


def _draw_predictions(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    """Draw what every trained task head predicts with all attention heads, and now."""
    task_heads = [
        head for head in TASK_HEADS.values() if head.gives_predictions and head.prediction_of(full_run) is not None
    ]
    for task_head in task_heads:
        DRAWINGS.get(task_head.name, partial(_draw_readouts, task_head))(selection, full_run, run)
    target = selection.target
    if target is not None and target.other is not None and full_run.target_value is not None:
        present = selection.run(gradients=True).target_value or 0.0
        _write_number(selection, "the cosine with the other text", full_run.target_value, present)
        write_note("The other text keeps all its heads.")
    elif not task_heads:
        show_missing_target(selection, TEXTS["missing_target"])


def _write_prediction(selection: Selection, before: tuple[str, float], after: tuple[str, float]) -> None:
    """Write the result of switching heads off. before, after: the prediction with its probability."""
    st.markdown(f"##### {prediction_sentence(selection.off, before, after)}")


def _write_number(selection: Selection, quantity: str, before: float, after: float) -> None:
    st.markdown(f"##### {number_sentence(selection.off, quantity, before, after)}")


def _draw_readouts(task_head: TaskHead, selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    """Draw the prediction of a task head without a drawing of its own, as a table."""
    numbers: dict[tuple[str, str], list[float]] = {}
    for record in (full_run, run):
        for readout in task_head.readouts(selection.loaded, record):
            for name, number in readout.rows:
                numbers.setdefault((readout.title, name), []).append(number)
    rows = [(": ".join(dict.fromkeys(key)), *pair) for key, pair in numbers.items() if len(pair) == 2]
    st.subheader(task_head.heading(selection.loaded)[0] or task_head.name, anchor=False)
    columns = dict(zip(("", "all heads on", "now"), zip(*rows, strict=True), strict=True)) if rows else {}
    st.dataframe(columns, hide_index=True, width="stretch")


def _draw_words(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    largest = largest_probability(full_run, run, gaps=MAX_MASKS)
    for prediction in run.predictions[:MAX_MASKS]:
        full_prediction = full_run.prediction_at(prediction.position)
        assert full_prediction is not None  # both runs have the same masked positions
        (first, p), (new_first, q) = (record.top[0] for record in (full_prediction, prediction))
        _write_prediction(selection, (selection.word(first), p), (selection.word(new_first), q))
        st.caption(selection.gap(prediction.position))
        word_change(selection, full_prediction, prediction, top_k=6, max_words=8, largest=largest, key="before_after")


def _draw_classes(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.classes is not None and run.classes is not None  # `_draw_predictions` checks it
    full, current = full_run.classes.probabilities, run.classes.probabilities
    if full is None or current is None:
        return
    classes = list(dict.fromkeys((*full_run.classes.order[:6], *run.classes.order[:6])))[:10]
    names, first, new_first = run.classes.labels, full_run.classes.order[0], run.classes.order[0]
    _write_prediction(selection, (names[first], full[first]), (names[new_first], current[new_first]))
    before = full[classes].tolist() if selection.off else None
    figure = prediction_bars([names[number] for number in classes], current[classes].tolist(), before=before)
    chart(figure, key="classes_before_after", alt="Probabilities of the classes with all heads on, and now")


def _draw_next_sentence(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.nsp is not None and run.nsp is not None  # `_draw_predictions` checks it
    _write_number(selection, TEXTS["follows"], full_run.nsp, run.nsp)
    if not (current_look().lecture and run.predictions):  # there the window has no room for another figure
        nsp_change(selection, full_run.nsp, run.nsp, key="nsp_before_after")


def _draw_replaced(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.replaced is not None and run.replaced is not None  # `_draw_predictions` checks it
    st.subheader("Which token was replaced?", anchor=False)
    replaced_change(selection, full_run.replaced, run.replaced, key="replaced_before_after")


def _draw_tags(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    st.subheader("Which words change their tag?", anchor=False)
    tags_change(full_run, run)


def _draw_answers(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.spans is not None and run.spans is not None  # `_draw_predictions` checks it
    before, after = (best_spans(selection.encoding, spans)[0] for spans in (full_run.spans, run.spans))
    _write_prediction(selection, (before.text, before.probability), (after.text, after.probability))


def _draw_choice(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.choice is not None and run.choice is not None  # `_draw_predictions` checks it
    _write_number(selection, "the logit of B as an answer", full_run.choice, run.choice)
    write_note("The model chooses the option with the largest logit.")


# How the predictions of a task head are drawn; those of any other task head are a table of its readouts.
DRAWINGS: Mapping[str, Callable[[Selection, ModelRun, ModelRun], None]] = {
    "words": _draw_words,
    "classifier": _draw_classes,
    "detector": _draw_replaced,
    "reader": _draw_answers,
    "tagger": _draw_tags,
    "chooser": _draw_choice,
    "next": _draw_next_sentence,
}


def _draw_agreement(estimated: np.ndarray, measured: np.ndarray) -> None:
    """Draw the estimated contribution of each head, (layer, head), against the measured one."""
    rank = heads_agreement(estimated, measured)
    write_heading(f"Gradient estimate against ablation: rank correlation {rank:+.2f} (Spearman)")
    chart(
        sweep_scatter(estimated, measured),
        key="sweep",
        grows=False,
        on_select="rerun",
        selection_mode="points",
        alt=f"Estimated against measured contribution of every head, rank correlation {rank:.2f}",
    )
    write_note(how_to_read(TEXTS["agreement.reading"], TEXTS["agreement.misleads"]))
    if points := st.session_state.sweep.selection.points:
        open_head(HeadClick(*map(int, points[0]["customdata"])), control="view")
        frame.go_to("attention")

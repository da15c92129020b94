"""Draws the page Heads."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.heads import heads_agreement, removal_estimate
from bert_core.analysis.spans import best_spans
from bert_core.records import ModelRun
from bert_core.task_heads import TASK_HEADS, TaskHead
from viz_app.components.head_grid import HeadClick
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.heads import sweep_scatter
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import two_digits
from viz_app.pages.heads import colour
from viz_app.shell import corpus, downloads, frame
from viz_app.shell.change import (
    largest_probability,
    nsp_change,
    nsp_sentence,
    replaced_change,
    replacement_controls,
    replacement_phrase,
    sweep,
    tags_change,
    word_change,
)
from viz_app.shell.heads import head_title, open_head, switch_heads
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, chart, write_heading, write_note

MAX_GAPS = 3  # masked positions whose predictions are drawn
READING = (
    "**How to read this:** a head that is off adds nothing to its layer. Striped bars: all heads on; solid bars: "
    "the heads that are on now. **How it can mislead:** this is one text: a head that does nothing here may matter "
    "elsewhere, and other heads can take over its job."
)


def draw(page: View) -> None:
    """Draw the heads as switches, colored by their effect on the target, and the predictions with and without them."""
    selection = page.selection
    full_run = selection.run(gradients=selection.target is not None, all_heads_on=True)
    run = selection.run()
    gradient = full_run.gate_gradient
    estimated = None if gradient is None else removal_estimate(gradient)
    _draw_controls(page, full_run)
    measures = colour.value == "removal" and selection.target is not None and full_run.existing_heads.any()
    grid, predictions = page.figure().columns(2, gap="large")
    with grid:
        measured = sweep(selection).effect if measures else None
        _draw_switches(selection, full_run, estimated, measured)
    with predictions:
        _draw_predictions(selection, full_run, run)
    page.read(READING)
    downloads.heads(full_run, selection.off, gradient, measured)
    if measured is not None and estimated is not None:
        _draw_agreement(estimated, measured)


def _draw_controls(page: View, full_run: ModelRun) -> None:
    if not full_run.existing_heads.any():
        st.info(with_help("All heads of this model were pruned: there is nothing to switch."))
    elif page.selection.target is not None:
        measured = f"Measured (removes each of the {full_run.existing_heads.sum()})"
        with page.controls():
            colour(format_func={"slope": "Estimated (gradient)", "removal": measured}.__getitem__)
            if colour.value == "removal":
                replacement_controls()


def _draw_switches(
    selection: Selection, full_run: ModelRun, estimated: np.ndarray | None, measured: np.ndarray | None
) -> None:
    """Draw every head as a switch. estimated, measured: effect of its removal, (layer, head), or None."""
    layers, heads = full_run.head_mask.shape
    effect, label = (estimated, "switched off, about") if measured is None else (measured, "switched off,")
    unit = "" if selection.target is None else selection.target.target_kind.unit
    titles = [
        [head_title(selection, layer, head, label, effect, unit) for head in range(heads)] for layer in range(layers)
    ]
    head_grid(
        layers=layers,
        heads=heads,
        values=effect,
        signed=True,
        unit=f"change of the answer when the head is off, in {unit}",
        mode="switch",
        off=selection.off,
        existing=full_run.existing_heads,
        titles=titles,
        key="switches",
        on_click=switch_heads,
    )
    meaning = ""
    if effect is not None:
        how = "estimated from the gradient" if measured is None else f"measured by removing it{replacement_phrase()}"
        meaning = (
            "Colour: how the answer changes when this head alone is switched off: blue, it falls (the head supports "
            f"it); orange, it rises; {how}, with all other heads on."
        )
    write_note(f"Click a head to switch it off or on; click a row or column label to switch all of it. {meaning}")
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
        values = (full_run.target_value, selection.run(gradients=True).target_value or 0.0)
        full, current = map(two_digits, values)
        st.subheader("Cosine with the other text", anchor=False)
        st.markdown(f"**{full}** with all heads on, **{current}** now; the other text keeps all its heads.")
    elif not task_heads:
        show_missing_target(selection, "There is nothing to predict yet")


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
    largest = largest_probability(full_run, run, gaps=MAX_GAPS)
    for prediction in run.predictions[:MAX_GAPS]:
        full_prediction = full_run.prediction_at(prediction.position)
        assert full_prediction is not None  # both runs have the same masked positions
        st.subheader(selection.gap(prediction.position), anchor=False)
        word_change(selection, full_prediction, prediction, top_k=6, max_words=10, largest=largest, key="before_after")


def _draw_classes(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.classes is not None and run.classes is not None  # `_draw_predictions` checks it
    full, current = full_run.classes.probabilities, run.classes.probabilities
    if full is None or current is None:
        return
    classes = list(dict.fromkeys((*full_run.classes.order[:6], *run.classes.order[:6])))[:10]
    labels = [run.classes.labels[number] for number in classes]
    st.subheader("Class", anchor=False)
    figure = prediction_bars(labels, current[classes].tolist(), before=full[classes].tolist())
    chart(figure, key="classes_before_after", alt="Probabilities of the classes with all heads on, and now")


def _draw_next_sentence(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.nsp is not None and run.nsp is not None  # `_draw_predictions` checks it
    st.subheader(nsp_sentence(full_run.nsp, run.nsp), anchor=False)
    nsp_change(selection, full_run.nsp, run.nsp, key="nsp_before_after")


def _draw_replaced(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.replaced is not None and run.replaced is not None  # `_draw_predictions` checks it
    st.subheader("Which token was replaced?", anchor=False)
    replaced_change(selection, full_run.replaced, run.replaced, key="replaced_before_after")


def _draw_tags(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    st.subheader("How is each word tagged?", anchor=False)
    tags_change(full_run, run)


def _draw_answers(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.spans is not None and run.spans is not None  # `_draw_predictions` checks it
    answers = [best_spans(selection.encoding, spans)[0] for spans in (full_run.spans, run.spans)]
    full, current = (f"**“{escape_markdown(span.text)}”** ({two_digits(span.probability)})" for span in answers)
    st.subheader("What is the answer?", anchor=False)
    st.markdown(f"{full} with all heads on, {current} now.")


def _draw_choice(selection: Selection, full_run: ModelRun, run: ModelRun) -> None:
    assert full_run.choice is not None and run.choice is not None  # `_draw_predictions` checks it
    st.subheader("How good an answer is B?", anchor=False)
    full, current = map(two_digits, (full_run.choice, run.choice))
    st.markdown(f"Its logit is **{full}** with all heads on, **{current}** now; the largest is chosen.")


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
    """Draw the estimated effect of removing each head, (layer, head), against the measured one."""
    rank = heads_agreement(estimated, measured)
    write_heading(f"Does the gradient predict the effect of removal? Rank correlation {rank:+.2f} (Spearman)")
    chart(
        sweep_scatter(estimated, measured),
        key="sweep",
        grows=False,
        on_select="rerun",
        selection_mode="points",
        alt=f"Estimated against measured change of the target for every head, rank correlation {rank:.2f}",
    )
    write_note(
        "**How to read this:** each point is a head; click one to see where it looks. On the dotted line, the "
        "gradient's estimate equals the real effect of removing the head. **How it can mislead:** a gradient "
        "describes a small change; removing a head is a large one."
    )
    if points := st.session_state.sweep.selection.points:
        open_head(HeadClick(*map(int, points[0]["customdata"])), control="view")
        frame.go_to("attention")

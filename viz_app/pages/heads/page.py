"""Which heads matter, and what if they were gone?"""

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
from viz_app.pages.heads import COLOURED_BY
from viz_app.shell import corpus, downloads, frame, screen, selection
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
from viz_app.shell.controls import control
from viz_app.shell.heads import head_title, open_head, switch_heads
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.target import show_missing_target

SHOWN_GAPS = 3


def draw() -> None:
    """Draw the page."""
    current = selection.current_selection()
    before = current.run(gradients=current.target is not None, all_heads_on=True)
    after = current.run()
    slopes = before.gate_gradient
    frame.title(
        "Which heads matter, and what if they were gone?",
        "Switch attention heads off and see how the predictions change.",
    )
    left, right = screen.picture().columns([1, 1], gap="large")
    _colour(current, before)
    with left:
        sweeps = current.target is not None and before.existing_heads.any() and st.session_state.colour == "removal"
        removed = sweep(current).effect if sweeps else None
        # One meaning, estimated or found: what switching the head off does to the target.
        estimated = None if slopes is None else removal_estimate(slopes)
        _switches(current, before, estimated, removed)
    with right:
        _predictions(current, before, after)
    screen.write_reading(
        "**How to read this:** a head that is off adds nothing to its layer. Striped bars: all heads on; solid bars: "
        "the heads that are on now. **How it can mislead:** this is one text: a head that does nothing here may matter "
        "elsewhere, and other heads can take over its job."
    )
    downloads.heads(before, current.off, slopes, removed)
    if removed is not None and estimated is not None:
        _agreement(current, estimated, removed)


def _colour(current: Selection, before: ModelRun) -> None:
    """What the heads are coloured by."""
    if not before.existing_heads.any():
        st.info(with_help("All heads of this model were pruned: there is nothing to switch."))
    elif current.target is not None:
        with screen.controls():
            control(
                st.segmented_control,
                "Colour",
                "colour",
                options=COLOURED_BY,
                required=True,
                format_func={
                    "slope": "Estimated (gradient)",
                    "removal": f"Measured (removes each of the {before.existing_heads.sum()})",
                }.__getitem__,
                label_visibility="collapsed",
            )
            if st.session_state.colour == "removal":
                replacement_controls()


def _switches(current: Selection, before: ModelRun, estimated: np.ndarray | None, removed: np.ndarray | None) -> None:
    """Every head as a switch. estimated, removed: (layer, head), what its removal does; None where nobody asked."""
    layers, heads = before.head_mask.shape
    colours, what = (estimated, "switched off, about") if removed is None else (removed, "switched off,")
    unit = "" if current.target is None else current.target.target_kind.unit
    head_grid(
        layers=layers,
        heads=heads,
        thumbnails=None,
        values=colours,
        signed=True,
        unit=f"change of the answer when the head is off, in {unit}",
        mode="switch",
        selected=None,
        off=current.off,
        existing=before.existing_heads,
        titles=[
            [head_title(current, layer, head, what, colours, unit) for head in range(heads)] for layer in range(layers)
        ],
        key="switches",
        on_click=switch_heads,
    )
    meaning = ""
    if colours is not None:
        how = "estimated from the gradient" if removed is None else f"measured by removing it{replacement_phrase()}"
        meaning = (
            "Colour: how the answer changes when this head alone is switched off: blue, it falls (the head supports "
            f"it); orange, it rises; {how}, with all other heads on."
        )
    screen.write_note(
        f"Click a head to switch it off or on; click a row or column label to switch all of it. {meaning}"
    )
    if current.off:
        corpus.search_button(current, current.off[0], alike="looks")


def _predictions(current: Selection, before: ModelRun, after: ModelRun) -> None:
    """What every head of the model predicts with all attention heads, and now."""
    drawn = False
    for head in TASK_HEADS.values():
        if head.gives_predictions and head.prediction_of(before) is not None:
            CHANGES.get(head.name, partial(_readouts, head))(current, before, after)
            drawn = True
    target = current.target
    if target is not None and target.other is not None and before.target_value is not None:
        at_last = current.run(gradients=True).target_value or 0.0
        values = [two_digits(value) for value in (before.target_value, at_last)]
        st.subheader("Cosine with the other text", anchor=False)
        st.markdown(f"**{values[0]}** with all heads on, **{values[1]}** now; the other text keeps all its heads.")
    elif not drawn:
        show_missing_target(current, "There is nothing to predict yet")


def _readouts(head: TaskHead, current: Selection, before: ModelRun, after: ModelRun) -> None:
    """The prediction of a head without a drawing of its own, as a table."""
    rows: dict[tuple[str, str], list[float]] = {}
    for run in (before, after):
        for readout in head.readouts(current.loaded, run):
            for name, number in readout.rows:
                rows.setdefault((readout.title, name), []).append(number)
    both = {key: numbers for key, numbers in rows.items() if len(numbers) == 2}
    st.subheader(head.heading(current.loaded)[0] or head.name, anchor=False)
    st.dataframe(
        {
            "": [": ".join(dict.fromkeys(key)) for key in both],
            "all heads on": [first for first, _ in both.values()],
            "now": [now for _, now in both.values()],
        },
        hide_index=True,
        width="stretch",
    )


def _words(current: Selection, before: ModelRun, after: ModelRun) -> None:
    largest = largest_probability(before, after, gaps=SHOWN_GAPS)
    for prediction in after.predictions[:SHOWN_GAPS]:
        original = before.prediction_at(prediction.position)
        assert original is not None  # both runs were asked for the same positions
        st.subheader(current.gap(prediction.position), anchor=False)
        word_change(current, original, prediction, each=6, most=10, largest=largest, key="before_after")


def _classes(current: Selection, before: ModelRun, after: ModelRun) -> None:
    assert before.classes is not None and after.classes is not None  # the page checks it
    first, now = before.classes.probabilities, after.classes.probabilities
    if first is None or now is None:
        return
    shown = list(dict.fromkeys((*before.classes.order[:6], *after.classes.order[:6])))[:10]
    st.subheader("Class", anchor=False)
    screen.chart(
        prediction_bars(
            [after.classes.labels[number] for number in shown],
            now[shown].tolist(),
            before=first[shown].tolist(),
        ),
        key="classes_before_after",
        alt="Probabilities of the classes with all heads on, and now",
    )


def _next_sentence(current: Selection, before: ModelRun, after: ModelRun) -> None:
    assert before.nsp is not None and after.nsp is not None  # the page checks it
    st.subheader(nsp_sentence(before.nsp, after.nsp), anchor=False)
    nsp_change(current, before.nsp, after.nsp, key="nsp_before_after")


def _replaced(current: Selection, before: ModelRun, after: ModelRun) -> None:
    assert before.replaced is not None and after.replaced is not None  # the page checks it
    st.subheader("Which token was replaced?", anchor=False)
    replaced_change(current, before.replaced, after.replaced, key="replaced_before_after")


def _tags(current: Selection, before: ModelRun, after: ModelRun) -> None:
    st.subheader("How is each word tagged?", anchor=False)
    tags_change(before, after)


def _answers(current: Selection, before: ModelRun, after: ModelRun) -> None:
    assert before.spans is not None and after.spans is not None  # the page checks it
    best = [best_spans(current.encoding, spans)[0] for spans in (before.spans, after.spans)]
    first, now = (f"**“{escape_markdown(span.text)}”** ({two_digits(span.probability)})" for span in best)
    st.subheader("What is the answer?", anchor=False)
    st.markdown(f"{first} with all heads on, {now} now.")


def _choice(current: Selection, before: ModelRun, after: ModelRun) -> None:
    assert before.choice is not None and after.choice is not None  # the page checks it
    st.subheader("How good an answer is B?", anchor=False)
    first, now = (two_digits(value) for value in (before.choice, after.choice))
    st.markdown(f"Its logit is **{first}** with all heads on, **{now}** now; the largest is chosen.")


# How the change of a head's prediction is drawn; that of any other head is a table of its readouts.
CHANGES: Mapping[str, Callable[[Selection, ModelRun, ModelRun], None]] = {
    "words": _words, "classifier": _classes, "detector": _replaced, "reader": _answers, "tagger": _tags,
    "chooser": _choice, "next": _next_sentence,
}  # fmt: skip


def _agreement(current: Selection, estimated: np.ndarray, removed: np.ndarray) -> None:
    """What the gradient says of each head, (layer, head), beside what its removal does."""
    rank = heads_agreement(estimated, removed)
    screen.write_heading(f"Does the gradient predict the effect of removal? Rank correlation {rank:+.2f} (Spearman)")
    screen.chart(
        sweep_scatter(estimated, removed),
        key="sweep",
        grows=False,
        on_select="rerun",
        selection_mode="points",
        config={"displayModeBar": False},
        alt=f"Estimated against found change of the target for every head, rank correlation {rank:.2f}",
    )
    screen.write_note(
        "**How to read this:** each point is a head; click one to see where it looks. On the dotted line, the "
        "gradient's estimate equals the real effect of removing the head. **How it can mislead:** a gradient "
        "describes a small change; removing a head is a large one."
    )
    if points := st.session_state.sweep.selection.points:
        open_head(HeadClick(*map(int, points[0]["customdata"])), control="view")
        frame.go_to("attention")

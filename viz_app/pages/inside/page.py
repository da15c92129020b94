"""The page Step by step: the stages of a forward pass."""

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from bert_core.analysis.walks import differences
from bert_core.run.walk import ENGINES
from viz_app.components.stage_diagram import stage_diagram
from viz_app.export.tables import npz, tidy_csv
from viz_app.figures.style import current_look
from viz_app.pages.inside.stages import STAGES, StageInput, legend, stage_groups
from viz_app.pages.inside.traces import (
    choose_layer_and_head,
    choose_token,
    chosen_token,
    enter_next_layer,
    existing_stages,
    forward_trace,
    go_to_stage,
    second_trace,
    step_stage,
)
from viz_app.shell import frame, selection
from viz_app.shell.address import end_run
from viz_app.shell.controls import control
from viz_app.shell.markdown import with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, page_place, write_heading, write_line, write_note, write_reading
from viz_app.shell.work import is_confirmed, seconds_taken

PADS = 3
NPZ_MIME = "application/octet-stream"
ENGINE_NAMES = {"torch": "PyTorch", "numpy": "NumPy"}


def draw(page: View) -> None:
    """Draw the page."""
    current = selection.current_selection()
    encoding, config, state = current.encoding, current.loaded.config, st.session_state
    names = existing_stages(current)
    if state.stage not in names:  # a link to what another model has
        state.stage = names[-1]
    stage, number = STAGES[state.stage], names.index(state.stage)
    room = config.max_position_embeddings - len(encoding)
    frame.title(
        "What happens to my sentence?",
        "Every step from the text to the prediction, as a formula and with its real numbers.",
    )

    # In a lecture the floor plan is always visible, and the controls are folded away.
    plan = (page_place("strip") if current_look().lecture else page_place("controls")).container()
    row = page_place("controls").container(horizontal=True, vertical_alignment="bottom")
    is_last = number + 1 == len(names)
    row.button("Back", key="back", on_click=step_stage, args=(names, -1), shortcut="P", disabled=number == 0)
    row.button("Next", "on", on_click=step_stage, args=(names, 1), shortcut="N", disabled=is_last, type="primary")
    state.inside_layer, state.inside_head = state.head
    state.inside_token = chosen_token(current)
    existing_heads = config.heads_of(state.head[0])  # without the pruned ones
    heads = existing_heads or range(config.num_attention_heads)
    for name, numbers in (("layer", range(config.num_hidden_layers)), ("head", heads)):
        off = name not in stage.needs or (not existing_heads and name == "head")
        look: dict[str, Any] = {"options": numbers, "width": 100, "disabled": off, "on_change": choose_layer_and_head}
        control(row.selectbox, name.capitalize(), f"inside_{name}", args=("inside_layer", "inside_head"), **look)
    look = {"options": range(len(encoding)), "width": 170, "disabled": "token" not in stage.needs}
    look |= {"format_func": lambda position: f"{encoding.labels[position]} ({position})"}
    look |= {"help": "The token that looks (query), and where the model predicts"}
    control(row.selectbox, "Token", "inside_token", on_change=choose_token, args=("inside_token",), **look)
    look = {"options": ENGINES, "format_func": ENGINE_NAMES.__getitem__, "required": True}
    look |= {"help": "The model written twice. How far the two differ stands at the last stage."}
    control(row.segmented_control, "Engine", "engine", **look)

    layer, head = state.head
    if layer in config.pruned_layers:
        st.info(
            with_help(f"Layer {layer} was taken out of this model: what enters it leaves it. Choose another layer.")
        )
        end_run()
    pads = min(PADS, room) if state.pads else 0
    # Streamlit keeps this function for the download buttons, and not the trace.
    compute_view = partial(_view, current, layer, head, state.inside_token, pads, state.engine)
    view = compute_view()
    with plan:
        stage_diagram(
            stage_groups(view, names),
            {name: STAGES[name].title for name in names},
            state.stage,
            key="plan",
            label="The stages of a pass; choose one to go there",
            on_click=go_to_stage,
        )
    tables = {} if "head" in stage.needs and not existing_heads else stage.tables(view)

    words, picture = page_place("figure").columns([5, 8], gap="medium")
    with words:
        write_heading(f"{number + 1}. {stage.title}")
        st.latex(stage.formula(view))
        write_note(legend(stage.formula(view)))
        write_line(stage.text)
        if tables:
            st.markdown(f"**In numbers:** {stage.shape(view)}")
            st.latex(stage.live(view))
        if state.stage == "mask" or state.pads:
            control(st.toggle, f"Add {PADS} [PAD] tokens to the text", "pads", disabled=room == 0 and not state.pads)
        if state.stage == "next" and layer + 1 < config.num_hidden_layers:
            label, icon = f"Into layer {layer + 1}", ":material/arrow_upward:"
            st.button(label, "enter", on_click=enter_next_layer, args=(config.num_hidden_layers,), icon=icon)
        place = st.container()
    with picture:
        if not existing_heads and "head" in stage.needs:
            st.info(
                with_help(
                    f"All heads of layer {layer} were pruned: nothing is computed here; the residual connection passes "
                    "the vectors on."
                )
            )
        elif not tables:
            st.info(with_help("There is nothing to show: this model lacks this part, or it needs a second sentence."))
        for order, figure in enumerate(stage.draw(view, tables) if tables else []):
            chart(figure, key=f"stage_{order}", alt=f"{stage.title}: {stage.reading}")
    if tables:
        name = f"{state.stage}-L{layer}-H{head}" if "head" in stage.needs else state.stage
        left, right = st.columns(2)
        stage_csv, trace_npz = partial(_stage_csv, compute_view, state.stage), partial(_trace_npz, compute_view)
        for column, label, make_file, file_name, mime, icon in (
            (left, "This stage as CSV", stage_csv, f"{name}.csv", "text/csv", "table"),
            (right, "All values of this layer as NPZ", trace_npz, f"walk-L{layer}.npz", NPZ_MIME, "dataset"),
        ):
            options: dict[str, Any] = {
                "icon": f":material/{icon}:",
                "width": "stretch",
                "key": file_name.rpartition(".")[2],
            }
            column.download_button(label, make_file, file_name, mime, on_click="ignore", **options)
    write_reading(f"**How to read this:** {stage.reading} **How it can mislead:** {stage.misleading}")

    # The comparison comes last, so that the picture waits for one engine only.
    if is_last:
        with place:
            (other_engine,) = (engine for engine in ENGINES if engine != state.engine)
            other_trace = None
            label, key = f"Compare with {ENGINE_NAMES[other_engine]}", (current.loaded.identity, encoding, current.off)
            if is_confirmed("engines", key, label, seconds_taken()):
                other_trace = second_trace(current, layer, state.inside_token, pads, other_engine, slot="engines")
            note = f"All stages are computed with **{ENGINE_NAMES[state.engine]}**."
            if other_trace is not None:
                worst = max(differences(view.trace, other_trace), key=lambda difference: difference.share)
                note += (
                    f" PyTorch and NumPy differ most at `{worst.name}`: by {worst.share:.1e} of its largest "
                    f"number, {worst.scale:.3g}."
                )
            st.caption(note)


def _view(current: Selection, layer: int, head: int, token: int, pads: int, engine: str) -> StageInput:
    """Return the view of the stages, with the trace from the queue."""
    config = current.loaded.config
    distances = config.position_scheme.distances
    return StageInput(
        trace=forward_trace(current, layer, token, pads, engine),
        head=head,
        relative=distances is not None,
        divided=distances is None or distances.scaled,
        hidden_act=config.hidden_act,
        pooler_act=config.pooler_act,
        has_pair_output=current.loaded.has_head("next"),
        predicts_order=current.loaded.predicts_order,
        word_act=config.mlm_act,
        word=current.word,
    )


def _stage_csv(compute_view: Callable[[], StageInput], name: str) -> bytes:
    view, stage = compute_view(), STAGES[name]
    return tidy_csv(stage.tables(view), stage.row_labels(view))


def _trace_npz(compute_view: Callable[[], StageInput]) -> bytes:
    trace = compute_view().trace
    return npz(trace.values, tokens=trace.tokens)

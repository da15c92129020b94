"""Draws the page Step by step."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from bert_core.analysis.walks import differences
from bert_core.loading import LoadedModel
from bert_core.run.walk import ENGINES
from bert_core.tokenizer import Encoding
from viz_app.components.stage_diagram import StageClick, stage_diagram
from viz_app.figures.style import current_look
from viz_app.pages.inside import (
    ENGINE_NAMES,
    PADS,
    engine,
    pads,
    selected_head,
    selected_layer,
    selected_token,
    stage,
    token,
)
from viz_app.pages.inside.stages import STAGES, Stage, StageInput, Tables, legend, stage_groups
from viz_app.pages.inside.traces import ForwardPass
from viz_app.shell.address import end_run
from viz_app.shell.downloads import file_button
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import with_help
from viz_app.shell.view import View, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, seconds_taken


def draw(page: View) -> None:
    """Draw one stage of a forward pass: its formula, description, numbers and figures."""
    selection, config = page.selection, page.selection.loaded.config
    names = existing_stages(selection.loaded)
    if stage.value not in names:  # a link to what another model has
        stage.set(names[-1])
    # In a lecture the floor plan is always visible, and the controls are folded away.
    plan = page.place("strip" if current_look().lecture else "controls").container()
    current, number = STAGES[stage.value], names.index(stage.value)
    layer, head = st.session_state.head
    lacks_heads = "head" in current.needs and not config.heads_of(layer)
    _draw_controls(page, names, current)
    if layer in config.pruned_layers:
        notice = f"Layer {layer} was taken out of this model: what enters it leaves it. Choose another layer."
        st.info(with_help(notice))
        end_run()
    free_positions = config.max_position_embeddings - len(selection.encoding)
    added_pads = min(PADS, free_positions) if pads.value else 0
    forward_pass = ForwardPass(selection, layer, head, selected_token.value, added_pads, engine.value)
    view = forward_pass.stage_input()
    titles = {name: STAGES[name].title for name in names}
    with plan:
        label = "The stages of a pass; choose one to go there"
        stage_diagram(stage_groups(view, names), titles, stage.value, key="plan", label=label, on_click=_open_stage)
    tables = {} if lacks_heads else current.tables(view)

    text, figures = page.figure().columns([5, 8], gap="medium")
    with text:
        write_heading(f"{number + 1}. {current.title}")
        _write_stage(current, view, has_numbers=bool(tables))
        if stage.value == "mask" or pads.value:
            pads(disabled=free_positions == 0 and not pads.value)
        if stage.value == "next" and layer + 1 < config.num_hidden_layers:
            icon = ":material/arrow_upward:"
            st.button(f"Into layer {layer + 1}", "enter", on_click=_enter_layer, args=(layer + 1,), icon=icon)
        comparison = st.container()
    with figures:
        if lacks_heads:
            notice = f"All heads of layer {layer} were pruned: nothing is computed here;"
            st.info(with_help(f"{notice} the residual connection passes the vectors on."))
        elif not tables:
            st.info(with_help("There is nothing to show: this model lacks this part, or it needs a second sentence."))
        else:
            _draw_figures(current, view, tables)
    if tables:
        _draw_downloads(forward_pass, current)
    page.read(f"**How to read this:** {current.reading} **How it can mislead:** {current.misleading}")
    if number + 1 == len(names):
        # The comparison comes last, so that the figure waits for one engine only.
        with comparison:
            _compare_engines(forward_pass, view)


def existing_stages(loaded: LoadedModel) -> tuple[str, ...]:
    """Return the names of the stages that a model has, in order; some models lack the pooler or the outputs."""
    missing = set[str]()
    if loaded.report.lacks("bert.pooler."):
        missing.add("pooler")
    if not any(map(loaded.has_head, ("words", "next", "detector"))):
        missing.add("heads")
    return tuple(name for name in STAGES if name not in missing)


def _draw_controls(page: View, names: Sequence[str], current: Stage) -> None:
    """Draw the controls of the stage, of the layer, head and token that it shows, and of the engine."""
    encoding, config, number = page.selection.encoding, page.selection.loaded.config, names.index(stage.value)
    layer, head = st.session_state.head
    selected_layer.set(layer)
    selected_head.set(head)
    selected_token.set(_token_or_default(encoding))
    heads = config.heads_of(layer)
    with page.controls(gap="small"):
        st.button("Back", "back", on_click=stage.set, args=(names[number - 1],), shortcut="P", disabled=number == 0)
        is_last = number + 1 == len(names)
        following = names[number if is_last else number + 1]
        st.button("Next", "on", on_click=stage.set, args=(following,), shortcut="N", disabled=is_last, type="primary")
        selected_layer(
            options=range(config.num_hidden_layers), disabled="layer" not in current.needs, on_change=_select_head
        )
        selected_head(
            options=heads or range(config.num_attention_heads),
            disabled="head" not in current.needs or not heads,
            on_change=_select_head,
        )
        selected_token(
            options=range(len(encoding)),
            format_func=lambda position: f"{encoding.labels[position]} ({position})",
            disabled="token" not in current.needs,
            on_change=_select_token,
        )
        engine()


def _token_or_default(encoding: Encoding) -> int:
    """Return the position of the selected token; by default that of the first masked token, or of the first word."""
    position = token.value
    if position is not None and 0 <= position < len(encoding):
        return position
    return next(iter(encoding.mask_positions), 1)


def _select_head() -> None:
    set_head((selected_layer.value, selected_head.value), st.session_state.other_heads)


def _select_token() -> None:
    token.set(selected_token.value)


def _open_stage(click: StageClick) -> None:
    stage.set(click.name)


def _enter_layer(layer: int) -> None:
    """Open the query, key and value of the same head in another layer."""
    state = st.session_state
    set_head((layer, state.head[1]), state.other_heads)
    stage.set("qkv")


def _write_stage(current: Stage, view: StageInput, *, has_numbers: bool) -> None:
    """Write the formula of a stage with its symbols, its description, and the numbers of the selected token."""
    formula = current.formula(view)
    st.latex(formula)
    write_note(legend(formula))
    write_line(current.text)
    if has_numbers:
        st.markdown(f"**In numbers:** {current.shape(view)}")
        st.latex(current.live(view))


def _draw_figures(current: Stage, view: StageInput, tables: Tables) -> None:
    for number, figure in enumerate(current.draw(view, tables)):
        chart(figure, key=f"stage_{number}", alt=f"{current.title}: {current.reading}")


def _draw_downloads(forward_pass: ForwardPass, current: Stage) -> None:
    """Draw the buttons for the numbers of the stage and of the layer. Streamlit keeps the functions, and no trace."""
    layer, head = forward_pass.layer, forward_pass.head
    stem = f"{stage.value}-L{layer}-H{head}" if "head" in current.needs else stage.value
    stage_csv = partial(forward_pass.stage_csv, stage.value)
    left, right = st.columns(2)
    with left:
        file_button("This stage as CSV", stage_csv, f"{stem}.csv", width="stretch")
    with right:
        file_button("All values of this layer as NPZ", forward_pass.npz, f"walk-L{layer}.npz", width="stretch")


def _compare_engines(forward_pass: ForwardPass, view: StageInput) -> None:
    """Write how far the engines differ; if the second takes long, once its button is pressed."""
    (second,) = (name for name in ENGINES if name != engine.value)
    work = replace(replace(forward_pass, engine=second).trace(), seconds=seconds_taken() or 0.0)
    trace = confirm(f"Compare with {ENGINE_NAMES[second]}", work)
    note = f"All stages are computed with **{ENGINE_NAMES[engine.value]}**."
    if trace is not None:
        worst = max(differences(view.trace, forward_pass.at_token(trace)), key=lambda difference: difference.share)
        size = f"by {worst.share:.1e} of its largest number, {worst.scale:.3g}"
        note += f" PyTorch and NumPy differ most at `{worst.name}`: {size}."
    st.caption(note)

"""Draws the page Forward pass."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from bert_core.analysis.walks import differences
from bert_core.run.walk import engines_of
from bert_core.tokenizer import Encoding
from viz_app.pages.inside import (
    PADS,
    engine,
    pads,
    selected_head,
    selected_layer,
    selected_token,
    stage,
    token,
)
from viz_app.pages.inside.designs import ALL_STAGES, stages_of
from viz_app.pages.inside.overview import Overview
from viz_app.pages.inside.stages import PRE_NORM_SYMBOLS, SYMBOLS, TEXTS, Stage, StageInput, legend
from viz_app.pages.inside.traces import ForwardPass
from viz_app.shell.address import end_run
from viz_app.shell.heads import set_head
from viz_app.shell.markdown import with_help
from viz_app.shell.token_range import show_whole_needed
from viz_app.shell.view import View, add_file, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, seconds_taken

OVERVIEW = "forward_pass"  # key of the figure of the whole pass


def draw(page: View) -> None:
    """Draw the overview of a forward pass, and beside it the selected stage with its formula and its numbers."""
    selection, config = page.selection, page.selection.loaded.config
    if show_whole_needed(selection):
        return
    stages = stages_of(selection.loaded)
    names = tuple(stages)
    if stage.value not in names:  # a link to what another model has
        stage.set(names[-1])
    current, number = stages[stage.value], names.index(stage.value)
    layer, head = st.session_state.head
    lacks_heads = "head" in current.needs and not config.heads_of(layer)
    free_positions = config.max_position_embeddings - len(selection.encoding)
    if engine.value not in engines_of(config):  # a link to an engine that lacks these layers
        engine.set(engines_of(config)[0])
    _draw_controls(page, stages, free_positions)
    if layer in config.pruned_layers:
        notice = f"Layer {layer} was removed from this model: its output equals its input. Choose another layer."
        st.info(with_help(notice))
        end_run()
    added_pads = min(PADS, free_positions) if pads.value else 0
    forward_pass = ForwardPass(selection, layer, head, selected_token.value, added_pads, engine.value)
    run = selection.run()
    view = forward_pass.stage_input()
    overview = Overview(view, run, forward_pass.lens(), stage.value)
    tables = {} if lacks_heads else current.tables(view)

    whole, detail = page.figure().columns([6, 4.2], gap="medium")
    with whole:
        on_select = partial(_open_cell, names, config.num_hidden_layers)
        alt = f"The forward pass at token {view.labels[view.query]}, column by column"
        chart(overview.figure(), key=OVERVIEW, alt=alt, on_select=on_select, selection_mode="points")
    with detail:
        write_heading(_numbered_title(stages, stage.value))
        formula, values = st.tabs(["Formula", "Values"], key="stage_parts")
        with formula:
            if not lacks_heads:
                write_line(overview.finding())
            _write_stage(current, view, has_numbers=bool(tables))
            if stage.value == "next" and layer + 1 < config.num_hidden_layers:
                icon = ":material/arrow_upward:"
                st.button(f"Open layer {layer + 1}", "enter", on_click=_enter_layer, args=(layer + 1,), icon=icon)
            comparison = st.container()
        with values:
            if lacks_heads:
                notice = f"All heads of layer {layer} were pruned: the residual connection passes the vectors on."
                st.info(with_help(notice))
            elif not tables:
                st.info(with_help(TEXTS["nothing" if stage.value != "attention_norm" else "no_norm"]))
            else:
                write_note(f"{current.reading} {current.misleading}")
                for index, figure in enumerate(current.draw(view, tables)):
                    chart(figure, key=f"stage_{index}", alt=f"{current.title}: {current.reading}", grows=False)
    if tables:
        _add_files(forward_pass, current)
    page.read(TEXTS["reading"], TEXTS["misleads"])
    if number + 1 == len(names):
        # The comparison comes last, so that the figure waits for one engine only.
        with comparison:
            _compare_engines(forward_pass, view, engines_of(config))


def _numbered_title(stages: Mapping[str, Stage], name: str) -> str:
    return f"{list(stages).index(name) + 1}. {stages[name].title}"


def _draw_controls(page: View, stages: Mapping[str, Stage], free_positions: int) -> None:
    """Draw the controls of the stage and of the layer, head and token that it shows; the others are in Options."""
    encoding, config = page.selection.encoding, page.selection.loaded.config
    names, current = tuple(stages), stages[stage.value]
    number = names.index(stage.value)
    layer, head = st.session_state.head
    selected_layer.set(layer)
    selected_head.set(head)
    selected_token.set(_token_or_default(encoding))
    heads = config.heads_of(layer)
    unlabelled: dict[str, Any] = {"label_visibility": "collapsed"}
    with page.controls(gap="small"):
        st.button("Back", "back", on_click=_step, args=(names, -1), shortcut="P", disabled=number == 0)
        stage(options=names, format_func=partial(_numbered_title, stages), width=220, **unlabelled)
        is_last = number + 1 == len(names)
        st.button("Next", "on", on_click=_step, args=(names, 1), shortcut="N", disabled=is_last, type="primary")
        selected_layer(
            options=range(config.num_hidden_layers),
            format_func="Layer {}".format,
            disabled="layer" not in current.needs,
            on_change=_select_head,
            width=120,
            **unlabelled,
        )
        selected_head(
            options=heads or range(config.num_attention_heads),
            format_func="Head {}".format,
            disabled="head" not in current.needs or not heads,
            on_change=_select_head,
            width=120,
            **unlabelled,
        )
        selected_token(
            options=range(len(encoding)),
            format_func=lambda position: f"Token {position}: {encoding.labels[position]}",
            on_change=_select_token,
            width=230,
            **unlabelled,
        )
        with page.options(engine, pads):
            if len(engines_of(config)) > 1:
                engine()
            pads(disabled=free_positions == 0 and not pads.value)


def _token_or_default(encoding: Encoding) -> int:
    """Return the position of the selected token; by default that of the first masked token, or of the first word."""
    position = token.value
    if position is not None and 0 <= position < len(encoding):
        return position
    return next(iter(encoding.mask_positions), 1)


def _step(names: Sequence[str], step: int) -> None:
    """Select the next or previous stage. The keys of the buttons can arrive when there is none."""
    stage.set(names[min(max(names.index(stage.value) + step, 0), len(names) - 1)])


def _select_head() -> None:
    set_head((selected_layer.value, selected_head.value), st.session_state.other_heads)


def _select_token() -> None:
    token.set(selected_token.value)


def _open_cell(names: Sequence[str], layers: int) -> None:
    """Select the token of the clicked cell, and open the stage of its column."""
    if not (points := st.session_state[OVERVIEW]["selection"]["points"]):
        return
    column, row = round(points[0]["x"]), round(points[0]["y"])
    token.set(row)
    if 0 < column <= layers:
        _open_layer(column - 1)
        stage.set(stage.value if "layer" in ALL_STAGES[stage.value].needs else "qkv")
    else:
        stage.set(names[-1] if column > layers else "embeddings" if column == 0 else "pieces")


def _enter_layer(layer: int) -> None:
    """Open the query, key and value of the same head in another layer."""
    _open_layer(layer)
    stage.set("qkv")


def _open_layer(layer: int) -> None:
    state = st.session_state
    set_head((layer, state.head[1]), state.other_heads)


def _write_stage(current: Stage, view: StageInput, *, has_numbers: bool) -> None:
    """Write the formula of a stage, the numbers of the selected token, its description and its symbols."""
    formula = current.formula(view)
    st.latex(formula)
    if has_numbers:
        st.latex(current.live(view))
    write_line(current.text)
    shape = f"**Shape:** {current.shape(view)} &nbsp;·&nbsp; " if has_numbers else ""
    write_note(shape + legend(formula, PRE_NORM_SYMBOLS if view.design.pre_norm else SYMBOLS))


def _add_files(forward_pass: ForwardPass, current: Stage) -> None:
    """Offer the numbers of the stage and of the layer. Streamlit keeps the functions, and no trace."""
    layer, head = forward_pass.layer, forward_pass.head
    stem = f"{stage.value}-L{layer}-H{head}" if "head" in current.needs else stage.value
    add_file("This stage (CSV)", partial(forward_pass.stage_csv, stage.value), f"{stem}.csv")
    add_file("All values of this layer (NPZ)", forward_pass.npz, f"walk-L{layer}.npz")


def _compare_engines(forward_pass: ForwardPass, view: StageInput, existing: Sequence[str]) -> None:
    """Write how far the engines differ; if the second takes long, once its button is pressed.

    existing: the engines that have the layers of the model.
    """
    engines = TEXTS.control("engine")["options"]
    if len(existing) == 1:
        st.caption(TEXTS["one_engine"])
        return
    (second,) = (name for name in existing if name != engine.value)
    work = replace(replace(forward_pass, engine=second).trace(), seconds=seconds_taken() or 0.0)
    trace = confirm(f"Compare with {engines[second]}", work)
    note = f"All stages are computed with **{engines[engine.value]}**."
    if trace is not None:
        worst = max(differences(view.trace, forward_pass.at_token(trace)), key=lambda difference: difference.share)
        size = f"by {worst.share:.1e} of its largest number, {worst.scale:.3g}"
        note += f" PyTorch and NumPy differ most at `{worst.name}`: {size}."
    st.caption(note)

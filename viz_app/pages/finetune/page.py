"""Draws the page Fine-tuning."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.records import ModelComparison
from bert_core.refused import Refused
from bert_core.training.runs import TuningLog
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.lens import short_names
from viz_app.figures.style import current_look
from viz_app.figures.tuning import alike_depths, tuning_lines
from viz_app.finetuning.examples import EXAMPLE_COUNT
from viz_app.finetuning.material import KINDS, Kind
from viz_app.finetuning.recorded import RecordedRun, recorded_run
from viz_app.finetuning.runs import TuningRun, list_runs
from viz_app.maps import map_hatching
from viz_app.pages.finetune import TEXTS, colour, tuned, tuned_step
from viz_app.pages.finetune.begin import STARTED_RUN, draw_new_run
from viz_app.pages.finetune.changes import (
    StepComparison,
    capture_step,
    compare_with_start,
    head_titles,
    load_comparison,
    zip_model,
)
from viz_app.pages.finetune.words import draw_words
from viz_app.shell import frame
from viz_app.shell.address import HEAD_CHOSEN, publish
from viz_app.shell.downloads import file_button
from viz_app.shell.error_boundary import error_boundary
from viz_app.shell.heads import choose_head, selected_head
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import forget_model, open_model
from viz_app.shell.params import Head
from viz_app.shell.view import View, chart, write_heading, write_line, write_note
from viz_app.shell.work import confirm, wait_for
from viz_app.windows import Hatching

REFRESH_SECONDS = 1.0  # between two looks at a run
STEP_REFRESH_SECONDS = 15.0  # after which newly kept steps are offered
UNCONFIRMED_SECONDS = 20.0  # of a comparison that needs no button
MAX_MAP_HEIGHT, CKA_HEIGHT = 370, 330  # pixels
CELL_DECIMALS = 3  # of the numbers in the grid of heads; its tooltips have more
LAST_STEP = "_last_kept_step"  # session key: the last step that the slider offered


def draw(page: View) -> None:
    """Draw the recorded run or one of this machine: its curves, and what changed at its kept steps."""
    runs_by_name = {run.name: run for run in list_runs()}
    selected = st.session_state.pop(STARTED_RUN, tuned.value)
    tuned.set(selected if selected in runs_by_name else "")
    with page.controls():
        if runs_by_name:
            tuned(options=("", *runs_by_name))
        run = runs_by_name.get(tuned.value)
        if run is not None:
            colour()
        with st.popover(TEXTS["new_run"], icon=":material/model_training:", width="content"), error_boundary():
            draw_new_run(page.selection)
    if run is None:
        page.hide_text()
        _draw_recorded(page, recorded_run())
        return
    running, steps = run.is_running, run.steps
    has_changes = len(steps) > 1
    with page.figure():
        if has_changes:
            step, result = _draw_step(steps)
        left, right = st.columns(2, gap="large")
    with right if current_look().lecture else left:
        frame.fragment(_draw_run, run_every=REFRESH_SECONDS if running else None)(run, running, len(steps))
    page.read(TEXTS["reading"], TEXTS["misleads"])
    if has_changes:
        try:
            changes = load_comparison(run, steps, step)
        except (Refused, OSError):
            if tuned_step.value in run.steps:
                raise
            st.rerun()  # the run has deleted this step meanwhile: the nearest one that is kept
        with right:
            comparison = confirm(
                f"Compare step {step} with the start", compare_with_start(changes), quick=UNCONFIRMED_SECONDS
            )
        head_of_maps = _head_of_maps(changes, comparison)
        if comparison is not None:
            assert comparison.divergence is not None  # a run changes no shape
            with result:
                write_line(changes_sentence(step, run.log, run.request.kind, comparison.divergence, comparison.cka))
            with left:
                _draw_heads(comparison, head_of_maps)
        text, before = page.selection.original, changes.before
        encoding = before.tokenizer.encode(text.text, text.pair)
        with _maps_place(page, right):
            layer, head = head_of_maps
            models = {0: changes.before, step: changes.after}
            attention = {
                number: wait_for(capture_step(model, encoding, number)).attention[layer, head]
                for number, model in models.items()
            }
            window = before.config.windows[layer]
            _draw_maps(attention, encoding.tokens, head_of_maps, map_hatching(window, len(encoding)))
            if comparison is not None:
                _draw_cka(comparison.cka)
        if comparison is not None:
            _note_comparison(run.request.kind, comparison)
        draw_words(changes, encoding, quick=UNCONFIRMED_SECONDS)
    else:
        with right:
            write_note(TEXTS["changes_later"])
    if not running:
        _draw_result(run)
        _draw_deletion(run)


def _maps_place(page: View, right: DeltaGenerator) -> DeltaGenerator:
    """Return the place of maps and CKA; in lecture mode the curves are on the right, and these below the window."""
    return page.place("rest") if current_look().lecture else right


def _draw_step(steps: Mapping[int, object]) -> tuple[int, DeltaGenerator]:
    """Draw the slider of the kept steps; return the step and the place of the sentence about it."""
    if current_look().lecture:
        return choose_step(steps), st.empty()
    slider, result = st.columns([2, 3], gap="large", vertical_alignment="center")
    with slider:
        return choose_step(steps), result


def choose_step(steps: Mapping[int, object]) -> int:
    """Draw the slider of the kept steps and return the step; it follows the last one unless another was chosen."""
    first, *numbers = steps
    if tuned_step.value in (0, first, st.session_state.get(LAST_STEP)):
        tuned_step.set(numbers[-1])
    st.session_state[LAST_STEP] = numbers[-1]
    preferred = tuned_step.value
    tuned_step.set(min(numbers, key=lambda number: abs(number - preferred)))
    if len(numbers) > 1:
        return tuned_step(options=numbers)
    return tuned_step.value


def changes_sentence(step: int, log: TuningLog, kind: Kind, divergence: np.ndarray, cka: np.ndarray) -> str:
    """Return the held-out score at a step, the head that changed most, and the similarity of the last layer output.

    divergence: (layer, head), nats. cka: (depth, depth).
    """
    layer, head = np.unravel_index(np.nanargmax(divergence), divergence.shape)
    change = (
        f"L{layer} H{head} changed most: its attention differs from the start by {divergence[layer, head]:.2g} nats. "
        f"The last layer output has a CKA of {cka[-1, -1]:.2f} with the start."
    )
    evaluated = [(number, figures) for number, figures in log.held_out if number <= step]
    scores = [(name, figure) for figure, name in kind.scores.items() if evaluated and figure in evaluated[-1][1]]
    if not scores:
        return f"Step {step:,} of {log.steps:,}. {change}"
    name, figure = scores[0]
    return f"Step {step:,} of {log.steps:,}: held-out {name} **{evaluated[-1][1][figure]:.0%}**. {change}"


# ---------------------------------------------------------------------------- the recorded run


def _draw_recorded(page: View, recorded: RecordedRun) -> None:
    """Draw the run that comes with the package."""
    kind = recorded.request.kind
    with page.figure():
        step, result = _draw_step(recorded.maps)
        left, right = st.columns(2, gap="large")
    divergence, cka = recorded.divergence[step], recorded.cka[step]
    with result:
        write_line(changes_sentence(step, recorded.log, kind, divergence, cka))
    with right if current_look().lecture else left:
        _draw_curves(recorded.log, kind, step)
    with left:
        titles = [
            [f"L{row} H{column}: {value:.3g} nats" for column, value in enumerate(values)]
            for row, values in enumerate(divergence.tolist())
        ]
        selected = selected_head(lambda: recorded.head)
        _draw_grid(divergence, titles, "divergence", selected)
        if selected != recorded.head:
            names = {"selected": f"L{selected[0]} H{selected[1]}", "head": f"L{recorded.head[0]} H{recorded.head[1]}"}
            write_note(TEXTS["recorded_head"].format(**names))
    with _maps_place(page, right):
        _draw_maps({number: recorded.maps[number] for number in (0, step)}, recorded.text_tokens, recorded.head)
        _draw_cka(cka)
    page.read(TEXTS["reading"], TEXTS["misleads"])
    request = recorded.request
    write_note(
        f"Recorded on {recorded.date}: {recorded.model} on {request.table}, {EXAMPLE_COUNT} made-up {kind.unit}, "
        f"{request.epochs} epochs, learning rate {request.learning_rate:g}; heads compared on {recorded.texts} "
        f"{kind.unit}, {recorded.tokens} tokens. {TEXTS['recorded_maps']}"
    )


# ---------------------------------------------------------------------------- the run


def _draw_run(run: TuningRun, running: bool, offered_steps: int) -> None:
    """Draw progress, curves and buttons; a fragment that runs again while the run continues.

    running, offered_steps: as they were when the page was drawn.
    """
    state, log = st.session_state, run.log
    if running and not run.is_running:
        st.rerun()
    step_count = len(run.steps)
    if (
        running
        and step_count != offered_steps
        and (offered_steps < 2 <= step_count or time.time() - state.get("_seen", 0) > STEP_REFRESH_SECONDS)
    ):
        state._seen = time.time()
        st.rerun()
    if running:
        share = log.step / log.steps if log.steps else 0.0
        # The command separates the parts of a line by two spaces.
        st.progress(min(share, 1.0), text=escape_markdown(run.last_line.replace("  ", " · ") or "Starting"))
        st.button("Stop", key="stop_tuning", icon=":material/stop:", on_click=run.stop)
    elif not run.is_done:
        if run.failure:
            st.error(with_help(escape_markdown(run.failure)), icon=":material/error:")
        else:
            progress = f"at step {log.step:,} of {log.steps:,}" if log.steps else "before the first step"
            st.info(with_help(TEXTS["stopped"].format(progress=progress)))
        if st.button("Resume", key="go_on_tuning", icon=":material/play_arrow:", type="primary"):
            run.start()
            st.rerun()
    if log.losses:
        _draw_curves(log, run.request.kind, tuned_step.value or None)
    publish()


def _draw_curves(log: TuningLog, kind: Kind, step: int | None) -> None:
    """Draw the losses, and the scores on what was held out, with a line at a step."""
    curves = {
        name: ([number for number, _ in log.held_out], [float(figures[name]) for _, figures in log.held_out])
        for name in ("loss", *kind.scores)
        if all(name in figures for _, figures in log.held_out)  # tags that mark no spans have no F1
    }
    losses = {"training": ([number for number, _ in log.losses], [loss for _, loss in log.losses])}
    if log.held_out:
        losses["held out"] = curves["loss"]
    left, right = st.columns(2, gap="small")
    with left:
        figure = tuning_lines(losses, steps=log.steps, title="loss (nats)", selected=step)
        alt = f"Training loss, now {log.losses[-1][1]:.3f} nats"
        chart(figure, key="tuning_losses", alt=alt)
    with right:
        if not log.held_out:
            write_note(TEXTS["scores_later"].format(unit=kind.unit))
            return
        scores = {name: curves[figure] for figure, name in kind.scores.items() if figure in curves}
        first = next(iter(scores))
        figure = tuning_lines(scores, steps=log.steps, title=f"held-out {kind.unit}", shares=True, selected=step)
        alt = f"Scores on held-out {kind.unit}, {first} now {scores[first][1][-1]:.1%}"
        chart(figure, key="tuning_scores", alt=alt)


# ---------------------------------------------------------------------------- what changed


def _head_of_maps(changes: StepComparison, comparison: ModelComparison | None) -> Head:
    """Return the selected head, if these models have it; that which changed most as long as none is selected."""
    state = st.session_state
    if comparison is not None and comparison.divergence is not None and not state.get(HEAD_CHOSEN):
        layer, head = np.unravel_index(np.nanargmax(comparison.divergence), comparison.divergence.shape)
        return int(layer), int(head)
    config = changes.before.config
    layer, head = state.head
    return (layer, head) if layer < config.num_hidden_layers and head < config.num_attention_heads else (0, 0)


def _draw_heads(comparison: ModelComparison, head_of_maps: Head) -> None:
    """Draw the grid of heads, coloured by the selected measure."""
    assert comparison.divergence is not None  # a run changes no shape
    measure = colour.value
    if measure not in ("divergence", *comparison.before.figures):
        write_note(TEXTS["no_mlm_head"])
        measure = "divergence"
    values = comparison.divergence if measure == "divergence" else comparison.change(measure)
    _draw_grid(values, head_titles(comparison, values, measure), measure, head_of_maps)


def _draw_grid(values: np.ndarray, titles: list[list[str]], measure: str, head_of_maps: Head) -> None:
    head_grid(
        layers=len(values),
        heads=values.shape[1],
        values=values.round(CELL_DECIMALS),
        signed=measure != "divergence",
        unit=TEXTS[f"units.{measure}"],
        selected=head_of_maps,
        titles=titles,
        key="tuned_heads",
        on_click=choose_head,
    )


def _draw_cka(cka: np.ndarray) -> None:
    """Draw the similarity of all layer outputs of the start and of the step, (depth, depth)."""
    names = short_names(len(cka))
    figure = alike_depths(cka, names, names, rows="at the start", columns="at this step")
    figure.update_layout(height=CKA_HEIGHT)
    alt = f"CKA of the layer outputs of the start and this step, {cka[-1, -1]:.2f} at the last"
    chart(figure, key="tuned_cka", alt=alt, grows=False)


def _note_comparison(kind: Kind, comparison: ModelComparison) -> None:
    """Write on what the heads were compared, and of which loss the importance is."""
    loss = (
        "of the class loss, whose classifier is random at the start"
        if kind is KINDS["classes"]
        else f"of the masked-token loss, not of the loss of the {kind.name}"
    )
    write_note(
        f"Compared on the first {comparison.texts} {kind.unit}, {comparison.tokens:,} tokens. Importance is that "
        f"{loss}. Unbiased CKA of the last layer output: {comparison.cka_unbiased[-1, -1]:.2f}."
    )


def _draw_maps(
    attention: Mapping[int, np.ndarray], tokens: tuple[str, ...], head_of_maps: Head, hatching: Hatching | None = None
) -> None:
    """Draw the attention of a head, (query, key), at the start and at the step, by their numbers.

    hatching: the area outside the window of a local layer.
    """
    layer, head = head_of_maps
    for column, (number, weights) in zip(st.columns(2, gap="small"), attention.items(), strict=True):
        with column:
            title = f"L{layer} H{head}, step {number:,}" if number else f"L{layer} H{head}, start"
            if not np.isfinite(weights).all():
                raise Refused(f"L{layer} H{head} was pruned: choose another head")
            figure = attention_heatmap(weights, tokens, tokens, signed=False, title=title, hatching=hatching)
            figure.update_layout(height=min(figure.layout.height, MAX_MAP_HEIGHT))
            chart(figure, key=f"tuned_map_{int(number > 0)}", alt=f"Attention of {title}", grows=False)


# ---------------------------------------------------------------------------- what came out


def _draw_result(run: TuningRun) -> None:
    """Draw the buttons that open and download the best weights."""
    if not run.is_done:
        return
    log = run.log
    best = log.best_steps[-1] if log.best_steps else log.step
    figures, kind = dict(log.held_out).get(best, {}), run.request.kind
    write_heading("Trained model")
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        open_it, icon = partial(open_model, str(run.folder)), ":material/open_in_new:"
        st.button("Open it on all pages", key="open_tuned", icon=icon, type="primary", on_click=open_it)
        file_button("Model as .zip", partial(zip_model, run.folder), f"{run.name}.zip")
    scores = ", ".join(f"{name} {figures[figure]:.1%}" for figure, name in kind.scores.items() if figure in figures)
    scores = f" (held-out {kind.unit}: {scores})" if scores else ""
    folder = escape_markdown(str(run.folder))
    write_note(TEXTS["result"].format(step=f"{best:,}", scores=scores, folder=folder))


def _draw_deletion(run: TuningRun) -> None:
    """Draw the button that deletes the run, behind a confirmation."""
    with st.popover("Delete this run", icon=":material/delete:", width="content", key="delete_tuned"):
        if st.session_state.model == str(run.folder):
            write_note(TEXTS["delete_selected"])
            return
        write_note(TEXTS["delete"].format(folder=escape_markdown(str(run.folder))))
        delete, icon = partial(_delete, run), ":material/delete_forever:"
        st.button("Delete permanently", key="delete_tuned_now", icon=icon, type="primary", on_click=delete)


def _delete(run: TuningRun) -> None:
    """Delete a run and select none; callback of a button."""
    forget_model(str(run.folder))
    run.delete()
    tuned.set("")
    tuned_step.set(0)

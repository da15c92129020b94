"""Draws the page Fine-tune."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import streamlit as st

from bert_core.records import ModelComparison
from bert_core.refused import Refused
from bert_core.tokenizer import Encoding
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.attention import attention_heatmap
from viz_app.figures.lens import short_names
from viz_app.figures.tuning import alike_depths, tuning_lines
from viz_app.finetuning.material import KINDS
from viz_app.finetuning.runs import TuningRun, list_runs
from viz_app.pages.finetune import colour, tuned, tuned_step
from viz_app.pages.finetune.begin import STARTED_RUN, draw_new_run
from viz_app.pages.finetune.changes import (
    UNITS,
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
from viz_app.shell.heads import choose_head
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import forget_model, open_model
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_heading, write_note
from viz_app.shell.work import confirm, wait_for

REFRESH_SECONDS = 1.0  # between two looks at a run
STEP_REFRESH_SECONDS = 15.0  # after which newly kept steps are offered
UNCONFIRMED_SECONDS = 20.0  # of a comparison that needs no button
MAX_MAP_HEIGHT = 580  # pixels


def draw(page: View) -> None:
    """Draw a new run, or the progress of a run and what changed at its kept steps."""
    runs_by_name = {run.name: run for run in list_runs()}
    selected = st.session_state.pop(STARTED_RUN, tuned.value)
    tuned.set(selected if selected in runs_by_name else "")
    if runs_by_name:
        with page.controls():
            tuned(options=("", *runs_by_name))
    run = runs_by_name.get(tuned.value)
    with page.figure():
        if run is None:
            draw_new_run(page.selection)
            return
        running = run.is_running
        frame.fragment(_draw_run, run_every=REFRESH_SECONDS if running else None)(run, running, len(run.steps))
    try:
        _draw_changes(page.selection, run)
    except (Refused, OSError):
        if tuned_step.value in run.steps:
            raise
        st.rerun()  # the run has deleted this step meanwhile: the nearest one that is kept
    if not running:
        _draw_result(run)
        _draw_deletion(run)


# ---------------------------------------------------------------------------- the run


def _draw_run(run: TuningRun, running: bool, offered_steps: int) -> None:
    """Draw progress, curves and buttons; a fragment that runs again while the run goes on.

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
            progress = f"at step {log.step:,} of {log.steps:,}" if log.steps else "before it began"
            st.info(
                with_help(f"It was stopped {progress}. It goes on from there, to the weights of a run without a stop.")
            )
        if st.button("Go on", key="go_on_tuning", icon=":material/play_arrow:", type="primary"):
            run.start()
            st.rerun()
    if log.losses:
        _draw_curves(run)
    publish()


def _draw_curves(run: TuningRun) -> None:
    """Draw the losses, and the scores on what was held out."""
    log, kind = run.log, run.request.kind
    curves = {
        name: ([step for step, _ in log.held_out], [float(figures[name]) for _, figures in log.held_out])
        for name in ("loss", *kind.scores)
        if all(name in figures for _, figures in log.held_out)  # tags that mark no spans have no F1
    }
    losses = {"training": ([step for step, _ in log.losses], [loss for _, loss in log.losses])}
    if log.held_out:
        losses["held out"] = curves["loss"]
    left, right = st.columns(2, gap="medium")
    with left:
        figure = tuning_lines(losses, steps=log.steps, title="loss (nats)")
        chart(figure, key="tuning_losses", alt=f"Loss while training, now {log.losses[-1][1]:.3f} nats", grows=False)
    with right:
        if not log.held_out:
            write_note(f"Scores come after each epoch, on {kind.unit} that were held out.")
            return
        scores = {name: curves[figure] for figure, name in kind.scores.items() if figure in curves}
        first = next(iter(scores))
        figure = tuning_lines(scores, steps=log.steps, title=f"held-out {kind.unit}", shares=True)
        alt = f"Scores on held-out {kind.unit}, {first} now {scores[first][1][-1]:.1%}"
        chart(figure, key="tuning_scores", alt=alt, grows=False)


# ---------------------------------------------------------------------------- what changed


def _draw_changes(selection: Selection, run: TuningRun) -> None:
    """Draw how every head changed from the start to a kept step."""
    steps = run.steps
    numbers = list(steps)
    if len(numbers) < 2:
        return
    write_heading("What changed since the start?")
    preferred = tuned_step.value or numbers[-1]
    tuned_step.set(min(numbers[1:], key=lambda number: abs(number - preferred)))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        step = tuned_step(options=numbers[1:])
        colour()
    changes = load_comparison(run, steps, step)
    label = f"Compare step {step} with the start"
    comparison = confirm(label, compare_with_start(changes), quick=UNCONFIRMED_SECONDS)
    head_of_maps = _head_of_maps(changes, comparison)
    if comparison is not None:
        _draw_heads(run, comparison, head_of_maps)
    text, before = selection.original, changes.before
    encoding = before.tokenizer.encode(text.text, text.pair, max_length=before.config.max_position_embeddings)
    _draw_maps(changes, encoding, head_of_maps)
    draw_words(changes, encoding, quick=UNCONFIRMED_SECONDS)


def _head_of_maps(changes: StepComparison, comparison: ModelComparison | None) -> Head:
    """Return the selected head, if these models have it; that which changed most as long as none is selected."""
    state = st.session_state
    if comparison is not None and comparison.divergence is not None and not state.get(HEAD_CHOSEN):
        layer, head = np.unravel_index(np.nanargmax(comparison.divergence), comparison.divergence.shape)
        return int(layer), int(head)
    config = changes.before.config
    layer, head = state.head
    return (layer, head) if layer < config.num_hidden_layers and head < config.num_attention_heads else (0, 0)


def _draw_heads(run: TuningRun, comparison: ModelComparison, head_of_maps: Head) -> None:
    """Draw the grid of heads, and the similarity of the states of all depths."""
    assert comparison.divergence is not None  # a run changes no shape
    measure = colour.value
    if measure not in ("divergence", *comparison.before.figures):
        write_note("The start has no word head, so that no loss is asked: the heads are coloured by attention.")
        measure = "divergence"
    values = comparison.divergence if measure == "divergence" else comparison.change(measure)
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        head_grid(
            layers=len(values),
            heads=values.shape[1],
            values=values,
            signed=measure != "divergence",
            unit=UNITS[measure],
            selected=head_of_maps,
            titles=head_titles(comparison, values, measure),
            key="tuned_heads",
            on_click=choose_head,
        )
    with right:
        names = short_names(len(comparison.cka))
        figure = alike_depths(comparison.cka, names, names, rows="at the start", columns="at this step")
        alt = f"CKA of the depths of the start and this step, {comparison.cka[-1, -1]:.2f} at the last"
        chart(figure, key="tuned_cka", alt=alt, grows=False)
    kind = run.request.kind
    loss = (
        "that of the loss of these rows' classes, whose output is random at the start"
        if kind is KINDS["classes"]
        else f"that of the loss of hidden words, not of the {kind.name} that are learned"
    )
    write_note(
        f"On the first {comparison.texts} {kind.unit}, {comparison.tokens:,} tokens. **How to read this:** left, each "
        "head; right, how alike the states of two depths are (CKA), 1 for the same distances between tokens. **How it "
        f"can mislead:** a head may look elsewhere to no effect; importance is {loss}; with few tokens CKA is high for "
        f"any states (unbiased at the last depth {comparison.cka_unbiased[-1, -1]:.2f})."
    )


def _draw_maps(changes: StepComparison, encoding: Encoding, head_of_maps: Head) -> None:
    """Draw the attention of a head on the shared text, at the start and at the step."""
    layer, head = head_of_maps
    write_heading(f"L{layer} H{head} on the text above")
    models = {0: changes.before, changes.number: changes.after}
    for column, (number, model) in zip(st.columns(2, gap="medium"), models.items(), strict=True):
        with column:
            attention = wait_for(capture_step(model, encoding, number)).attention[layer, head]
            title = f"at step {number:,}" if number else "at the start"
            if not np.isfinite(attention).all():
                raise Refused(f"L{layer} H{head} was pruned: choose another head")
            figure = attention_heatmap(attention, encoding.tokens, encoding.tokens, signed=False, title=title)
            figure.update_layout(height=min(figure.layout.height, MAX_MAP_HEIGHT))
            alt = f"Attention of L{layer} H{head} {title}"
            chart(figure, key=f"tuned_map_{int(number > 0)}", alt=alt, grows=False)


# ---------------------------------------------------------------------------- what came out


def _draw_result(run: TuningRun) -> None:
    """Draw the buttons that open and download the best weights."""
    if not run.is_done:
        return
    log = run.log
    best = log.best_steps[-1] if log.best_steps else log.step
    figures, kind = dict(log.held_out).get(best, {}), run.request.kind
    write_heading("What came out")
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        open_it, icon = partial(open_model, str(run.folder)), ":material/open_in_new:"
        st.button("Open it on all pages", key="open_tuned", icon=icon, type="primary", on_click=open_it)
        file_button("Model as .zip", partial(zip_model, run.folder), f"{run.name}.zip")
    scores = ", ".join(f"{name} {figures[figure]:.1%}" for figure, name in kind.scores.items() if figure in figures)
    score_text = f" (of the held-out {kind.unit}: {scores})" if scores else ""
    write_note(
        f"The weights that did best, after step {best:,}{score_text}, in {escape_markdown(str(run.folder))}; kept "
        "steps in its folder *steps*. The same from a terminal: `headlight finetune`, with `--keep`."
    )


def _draw_deletion(run: TuningRun) -> None:
    """Draw the button that deletes the run, behind a confirmation."""
    with st.popover("Delete this run", icon=":material/delete:", width="content", key="delete_tuned"):
        if st.session_state.model == str(run.folder):
            write_note("This model is the one that all pages ask: choose another in the sidebar first.")
            return
        write_note(
            f"The folder {escape_markdown(str(run.folder))} is taken from the disk, with the model, the kept steps "
            "and the file that was uploaded. What is gone cannot be brought back."
        )
        delete, icon = partial(_delete, run), ":material/delete_forever:"
        st.button("Delete it for good", key="delete_tuned_now", icon=icon, type="primary", on_click=delete)


def _delete(run: TuningRun) -> None:
    """Delete a run and select none; callback of a button."""
    forget_model(str(run.folder))
    run.delete()
    tuned.set("")
    tuned_step.set(0)

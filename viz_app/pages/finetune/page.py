"""What changes while it learns?"""

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
from viz_app.pages.finetune import COLOURED_BY
from viz_app.pages.finetune.begin import draw_new_run
from viz_app.pages.finetune.changes import UNITS, Step, StepComparison, head_titles, zip_model
from viz_app.pages.finetune.words import draw_words
from viz_app.shell import frame, selection
from viz_app.shell.address import HEAD_CHOSEN, publish
from viz_app.shell.controls import control
from viz_app.shell.heads import choose_head
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.models import forget_model, open_model
from viz_app.shell.params import Head
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, page_place, write_heading, write_note
from viz_app.shell.work import is_confirmed, poll

REFRESH_SECONDS = 1.0  # seconds between two looks at a run
STEP_REFRESH_SECONDS = 15.0  # seconds after which newly kept steps are offered
UNCONFIRMED_SECONDS = 20.0  # seconds: two steps are compared unasked
MAP_HEIGHT = 580  # pixels at most
COLOUR_NAMES = {"divergence": "Attention", "importance": "Importance", "entropy": "How widely it looks"}


def draw(page: View) -> None:
    """Draw the page."""
    current, state = selection.current_selection(), st.session_state
    frame.title(
        "What changes while it learns?",
        "Teach the model classes of texts, tags of words, or answers to questions; see how every head changes.",
    )
    runs_by_name = {run.name: run for run in list_runs()}
    if state.tuned not in runs_by_name:
        state.tuned = ""
    with page_place("controls"):
        if runs_by_name:
            control(
                st.selectbox, "Run", "tuned", options=("", *runs_by_name), first="", width=320,
                format_func=lambda name: name or "A new run",
            )  # fmt: skip
        run = runs_by_name.get(state.tuned)
    with page_place("figure"):
        if run is None:
            draw_new_run(current)
            return
        running = run.is_running
        frame.fragment(_watch, run_every=REFRESH_SECONDS if running else None)(run, current, running, len(run.steps))
    try:
        _draw_changes(current, run)
    except (Refused, OSError):
        if state.tuned_step in run.steps:
            raise
        st.rerun()  # the run has let go of this step meanwhile: the nearest one that is kept
    if not running:
        _draw_result(run)
        _draw_deletion(run)


# ---------------------------------------------------------------------------- while it goes on


def _watch(run: TuningRun, current: Selection, running: bool, offered_steps: int) -> None:
    """How far it is, its curves, and its buttons; comes back by itself while it goes on.

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
        # The command parts what it says by two spaces.
        st.progress(min(share, 1.0), text=escape_markdown(run.last_line.replace("  ", " · ") or "Starting"))
        st.button("Stop", key="stop_tuning", icon=":material/stop:", on_click=run.stop)
    elif not run.is_done:
        if run.failure:
            st.error(with_help(escape_markdown(run.failure)), icon=":material/error:")
        else:
            progress_text = f"at step {log.step:,} of {log.steps:,}" if log.steps else "before it began"
            st.info(
                with_help(
                    f"It was stopped {progress_text}. It goes on from there, to the weights of a run without a stop."
                )
            )
        if st.button("Go on", key="go_on_tuning", icon=":material/play_arrow:", type="primary"):
            run.start()
            st.rerun()
    if log.losses:
        _draw_curves(current, run)
    publish()


def _draw_curves(current: Selection, run: TuningRun) -> None:
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
        chart(
            tuning_lines(losses, steps=log.steps, title="loss (nats)"),
            key="tuning_losses", grows=False, config={"displayModeBar": False},
            alt=f"Loss while training, now {log.losses[-1][1]:.3f} nats",
        )  # fmt: skip
    with right:
        if not log.held_out:
            write_note(f"Scores come after each epoch, on {kind.unit} that were held out.")
            return
        scores = {name: curves[figure] for figure, name in kind.scores.items() if figure in curves}
        first = next(iter(scores))
        chart(
            tuning_lines(
                scores, steps=log.steps, title=f"held-out {kind.unit}", shares=True,
            ),
            key="tuning_scores", grows=False, config={"displayModeBar": False},
            alt=f"Scores on held-out {kind.unit}, {first} now {scores[first][1][-1]:.1%}",
        )  # fmt: skip


# ---------------------------------------------------------------------------- what changed


def _draw_changes(current: Selection, run: TuningRun) -> None:
    """How every head changed from the start to a kept step."""
    state = st.session_state
    steps = run.steps
    numbers = list(steps)
    if len(numbers) < 2:
        return
    write_heading("What changed since the start?")
    if state.tuned_step not in numbers or not state.tuned_step:
        state.tuned_step = min(numbers[1:], key=lambda number: abs(number - (state.tuned_step or numbers[-1])))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        step = control(st.select_slider, "Kept step", "tuned_step", options=numbers[1:], width=420)
        colour = control(
            st.segmented_control, "Colour", "tuned_by", options=COLOURED_BY, format_func=COLOUR_NAMES.__getitem__,
            required=True,
        )  # fmt: skip
    changes = StepComparison(run, Step(0, steps[0]), Step(step, steps[step]))
    work, comparison = changes.model_comparison(), None
    if is_confirmed("tuned", work.key, f"Compare step {step} with the start", work.seconds, quick=UNCONFIRMED_SECONDS):
        comparison = poll(work, slot="tuned", request_slot="tuned").value
    head_of_maps = _select_head(changes, comparison)
    if comparison is not None:
        _draw_heads(current, run, comparison, colour, head_of_maps)
    loaded, text = changes.start.load_model(), current.original
    longest = loaded.config.max_position_embeddings
    encoding = loaded.tokenizer.encode(text.text, text.pair, max_length=longest)
    _draw_maps(current, changes, encoding, head_of_maps)
    draw_words(current, changes, encoding, quick=UNCONFIRMED_SECONDS)


def _select_head(changes: StepComparison, comparison: ModelComparison | None) -> Head:
    """The chosen head, if these models have it; the one that changed most, as long as none was chosen."""
    state = st.session_state
    if comparison is not None and comparison.divergence is not None and not state.get(HEAD_CHOSEN):
        layer, head = np.unravel_index(np.nanargmax(comparison.divergence), comparison.divergence.shape)
        return int(layer), int(head)
    config = changes.start.load_model().config
    layer, head = state.head
    return (layer, head) if layer < config.num_hidden_layers and head < config.num_attention_heads else (0, 0)


def _draw_heads(
    current: Selection, run: TuningRun, comparison: ModelComparison, colour: str, head_of_maps: Head
) -> None:
    """The grid of heads, and how alike the depths stay."""
    assert comparison.divergence is not None  # a run changes no shape
    if colour not in ("divergence", *comparison.before.figures):
        write_note("The start has no word head, so that no loss is asked: the heads are coloured by attention.")
        colour = "divergence"
    values = comparison.divergence if colour == "divergence" else comparison.change(colour)
    layers, heads = values.shape
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        head_grid(
            layers=layers, heads=heads, values=values, signed=colour != "divergence", unit=UNITS[colour],
            selected=head_of_maps, titles=head_titles(comparison, values, colour), key="tuned_heads",
            on_click=choose_head,
        )  # fmt: skip
    with right:
        names = short_names(len(comparison.cka))
        chart(
            alike_depths(
                comparison.cka, names, names, rows="at the start", columns="at this step",
            ),
            key="tuned_cka", grows=False, config={"displayModeBar": False},
            alt=f"CKA of the depths of the start and this step, {comparison.cka[-1, -1]:.2f} at the last",
        )  # fmt: skip
    kind = run.request.kind
    rests = (
        "that of the loss of these rows' classes, whose output is random at the start"
        if kind is KINDS["classes"]
        else f"that of the loss of hidden words, not of the {kind.name} that are learned"
    )
    write_note(
        f"On the first {comparison.texts} {kind.unit}, {comparison.tokens:,} tokens. **How to read this:** left, each "
        "head; "
        "right, how alike the states of two depths are (CKA), 1 for the same distances between tokens. **How it can "
        f"mislead:** a head may look elsewhere to no effect; importance is {rests}; with few tokens CKA is high for "
        f"any states (unbiased at the last depth {comparison.cka_unbiased[-1, -1]:.2f})."
    )


def _draw_maps(current: Selection, changes: StepComparison, encoding: Encoding, head_of_maps: Head) -> None:
    """The attention of the chosen head on the text above, at the start and at the step."""
    layer, head = head_of_maps
    write_heading(f"L{layer} H{head} on the text above")
    for place, step in zip(st.columns(2, gap="medium"), (changes.start, changes.step), strict=True):
        with place:
            run = changes.model_run(step, encoding)
            title = "at the start" if not step.number else f"at step {step.number:,}"
            if not np.isfinite(run.attention[layer, head]).all():
                raise Refused(f"L{layer} H{head} was pruned: choose another head")
            figure = attention_heatmap(
                run.attention[layer, head], encoding.tokens, encoding.tokens, signed=False, title=title,
            )  # fmt: skip
            figure.update_layout(height=min(figure.layout.height, MAP_HEIGHT))  # two stand side by side
            chart(
                figure, key=f"tuned_map_{int(bool(step.number))}", grows=False, config={"displayModeBar": False},
                alt=f"Attention of L{layer} H{head} {title}",
            )  # fmt: skip


# ---------------------------------------------------------------------------- what came out


def _draw_result(run: TuningRun) -> None:
    """The best weights, to be opened or taken along."""
    if not run.is_done:
        return
    log = run.log
    best = log.best_steps[-1] if log.best_steps else log.step
    figures, kind = dict(log.held_out).get(best, {}), run.request.kind
    write_heading("What came out")
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.button(
            "Open it on all pages", key="open_tuned", icon=":material/open_in_new:", type="primary",
            on_click=open_model, args=(str(run.folder),),
        )  # fmt: skip
        st.download_button(
            "Model as .zip", partial(zip_model, run.folder), f"{run.name}.zip", "application/zip", on_click="ignore",
            icon=":material/download:", key="tuned_zip",
        )  # fmt: skip
    scores = ", ".join(f"{name} {figures[figure]:.1%}" for figure, name in kind.scores.items() if figure in figures)
    score_text = f" (of the held-out {kind.unit}: {scores})" if scores else ""
    write_note(
        f"The weights that did best, after step {best:,}{score_text}, in {escape_markdown(str(run.folder))}; kept "
        "steps in its folder *steps*. The same from a terminal: `headlight finetune`, with `--keep`."
    )


def _draw_deletion(run: TuningRun) -> None:
    """A button that takes the run from the disk, behind a question."""
    with st.popover("Delete this run", icon=":material/delete:", width="content", key="delete_tuned"):
        if st.session_state.model == str(run.folder):
            write_note("This model is the one that all pages ask: choose another in the sidebar first.")
            return
        write_note(
            f"The folder {escape_markdown(str(run.folder))} is taken from the disk, with the model, the kept steps "
            "and the "
            "file that was uploaded. What is gone cannot be brought back."
        )
        st.button(
            "Delete it for good", key="delete_tuned_now", icon=":material/delete_forever:", type="primary",
            on_click=_delete, args=(run,),
        )  # fmt: skip


def _delete(run: TuningRun) -> None:
    """Delete a run and select none; callback of a button."""
    forget_model(str(run.folder))
    run.delete()
    st.session_state.tuned, st.session_state.tuned_step = "", 0

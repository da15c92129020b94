"""Draws the page Prune."""

from collections.abc import Hashable
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.pruning import curve_values, random_band, removable_head_count
from bert_core.pruning import Part
from bert_core.records import PruningPlan
from bert_core.refused import Refused
from bert_core.run.costs import Cost, Score
from bert_core.run.losses import existing_parts
from bert_core.tokenizer import Encoding
from viz_app.access import is_local_server
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.pruning import pruning_curve
from viz_app.pages.prune import FIGURES, ORDERS, figure, folder, full_shape, order, parts, pruned_percent, sensitivity
from viz_app.pages.prune.experiment import (
    MAX_FILE_BYTES,
    ORDERS_WITH_REFERENCE,
    STEPS,
    Experiment,
    curve_length,
    curve_points,
    extend_curve,
    head_importance,
    measure_costs,
    pruned_zip,
    rank_parts,
    read_plan,
    save_pruned,
    score_masked,
    score_pruned,
    stop_curve,
)
from viz_app.shell import frame
from viz_app.shell.address import end_run, publish
from viz_app.shell.change import largest_probability, nsp_change, nsp_sentence, set_reference_texts, word_change
from viz_app.shell.controls import file_control
from viz_app.shell.downloads import file_button
from viz_app.shell.heads import head_title, switch_heads
from viz_app.shell.markdown import escape_markdown, help_on_terms, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_heading, write_note
from viz_app.shell.work import (
    confirm,
    duration_text,
    finished_result,
    is_confirmed,
    is_requested,
    request,
    time_limit_message,
    wait_for,
    withdraw_request,
)

ORDER_NAMES = {
    "importance": "Gradient of the loss",
    "importance-in-layer": "Gradient, scaled by layer",
    "ablation": "Loss without each head",
    "ablation-mean": "Loss with its mean instead",
    "ablation-resample": "Loss with another output",
    "iterative": "Gradient, again every 10%",
}
LAYER_ORDER_NAMES = ORDER_NAMES | {"ablation": "Loss without each layer", "iterative": "Loss without each, again"}
UNITS = {
    "loss": "loss (nats)",
    "mlm": "share of hidden pieces guessed",
    "nsp": "share of pairs of sentences right",
    "parameters": "parameters",
    "tokens_per_second": "tokens per second",
}
SCORES = {"loss": ("Loss (nats)", "{:.3f}"), "mlm": ("Hidden pieces right", "{:.0%}"), "nsp": ("Pairs right", "{:.0%}")}
FULL_SHAPE_HELP = {
    "heads": "Keeps all shapes, with zeros in place of the heads, for other programs: same outputs, but not smaller or "
    "faster",
    "neurons": "Keeps all shapes, with zeros in place of the neurons, for other programs: same outputs, but not "
    "smaller or faster",
    "layers": "Counts the layers that are left anew, for other programs: same outputs, as small and as fast",
}
OPENING_PASSES = 5  # forward passes before the heads are drawn: the importance of the heads, and two scores
MAX_GAPS = 2
READING = (
    "Click a head to switch it off or on; click a row or column label to switch all of it. Colour: how much the "
    "loss changes, up or down, when this head alone is switched off (estimated from its gradient, mean over the "
    "examples). **How to read this:** heads near 0 are candidates to go; the numbers on the right show what "
    "really happens. **How it can mislead:** a gradient holds for one head and a small change; two heads that do "
    "the same job both look idle until both are gone."
)


def draw(page: View) -> None:
    """Draw the heads as switches, or an order of other parts, with the scores, the curve and the pruned model."""
    selection = page.selection.with_model(page.selection.plain)
    part_kind = parts.value
    part_count = int(existing_parts(selection.loaded, part_kind).sum())
    if page.selection.loaded.edits:
        write_note(
            f"The {part_kind} are taken out of the model as it was loaded, without what is changed for the text."
        )
    with page.controls(gap="small"):
        parts()
        with st.popover("Test on a file", width="content"):
            kind = "Text file: one paragraph per line, a blank line between documents"
            upload = file_control(st, kind, "lab_file", types=["txt"], megabytes=MAX_FILE_BYTES >> 20)
    if not part_count:
        st.info(with_help(f"All {part_kind} of this model were pruned: none is left to remove."))
        end_run()
    experiment = Experiment(selection, part_kind, upload)
    try:
        has_loss = experiment.has_loss
    except Refused as error:  # of the file: the text is used instead
        st.error(with_help(escape_markdown(f"The file cannot be used: {error}.")), icon=":material/error:")
        experiment = Experiment(selection, part_kind, None)
        has_loss = experiment.has_loss
    if not has_loss:
        st.info(
            with_help(
                "There is no loss to compute: it needs words, and a model with a trained masked-word or "
                f"{selection.loaded.pair_head} output."
            )
        )
        end_run()
    if part_kind == "heads":
        _draw_heads(page, experiment, part_count)
    else:
        _draw_other_parts(experiment, part_count)


def _is_begun(experiment: Experiment) -> bool:
    """Return whether the heads can be tested: at once if that is quick, or after the button that is drawn here."""
    rows = sum(len(batch.input_ids) for batch in experiment.batches)
    examples = f"{rows} copies of the text" if experiment.upload is None else f"{rows} examples of the file"
    return is_confirmed("lab", experiment.identity, f"Test on {examples}", experiment.seconds(OPENING_PASSES))


def _draw_heads(page: View, experiment: Experiment, head_count: int) -> None:
    """Draw the heads as switches with the scores, the controls of the order, the curve and the pruned model."""
    selection = experiment.selection
    if not _is_begun(experiment):
        write_note(
            "The model guesses the hidden pieces, and the gradient of its loss at every head is computed. After that, "
            "every click on a head shows what it changes."
        )
        end_run()
    importance = wait_for(head_importance(experiment))
    full = wait_for(score_masked(experiment, np.ones_like(selection.head_mask)))
    current = wait_for(score_masked(experiment, selection.head_mask))
    with page.controls(gap="small"):
        sensitivity()
        st.button("Switch off", on_click=_switch_off_below, args=(importance,), key="switch_below")
    left, right = page.figure().columns([1, 1], gap="large")
    with left:
        _draw_switches(selection, importance)
    with right:
        _write_removed(experiment, f"{len(selection.off)} of {head_count} heads are off.")
        _draw_scores(current, full)
        _draw_predictions(selection)
    page.read(READING)
    plan_key = (experiment.identity, order.value)
    _draw_order(experiment, head_count, plan_key)
    _draw_curve(experiment, (len(selection.off), current), head_count)
    _draw_pruned_model(experiment, selection.off)
    if is_requested("plan", plan_key):
        plan = wait_for(rank_parts(experiment, order.value, experiment.reference(order.value)))
        withdraw_request("plan")
        _switch_off_first(plan)


def _draw_other_parts(experiment: Experiment, part_count: int) -> None:
    """Draw the controls of the order, the scores without the first parts, the curve and the pruned model."""
    part_kind = experiment.part_kind
    if order.value not in ORDERS[part_kind]:  # an order of heads
        order.set(ORDERS[part_kind][0])
    removed_count = round(pruned_percent.value / 100 * part_count)
    plan_key = (experiment.identity, order.value, removed_count)
    _draw_order(experiment, part_count, plan_key)
    removed: tuple[Part, ...] = ()
    removed_score = None
    if is_requested("plan", plan_key) and removed_count:
        removed = wait_for(rank_parts(experiment, order.value, ())).order[:removed_count]
        full = wait_for(score_masked(experiment, np.ones_like(experiment.selection.head_mask)))
        score = wait_for(score_pruned(experiment, removed))
        removed_score = (removed_count, score)
        _write_removed(experiment, f"{removed_count:,} of {part_count:,} {part_kind} are gone.")
        _draw_scores(score, full)
    _draw_curve(experiment, removed_score, part_count)
    _draw_pruned_model(experiment, removed)


def _switch_off_below(importance: np.ndarray) -> None:
    """Switch off the heads whose importance (layer, head) is below the limit, and all others on."""
    st.session_state.off = tuple(map(tuple, np.argwhere(importance < sensitivity.value).tolist()))


def _switch_off_first(plan: PruningPlan) -> None:
    """Switch off the selected share of a plan, and all other heads on, and draw the page again."""
    st.session_state.off = tuple(sorted(plan.first(pruned_percent.value / 100)))
    st.rerun()


def _draw_switches(selection: Selection, importance: np.ndarray) -> None:
    """Draw every head as a switch. importance: (layer, head)."""
    layers, heads = importance.shape
    title = partial(head_title, selection, label="off, the loss moves by about", values=importance, unit="nats")
    head_grid(
        layers=layers,
        heads=heads,
        values=importance,
        mode="switch",
        off=selection.off,
        key="lab_switches",
        unit="how far switching the head off moves the loss, in nats",
        titles=[[title(layer=layer, head=head) for head in range(heads)] for layer in range(layers)],
        on_click=switch_heads,
    )


def _write_removed(experiment: Experiment, removed: str) -> None:
    examples = "the text above, each piece hidden once" if experiment.upload is None else "examples from the file"
    st.markdown(f"**{removed}** Tested on {examples}.")


def _draw_predictions(selection: Selection) -> None:
    """Draw the predictions of the selected text with all heads, and now."""
    full_run, run = selection.run(all_heads_on=True), selection.run()
    largest = largest_probability(full_run, run, gaps=MAX_GAPS)
    for prediction in run.predictions[:MAX_GAPS]:
        full_prediction = full_run.prediction_at(prediction.position)
        assert full_prediction is not None  # both runs have the same masked positions
        st.caption(f"{selection.gap(prediction.position)}, with all heads and now:")
        word_change(selection, full_prediction, prediction, top_k=4, largest=largest, key="lab_before_after")
    if run.nsp is not None and full_run.nsp is not None:
        st.caption(f"{nsp_sentence(full_run.nsp, run.nsp)}:")
        nsp_change(selection, full_run.nsp, run.nsp, key="lab_nsp")


def _draw_scores(score: Score, full: Score) -> None:
    """Draw the scores of a model, and their differences from those of the full model."""
    names = [name for name in SCORES if not np.isnan(getattr(score, name))]  # NaN: no example for it
    for column, name in zip(st.columns(len(names)), names, strict=True):
        label, form = SCORES[name]
        value, full_value = getattr(score, name), getattr(full, name)
        change = form.replace("{:", "{:+").format(value - full_value) if value != full_value else None
        column.metric(
            label,
            form.format(value),
            change,
            delta_color="inverse" if name == "loss" else "normal",
            border=True,
            height="stretch",
            help=help_on_terms(label),
        )


def _draw_order(experiment: Experiment, part_count: int, plan_key: object) -> None:
    """Draw the controls of the order and of the share that is removed, and the plan as a file."""
    part_kind, percent = experiment.part_kind, pruned_percent.value
    write_heading("Prune in which order, and how far?")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        method = order(options=ORDERS[part_kind], format_func=_order_names(part_kind).__getitem__)
        if method in ORDERS_WITH_REFERENCE:
            set_reference_texts()
        percent = pruned_percent(label=f"Share of {part_kind} to go")
        verb = "Switch off" if part_kind == "heads" else "Take out"
        label = f"{verb} the first {round(percent / 100 * part_count):,}"
        st.button(label, on_click=request, args=("plan", plan_key), key="carry_out")
        with st.popover("Plan file", help=help_on_terms("plan")):
            _draw_plan_file(experiment, method)


def _draw_plan_file(experiment: Experiment, method: str) -> None:
    plan = finished_result(rank_parts(experiment, method, experiment.reference(method)))
    if plan is not None:
        file_button("This order as a plan", plan.to_json(), f"{method}.json", icon=None)
    if experiment.part_kind != "heads":
        write_note("`headlight prune --plan` carries it out.")
        return
    upload = file_control(st, "A plan for this model", "lab_plan", types=["json"], megabytes=1)
    if upload is not None and st.button(f"Switch off {pruned_percent.value}% of it", key="carry_out_file"):
        _switch_off_first(read_plan(experiment.loaded, upload))


def _order_names(part_kind: str) -> dict[str, str]:
    return LAYER_ORDER_NAMES if part_kind == "layers" else ORDER_NAMES


def _draw_pruned_model(experiment: Experiment, removed: tuple[Part, ...]) -> None:
    """Draw the costs of the model without some parts, and the model as a file."""
    part_kind = experiment.part_kind
    write_heading("Prune for real")
    if not removed:
        hint = "Switch some heads off" if part_kind == "heads" else f"Take some {part_kind} out"
        write_note(f"{hint} above; then you can measure and download the smaller model here.")
        return
    if experiment.loaded.config.layers_per_group > 1:
        write_note(
            "The layers of this model share one set of weights. A smaller model cannot: each of its layers gets "
            "weights of its own first, so the file grows. Heads that are only switched off cost nothing."
        )
    costs = confirm("Measure size and speed", measure_costs(experiment, removed), quick=0)
    if costs is not None:
        _draw_costs(costs, part_kind)
    options = {"full_shape": full_shape(help=FULL_SHAPE_HELP[part_kind])}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        label = f"Model without {len(removed):,} {part_kind.removesuffix('s')}{'s' * (len(removed) > 1)} as .zip"
        file_button(label, partial(pruned_zip, experiment, removed, **options), "pruned.zip", key="zip")
        if is_local_server():
            path = folder()
            if st.button("Write", key="write_model"):
                path = escape_markdown(str(save_pruned(experiment, removed, path, **options)))
                st.success(with_help(f"Written to {path}: headlight app --models opens it."))


def _draw_costs(costs: tuple[Cost, ...], part_kind: str) -> None:
    columns = {
        "": [cost.variant for cost in costs],
        "parameters": [f"{cost.parameters:,}" for cost in costs],
        "memory": [f"{cost.nbytes / 2**20:.1f} MiB" for cost in costs],
    }
    for size in costs[0].seconds:
        columns[f"batch of {size}"] = [f"{1000 * cost.seconds[size]:.1f} ms" for cost in costs]
    st.table(columns)
    note = " Switching heads off without pruning never makes a model faster." if part_kind == "heads" else ""
    write_note(f"Median of three passes of the encoder over this text.{note}")


# ---------------------------------------------------------------------------- curve


def _draw_curve(experiment: Experiment, removed_score: tuple[int, Score] | None, part_count: int) -> None:
    """Draw the curve in a part of the page that runs alone while the curve is measured."""
    method = order.value
    reference = experiment.reference(method)
    key = (experiment.identity, method, reference)
    draw_alone = frame.fragment(_draw_measured_curve, run_every=1.0 if is_requested("curve", key) else None)
    draw_alone(experiment, method, reference, key, removed_score, part_count)


def _draw_measured_curve(
    experiment: Experiment,
    method: str,
    reference: tuple[Encoding, ...],
    key: Hashable,
    removed_score: tuple[int, Score] | None,
    part_count: int,
) -> None:
    """Draw the points of the curve so far, and the controls of its measurement.

    removed_score: number of parts that are removed on the page, and the score without them.
    """
    part_kind, is_running = experiment.part_kind, is_requested("curve", key)
    if is_running:
        _draw_progress(experiment, method, reference)
    points = list(curve_points(experiment, method, reference).values())
    missing = curve_length(part_count) - len(points)
    if missing > 0 and not is_running:
        seconds = missing * experiment.seconds_per_point()
        refusal = time_limit_message(seconds)
        label = f"{'Go on' if points else 'Draw the curve'}: prune {missing} times, about {duration_text(seconds)}"
        if st.button(label, key="start_curve", type="primary", disabled=refusal is not None, help=refusal):
            request("curve", key)
            st.rerun()  # the whole page, so that this part begins to run alone
    if not points:
        return
    name = figure()
    band = random_band(points, name)
    removed_value = None if removed_score is None else getattr(removed_score[1], name, None)
    curve = pruning_curve(
        [(_order_names(part_kind)[method], *curve_values(points, method, name))],
        band[:4],
        current_point=None if removed_score is None or removed_value is None else (removed_score[0], removed_value),
        part_name=part_kind,
        total=part_count,
        unit=UNITS[name],
    )
    alt = f"{FIGURES[name]} against the share of {part_kind} gone, beside {band.orders} random orders"
    chart(curve, key="curve", grows=False, alt=alt)
    removable = removable_head_count(points, method)
    write_note(
        f"In this order, {removable:,} of {part_count:,} {part_kind} can go before the loss rises by more than 1% "
        f"(tested in {min(STEPS, part_count)} steps). **How to read this:** every point is a model that was really "
        f"pruned; the grey band is the range of {band.orders} random orders. **How it can mislead:** orders and "
        "results come from the same few examples; inside the band an order is no better than chance; another text may "
        f"need other {part_kind}."
    )
    publish()


def _draw_progress(experiment: Experiment, method: str, reference: tuple[Encoding, ...]) -> None:
    """Draw the progress of the measurement, and a button that stops it; draw the page again when it ends."""
    share = extend_curve(experiment, method, reference)
    if share is not None:
        st.progress(share, text=f"{share:.0%} of the models are pruned and tested")
        if not st.button("Stop", key="stop_curve"):
            return
        stop_curve(experiment, method, reference)
    withdraw_request("curve")
    st.rerun()

"""Draws the page Pruning."""

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.pruning import curve_values, random_band, removable_head_count
from bert_core.pruning import Part
from bert_core.records import CurvePoint, ModelRun, PruningPlan
from bert_core.refused import Refused
from bert_core.run.costs import Cost, Score
from bert_core.run.losses import existing_parts
from bert_core.tokenizer import Encoding
from viz_app.access import is_local_server
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.pruning import pruning_curve
from viz_app.figures.style import current_look
from viz_app.pages.prune import (
    ORDERS,
    TEXTS,
    figure,
    folder,
    full_shape,
    order,
    parts,
    pruned_percent,
    sensitivity,
)
from viz_app.pages.prune.experiment import (
    MAX_FILE_BYTES,
    ORDERS_WITH_REFERENCE,
    Experiment,
    curve_length,
    curve_points,
    extend_curve,
    head_importance,
    measure_costs,
    pruned_zip,
    rank_parts,
    read_plan,
    removed_counts,
    run_pruned,
    save_pruned,
    score_masked,
    score_pruned,
    stop_curve,
)
from viz_app.shell import frame
from viz_app.shell.address import end_run, publish
from viz_app.shell.change import largest_probability, nsp_change, nsp_sentence, reference, word_change
from viz_app.shell.controls import Upload, file_control
from viz_app.shell.downloads import file_button
from viz_app.shell.heads import head_title, switch_heads
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, add_file, chart, write_heading, write_line, write_note
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
    "heads": TEXTS.options("orders"),
    "neurons": TEXTS.options("orders"),
    "layers": TEXTS.options("orders") | TEXTS.options("layer_orders"),
}
UNITS = TEXTS.options("units")
SCORES = {"loss": "{:.2f}", "mlm": "{:.0%}", "nsp": "{:.0%}"}
LIMITS = {0.01: "1%", 0.1: "10%", 1.0: "100%"}  # rises of the loss of which the sentence of a curve tells
OPENING_PASSES = 5  # forward passes before the heads are drawn: the importance of the heads, and two scores
OPENING_SECONDS = 5.0  # that these passes may take without a button
MAX_GAPS = 2


def draw(page: View) -> None:
    """Draw the heads or other parts, with the curve of an order beside them, and the pruned model."""
    selection = page.selection.with_model(page.selection.plain)
    controls = page.controls(gap="small")
    with controls:
        part_kind = parts()
    part_count = int(existing_parts(selection.loaded, part_kind).sum())
    if not part_count:
        with page.figure():
            st.info(with_help(f"All {part_kind} of this model were pruned: none is left to remove."))
        end_run()
    upload: Upload | None = st.session_state.get("lab_file")
    experiment = Experiment(selection, part_kind, upload)
    with page.figure():
        try:
            has_loss = experiment.has_loss
        except Refused as error:  # of the file: the text is used instead
            st.error(with_help(escape_markdown(f"The file cannot be used: {error}.")), icon=":material/error:")
            experiment = Experiment(selection, part_kind, None)
            has_loss = experiment.has_loss
    with controls:
        _draw_order(page, experiment, part_count)
    if not has_loss:
        with page.figure():
            st.info(with_help(TEXTS["no_loss"].format(pair_head=selection.loaded.pair_head)))
        end_run()
    (_draw_heads if part_kind == "heads" else _draw_other_parts)(page, experiment, part_count)
    page.read(TEXTS["reading" if part_kind == "heads" else "reading_of_curve"], TEXTS["misleads"])
    if page.selection.loaded.edits:
        write_note(TEXTS["unmodified"])


def _plan_key(experiment: Experiment, part_count: int) -> Hashable:
    """Return the key of the request to remove the first parts of an order."""
    return experiment.identity, order.value, _removed_count(part_count) if experiment.part_kind != "heads" else None


def _removed_count(part_count: int) -> int:
    return round(pruned_percent.value / 100 * part_count)


def _draw_order(page: View, experiment: Experiment, part_count: int) -> None:
    """Draw the controls of the order, of the share that is removed, and the options."""
    part_kind = experiment.part_kind
    method = order(options=ORDERS[part_kind], format_func=ORDER_NAMES[part_kind].__getitem__)
    pruned_percent()
    verb = "Switch off" if part_kind == "heads" else "Remove"
    label = f"{verb} the first {_removed_count(part_count):,}"
    st.button(label, on_click=_request_plan, args=(experiment, part_count), key="carry_out")
    has_reference, has_sensitivity = method in ORDERS_WITH_REFERENCE, part_kind == "heads"
    with page.options(figure, *(reference,) * has_reference, *(sensitivity,) * has_sensitivity):
        figure()
        if has_reference:
            reference()
        if has_sensitivity:
            sensitivity()
            st.button("Switch these heads off", on_click=_switch_off_below, args=(experiment,), key="switch_below")
        file_control(st, TEXTS["upload"], "lab_file", types=["txt"], megabytes=MAX_FILE_BYTES >> 20)
        _draw_plan_file(experiment, method)


def _request_plan(experiment: Experiment, part_count: int) -> None:
    """Request the removal of the first parts of the order; a callback."""
    request("plan", _plan_key(experiment, part_count))


def _switch_off_below(experiment: Experiment) -> None:
    """Switch off the heads whose importance is below the limit, and all others on; a callback."""
    importance = finished_result(head_importance(experiment))
    if importance is not None:
        st.session_state.off = tuple(map(tuple, np.argwhere(importance < sensitivity.value).tolist()))


def _switch_off_first(plan: PruningPlan) -> None:
    """Switch off the selected share of a plan, and all other heads on, and draw the page again."""
    st.session_state.off = tuple(sorted(plan.first(pruned_percent.value / 100)))
    st.rerun()


def _draw_plan_file(experiment: Experiment, method: str) -> None:
    """Offer the order as a plan in Export, and draw the control that carries out the plan of a file."""
    plan = None
    if method not in ORDERS_WITH_REFERENCE:
        plan = finished_result(rank_parts(experiment, method, ()))
    if plan is not None:
        add_file("Pruning plan (JSON)", plan.to_json, f"{method}.json")
    if experiment.part_kind != "heads":
        write_note(TEXTS["plan_command"])
        return
    upload = file_control(st, "A plan for this model", "lab_plan", types=["json"], megabytes=1)
    if upload is not None and st.button(f"Switch off {pruned_percent.value}% of it", key="carry_out_file"):
        _switch_off_first(read_plan(experiment.loaded, upload))


# ---------------------------------------------------------------------------- parts


def _is_begun(experiment: Experiment) -> bool:
    """Return whether the heads can be tested: at once if that is quick, or after the button that is drawn here."""
    rows = sum(len(batch.input_ids) for batch in experiment.batches)
    examples = f"{rows} copies of the text" if experiment.upload is None else f"{rows} examples of the file"
    seconds = experiment.seconds(OPENING_PASSES)
    return is_confirmed("lab", experiment.identity, f"Test on {examples}", seconds, quick=OPENING_SECONDS)


def _draw_heads(page: View, experiment: Experiment, head_count: int) -> None:
    """Draw the heads as switches with the scores, beside the curve; below them the pruned model."""
    selection = experiment.selection
    with page.figure():
        if not _is_begun(experiment):
            write_note(TEXTS["before_first_run"])
            end_run()
        importance = wait_for(head_importance(experiment))
        full = wait_for(score_masked(experiment, np.ones_like(selection.head_mask)))
        current = wait_for(score_masked(experiment, selection.head_mask))
    left, right = page.figure().columns([3, 2], gap="large")
    with left:
        _write_result(experiment, f"{len(selection.off)} of {head_count} heads are off.", current, full)
        _draw_switches(selection, importance)
    with right:
        is_begun = _draw_curve(experiment, (len(selection.off), current), head_count)
        if not is_begun:
            _draw_predictions(experiment, selection.run())
    if is_begun:
        _draw_predictions(experiment, selection.run())
    _draw_pruned_model(experiment, selection.off)
    if is_requested("plan", _plan_key(experiment, head_count)):
        plan = wait_for(rank_parts(experiment, order.value, experiment.reference(order.value)))
        withdraw_request("plan")
        _switch_off_first(plan)


def _draw_other_parts(page: View, experiment: Experiment, part_count: int) -> None:
    """Draw the scores without the first parts and the pruned model, beside the curve."""
    part_kind = experiment.part_kind
    removed: tuple[Part, ...] = ()
    removed_count = _removed_count(part_count)
    left, right = page.figure().columns([2, 3], gap="large")
    with left:
        score = full = wait_for(score_masked(experiment, np.ones_like(experiment.selection.head_mask)))
        if is_requested("plan", _plan_key(experiment, part_count)) and removed_count:
            removed = wait_for(rank_parts(experiment, order.value, ())).order[:removed_count]
            score = wait_for(score_pruned(experiment, removed))
        _write_result(experiment, f"{len(removed):,} of {part_count:,} {part_kind} are removed.", score, full)
        if not removed:
            write_note(TEXTS["order_hint"].format(parts=part_kind))
        _draw_pruned_model(experiment, removed)
        selection = experiment.selection
        run = selection.run(all_heads_on=True)
        if removed:
            run = wait_for(run_pruned(experiment, removed, selection.encoding))
    with right:
        is_begun = _draw_curve(experiment, (len(removed), score), part_count)
        if not is_begun:
            _draw_predictions(experiment, run)
    if is_begun:
        _draw_predictions(experiment, run)


def _write_result(experiment: Experiment, removed: str, score: Score, full: Score) -> None:
    """Write what is removed, the scores without it, and in brackets their changes from those of the full model."""
    results = []
    for name, form in SCORES.items():
        value, full_value = getattr(score, name), getattr(full, name)
        if np.isnan(value):  # no example for it
            continue
        change = form.replace("{:", "{:+").format(value - full_value).replace("-", "−")
        results.append(f"{UNITS[name]} {form.format(value)}" + (f" ({change})" if value != full_value else ""))
    tested = TEXTS["tested_on_text" if experiment.upload is None else "tested_on_file"]
    write_line(f"**{removed}** {'; '.join(results).capitalize()}. {tested}")


def _draw_switches(selection: Selection, importance: np.ndarray) -> None:
    """Draw every head as a switch. importance: (layer, head)."""
    layers, heads = importance.shape
    title = partial(head_title, selection, label="without it the loss changes by about", values=importance, unit="nats")
    head_grid(
        layers=layers,
        heads=heads,
        values=importance,
        mode="switch",
        off=selection.off,
        key="lab_switches",
        unit="estimated change of the loss without the head, in nats",
        titles=[[title(layer=layer, head=head) for head in range(heads)] for layer in range(layers)],
        on_click=switch_heads,
    )


def _draw_predictions(experiment: Experiment, run: ModelRun) -> None:
    """Draw the predictions of the selected text with all parts, and in a run without the removed ones."""
    selection, part_kind = experiment.selection, experiment.part_kind
    full_run = selection.run(all_heads_on=True)
    largest = largest_probability(full_run, run, gaps=MAX_GAPS)
    for prediction in run.predictions[:MAX_GAPS]:
        full_prediction = full_run.prediction_at(prediction.position)
        assert full_prediction is not None  # both runs have the same masked positions
        st.caption(f"{selection.gap(prediction.position)}, with all {part_kind} and now:")
        word_change(selection, full_prediction, prediction, top_k=6, largest=largest, key="lab_before_after")
    if run.nsp is not None and full_run.nsp is not None and not current_look().lecture:
        st.caption(f"{nsp_sentence(full_run.nsp, run.nsp, part_kind)}:")
        nsp_change(selection, full_run.nsp, run.nsp, key="lab_nsp")


def _draw_pruned_model(experiment: Experiment, removed: tuple[Part, ...]) -> None:
    """Draw the costs of the model without some parts, and the model as a file."""
    part_kind = experiment.part_kind
    if not removed:
        return
    write_heading("Pruned model")
    if experiment.loaded.config.layers_per_group > 1:
        write_note(TEXTS["shared_weights"])
    costs = confirm("Measure size and speed", measure_costs(experiment, removed), quick=0)
    if costs is not None:
        _draw_costs(costs, part_kind)
    options = {"full_shape": full_shape(help=TEXTS[f"full_shape.{part_kind}"])}
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
    write_note(f"{TEXTS['costs']} {TEXTS['costs_of_heads']}" if part_kind == "heads" else TEXTS["costs"])


# ---------------------------------------------------------------------------- curve


def _draw_curve(experiment: Experiment, removed_score: tuple[int, Score], part_count: int) -> bool:
    """Draw the curve in a part of the page that runs alone while it is measured; return whether it has begun.

    removed_score: number of parts that are removed on the page, and the score without them.
    """
    method = order.value
    texts = experiment.reference(method)
    key = (experiment.identity, method, texts)
    is_running = is_requested("curve", key)
    draw_alone = frame.fragment(_draw_measured_curve, run_every=1.0 if is_running else None)
    draw_alone(experiment, method, texts, key, removed_score, part_count)
    return is_running or bool(curve_points(experiment, method, texts))


def _draw_measured_curve(
    experiment: Experiment,
    method: str,
    texts: tuple[Encoding, ...],
    key: Hashable,
    removed_score: tuple[int, Score],
    part_count: int,
) -> None:
    """Draw the points of the curve so far, and the controls of its measurement."""
    part_kind, is_running = experiment.part_kind, is_requested("curve", key)
    if is_running:
        _draw_progress(experiment, method, texts)
    points = list(curve_points(experiment, method, texts).values())
    missing = curve_length(part_count) - len(points)
    if missing > 0 and not is_running:
        seconds = missing * experiment.seconds_per_point()
        refusal = time_limit_message(seconds)
        label = f"{'Resume' if points else 'Draw the curve'}: prune {missing} times, about {duration_text(seconds)}"
        if st.button(label, key="start_curve", type="primary", disabled=refusal is not None, help=refusal):
            request("curve", key)
            st.rerun()  # the whole page, so that this part begins to run alone
    if not points:
        return
    name, order_name = figure.value, ORDER_NAMES[part_kind][method]
    band = random_band(points, name)
    removed, values = curve_values(points, method, name)
    if len(removed) == len(removed_counts(part_count)):
        write_line(curve_sentence(points, method, name, part_kind))
    removed_value = getattr(removed_score[1], name, None)
    curve = pruning_curve(
        [(order_name, removed, values)],
        band[:4],
        current_point=None if removed_value is None else (removed_score[0], removed_value),
        part_name=part_kind,
        total=part_count,
        unit=UNITS[name],
    )
    alt = f"{UNITS[name]} against the share of removed {part_kind}, with {band.orders} random orders".capitalize()
    chart(curve, key="curve", alt=alt, min_share=0.6)
    publish()


def curve_sentence(points: Sequence[CurvePoint], method: str, name: str, part_kind: str) -> str:
    """Return what the complete curve of an order shows.

    Of the loss: up to how many removed parts it stays within each of `LIMITS`. Of another figure: its values with all
    parts, with half of them and with none.
    """
    removed, values = curve_values(points, method, name)
    total = int(removed[-1])
    if name != "loss":
        original, middle, last = (f"{value:,.3g}" for value in values[[0, len(values) // 2, -1]])
        return (
            f"{UNITS[name].capitalize()} in this order: **{original}** with all {part_kind}, **{middle}** with "
            f"{int(removed[len(values) // 2]):,} of {total:,} removed, **{last}** without any."
        )
    counts = {limit: removable_head_count(points, method, tolerance) for tolerance, limit in LIMITS.items()}
    first_limits: dict[int, str] = {}  # of several limits with the same count, the lowest
    for limit, count in counts.items():
        first_limits.setdefault(count, limit)
    (count, limit), *later_limits = first_limits.items()
    sentence = f"In this order, the loss rises by at most {limit} up to **{count:,} of {total:,}** removed {part_kind}"
    for later_count, later_limit in later_limits:
        sentence += f", by at most {later_limit} up to **{later_count:,}**"
    return f"{sentence} ({len(removed) - 1} steps tested)."


def _draw_progress(experiment: Experiment, method: str, texts: tuple[Encoding, ...]) -> None:
    """Draw the progress of the measurement, and a button that stops it; draw the page again when it ends."""
    progress = extend_curve(experiment, method, texts)
    if progress is not None:
        share, text = progress
        st.progress(share, text=escape_markdown(text))
        if not st.button("Stop", key="stop_curve"):
            return
        stop_curve(experiment, method, texts)
    withdraw_request("curve")
    st.rerun()

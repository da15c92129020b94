"""Which heads, neurons or layers can go?"""

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.pruning import curve_values, random_band, removable_head_count
from bert_core.pruning import PRUNABLE_PARTS, Part
from bert_core.refused import Refused
from bert_core.run.costs import Score
from bert_core.run.losses import existing_parts
from viz_app.access import is_local_server
from viz_app.components.head_grid.view import head_grid
from viz_app.figures.pruning import pruning_curve
from viz_app.pages.prune import FIGURES, OFFERED
from viz_app.pages.prune.history import remember, step, switch_off_below
from viz_app.pages.prune.questions import LARGEST_FILE, STEPS, PruningQuestions
from viz_app.shell import frame, selection
from viz_app.shell.address import end_run, publish
from viz_app.shell.change import largest_probability, nsp_change, nsp_sentence, set_reference_texts, word_change
from viz_app.shell.controls import control, file_control
from viz_app.shell.heads import head_title, switch_heads
from viz_app.shell.markdown import escape_markdown, help_on_terms, with_help
from viz_app.shell.view import View, chart, page_place, write_heading, write_note, write_reading
from viz_app.shell.work import duration_text, is_requested, request, time_limit_message, withdraw_request

ORDER_NAMES = {
    "importance": "Gradient of the loss", "importance-in-layer": "Gradient, scaled by layer",
    "ablation": "Loss without each head", "ablation-mean": "Loss with its mean instead",
    "ablation-resample": "Loss with another output", "iterative": "Gradient, again every 10%",
}  # fmt: skip
FIGURE_NAMES = {
    "loss": "Loss", "mlm": "Hidden pieces", "nsp": "Pairs", "parameters": "Parameters",
    "tokens_per_second": "Speed",
}  # fmt: skip
UNITS = {
    "loss": "loss (nats)", "mlm": "share of hidden pieces guessed", "nsp": "share of pairs of sentences right",
    "parameters": "parameters", "tokens_per_second": "tokens per second",
}  # fmt: skip
NAMES_OF_LAYERS = {"ablation": "Loss without each layer", "iterative": "Loss without each, again"}
FULL_SHAPE = {
    "heads": "Keeps all shapes, with zeros in place of the heads, for other programs: same outputs, but not smaller or "
    "faster",
    "neurons": "Keeps all shapes, with zeros in place of the neurons, for other programs: same outputs, but not "
    "smaller or faster",
    "layers": "Counts the layers that are left anew, for other programs: same outputs, as small and as fast",
}
SHOWN_GAPS = 2


def draw(page: View) -> None:
    """Draw the page."""
    asked, state = selection.current_selection(), st.session_state
    current = asked.with_model(asked.plain)
    what = state.parts
    there = int(existing_parts(current.loaded, what).sum())
    frame.title(f"Which {what} can go?", f"How many {what} the model can lose before it gets worse, and which ones.")
    if asked.loaded.edits:
        write_note(f"The {what} are taken out of the model as it was loaded, without what is changed for the text.")
    with page_place("controls"), st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        control(
            st.segmented_control, "What goes", "parts", options=PRUNABLE_PARTS, format_func=str.capitalize,
            required=True,
        )  # fmt: skip
        with st.popover("Test on a file", width="content"):
            file = file_control(
                st, "Text file: one paragraph per line, a blank line between documents", "lab_file", types=["txt"],
                megabytes=LARGEST_FILE >> 20,
            )  # fmt: skip
    if not there:
        st.info(with_help(f"All {what} of this model were pruned: none is left to remove."))
        end_run()
    try:
        questions = PruningQuestions(current, file, what)
    except Refused as error:  # of the file: the text is asked instead, and the control stays
        st.error(with_help(escape_markdown(f"The file cannot be used: {error}.")), icon=":material/error:")
        questions = PruningQuestions(current, None, what)
    if not questions.can_ask:
        st.info(
            with_help(
                "There is no loss to compute: it needs words, and a model with a trained masked-word or "
                f"{current.loaded.pair_head} output."
            )
        )
        end_run()
    if what != "heads":
        _other_parts(questions, there)
        return
    if not questions.may_begin():
        write_note(
            "The model guesses the hidden pieces, and the gradient of its loss at every head is computed. After that, "
            "every click on a head shows what it changes."
        )
        end_run()
    worth = questions.importance()
    everything, now = questions.with_all(), questions.score(current.head_mask)

    left, right = page_place("figure").columns([1, 1], gap="large")
    with left:
        _switches(questions, worth)
    with right:
        _now(questions, everything, now, there)
    plan_key = (questions.key, state.order)
    _order(questions, there, plan_key)
    curve_key = (questions.key, state.order, questions.reference(state.order))
    running = is_requested("curve", curve_key)
    # A part of the page that comes back by itself while the curve is made.
    own = (len(current.off), now)
    frame.fragment(_curve, run_every=1.0 if running else None)(questions, own, there, curve_key)
    _for_real(questions, current.off)
    if is_requested("plan", plan_key):
        plan = questions.plan(state.order)
        withdraw_request("plan")
        questions.carry_out(plan, state.going / 100)
        st.rerun()


def _other_parts(questions: PruningQuestions, there: int) -> None:
    """Neurons or layers: an order, how many go, its curve, and the model without them. there: how many there are."""
    state, what = st.session_state, questions.what
    offered = OFFERED[what]
    if state.order not in offered:  # an order of heads
        state.order = offered[0]
    count = round(state.going / 100 * there)
    plan_key = (questions.key, what, state.order, count)
    _order(questions, there, plan_key)
    gone: tuple[Part, ...] = ()
    own = None
    if is_requested("plan", plan_key) and count:
        gone = questions.plan(state.order).order[:count]
        everything, left = questions.with_all(), questions.score_without(gone)
        own = (count, left)
        tested = "examples from the file" if questions.of_file else "the text above, each piece hidden once"
        st.markdown(f"**{count:,} of {there:,} {what} are gone.** Tested on {tested}.")
        _figures(left, everything)
    curve_key = (questions.key, what, state.order)
    running = is_requested("curve", curve_key)
    frame.fragment(_curve, run_every=1.0 if running else None)(questions, own, there, curve_key)
    _for_real(questions, gone)


def _switches(questions: PruningQuestions, worth: np.ndarray) -> None:
    """Every head as a switch. worth: (layer, head), the size of the loss's slope at each."""
    current = questions.current
    layers, heads = worth.shape
    can_undo, can_redo = remember(current.loaded.name)
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.button("Undo", on_click=step, args=(-1,), disabled=not can_undo, key="undo")
        st.button("Redo", on_click=step, args=(1,), disabled=not can_redo, key="redo")
        control(
            st.number_input,
            "Sensitivity below",
            "lab_below",
            first=0.01,
            min_value=0.0,
            step=0.01,
            format="%.3g",
            width=170,
        )
        st.button("Switch off", on_click=switch_off_below, args=(worth, "lab_below"), key="switch_below")
    head_grid(
        layers=layers, heads=heads, values=worth, mode="switch", off=current.off, key="lab_switches",
        unit="how far switching the head off moves the loss, in nats",
        titles=[[head_title(current, layer, head, "off, the loss moves by about", worth, "nats")
                 for head in range(heads)] for layer in range(layers)], on_click=switch_heads,
    )  # fmt: skip
    write_reading(
        "Click a head to switch it off or on; click a row or column label to switch all of it. Colour: how much the "
        "loss changes, up or down, when this head alone is switched off (estimated from its gradient, mean over the "
        "examples). **How to read this:** heads near 0 are candidates to go; the numbers on the right show what "
        "really happens. **How it can mislead:** a gradient holds for one head and a small change; two heads that do "
        "the same job both look idle until both are gone."
    )


def _now(questions: PruningQuestions, everything: Score, now: Score, there: int) -> None:
    """What the model gets right and predicts with all heads, and now. there: how many heads there are."""
    current = questions.current
    what = "examples from the file" if questions.of_file else "the text above, each piece hidden once"
    st.markdown(f"**{len(current.off)} of {there} heads are off.** Tested on {what}.")
    _figures(now, everything)
    before, after = current.run(all_heads_on=True), current.run()
    largest = largest_probability(before, after, gaps=SHOWN_GAPS)
    for prediction in after.predictions[:SHOWN_GAPS]:
        original = before.prediction_at(prediction.position)
        assert original is not None  # both runs were asked for the same positions
        st.caption(f"{current.gap(prediction.position)}, with all heads and now:")
        word_change(current, original, prediction, each=4, largest=largest, key="lab_before_after")
    if after.nsp is not None and before.nsp is not None:
        st.caption(f"{nsp_sentence(before.nsp, after.nsp)}:")
        nsp_change(current, before.nsp, after.nsp, key="lab_nsp")


def _figures(now: Score, everything: Score) -> None:
    """What a model gets right now, and the change from the whole model."""
    figures = [("Loss (nats)", now.loss, everything.loss, "{:.3f}")]
    if now.mlm == now.mlm:  # NaN where nothing was asked
        figures.append(("Hidden pieces right", now.mlm, everything.mlm, "{:.0%}"))
    if now.nsp == now.nsp:
        figures.append(("Pairs right", now.nsp, everything.nsp, "{:.0%}"))
    for column, (name, value, before_value, form) in zip(st.columns(len(figures)), figures, strict=True):
        change = form.replace("{:", "{:+").format(value - before_value) if value != before_value else None
        column.metric(
            name,
            form.format(value),
            change,
            delta_color="inverse" if name == "Loss (nats)" else "normal",
            border=True,
            height="stretch",
            help=help_on_terms(name),
        )


def _order(questions: PruningQuestions, there: int, plan_key: Hashable) -> None:
    """In which order they go, and how many."""
    state, what = st.session_state, questions.what
    names = ORDER_NAMES | (NAMES_OF_LAYERS if what == "layers" else {})
    write_heading("Prune in which order, and how far?")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        control(st.selectbox, "Order", "order", options=OFFERED[what], format_func=names.__getitem__, width=255)
        if questions.needs_reference(state.order):
            set_reference_texts()
        control(st.slider, f"Share of {what} to go", "going", min_value=0, max_value=100, format="%d%%", width=170)
        st.button(
            f"{'Switch off' if what == 'heads' else 'Take out'} the first {round(state.going / 100 * there):,}",
            on_click=request, args=("plan", plan_key), key="carry_out",
        )  # fmt: skip
        with st.popover("Plan file", help=help_on_terms("plan")):
            if (made := questions.made_plan(state.order)) is not None:
                st.download_button(
                    "This order as a plan", made.to_json(), f"{state.order}.json", "application/json",
                    on_click="ignore", key="plan_file",
                )  # fmt: skip
            if what != "heads":
                write_note("`headlight prune --plan` carries it out.")
                return
            given = file_control(st, "A plan for this model", "lab_plan", types=["json"], megabytes=1)
            if given is not None and st.button(f"Switch off {state.going}% of it", key="carry_out_file"):
                questions.carry_out(questions.read_plan(given), state.going / 100)
                st.rerun()


def _for_real(questions: PruningQuestions, gone: Sequence[Part]) -> None:
    """The smaller model: what it costs, and as a file. gone: what it does without."""
    what = questions.what
    write_heading("Prune for real")
    if not gone:
        how = "Switch some heads off" if what == "heads" else f"Take some {what} out"
        write_note(f"{how} above; then you can measure and download the smaller model here.")
    else:
        if questions.current.loaded.config.layers_per_group > 1:
            write_note(
                "The layers of this model share one set of weights. A smaller model cannot: each of its layers gets "
                "weights of its own first, so the file grows. Heads that are only switched off cost nothing."
            )
        cost_key = (questions.key, what, gone)
        full_shape = control(st.toggle, "Full shape, with zeros", "full_shape", first=False,
                               help=FULL_SHAPE[what])  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            seconds = questions.seconds_to_measure()
            st.button(
                f"Measure size and speed, about {duration_text(seconds)}", on_click=request, args=("costs", cost_key),
                key="measure_costs", disabled=(refused := time_limit_message(seconds)) is not None, help=refused,
            )  # fmt: skip
            st.download_button(
                f"Model without {len(gone):,} {what.removesuffix('s')}{'s' * (len(gone) > 1)} as .zip",
                partial(questions.file, gone, full_shape=full_shape),
                "pruned.zip", "application/zip", on_click="ignore", icon=":material/download:", key="zip",
            )  # fmt: skip
            if is_local_server():
                folder = control(
                    st.text_input,
                    "Or write it to a folder",
                    "lab_place",
                    first="",
                    placeholder="models/pruned",
                    width=260,
                )
                if st.button("Write", key="write_model"):
                    written = questions.save(gone, folder, full_shape=full_shape)
                    st.success(
                        with_help(f"Written to {escape_markdown(str(written))}: headlight app --models opens it.")
                    )
        if is_requested("costs", cost_key):
            full, *_ = costs = questions.costs(gone)
            st.table(
                {
                    "": [cost.variant for cost in costs],
                    "parameters": [f"{cost.parameters:,}" for cost in costs],
                    "memory": [f"{cost.nbytes / 2**20:.1f} MiB" for cost in costs],
                    **{
                        f"batch of {size}": [f"{1000 * cost.seconds[size]:.1f} ms" for cost in costs]
                        for size in full.seconds
                    },
                }
            )
            write_note(
                "Median of three passes of the encoder over this text."
                + (" Switching heads off without pruning never makes a model faster." if what == "heads" else "")
            )


def _curve(questions: PruningQuestions, chosen: tuple[int, Score] | None, there: int, curve_key: Hashable) -> None:
    """The curve; grows by itself while it is made.

    chosen: how many the reader has taken out, and what is right then. there: how many there are.
    """
    state, running = st.session_state, is_requested("curve", curve_key)
    what = questions.what
    names = ORDER_NAMES | (NAMES_OF_LAYERS if what == "layers" else {})
    if running:
        share = questions.grow(state.order)
        if share is None:
            withdraw_request("curve")
            st.rerun()
        st.progress(share, text=f"{share:.0%} of the models are pruned and tested")
        if st.button("Stop", key="stop_curve"):
            questions.stop(state.order)
            withdraw_request("curve")
            st.rerun()
    points, whole = questions.points(state.order), questions.points_in_all(there)
    if not running and len(points) < whole:
        seconds = (whole - len(points)) * questions.seconds_a_point()
        label = "Draw the curve" if not points else "Go on"
        if st.button(
            f"{label}: prune {whole - len(points)} times, about {duration_text(seconds)}",
            key="start_curve",
            type="primary",
            disabled=(refused := time_limit_message(seconds)) is not None,
            help=refused,
        ):
            request("curve", curve_key)
            st.rerun()  # the whole page, so that this part begins to come back by itself
    if not points:
        return
    control(
        st.segmented_control, "Figure", "figure", options=FIGURES, format_func=FIGURE_NAMES.__getitem__,
        required=True, label_visibility="collapsed",
    )  # fmt: skip
    band = random_band(points, state.figure)
    own = None if chosen is None else getattr(chosen[1], state.figure, None)
    chart(
        pruning_curve(
            [(names[state.order], *curve_values(points, state.order, state.figure))],
            band[:4],
            current_point=None if chosen is None or own is None else (chosen[0], own),
            part_name=what, total=there, unit=UNITS[state.figure],
        ),
        key="curve",
        grows=False,
        alt=f"{FIGURE_NAMES[state.figure]} against the share of {what} gone, beside {band.orders} random orders",
    )  # fmt: skip
    fine = removable_head_count(points, state.order)
    write_note(
        f"In this order, {fine:,} of {there:,} {what} can go before the loss rises by more than 1% (tested in "
        f"{min(STEPS, there)} steps). **How to read this:** every point is a model that was really pruned; the grey "
        f"band is the range of {band.orders} random orders. **How it can mislead:** orders and results come from the "
        f"same few examples; inside the band an order is no better than chance; another text may need other {what}."
    )
    publish()

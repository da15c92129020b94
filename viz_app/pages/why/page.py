"""Draws the page Why."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from bert_core.methods import Method, method_of
from bert_core.records import Target
from viz_app.components.token_strip import token_strip
from viz_app.export.tables import npz, tidy_csv
from viz_app.figures.why import score_table, trust_chart
from viz_app.pages.why import EXAMPLE, MEASURES, measure, method, whole_file, words
from viz_app.pages.why.scores import (
    SLOW,
    TRUST,
    MethodScores,
    Trust,
    count_passes,
    describe_cost,
    is_requested_for,
    method_scores,
    method_trust,
    quick_and_slow,
    request_for,
    scores_of_layers,
    trust_passes,
)
from viz_app.shell import frame
from viz_app.shell.downloads import file_button
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.notices import show_attention_cautions
from viz_app.shell.selection import Selection, is_current_example, open_example_text, toggle_mask
from viz_app.shell.target import escape_names, show_missing_target
from viz_app.shell.view import View, chart, write_note
from viz_app.shell.work import time_limit_message

STAND_IN = "gradient x attention"  # the method that is shown while the selected one has no scores
READING = (
    "**How to read this:** orange words push towards {answer}, blue words away from it. Colours are scaled row by row; "
    "the numbers are each method's own, so compare them within a row only. Agreement is the rank correlation with the "
    "chosen method (Spearman): 1 is the same order, 0 unrelated. Click a row to choose its method. Behind a name: "
    "● better than chance on this text, ○ no better, ✕ worse. "
    "**How it can mislead:** methods that agree can all be wrong: test them below by hiding the words they name."
)
NO_TARGET_READING = (
    "**How to read this:** choose what to explain; then every word gets a score. **How it can mislead:** each "
    "explanation answers one question only."
)
LAYER_READING = (
    "**How to read this:** what each layer passes from every token to the predicted position; layers count from zero. "
    "**How it can mislead:** in upper layers a position holds more than its own word."
)
TRUST_READING = (
    "**How to read this:** {measure} is {meaning}. A point inside the grey band (95% of 100 random rankings) is no "
    "better than chance here. **How it can mislead:** the model has seldom read texts with holes, and a test by "
    "masking favours methods that mask."
)
MEASURE_MEANINGS = {
    "aopc": "how far the {value} falls, on average, as a method's top words are hidden step by step, from 10% to 90% "
    "of all; higher is better",
    "comprehensiveness": "how far the {value} falls when the top 10% to 50% of a method's words are hidden; higher is "
    "better",
    "sufficiency": "how far the {value} falls when only the top 10% to 50% of a method's words are kept; lower is "
    "better",
}


def draw(page: View) -> None:
    """Draw the scores of all methods, the test of their trust, and the selected method in detail."""
    selection, target = page.selection, page.selection.target
    if target is None:
        show_missing_target(selection, "There is nothing to explain yet")
        write_note(NO_TARGET_READING)
    pending = _draw_controls(page)
    scores = method_scores(selection)
    if scores is not None:
        _draw_scores(page, scores, pending)
    elif target is not None:
        write_note(_reading(selection, target))
    with st.expander("Over a whole file: what does every word say?", key="open_totals", on_change="rerun") as expander:
        if expander.open:
            whole_file.draw()


def _reading(selection: Selection, target: Target) -> str:
    return READING.format(answer=target.target_kind.supports.format(**escape_names(selection, target)))


def _draw_controls(page: View) -> list[str]:
    """Draw the controls of method and unit, and the button of the slow methods; return those that wait for it."""
    selection = page.selection
    slow = quick_and_slow(selection)[1]
    is_requested = is_requested_for(SLOW, selection)
    with page.controls():
        method()
        words()
        if slow:
            passes = count_passes(slow, selection.encoding)
            refusal = time_limit_message(selection.seconds(passes))
            names = ", ".join(slow_method.name for slow_method in slow)
            st.button(
                f"Run the {len(slow)} slow methods" if len(slow) > 1 else f"Run {names}",
                on_click=request_for,
                args=(SLOW, selection),
                disabled=is_requested or refusal is not None,
                icon=":material/hourglass:",
                help=refusal or f"{names}: {describe_cost(selection, passes)}",
            )
        st.button("Show a surprising example", on_click=open_example_text, args=(EXAMPLE,), key="surprise")
    return [] if is_requested else [slow_method.name for slow_method in slow]


def _draw_scores(page: View, scores: MethodScores, pending: list[str]) -> None:
    """Draw scores, faded if they are stale. pending: the methods that wait for their button."""
    selection, prefix = page.selection, "stale_" if scores.is_stale else ""
    if scores.is_stale:
        frame.fade_stale()
    table, details = page.figure().container(key=f"{prefix}answers"), st.container(key=f"{prefix}more")
    with st.container():  # computed first: the table contains the marks of the methods
        trust = _draw_trust(selection, scores)
    with table:
        selected = _draw_table(scores, trust, pending)
    page.read(_reading(selection, scores.target))
    with details:
        _draw_details(selection, scores, selected)
    if not scores.is_stale:
        show_attention_cautions(selection.run(gradients=True))
    _draw_files(scores, trust)


def _draw_trust(selection: Selection, scores: MethodScores) -> Trust | None:
    """Draw the button of the test of all methods, and its last result."""
    st.subheader("Which methods can be trusted on this text?", anchor=False)
    trust = method_trust(selection, scores, words.value)
    if selection.target is not None and not is_requested_for(TRUST, selection, words.value):
        passes = trust_passes(scores, words.value)
        refusal = time_limit_message(selection.seconds(passes))
        st.button(
            f"Test every method: hide the words it names ({describe_cost(selection, passes)})",
            on_click=request_for,
            args=(TRUST, selection, words.value),
            icon=":material/verified:",
            key="ask_trust",
            disabled=refusal is not None,
            help=refusal,
        )
    if trust is not None:
        if trust.is_stale:
            frame.fade_stale()
        with st.container(key="stale_trust" if trust.is_stale else "trust"):
            if trust.is_stale:
                st.caption(f"This was for an earlier question: {trust.question}")
            measure()
            result, sentence = trust.results[measure.value], trust.describe(measure.value)
            name = MEASURES[measure.value]
            figure = trust_chart(trust.names, result.scores, result.verdicts, result.band, measure=name)
            chart(figure, key="trust_chart", grows=False, alt=sentence)
            st.markdown(sentence)
    value = "probability"
    if scores.target.other is not None:
        value = "cosine"
    elif scores.target.kind == "choice":
        value = "logit"  # a single choice has no probability
    meaning = MEASURE_MEANINGS[measure.value].format(value=value)
    write_note(TRUST_READING.format(measure=MEASURES[measure.value], meaning=meaning))
    return trust


def _draw_table(scores: MethodScores, trust: Trust | None, pending: list[str]) -> Method:
    """Draw the scores of all methods and their agreement with the selected method, which is returned."""
    st.subheader(f"{scores.question} {scores.value_text}", anchor=False)
    selected = _selected_method(scores, pending)
    names, labels = list(scores.names), scores.labels(words.value)
    row = names.index(selected.name)
    figure = score_table(
        scores.shares(words.value),
        scores.unit_scores(words.value),
        names if trust is None else [trust.mark(name, measure.value) for name in names],
        labels,
        selected=row,
        extra_column=("agreement", scores.agreement(words.value)[:, row]),
    )
    chart(
        figure,
        key="methods",
        alt=f"Scores of {len(names)} methods for {len(labels)} tokens, and how far each agrees with {selected.name}",
        min_width=220 + 30 * len(labels),
        on_select=partial(select_method, names, "methods"),
        selection_mode="points",
        toolbar=False,
    )
    return selected


def _selected_method(scores: MethodScores, pending: list[str]) -> Method:
    """Return the selected method, or another one if it has no scores; write why any method has none."""
    for sentence in scores.refused:
        st.warning(with_help(escape_markdown(sentence[:1].upper() + sentence[1:] + ".")), icon=":material/memory:")
    if method.value in scores.names:
        return method_of(method.value)
    name = STAND_IN if STAND_IN in scores.names else scores.names[0]
    if method.value in pending:
        notice = f"{method.value} is slow on this text: press the button above to run it. Until then, {name} is shown."
        st.info(with_help(notice))
    return method_of(name)


def select_method(names: Sequence[str], key: str) -> None:
    """Select the method whose row was clicked in the table with this key. names: those of its rows."""
    if points := st.session_state[key].selection.points:
        method.set(names[int(points[0]["y"])])


def _draw_details(selection: Selection, scores: MethodScores, selected: Method) -> None:
    """Draw the scores of the selected method word by word, what it measures, and its scores layer by layer."""
    name, names = selected.name, list(scores.names)
    if is_current_example(EXAMPLE):
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")
    token_strip(
        scores.chips(name, words.value),
        key="why_strip",
        disabled=scores.is_stale,
        label="Tokens with their scores; click a word to hide it and ask again",
        on_click=partial(toggle_mask, first_word=selection.first_word),
    )
    if scores.encoding.pair is not None:
        st.markdown(f"Sum of the scores: {scores.side_sums(name)}; together **{scores.total(name)}**.")
    write_note(f"**What {name} measures:** {selected.claims} **How it can mislead:** {selected.misleads}")
    # The content of a closed expander is not computed.
    with st.expander("Agreement between all methods", key="open_agreement", on_change="rerun") as expander:
        if expander.open:
            agreement = scores.agreement(words.value)
            figure = score_table(agreement, agreement, names, names)
            chart(figure, key="all_agreement", grows=False, alt="Rank correlations of all methods")
    if scores.is_stale or selected.layers is None:
        return
    with st.expander(f"{name}, layer by layer", key="open_layers", on_change="rerun") as expander:
        if expander.open:
            layers = scores_of_layers(selection, scores, name, words.value)
            rows = [f"layer {number}" for number in range(len(layers))]
            figure = score_table(layers / (abs(layers).max() or 1), layers, rows, scores.labels(words.value))
            chart(figure, key="layers", grows=False, alt=f"{name} in every layer")
            write_note(LAYER_READING)


def _draw_files(scores: MethodScores, trust: Trust | None) -> None:
    """Draw the buttons of the scores as files, and the link to the page Attention."""
    tokens = scores.encoding.tokens
    with st.container(horizontal=True, gap="small"):
        file_button("Scores (CSV)", lambda: tidy_csv(scores.tables(), tokens), "why.csv")
        texts = {"tokens": tokens, "methods": scores.names}
        file_button("Scores and trust (NPZ)", lambda: npz(scores.arrays(trust), **texts), "why.npz")
        label = "See attention and its gradient, head by head"
        st.page_link(frame.streamlit_page("attention"), label=label, icon=":material/grid_view:")

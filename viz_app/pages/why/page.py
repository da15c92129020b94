"""Draws the page Attribution."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from bert_core.methods import METHODS, Method, method_of
from viz_app.export.tables import npz, tidy_csv
from viz_app.figures.style import current_look, sized
from viz_app.figures.why import ScoreRow, score_strip, score_table, trust_chart
from viz_app.maps import WHOLE_TOKENS
from viz_app.pages.why import (
    EXAMPLE,
    NUMBERED_METHODS,
    RANKED_METHODS,
    TEXTS,
    attributed,
    components,
    graph,
    measure,
    method,
    whole_file,
    words,
)
from viz_app.pages.why.scores import (
    LONG_TEXT_METHODS,
    MEASURES,
    SLOW,
    TRUST,
    MethodScores,
    Trust,
    count_passes,
    is_requested_for,
    method_scores,
    method_trust,
    quick_and_slow,
    request_for,
    scores_of_layers,
    trust_passes,
)
from viz_app.shell import frame
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.notices import show_attention_cautions
from viz_app.shell.selection import Selection, is_current_example
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, add_file, chart, lazy_expander, write_note
from viz_app.shell.work import duration_text, time_limit_message

STAND_IN = "gradient x attention"  # the method that is shown while the selected one has no scores
LONG_STAND_IN = "input x gradient"  # the same for a long text
COMPARED_COUNTS = 3, 2  # best ranked methods that are drawn below the selected one: on the page, in a lecture
UNLIKELY = 0.1  # probability below which a target is called unlikely


def draw(page: View) -> None:
    """Draw the scores of the selected method and of three others, and those of all methods folded; or another view."""
    selection, target = page.selection, page.selection.target
    if attributed.value == "components":
        with page.controls():
            attributed()
        components.draw(page)
        return
    if attributed.value == "graph":
        graph.draw(page)
        return
    with page.controls():
        attributed()
        method()
        controls = st.container(horizontal=True, width="content")
        with page.options(words):
            words()
    scores = method_scores(selection)
    if target is None:
        with page.figure():
            show_missing_target(selection, TEXTS["missing"])
            write_note(TEXTS["missing_reading"])
    if scores is not None:
        trust = method_trust(selection, scores, words.value)
        slow = () if is_requested_for(SLOW, selection) else quick_and_slow(selection)[1]
        pending = [slow_method.name for slow_method in slow]
        with controls:
            _draw_test_button(selection, scores)
        _draw_scores(page, scores, trust, pending)
        if pending:
            # In the row of controls a third button would start a second row; a lecture has them in a popover.
            with controls if current_look().lecture else page.figure():
                _draw_slow_button(selection, pending)
    with lazy_expander("totals", TEXTS["folded.file"]) as expander:
        if expander.open:
            whole_file.draw()


def _draw_test_button(selection: Selection, scores: MethodScores) -> None:
    """Draw the button of the test of all methods, until it was pressed for this question."""
    if selection.target is not None and not is_requested_for(TRUST, selection, words.value):
        passes = trust_passes(scores, words.value)
        _draw_button(selection, "test", (TRUST, selection, words.value), passes, methods=len(scores.names))


def _draw_slow_button(selection: Selection, names: Sequence[str]) -> None:
    """Draw the button that computes the slow methods. names: of these methods."""
    name = "slow" if len(names) > 1 else "slow_single"
    passes = count_passes([method_of(name) for name in names], selection.encoding)
    _draw_button(selection, name, (SLOW, selection), passes, count=len(names), names=", ".join(names))


def _draw_button(selection: Selection, name: str, request: tuple[object, ...], passes: int, **values: object) -> None:
    """Draw the button of slow work with its cost. name: of its texts. request: arguments of `request_for`."""
    seconds = selection.seconds(passes)
    refusal, values = (
        time_limit_message(seconds),
        values | {"duration": duration_text(seconds), "passes": f"{passes:,}"},
    )
    st.button(
        TEXTS[f"{name}.button"].format(**values),
        on_click=request_for,
        args=request,
        key=f"ask_{name}",
        icon=":material/play_arrow:",
        disabled=refusal is not None,
        help=refusal or TEXTS[f"{name}.help"].format(**values),
    )


def _draw_scores(page: View, scores: MethodScores, trust: Trust | None, pending: list[str]) -> None:
    """Draw scores, faded if they are stale. pending: the methods that wait for their button."""
    prefix = "stale_" if scores.is_stale else ""
    if prefix or (trust is not None and trust.is_stale):
        frame.fade_stale()
    with page.figure().container(key=f"{prefix}answers"):
        selected = _draw_strip(scores, trust, pending)
    signs = TEXTS["reading.signed" if selected.signed else "reading.unsigned"]
    reading = f"{signs.format(claims=selected.claims, answer=scores.answer)} {TEXTS['reading.rows']}"
    if trust is not None:
        reading += f" {TEXTS['reading.marks']}"
    page.read(reading, TEXTS["misleads"].format(misleads=selected.misleads))
    if is_current_example(EXAMPLE):
        write_note(EXAMPLE.remark)
    with st.container(key=f"{prefix}more"):
        if trust is not None:
            _draw_trust(scores, trust)
        _draw_details(page.selection, scores, trust, selected)
    if not scores.is_stale and scores.token_range is None:
        show_attention_cautions(page.selection.run(gradients=True))
    tokens, arrays = scores.encoding.tokens, scores.arrays
    add_file("Scores (CSV)", lambda: tidy_csv(scores.tables(), tokens), "why.csv")
    add_file("Scores and test (NPZ)", lambda: npz(arrays(trust), tokens=tokens, methods=scores.names), "why.npz")
    st.page_link(frame.streamlit_page("attention"), label=TEXTS["folded.attention"], icon=":material/grid_view:")


def _draw_strip(scores: MethodScores, trust: Trust | None, pending: list[str]) -> Method:
    """Draw the scores of the selected method and of a few others in the same columns; return the selected method."""
    st.subheader(scores.headline, anchor=False)
    selected = _selected_method(scores, pending)
    lines, probability = [], scores.probability
    if probability is not None and probability < UNLIKELY:
        lines.append(TEXTS["unlikely"].format(answer=scores.answer, value=scores.probability_text))
    lines.append(scores.describe(selected, words.value))
    if trust is not None and not trust.is_stale:
        lines.append(trust.describe_method(selected.name, measure.value))
    st.markdown("  \n".join(line[:1].upper() + line[1:] for line in lines))
    others = [name for name in RANKED_METHODS if name != selected.name and name in scores.names]
    names = [selected.name, *others[: sized(*COMPARED_COUNTS)]]
    rows = [scores.names.index(name) for name in names]
    part = scores.drawn_part(words.value)
    shares, values = scores.shares(words.value)[rows, part], scores.unit_scores(words.value)[rows, part]
    marks = [_row_label(name, trust) for name in names]
    labels = scores.labels(words.value)[part]
    figure = score_strip(
        [
            ScoreRow(mark, row_shares, row_values, method_of(name).signed)
            for name, mark, row_shares, row_values in zip(names, marks, shares, values, strict=True)
        ],
        labels,
    )
    chart(
        figure,
        key="methods_strip",
        alt=f"Scores of {', '.join(names)} for {len(labels)} tokens",
        on_select=partial(select_method, names, "methods_strip"),
        selection_mode="points",
    )
    return selected


def _row_label(name: str, trust: Trust | None) -> str:
    """Return the name of a method with its rank, and with the mark of its verdict after the test."""
    mark = "" if trust is None else trust.mark(name, measure.value)
    return f"{NUMBERED_METHODS[name]} {mark}".rstrip()


def _selected_method(scores: MethodScores, pending: list[str]) -> Method:
    """Return the selected method, or another one if it has no scores; write why it has none."""
    if method.value in scores.names:
        return method_of(method.value)
    for sentence in scores.refused:
        st.warning(with_help(escape_markdown(sentence[:1].upper() + sentence[1:] + ".")), icon=":material/warning:")
    name = next((name for name in (STAND_IN, LONG_STAND_IN) if name in scores.names), scores.names[0])
    if method.value in pending:
        write_note(TEXTS["substitute"].format(method=method.value, shown=name))
    elif scores.token_range is not None and method.value not in LONG_TEXT_METHODS:
        write_note(TEXTS["long_text"].format(method=method.value, shown=name, most=WHOLE_TOKENS))
    return method_of(name)


def select_method(names: Sequence[str], key: str) -> None:
    """Select the method whose row was clicked in the figure with this key. names: those of its rows."""
    if points := st.session_state[key].selection.points:
        method.set(names[int(points[0].get("customdata", points[0]["y"]))])


def _draw_trust(scores: MethodScores, trust: Trust) -> None:
    """Draw the result of the test of all methods."""
    st.subheader(TEXTS["test.heading"], anchor=False)
    with st.container(key="stale_trust" if trust.is_stale else "trust"):
        if trust.is_stale:
            st.caption(TEXTS["test.earlier"].format(question=trust.question))
        measure()
        result, sentence = trust.results[measure.value], trust.describe(measure.value)
        name = MEASURES[measure.value]
        st.markdown(sentence)
        figure = trust_chart(trust.names, result.scores, result.verdicts, result.band, measure=name)
        chart(figure, key="trust_chart", grows=False, alt=sentence)
    meaning = TEXTS[f"measures.{measure.value}"].format(value=scores.measured_value)
    write_note(TEXTS["reading.trust"].format(measure=name, meaning=meaning))


def _draw_details(selection: Selection, scores: MethodScores, trust: Trust | None, selected: Method) -> None:
    """Draw, folded, the scores of all methods, how far they agree, and those of the selected one layer by layer."""
    names, part = [name for name in RANKED_METHODS if name in scores.names], scores.drawn_part(words.value)
    rows = [scores.names.index(name) for name in names]
    labels = scores.labels(words.value)[part]
    agreement = scores.agreement(words.value)[np.ix_(rows, rows)]
    if scores.encoding.pair is not None:
        sums = scores.side_sums(selected.name)
        st.markdown(TEXTS["sides.sums"].format(sums=sums, total=scores.total(selected.name)))
    with lazy_expander("table", TEXTS["folded.table"].format(count=len(METHODS))) as expander:
        if expander.open:
            figure = score_table(
                scores.shares(words.value)[rows, part],
                scores.unit_scores(words.value)[rows, part],
                [_row_label(name, trust) for name in names],
                labels,
                selected=names.index(selected.name),
                extra_column=("agreement", agreement[:, names.index(selected.name)]),
            )
            chart(
                figure,
                key="methods",
                grows=False,
                alt=f"Scores of {len(names)} methods for {len(labels)} tokens, with agreement",
                on_select=partial(select_method, names, "methods"),
                selection_mode="points",
            )
            write_note(TEXTS["reading.table"])
    with lazy_expander("agreement", TEXTS["folded.agreement"]) as expander:
        if expander.open:
            figure = score_table(agreement, agreement, names, names, unit="rank correlation (Spearman)")
            chart(figure, key="all_agreement", grows=False, alt="Rank correlations of all methods")
    if scores.is_stale or selected.layers is None:
        return
    with lazy_expander("layers", TEXTS["folded.layers"].format(method=selected.name)) as expander:
        if expander.open:
            layers = scores_of_layers(selection, scores, selected.name, words.value)
            numbers = [f"L{number}" for number in range(len(layers))]
            shares, unit = layers / (abs(layers).max() or 1), "share of the largest score"
            figure = score_table(shares, layers, numbers, labels, unit=unit)
            chart(figure, key="layers", grows=False, alt=f"{selected.name} in every layer")
            write_note(TEXTS["reading.layers"])

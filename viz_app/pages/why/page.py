"""Which words led to this prediction?"""

from dataclasses import replace
from functools import partial

import streamlit as st

from bert_core.methods import Method
from viz_app.components.token_strip import token_strip
from viz_app.export.tables import npz, tidy_csv
from viz_app.figures.why import score_table, trust_chart
from viz_app.pages.why import EXAMPLE, MEASURES, answers, whole_file
from viz_app.pages.why.answers import Answers, Trust
from viz_app.shell import frame, selection
from viz_app.shell.address import end_run
from viz_app.shell.controls import control
from viz_app.shell.markdown import with_help
from viz_app.shell.notices import show_attention_cautions
from viz_app.shell.selection import Selection, open_example_text, toggle_mask
from viz_app.shell.target import show_missing_target
from viz_app.shell.view import View, chart, page_place, write_note, write_reading
from viz_app.shell.work import time_limit_message

READING = (
    "**How to read this:** orange words push towards {answer}, blue words away from it. Colours are scaled row by row; "
    "the numbers are each method's own, so compare them within a row only. Agreement is the rank correlation with the "
    "chosen method (Spearman): 1 is the same order, 0 unrelated. Click a row to choose its method. Behind a name: "
    "● better than chance on this text, ○ no better, ✕ worse. "
    "**How it can mislead:** methods that agree can all be wrong: test them below by hiding the words they name."
)
TRUST_READING = (
    "A point inside the grey band (95% of 100 random rankings) is no better than chance here. **How it can mislead:** "
    "the model has seldom read texts with holes, and a test by masking favours methods that mask."
)


def draw(page: View) -> None:
    """Draw the page."""
    current = selection.current_selection()
    frame.title(
        "Which words led to this prediction?",
        "Every method scores how much each word pushed towards the answer; a test shows which methods to trust.",
    )
    if current.target is None:
        show_missing_target(current, "There is nothing to explain yet")
        write_note(
            "**How to read this:** choose what to explain; then every word gets a score. **How it can mislead:** each "
            "explanation answers one question only."
        )
    waiting = _controls(current)
    found = answers.answers(current)
    if found is None:
        if current.target is not None:
            write_note(READING.format(answer=answers.pushed(current, current.target)))
        _whole_file(current)
        end_run()
    if found.stale:
        frame.fade_stale()
    answers_place = page_place("figure").container(key="stale_answers" if found.stale else "answers")
    more_place = st.container(key="stale_more" if found.stale else "more")
    # What is known of trust stands in the table above it.
    with st.container():
        trust = _trust(current, found)
    with answers_place:
        method = _answers(current, found, trust, waiting)
    write_reading(READING.format(answer=answers.pushed(current, found.target)))
    with more_place:
        _more(current, found, method)
    if found.run is not None:
        show_attention_cautions(found.run)
    _files(found, trust)
    _whole_file(current)


def _controls(current: Selection) -> list[str]:
    """The method, the unit, and the slow ones; returns those that wait for their button."""
    slow = answers.quick_and_slow(current)[1]
    asked_slow = answers.was_asked(answers.SLOW, current)
    with page_place("controls").container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        control(st.selectbox, "Method", "method", options=answers.method_names(), width=260)
        control(st.toggle, "Words, not pieces", "words", help="The score of a word is the sum over its pieces.")
        if slow:
            several, passes = f"the {len(slow)} slow methods", answers.slow_passes(current)
            refused = time_limit_message(current.seconds(passes))
            st.button(
                f"Run {several if len(slow) > 1 else slow[0].name}",
                on_click=answers.ask_for, args=(answers.SLOW, current), disabled=asked_slow or refused is not None,
                icon=":material/hourglass:",
                help=refused or f"{', '.join(method.name for method in slow)}: {answers.cost(current, passes)}",
            )  # fmt: skip
        st.button("Show a surprising example", on_click=open_example_text, args=(EXAMPLE,), key="surprise")
    return [] if asked_slow else [method.name for method in slow]


def _trust(current: Selection, found: Answers) -> Trust | None:
    """How far each method can be trusted here, where that was asked for."""
    state = st.session_state
    st.subheader("Which methods can be trusted on this text?", anchor=False)
    trust = answers.trust(current, found)
    if current.target is not None and not answers.was_asked(answers.TRUST, current):
        passes = answers.trust_passes(current, found)
        refused = time_limit_message(current.seconds(passes))
        st.button(
            f"Test every method: hide the words it names ({answers.cost(current, passes)})",
            on_click=answers.ask_for, args=(answers.TRUST, current), icon=":material/verified:", key="ask_trust",
            disabled=refused is not None, help=refused,
        )  # fmt: skip
    if trust is not None:
        if trust.stale:
            frame.fade_stale()
        with st.container(key="stale_trust" if trust.stale else "trust"):
            if trust.stale:
                st.caption(f"This was for an earlier question: {trust.question}")
            control(
                st.segmented_control, "Measure", "measure", options=MEASURES,
                format_func=answers.MEASURE_NAMES.__getitem__, required=True, label_visibility="collapsed",
            )  # fmt: skip
            measured = trust.found[state.measure]
            chart(
                trust_chart(
                    list(trust.names), measured.scores, measured.verdicts, measured.band,
                    measure=answers.MEASURE_NAMES[state.measure],
                ),
                key="trust_chart", grows=False, alt=answers.in_words(trust, state.measure),
            )  # fmt: skip
            st.markdown(answers.in_words(trust, state.measure))
    reads = f"{answers.MEASURE_NAMES[state.measure]} is {answers.MEASURE_READS[state.measure]}"
    if found.target.other is not None:
        reads = reads.replace("probability", "cosine")  # of which there is no probability
    elif found.target.kind == "choice":
        reads = reads.replace("probability", "logit")  # alone it has no probability
    write_note(f"**How to read this:** {reads}. {TRUST_READING}")
    return trust


def _answers(current: Selection, found: Answers, trust: Trust | None, waiting: list[str]) -> Method:
    """Every method's scores, and how far each agrees with the chosen one, which is returned."""
    words = bool(st.session_state.words)
    st.subheader(f"{found.question} {answers.value(current, found)}", anchor=False)
    method = answers.chosen(found, waiting)
    labels, names = found.labels(words), list(found.names)
    marks = [answers.marked(trust, name) for name in names]
    chosen = names.index(method.name)
    chart(
        score_table(
            found.shares(words), found.of_units(words), marks, labels, selected=chosen,
            extra_column=("agreement", found.agreement(words)[:, chosen]),
        ),
        key="methods", min_width=220 + 30 * len(labels),
        alt=f"Scores of {len(names)} methods for {len(labels)} tokens, and how far each "
        f"agrees with {method.name}",
        on_select=partial(answers.choose_method, names, "methods"), selection_mode="points",
        config={"displayModeBar": False},
    )  # fmt: skip
    return method


def _more(current: Selection, found: Answers, method: Method) -> None:
    """The chosen method: its scores word by word, what it measures, and what it says layer by layer."""
    words, names = bool(st.session_state.words), list(found.names)
    if selection.is_current_example(EXAMPLE):
        st.info(with_help(EXAMPLE.remark), icon=":material/lightbulb:")
    token_strip(
        found.chips(method.name, words), key="why_strip", disabled=found.stale,
        label="Tokens with their scores; click a word to hide it and ask again",
        on_click=partial(toggle_mask, first_word=current.first_word),
    )  # fmt: skip
    if found.encoding.pair is not None:
        st.markdown(f"Sum of the scores: {found.sides(method.name)}; together **{found.total(method.name)}**.")
    write_note(f"**What {method.name} measures:** {method.claims} **How it can mislead:** {method.misleads}")
    # What is closed costs nothing.
    with st.expander("Agreement between all methods", key="open_agreement", on_change="rerun") as opened:
        if opened.open:
            agreement = found.agreement(words)
            chart(
                score_table(agreement, agreement, names, names),
                key="all_agreement", grows=False, alt="Rank correlations of all methods",
            )  # fmt: skip
    if found.has_layers(method.name):
        with st.expander(f"{method.name}, layer by layer", key="open_layers", on_change="rerun") as opened:
            if opened.open:
                layers = found.layers(current, method.name, words)
                chart(
                    score_table(
                        layers / (abs(layers).max() or 1), layers, [f"layer {n}" for n in range(len(layers))],
                        found.labels(words),
                    ),
                    key="layers", grows=False, alt=f"{method.name} in every layer",
                )  # fmt: skip
                write_note(
                    "**How to read this:** what each layer passes from every token to the predicted position; layers "
                    "count from zero. **How it can mislead:** in upper layers a position holds more than its own word."
                )


def _files(found: Answers, trust: Trust | None) -> None:
    """The scores as files. What Streamlit keeps for them are the scores alone: the run stays with the queue."""
    given = replace(found, run=None)
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Scores (CSV)", lambda: tidy_csv(given.tables(), given.encoding.tokens), "why.csv", "text/csv",
            on_click="ignore", icon=":material/table:", key="why_csv",
        )  # fmt: skip
        st.download_button(
            "Scores and trust (NPZ)",
            lambda: npz(answers.arrays(given, trust), tokens=given.encoding.tokens, methods=given.names),
            "why.npz", "application/octet-stream", on_click="ignore", icon=":material/dataset:", key="why_npz",
        )  # fmt: skip
        st.page_link(
            frame.streamlit_page("attention"), label="See attention and its gradient, head by head",
            icon=":material/grid_view:",
        )  # fmt: skip


def _whole_file(current: Selection) -> None:
    """What words say over many texts, where somebody opens it."""
    with st.expander("Over a whole file: what does every word say?", key="open_totals", on_change="rerun") as opened:
        if opened.open:
            whole_file.draw(current)

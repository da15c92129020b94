"""Which sentence does the model find likelier?"""

from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.scoring import pair_columns
from bert_core.loading import LoadedModel
from viz_app.figures.scores import pair_bars
from viz_app.pages.score import COMPARED, EXAMPLE, VARIANTS, alike, pairs
from viz_app.shell import frame
from viz_app.shell.address import end_run
from viz_app.shell.controls import control
from viz_app.shell.heads import heads_off
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference, selected_model
from viz_app.shell.view import View, chart, page_place, write_reading

SAID = {"pair": "Two sentences", "alike": "How alike they are", "table": "A table of pairs"}
READ = {
    "pair": "each bar shows how surprising a token is when it is hidden and all others are seen: minus its "
    "log-probability. Shaded columns are where the sentences differ. Minus the sum of the bars is the score of the "
    "sentence (pseudo-log-likelihood); perplexity is exp of the mean bar.",
    "table": "a positive difference means that the first sentence is likelier: the log-probabilities of its pieces, "
    "each hidden in turn, have the larger sum (pseudo-log-likelihood, nats).",
}


def draw(page: View) -> None:
    """Draw the page."""
    state = st.session_state
    loaded = selected_model()
    if state.compared == "alike":
        frame.title(
            "How alike does the model find two sentences?",
            "Each is read by itself and becomes one vector; the cosine of the two says how alike they are.",
        )
    else:
        frame.title(
            "Which sentence does the model find likelier?",
            "Each word is hidden in turn; the sentence whose words the model guesses better is likelier to it.",
        )
    if loaded is None:
        end_run()
    gates = heads_off(loaded)
    kind, way = page_place("controls").columns(2, vertical_alignment="bottom")
    control(
        kind.segmented_control, "Compare", "compared", options=COMPARED, format_func=SAID.__getitem__, required=True
    )
    if state.compared == "alike":
        control(way.toggle, "Words, not pieces", "words", help="The part of a word is the sum over its pieces.")
        _alike(loaded, gates)
        return
    if not loaded.has_head("words"):
        name = escape_markdown(shown_name(loaded.name))
        st.info(with_help(f"{name} has no trained masked-word output, so it finds no sentence likelier than another."))
        end_run()
    control(
        way.segmented_control, "Hide", "variant", options=VARIANTS,
        format_func=pairs.VARIANT_NAMES.__getitem__, required=True,
        help="One piece at a time (Salazar 2020), or with it the later pieces of the same word, which would give it "
        "away (Kauf & Ivanova 2023).",
    )  # fmt: skip
    if state.compared == "pair":
        _pair(loaded, gates)
    else:
        _table(loaded, gates)
    write_reading(
        f"**How to read this:** {READ[state.compared]} **How it can mislead:** shorter sentences score higher because "
        "fewer pieces count; a rare word costs much even in a true sentence; likely does not mean right."
    )


def _alike(loaded: LoadedModel, gates: np.ndarray) -> None:
    """Two sentences, each read by itself. gates: the head mask."""
    _sentences()
    alike.draw(loaded, gates, st.session_state.one, st.session_state.two)
    write_reading(alike.reading(loaded))


def _sentences() -> None:
    """Both sentences, typed; stops the page where one is missing."""
    state = st.session_state
    left, right = page_place("controls").columns(2, gap="medium")
    control(left.text_area, "First sentence", "one", height="content")
    control(right.text_area, "Second sentence", "two", height="content")
    if not (state.one.strip() and state.two.strip()):
        pairs.say_sentence_missing(state.one, state.two)
        end_run()


def _pair(loaded: LoadedModel, gates: np.ndarray) -> None:
    """Two sentences, token by token. gates: the head mask."""
    state = st.session_state
    _sentences()
    scores, stale = pairs.scored_pair(loaded, gates, state.one, state.two)
    if stale:
        frame.fade_stale()
    with page_place("figure").container(key="stale_pair" if stale else "scored_pair"):
        score = scores.get(state.variant, scores[VARIANTS[0]])
        columns = pair_columns(score)
        surprising = (state.one, state.two) == (EXAMPLE.text, EXAMPLE.pair) and not stale and gates.all()
        st.markdown(f"{pairs.verdict(score, columns)} {EXAMPLE.remark if surprising else ''}")
        if (warning := pairs.unknown([score])) is not None:
            st.warning(with_help(warning), icon=":material/question_mark:")
        if (differs := pairs.disagreement(scores)) is not None:
            st.warning(with_help(differs), icon=":material/call_split:")
        chart(
            pair_bars(
                *pairs.labels(columns, score), columns.first, columns.second, columns.equal,
            ),
            key="pair_bars", min_width=56 * len(columns.columns), config={"displayModeBar": False},
            alt="How unlikely every token of both sentences is",
        )  # fmt: skip
    with st.container(key="stale_figures" if stale else "figures"):
        table, number = pairs.figures(scores), st.column_config.NumberColumn(format="%.3f")
        st.dataframe(
            table,
            hide_index=True,
            width="stretch",
            column_config={name: number for name in table if name != "variant"},
        )
        model = ModelReference(loaded)
        st.download_button(
            "This pair (CSV)", partial(pairs.pair_csv, model, gates, state.one, state.two, state.variant), "pair.csv",
            "text/csv", icon=":material/table:",
            on_click="ignore", disabled=stale,
        )  # fmt: skip


def _table(loaded: LoadedModel, gates: np.ndarray) -> None:
    """A table of pairs. gates: the head mask."""
    variant = st.session_state.variant
    rows = pairs.table_of_pairs()
    if rows is None:
        pairs.say_no_pairs()
    else:
        if (wrong := pairs.problems(rows)) is not None:
            st.warning(with_help(wrong), icon=":material/rule:")
        if (given := pairs.scored_table(loaded, gates, rows, variant)) is not None:
            scored, stale = given
            if stale:
                frame.fade_stale()
            with page_place("figure").container(key="stale_table" if stale else "scored_table"):
                st.markdown(pairs.summary(scored))
                if (warning := pairs.unknown(scored)) is not None:
                    st.warning(with_help(warning), icon=":material/question_mark:")
                st.dataframe(pairs.table_columns(scored), hide_index=True, width="stretch")
                model = ModelReference(loaded)
                st.download_button(
                    "All pairs (CSV)", partial(pairs.table_csv, model, gates, rows, variant), "pairs.csv", "text/csv",
                    icon=":material/table:",
                    on_click="ignore", disabled=stale,
                )  # fmt: skip

"""How alike a model finds two sentences that it reads apart, and what each pair of their words adds to that."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.patterns import readable_word
from bert_core.analysis.units import scores_of_units, word_units
from bert_core.loading import LoadedModel
from bert_core.records import Similarity
from bert_core.run.similarity import UNRELATED_SENTENCES, read_sentence, sentence_similarity, unrelated_cosines
from viz_app.export.drawing import picture_bytes
from viz_app.export.similarity import parts_csv, parts_picture
from viz_app.figures.style import two_digits
from viz_app.figures.why import score_table
from viz_app.shell import frame
from viz_app.shell.address import end_run
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference
from viz_app.shell.view import chart, page_place
from viz_app.shell.work import Work, earlier_results, estimate_seconds, is_confirmed, poll, remember_works, wait_for

MOST_CELLS = 90  # rows or columns that can be told apart
LISTED = 10  # parts
POOLED = {
    "cls": "the first token's state",
    "mean": "the mean of all states", "max": "of each number the largest of all states",
    "mean_sqrt_len_tokens": "the sum of all states over the root of their count",
    "weightedmean": "a mean of all states that counts later ones more", "lasttoken": "the last token's state",
}  # fmt: skip


def draw(loaded: LoadedModel, gates: np.ndarray, one: str, two: str) -> None:
    """Two sentences and what makes them alike. gates: the head mask."""
    found, others, stale = _found(loaded, gates, one, two)
    if stale:
        frame.fade_stale()
    with page_place("figure").container(key="stale_alike" if stale else "alike"):
        st.markdown(_verdict(loaded, found, others))
        if loaded.pooling is None:
            name = escape_markdown(shown_name(loaded.name))
            st.warning(
                with_help(
                    f"{name} was not trained to make one vector of a text: the mean of its states is taken, so its "
                    "cosines may mean little. A model of sentence-transformers was."
                ),
                icon=":material/model_training:",
            )
        values, rows, columns = _of_units(found, words=bool(st.session_state.words))
        if max(values.shape) > MOST_CELLS:
            st.info(
                with_help(f"The map is drawn for texts of at most {MOST_CELLS} tokens each: the files have all of it.")
            )
        else:
            chart(
                score_table(
                    values / (np.abs(values).max() or 1), values, rows, columns, extra_column=("in all", values.sum(1)),
                ),
                key="alike_map", min_width=220 + 30 * len(columns), config={"displayModeBar": False},
                alt=f"What each pair of tokens of both sentences adds to their cosine of {two_digits(found.cosine)}",
            )  # fmt: skip
    with st.container(key="stale_parts" if stale else "parts"):
        order = np.argsort(-np.abs(values), axis=None, kind="stable")[:LISTED]
        places = [(int(row), int(column)) for row, column in zip(*np.unravel_index(order, values.shape), strict=True)]
        st.dataframe(
            {
                "in the first": [rows[row] for row, _ in places],
                "in the second": [columns[column] for _, column in places],
                "adds": [float(values[place]) for place in places],
            },
            hide_index=True,
            width="stretch",
            column_config={"adds": st.column_config.NumberColumn(format="%.4f")},
        )
        _files(loaded, gates, one, two, stale=stale)
        if st.button("Ask on Why which words make them alike", icon=":material/psychology_alt:", key="alike_why"):
            state = st.session_state
            state.text, state.pair, state.masked, state.target = one, two, (), "alike:A"
            frame.go_to("why")


def reading(loaded: LoadedModel) -> str:
    """How the map is read, and how it misleads."""
    return (
        f"**How to read this:** the vector of each sentence is {POOLED[loaded.effective_pooling.mode]}; the number is "
        "the cosine of the two. Rows are tokens of the first sentence, columns of the second; orange cells add to the "
        "cosine, "
        "blue ones take away, and all cells together are the cosine, exactly. **How it can mislead:** a state of "
        "the last layer holds much of the rest of its sentence, so a cell says which places meet, not which words it "
        "is owed to: the page Why asks that, of each sentence in turn. Alike is what training made of it: opposites "
        "can be very alike."
    )


def _verdict(loaded: LoadedModel, found: Similarity, others: np.ndarray) -> str:
    low, high = np.quantile(others, (0.025, 0.975))
    below = int((others < found.cosine).sum())
    more = "more than all" if below == len(others) else "less than all" if not below else f"more than {below} of the"
    return (
        f"The cosine of both sentences is **{two_digits(found.cosine)}**: {more} {len(others)} that "
        f"{escape_markdown(shown_name(loaded.name))} gives pairs of English sentences that have nothing to do with "
        "each "
        f"other (95% of them from {two_digits(float(low))} to {two_digits(float(high))})."
    )


def _found(loaded: LoadedModel, gates: np.ndarray, one: str, two: str) -> tuple[Similarity, np.ndarray, bool]:
    """Both sentences, and the cosines of unrelated ones, from the queue; until they are there, the last, and True.

    Stops the page where there is none. Raises Refused for a sentence that cannot be read.
    """
    both, base = _works(loaded, gates, one, two)
    key = ("alike", loaded.identity, gates.tobytes(), one, two)
    if is_confirmed("alike", key, "Compare both sentences", both.seconds + base.seconds):
        found, others = poll(both, request_slot="alike").value, poll(base, request_slot="alike").value
        if found is not None and others is not None:
            remember_works("alike", both, base)
            return found, others, False
    before: Sequence[object] = earlier_results("alike")
    if not before:
        end_run()
    known, cosines = before
    assert isinstance(known, Similarity) and isinstance(cosines, np.ndarray)
    return known, cosines, True


def _works(loaded: LoadedModel, gates: np.ndarray, one: str, two: str) -> tuple[Work[Similarity], Work[np.ndarray]]:
    both = read_sentence(loaded, one), read_sentence(loaded, two)
    key, name = (loaded.identity, gates.tobytes()), shown_name(loaded.name)
    return (
        Work(
            ("similar", *key, one, two), f"{name} reads two sentences",
            lambda _: sentence_similarity(loaded, *both, head_mask=gates),
            sum(estimate_seconds(loaded, len(encoding)) for encoding in both),
        ),
        Work(
            ("unrelated", *key), f"{name} reads {len(UNRELATED_SENTENCES)} unrelated sentences",
            lambda _: unrelated_cosines(loaded, head_mask=gates),
            estimate_seconds(loaded, 12, len(UNRELATED_SENTENCES)),
        ),
    )  # fmt: skip


def _of_units(found: Similarity, *, words: bool) -> tuple[np.ndarray, list[str], list[str]]:
    """The parts of pieces, or of whole words, and what is written at their rows and columns."""
    if not words:
        return found.parts, list(found.first.labels), list(found.second.labels)
    own, other = word_units(found.first), word_units(found.second)
    values = scores_of_units(scores_of_units(found.parts, other).T, own).T
    return (
        values, [readable_word(found.first, unit) for unit in own],
        [readable_word(found.second, unit) for unit in other],
    )  # fmt: skip


def _files(loaded: LoadedModel, gates: np.ndarray, one: str, two: str, *, stale: bool) -> None:
    """The parts of all tokens as files; what is kept for them is the sentences."""
    model = ModelReference(loaded)

    def made(kind: str) -> bytes:
        found = wait_for(_works(model.get(), gates, one, two)[0])
        return parts_csv(found) if kind == "csv" else picture_bytes(parts_picture(found), kind)

    with st.container(horizontal=True, gap="small"):
        for label, kind, mime, icon in (
            ("All parts (CSV)", "csv", "text/csv", ":material/table:"),
            ("Picture (SVG)", "svg", "image/svg+xml", ":material/image:"),
            ("Picture (PNG)", "png", "image/png", ":material/image:"),
        ):
            st.download_button(
                label, partial(made, kind), f"alike.{kind}", mime, icon=icon, on_click="ignore", disabled=stale,
                key=f"alike_{kind}",
            )  # fmt: skip

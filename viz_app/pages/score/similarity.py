"""Two sentences that the model reads separately: their cosine, and the contribution of each pair of tokens to it."""

from __future__ import annotations

from functools import partial

import numpy as np
import streamlit as st

from bert_core.analysis.patterns import readable_word
from bert_core.analysis.units import scores_of_units, word_units
from bert_core.loading import LoadedModel
from bert_core.records import Similarity
from bert_core.run.similarity import UNRELATED_SENTENCES, read_sentence, sentence_similarity, unrelated_cosines
from bert_core.tokenizer import Encoding
from viz_app.export.drawing import picture_bytes
from viz_app.export.similarity import parts_csv, parts_picture
from viz_app.figures.style import two_digits
from viz_app.figures.why import score_table
from viz_app.pages.score import sentence_a, sentence_b, words
from viz_app.pages.score.results import confirmed_results
from viz_app.shell import frame
from viz_app.shell.downloads import file_button
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference
from viz_app.shell.view import View, chart
from viz_app.shell.work import estimate_seconds, wait_for, work

MAX_CELLS = 90  # rows or columns of the map
MAX_PARTS = 10  # rows of the table
POOLING_NAMES = {
    "cls": "the first token's state",
    "mean": "the mean of all states",
    "max": "of each number the largest of all states",
    "mean_sqrt_len_tokens": "the sum of all states over the root of their count",
    "weightedmean": "a mean of all states that counts later ones more",
    "lasttoken": "the last token's state",
}
READING = (
    "**How to read this:** the vector of each sentence is {pooling}; the number is the cosine of the two. Rows are "
    "tokens of the first sentence, columns of the second; orange cells add to the cosine, blue ones take away, and all "
    "cells together are the cosine, exactly. **How it can mislead:** a state of the last layer holds much of the rest "
    "of its sentence, so a cell says which places meet, not which words it is owed to: the page Why asks that, of each "
    "sentence in turn. Alike is what training made of it: opposites can be very alike."
)


def draw(page: View, model: LoadedModel, head_mask: np.ndarray) -> None:
    """Draw the similarity of two sentences. head_mask: (layer, head)."""
    sentences = (sentence_a.value, sentence_b.value)
    works = [_compare_sentences(model, head_mask, *sentences), _unrelated_cosines(model, head_mask)]
    page.read(READING.format(pooling=POOLING_NAMES[model.effective_pooling.mode]))
    results = confirmed_results("alike", "Compare both sentences", works)
    similarity, cosines = results.values
    values, rows, columns = _parts_of_units(similarity, words=words.value)
    with page.figure().container(key=results.key("alike")):
        st.markdown(_describe(model, similarity.cosine, cosines))
        if model.pooling is None:
            name = escape_markdown(shown_name(model.name))
            st.warning(
                with_help(
                    f"{name} was not trained to make one vector of a text: the mean of its states is taken, so its "
                    "cosines may mean little. A model of sentence-transformers was."
                ),
                icon=":material/model_training:",
            )
        if max(values.shape) > MAX_CELLS:
            st.info(
                with_help(f"The map is drawn for texts of at most {MAX_CELLS} tokens each: the files have all of it.")
            )
        else:
            shares = values / (np.abs(values).max() or 1)
            figure = score_table(shares, values, rows, columns, extra_column=("in all", values.sum(1)))
            cosine = two_digits(similarity.cosine)
            alt = f"What each pair of tokens of both sentences adds to their cosine of {cosine}"
            width = 220 + 30 * len(columns)
            chart(figure, key="alike_map", min_width=width, toolbar=False, alt=alt)
    with st.container(key=results.key("parts")):
        _draw_largest(values, rows, columns)
        _draw_files(model, head_mask, *sentences, are_stale=results.are_stale)
        if st.button("Ask on Why which words make them alike", icon=":material/psychology_alt:", key="alike_why"):
            state = st.session_state
            (state.text, state.pair), state.masked, state.target = sentences, (), "alike:A"
            frame.go_to("why")


def _read_both(model: LoadedModel, first: str, second: str) -> tuple[Encoding, Encoding]:
    return read_sentence(model, first), read_sentence(model, second)


def _similarity_seconds(model: LoadedModel, head_mask: np.ndarray, first: str, second: str) -> float:
    return sum(estimate_seconds(model, len(encoding)) for encoding in _read_both(model, first, second))


@work("{model} reads two sentences", seconds=_similarity_seconds)
def _compare_sentences(model: LoadedModel, head_mask: np.ndarray, first: str, second: str) -> Similarity:
    return sentence_similarity(model, *_read_both(model, first, second), head_mask=head_mask)


def _unrelated_seconds(model: LoadedModel, head_mask: np.ndarray) -> float:
    return estimate_seconds(model, 12, len(UNRELATED_SENTENCES))


@work(f"{{model}} reads {len(UNRELATED_SENTENCES)} unrelated sentences", seconds=_unrelated_seconds)
def _unrelated_cosines(model: LoadedModel, head_mask: np.ndarray) -> np.ndarray:
    return unrelated_cosines(model, head_mask=head_mask)


def _describe(model: LoadedModel, cosine: float, cosines: np.ndarray) -> str:
    """Describe a cosine, compared with those of pairs of unrelated sentences."""
    low, high = (two_digits(float(limit)) for limit in np.quantile(cosines, (0.025, 0.975)))
    count = int((cosines < cosine).sum())
    rank = "more than all" if count == len(cosines) else f"more than {count} of the" if count else "less than all"
    return (
        f"The cosine of both sentences is **{two_digits(cosine)}**: {rank} {len(cosines)} that "
        f"{escape_markdown(shown_name(model.name))} gives pairs of English sentences that have nothing to do with each "
        f"other (95% of them from {low} to {high})."
    )


def _parts_of_units(similarity: Similarity, *, words: bool) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the parts of pieces or words, (row, column), and the labels of both."""
    first, second = similarity.first, similarity.second
    if not words:
        return similarity.parts, list(first.labels), list(second.labels)
    rows, columns = word_units(first), word_units(second)
    values = scores_of_units(scores_of_units(similarity.parts, columns).T, rows).T
    labels = [readable_word(first, unit) for unit in rows], [readable_word(second, unit) for unit in columns]
    return values, *labels


def _draw_largest(values: np.ndarray, rows: list[str], columns: list[str]) -> None:
    """Draw the largest parts, (row, column), as a table."""
    order = np.argsort(-np.abs(values), axis=None, kind="stable")[:MAX_PARTS]
    places = np.transpose(np.unravel_index(order, values.shape)).tolist()
    table = {
        "in the first": [rows[row] for row, _ in places],
        "in the second": [columns[column] for _, column in places],
        "adds": [float(values[row, column]) for row, column in places],
    }
    formats = {"adds": st.column_config.NumberColumn(format="%.4f")}
    st.dataframe(table, hide_index=True, width="stretch", column_config=formats)


def _draw_files(model: LoadedModel, head_mask: np.ndarray, first: str, second: str, *, are_stale: bool) -> None:
    """Draw the buttons of the parts of all tokens as files."""
    reference = ModelReference(model)

    def make_file(kind: str) -> bytes:
        similarity = wait_for(_compare_sentences(reference.get(), head_mask, first, second))
        return parts_csv(similarity) if kind == "csv" else picture_bytes(parts_picture(similarity), kind)

    with st.container(horizontal=True, gap="small"):
        for label, kind in (("All parts (CSV)", "csv"), ("Picture (SVG)", "svg"), ("Picture (PNG)", "png")):
            file_button(label, partial(make_file, kind), f"alike.{kind}", disabled=are_stale)

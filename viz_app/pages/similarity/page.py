"""Draws the page Sentence similarity: the model encodes the two sentences separately."""

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
from viz_app.figures.scores import similarity_parts
from viz_app.figures.style import two_digits
from viz_app.pages.similarity import TEXTS, words
from viz_app.shell import frame
from viz_app.shell.address import end_run
from viz_app.shell.heads import heads_off
from viz_app.shell.markdown import escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.models import ModelReference, selected_model
from viz_app.shell.results import confirmed_results
from viz_app.shell.sentence_pair import select_sentences
from viz_app.shell.view import View, add_file, chart, write_note
from viz_app.shell.work import estimate_seconds, wait_for, work

MAX_CELLS = 90  # rows or columns of the map
MAX_PARTS = 10  # rows of the table


def draw(page: View) -> None:
    """Draw the similarity of two sentences."""
    model = selected_model()
    if model is None:
        end_run()
    head_mask = heads_off(model)
    with page.controls():
        words()
    sentences = select_sentences(page)
    pooling = TEXTS.options("pooling")[model.effective_pooling.mode]
    page.read(TEXTS["reading"].format(pooling=pooling), TEXTS["misleads"])
    works = [_compare_sentences(model, head_mask, *sentences), _unrelated_cosines(model, head_mask)]
    with page.figure():
        results = confirmed_results("alike", "Compare both sentences", works)
    similarity, cosines = results.values
    values, rows, columns = _parts_of_units(similarity, words=words.value)
    with page.figure().container(key=results.key("alike")):
        st.markdown(_describe(model, similarity.cosine, cosines))
        left, right = st.columns([3, 2], gap="medium")
        with left:
            if max(values.shape) > MAX_CELLS:
                st.info(with_help(TEXTS["map_note"].format(cells=MAX_CELLS)))
            else:
                alt = f"Contribution of each pair of tokens to the cosine {two_digits(similarity.cosine)}"
                chart(similarity_parts(values, rows, columns), key="alike_map", alt=alt)
        with right:
            _draw_largest(values, rows, columns)
            if st.button("Explain with Attribution", icon=":material/psychology_alt:", key="alike_why"):
                state = st.session_state
                (state.text, state.pair), state.masked, state.target = sentences, (), "alike:A"
                frame.go_to("why")
            if model.pooling is None:
                write_note(TEXTS["untrained"].format(model=escape_markdown(shown_name(model.name))))
    _add_files(model, head_mask, *sentences, are_stale=results.are_stale)


def _read_both(model: LoadedModel, first: str, second: str) -> tuple[Encoding, Encoding]:
    return read_sentence(model, first), read_sentence(model, second)


def _similarity_seconds(model: LoadedModel, head_mask: np.ndarray, first: str, second: str) -> float:
    return sum(estimate_seconds(model, len(encoding)) for encoding in _read_both(model, first, second))


@work("{model} encodes two sentences", seconds=_similarity_seconds)
def _compare_sentences(model: LoadedModel, head_mask: np.ndarray, first: str, second: str) -> Similarity:
    return sentence_similarity(model, *_read_both(model, first, second), head_mask=head_mask)


def _unrelated_seconds(model: LoadedModel, head_mask: np.ndarray) -> float:
    return estimate_seconds(model, 12, len(UNRELATED_SENTENCES))


@work(f"{{model}} encodes {len(UNRELATED_SENTENCES)} unrelated sentences", seconds=_unrelated_seconds)
def _unrelated_cosines(model: LoadedModel, head_mask: np.ndarray) -> np.ndarray:
    return unrelated_cosines(model, head_mask=head_mask)


def _describe(model: LoadedModel, cosine: float, cosines: np.ndarray) -> str:
    """Describe a cosine, compared with those of pairs of unrelated sentences."""
    low, high = (two_digits(float(limit)) for limit in np.quantile(cosines, (0.025, 0.975)))
    count = int((cosines < cosine).sum())
    rank = f"higher than {count} of {len(cosines)}"
    if count in (0, len(cosines)):
        rank = f"{'higher' if count else 'lower'} than all {len(cosines)}"
    return (
        f"#### Cosine {two_digits(cosine)}: {rank} pairs of unrelated sentences\n\n"
        f"{escape_markdown(shown_name(model.name))} gives 95% of these unrelated English pairs a cosine from {low} to "
        f"{high}."
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
    """Draw the parts with the largest magnitude, (row, column), as a table."""
    order = np.argsort(-np.abs(values), axis=None, kind="stable")[:MAX_PARTS]
    places = np.transpose(np.unravel_index(order, values.shape)).tolist()
    table = {
        "first sentence": [rows[row] for row, _ in places],
        "second sentence": [columns[column] for _, column in places],
        "part of the cosine": [float(values[row, column]) for row, column in places],
    }
    formats = {"part of the cosine": st.column_config.NumberColumn(format="%.4f")}
    st.dataframe(table, hide_index=True, width="stretch", column_config=formats)


def _add_files(model: LoadedModel, head_mask: np.ndarray, first: str, second: str, *, are_stale: bool) -> None:
    """Offer the parts of all tokens as files."""
    reference = ModelReference(model)

    def make_file(kind: str) -> bytes:
        similarity = wait_for(_compare_sentences(reference.get(), head_mask, first, second))
        return parts_csv(similarity) if kind == "csv" else picture_bytes(parts_picture(similarity), kind)

    for label, kind in (("All parts (CSV)", "csv"), ("Picture (SVG)", "svg"), ("Picture (PNG)", "png")):
        add_file(label, partial(make_file, kind), f"alike.{kind}", disabled=are_stale)

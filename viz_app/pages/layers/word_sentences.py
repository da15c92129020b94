"""The part One word in several sentences: the cosine similarities of the states of a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.lens import cosine_similarities, mean_similarity
from bert_core.records import LayerStates
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_names, short_names, similarity_matrix
from viz_app.figures.style import current_look
from viz_app.pages.layers import COMMON_WORD, SENTENCES, common_word, sentences
from viz_app.pages.layers.shared import add_numbers, draw_lines, hidden_states, select_depth
from viz_app.shell.controls import example_button
from viz_app.shell.markdown import escape_markdown, protect_terms, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart
from viz_app.shell.work import wait_for

MAX_SENTENCES, MAX_SENTENCE_CHARACTERS = 20, 2_000
CONTEXT_WORDS = 3  # on either side of the word that is compared
READING = (
    "**How to read this:** how similar the word's states are in each two sentences: a cosine of 1 is the same "
    "direction. In the embeddings they differ by position only; the layers move them apart by context. **How it can "
    "mislead:** all states share a common direction, so even unrelated words look similar: compare with the line “any "
    "two words”."
)


def draw(page: View) -> None:
    """Draw the similarities at the selected depth, and those of some pairs through the layers."""
    selection = page.selection
    with page.controls():
        lines = [line.strip() for line in sentences().splitlines() if line.strip()]
        word = common_word()
    if len(lines) > MAX_SENTENCES or any(len(line) > MAX_SENTENCE_CHARACTERS for line in lines):
        st.error(
            with_help(
                f"There are {len(lines)} sentences, the longest with {max(map(len, lines)):,} characters: at most "
                f"{MAX_SENTENCES} sentences of {MAX_SENTENCE_CHARACTERS:,} characters can be compared."
            )
        )
        return
    for number, encoding in enumerate(_encode(selection, lines), start=1):
        if not _occurrences(encoding, word):
            quoted = protect_terms(escape_markdown(word.strip()))
            st.warning(with_help(f"Sentence {number} does not contain “{quoted}” and is left out."))
    similarities = _compare(selection, lines, word)
    if similarities is None:
        sentence = "Give at least two sentences that contain the word, or one that contains it twice."
        example_button(sentence, f"Four sentences with “{COMMON_WORD}”", _take_example)
        return
    with page.controls():
        depth = select_depth(len(similarities.cosines))
    with page.figure():
        # Both beside each other where there is room, otherwise one below the other.
        row = st.container(horizontal=True, height="stretch", gap="medium")
        if current_look().lecture:  # all cells are visible at once, also where the lines are below them
            height = 60 + 34 * len(similarities.labels)
            st.html(f"<style>.st-key-similar {{ max-height: max(45vh, {height}px); }}</style>")
    _draw_matrix(row, similarities, depth)
    with row.container(width="stretch", height="stretch"):
        _draw_pairs(similarities)
    add_numbers("sentences", lambda: _columns(selection, lines, word))


class Similarities(NamedTuple):
    """The similarities of the occurrences of a word.

    labels: each occurrence in its context. cosines: (depth, occurrence, occurrence). any_words: (depth,), the mean
    cosine of any two words.
    """

    labels: list[str]
    cosines: np.ndarray
    any_words: np.ndarray

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of occurrences, the earlier one first."""
        return [(first, second) for second in range(len(self.labels)) for first in range(second)]


def _draw_matrix(row: DeltaGenerator, similarities: Similarities, depth: int) -> None:
    labels = similarities.labels
    letter, cell = (9.7, 60) if current_look().lecture else (7.3, 52)  # pixels
    width = round(letter * (max(map(len, labels)) + 5) + cell * len(labels) + 90)  # labels, cells and color scale
    alt = f"Cosine similarity of {len(labels)} occurrences, {depth_names(len(similarities.cosines))[depth]}"
    with row.container(width=width, height="stretch"):
        figure = similarity_matrix(similarities.cosines[depth], labels)
        chart(figure, key="similar", alt=alt)


def _draw_pairs(similarities: Similarities) -> None:
    """Draw the two pairs that end nearest, the two that end farthest apart, and the mean of any two words."""
    cosines = similarities.cosines
    ordered = sorted(similarities.pairs, key=lambda pair: cosines[-1][pair])
    pairs = dict.fromkeys([*ordered[-2:][::-1], *ordered[:2]])
    series = {f"{first + 1} and {second + 1}": cosines[:, first, second] for first, second in pairs}
    draw_lines(
        "similar_lines", {**series, "any two words": similarities.any_words}, short_names(len(cosines)), "cosine"
    )


def _compare(selection: Selection, lines: Sequence[str], word: str) -> Similarities | None:
    """Compare a word wherever the sentences contain it; return None for fewer than two occurrences."""
    vectors, labels, word_states = [], [], []
    for encoding in _encode(selection, lines):
        if occurrences := _occurrences(encoding, word):
            states = _states(selection, encoding).states
            word_states.append(states[:, ~np.array(encoding.special)])
            vectors += [states[:, list(encoding.pieces_of(number))].mean(1) for number in occurrences]
            labels += [_in_context(encoding, number) for number in occurrences]
    if len(vectors) < 2:
        return None
    any_words = mean_similarity(np.concatenate(word_states, 1))
    return Similarities(labels, cosine_similarities(np.stack(vectors, 1)), any_words)


def _states(selection: Selection, encoding: Encoding) -> LayerStates:
    # Edits of the model belong to the tokens of the shared text.
    model = selection.loaded if encoding == selection.encoding else selection.plain
    return wait_for(hidden_states(model, encoding, selection.head_mask))


def _encode(selection: Selection, lines: Sequence[str]) -> list[Encoding]:
    model = selection.loaded
    return [model.tokenizer.encode(line, max_length=model.config.max_position_embeddings) for line in lines]


def _columns(selection: Selection, lines: Sequence[str], word: str) -> dict[str, Sequence[object]]:
    """Return every pair of occurrences as the columns of a table, by depth."""
    similarities = _compare(selection, lines, word)
    assert similarities is not None  # the page drew them
    labels, cosines, _ = similarities
    names, pairs = short_names(len(cosines)), similarities.pairs
    return {
        "depth": [name for name in names for _ in pairs],
        "one": [labels[first] for first, _ in pairs] * len(names),
        "other": [labels[second] for _, second in pairs] * len(names),
        "cosine": [cosines[depth, second, first] for depth in range(len(names)) for first, second in pairs],
    }


def _take_example() -> None:
    sentences.set(SENTENCES)
    common_word.set(COMMON_WORD)


def _occurrences(encoding: Encoding, word: str) -> list[int]:
    """Return the numbers of the words of a text that equal a word, apart from case."""
    folded = word.strip().casefold()
    numbers = range(encoding.word_count) if folded else ()
    return [number for number in numbers if encoding.word_text(number).casefold() == folded]


def _in_context(encoding: Encoding, word: int) -> str:
    """Return a word, marked, between its neighbours."""
    neighbours = range(max(word - CONTEXT_WORDS, 0), min(word + CONTEXT_WORDS + 1, encoding.word_count))
    return " ".join(f"‹{encoding.word_text(n)}›" if n == word else encoding.word_text(n) for n in neighbours)

"""The view One word: the cosine similarities of the hidden states of a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bert_core.analysis.lens import cosine_similarities, mean_similarity
from bert_core.records import LayerStates
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_phrase, short_names, similarity_matrix
from viz_app.figures.style import current_look, two_digits
from viz_app.pages.layers import COMMON_WORD, SENTENCES, TEXTS, common_word, sentences
from viz_app.pages.layers.shared import draw_lines, hidden_states
from viz_app.shell.controls import example_button
from viz_app.shell.depth import select_depth
from viz_app.shell.downloads import add_numbers
from viz_app.shell.markdown import quoted, quoted_without_terms, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import View, chart, write_result
from viz_app.shell.work import wait_for

MAX_SENTENCES, MAX_SENTENCE_CHARACTERS = 20, 2_000
CONTEXT_WORDS = 3  # on either side of the word that is compared


def draw(page: View, row: DeltaGenerator) -> None:
    """Draw the similarities at the selected depth, and those of some pairs through the layers. row: of the controls."""
    selection, word = page.selection, common_word.value
    lines = [line.strip() for line in sentences.value.splitlines() if line.strip()]
    is_too_much = len(lines) > MAX_SENTENCES or any(len(line) > MAX_SENTENCE_CHARACTERS for line in lines)
    similarities = None if is_too_much else _compare(selection, lines, word)
    if similarities is not None:
        with row:
            depth = select_depth(len(similarities.cosines))
        name = depth_phrase(depth)
        with page.figure():
            write_result(*_describe(similarities, word, depth, name))
    left, right = page.figure().columns([3, 2], gap="medium")
    # In a lecture the height of the window is for the figures.
    lecture = current_look().lecture
    matrix = left if lecture else left.container()
    inputs = (page.controls(horizontal=False) if lecture else left).columns([3, 1], gap="small")
    sentences(inputs[0])
    common_word(inputs[1])
    with matrix:
        if is_too_much:
            st.error(
                with_help(
                    f"There are {len(lines)} sentences, the longest with {max(map(len, lines)):,} characters: at most "
                    f"{MAX_SENTENCES} sentences of {MAX_SENTENCE_CHARACTERS:,} characters can be compared."
                )
            )
            return
        for number, encoding in enumerate(_encode(selection, lines), start=1):
            if not _occurrences(encoding, word):
                missing = quoted_without_terms(word.strip())
                st.warning(with_help(f"Sentence {number} does not contain {missing} and is left out."))
        if similarities is not None:
            alt = f"Cosine similarity of {len(similarities.labels)} occurrences, {name}"
            chart(similarity_matrix(similarities.cosines[depth], similarities.labels), key="similar", alt=alt)
    with right:
        if similarities is None:
            label = f"Use four sentences with “{COMMON_WORD}”"
            example_button(TEXTS["too_few_occurrences"], label, _take_example)
            return
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


def _describe(similarities: Similarities, word: str, depth: int, name: str) -> tuple[str, str]:
    """Describe the most and the least similar pair at a depth, in two parts."""
    cosines = similarities.cosines[depth]

    def pair_text(pair: tuple[int, int]) -> str:
        return f"{pair[0] + 1} and {pair[1] + 1} (cosine {two_digits(cosines[pair])})"

    ordered = sorted(similarities.pairs, key=cosines.__getitem__)
    heading = f"{quoted(word.strip())} {name}: most similar in sentences {pair_text(ordered[-1])}"
    if len(ordered) > 1:
        heading += f", least in {pair_text(ordered[0])}"
    return heading, f"Any two words have a mean cosine of {two_digits(similarities.any_words[depth])} there."


def _draw_pairs(similarities: Similarities) -> None:
    """Draw the two pairs that end most similar, the two that end least similar, and the mean of any two words."""
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
    return [*map(selection.loaded.tokenizer.encode, lines)]


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

"""How alike the states of one word are in several sentences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import streamlit as st

from bert_core.analysis.lens import cosine_similarities, mean_similarity
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_names, short_names, similarity_matrix
from viz_app.figures.style import current_look
from viz_app.pages.layers import LIKE, SEVERAL
from viz_app.pages.layers.shared import Part, depth_slider, draw_lines, states_of, take_along
from viz_app.shell.controls import control, example_button
from viz_app.shell.markdown import escape_markdown, protect_terms, with_help
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, page_place

MOST_SENTENCES, LONGEST_SENTENCE = 20, 2_000
CONTEXT = 3  # words on either side of the word that is compared


def sentences(current: Selection) -> None:
    """How alike the states of one word are in several sentences."""
    state = st.session_state
    left, right = page_place("controls").columns([5, 2])
    control(left.text_area, "Sentences, one per line", "several", height="content")
    control(right.text_input, "Word to compare", "like")
    lines = [line.strip() for line in state.several.splitlines() if line.strip()]
    if len(lines) > MOST_SENTENCES or any(len(line) > LONGEST_SENTENCE for line in lines):
        st.error(
            with_help(
                f"There are {len(lines)} sentences, the longest with {max(map(len, lines)):,} characters: at most "
                f"{MOST_SENTENCES} sentences of {LONGEST_SENTENCE:,} characters can be compared."
            )
        )
        return
    for number, encoding in enumerate(_encoded(current, lines), start=1):
        if not _occurrences(encoding, state.like):
            word = protect_terms(escape_markdown(state.like.strip()))
            st.warning(with_help(f"Sentence {number} does not contain “{word}” and is left out."))
    found = _compared(current, lines, state.like)
    if found is None:
        example_button(
            "Give at least two sentences that contain the word, or one that contains it twice.",
            f"Four sentences with “{LIKE}”", _take_sentences,
        )  # fmt: skip
        return
    labels, similar, common = found
    with page_place("figure"):
        depth = depth_slider(len(similar))
        # Side by side where both have room, else one under the other.
        row = st.container(horizontal=True, height="stretch", gap="medium")
        if current_look().lecture:  # all cells are seen at once, also where the lines stand below them
            st.html(f"<style>.st-key-similar {{ max-height: max(45vh, {60 + 34 * len(labels)}px); }}</style>")
    with row.container(width=_width(labels), height="stretch"):
        chart(
            similarity_matrix(similar[depth], labels),
            key="similar", config={"displayModeBar": False},
            alt=f"Cosine similarity of {len(labels)} occurrences, {depth_names(len(similar))[depth]}",
        )  # fmt: skip
    with row.container(width="stretch", height="stretch"):
        # The pairs that end furthest apart and nearest, and what any two words have in common.
        order = sorted(_pairs(labels), key=lambda pair: similar[-1][pair])
        drawn = dict.fromkeys([*order[-2:][::-1], *order[:2]])
        series = {f"{min(pair) + 1} and {max(pair) + 1}": similar[:, *pair] for pair in drawn}
        draw_lines(current, "similar_lines", {**series, "any two words": common}, short_names(len(similar)), "cosine")
    take_along("sentences", partial(_columns, current, lines, state.like))


def _width(labels: Sequence[str]) -> int:
    """Pixels that the matrix needs: the labels before it, its cells, and the scale behind it."""
    letter, cell = (9.7, 60) if current_look().lecture else (7.3, 52)
    return round(letter * (max(map(len, labels)) + 5) + cell * len(labels) + 90)


class Compared(NamedTuple):
    """Each place of a word in its context, their cosines (depth, place, place), and those of any two words (depth,)."""

    labels: list[str]
    similar: np.ndarray
    common: np.ndarray


def _compared(current: Selection, lines: Sequence[str], like: str) -> Compared | None:
    """A word wherever these sentences have it; None where that is less than twice."""
    vectors, labels, everything = [], [], []
    for encoding in _encoded(current, lines):
        if places := _occurrences(encoding, like):
            states = states_of(current, encoding).states
            everything.append(states[:, [place for place, special in enumerate(encoding.special) if not special]])
            vectors += [states[:, list(encoding.pieces_of(word))].mean(1) for word in places]
            labels += [_in_context(encoding, word) for word in places]
    if len(vectors) < 2:
        return None
    return Compared(labels, cosine_similarities(np.stack(vectors, 1)), mean_similarity(np.concatenate(everything, 1)))


def _encoded(current: Selection, lines: Sequence[str]) -> list[Encoding]:
    longest = current.loaded.config.max_position_embeddings
    return [current.loaded.tokenizer.encode(line, max_length=longest) for line in lines]


def _pairs(labels: Sequence[str]) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(labels)) for j in range(i)]


def _columns(current: Selection, lines: Sequence[str], like: str) -> dict[str, Sequence[object]]:
    """Every two places of the word as the columns of a table, depth by depth."""
    found = _compared(current, lines, like)
    assert found is not None  # the page drew it
    labels, similar, _ = found
    names, pairs = short_names(len(similar)), _pairs(labels)
    return {
        "depth": [name for name in names for _ in pairs],
        "one": [labels[j] for _, j in pairs] * len(names),
        "other": [labels[i] for i, _ in pairs] * len(names),
        "cosine": [similar[depth, i, j] for depth in range(len(names)) for i, j in pairs],
    }


def _take_sentences() -> None:
    st.session_state.several, st.session_state.like = SEVERAL, LIKE


def _occurrences(encoding: Encoding, word: str) -> list[int]:
    """The words of a text that are this word, whatever their case."""
    wanted = word.strip().casefold()
    return [n for n in range(encoding.word_count) if wanted and encoding.word_text(n).casefold() == wanted]


def _in_context(encoding: Encoding, word: int) -> str:
    """A word with some of its neighbours."""
    around = range(max(word - CONTEXT, 0), min(word + CONTEXT + 1, encoding.word_count))
    return " ".join(f"‹{encoding.word_text(n)}›" if n == word else encoding.word_text(n) for n in around)


PART = Part(
    "One word in several sentences",
    sentences,
    "how similar the word's states are in each two sentences: a cosine of 1 is the same direction. In the "
    "embeddings they differ by position only; the layers move them apart by context.",
    "all states share a common direction, so even unrelated words look similar: compare with the line “any two words”.",
)

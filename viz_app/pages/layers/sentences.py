"""How alike the states of one word are in several sentences."""

from __future__ import annotations

import numpy as np
import streamlit as st

from bert_core.analysis.lens import cosine_similarities, mean_similarity
from bert_core.tokenizer import Encoding
from viz_app.figures.lens import depth_names, short_names, similarity_matrix
from viz_app.pages.layers import LIKE, SEVERAL
from viz_app.pages.layers.shared import Part, depth_slider, draw_lines, quoted, states_of, take_along
from viz_app.shell import screen
from viz_app.shell.controls import control, missing
from viz_app.shell.question import Question

MOST_SENTENCES, LONGEST_SENTENCE = 20, 2_000
CONTEXT = 3  # words on either side of the word that is compared


def sentences(current: Question) -> None:
    """How alike the states of one word are in several sentences."""
    state = st.session_state
    left, right = st.columns([5, 2])
    control(left.text_area, "Sentences, one per line", "several", height="content")
    control(right.text_input, "Word to compare", "like")
    lines = [line.strip() for line in state.several.splitlines() if line.strip()]
    if len(lines) > MOST_SENTENCES or any(len(line) > LONGEST_SENTENCE for line in lines):
        st.error(
            f"There are {len(lines)} sentences, the longest with {max(map(len, lines)):,} characters: at most "
            f"{MOST_SENTENCES} sentences of {LONGEST_SENTENCE:,} characters can be compared."
        )
        return
    vectors, labels, everything = [], [], []
    for number, line in enumerate(lines, start=1):
        encoding = current.loaded.tokenizer.encode(line, max_length=current.loaded.config.max_position_embeddings)
        places = _occurrences(encoding, state.like)
        if not places:
            st.warning(f"Sentence {number} does not contain {quoted(state.like.strip())} and is left out.")
            continue
        states = states_of(current, encoding).states
        everything.append(states[:, [place for place, special in enumerate(encoding.special) if not special]])
        for word in places:
            vectors.append(states[:, list(encoding.pieces_of(word))].mean(1))
            labels.append(_in_context(encoding, word))
    if len(vectors) < 2:
        missing(
            "Give at least two sentences that contain the word, or one that contains it twice.",
            f"Four sentences with “{LIKE}”", _take_sentences,
        )  # fmt: skip
        return
    similar = cosine_similarities(np.stack(vectors, 1))
    common = mean_similarity(np.concatenate(everything, 1))
    depth = depth_slider(len(similar))
    matrix, lines_of_pairs = st.columns([6, 5], gap="medium")
    with matrix:
        screen.chart(
            similarity_matrix(similar[depth], labels, dark=current.dark, lecture=current.lecture),
            key="similar", config={"displayModeBar": False},
            alt=f"Cosine similarity of {len(labels)} occurrences, {depth_names(len(similar))[depth]}",
        )  # fmt: skip
    with lines_of_pairs:
        pairs = [(i, j) for i in range(len(labels)) for j in range(i)]
        # The pairs that end furthest apart and nearest, and what any two words have in common.
        order = sorted(pairs, key=lambda pair: similar[-1][pair])
        drawn = dict.fromkeys([*order[-2:][::-1], *order[:2]])
        series = {f"{min(pair) + 1} and {max(pair) + 1}": similar[:, *pair] for pair in drawn}
        draw_lines(current, "similar_lines", {**series, "any two words": common}, short_names(len(similar)), "cosine")
    names = short_names(len(similar))
    take_along(
        "sentences",
        lambda: {
            "depth": [name for name in names for _ in pairs],
            "one": [labels[j] for _, j in pairs] * len(names),
            "other": [labels[i] for i, _ in pairs] * len(names),
            "cosine": [similar[depth, i, j] for depth in range(len(names)) for i, j in pairs],
        },
    )


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

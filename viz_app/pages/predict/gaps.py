"""What a click does with the words of a gap, and with the two sentences."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from bert_core.calibration import apply_temperature, check_temperature, read_temperature
from bert_core.records import MaskPrediction
from bert_core.refused import Refused
from viz_app.shell.markdown import error_sentence, with_help
from viz_app.shell.selection import NO_TOKENS, Selection
from viz_app.shell.work import cached_of_model_by_key

UNSURE = 0.2  # a best guess below this probability is called unsure


def swap_sentences() -> None:
    """A becomes B and B becomes A; a click on a button."""
    state = st.session_state
    state.text, state.pair, state.masked, state.tokens = state.pair, state.text, (), NO_TOKENS


def put_clicked_word(current: Selection, position: int, words: Sequence[str], key: str) -> None:
    """Put in the word whose bar was clicked in the figure `key`. words: those of its bars."""
    if points := st.session_state[key].selection.points:
        put_word(current, position, words[int(points[0]["y"])])


def put_chosen_word(current: Selection, position: int, key: str) -> None:
    """Put in the word that was picked in the control `key`."""
    word = st.session_state[key]
    if word is not None:
        put_word(current, position, word)


def put_word(current: Selection, position: int, word: str) -> None:
    """Write a word into the text where a mask is, and take the mask away."""
    encoding, state = current.encoding, st.session_state
    number, side = encoding.words[position], "text" if encoding.sides[position] == "A" else "pair"
    pieces = encoding.pieces_of(number) if number is not None else (position,)
    start, end = encoding.offsets[pieces[0]][0], encoding.offsets[pieces[-1]][1]
    source = state[side]
    state[side] = source[:start] + word.removeprefix("##").lstrip("␣") + source[end:]
    state.masked = tuple(w for w in state.masked if w != number)


def temperature(current: Selection) -> float | None:
    """What calibrates the model's confidence; None where nobody measured it. A file that does not fit is said."""
    loaded = current.loaded
    try:
        found: float | None = cached_of_model_by_key(
            ("temperature", loaded.weights_key), lambda: read_temperature(loaded)
        )
        if found is None:
            check_temperature(loaded)
    except Refused as error:
        st.warning(with_help(error_sentence(error)), icon=":material/link_off:")
        return None
    return found


def say_if_unsure(prediction: MaskPrediction, temperature: float | None) -> None:
    """Say that the best guess is too improbable to be called an answer, where it is.

    temperature: what the scores are divided by first, so that guesses are right as often as they are sure; None: 1.
    """
    sure = prediction.top[0][1]
    if temperature is not None:
        sure = float(apply_temperature(prediction.probabilities, temperature).max())
    if sure >= UNSURE:
        return
    said = f"its best guess has only probability {sure:.2g}"
    if temperature is not None:
        said = f"of first guesses as sure as this one, about {sure:.0%} are right"
    st.warning(with_help(f"The model is unsure: {said}."), icon=":material/help:")

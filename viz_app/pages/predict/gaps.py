"""Target and text by a click on a predicted word, and the confidence of a prediction."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from bert_core.calibration import apply_temperature, check_temperature, read_temperature
from bert_core.loading import LoadedModel
from bert_core.records import MaskPrediction, Target
from bert_core.refused import Refused
from viz_app.shell.markdown import error_sentence, with_help
from viz_app.shell.selection import Selection, forget_positions
from viz_app.shell.target import set_target
from viz_app.shell.view import write_note
from viz_app.shell.work import cached_per_model

UNSURE = 0.2  # probability of a first guess below which it is called unsure


def swap_sentences() -> None:
    """Exchange the two sentences."""
    state = st.session_state
    state.text, state.pair, state.masked = state.pair, state.text, ()
    forget_positions()


def explain_clicked_word(selection: Selection, position: int, pieces: Sequence[int], key: str) -> None:
    """Make the word whose bar was clicked in the figure with this key the target. pieces: those of its bars."""
    if points := st.session_state[key].selection.points:
        set_target(Target("mlm", position, pieces[int(points[0]["y"])]), selection)


def put_word(selection: Selection, position: int, word: str) -> None:
    """Replace a mask by a word in the text."""
    encoding, state = selection.encoding, st.session_state
    number, side = encoding.words[position], "text" if encoding.sides[position] == "A" else "pair"
    pieces = encoding.pieces_of(number) if number is not None else (position,)
    start, end = encoding.offsets[pieces[0]][0], encoding.offsets[pieces[-1]][1]
    source = state[side]
    state[side] = source[:start] + word.removeprefix("##").lstrip("␣") + source[end:]
    state.masked = tuple(word for word in state.masked if word != number)


def find_temperature(selection: Selection) -> float | None:
    """Return the temperature that calibrates the model, or None if it was not measured or its file does not fit."""
    try:
        temperature = _temperature_of(selection.plain)
        if temperature is None:
            check_temperature(selection.loaded)
    except Refused as error:
        st.warning(with_help(error_sentence(error)), icon=":material/link_off:")
        return None
    return temperature


@cached_per_model
def _temperature_of(model: LoadedModel) -> float | None:
    return read_temperature(model)


def note_if_unsure(prediction: MaskPrediction, temperature: float | None) -> None:
    """Write a note if the top guess is too improbable to be called an answer.

    temperature: divides the scores first, so that the share of right guesses equals the confidence; None for 1.
    """
    confidence = prediction.top[0][1]
    if temperature is not None:
        confidence = float(apply_temperature(prediction.probabilities, temperature).max())
    if confidence >= UNSURE:
        return
    if temperature is None:
        sentence = f"The model is unsure: its top guess has a probability of only {confidence:.2g}."
    else:
        sentence = f"The model is unsure: about {confidence:.0%} of top guesses with this confidence are correct."
    write_note(f":material/help: {sentence}")

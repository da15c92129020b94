"""The answer of a model for multiple choice: the probability of each of several choices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from bert_core.loading import LoadedModel
from bert_core.records import ChoicePrediction, ModelRun
from bert_core.refused import Refused
from bert_core.run.multiple_choice import encode_choices, score_choices
from bert_core.tokenizer import Encoding
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import two_digits
from viz_app.pages.predict import TEXTS, choices
from viz_app.shell import downloads, frame
from viz_app.shell.controls import example_button
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.selection import Selection, forget_positions
from viz_app.shell.target import OWN_TARGET
from viz_app.shell.view import View, chart, write_note
from viz_app.shell.work import Work, confirm, estimate_seconds, work

MAX_CHOICE_CHARACTERS = 2_000
MAX_LABEL_CHARACTERS = 60  # of a choice on a button
QUESTION = "Anna has a red ball. Tom has a blue car. What does Tom have?"
EXAMPLE = "A blue car.\nA red ball.\nA garden."


def draw_choices(page: View, run: ModelRun) -> None:
    """Draw the control of the choices and their probabilities."""
    with page.controls():
        lines = [line.strip() for line in choices().splitlines() if line.strip()]
    with page.figure():
        if lines:
            _draw_prediction(page, lines)
        else:
            example_button(TEXTS["choices.missing"], TEXTS["add_example"], _take_example)


def _draw_prediction(page: View, lines: Sequence[str]) -> None:
    try:
        judgement = _choices_work(page.selection, lines)
    except Refused as error:
        st.warning(with_help(error_sentence(error)), icon=":material/rule:")
        return
    prediction: ChoicePrediction | None = confirm(f"Compare {len(lines)} options", judgement)
    if prediction is None:
        return
    ordered = [prediction.choices[number] for number in prediction.order]
    probabilities = prediction.probabilities[list(prediction.order)].tolist()
    st.markdown(f"#### “{escape_markdown(_shorten(ordered[0]))}”: {two_digits(probabilities[0])}")
    figure = prediction_bars(ordered, probabilities, largest=1.0)
    alt = f"Probability of each option, the most probable first: {ordered[0]}"
    chart(figure, key="choice_bars", alt=alt)
    _draw_explanation_buttons(prediction)
    if page.selection.loaded.edits:
        write_note(TEXTS["choices.unmodified"])
    page.read(TEXTS["choices.reading"], TEXTS["choices.misleads"])


@work(
    "{model} reads {pairs} options",
    seconds=lambda model, pairs, *_: sum(estimate_seconds(model, len(pair)) for pair in pairs),
)
def _score_pairs(model: LoadedModel, pairs: Sequence[Encoding], head_mask: np.ndarray) -> ChoicePrediction:
    return score_choices(model, pairs, head_mask=head_mask)


def _choices_work(selection: Selection, lines: Sequence[str]) -> Work[ChoicePrediction]:
    """Return the work that judges choices, with the masks of the text. Raises Refused for choices that cannot be."""
    if (longest := max(map(len, lines))) > MAX_CHOICE_CHARACTERS:
        raise Refused(f"the longest option has {longest:,} characters: at most {MAX_CHOICE_CHARACTERS:,} can be read")
    model, state = selection.plain, st.session_state  # edits belong to the tokens of one pair
    pairs = []
    for line, pair in zip(lines, encode_choices(model, state.text, lines), strict=True):
        sides = ("A", "B") if line == state.pair.strip() else ("A",)
        words = {word for word, side in zip(pair.words, pair.sides, strict=True) if side in sides}
        pairs.append(model.tokenizer.mask_words(pair, [word for word in state.masked if word in words]))
    return _score_pairs(model, tuple(pairs), selection.head_mask)


def _draw_explanation_buttons(prediction: ChoicePrediction) -> None:
    """Draw the choices that can be explained, the button that opens their explanation, and that of the CSV file."""
    pair = st.session_state.pair.strip()
    selected = next((number for number, choice in enumerate(prediction.choices) if choice == pair), None)
    key = f"choice_asked_{prediction.order}_{selected}"
    st.pills(
        "Explain",
        prediction.order,
        default=selected,
        key=key,
        format_func=lambda number: escape_markdown(_shorten(prediction.choices[number])),
        on_change=_explain_selected,
        args=(prediction, key),
    )
    choice = prediction.choices[prediction.order[0] if selected is None else selected]
    with st.container(horizontal=True):
        is_why_pressed = st.button(
            "Explain this option", key="why_choice", icon=":material/help:", on_click=_explain, args=(choice,)
        )
        downloads.choices(prediction)
    if is_why_pressed:
        frame.go_to("why")


def _explain_selected(prediction: ChoicePrediction, key: str) -> None:
    """Explain the choice that was selected in the control with this key."""
    if (number := st.session_state[key]) is not None:
        _explain(prediction.choices[number])


def _explain(choice: str) -> None:
    """Make a choice the second text and the target."""
    state = st.session_state
    if state.pair.strip() != choice:
        state.pair, state.masked = choice, ()
        forget_positions()
    state.target, state.contrast, state[OWN_TARGET] = "choice", "", True


def _take_example() -> None:
    state = st.session_state
    choices.set(EXAMPLE)
    state.text, state.pair, state.masked = QUESTION, "", ()
    forget_positions()


def _shorten(choice: str) -> str:
    line = " ".join(choice.split())
    return line if len(line) <= MAX_LABEL_CHARACTERS else f"{line[:MAX_LABEL_CHARACTERS]}…"

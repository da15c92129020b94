"""Which of several answers? How probable a chooser finds each among them, and the way to why one of them."""

from __future__ import annotations

import streamlit as st

from bert_core.records import ChoicePrediction, ModelRun
from bert_core.refused import Refused
from bert_core.run.multiple_choice import encode_choices, score_choices
from bert_core.tokenizer import Encoding
from viz_app.figures.predictions import prediction_bars
from viz_app.figures.style import two_digits
from viz_app.shell import downloads, frame
from viz_app.shell.controls import control, example_button
from viz_app.shell.edits import NO_EDITS
from viz_app.shell.markdown import error_sentence, escape_markdown, with_help
from viz_app.shell.model_names import shown_name
from viz_app.shell.selection import NO_TOKENS, Selection
from viz_app.shell.target import OWN_TARGET
from viz_app.shell.view import chart, page_place, write_note, write_reading
from viz_app.shell.work import Work, estimate_seconds, is_confirmed, wait_for

LONGEST_CHOICE = 2_000  # characters
LONGEST_NAMED = 60  # characters of a choice on a button
QUESTION = "Anna has a red ball. Tom has a blue car. What does Tom have?"
EXAMPLE = "A blue car.\nA red ball.\nA garden."


def draw_choices(current: Selection, run: ModelRun) -> None:
    """The typed answers, and which of them is chosen."""
    with page_place("figure"):
        typed, said = st.columns([2, 3], gap="large")
        with typed:
            control(
                st.text_area, "Choices, one per line", "choices", height="content",
                placeholder="Possible answers to the question in A",
            )  # fmt: skip
        with said:
            _chosen(current)


def _chosen(current: Selection) -> None:
    lines = [line.strip() for line in st.session_state.choices.splitlines() if line.strip()]
    if not lines:
        example_button(
            "This model chooses among answers: type a question as the text, and some answers here.",
            "Add an example", _put_example,
        )  # fmt: skip
        return
    try:
        if (longest := max(map(len, lines))) > LONGEST_CHOICE:
            raise Refused(f"the longest choice has {longest:,} characters: at most {LONGEST_CHOICE:,} can be read")
        work = _work(current, lines)
    except Refused as error:
        st.warning(with_help(error_sentence(error)), icon=":material/rule:")
        return
    if not is_confirmed("choices", work.key, f"Judge {len(lines)} choices", work.seconds):
        return
    found = wait_for(work)
    best = found.order[0]
    st.markdown(
        f"#### “{escape_markdown(_named(found.choices[best]))}”: {two_digits(float(found.probabilities[best]))}"
    )
    chart(
        prediction_bars(
            [found.choices[number] for number in found.order], found.probabilities[list(found.order)].tolist(),
            largest=1.0,
        ),
        key="choice_bars", config={"displayModeBar": False},
        alt=f"Probability of each choice, the likeliest first: {found.choices[best]}",
    )  # fmt: skip
    _ask(found)
    if current.loaded.edits:
        write_note(
            "What is changed in the model belongs to the pair above: here it is as it was loaded, with the same heads."
        )
    write_reading(
        "**How to read this:** each choice is read with A as a pair of its own, and gets one number, its logit; the "
        "bars are the softmax of these, so all of them add up to 1. “Why” makes the choice the second text, whose "
        "words and heads every page then shows. **How it can mislead:** one of the choices always wins, even where "
        "all are wrong; another choice beside it changes every bar, and no logit."
    )


def _work(current: Selection, lines: list[str]) -> Work[ChoicePrediction]:
    """All choices with the question, hidden words hidden. Raises Refused for choices that cannot be judged."""
    loaded, gates = current.plain, current.head_mask  # what is changed belongs to the tokens of one pair
    state = st.session_state
    pairs = tuple(
        loaded.tokenizer.mask_words(pair, _hidden(pair, whole=line == state.pair.strip()))
        for line, pair in zip(lines, encode_choices(loaded, state.text, lines), strict=True)
    )
    return Work(
        ("choose", loaded.identity, gates.tobytes(), pairs),
        f"{shown_name(loaded.name)} reads {len(pairs)} choices",
        lambda _: score_choices(loaded, pairs, head_mask=gates),
        sum(estimate_seconds(loaded, len(pair)) for pair in pairs),
    )


def _hidden(pair: Encoding, *, whole: bool) -> list[int]:
    """Words of a pair that are hidden: those of the question, and of the second text where this is it, `whole`."""
    there = {word for word, side in zip(pair.words, pair.sides, strict=True) if side == "A" or (whole and side)}
    return [word for word in st.session_state.masked if word in there]


def _ask(found: ChoicePrediction) -> None:
    """The choices to be asked about, the way to an explanation, and all of them as a file."""
    state = st.session_state
    typed = [number for number, choice in enumerate(found.choices) if choice == state.pair.strip()]
    key = f"choice_asked_{found.order}_{typed}"
    st.pills(
        "Ask why", found.order, default=typed[0] if typed else None, key=key,
        format_func=lambda number: escape_markdown(_named(found.choices[number])), on_change=_explain_picked,
        args=(found, key),
    )  # fmt: skip
    asked = found.choices[typed[0] if typed else found.order[0]]
    with st.container(horizontal=True):
        pressed = st.button(
            "Why this choice?", key="why_choice", icon=":material/help:", on_click=_explain, args=(asked,)
        )
        downloads.choices(found)
    if pressed:
        frame.go_to("why")


def _explain_picked(found: ChoicePrediction, key: str) -> None:
    """Make the choice that was picked in the control `key` the second text, and ask why it is chosen."""
    number = st.session_state[key]
    if number is not None:
        _explain(found.choices[number])


def _explain(choice: str) -> None:
    state = st.session_state
    if state.pair.strip() != choice:
        state.pair, state.masked, state.tokens = choice, (), NO_TOKENS
        state.update(NO_EDITS)
    state.target, state.contrast, state[OWN_TARGET] = "choice", "", True


def _put_example() -> None:
    state = st.session_state
    state.text, state.choices = QUESTION, EXAMPLE
    state.pair, state.masked, state.tokens = "", (), NO_TOKENS
    state.update(NO_EDITS)


def _named(choice: str) -> str:
    line = " ".join(choice.split())
    return line if len(line) <= LONGEST_NAMED else f"{line[:LONGEST_NAMED]}…"

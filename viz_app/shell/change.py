"""What a model predicts with all its heads, beside what it predicts now; and what stands in for a head."""

from __future__ import annotations

import streamlit as st

from bert_core.records import MaskPrediction, ModelRun
from bert_core.run import MOST_REFERENCES
from viz_app.figures.predictions import nsp_bar, prediction_bars
from viz_app.figures.style import two_digits
from viz_app.shell import screen
from viz_app.shell.controls import control
from viz_app.shell.frame import Frame
from viz_app.shell.session import INSTEAD

# What a target is counted in; a difference of logits is one of log-odds, so in nats too.
TARGET_UNITS = {
    "mlm": "nats of log-probability", "joint": "nats of log-probability", "loss": "nats of log-probability per piece",
    "contrast": "nats between the two words", "nsp": "nats of log-odds", "class": "units of its logit",
}  # fmt: skip
INSTEAD_NAMES = {"zero": "Nothing", "mean": "Its mean on other texts", "resample": "Its output on another text"}


def word_change(
    current: Frame, before: MaskPrediction, after: MaskPrediction, *, each: int, most: int | None = None,
    largest: float, key: str,
) -> None:  # fmt: skip
    """The likeliest words of both as bars: `each` of either side, `most` of them together.

    largest: where the scale ends, one for all gaps of the page.
    """
    likeliest = [token for prediction in (before, after) for token, _ in prediction.top[:each]]
    tokens = list(dict.fromkeys(likeliest))[:most]
    screen.chart(
        prediction_bars(
            [current.word(token) for token in tokens],
            after.probabilities[tokens].tolist(),
            before=before.probabilities[tokens].tolist(),
            largest=largest,
            dark=current.dark,
            lecture=current.lecture,
        ),
        key=f"{key}_{after.position}",
        least=0.6,
        alt=f"Probabilities at position {after.position} with all heads on, and now",
    )


def largest_of(*runs: ModelRun, gaps: int) -> float:
    """The largest probability of a word in the first gaps of some runs: the end of the scale that their bars share."""
    return max((one.top[0][1] for run in runs for one in run.predictions[:gaps]), default=1.0)


def nsp_words(before: float, after: float) -> str:
    """The probability that B follows A, of both, in words."""
    return f"Probability that B follows A: {two_digits(before)} with all heads, {two_digits(after)} now"


def nsp_change(current: Frame, before: float, after: float, *, key: str) -> None:
    """The same as bars."""
    screen.chart(
        nsp_bar(after, before=before, dark=current.dark, lecture=current.lecture),
        key=key,
        grows=False,
        alt=nsp_words(before, after),
    )


def choose_instead() -> None:
    """What takes the place of a head that is removed: the control, and the texts that it needs."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        control(
            st.segmented_control, "Replace it by", "instead", options=INSTEAD, format_func=INSTEAD_NAMES.__getitem__,
            required=True,
        )  # fmt: skip
        if st.session_state.instead != "zero":
            give_reference()


def in_its_place() -> str:
    """What takes the place of a head that is removed, as the end of a sentence."""
    ends = {
        "mean": ", with its mean on other texts in its place",
        "resample": ", with its output on another text in its place",
    }
    return ends.get(st.session_state.instead, "")


def give_reference() -> None:
    """The texts that stand in for a head."""
    with st.popover("Texts"):
        control(
            st.text_area, f"One per line, at most {MOST_REFERENCES}", "reference", height=150, width=420,
            help="Mean: over all tokens of these texts. Output: that on the first text, position by position.",
        )  # fmt: skip

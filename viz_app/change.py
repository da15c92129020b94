"""What a model predicts with all its heads, beside what it predicts now."""

from __future__ import annotations

import streamlit as st

from bert_core.record import MaskPrediction
from viz_app.figures.predictions import nsp_bar, prediction_bars
from viz_app.frame import Frame


def word_change(
    current: Frame, before: MaskPrediction, after: MaskPrediction, *, each: int, most: int | None = None, key: str
) -> None:
    """The likeliest words of both as bars: `each` of either side, `most` of them together."""
    likeliest = [token for prediction in (before, after) for token, _ in prediction.top[:each]]
    tokens = list(dict.fromkeys(likeliest))[:most]
    st.plotly_chart(
        prediction_bars(
            [current.word(token) for token in tokens],
            after.probabilities[tokens].tolist(),
            before=before.probabilities[tokens].tolist(),
            dark=current.dark,
            lecture=current.lecture,
        ),
        theme=None,
        key=f"{key}_{after.position}",
        alt=f"Probabilities at position {after.position} with all heads on, and now",
    )


def nsp_change(current: Frame, before: float, after: float, *, key: str) -> None:
    """The probability that B follows A, of both."""
    st.plotly_chart(
        nsp_bar(after, before=before, dark=current.dark, lecture=current.lecture),
        theme=None,
        key=key,
        alt=f"Probability that B follows A: {before:.2f} with all heads, {after:.2f} now",
    )

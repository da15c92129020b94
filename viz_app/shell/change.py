"""What a model predicts with all its heads, beside what it predicts now; and what stands in for a head."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from bert_core.analysis.tags import tagged_words
from bert_core.records import HeadSweep, MaskPrediction, ModelRun
from bert_core.refused import Refused
from bert_core.run import MAX_REFERENCES
from bert_core.run.ablation import REPLACEMENTS, ablate_heads
from bert_core.run.memory import forward_bytes
from bert_core.task_heads import rank_typed_tokens
from bert_core.tokenizer import Encoding
from viz_app.figures.predictions import nsp_bar, prediction_bars
from viz_app.figures.style import two_digits
from viz_app.shell.controls import control
from viz_app.shell.examples import REFERENCE
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Param, select
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_line
from viz_app.shell.work import Work, wait_for

MOST_TOKENS = 8  # that are shown before and now
REPLACEMENT_NAMES = {"zero": "Nothing", "mean": "Its mean on other texts", "resample": "Its output on another text"}


def word_change(
    current: Selection, before: MaskPrediction, after: MaskPrediction, *, each: int, most: int | None = None,
    largest: float, key: str,
) -> None:  # fmt: skip
    """The likeliest words of both as bars: `each` of either side, `most` of them together.

    largest: where the scale ends, one for all gaps of the page.
    """
    likeliest = [token for prediction in (before, after) for token, _ in prediction.top[:each]]
    tokens = list(dict.fromkeys(likeliest))[:most]
    chart(
        prediction_bars(
            [current.word(token) for token in tokens],
            after.probabilities[tokens].tolist(),
            before=before.probabilities[tokens].tolist(),
            largest=largest,
        ),
        key=f"{key}_{after.position}",
        min_share=0.6,
        alt=f"Probabilities at position {after.position} with all heads on, and now",
    )


def largest_probability(*runs: ModelRun, gaps: int) -> float:
    """The largest probability of a word in the first gaps of some runs: the end of the scale that their bars share."""
    return max((one.top[0][1] for run in runs for one in run.predictions[:gaps]), default=1.0)


def nsp_sentence(before: float, after: float) -> str:
    """The probability that B follows A, with all heads and now, in a sentence."""
    return f"Probability that B follows A: {two_digits(before)} with all heads, {two_digits(after)} now"


def nsp_change(current: Selection, before: float, after: float, *, key: str) -> None:
    """Draw the probability that B follows A, with all heads and now, as bars."""
    chart(
        nsp_bar(after, before=before, order=current.loaded.predicts_order),
        key=key,
        grows=False,
        alt=nsp_sentence(before, after),
    )


def replaced_change(
    current: Selection, before: np.ndarray, after: np.ndarray, *, key: str, at: int | None = None
) -> None:
    """Draw how likely tokens were replaced, with all heads and now: those that it is likeliest of on either side.

    before, after: (seq,). at: a position that is shown in any case.
    """
    encoding = current.encoding
    order = rank_typed_tokens(np.maximum(before, after), encoding)
    shown = list(dict.fromkeys([*([] if at is None else [at]), *order]))[:MOST_TOKENS]
    chart(
        prediction_bars(
            [f"{encoding.labels[place]} ({place})" for place in shown], after[shown].tolist(),
            before=before[shown].tolist(), largest=1.0,
        ),
        key=key, min_share=0.6, alt="Probabilities that tokens were replaced, with all heads on, and now",
    )  # fmt: skip


def tags_change(before: ModelRun, after: ModelRun) -> None:
    """Say which words have another tag now than with all heads, and how likely each was."""
    pairs = [
        (first, now)
        for first, now in zip(tagged_words(before), tagged_words(after), strict=True)
        if first.label != now.label
    ]
    if not pairs:
        write_line("Every word has the tag that it has with all heads on.")
        return
    said = [
        f"**{escape_markdown(first.text)}**: {escape_markdown(first.label)} {two_digits(first.probability)} → "
        f"{escape_markdown(now.label)} {two_digits(now.probability)}"
        for first, now in pairs[:MOST_TOKENS]
    ]
    more = f"; and {len(pairs) - MOST_TOKENS} more" if len(pairs) > MOST_TOKENS else ""
    write_line("; ".join(said) + more)


def replacement_controls() -> None:
    """What takes the place of a head that is removed: the control, and the texts that it needs."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        control(
            st.segmented_control, "Replace it by", "instead", options=REPLACEMENTS,
            format_func=REPLACEMENT_NAMES.__getitem__, required=True,
        )  # fmt: skip
        if st.session_state.instead != "zero":
            set_reference_texts()


def replacement_phrase() -> str:
    """What takes the place of a head that is removed, as the end of a sentence."""
    ends = {
        "mean": ", with its mean on other texts in its place",
        "resample": ", with its output on another text in its place",
    }
    return ends.get(st.session_state.instead, "")


def set_reference_texts() -> None:
    """The texts that stand in for a head."""
    with st.popover("Texts"):
        control(
            st.text_area, f"One per line, at most {MAX_REFERENCES}", "reference", height=150, width=420,
            help="Mean: over all tokens of these texts. Output: that on the first text, position by position.",
        )  # fmt: skip


def sweep(current: Selection) -> HeadSweep:
    """The record of this text without each head in turn, all others on, from the queue.

    Raises Refused if other texts are to stand in for a head, and there are none.
    """
    of, method = int(current.head_mask.size), st.session_state.instead
    reference = () if method == "zero" else reference_encodings(current)
    return wait_for(Work(
        ("sweep", current.loaded.identity, current.encoding, current.target, method, reference),
        f"{shown_name(current.loaded.name)} without each of its {of} heads",
        lambda report: ablate_heads(
            current.loaded, current.encoding, target=current.target, method=method, reference=reference, report=report
        ),
        current.seconds(passes=of),
        memory=forward_bytes(current.loaded, len(current.encoding), of),
    ))  # fmt: skip


def reference_encodings(current: Selection) -> tuple[Encoding, ...]:
    """The texts that stand in for a head. Raises Refused if there are none, or too many."""
    lines = [line for line in st.session_state.reference.splitlines() if line.strip()]
    if not 1 <= len(lines) <= MAX_REFERENCES:
        raise Refused(
            f"there are {len(lines)} other texts to replace a head with: give 1 to {MAX_REFERENCES}, one per line"
        )
    longest = current.loaded.config.max_position_embeddings
    return tuple(current.loaded.tokenizer.encode(line, max_length=longest) for line in lines)


PARAMS: tuple[Param[Any], ...] = (
    select("instead", REPLACEMENTS),
    Param("reference", REFERENCE, about="reference", free=True),
)

"""Predictions before and after a change of the model, and the replacement of removed heads."""

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
from viz_app.shell.examples import REFERENCE
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.model_names import shown_name
from viz_app.shell.params import Param, select
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_line
from viz_app.shell.work import Work, wait_for

MAX_TOKENS = 8  # drawn before and after
REPLACEMENT_NAMES = {"zero": "Nothing", "mean": "Its mean on other texts", "resample": "Its output on another text"}

replacement = select("instead", {name: REPLACEMENT_NAMES[name] for name in REPLACEMENTS}, "Replace it by")
reference: Param[str] = Param(
    "reference",
    REFERENCE,
    widget="text_area",
    label=f"One per line, at most {MAX_REFERENCES}",
    help="Mean: over all tokens of these texts. Output: that on the first text, position by position.",
    text_name="reference",
    free=True,
    arguments={"height": 150, "width": 420},
)
PARAMS: tuple[Param[Any], ...] = (replacement, reference)


def word_change(
    current: Selection,
    before: MaskPrediction,
    after: MaskPrediction,
    *,
    top_k: int,
    max_words: int | None = None,
    largest: float,
    key: str,
) -> None:
    """Draw the probabilities of words for a gap, before and after, as bars.

    top_k: words that are drawn of each prediction. max_words: of both together. largest: the end of the scale.
    """
    top_words = [token for prediction in (before, after) for token, _ in prediction.top[:top_k]]
    tokens = list(dict.fromkeys(top_words))[:max_words]
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
    """Return the largest probability of a word in the first gaps of some runs: the end of their common scale."""
    predictions = (prediction for run in runs for prediction in run.predictions[:gaps])
    return max((prediction.top[0][1] for prediction in predictions), default=1.0)


def nsp_sentence(before: float, after: float) -> str:
    """Return a sentence with the probability that B follows A, before and after."""
    return f"Probability that B follows A: {two_digits(before)} with all heads, {two_digits(after)} now"


def nsp_change(current: Selection, before: float, after: float, *, key: str) -> None:
    """Draw the probability that B follows A, before and after, as bars."""
    figure = nsp_bar(after, before=before, order=current.loaded.predicts_order)
    chart(figure, key=key, grows=False, alt=nsp_sentence(before, after))


def replaced_change(
    current: Selection, before: np.ndarray, after: np.ndarray, *, key: str, position: int | None = None
) -> None:
    """Draw the probabilities that tokens were replaced, before and after, for the tokens with the largest.

    before, after: (seq,). position: of a token that is drawn in any case.
    """
    encoding = current.encoding
    order = rank_typed_tokens(np.maximum(before, after), encoding)
    positions = list(dict.fromkeys([*([] if position is None else [position]), *order]))[:MAX_TOKENS]
    labels = [f"{encoding.labels[index]} ({index})" for index in positions]
    figure = prediction_bars(labels, after[positions].tolist(), before=before[positions].tolist(), largest=1.0)
    chart(figure, key=key, min_share=0.6, alt="Probabilities that tokens were replaced, with all heads on, and now")


def tags_change(before: ModelRun, after: ModelRun) -> None:
    """Write which words have another tag after than before, with the probabilities."""
    pairs = [
        pair for pair in zip(tagged_words(before), tagged_words(after), strict=True) if pair[0].label != pair[1].label
    ]
    if not pairs:
        write_line("Every word has the tag that it has with all heads on.")
        return
    changes = [
        f"**{escape_markdown(first.text)}**: {escape_markdown(first.label)} {two_digits(first.probability)} → "
        f"{escape_markdown(second.label)} {two_digits(second.probability)}"
        for first, second in pairs[:MAX_TOKENS]
    ]
    suffix = f"; and {len(pairs) - MAX_TOKENS} more" if len(pairs) > MAX_TOKENS else ""
    write_line("; ".join(changes) + suffix)


def replacement_controls() -> None:
    """Draw the control of the replacement of a removed head, and that of the texts that it needs."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if replacement() != "zero":
            set_reference_texts()


def replacement_phrase() -> str:
    """Return the end of a sentence: the replacement of a removed head."""
    phrases = {
        "mean": ", with its mean on other texts in its place",
        "resample": ", with its output on another text in its place",
    }
    return phrases.get(replacement.value, "")


def set_reference_texts() -> None:
    """Draw the control of the texts whose outputs replace those of a removed head."""
    with st.popover("Texts"):
        reference()


def sweep(current: Selection) -> HeadSweep:
    """Return the record of the text without each head in turn, all others on; waits for it.

    Raises Refused for a replacement that needs other texts if there are none.
    """
    loaded, encoding, target, method = current.loaded, current.encoding, current.target, replacement.value
    head_count, encodings = int(current.head_mask.size), () if method == "zero" else reference_encodings(current)
    work = Work(
        ("sweep", loaded.identity, encoding, target, method, encodings),
        f"{shown_name(loaded.name)} without each of its {head_count} heads",
        lambda report: ablate_heads(loaded, encoding, target=target, method=method, reference=encodings, report=report),
        current.seconds(passes=head_count),
        memory=forward_bytes(loaded, len(encoding), head_count),
    )
    return wait_for(work)


def reference_encodings(current: Selection) -> tuple[Encoding, ...]:
    """Return the texts whose outputs replace those of a removed head. Raises Refused for none, or too many."""
    lines = [line for line in reference.value.splitlines() if line.strip()]
    if not 1 <= len(lines) <= MAX_REFERENCES:
        raise Refused(
            f"there are {len(lines)} other texts to replace a head with: give 1 to {MAX_REFERENCES}, one per line"
        )
    tokenizer, max_length = current.loaded.tokenizer, current.loaded.config.max_position_embeddings
    return tuple(tokenizer.encode(line, max_length=max_length) for line in lines)

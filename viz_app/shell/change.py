"""Predictions before and after a change of the model, and the ablation of every head."""

from __future__ import annotations

from collections.abc import Sequence
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
from viz_app.shell.params import Head, Param, select
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_line
from viz_app.shell.work import Work, wait_for
from viz_app.texts import page_texts

TEXTS = page_texts("heads")
MAX_TOKENS = 8  # drawn before and after
NAMED_HEADS = 2  # heads that a sentence names; of more it states the number
ABLATION_TYPES = {"zero": "Zero", "mean": "Mean", "resample": "Resample"}

replacement = select(
    "instead",
    {name: ABLATION_TYPES[name] for name in REPLACEMENTS},
    "Ablation type",
    "Output of an ablated head: zero, its mean over the reference texts, or its output on the first of them.",
)
reference: Param[str] = Param(
    "reference",
    REFERENCE,
    widget="text_area",
    label=f"Reference texts, one per line (at most {MAX_REFERENCES})",
    help="Mean ablation uses the head's mean output over all tokens of these texts. Resample ablation uses its output "
    "on the first text, position by position.",
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
    """Draw the probabilities of words for a mask, before and after, as bars; one bar for each word if nothing changed.

    The label of the masked word is underlined. top_k: words that are drawn of each prediction. max_words: of both
    together. largest: the end of the scale.
    """
    top_words = [token for prediction in (before, after) for token, _ in prediction.top[:top_k]]
    tokens = list(dict.fromkeys(top_words))[:max_words]
    truth = current.truth_at(after.position)
    changed = not np.array_equal(before.probabilities, after.probabilities)
    figure = prediction_bars(
        [current.word(token) for token in tokens],
        after.probabilities[tokens].tolist(),
        before=before.probabilities[tokens].tolist() if changed else None,
        largest=largest,
        original=tokens.index(truth) if truth in tokens else None,
    )
    alt = f"Probabilities at position {after.position} before and now"
    chart(figure, key=f"{key}_{after.position}", min_share=0.6, alt=alt)


def largest_probability(*runs: ModelRun, gaps: int) -> float:
    """Return the largest probability of a word at the first masks of some runs: the end of their common scale."""
    predictions = (prediction for run in runs for prediction in run.predictions[:gaps])
    return max((prediction.top[0][1] for prediction in predictions), default=1.0)


def prediction_sentence(off: Sequence[Head], before: tuple[str, float], after: tuple[str, float]) -> str:
    """Return a sentence in Markdown with the prediction before and after heads were switched off.

    off: the heads. before, after: the prediction with its probability.
    """
    (name, full), (new_name, present) = before, after
    key = "all_on" if not off else "stays" if name == new_name else "changes"
    names = {"before": escape_markdown(name), "after": escape_markdown(new_name)}
    return TEXTS[f"change.{key}"].format(p=two_digits(full), q=two_digits(present), heads=_off_heads(off), **names)


def number_sentence(off: Sequence[Head], quantity: str, before: float, after: float) -> str:
    """Return a sentence in Markdown with a number before and after heads were switched off. quantity: its name."""
    p, q = two_digits(before), two_digits(after)
    key = "number_all_on" if not off else "number_stays" if p == q else "number_changes"
    return TEXTS[f"change.{key}"].format(quantity=quantity, p=p, q=q, heads=_off_heads(off))


def _off_heads(off: Sequence[Head]) -> str:
    if len(off) > NAMED_HEADS:
        return TEXTS["change.count"].format(count=len(off))
    return TEXTS["change.and"].join(f"L{layer} H{head}" for layer, head in off)


def nsp_sentence(before: float, after: float, parts: str = "heads") -> str:
    """Return a sentence with the probability that B follows A, before and after some parts were removed."""
    return f"Probability that B follows A: {two_digits(before)} with all {parts}, {two_digits(after)} now"


def nsp_change(current: Selection, before: float, after: float, *, key: str) -> None:
    """Draw the probability that B follows A, before and after, as bars; one bar if nothing changed."""
    figure = nsp_bar(after, before=None if before == after else before, order=current.loaded.predicts_order)
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
    earlier = None if np.array_equal(before, after) else before[positions].tolist()
    figure = prediction_bars(labels, after[positions].tolist(), before=earlier, largest=1.0)
    chart(figure, key=key, min_share=0.6, alt="Probabilities that tokens were replaced, before and now")


def tags_change(before: ModelRun, after: ModelRun) -> None:
    """Write which words have another tag after than before, with the probabilities."""
    pairs = [
        pair for pair in zip(tagged_words(before), tagged_words(after), strict=True) if pair[0].label != pair[1].label
    ]
    if not pairs:
        write_line("All predicted tags are the same as with all heads on.")
        return
    changes = [
        f"**{escape_markdown(first.text)}**: {escape_markdown(first.label)} {two_digits(first.probability)} → "
        f"{escape_markdown(second.label)} {two_digits(second.probability)}"
        for first, second in pairs[:MAX_TOKENS]
    ]
    suffix = f"; and {len(pairs) - MAX_TOKENS} more" if len(pairs) > MAX_TOKENS else ""
    write_line("; ".join(changes) + suffix)


def set_reference_texts() -> None:
    """Draw the control of the texts whose outputs replace those of an ablated head."""
    with st.popover("Reference texts", width="content"):
        reference()


def sweep(current: Selection) -> HeadSweep:
    """Return the record of the text without each head in turn, all others on; waits for it.

    Raises Refused for a replacement that needs other texts if there are none.
    """
    return wait_for(sweep_work(current))


def sweep_work(current: Selection, method: str | None = None) -> Work[HeadSweep]:
    """Return the work of `sweep`. method: of the replacement; None: the selected one. Raises Refused as `sweep`."""
    loaded, encoding, target, method = current.loaded, current.encoding, current.target, method or replacement.value
    head_count, encodings = int(current.head_mask.size), () if method == "zero" else reference_encodings(current)
    return Work(
        ("sweep", loaded.identity, encoding, target, method, encodings),
        f"{shown_name(loaded.name)}: ablation of each of {head_count} heads",
        lambda report: ablate_heads(loaded, encoding, target=target, method=method, reference=encodings, report=report),
        current.seconds(passes=head_count),
        memory=forward_bytes(loaded, len(encoding), head_count),
    )


def reference_encodings(current: Selection) -> tuple[Encoding, ...]:
    """Return the texts whose outputs replace those of an ablated head. Raises Refused for none, or too many."""
    lines = [line for line in reference.value.splitlines() if line.strip()]
    if not 1 <= len(lines) <= MAX_REFERENCES:
        raise Refused(f"there are {len(lines)} reference texts: give 1 to {MAX_REFERENCES}, one per line")
    return tuple(map(current.loaded.tokenizer.encode, lines))

"""The predictions of both sides of a comparison, as paired bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import streamlit as st

from bert_core.records import MaskPrediction
from viz_app.comparison import Comparison
from viz_app.figures.predictions import paired_bars
from viz_app.figures.style import two_digits
from viz_app.pages.compare import TEXTS
from viz_app.shell.markdown import escape_markdown
from viz_app.shell.selection import Selection
from viz_app.shell.view import chart, write_note

MAX_BARS = 12  # words of all masks together
MAX_WORDS = 4  # words of a mask
EQUAL_TOP = "**{mask}**: “{word}” comes first on both sides, {before} with {name_before} and {after} with {name_after}."
DIFFERENT = (
    "**{mask}**: “{word}” comes first with {name_before} ({before}), “{other_word}” with {name_after} ({after})."
)
ONE_SIDE = "**{mask}**: with {name_after}, “{word}” is predicted with probability {after}."


class Mask(NamedTuple):
    """The predictions of both sides for one mask. before: None where the word is visible there."""

    before: MaskPrediction | None
    after: MaskPrediction


def draw_predictions(comparison: Comparison, before: Selection, after: Selection) -> None:
    """Draw the most probable words of every mask on both sides, and a sentence with the first ones.

    before, after: the sides of the comparison.
    """
    masks = list(_masks(comparison))
    if not masks:
        write_note(TEXTS["no_prediction"])
        return
    count = max(1, min(MAX_WORDS, MAX_BARS // len(masks)))
    labels: list[str] = []
    numbers: dict[str, list[float]] = {name: [] for name in comparison.names}
    for mask in masks[:MAX_BARS]:
        probabilities = _probabilities(mask, before, after)
        words = sorted(probabilities, key=lambda word: -max(probabilities[word]))[:count]
        position = f" ({mask.after.position})" if len(masks) > 1 else ""
        labels += [f"{word}{position}" for word in words]
        for side, name in enumerate(comparison.names):
            numbers[name] += [probabilities[word][side] for word in words]
    if masks[0].before is None:
        del numbers[comparison.names[0]]
    st.markdown(_sentence(masks[0], comparison, before, after))
    chart(paired_bars(labels, numbers), key="compared_predictions", alt="Probabilities of the predicted words")


def _masks(comparison: Comparison) -> Iterator[Mask]:
    """Yield the masks that both sides have at aligned tokens; all of the second one if the first has none."""
    before = {prediction.position: prediction for prediction in comparison.before.predictions}
    partners = dict(zip(comparison.pairs.after.tolist(), comparison.pairs.before.tolist(), strict=True))
    for prediction in comparison.after.predictions:
        partner = before.get(partners.get(prediction.position, -1))
        if partner is not None or not before:
            yield Mask(partner, prediction)


def _probabilities(mask: Mask, before: Selection, after: Selection) -> dict[str, tuple[float, float]]:
    """Return the probabilities of the first words of both sides by word; 0 if a vocabulary lacks the word."""
    sides = [(before, mask.before), (after, mask.after)]
    words = {
        selection.word(token): None
        for selection, prediction in sides
        if prediction is not None
        for token, _ in prediction.top[:MAX_WORDS]
    }

    def probability(selection: Selection, prediction: MaskPrediction | None, word: str) -> float:
        token = None if prediction is None else selection.loaded.tokenizer.id_of(word)
        return 0.0 if prediction is None or token is None else float(prediction.probabilities[token])

    return {word: (probability(*sides[0], word), probability(*sides[1], word)) for word in words}


def _sentence(mask: Mask, comparison: Comparison, before: Selection, after: Selection) -> str:
    """Return a sentence in Markdown with the first word of both sides."""
    word, probability = after.word(mask.after.top[0][0]), mask.after.top[0][1]
    values = {
        "mask": escape_markdown(comparison.after.encoding.labels[mask.after.position]),
        "name_before": comparison.names[0],
        "name_after": comparison.names[1],
        "after": two_digits(probability),
        "other_word": escape_markdown(word),
    }
    if mask.before is None:
        return ONE_SIDE.format(word=escape_markdown(word), **values)
    first_word, first_probability = before.word(mask.before.top[0][0]), mask.before.top[0][1]
    template = EQUAL_TOP if first_word == word else DIFFERENT
    return template.format(word=escape_markdown(first_word), before=two_digits(first_probability), **values)

"""Figures of predictions: words for a mask, answers to a question, and whether sentence B follows A."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from viz_app.figures.primitives import bars, frame, mirrored_bars, require_equal_lengths, ticks_at, vertical_line
from viz_app.figures.style import SENTENCE_TINTS, page, plain, sized, token_font, two_digits

LONGEST_LABEL = 18
MAX_LABELS = 60  # tokens under a figure
NOTABLE = 0.05  # probability
HOVER_FORM = ".4g"  # of a probability on hover


def prediction_bars(
    labels: Sequence[str],
    probabilities: Sequence[float],
    *,
    before: Sequence[float] | None = None,
    largest: float | None = None,
    original: int | None = None,
    **options: Any,
) -> go.Figure:
    """Draw words for a mask as horizontal bars, in the order given, the first on top; the y of a bar is its rank.

    before: (word,) probabilities of the same words in the unmodified model, drawn next to the present ones.
    largest: probability at the end of the scale, for several figures on one scale; the largest one drawn if None.
    original: bar of the masked word, whose label is underlined. options: of `bars`.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    series = _series(probabilities, before)
    numbers = [number for values in series.values() for number in values]
    _check(numbers)
    limit = (max(numbers, default=1.0) if largest is None else largest) or 1.0
    options |= {"title": "probability", "limits": (0, 1.02 * limit), "longest": LONGEST_LABEL, "form": HOVER_FORM}
    figure = bars(labels, series, **options)
    if original is not None:
        names = list(figure.layout.yaxis.ticktext)
        names[original] = f"<u>{names[original].strip()}</u>  "
        figure.layout.yaxis.ticktext = names
    return figure


def paired_bars(labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> go.Figure:
    """Draw words for masks as horizontal bars, with one bar for each of at most two sides in the tints A and B.

    series: name of a side -> (word,) probabilities.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    numbers = [number for values in series.values() for number in values]
    _check(numbers)
    line = {"color": page().faint, "width": 1}
    tints = [SENTENCE_TINTS[side].colours()[0] for side in ("A", "B")][-len(series) :]
    fills = {name: {"color": tint, "line": line} for name, tint in zip(series, tints, strict=True)}
    limits, axis = (0, 1.02 * (max(numbers, default=1.0) or 1.0)), {"nticks": 3, "tickangle": 0}
    options: dict[str, Any] = {"title": "probability", "longest": LONGEST_LABEL, "legend": True}
    return bars(labels, series, fills=fills, limits=limits, axis=axis, **options)


def answer_bars(
    labels: Sequence[str], first: Sequence[float], last: Sequence[float], *, answer: tuple[int, int]
) -> go.Figure:
    """Draw the probability of every token as the first of an answer, upwards, and as the last, downwards.

    answer: positions of the first and last token of the answer, which has a frame.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    require_equal_lengths(labels=labels, first_probabilities=first, last_probabilities=last)
    _check((*first, *last))
    series = {"as the first token of the answer": first, "as the last token": last}
    hovers = {
        name: [f"{plain(label)}<br>{name} {number:{HOVER_FORM}}" for label, number in zip(labels, numbers, strict=True)]
        for name, numbers in series.items()
    }
    # In a long text only tokens that could be an end of the answer have a label; all have a hover text.
    places = range(len(labels))
    labelled = [place for place in places if len(places) <= MAX_LABELS or max(first[place], last[place]) >= NOTABLE]
    token_labels = [plain(labels[place], LONGEST_LABEL) for place in labelled]
    ticks = {"tickvals": [-1, -0.5, 0, 0.5, 1], "ticktext": ["1", "0.5", "0", "0.5", "1"]}
    edges = (answer[0] - 0.5, answer[1] + 0.5), (-1.04, 1.04)
    return mirrored_bars(
        series,
        labels=dict.fromkeys(series, labels),
        hovers=hovers,
        x_axis=ticks_at(token_labels, labelled, tickfont=token_font(sized(12, 16)), tickangle=-50),
        y_axis={"range": [-1.08, 1.08], **ticks, "title": {"text": "probability"}},
        texts=False,
        height=round(260 * sized(1, 1.3)),
        shapes=[frame(*edges, page().text, 2)],
    )


def nsp_verdict(probability: float, *, order: bool = False) -> str:
    """Return whether B follows A, in a sentence with the number that the bar has too.

    probability: that B follows A. order: whether the model predicts the order of the two, as ALBERT does.
    """
    yes, no = ("In order", "Swapped") if order else ("Yes", "No")
    return f"{yes if probability >= 0.5 else no}: B follows A with probability {two_digits(probability)}"


def nsp_bar(probability: float, *, before: float | None = None, order: bool = False) -> go.Figure:
    """Draw whether B follows A, as a bar from 0.5 to the probability.

    probability: that B follows A. before: the same in the unmodified model, drawn above. order: as for `nsp_verdict`.
    Raises ValueError if a probability is outside 0 to 1.
    """
    series = _series([probability], None if before is None else [before])
    _check(number for numbers in series.values() for number in numbers)
    no, yes = ("swapped", "in order") if order else ("no", "yes")
    ticks = {"tickvals": [0, 0.25, 0.5, 0.75, 1], "ticktext": [f"0: {no}", "0.25", "0.5", "0.75", f"1: {yes}"]}
    return bars(
        ["P(B follows A)"],
        series,
        title="probability that B follows A",
        base=0.5,
        form=HOVER_FORM,
        limits=(0, 1),
        axis=ticks,
        margin={"t": 8 if before is None else sized(36, 44), "l": 40, "r": 40},
        shapes=[vertical_line(0.5, page().faint)],
        yaxis={"visible": False, "range": [0.5, -0.5]},
    )


def _series(now: Sequence[float], before: Sequence[float] | None) -> Mapping[str, Sequence[float]]:
    """Return the series of a figure by name; one that is alone needs no name."""
    return {"": now} if before is None else {"before": before, "now": now}


def _check(probabilities: Iterable[float]) -> None:
    for probability in probabilities:
        if not 0 <= probability <= 1:
            raise ValueError(f"probability {probability}: from 0 to 1")

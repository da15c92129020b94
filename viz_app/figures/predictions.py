"""Figures of predictions: words for a mask, answers to a question, and whether sentence B follows A."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from viz_app.figures.style import (
    SEQUENTIAL,
    annotation,
    bars,
    columns,
    figure_of,
    hatched,
    label_axis,
    labelled_bars,
    page,
    plain,
    rectangle,
    row_axis,
    sized,
    token_font,
    two_digits,
    vertical_rule,
)

LONGEST_LABEL = 18
MAX_LABELS = 60  # tokens under a figure
NOTABLE = 0.05  # probability
PROBABILITY_AXIS = {"title": {"text": "probability"}, "zeroline": False}


def prediction_bars(
    labels: Sequence[str],
    probabilities: Sequence[float],
    *,
    before: Sequence[float] | None = None,
    largest: float | None = None,
) -> go.Figure:
    """Draw words for a mask as horizontal bars, in the order given, the first on top; the y of a bar is its rank.

    before: (word,) probabilities of the same words with all heads on, drawn beside the present ones.
    largest: probability at the end of the scale, for several figures on one scale; the largest one drawn if None.
    The labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    series = {"now": list(probabilities)} if before is None else {"before": list(before), "now": list(probabilities)}
    for name, numbers in series.items():
        if len(numbers) != len(labels):
            raise ValueError(f"{len(labels)} labels and {len(numbers)} probabilities ({name}): one for each label")
        for number in numbers:
            _check(number)
    names, style = [plain(label, 160) for label in labels], {"constraintext": "none"}
    traces = [
        labelled_bars(
            values,
            [two_digits(value) for value in values],
            names,
            f"%{{customdata}}<br>{name} %{{x:.9g}}",
            **style | {"name": name, "marker": _fill(name)},
        )
        for name, values in series.items()
    ]
    if largest is None:
        largest = max((number for numbers in series.values() for number in numbers), default=1.0)
    thickness = (34 if before is None else 50) * sized(1, 1.3)
    layout = {
        "barmode": "group",
        "bargap": 0.3,
        "bargroupgap": 0.06,
        "showlegend": before is not None,
        "legend": {"traceorder": "normal"},
        "height": round(len(labels) * thickness + (70 if before is None else 100)),
        "margin": {"t": 8 if before is None else 36, "r": 64},
        "dragmode": False,
        # A short bar is as easily met as a long one: anywhere in its row.
        "hovermode": "y",
        "xaxis": PROBABILITY_AXIS | {"range": [0, (largest or 1.0) * 1.02], "nticks": 5},
        "yaxis": row_axis(labels, LONGEST_LABEL, tickfont=token_font(sized(15, 20))),
    }
    return figure_of(traces, layout)


def answer_bars(
    labels: Sequence[str], first: Sequence[float], last: Sequence[float], *, answer: tuple[int, int]
) -> go.Figure:
    """Draw the probability of every token as the first of an answer, upwards, and as the last, downwards.

    answer: positions of the first and last token of the answer, which has a frame.
    Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    if not len(labels) == len(first) == len(last):
        raise ValueError(f"{len(labels)} labels, {len(first)} and {len(last)} probabilities: one of each for each")
    for number in (*first, *last):
        _check(number)
    colours, places = page(), list(range(len(labels)))
    names, traces = [plain(label, 160) for label in labels], []
    for name, fill, sign, numbers in (("as the first", "now", 1, first), ("as the last", "before", -1, last)):
        heights, hover = [sign * number for number in numbers], f"%{{customdata[0]}}<br>{name} %{{customdata[1]:.9g}}"
        style = {"name": name, "marker": _fill(fill), "customdata": list(zip(names, numbers, strict=True))}
        traces.append(columns(places, heights, hover, **style))
    # In a long text only tokens that could be an end of the answer have a label; all have a hover text.
    labelled = [place for place in places if len(places) <= MAX_LABELS or max(first[place], last[place]) >= NOTABLE]
    frame = {"color": colours.text, "width": 2, "dash": "dot"}
    token_labels = [plain(labels[place], LONGEST_LABEL) for place in labelled]
    token_style = {"tickfont": token_font(sized(12, 16)), "tickangle": -50, "range": [-0.7, len(labels) - 0.3]}
    ticks = {"tickvals": [-1, -0.5, 0, 0.5, 1], "ticktext": ["1", "0.5", "0", "0.5", "1"]}
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "height": round(260 * sized(1, 1.3)),
        "margin": {"t": 34},
        "dragmode": False,
        "hovermode": "x",
        "shapes": [rectangle((answer[0] - 0.5, answer[1] + 0.5), (-1.04, 1.04), frame)],
        "xaxis": label_axis(token_labels, labelled, **token_style),
        "yaxis": {"range": [-1.08, 1.08], **ticks, "title": {"text": "probability"}},
    }
    return figure_of(traces, layout)


def nsp_verdict(probability: float, *, order: bool = False) -> str:
    """Return whether B follows A, in a sentence with the number that the bar has too.

    probability: that B follows A. order: whether the model predicts the order of the two, as ALBERT does.
    """
    yes, no = ("In order", "Swapped") if order else ("Yes", "No")
    return f"{yes if probability >= 0.5 else no}: B follows A with probability {two_digits(probability)}"


def nsp_bar(probability: float, *, before: float | None = None, order: bool = False) -> go.Figure:
    """Draw whether B follows A, as a bar from 0.5 to the probability.

    probability: that B follows A. before: the same with all heads on, drawn above. order: as for `nsp_verdict`.
    Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if a probability is outside 0 to 1.
    """
    rows = {"now": probability} if before is None else {"before": before, "now": probability}
    for number in rows.values():
        _check(number)
    colours, (no, yes) = page(), ("swapped", "in order") if order else ("no", "yes")
    style = {"textposition": "outside", "constraintext": "none", "cliponaxis": False, "showlegend": False}
    traces = []
    for name, number in rows.items():
        hover = f"P(B follows A), {name}: %{{customdata:.9g}}"
        value_style = {"base": [0.5], "marker": _fill(name), "customdata": [number], "text": [two_digits(number)]}
        traces.append(bars([number - 0.5], [name], hover, **value_style, **style))
    font = {"color": colours.faint}
    layout = {
        "barmode": "overlay",
        "height": round((140 if before is None else 180) * sized(1, 1.25)),
        "dragmode": False,
        "margin": {"t": 38, "l": 40, "r": 40},
        "shapes": [vertical_rule(0.5, {"color": colours.faint, "width": sized(1, 2)}, "y domain")],
        "annotations": [
            annotation(text, x, 1, yref="paper", xanchor=anchor, yanchor="bottom", font=font)
            for x, anchor, text in ((0, "left", f"◀ {no}"), (1, "right", f"{yes} ▶"))
        ],
        "xaxis": {
            "range": [0, 1],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0", "0.25", "0.5", "0.75", "1"],
            "title": {"text": "probability that B follows A"},
            "zeroline": False,
        },
        "yaxis": {"autorange": "reversed", "showgrid": False, "showticklabels": before is not None, "ticksuffix": "  "},
    }
    return figure_of(traces, layout)


def _check(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise ValueError(f"probability {probability}: from 0 to 1")


def _fill(name: str) -> dict[str, Any]:
    """Return the fill of a bar: solid for "now", hatched for "before"."""
    colour = SEQUENTIAL.colours()[7]
    return {"color": colour} if name == "now" else hatched(colour)

"""What the model expects: words for a gap, and whether B follows A."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from viz_app.figures.style import (
    SEQUENTIAL,
    figure_of,
    label_axis,
    page,
    plain,
    sized,
    token_font,
    two_digits,
)

LONGEST_LABEL = 18
MAX_LABELS = 60  # tokens under a figure
NOTABLE = 0.05  # probability


def prediction_bars(
    labels: Sequence[str],
    probabilities: Sequence[float],
    *,
    before: Sequence[float] | None = None,
    largest: float | None = None,
) -> go.Figure:
    """Words for a gap as horizontal bars, in the order given, the first on top; the number of a bar is its place.

    before: the probabilities of the same words with all heads on, drawn beside the present ones.
    largest: the probability where the scale ends, where several figures share one; None takes the largest that is
        drawn.
    The labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    series = {"now": list(probabilities)} if before is None else {"before": list(before), "now": list(probabilities)}
    for name, numbers in series.items():
        if len(numbers) != len(labels):
            raise ValueError(f"{len(labels)} labels and {len(numbers)} probabilities ({name}): one for each label")
        for number in numbers:
            _check(number)
    places = list(range(len(labels)))
    whole = [plain(label, 160) for label in labels]
    bars = [
        {
            "type": "bar", "orientation": "h", "name": name, "x": numbers, "y": places, "marker": _fill(name),
            "text": [two_digits(number) for number in numbers], "textposition": "outside", "constraintext": "none",
            "cliponaxis": False, "customdata": whole,
            "hovertemplate": f"%{{customdata}}<br>{name} %{{x:.9g}}<extra></extra>",
        }
        for name, numbers in series.items()
    ]  # fmt: skip
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
        "xaxis": {
            "range": [0, (largest or 1.0) * 1.02],
            "title": {"text": "probability"},
            "nticks": 5,
            "zeroline": False,
        },
        "yaxis": label_axis(
            [plain(label, LONGEST_LABEL) + "  " for label in labels],
            tickfont=token_font(sized(15, 20)),
            range=[len(labels) - 0.5, -0.5],
        ),
    }
    return figure_of(bars, layout)


def answer_bars(
    labels: Sequence[str],
    first: Sequence[float],
    last: Sequence[float],
    *,
    answer: tuple[int, int],
) -> go.Figure:
    """Every token's probability as the first of an answer, upwards, and as the last, downwards, in the order given.

    answer: places of the answer's first and last token; what lies between is framed.
    Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    if not len(labels) == len(first) == len(last):
        raise ValueError(f"{len(labels)} labels, {len(first)} and {len(last)} probabilities: one of each for each")
    for number in (*first, *last):
        _check(number)
    colours, places = page(), list(range(len(labels)))
    whole = [plain(label, 160) for label in labels]
    bars = [
        {
            "type": "bar", "name": name, "x": places, "y": [sign * number for number in numbers],
            "marker": _fill(fill), "customdata": list(zip(whole, numbers, strict=True)),
            "hovertemplate": f"%{{customdata[0]}}<br>{name} %{{customdata[1]:.9g}}<extra></extra>",
        }
        for name, fill, sign, numbers in (("as the first", "now", 1, first), ("as the last", "before", -1, last))
    ]  # fmt: skip
    # Of many tokens those are named that could be an end of the answer; all others say so on hover.
    labelled = [place for place in places if len(places) <= MAX_LABELS or max(first[place], last[place]) >= NOTABLE]
    layout = {
        "barmode": "overlay",
        "bargap": 0.25,
        "height": round(260 * sized(1, 1.3)),
        "margin": {"t": 34},
        "dragmode": False,
        "hovermode": "x",
        "shapes": [
            {
                "type": "rect", "x0": answer[0] - 0.5, "x1": answer[1] + 0.5, "y0": -1.04, "y1": 1.04,
                "line": {"color": colours.text, "width": 2, "dash": "dot"},
            }
        ],
        "xaxis": label_axis(
            [plain(labels[place], LONGEST_LABEL) for place in labelled], labelled, tickfont=token_font(sized(12, 16)),
            tickangle=-50, range=[-0.7, len(labels) - 0.3],
        ),
        "yaxis": {
            "range": [-1.08, 1.08], "tickvals": [-1, -0.5, 0, 0.5, 1], "ticktext": ["1", "0.5", "0", "0.5", "1"],
            "title": {"text": "probability"},
        },
    }  # fmt: skip
    return figure_of(bars, layout)


def nsp_verdict(probability: float, *, order: bool = False) -> str:
    """Whether B follows A, in a sentence with the one number that the bar has too.

    probability: that it follows. order: whether the model tells that from the two swapped, as an ALBERT does.
    """
    yes, no = ("In order", "Swapped") if order else ("Yes", "No")
    return f"{yes if probability >= 0.5 else no}: B follows A with probability {two_digits(probability)}"


def nsp_bar(probability: float, *, before: float | None = None, order: bool = False) -> go.Figure:
    """Whether B follows A, as a bar from one half to the side that the model believes.

    probability: that B follows A. before: the same with all heads on, drawn above. order: as for `nsp_verdict`.
    Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError outside 0 to 1.
    """
    rows = {"now": probability} if before is None else {"before": before, "now": probability}
    for number in rows.values():
        _check(number)
    colours, (no, yes) = page(), ("swapped", "in order") if order else ("no", "yes")
    bars = [
        {
            "type": "bar", "orientation": "h", "base": [0.5], "x": [number - 0.5], "y": [name],
            "marker": _fill(name), "customdata": [number], "text": [two_digits(number)],
            "textposition": "outside", "constraintext": "none", "cliponaxis": False, "showlegend": False,
            "hovertemplate": f"P(B follows A), {name}: %{{customdata:.9g}}<extra></extra>",
        }
        for name, number in rows.items()
    ]  # fmt: skip
    layout = {
        "barmode": "overlay",
        "height": round((140 if before is None else 180) * sized(1, 1.25)),
        "dragmode": False,
        "margin": {"t": 38, "l": 40, "r": 40},
        "shapes": [
            {
                "type": "line", "x0": 0.5, "x1": 0.5, "y0": 0, "y1": 1, "yref": "y domain",
                "line": {"color": colours.faint, "width": sized(1, 2)},
            }
        ],
        "annotations": [
            {
                "x": x, "y": 1, "yref": "paper", "xanchor": anchor, "yanchor": "bottom", "text": text,
                "showarrow": False, "font": {"color": colours.faint},
            }
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
    }  # fmt: skip
    return figure_of(bars, layout)


def _check(probability: float) -> None:
    if not 0 <= probability <= 1:
        raise ValueError(f"probability {probability}: from 0 to 1")


def _fill(name: str) -> dict[str, Any]:
    """Solid now, hatched before: the two are apart without their colours."""
    colour = SEQUENTIAL.colours()[7]
    if name == "now":
        return {"color": colour}
    return {
        "color": page().background,
        "line": {"color": colour, "width": 1},
        "pattern": {"shape": "/", "fgcolor": colour, "size": 7, "solidity": 0.35},
    }

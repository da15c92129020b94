"""What probes find from depth to depth, and what a model says where something is erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    HEAD_COLOURS,
    HEAD_DASHES,
    figure_of,
    label_axis,
    page,
    plain,
    sized,
    token_font,
    two_digits,
)

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
LONGEST_LABEL, LONGEST_HOVER = 18, 160
ROOM = 0.4  # depths between the end of a line and its name


def depth_lines(
    series: Mapping[str, np.ndarray],
    names: Sequence[str],
    *,
    title: str,
    band: tuple[np.ndarray, np.ndarray] | None = None,
    shares: bool = False,
    min_span: float = 0.1,
) -> go.Figure:
    """Some figures from depth to depth, each line with its name at its end.

    series: name -> one number for each of the `names` of the depths. band: lowest and highest of the first.
    title: what is drawn upwards. shares: of all, written as per cent. min_span: what the picture goes over at least, so
        that small differences look small.
    Names and title are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if a line, or the band, has another number of figures than there are depths.
    """
    lines = {**series, **({} if band is None else {"lowest": band[0], "highest": band[1]})}
    for name, values in lines.items():
        if len(values) != len(names):
            raise ValueError(f"{name!r} has {len(values)} figures for {len(names)} depths: one for each")
    colours, size, depths = page(), sized(14, 18), list(range(len(names)))
    height = sized(380, 440)
    whole = np.concatenate([np.asarray(values, float) for values in lines.values()])
    low, high = float(whole.min()), float(whole.max())
    middle, spread = (low + high) / 2, max(high - low, min_span)
    bottom, top = middle - 0.56 * spread, middle + 0.56 * spread
    traces: list[dict[str, Any]] = []
    if band is not None:
        edge = {"x": depths, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        traces += [
            {**edge, "y": band[1].tolist()},
            {**edge, "y": band[0].tolist(), "fill": "tonexty", "fillcolor": _clear(HEAD_COLOURS[0], 0.25)},
        ]
    line_high = 1.35 * size * (top - bottom) / (height - 70)
    ends = _spread([float(values[-1]) for values in series.values()], line_high, bottom, top)
    form = ".1%" if shares else ".4f"
    for number, (name, values) in enumerate(series.items()):
        style = {"color": HEAD_COLOURS[number], "dash": HEAD_DASHES[number], "width": sized(2.5, 4)}
        traces += [
            {
                "x": depths, "y": values.tolist(), "mode": "lines+markers", "name": plain(name, 40), "line": style,
                "marker": {"size": sized(8, 11), "symbol": SYMBOLS[number]}, "cliponaxis": False,
                "hovertemplate": f"{plain(name, LONGEST_HOVER)}<br>%{{x}}: %{{y:{form}}}<extra></extra>",
            },
            {
                "x": [depths[-1], depths[-1] + ROOM], "y": [float(values[-1]), ends[number]], "mode": "lines",
                "line": {**style, "width": 1}, "hoverinfo": "skip",
            },
        ]  # fmt: skip
    layout = {
        "height": height,
        "showlegend": False,
        "margin": {"t": 12, "r": round(0.56 * size * max(map(len, series)) + 14), "b": 8, "l": 8},
        "annotations": [
            {
                "x": 1, "xref": "paper", "xanchor": "left", "xshift": 4, "y": end, "yanchor": "middle",
                "text": plain(name, 40), "showarrow": False, "font": {"size": size, "color": colours.text},
            }
            for name, end in zip(series, ends, strict=True)
        ],
        "xaxis": {
            "tickmode": "array", "tickvals": depths, "ticktext": list(names), "zeroline": False, "tickangle": 0,
            "range": [-0.15, depths[-1] + ROOM], "fixedrange": True,
        },
        "yaxis": {
            "title": {"text": plain(title)}, "zeroline": False, "range": [bottom, top], "fixedrange": True,
            **({"tickformat": ".0%"} if shares else {}),
        },
    }  # fmt: skip
    return figure_of([{"type": "scatter", **trace} for trace in traces], layout)


def erased_bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
) -> go.Figure:
    """Words for a gap, with a bar each for what the model says of it in several ways.

    series: name -> the probability of each of the labels, in their order, the first on top.
    Labels and names are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ.
    """
    for name, numbers in series.items():
        if len(numbers) != len(labels):
            raise ValueError(f"{len(labels)} labels and {len(numbers)} probabilities ({name}): one for each label")
    whole = [plain(label, LONGEST_HOVER) for label in labels]
    size, rows = sized(14, 18), list(range(len(labels)))
    bars = [
        {
            "type": "bar", "orientation": "h", "name": plain(name, 40), "x": list(numbers), "y": rows,
            "text": [two_digits(number) for number in numbers], "textposition": "outside", "constraintext": "none",
            "cliponaxis": False, "customdata": whole,
            "hovertemplate": f"%{{customdata}}<br>{plain(name, 40)} %{{x:.9g}}<extra></extra>",
            "marker": {
                "color": page().background, "line": {"color": HEAD_COLOURS[number], "width": 1},
                "pattern": {
                    "shape": shape, "fgcolor": HEAD_COLOURS[number], "size": 7, "solidity": 0.35,
                },
            } if shape else {"color": HEAD_COLOURS[number]},
        }
        for number, ((name, numbers), shape) in enumerate(zip(series.items(), ("/", "", "."), strict=False))
    ]  # fmt: skip
    largest = max((number for numbers in series.values() for number in numbers), default=1.0)
    layout = {
        "barmode": "group", "bargap": 0.25, "bargroupgap": 0.06, "showlegend": True, "dragmode": False,
        "legend": {"traceorder": "normal"}, "hovermode": "closest",
        "height": round(len(labels) * (sized(66, 80)) + 110),
        "margin": {"t": 44, "r": 56},
        "xaxis": {"range": [0, largest * 1.02], "title": {"text": "probability"}, "nticks": 5, "zeroline": False},
        "yaxis": label_axis(
            [plain(label, LONGEST_LABEL) + "  " for label in labels],
            tickfont=token_font(size), range=[len(labels) - 0.5, -0.5],
        ),
    }  # fmt: skip
    return figure_of(bars, layout)


def _spread(places: Sequence[float], min_distance: float, bottom: float, top: float) -> list[float]:
    """Places at least so far from each other, in their order and near where they were, inside the picture."""
    order = np.argsort(places, kind="stable")
    positions = np.array(places, float)[order]
    positions[-1] = min(positions[-1], top)
    for index in range(len(positions) - 2, -1, -1):
        positions[index] = min(positions[index], positions[index + 1] - min_distance)
    positions[0] = max(positions[0], bottom)
    for index in range(1, len(positions)):
        positions[index] = max(positions[index], positions[index - 1] + min_distance)
    back = np.empty_like(positions)
    back[order] = positions
    return back.tolist()  # type: ignore[no-any-return]


def _clear(colour: str, share: float) -> str:
    """A colour that lets the page through."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {share})"

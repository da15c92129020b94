"""Figures of probes: scores from depth to depth, and predictions after a property was erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import (
    HEAD_COLOURS,
    annotation,
    figure_of,
    hatched,
    labelled_bars,
    lines,
    page,
    plain,
    rgb,
    row_axis,
    series_line,
    sized,
    tick_axis,
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
    """Draw series of numbers from depth to depth, each line with its name at its end.

    series: name -> (depth,) numbers, as many as `names`. band: (depth,) lowest and highest of the first series.
    title: of the vertical axis. shares: whether numbers are shares, written in per cent. min_span: smallest range of
        the vertical axis, so that small differences look small.
    Names and title are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the length of a series or of the band is not the number of depths.
    """
    numbers = {**series, **({} if band is None else {"lowest": band[0], "highest": band[1]})}
    for name, values in numbers.items():
        if len(values) != len(names):
            raise ValueError(f"{name!r} has {len(values)} figures for {len(names)} depths: one for each")
    colours, size, depths = page(), sized(14, 18), list(range(len(names)))
    height = sized(380, 440)
    whole = np.concatenate([np.asarray(values, float) for values in numbers.values()])
    low, high = float(whole.min()), float(whole.max())
    middle, spread = (low + high) / 2, max(high - low, min_span)
    bottom, top = middle - 0.56 * spread, middle + 0.56 * spread
    traces: list[dict[str, Any]] = []
    if band is not None:
        edge, fill = {"width": 0}, {"fill": "tonexty", "fillcolor": _clear(HEAD_COLOURS[0], 0.25)}
        traces = [lines(depths, band[1].tolist(), line=edge), lines(depths, band[0].tolist(), line=edge, **fill)]
    line_high = 1.35 * size * (top - bottom) / (height - 70)
    ends = _spread([float(values[-1]) for values in series.values()], line_high, bottom, top)
    form = ".1%" if shares else ".4f"
    for number, (name, values) in enumerate(series.items()):
        line, marker = series_line(number), {"size": sized(8, 11), "symbol": SYMBOLS[number]}
        hover = f"{plain(name, LONGEST_HOVER)}<br>%{{x}}: %{{y:{form}}}"
        style = {"name": plain(name, 40), "line": line, "marker": marker, "cliponaxis": False}
        to_name = ([depths[-1], depths[-1] + ROOM], [float(values[-1]), ends[number]])
        traces += [lines(depths, values.tolist(), hover, **style), lines(*to_name, line={**line, "width": 1})]
    name_style: dict[str, Any] = {"xref": "paper", "xanchor": "left", "xshift": 4, "yanchor": "middle"}
    name_style["font"] = {"size": size, "color": colours.text}
    layout = {
        "height": height,
        "showlegend": False,
        "margin": {"t": 12, "r": round(0.56 * size * max(map(len, series)) + 14), "b": 8, "l": 8},
        "annotations": [
            annotation(plain(name, 40), 1, end, **name_style) for name, end in zip(series, ends, strict=True)
        ],
        "xaxis": tick_axis(names, tickangle=0, range=[-0.15, depths[-1] + ROOM], fixedrange=True),
        "yaxis": {"title": {"text": plain(title)}, "zeroline": False, "range": [bottom, top], "fixedrange": True}
        | ({"tickformat": ".0%"} if shares else {}),
    }
    return figure_of(traces, layout)


def erased_bars(labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> go.Figure:
    """Draw words for a mask with one bar for the probability in each series.

    series: name -> (word,) probabilities, the first word on top; at most 3 series.
    Labels and names are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ.
    """
    for name, numbers in series.items():
        if len(numbers) != len(labels):
            raise ValueError(f"{len(labels)} labels and {len(numbers)} probabilities ({name}): one for each label")
    whole = [plain(label, LONGEST_HOVER) for label in labels]
    traces = []
    for number, ((name, values), shape) in enumerate(zip(series.items(), ("/", "", "."), strict=False)):
        colour, texts = HEAD_COLOURS[number], [two_digits(value) for value in values]
        fill = hatched(colour, shape=shape) if shape else {"color": colour}
        style = {"name": plain(name, 40), "constraintext": "none", "marker": fill}
        hover = f"%{{customdata}}<br>{plain(name, 40)} %{{x:.9g}}"
        traces.append(labelled_bars(values, texts, whole, hover, **style))
    largest = max((number for numbers in series.values() for number in numbers), default=1.0)
    layout = {
        "barmode": "group",
        "bargap": 0.25,
        "bargroupgap": 0.06,
        "showlegend": True,
        "dragmode": False,
        "legend": {"traceorder": "normal"},
        "hovermode": "closest",
        "height": round(len(labels) * (sized(66, 80)) + 110),
        "margin": {"t": 44, "r": 56},
        "xaxis": {"range": [0, largest * 1.02], "title": {"text": "probability"}, "nticks": 5, "zeroline": False},
        "yaxis": row_axis(labels, LONGEST_LABEL, tickfont=token_font(sized(14, 18))),
    }
    return figure_of(traces, layout)


def _spread(places: Sequence[float], min_distance: float, bottom: float, top: float) -> list[float]:
    """Return positions in the same order, near the given ones and at least `min_distance` apart."""
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
    """Return a colour with an opacity of `share`, 0 to 1."""
    red, green, blue = rgb(colour)
    return f"rgba({red}, {green}, {blue}, {share})"

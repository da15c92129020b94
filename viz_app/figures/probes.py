"""Figures of probes: scores from depth to depth, and predictions after a property was erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import bars, depth_axis, depth_series, hatched, lines, require_equal_lengths
from viz_app.figures.style import HEAD_COLOURS

ROOM = 0.4  # depths between the end of a line and its name
MARGIN = 0.03  # on either side of the factors, as a share of their range


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
    Raises ValueError if the length of a series or of the band is not the number of depths.
    """
    edges = {} if band is None else depth_series({"lowest": band[0], "highest": band[1]}, names)
    curves = depth_series(series, names)
    numbers = np.concatenate([values for _, values in (*curves.values(), *edges.values())])
    low, high = float(numbers.min()), float(numbers.max())
    middle, span = (low + high) / 2, max(high - low, min_span)
    return lines(
        curves,
        title=title,
        x_axis=depth_axis(names, range=[-0.15, len(names) - 1 + ROOM]),
        y_axis={"range": [middle - 0.56 * span, middle + 0.56 * span]} | ({"tickformat": ".0%"} if shares else {}),
        form=".1%" if shares else ".4f",
        band=(range(len(names)), edges["lowest"][1], edges["highest"][1], HEAD_COLOURS[0]) if edges else None,
        names_at_ends=True,
        height=(460, 440),
    )


def dose_lines(
    factors: np.ndarray,
    series: Mapping[str, np.ndarray],
    *,
    title: str,
    band: tuple[np.ndarray, np.ndarray] | None = None,
    selected: float | None = None,
    min_span: float = 0.5,
    height: tuple[int, int] = (360, 400),
) -> go.Figure:
    """Draw a number by the factor of a steering vector: a line for the vector and one for random vectors.

    factors: (factor,), ascending. series: name -> (factor,) numbers, of the vector first. title: of the vertical axis.
    band: (factor,) lowest and highest of the random vectors. selected: factor that a vertical line marks.
    min_span: smallest range of the vertical axis. height: in pixels, and in lecture mode.
    Raises ValueError if the length of a series or of the band is not the number of factors.
    """
    edges = {} if band is None else {"lowest": band[0], "highest": band[1]}
    require_equal_lengths(factors=factors, **series, **edges)
    numbers = np.concatenate([*series.values(), *edges.values()])
    low, high = float(numbers.min()), float(numbers.max())
    middle, span = (low + high) / 2, max(high - low, min_span)
    places = factors.tolist()
    edge = MARGIN * (places[-1] - places[0])
    ticks = [place for place in places if place == round(place)] or places
    return lines(
        {name: (places, values.tolist()) for name, values in series.items()},
        title=title,
        x_axis={"title": {"text": "factor c"}, "range": [places[0] - edge, places[-1] + edge], "tickvals": ticks},
        y_axis={"range": [middle - 0.56 * span, middle + 0.56 * span]},
        form=".4f",
        place="c = %{x}",
        band=None if band is None else (places, band[0].tolist(), band[1].tolist(), HEAD_COLOURS[1]),
        reference=selected,
        height=height,
    )


def erased_bars(labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> go.Figure:
    """Draw words for a mask with one bar for the probability in each series.

    series: name -> (word,) probabilities, the first word on top; at most 3 series. Raises ValueError if the lengths
    differ.
    """
    shapes = zip(series, HEAD_COLOURS, ("/", "", "."), strict=False)
    fills = {name: hatched(colour, shape=shape) if shape else {"color": colour} for name, colour, shape in shapes}
    return bars(labels, series, title="probability", fills=fills, legend=True)

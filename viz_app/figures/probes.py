"""Figures of probes: scores from depth to depth, and predictions after a property was erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import bars, depth_axis, depth_series, hatched, lines
from viz_app.figures.style import HEAD_COLOURS

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


def erased_bars(labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> go.Figure:
    """Draw words for a mask with one bar for the probability in each series.

    series: name -> (word,) probabilities, the first word on top; at most 3 series. Raises ValueError if the lengths
    differ.
    """
    shapes = zip(series, HEAD_COLOURS, ("/", "", "."), strict=False)
    fills = {name: hatched(colour, shape=shape) if shape else {"color": colour} for name, colour, shape in shapes}
    return bars(labels, series, title="probability", fills=fills, legend=True)

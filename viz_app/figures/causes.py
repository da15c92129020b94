"""What carries an answer from one text to another: a map of effects, and single neurons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.style import DIVERGING, TOKEN_FONT, cell_frame, figure_of, plain, shade
from viz_app.figures.why import CLICKED_CELLS, coloured_cells

LONGEST_LABEL = 20
NUMBERS_THAT_FIT = 14  # columns with a number in every cell


def two_places(effect: float) -> str:
    """An effect as it stands in a cell: 0.07, −1.20, and 0 for what rounds to it; nothing for NaN."""
    if effect != effect:
        return ""
    return f"{effect:.2f}".replace("-", "−") if round(abs(effect), 2) else "0"


def map_width(row_labels: Sequence[str], columns: int) -> int:
    """The pixels from which the numbers of so many columns stand clear of each other."""
    return 40 + 8 * min(max(map(len, row_labels)), LONGEST_LABEL) + 33 * columns


def effect_map(
    effects: np.ndarray,
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    chosen: tuple[int, int] | None = None,
    by_chance: np.ndarray | None = None,
    limit: float = 1.0,
    dark: bool,
    lecture: bool = False,
) -> go.Figure:
    """The effect of each place as a coloured cell: orange goes towards the source's answer, blue away from it.

    effects: (row, column), 0 for nothing and 1 for the source's answer; NaN leaves a cell empty. chosen: the (row,
        column) to frame. by_chance: (row, column), whether a cell is marked with a ring. limit: where the colours end.
    A click on a cell gives back its column as x and its row as y.
    Labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if labels or marks do not fit the effects.
    """
    if effects.shape != (len(row_labels), len(column_labels)) or 0 in effects.shape:
        raise ValueError(
            f"effects of shape {effects.shape}, {len(row_labels)} row and {len(column_labels)} column labels: expected "
            "(row, column), at least one of each"
        )
    if by_chance is not None and by_chance.shape != effects.shape:
        raise ValueError(f"marks of shape {by_chance.shape} for effects of {effects.shape}: one for each")
    (rows, columns), shares = effects.shape, np.clip(effects / (limit or 1.0), -1, 1)
    size = 18 if lecture else 13
    written = columns <= (NUMBERS_THAT_FIT * 2 // 3 if lecture else NUMBERS_THAT_FIT)
    traces = coloured_cells(
        shares, effects, row_labels, column_labels, axis="x", written=two_places if written else None,
        dark=dark, lecture=lecture,
    )  # fmt: skip
    if by_chance is not None:
        cells = np.argwhere(by_chance & np.isfinite(effects)).tolist()
        traces.append({
            "type": "scatter", "x": [column + 0.38 for _, column in cells], "y": [row - 0.28 for row, _ in cells],
            "mode": "markers", "hoverinfo": "skip", "showlegend": False,
            "marker": {
                "symbol": "circle-open", "size": 8 if lecture else 6,
                "color": [shade(shares[row, column], signed=True, dark=dark)[1] for row, column in cells],
            },
        })  # fmt: skip
    layout = {
        **CLICKED_CELLS,
        "shapes": [] if chosen is None else [cell_frame(*chosen, dark=dark, lecture=lecture)],
        "height": round(rows * (38 if lecture else 30) + (84 if lecture else 64)),
        "margin": {"l": 8, "r": 8, "t": 44 if lecture else 34, "b": 10},
        "xaxis": {
            "side": "top", "tickmode": "array", "tickvals": list(range(columns)), "showgrid": False, "zeroline": False,
            "ticktext": [plain(label, LONGEST_LABEL) for label in column_labels], "tickfont": {"size": size},
            "range": [-0.5, columns - 0.5], "fixedrange": True,
        },
        "yaxis": {
            "tickmode": "array", "tickvals": list(range(rows)), "range": [rows - 0.5, -0.5], "showgrid": False,
            "ticktext": [plain(label, LONGEST_LABEL) + "  " for label in row_labels], "zeroline": False,
            "tickfont": {"family": TOKEN_FONT, "size": size}, "fixedrange": True,
        },
    }  # fmt: skip
    return figure_of(traces, layout, dark=dark, lecture=lecture)


def neuron_bars(neurons: Sequence[int], effects: Sequence[float], *, dark: bool, lecture: bool = False) -> go.Figure:
    """The effect of each of some neurons as a horizontal bar, in the order given, the first on top.

    Show with `st.plotly_chart(figure, theme=None)`. Raises ValueError if the lengths differ.
    """
    if len(neurons) != len(effects):
        raise ValueError(f"{len(neurons)} neurons and {len(effects)} effects: one for each")
    ends = DIVERGING.on(dark)
    names, places = [f"neuron {number}" for number in neurons], list(range(len(neurons)))
    reach = max((abs(effect) for effect in effects), default=0.0) or 1.0
    bars = {
        "type": "bar", "orientation": "h", "x": list(effects), "y": places, "showlegend": False,
        "text": [two_places(effect) for effect in effects], "textposition": "outside", "cliponaxis": False,
        "marker": {"color": [ends[9] if effect >= 0 else ends[3] for effect in effects]},
        "customdata": names, "hovertemplate": "%{customdata}<br>%{x:.9g}<extra></extra>",
    }  # fmt: skip
    layout = {
        "height": round(len(neurons) * (38 if lecture else 26) + (84 if lecture else 64)),
        "margin": {"l": 8, "r": 56, "t": 8},
        "dragmode": False,
        "bargap": 0.3,
        "hovermode": "y",
        "xaxis": {
            "title": {"text": "effect"}, "zeroline": True, "nticks": 5,
            "range": [1.15 * min(0.0, *effects, -0.1 * reach), 1.15 * max(0.0, *effects)],
        },
        "yaxis": {
            "tickmode": "array", "tickvals": places, "ticktext": [name + "  " for name in names],
            "range": [len(neurons) - 0.5, -0.5], "showgrid": False, "zeroline": False,
        },
    }  # fmt: skip
    return figure_of([bars], layout, dark=dark, lecture=lecture)

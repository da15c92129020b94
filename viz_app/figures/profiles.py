"""Shares, as of what a head looks at, beside those of chance."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from viz_app.figures.style import SEQUENTIAL, current_look, figure_of, page, plain

LONGEST_LABEL = 28
LEAST_WRITTEN = 0.005


def share_bars(
    names: Sequence[str],
    shares: Sequence[float],
    chances: Sequence[float],
    *,
    of: str = "this head",
    title: str = "share of looks",
    form: str = ".0%",
) -> go.Figure:
    """A bar for each share, the first on top, and a line across it where chance would end.

    shares, chances: (name,), 0 to 1. of: whose they are. title: what they are. form: how they are written. Names are
    plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ.
    """
    look = current_look()
    if not len(names) == len(shares) == len(chances):
        raise ValueError(f"{len(names)} names, {len(shares)} shares and {len(chances)} of chance: one of each")
    colours, places = page(), list(range(len(names)))
    written, fine = [plain(name, LONGEST_LABEL) for name in names], ".1%" if form.endswith("%") else form
    bars = {
        "type": "bar", "orientation": "h", "x": list(shares), "y": places, "name": of, "cliponaxis": False,
        "marker": {"color": SEQUENTIAL.colours()[7]},
        "hovertemplate": f"%{{customdata[0]}}<br>%{{x:{fine}}}, by chance %{{customdata[1]:{fine}}}<extra></extra>",
        "customdata": [[name, chance] for name, chance in zip(written, chances, strict=True)],
    }  # fmt: skip
    by_chance = {
        "type": "scatter", "mode": "markers", "x": list(chances), "y": places, "name": "by chance",
        "marker": {
            "symbol": "line-ns", "size": 22 if look.lecture else 16, "line": {"width": 3, "color": colours.text},
        },
        "hoverinfo": "skip",
    }  # fmt: skip
    numbers = {
        "type": "scatter", "mode": "text", "y": places, "showlegend": False, "cliponaxis": False, "hoverinfo": "skip",
        "x": [max(both) for both in zip(shares, chances, strict=True)], "textposition": "middle right",
        "text": [f"  {share:{form}}" if share >= LEAST_WRITTEN else "" for share in shares],
    }  # fmt: skip
    layout = {
        "height": round(len(names) * (36 if look.lecture else 25) + 110),
        "margin": {"l": 8, "r": 56, "t": 40, "b": 8},
        "bargap": 0.3,
        "dragmode": False,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
        "xaxis": {
            "title": {"text": title}, "tickformat": form,
            "range": [0, 1.12 * max([*shares, *chances, 0.01])],
        },
        "yaxis": {
            "tickmode": "array", "tickvals": places, "range": [len(names) - 0.4, -0.6], "showgrid": False,
            "ticktext": [f"{name}  " for name in written], "zeroline": False,
        },
    }  # fmt: skip
    return figure_of([bars, by_chance, numbers], layout)

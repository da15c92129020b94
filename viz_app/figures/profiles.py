"""Bars of shares, such as those of a head's attention, beside the shares by chance."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from viz_app.figures.style import SEQUENTIAL, bars, figure_of, label_axis, page, plain, points, sized

LONGEST_LABEL = 28
MIN_LABELLED_SHARE = 0.005


def share_bars(
    names: Sequence[str],
    shares: Sequence[float],
    chances: Sequence[float],
    *,
    series_name: str = "this head",
    title: str = "share of looks",
    form: str = ".0%",
) -> go.Figure:
    """Draw a bar for each share, the first on top, with a mark at the share by chance.

    shares, chances: (name,), 0 to 1. series_name: of the shares, in the legend. title: of the horizontal axis.
    form: format specification of the shares. Names are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the lengths differ.
    """
    if not len(names) == len(shares) == len(chances):
        raise ValueError(f"{len(names)} names, {len(shares)} shares and {len(chances)} of chance: one of each")
    colours, places = page(), list(range(len(names)))
    labels, fine = [plain(name, LONGEST_LABEL) for name in names], ".1%" if form.endswith("%") else form
    hover = f"%{{customdata[0]}}<br>%{{x:{fine}}}, by chance %{{customdata[1]:{fine}}}"
    pairs = [[name, chance] for name, chance in zip(labels, chances, strict=True)]
    style = {"name": series_name, "marker": {"color": SEQUENTIAL.colours()[7]}, "customdata": pairs}
    mark = {"symbol": "line-ns", "size": sized(16, 22), "line": {"width": 3, "color": colours.text}}
    text = [f"  {share:{form}}" if share >= MIN_LABELLED_SHARE else "" for share in shares]
    text_style = {"mode": "text", "text": text, "textposition": "middle right", "showlegend": False}
    ends = [max(pair) for pair in zip(shares, chances, strict=True)]
    traces = [
        bars(list(shares), places, hover, cliponaxis=False, **style),
        points(list(chances), places, name="by chance", marker=mark),
        points(ends, places, cliponaxis=False, **text_style),
    ]
    layout = {
        "height": round(len(names) * sized(25, 36) + 110),
        "margin": {"l": 8, "r": 56, "t": 40, "b": 8},
        "bargap": 0.3,
        "dragmode": False,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
        "xaxis": {"title": {"text": title}, "tickformat": form, "range": [0, 1.12 * max([*shares, *chances, 0.01])]},
        "yaxis": label_axis([f"{name}  " for name in labels], range=[len(names) - 0.4, -0.6]),
    }
    return figure_of(traces, layout)

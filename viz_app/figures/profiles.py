"""Bars of shares, such as those of a head's attention, compared with a baseline."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from viz_app.figures.primitives import bars, require_equal_lengths

MIN_LABELLED_SHARE = 0.005


def share_bars(
    names: Sequence[str],
    shares: Sequence[float],
    chances: Sequence[float],
    *,
    series_name: str = "this head",
    title: str = "share of tokens",
    form: str = ".0%",
) -> go.Figure:
    """Draw a bar for each share, the first on top, with a mark at the share of the baseline.

    shares, chances: (name,), 0 to 1. series_name: of the shares, in the legend. title: of the horizontal axis.
    form: format specification of the shares. Raises ValueError if the lengths differ.
    """
    require_equal_lengths(names=names, shares=shares, shares_by_chance=chances)
    return bars(
        names,
        {series_name: shares},
        title=title,
        write=lambda share: f"{share:{form}}" if share >= MIN_LABELLED_SHARE else "",
        form=".1%" if form.endswith("%") else form,
        marks=("baseline", chances),
        axis={"tickformat": form},
        legend=True,
        tokens=False,
        longest=28,
    )

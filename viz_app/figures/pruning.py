"""The curve of a model's score against the share of its heads, neurons or layers that were removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz_app.figures.primitives import lines

GREY = "#8c94a0"
RANDOM_ORDERS = "random orders: mean and range"


def pruning_curve(
    curves: Sequence[tuple[str, np.ndarray, np.ndarray]],
    band: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    *,
    current_point: tuple[float, float] | None,
    total: int,
    unit: str,
    part_name: str = "heads",
) -> go.Figure:
    """Draw a score of a model against the share of its heads, or of its other parts, that was removed.

    curves: name, number of removed parts (point,) and score (point,) each. band: of random orders: number of removed
        parts, lowest, mean and highest score, (point,) each. current_point: number of removed parts and score of the
        current selection. total: number of parts before. unit: of the score, in words. part_name: of the parts.
    """
    removed, low, mean, high = band
    series = {name: ((x / total).tolist(), y.tolist()) for name, x, y in curves}
    random_orders = {RANDOM_ORDERS: ((removed / total).tolist(), mean.tolist())} if len(removed) else {}
    label = f"the {part_name} that are {'off' if part_name == 'heads' else 'gone'} now"
    return lines(
        random_orders | series,
        title=unit,
        x_axis={"title": {"text": f"share of {part_name} removed"}, "tickformat": ".0%", "range": [-0.02, 1.02]},
        form=".4~g",
        place="%{x:.0%} gone",
        band=((removed / total).tolist(), low.tolist(), high.tolist(), GREY) if len(removed) else None,
        dotted=(RANDOM_ORDERS,),
        point=None if current_point is None else (label, current_point[0] / total, current_point[1]),
        height=(360, 480),
    )
